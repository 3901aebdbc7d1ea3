//! The HTTP server: it accepts connections and passes their requests to a handler.

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
use super::pace::WriteTimeout;
use crate::Result;
use crate::address::Addresses;
use crate::admission::{Admission, Config, Counters, FIRST_BYTE_TIMEOUT, WhenFull};
use crate::listener::{Connection, HandshakeError, Listener};
use crate::runtime::{PerProcess, block_on, spawn};
use crate::tls::{Acceptor, Fingerprint, Offer};

/// How long a closing connection may take to send its last data, including close_notify.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long, how many bytes and with which longest pause the server reads and drops the rest of an
/// unwanted body after the response: without that, a reset would overtake the response (RFC 9112,
/// section 9.6).
const LINGER: Duration = Duration::from_secs(10);
const LINGER_BYTES: usize = 16 << 20;
const LINGER_SILENCE: Duration = Duration::from_secs(2);

/// The limits of a server.
#[derive(Debug, Clone, Copy)]
pub struct Serving {
    /// What is served, for error messages.
    pub what: &'static str,
    /// Connections at the same time; others wait in the system's backlog.
    pub connections: u64,
    /// Connections from one address. Default: seven eighths of all, or 64 if that is more.
    pub per_address: Option<u64>,
    /// Descriptors that a connection needs.
    pub descriptors: u64,
    /// Whether a connection may have more than one request.
    pub keep_alive: bool,
    /// How long a request's head may take, including the silence before it. The very first byte must arrive within
    /// [`FIRST_BYTE_TIMEOUT`] of accept.
    pub header_timeout: Duration,
    /// How long 64 KiB of a response, or its shorter rest, may take to be sent; after that the connection is closed.
    pub stall: Duration,
    /// The maximum number of bytes of responses that are buffered in a connection, and as many in
    /// its socket. `None`: the defaults of the system and the library.
    pub unsent: Option<u32>,
    /// How long running requests may take after the server stops; after that they are cut off.
    pub grace: Duration,
}

/// A handler of requests.
pub trait Handler: Send + Sync + 'static {
    /// The bodies of the responses.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static;

    /// Answer a request.
    fn answer(
        self: Arc<Self>,
        request: Request<RequestBody>,
        peer: SocketAddr,
    ) -> impl Future<Output = Response<Self::Body>> + Send;

    /// Note that a connection ended without a request that could be answered: its handshake failed,
    /// or its input is not HTTP.
    fn broke(&self) {}
}

/// The signal that the server stops. Every request carries it among its extensions, for a handler
/// that holds back a response.
#[derive(Debug, Clone)]
pub struct ShutdownSignal(watch::Receiver<Option<Duration>>);

impl ShutdownSignal {
    /// Wait until the server stops or is dropped.
    pub async fn stopped(&mut self) {
        // An error means that the server was dropped.
        let _ = self.0.wait_for(Option::is_some).await.is_ok();
    }

    /// Return how long running requests may take after the stop; `None` if the server was dropped.
    fn grace(&self) -> Option<Duration> {
        *self.0.borrow()
    }
}

/// A listening server.
pub struct HttpServer {
    address: SocketAddr,
    acceptor: Option<Arc<Acceptor>>,
    stop: PerProcess<watch::Sender<Option<Duration>>>,
    admission: Arc<Admission>,
    serving: Serving,
}

/// The offer of HTTP servers in the TLS handshake.
pub const HTTPS: Offer = Offer::tcp(&[b"http/1.1"]);

impl fmt::Debug for HttpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpServer").field("address", &self.address).finish_non_exhaustive()
    }
}

/// State that the connections of a server share.
struct Shared<A> {
    handler: Arc<A>,
    serving: Serving,
    stopping: ShutdownSignal,
}

impl HttpServer {
    /// Listen on the first of these addresses that works. Port 0 picks a free port. With an
    /// acceptor the server speaks TLS.
    pub fn bind<A: Handler>(
        handler: Arc<A>,
        addresses: Addresses,
        acceptor: Option<Arc<Acceptor>>,
        serving: Serving,
        counters: Arc<Counters>,
    ) -> Result<Self> {
        let admission = Admission::new(
            Config {
                per_address: serving.per_address,
                descriptors: serving.descriptors,
                when_full: WhenFull::Wait,
                first_byte_timeout: serving.header_timeout.min(FIRST_BYTE_TIMEOUT),
                ..Config::new(serving.what, serving.connections)
            },
            counters,
        )?;
        let (listener, address) = Listener::tcp(addresses, acceptor.clone(), &admission)?;
        let (stop, stopped) = watch::channel(None);
        let mut stopping = ShutdownSignal(stopped);
        let shared = Arc::new(Shared { handler, serving, stopping: stopping.clone() });
        drop(spawn(async move {
            let serve = |connection| drop(tokio::spawn(serve(connection, Arc::clone(&shared))));
            listener.run(stopping.stopped(), serve).await;
        })?);
        Ok(Self { address, acceptor, stop: PerProcess::new(stop), admission, serving })
    }

    /// Return the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Return the fingerprint of the current certificate, for clients that pin it; `None` without
    /// TLS.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.acceptor.as_ref().map(|acceptor| acceptor.fingerprint())
    }

    /// Read the certificate again if its files have changed; return whether they had. The server itself checks every 5
    /// s.
    pub fn reload(&self) -> Result<bool> {
        self.acceptor.as_ref().map_or(Ok(false), |acceptor| self.admission.reload(acceptor))
    }

    /// Return a handle that reports when the server stops.
    pub fn stopping(&self) -> Result<ShutdownSignal> {
        Ok(ShutdownSignal(self.stop.get()?.subscribe()))
    }

    /// Stop accepting connections, and return without waiting for running requests, which get their
    /// grace.
    pub fn stop(&self) {
        // In a forked child the server belongs to the parent.
        if let Ok(stop) = self.stop.get() {
            stop.send_replace(Some(self.serving.grace));
        }
    }

    /// Stop accepting connections, wait for running requests, and end.
    pub fn close(&self) -> Result<()> {
        self.close_within(self.serving.grace)
    }

    /// Close like [`close`](Self::close), but cut off requests that still run after this `grace`.
    pub fn close_within(&self, grace: Duration) -> Result<()> {
        self.stop.get()?.send_replace(Some(grace));
        let admission = Arc::clone(&self.admission);
        let done = block_on(async move { timeout(grace, admission.idle()).await.is_ok() })?;
        if !done {
            let (what, seconds) = (self.serving.what, grace.as_secs_f64());
            tracing::warn!("requests of {what} still run {seconds} s after the stop and are cut off");
        }
        Ok(())
    }
}

/// Serve one connection from its handshake to its end.
async fn serve<A: Handler>(connection: Connection, shared: Arc<Shared<A>>) {
    // Without this limit the system buffers megabytes, so a written byte would not show that the
    // client reads.
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
                shared.handler.broke();
            }
            tracing::warn!(%peer, what, %error, "a connection was closed");
        }
    }
}

/// Answer the requests of a connection.
async fn answer<A: Handler>(connection: Connection, peer: SocketAddr, shared: &Shared<A>) {
    let Connection { stream, permit, .. } = connection;
    // Whether the client may still be sending a body that was not read.
    let unread = Arc::new(AtomicBool::new(false));
    let service = service_fn(|request: Request<Incoming>| {
        let (parts, body) = request.into_parts();
        let (body, rest) = RequestBody::new(body, &parts.headers);
        let mut request = Request::from_parts(parts, body);
        request.extensions_mut().insert(shared.stopping.clone());
        let (handler, unread) = (Arc::clone(&shared.handler), Arc::clone(&unread));
        async move {
            let mut response = handler.answer(request, peer).await;
            if !rest.drain().await {
                unread.store(true, Ordering::Relaxed);
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let mut http = http1::Builder::new();
    let http = http.timer(TokioTimer::new()).header_read_timeout(shared.serving.header_timeout);
    http.keep_alive(shared.serving.keep_alive);
    if let Some(bytes) = shared.serving.unsent {
        http.max_buf_size(bytes as usize);
    }
    let stream = WriteTimeout::new(stream.first_byte(&permit), shared.serving.stall);
    let mut connection = http.serve_connection(TokioIo::new(stream), service);
    let mut stopping = shared.stopping.clone();
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = stopping.stopped() => {
            std::pin::Pin::new(&mut connection).graceful_shutdown();
            tokio::select! {
                ended = &mut connection => ended,
                () = sleep(stopping.grace().unwrap_or(shared.serving.grace)) => return,
            }
        }
    };
    if let Err(error) = ended {
        if error.is_parse() {
            shared.handler.broke();
        }
        tracing::debug!(%peer, %error, "a connection broke");
    }
    close_gracefully(connection.into_parts().io.into_inner(), unread.load(Ordering::Relaxed)).await;
}

/// Close a connection so that its client can tell that nothing was cut off: send close_notify over TLS, and avoid a
/// reset where the client may still be sending.
async fn close_gracefully<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, unread: bool) {
    // A client that has already disconnected needs no clean close.
    let ended = timeout(CLOSE_TIMEOUT, stream.shutdown()).await;
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
