//! Where requests come in.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::pace::Paced;
use crate::runtime::{PerProcess, Runtime, block_on};
use crate::tcp::listen;
use crate::tls::{ClientCertificates, Fingerprint, ServerTls};
use crate::{Error, Result};

/// How long to wait when the system has no more sockets.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// What a server takes, and for how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Serving {
    /// What is served, for errors.
    pub(crate) what: &'static str,
    /// Connections at a time; others wait in the system.
    pub(crate) connections: u32,
    /// How long a handshake and a head may take.
    pub(crate) patience: Duration,
    /// How long 64 KiB of an answer, or what is left of it, may take to go out; then the connection is cut.
    pub(crate) stall: Duration,
    /// Octets of answers that wait in a connection and as many in its socket; without it, what the system and the library hold.
    pub(crate) unsent: Option<u32>,
    /// How long requests may take that still run when the server stops; then they are cut.
    pub(crate) grace: Duration,
}

/// Who answers requests.
pub(crate) trait Answers: Send + Sync + 'static {
    /// The bodies of the answers.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static;

    /// Answers one.
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: SocketAddr,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}

/// Every request has it among its extensions: who holds an answer back learns that the server ends.
#[derive(Debug, Clone)]
pub(crate) struct Stopping(watch::Receiver<Option<Duration>>);

impl Stopping {
    /// Waits until the server is told to stop, or was dropped.
    pub(crate) async fn told(&mut self) {
        // An error means that it was dropped.
        let _ = self.0.wait_for(Option::is_some).await.is_ok();
    }

    /// How long what runs may take from then on, where that was said.
    fn grace(&self) -> Option<Duration> {
        *self.0.borrow()
    }
}

/// A server that listens.
pub(crate) struct HttpServer {
    address: SocketAddr,
    fingerprint: Option<Fingerprint>,
    stop: PerProcess<watch::Sender<Option<Duration>>>,
    places: Arc<Semaphore>,
    serving: Serving,
}

impl fmt::Debug for HttpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpServer").field("address", &self.address).finish_non_exhaustive()
    }
}

/// What every connection of a server needs.
struct Shared<A> {
    acceptor: Option<TlsAcceptor>,
    answers: Arc<A>,
    serving: Serving,
    stopping: Stopping,
}

impl HttpServer {
    /// Listens; port 0 picks a free one.
    pub(crate) fn bind<A: Answers>(
        answers: Arc<A>,
        address: SocketAddr,
        tls: Option<&ServerTls>,
        serving: Serving,
    ) -> Result<Self> {
        let tls = tls.map(|tls| tls.tcp_config(ClientCertificates::Required)).transpose()?;
        let (acceptor, fingerprint) = match tls {
            None => (None, None),
            Some((mut config, fingerprint)) => {
                config.alpn_protocols = vec![b"http/1.1".to_vec()];
                (Some(TlsAcceptor::from(Arc::new(config))), Some(fingerprint))
            }
        };
        let runtime = Runtime::current()?;
        let bound = listen(address).and_then(|listener| {
            let _entered = runtime.handle().enter();
            Ok((listener.local_addr()?, TcpListener::from_std(listener)?))
        });
        let (address, listener) =
            bound.map_err(|error| Error::io(format!("cannot serve {} on {address}", serving.what), &error))?;
        let (stop, stopped) = watch::channel(None);
        let places = Arc::new(Semaphore::new(serving.connections as usize));
        let shared = Arc::new(Shared { acceptor, answers, serving, stopping: Stopping(stopped) });
        runtime.handle().spawn(accept(listener, shared, Arc::clone(&places)));
        Ok(Self { address, fingerprint, stop: PerProcess::new(stop), places, serving })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What clients pin; `None` without TLS.
    pub(crate) fn fingerprint(&self) -> Option<Fingerprint> {
        self.fingerprint
    }

    /// What says when it ends.
    pub(crate) fn stopping(&self) -> Result<Stopping> {
        Ok(Stopping(self.stop.get()?.subscribe()))
    }

    /// Takes no more connections, waits for the requests that run, and ends.
    pub(crate) fn close(&self) -> Result<()> {
        self.close_within(self.serving.grace)
    }

    /// The same; requests that still run after so long are cut.
    pub(crate) fn close_within(&self, grace: Duration) -> Result<()> {
        self.stop.get()?.send_replace(Some(grace));
        let (places, all) = (Arc::clone(&self.places), self.serving.connections);
        // All places are free when the last connection has ended.
        let done = block_on(async move { timeout(grace, places.acquire_many(all)).await.is_ok() })?;
        if !done {
            let (what, seconds) = (self.serving.what, grace.as_secs_f64());
            tracing::warn!("requests of {what} still run {seconds} s after the server was told to stop; they are cut");
        }
        Ok(())
    }
}

async fn accept<A: Answers>(listener: TcpListener, shared: Arc<Shared<A>>, places: Arc<Semaphore>) {
    let mut stopping = shared.stopping.clone();
    let accepting = async {
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "no caller could be taken");
                    sleep(ACCEPT_AGAIN).await;
                    continue;
                }
            };
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                let _place = place;
                connection(stream, peer, &shared).await;
            });
        }
    };
    tokio::select! {
        () = accepting => {}
        () = stopping.told() => {}
    }
}

async fn connection<A: Answers>(stream: TcpStream, peer: SocketAddr, shared: &Shared<A>) {
    let _ = stream.set_nodelay(true);
    // What a socket holds is no progress of who reads: without this the system takes megabytes at once.
    #[cfg(target_os = "linux")]
    if let Some(octets) = shared.serving.unsent {
        let _ = socket2::SockRef::from(&stream).set_tcp_notsent_lowat(octets);
    }
    let Some(acceptor) = &shared.acceptor else { return serve(stream, peer, shared).await };
    match timeout(shared.serving.patience, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => serve(stream, peer, shared).await,
        Ok(Err(error)) => tracing::warn!(%peer, %error, "a caller's handshake failed"),
        Err(_) => tracing::warn!(%peer, "a caller's handshake took too long"),
    }
}

async fn serve<A: Answers, S>(stream: S, peer: SocketAddr, shared: &Shared<A>)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let answering = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(shared.stopping.clone());
        let answers = Arc::clone(&shared.answers);
        async move { Ok::<_, Infallible>(answers.answer(request, peer).await) }
    });
    let mut http = http1::Builder::new();
    let http = http.timer(TokioTimer::new()).header_read_timeout(shared.serving.patience);
    if let Some(octets) = shared.serving.unsent {
        http.max_buf_size(octets as usize);
    }
    let stream = Paced::new(stream, shared.serving.stall);
    let connection = http.serve_connection(TokioIo::new(stream), answering);
    tokio::pin!(connection);
    let mut stopping = shared.stopping.clone();
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopping.told() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection.as_mut() => ended,
                () = sleep(stopping.grace().unwrap_or(shared.serving.grace)) => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "a connection broke");
    }
}
