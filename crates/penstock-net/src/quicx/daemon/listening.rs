//! Where connections come in.

use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use super::serve::Connection;
use super::state::Shared;
use super::{DaemonOptions, thrown};
use crate::runtime::Runtime;
use crate::tcp::listen;
use crate::tls::{Acceptor, ClientCertificates, Fingerprint};
use crate::{Error, Result};

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How often the files of the certificate are looked at.
const RELOAD: Duration = Duration::from_secs(5);
/// How long to wait when the system has no more sockets.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// After so long a silence the system asks whether the other end is there.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Sockets that listen.
pub(super) struct Listeners {
    pub(super) address: Option<SocketAddr>,
    pub(super) tls_address: Option<(SocketAddr, Fingerprint)>,
    plain: Option<TcpListener>,
    tls: Option<(TcpListener, Arc<Acceptor>)>,
    unix: Option<(UnixListener, UnixPath)>,
}

/// The name of a Unix socket, which goes with it.
#[derive(Debug, Clone)]
pub(super) struct UnixPath(PathBuf);

impl UnixPath {
    pub(super) fn remove(&self) {
        // An error means that it is gone already.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Listeners {
    pub(super) fn bind(options: &DaemonOptions) -> Result<Self> {
        let runtime = Runtime::current()?;
        let _entered = runtime.handle().enter();
        let plain = options.listen.map(tcp).transpose()?;
        if let Some((_, address)) = plain.as_ref().filter(|(_, address)| !address.ip().is_loopback()) {
            tracing::warn!(%address, "anyone who can reach this address may submit and take tasks: it is not encrypted");
        }
        let tls = options.tls.clone().map(|(address, tls)| {
            if tls.client_ca.is_none() && !address.ip().is_loopback() {
                tracing::warn!(%address, "anyone who can reach this address may submit and take tasks: no client CA");
            }
            let acceptor = Arc::new(Acceptor::new(tls, ClientCertificates::Required)?);
            let (listener, address) = tcp(address)?;
            Ok::<_, Error>((listener, acceptor, address))
        });
        let tls = tls.transpose()?;
        let unix = options.socket.as_deref().map(unix).transpose()?;
        Ok(Self {
            address: plain.as_ref().map(|(_, address)| *address),
            tls_address: tls.as_ref().map(|(_, acceptor, address)| (*address, acceptor.fingerprint())),
            plain: plain.map(|(listener, _)| listener),
            tls: tls.map(|(listener, acceptor, _)| (listener, acceptor)),
            unix,
        })
    }

    /// Takes connections from now on; gives the name of the socket, to be removed at the end.
    pub(super) fn serve(self, runtime: &Handle, shared: &Arc<Shared>) -> Option<UnixPath> {
        if let Some(listener) = self.plain {
            runtime.spawn(accept_plain(listener, Arc::clone(shared)));
        }
        if let Some((listener, acceptor)) = self.tls {
            runtime.spawn(keep_certificate(Arc::clone(&acceptor), Arc::clone(shared)));
            runtime.spawn(accept_tls(listener, acceptor, Arc::clone(shared)));
        }
        let (listener, path) = self.unix?;
        runtime.spawn(accept_unix(listener, Arc::clone(shared)));
        Some(path)
    }
}

fn tcp(address: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let context = |error| Error::io(format!("cannot listen on {address}"), &error);
    let listener = listen(address).map_err(context)?;
    let address = listener.local_addr().map_err(context)?;
    Ok((TcpListener::from_std(listener).map_err(context)?, address))
}

/// A socket of this name, for our own user alone. One that a daemon left behind is replaced; one that is in use is not.
fn unix(path: &Path) -> Result<(UnixListener, UnixPath)> {
    let context = |error| Error::file("cannot listen on", path, &error);
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        if StdUnixStream::connect(path).is_ok() {
            return Err(Error::Misuse(format!("{}: another daemon listens there", path.display())));
        }
        std::fs::remove_file(path).map_err(context)?;
    }
    let listener = StdUnixListener::bind(path).map_err(context)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(context)?;
    listener.set_nonblocking(true).map_err(context)?;
    Ok((UnixListener::from_std(listener).map_err(context)?, UnixPath(path.to_owned())))
}

/// Takes connections until the daemon stops.
async fn accept<S, A>(shared: &Arc<Shared>, accepting: impl Fn() -> A, serve: impl Fn(S))
where
    A: Future<Output = std::io::Result<S>>,
{
    loop {
        let accepted = tokio::select! {
            accepted = accepting() => accepted,
            () = thrown(&shared.stop) => return,
        };
        match accepted {
            Ok(_) if shared.lock().queue.connections() >= shared.max_connections => {
                tracing::warn!(limit = shared.max_connections, "a connection too many was closed");
            }
            Ok(stream) => serve(stream),
            Err(error) => {
                tracing::warn!(%error, "no connection could be taken");
                sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

async fn accept_plain(listener: TcpListener, shared: Arc<Shared>) {
    let serve = |(stream, peer): (TcpStream, SocketAddr)| {
        prepare(&stream);
        spawn(&shared, stream, &peer.to_string(), peer.ip().to_canonical().is_loopback());
    };
    accept(&shared, || listener.accept(), serve).await;
}

async fn accept_unix(listener: UnixListener, shared: Arc<Shared>) {
    let serve = |(stream, _)| spawn(&shared, stream, "unix", true);
    accept(&shared, || listener.accept(), serve).await;
}

async fn accept_tls(listener: TcpListener, acceptor: Arc<Acceptor>, shared: Arc<Shared>) {
    let serve = |(stream, peer): (TcpStream, SocketAddr)| {
        prepare(&stream);
        let (handshake, shared) = (acceptor.acceptor().accept(stream), Arc::clone(&shared));
        tokio::spawn(async move {
            let stream = match timeout(HANDSHAKE, handshake).await {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return tracing::warn!(%peer, %error, "a handshake failed"),
                Err(_) => return tracing::warn!(%peer, "a handshake took too long"),
            };
            // The CA has signed it, or there would be none.
            let certified = stream.get_ref().1.peer_certificates().is_some_and(|chain| !chain.is_empty());
            let trusted = certified || peer.ip().to_canonical().is_loopback();
            Connection::new(&shared, stream, &peer.to_string(), trusted).run().await;
        });
    };
    accept(&shared, || listener.accept(), serve).await;
}

fn spawn<S>(shared: &Arc<Shared>, stream: S, name: &str, trusted: bool)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    tokio::spawn(Connection::new(shared, stream, name, trusted).run());
}

/// Small frames go at once, and a peer whose machine is gone is noticed. What the system cannot do is left.
fn prepare(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE));
}

async fn keep_certificate(acceptor: Arc<Acceptor>, shared: Arc<Shared>) {
    loop {
        tokio::select! {
            () = sleep(RELOAD) => {}
            () = thrown(&shared.stop) => return,
        }
        let reloading = Arc::clone(&acceptor);
        match tokio::task::spawn_blocking(move || reloading.reload()).await {
            Ok(Ok(true)) => tracing::info!(fingerprint = %acceptor.fingerprint(), "the certificate was read again"),
            Ok(Err(error)) => tracing::warn!(%error, "the new certificate cannot be used; the old one stays"),
            Ok(Ok(false)) | Err(_) => {}
        }
    }
}
