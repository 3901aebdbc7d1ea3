//! The receiver: listens, and serves each connection in its own task.

mod budget;
#[cfg(target_os = "linux")]
mod confirmed;
mod connection;
mod connection_guard;
mod counters;
mod identity;
mod intake;
mod link;
mod protocol_sniff;
mod shared;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use penstock_io::admission::{Admission, Config, FirstByte, Permit};
use penstock_io::listener::{self, HandshakeError, Listener, Stream};
use penstock_io::runtime::{PerProcess, Runtime};
use penstock_io::tls::{Acceptor, Fingerprint, Offer};
use penstock_io::{DriverError as _, metrics};
use penstock_lumberjack::ErrorKind;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use self::connection::{Connection, ConnectionSummary};
pub use self::counters::ReceiverCounters;
use self::counters::{Counters, add};
use self::link::{Link, Socket};
use self::protocol_sniff::DetectedProtocol;
pub use self::shared::ReceiverOptions;
use self::shared::{Shared, Stage};
use super::delivery::{Destination, Origin};
use crate::{Error, Result};

/// A receiver, which listens until it is dropped.
pub struct Receiver(PerProcess<Arc<Shared>>);

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}

impl Receiver {
    /// Listen. Blocks on the certificate's files.
    pub fn bind(options: ReceiverOptions, destination: Arc<dyn Destination>) -> Result<Self> {
        let offer = Offer::tcp(&[]).with_certificates(options.client_certificates);
        let acceptor = Acceptor::optional(options.tls.as_ref(), offer)?;
        let runtime = Runtime::current()?;
        let metrics = options.metrics.clone();
        let counters = Counters::default();
        let config = Config {
            per_address: options.max_connections_per_address,
            ..Config::new("Lumberjack", options.max_connections)
        };
        let admission = Admission::new(config, Arc::clone(&counters.admission))?;
        let (listener, address) = Listener::tcp(options.listen.clone(), acceptor.clone(), &admission)?;
        let shared = Arc::new(Shared::new(options, address, acceptor, destination, counters, admission));
        if let Some(listen) = metrics {
            let endpoint = metrics::Endpoint::bind(listen, Arc::clone(&shared) as Arc<dyn metrics::Source>)?;
            drop(shared.metrics.set(endpoint));
        }
        runtime.handle().spawn(accept(listener, Arc::clone(&shared), runtime));
        Ok(Self(PerProcess::new(shared)))
    }

    /// Return the address on which it listens.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        Ok(self.0.get()?.address)
    }

    /// Return the address on which metrics are served, if they are.
    pub fn metrics_addr(&self) -> Result<Option<SocketAddr>> {
        Ok(self.0.get()?.metrics.get().map(metrics::Endpoint::address))
    }

    /// Return the fingerprint that clients pin; `None` without TLS.
    pub fn fingerprint(&self) -> Result<Option<Fingerprint>> {
        Ok(self.0.get()?.acceptor.as_ref().map(|acceptor| acceptor.fingerprint()))
    }

    /// Return the counters.
    pub fn counters(&self) -> Result<ReceiverCounters> {
        let shared = self.0.get()?;
        Ok(shared.counters.snapshot(&shared.budget, &shared.admission))
    }

    /// Read the certificate again if its files have changed; return whether they had. The receiver itself checks every
    /// 5 s.
    pub fn reload(&self) -> Result<bool> {
        self.0.get()?.reload()
    }

    /// Stop reading. Events that have arrived are handed over and acknowledged, then the
    /// connections end; connections that are still open after `grace` are cut off. Then the
    /// destination is closed, even if the caller stops waiting.
    pub async fn shutdown(&self, grace: Duration) -> Result<()> {
        let shared = Arc::clone(self.0.get()?);
        let ended = penstock_io::runtime::spawn(async move {
            shared.shutdown(grace).await;
            spawn_blocking(move || shared.close_destination()).await
        })?;
        ended.await.flatten().map_err(Error::task)?
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // In a forked child the socket belongs to the parent.
        if let Ok(shared) = self.0.get() {
            shared.halt();
        }
    }
}

async fn accept(listener: Listener, shared: Arc<Shared>, runtime: &'static Runtime) {
    let mut stage = shared.stage.subscribe();
    let stopped = async { drop(stage.wait_for(|stage| stage.is_stopping()).await) };
    let serve = |connection: listener::Connection| {
        add(&shared.counters.connections, 1);
        let listener::Connection { stream: Stream::Tcp(stream), peer: Some(peer), permit, .. } = connection else {
            return;
        };
        // The socket moves to the thread of its task, and its events are processed there.
        let Ok(stream) = stream.into_std() else { return };
        let shared = Arc::clone(&shared);
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        runtime.spread(number).spawn(async move {
            let Ok(stream) = TcpStream::from_std(stream) else { return };
            let mut stage = shared.stage.subscribe();
            tokio::select! {
                () = serve(stream, peer, number, &shared, &permit) => {}
                _ = stage.wait_for(|stage| stage.is_cut()) => tracing::warn!(%peer, "a connection was cut off"),
            }
        });
    };
    listener.run(stopped, serve).await;
}

async fn serve(stream: TcpStream, peer: SocketAddr, number: u64, shared: &Arc<Shared>, permit: &Permit) {
    // Normalise, so that a host is the same over IPv4 and mapped IPv6.
    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    let stage = shared.stage.subscribe();
    let began = Instant::now();
    let (identity, account, result) = match admit(stream, peer, number, shared, permit, stage).await {
        Ok(Some(served)) => served,
        Ok(None) => return,
        Err(error) => {
            shared.counters.error(error.kind());
            tracing::warn!(%peer, %error, "a connection was refused");
            return;
        }
    };
    let ConnectionSummary { events, acknowledged, bytes } = account;
    let seconds = began.elapsed().as_secs_f64();
    let identity = identity.as_deref().unwrap_or("-");
    match result {
        Ok(why) => {
            tracing::info!(target: "penstock::access", %peer, identity, events, acknowledged, bytes, seconds, why, "connection");
        }
        Err(error) => {
            shared.counters.error(error.kind());
            let why = error.to_string();
            tracing::info!(target: "penstock::access", %peer, identity, events, acknowledged, bytes, seconds, why, "connection");
            // A broken connection is routine; a broken rule is worth a warning.
            if error.kind() != ErrorKind::Io {
                tracing::warn!(%peer, identity, %error, "a connection ended with an error");
            }
        }
    }
}

type Served = (Option<Arc<str>>, ConnectionSummary, Result<&'static str>);

/// Serve a connection; return `None` if it was closed at once, or if the client speaks another
/// protocol.
async fn admit(
    stream: TcpStream,
    peer: SocketAddr,
    number: u64,
    shared: &Arc<Shared>,
    permit: &Permit,
    mut stage: watch::Receiver<Stage>,
) -> Result<Option<Served>> {
    let broken = |error| Error::io("the connection broke", error);
    let speaks = tokio::select! {
        sniffed = permit.in_time(protocol_sniff::sniff(&stream, shared.acceptor.is_some())) => match sniffed {
            Some(sniffed) => sniffed.map_err(broken)?,
            None => {
                tracing::info!(%peer, "a silent connection was closed");
                return Ok(None);
            }
        },
        _ = stage.wait_for(|stage| stage.is_stopping()) => return Ok(None),
    };
    let Some(speaks) = speaks else { return Ok(None) };
    if speaks != DetectedProtocol::Expected {
        shared.counters.foreign(speaks);
        tracing::warn!(%peer, protocol = speaks.name(), "{}", speaks.explanation(shared.acceptor.is_some()));
        if speaks == DetectedProtocol::Http {
            protocol_sniff::answer_http(stream).await;
        }
        return Ok(None);
    }
    let stream = Link::new(stream);
    let socket = stream.socket();
    let Some(acceptor) = &shared.acceptor else {
        let connection = connection(stream, socket, shared, number, peer, None);
        let (account, result) = connection.run(stage).await;
        return Ok(Some((None, account, result)));
    };
    let stream = permit.handshake(acceptor.config(), stream).await.map_err(|error| {
        add(&shared.counters.handshakes_failed, 1);
        match error {
            HandshakeError::Failed(error) => Error::tls_from(format!("handshake: {error}"), error),
            HandshakeError::Late => Error::deadline(HandshakeError::Late.to_string()),
        }
    })?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let known = certificate.map(|leaf| (identity::name(leaf), Fingerprint::of(leaf)));
    let connection = connection(FirstByte::new(stream, permit), socket, shared, number, peer, known);
    let name = connection.origin.identity.clone();
    let (account, result) = connection.run(stage).await;
    Ok(Some((name, account, result)))
}

fn connection<S>(
    stream: S,
    socket: Socket,
    shared: &Arc<Shared>,
    number: u64,
    peer: SocketAddr,
    known: Option<(String, Fingerprint)>,
) -> Connection<S> {
    let address = peer.ip().to_string();
    let (identity, sender) = match known {
        Some((name, fingerprint)) => (Some(Arc::<str>::from(name)), fingerprint.to_string()),
        None => (None, address.clone()),
    };
    Connection {
        stream,
        socket,
        shared: Arc::clone(shared),
        number,
        peer: shared.counters.peer(identity.as_deref().unwrap_or(&address)),
        origin: Origin { peer: peer.to_string().into(), identity, received: 0 },
        sender: sender.into(),
    }
}

#[cfg(test)]
mod tests;
