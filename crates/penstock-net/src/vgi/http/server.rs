//! The server: connections on the IO thread, calls in a queue.

use std::convert::Infallible;
use std::fmt;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_LENGTH, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use penstock_vgi::http::{self as core, Begun, Headers, Service};
use percent_encoding::percent_decode_str;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::pieces::Pieces;
use super::queue::{Queue, Waiting};
use crate::runtime::{PerProcess, Runtime, block_on};
use crate::tls::{ClientCertificates, Fingerprint, ServerTls};
use crate::{Error, Result};

/// Connections at a time; others wait in the system.
const CONNECTIONS: u32 = 1_024;
/// Calls that wait for a thread; those beyond are told to come again.
const CALLS: usize = 1_024;
/// Bodies of so many times the largest one may be in memory before their calls run.
const BODIES: u64 = 4;
/// The unit of that budget.
const UNIT: u64 = 1 << 10;
/// How long a handshake, a head and the next piece of a body may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// For bodies that say their length so much memory is taken at once, at most.
const EXPECTED: u64 = 64 << 20;
/// How much of a body that is too large is read and dropped, so that its sender sees the answer.
const DRAINED: u64 = 1 << 30;
/// How long calls may take that still run when the server stops.
const GRACE: Duration = Duration::from_secs(30);
/// How long to wait when the system has no more sockets.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// A server that listens. Threads ask it for calls.
pub struct HttpListener {
    address: SocketAddr,
    fingerprint: Option<Fingerprint>,
    stop: PerProcess<watch::Sender<bool>>,
    shared: Arc<Shared>,
}

impl fmt::Debug for HttpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpListener").field("address", &self.address).finish_non_exhaustive()
    }
}

struct Shared {
    service: Arc<Service>,
    queue: Queue,
    places: Arc<Semaphore>,
    bodies: Arc<Semaphore>,
}

impl HttpListener {
    /// Listens; port 0 picks a free one.
    pub fn bind(service: Arc<Service>, listen: SocketAddr, tls: Option<&ServerTls>) -> Result<Self> {
        let tls = tls.map(|tls| tls.tcp_config(ClientCertificates::Required)).transpose()?;
        let (acceptor, fingerprint) = match tls {
            None => (None, None),
            Some((mut config, fingerprint)) => {
                config.alpn_protocols = vec![b"http/1.1".to_vec()];
                (Some(TlsAcceptor::from(Arc::new(config))), Some(fingerprint))
            }
        };
        let runtime = Runtime::current()?;
        let bound = StdListener::bind(listen).and_then(|listener| {
            listener.set_nonblocking(true)?;
            let _entered = runtime.handle().enter();
            Ok((listener.local_addr()?, TcpListener::from_std(listener)?))
        });
        let (address, listener) = bound.map_err(|error| Error::io(format!("cannot serve HTTP on {listen}"), &error))?;
        let budget = usize::try_from(service.max_body().div_ceil(UNIT).saturating_mul(BODIES)).unwrap_or(usize::MAX);
        let shared = Arc::new(Shared {
            service,
            queue: Queue::new(CALLS),
            places: Arc::new(Semaphore::new(CONNECTIONS as usize)),
            bodies: Arc::new(Semaphore::new(budget.min(Semaphore::MAX_PERMITS))),
        });
        let (stop, stopped) = watch::channel(false);
        runtime.handle().spawn(accept(listener, acceptor, Arc::clone(&shared), stopped));
        Ok(Self { address, fingerprint, stop: PerProcess::new(stop), shared })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What clients pin; `None` without TLS.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.fingerprint
    }

    /// Waits for the next call; `None` when the server was closed. Any number of threads may wait.
    pub fn next_call(&self) -> Option<Waiting> {
        self.shared.queue.next()
    }

    /// Takes no more connections, waits for the calls that run, and ends.
    pub fn close(&self) -> Result<()> {
        self.stop.get()?.send_replace(true);
        let places = Arc::clone(&self.shared.places);
        // All places are free when the last connection has ended.
        let done = block_on(async move { timeout(GRACE, places.acquire_many(CONNECTIONS)).await.is_ok() });
        if !matches!(done, Ok(true)) {
            tracing::warn!(
                "calls still run {} s after the server was told to stop; it does not wait for them",
                GRACE.as_secs()
            );
        }
        self.shared.queue.close();
        Ok(())
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    shared: Arc<Shared>,
    stopped: watch::Receiver<bool>,
) {
    let mut stop = stopped.clone();
    let accepting = async {
        while let Ok(place) = Arc::clone(&shared.places).acquire_owned().await {
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "no caller could be taken");
                    sleep(ACCEPT_AGAIN).await;
                    continue;
                }
            };
            let (acceptor, shared, stopped) = (acceptor.clone(), Arc::clone(&shared), stopped.clone());
            tokio::spawn(async move {
                let _place = place;
                connection(stream, peer, acceptor, shared, stopped).await;
            });
        }
    };
    tokio::select! {
        () = accepting => {}
        // An error means that the listener was dropped.
        _ = stop.wait_for(|stopped| *stopped) => {}
    }
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    shared: Arc<Shared>,
    stopped: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true);
    let Some(acceptor) = acceptor else { return serve(stream, peer, shared, stopped).await };
    match timeout(PATIENCE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => serve(stream, peer, shared, stopped).await,
        Ok(Err(error)) => tracing::warn!(%peer, %error, "a caller's handshake failed"),
        Err(_) => tracing::warn!(%peer, "a caller's handshake took too long"),
    }
}

async fn serve<S>(stream: S, peer: SocketAddr, shared: Arc<Shared>, mut stopped: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(respond(request, peer, &shared).await) }
    });
    let mut http = http1::Builder::new();
    let connection =
        http.timer(TokioTimer::new()).header_read_timeout(PATIENCE).serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = told(&mut stopped) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "a connection broke");
    }
}

/// Waits until the server is told to stop, or was dropped.
async fn told(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await.is_ok();
}

async fn respond(request: Request<Incoming>, peer: SocketAddr, shared: &Shared) -> Response<Pieces> {
    let (parts, body) = request.into_parts();
    let most = shared.service.max_body();
    let stated =
        parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()).and_then(|text| text.parse().ok());
    let units = u32::try_from(stated.unwrap_or(most).min(most).div_ceil(UNIT)).unwrap_or(u32::MAX);
    // Whoever comes first is read first: the others wait before they cost memory.
    let Ok(room) = shared.bodies.acquire_many(units).await else { return unavailable() };
    let (body, whole) = match read(body, most, stated).await {
        Ok(read) => read,
        Err(why) => {
            tracing::debug!(%peer, why, "a body did not come");
            let mut response = plain(StatusCode::BAD_REQUEST, why);
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            return response;
        }
    };
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers: Headers = parts.headers.iter().map(|(name, value)| (name.as_str(), text(value))).collect();
    let path = percent_decode_str(parts.uri.path()).decode_utf8_lossy().into_owned();
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let asked = core::Request { method: parts.method.as_str().to_owned(), path, headers, body };
    let answer = match shared.service.begin(asked) {
        Begun::Done(response) => Some(response),
        Begun::Call(pending) => {
            let (waiting, answered) = Waiting::new(pending, peer.ip().to_string(), query);
            if !shared.queue.push(waiting) {
                return unavailable();
            }
            answered.await.ok()
        }
    };
    drop(room);
    let Some(answer) = answer else { return plain(StatusCode::INTERNAL_SERVER_ERROR, "the call was dropped") };
    let mut response = converted(answer);
    if !whole {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// A body up to its limit and one octet more, which says that there was more. `false`: it was not read to its end.
async fn read(
    mut body: Incoming,
    most: u64,
    stated: Option<u64>,
) -> std::result::Result<(Vec<u8>, bool), &'static str> {
    let expected = stated.unwrap_or(0).min(most).min(EXPECTED);
    let mut octets = Vec::with_capacity(usize::try_from(expected).unwrap_or(0));
    let mut dropped = 0_u64;
    loop {
        let frame = timeout(PATIENCE, body.frame()).await.map_err(|_| "the body took too long")?;
        let Some(frame) = frame else { return Ok((octets, true)) };
        let Ok(data) = frame.map_err(|_| "the body broke off")?.into_data() else { continue };
        let room = most.saturating_add(1).saturating_sub(octets.len() as u64);
        let kept = usize::try_from(room).unwrap_or(usize::MAX).min(data.len());
        octets.extend_from_slice(data.get(..kept).unwrap_or_default());
        dropped = dropped.saturating_add(data.len().saturating_sub(kept) as u64);
        if dropped > DRAINED {
            return Ok((octets, false));
        }
    }
}

fn converted(answer: core::Response) -> Response<Pieces> {
    let core::Response { status, headers, body } = answer;
    let mut response = Response::new(Pieces::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in headers.iter() {
        // A value of a method's own that no header can have is left out.
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_bytes(value.as_bytes())) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

fn plain(status: StatusCode, text: &str) -> Response<Pieces> {
    let mut response = Response::new(Pieces::from(vec![format!("{text}\n").into_bytes().into()]));
    *response.status_mut() = status;
    response
}

fn unavailable() -> Response<Pieces> {
    let mut response = plain(StatusCode::SERVICE_UNAVAILABLE, "too many calls wait");
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}
