//! The server: connections on the IO thread, calls in a queue.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::header::{CONNECTION, CONTENT_LENGTH, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Request, Response, StatusCode};
use penstock_vgi::http::{self as core, Begun, Headers, Service};
use percent_encoding::percent_decode_str;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::pieces::Pieces;
use super::queue::{Queue, Waiting};
use crate::Result;
use crate::http::{Answers, HttpServer, RequestBody, Secured, Serving};
use crate::tls::{Fingerprint, ServerTls};

const SERVING: Serving = Serving {
    what: "HTTP",
    connections: 1_024,
    per_address: None,
    keep_alive: true,
    patience: PATIENCE,
    stall: Duration::from_secs(120),
    unsent: None,
    grace: Duration::from_secs(30),
};
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

/// A server that listens. Threads ask it for calls.
pub struct HttpListener {
    server: HttpServer,
    shared: Arc<Shared>,
}

impl fmt::Debug for HttpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpListener").field("server", &self.server).finish_non_exhaustive()
    }
}

struct Shared {
    service: Arc<Service>,
    queue: Queue,
    bodies: Arc<Semaphore>,
}

impl HttpListener {
    /// Listens; port 0 picks a free one.
    pub fn bind(service: Arc<Service>, listen: SocketAddr, tls: Option<&ServerTls>) -> Result<Self> {
        let budget = usize::try_from(service.max_body().div_ceil(UNIT).saturating_mul(BODIES)).unwrap_or(usize::MAX);
        let shared = Arc::new(Shared {
            service,
            queue: Queue::new(CALLS),
            bodies: Arc::new(Semaphore::new(budget.min(Semaphore::MAX_PERMITS))),
        });
        let server = HttpServer::bind(Arc::clone(&shared), listen, Secured::of(tls)?, SERVING, Arc::default())?;
        Ok(Self { server, shared })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// What clients pin; `None` without TLS.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.server.fingerprint()
    }

    /// Waits for the next call; `None` when the server was closed. Any number of threads may wait.
    pub fn next_call(&self) -> Option<Waiting> {
        self.shared.queue.next()
    }

    /// Takes no more connections, waits for the calls that run, and ends.
    pub fn close(&self) -> Result<()> {
        let closed = self.server.close();
        self.shared.queue.close();
        closed
    }
}

impl Answers for Shared {
    type Body = Pieces;

    async fn answer(self: Arc<Self>, request: Request<RequestBody>, peer: SocketAddr) -> Response<Pieces> {
        respond(request, peer, &self).await
    }
}

async fn respond(request: Request<RequestBody>, peer: SocketAddr, shared: &Shared) -> Response<Pieces> {
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
    mut body: RequestBody,
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
