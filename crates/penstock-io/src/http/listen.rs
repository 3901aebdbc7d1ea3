//! Where requests come in.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::body::RequestBody;
use super::pace::Paced;
use crate::Result;
use crate::admission::{Admission, Config, Counters, PATIENCE, WhenFull};
use crate::listener::{Connection, HandshakeError, Listener};
use crate::runtime::{PerProcess, block_on, spawn};
use crate::tls::{Acceptor, Fingerprint, Offer};

/// How long a connection that ends has to take the last of it, close_notify included.
const GOODBYE: Duration = Duration::from_secs(1);
/// What a client still sends of a body that nobody wants is read for so long after the answer, and after so long a silence no
/// more: a reset would overtake the answer (RFC 9112, section 9.6).
const LINGER: Duration = Duration::from_secs(10);
const LINGER_BYTES: usize = 16 << 20;
const LINGER_SILENCE: Duration = Duration::from_secs(2);

/// What a server takes, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Serving {
    /// What is served, for errors.
    pub what: &'static str,
    /// Connections at a time; others wait in the system.
    pub connections: u64,
    /// Of one address; by default seven eighths of them.
    pub per_address: Option<u64>,
    /// Descriptors that a connection needs.
    pub descriptors: u64,
    /// Whether a connection has more than one request.
    pub keep_alive: bool,
    /// How long a head may take, and the silence before it. The first byte of all comes within [`PATIENCE`] of accept.
    pub patience: Duration,
    /// How long 64 KiB of an answer, or what is left of it, may take to go out; then the connection is cut.
    pub stall: Duration,
    /// Bytes of answers that wait in a connection and as many in its socket; without it, what the system and the library hold.
    pub unsent: Option<u32>,
    /// How long requests may take that still run when the server stops; then they are cut.
    pub grace: Duration,
}

/// Who answers requests.
pub trait Answers: Send + Sync + 'static {
    /// The bodies of the answers.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static;

    /// Answers one.
    fn answer(
        self: Arc<Self>,
        request: Request<RequestBody>,
        peer: SocketAddr,
    ) -> impl Future<Output = Response<Self::Body>> + Send;

    /// A handshake failed, or what came is no HTTP: the connection ended without a request that could be answered.
    fn broke(&self) {}
}

/// Every request has it among its extensions: who holds an answer back learns that the server ends.
#[derive(Debug, Clone)]
pub struct Stopping(watch::Receiver<Option<Duration>>);

impl Stopping {
    /// Wait until the server is told to stop, or was dropped.
    pub async fn told(&mut self) {
        // An error means that it was dropped.
        let _ = self.0.wait_for(Option::is_some).await.is_ok();
    }

    /// Return how long what runs may take from then on, where that was said.
    fn grace(&self) -> Option<Duration> {
        *self.0.borrow()
    }
}

/// A server that listens.
pub struct HttpServer {
    address: SocketAddr,
    acceptor: Option<Arc<Acceptor>>,
    stop: PerProcess<watch::Sender<Option<Duration>>>,
    admission: Arc<Admission>,
    serving: Serving,
}

/// What HTTP offers in the handshake of TLS.
pub const HTTPS: Offer = Offer::tcp(&[b"http/1.1"]);

impl fmt::Debug for HttpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpServer").field("address", &self.address).finish_non_exhaustive()
    }
}

/// What every connection of a server needs.
struct Shared<A> {
    answers: Arc<A>,
    serving: Serving,
    stopping: Stopping,
}

impl HttpServer {
    /// Listens; port 0 picks a free one. With an acceptor it speaks TLS.
    pub fn bind<A: Answers>(
        answers: Arc<A>,
        address: SocketAddr,
        acceptor: Option<Arc<Acceptor>>,
        serving: Serving,
        counters: Arc<Counters>,
    ) -> Result<Self> {
        let admission = Admission::new(
            Config {
                per_address: serving.per_address,
                descriptors: serving.descriptors,
                when_full: WhenFull::Wait,
                patience: serving.patience.min(PATIENCE),
                ..Config::new(serving.what, serving.connections)
            },
            counters,
        )?;
        let (listener, address) = Listener::tcp(address, acceptor.clone(), &admission)?;
        let (stop, stopped) = watch::channel(None);
        let mut stopping = Stopping(stopped);
        let shared = Arc::new(Shared { answers, serving, stopping: stopping.clone() });
        drop(spawn(async move {
            let serve = |connection| drop(tokio::spawn(serve(connection, Arc::clone(&shared))));
            listener.run(stopping.told(), serve).await;
        })?);
        Ok(Self { address, acceptor, stop: PerProcess::new(stop), admission, serving })
    }

    /// Return where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What clients pin, now; `None` without TLS.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.acceptor.as_ref().map(|acceptor| acceptor.fingerprint())
    }

    /// Read the certificate again, if its files have changed; say whether they had. The server does so every 5 s by itself.
    pub fn reload(&self) -> Result<bool> {
        self.acceptor.as_ref().map_or(Ok(false), |acceptor| self.admission.reload(acceptor))
    }

    /// What says when it ends.
    pub fn stopping(&self) -> Result<Stopping> {
        Ok(Stopping(self.stop.get()?.subscribe()))
    }

    /// Take no more connections. Requests that run have their time to end, which nobody waits for.
    pub fn stop(&self) {
        // In a forked child it is somebody else's.
        if let Ok(stop) = self.stop.get() {
            stop.send_replace(Some(self.serving.grace));
        }
    }

    /// Take no more connections, waits for the requests that run, and ends.
    pub fn close(&self) -> Result<()> {
        self.close_within(self.serving.grace)
    }

    /// Return the same; requests that still run after so long are cut.
    pub fn close_within(&self, grace: Duration) -> Result<()> {
        self.stop.get()?.send_replace(Some(grace));
        let admission = Arc::clone(&self.admission);
        let done = block_on(async move { timeout(grace, admission.idle()).await.is_ok() })?;
        if !done {
            let (what, seconds) = (self.serving.what, grace.as_secs_f64());
            tracing::warn!("requests of {what} still run {seconds} s after the server was told to stop; they are cut");
        }
        Ok(())
    }
}

/// One connection from its handshake to its end.
async fn serve<A: Answers>(connection: Connection, shared: Arc<Shared<A>>) {
    // What a socket holds is no progress of who reads: without this the system takes megabytes at once.
    #[cfg(target_os = "linux")]
    if let Some(bytes) = shared.serving.unsent {
        let _ = socket2::SockRef::from(&connection.stream).set_tcp_notsent_lowat(bytes);
    }
    let Some(peer) = connection.peer else { return };
    let what = shared.serving.what;
    match connection.handshake().await {
        Ok(connection) => answer(connection, peer, &shared).await,
        Err(error) => {
            if matches!(error, HandshakeError::Failed(_)) {
                shared.answers.broke();
            }
            tracing::warn!(%peer, what, %error, "a connection was closed");
        }
    }
}

/// Answer the requests of a connection.
async fn answer<A: Answers>(connection: Connection, peer: SocketAddr, shared: &Shared<A>) {
    let Connection { stream, permit, .. } = connection;
    // Whether the client may still send what nobody reads.
    let unread = Arc::new(AtomicBool::new(false));
    let answering = service_fn(|request: Request<Incoming>| {
        let (parts, body) = request.into_parts();
        let (body, rest) = RequestBody::new(body, &parts.headers);
        let mut request = Request::from_parts(parts, body);
        request.extensions_mut().insert(shared.stopping.clone());
        let (answers, unread) = (Arc::clone(&shared.answers), Arc::clone(&unread));
        async move {
            let mut response = answers.answer(request, peer).await;
            if !rest.drain().await {
                unread.store(true, Ordering::Relaxed);
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let mut http = http1::Builder::new();
    let http = http.timer(TokioTimer::new()).header_read_timeout(shared.serving.patience);
    http.keep_alive(shared.serving.keep_alive);
    if let Some(bytes) = shared.serving.unsent {
        http.max_buf_size(bytes as usize);
    }
    let stream = Paced::new(stream.first_byte(&permit), shared.serving.stall);
    let mut connection = http.serve_connection(TokioIo::new(stream), answering);
    let mut stopping = shared.stopping.clone();
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = stopping.told() => {
            std::pin::Pin::new(&mut connection).graceful_shutdown();
            tokio::select! {
                ended = &mut connection => ended,
                () = sleep(stopping.grace().unwrap_or(shared.serving.grace)) => return,
            }
        }
    };
    if let Err(error) = ended {
        if error.is_parse() {
            shared.answers.broke();
        }
        tracing::debug!(%peer, %error, "a connection broke");
    }
    goodbye(connection.into_parts().io.into_inner(), unread.load(Ordering::Relaxed)).await;
}

/// End a connection so that its client knows that nothing was cut off: with close_notify, where it is of TLS, and where
/// the client may be sending still, not with a reset.
async fn goodbye<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, unread: bool) {
    // A client that has gone wants none.
    let ended = timeout(GOODBYE, stream.shutdown()).await;
    if !unread || !matches!(ended, Ok(Ok(()))) {
        return;
    }
    let dropping = async {
        let (mut rest, mut dropped) = (vec![0_u8; 16 << 10], 0);
        while let Ok(Ok(count @ 1..)) = timeout(LINGER_SILENCE, stream.read(&mut rest)).await {
            dropped += count;
            if dropped > LINGER_BYTES {
                return;
            }
        }
    };
    let _ = timeout(LINGER, dropping).await;
}
