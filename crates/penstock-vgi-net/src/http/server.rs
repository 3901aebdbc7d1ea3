//! The server: connections on the IO thread, and a queue of calls.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{CONNECTION, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Request, Response, StatusCode};
use penstock_io::http::{BodyBudget, BodyError, HTTPS, Handler, HttpServer, RequestBody, Serving};
use penstock_io::memory::MemoryPermit;
use penstock_io::tls::{Acceptor, Fingerprint, ServerTls};
use penstock_io::{Addresses, Result};
use penstock_vgi::http::{self as core, Headers, Pending, RequestStart, Service};
use penstock_wire::Limit;
use percent_encoding::percent_decode_str;

use super::pieces::Pieces;
use super::queue::{Progress, Queue, Verdict, Waiting};
use crate::Counters;

const SERVING: Serving = Serving {
    what: "HTTP",
    connections: 1_024,
    per_address: None,
    descriptors: 1,
    keep_alive: true,
    header_timeout: HEADER_TIMEOUT,
    stall: Duration::from_secs(120),
    unsent: None,
    grace: Duration::from_secs(30),
};
/// The most calls that wait for a thread; clients of further calls are told to retry.
const CALLS: usize = 1_024;
/// The size up to which bodies do not count against the memory budget.
const SMALL: usize = 64 << 10;
/// The time limit for a handshake and for a head.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// A listening server, from which threads take calls.
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
    bodies: BodyBudget,
    counters: Arc<Counters>,
    /// Whether callers are authenticated before their bodies are read.
    authenticates: bool,
}

impl HttpListener {
    /// Listen on an address; port 0 picks a free one. If the application authenticates callers, it
    /// does so before their bodies are read. Requests that never reach a thread are counted here;
    /// the application counts those that it refuses.
    pub fn bind(
        service: Arc<Service>,
        listen: Addresses,
        tls: Option<&ServerTls>,
        authenticates: bool,
        counters: Arc<Counters>,
    ) -> Result<Self> {
        let most = service.max_body();
        let admission = Arc::clone(counters.admission());
        let shared = Arc::new(Shared {
            service,
            queue: Queue::new(CALLS),
            bodies: BodyBudget::new(most, SMALL),
            counters,
            authenticates,
        });
        let acceptor = Acceptor::optional(tls, HTTPS)?;
        let server = HttpServer::bind(Arc::clone(&shared), listen, acceptor, SERVING, admission)?;
        Ok(Self { server, shared })
    }

    /// Return the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Return the fingerprint for clients to pin now, or `None` without TLS.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.server.fingerprint()
    }

    /// Wait for the next call; return `None` once the server is closed. Any number of threads may
    /// wait.
    pub fn next_call(&self) -> Option<Waiting> {
        self.shared.queue.next()
    }

    /// Stop accepting connections, wait for running calls, and end.
    pub fn close(&self) -> Result<()> {
        let closed = self.server.close();
        self.shared.queue.close();
        closed
    }
}

impl Handler for Shared {
    type Body = Pieces;

    async fn answer(self: Arc<Self>, request: Request<RequestBody>, peer: SocketAddr) -> Response<Pieces> {
        respond(request, peer, &self).await
    }

    fn broke(&self) {
        self.counters.refused();
    }
}

async fn respond(request: Request<RequestBody>, peer: SocketAddr, shared: &Shared) -> Response<Pieces> {
    let (parts, body) = request.into_parts();
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers: Headers = parts.headers.iter().map(|(name, value)| (name.as_str(), text(value))).collect();
    let path = percent_decode_str(parts.uri.path()).decode_utf8_lossy().into_owned();
    let request = core::Request { method: parts.method.as_str().to_owned(), path, headers, body: Vec::new() };
    let query = parts.uri.query().unwrap_or_default();
    match shared.service.begin(request) {
        RequestStart::Done(response) => {
            shared.counters.answered(parts.method.as_str(), response.status);
            converted(response)
        }
        RequestStart::Call(pending) => call(pending, body, peer, query, shared).await.unwrap_or_else(|refused| {
            shared.counters.refused();
            refused
        }),
    }
}

/// Have a thread authenticate the caller, read the body, and have a thread run the method. The
/// error is the response to a call that ended earlier.
async fn call(
    mut pending: Box<Pending>,
    body: RequestBody,
    peer: SocketAddr,
    query: &str,
    shared: &Shared,
) -> std::result::Result<Response<Pieces>, Response<Pieces>> {
    let mut progress = Progress::Whole;
    let mut permit = None;
    if !pending.wants_page() {
        if shared.authenticates {
            match shared.ask(pending, Progress::Head, peer, query, None).await? {
                Verdict::Answered(response) => return Ok(converted(response)),
                Verdict::Admitted(admitted, caller) => (pending, progress) = (admitted, Progress::Admitted(caller)),
            }
        }
        let most = Limit::new("the length of the body", shared.service.max_body());
        let (bytes, body_permit) = match shared.bodies.read(body, most, peer.ip()).await {
            Ok(read) => read,
            Err(BodyError::TooLarge(_)) => return Err(converted(pending.too_large())),
            Err(BodyError::Busy) => return Err(unavailable()),
            Err(BodyError::Broken) => return Err(broken(peer, "the body broke off")),
            Err(BodyError::Late(why)) => return Err(broken(peer, &why)),
        };
        permit = Some(body_permit);
        pending = pending.receive(bytes).map_err(converted)?;
    }
    match shared.ask(pending, progress, peer, query, permit).await? {
        Verdict::Answered(response) => Ok(converted(response)),
        Verdict::Admitted(..) => Err(plain(StatusCode::INTERNAL_SERVER_ERROR, "the call was not answered")),
    }
}

impl Shared {
    /// Pass a call to a thread, and wait for the verdict. The body's memory permit goes along,
    /// because the call stays in memory even if its client disconnects.
    async fn ask(
        &self,
        pending: Box<Pending>,
        progress: Progress,
        peer: SocketAddr,
        query: &str,
        permit: Option<MemoryPermit>,
    ) -> std::result::Result<Verdict, Response<Pieces>> {
        let (waiting, verdict) = Waiting::new(pending, progress, peer.ip().to_string(), query.to_owned(), permit);
        if !self.queue.push(waiting) {
            return Err(unavailable());
        }
        verdict.await.map_err(|_| plain(StatusCode::INTERNAL_SERVER_ERROR, "the call was dropped"))
    }
}

/// Return the response to an incomplete body. It closes the connection, because the start of the
/// next request is unknown.
fn broken(peer: SocketAddr, why: &str) -> Response<Pieces> {
    tracing::debug!(%peer, why, "a request's body did not arrive");
    let mut response = plain(StatusCode::BAD_REQUEST, why);
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

fn converted(answer: core::Response) -> Response<Pieces> {
    let core::Response { status, headers, body } = answer;
    let mut response = Response::new(Pieces::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in headers.iter() {
        // A header from a method is left out if HTTP does not allow its value.
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

#[cfg(test)]
mod tests;
