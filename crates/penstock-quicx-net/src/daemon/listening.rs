//! Where connections come in.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use penstock_io::DriverError as _;
use penstock_io::admission::{FirstByte, Listen, Permit};
use penstock_io::runtime::Runtime;
use penstock_io::tcp::listen;
use penstock_io::tls::{Acceptor, ClientCertificates, Fingerprint};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream, unix};
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::serve::Connection;
use super::state::Shared;
use super::{DaemonOptions, thrown};
use crate::{Error, Result};
use penstock_io::unix::{SocketFile, listen as listen_unix};

/// How often the files of the certificate are looked at.
const RELOAD: Duration = Duration::from_secs(5);

/// Sockets that listen. Nothing is left of them when this is dropped.
pub(super) struct Listeners {
    pub(super) address: Option<SocketAddr>,
    pub(super) tls_address: Option<(SocketAddr, Fingerprint)>,
    plain: Option<TcpListener>,
    tls: Option<(TcpListener, Arc<Acceptor>)>,
    unix: Option<(UnixListener, SocketFile)>,
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

    /// Takes connections from now on; gives the file of the socket, to be removed at the end.
    pub(super) fn serve(self, runtime: &Handle, shared: &Arc<Shared>) -> Option<SocketFile> {
        if let Some(listener) = self.plain {
            runtime.spawn(accept_plain(listener, Arc::clone(shared)));
        }
        if let Some((listener, acceptor)) = self.tls {
            runtime.spawn(keep_certificate(Arc::clone(&acceptor), Arc::clone(shared)));
            runtime.spawn(accept_tls(listener, acceptor, Arc::clone(shared)));
        }
        let (listener, file) = self.unix?;
        runtime.spawn(accept_unix(listener, Arc::clone(shared)));
        Some(file)
    }
}

fn tcp(address: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let context = |error| Error::io(format!("cannot listen on {address}"), error);
    let listener = listen(address).map_err(context)?;
    let address = listener.local_addr().map_err(context)?;
    Ok((TcpListener::from_std(listener).map_err(context)?, address))
}

fn unix(path: &Path) -> Result<(UnixListener, SocketFile)> {
    let (listener, file) = listen_unix(path)?;
    let listener = UnixListener::from_std(listener).map_err(|error| Error::file("cannot listen on", path, error))?;
    Ok((listener, file))
}

/// Takes connections until the daemon stops.
async fn accept<L: Listen>(shared: &Arc<Shared>, listener: &L, serve: impl FnMut(L::Stream, L::Peer, Permit)) {
    tokio::select! {
        never = shared.admission.accept(listener, serve) => match never {},
        () = thrown(&shared.stop) => {}
    }
}

async fn accept_plain(listener: TcpListener, shared: Arc<Shared>) {
    let serve = |stream: TcpStream, peer: SocketAddr, permit| {
        spawn(&shared, stream, permit, &peer.to_string(), peer.ip().to_canonical().is_loopback());
    };
    accept(&shared, &listener, serve).await;
}

async fn accept_unix(listener: UnixListener, shared: Arc<Shared>) {
    let serve = |stream: UnixStream, _: unix::SocketAddr, permit| spawn(&shared, stream, permit, "unix", true);
    accept(&shared, &listener, serve).await;
}

async fn accept_tls(listener: TcpListener, acceptor: Arc<Acceptor>, shared: Arc<Shared>) {
    let serve = |stream: TcpStream, peer: SocketAddr, permit: Permit| {
        let (handshake, shared) = (acceptor.acceptor().accept(stream), Arc::clone(&shared));
        tokio::spawn(async move {
            let stream = match permit.in_time(handshake).await {
                Some(Ok(stream)) => stream,
                Some(Err(error)) => return tracing::warn!(%peer, %error, "a handshake failed"),
                None => return tracing::warn!(%peer, "a handshake took too long"),
            };
            // The CA has signed it, or there would be none.
            let certified = stream.get_ref().1.peer_certificates().is_some_and(|chain| !chain.is_empty());
            let trusted = certified || peer.ip().to_canonical().is_loopback();
            let stream = FirstByte::new(stream, &permit);
            Connection::new(&shared, stream, permit, &peer.to_string(), trusted).run().await;
        });
    };
    accept(&shared, &listener, serve).await;
}

fn spawn<S>(shared: &Arc<Shared>, stream: S, permit: Permit, name: &str, trusted: bool)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = FirstByte::new(stream, &permit);
    tokio::spawn(Connection::new(shared, stream, permit, name, trusted).run());
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
