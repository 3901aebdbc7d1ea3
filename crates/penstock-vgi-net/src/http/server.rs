//! The server: connections on the IO thread, calls in a queue.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{CONNECTION, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Request, Response, StatusCode};
use penstock_io::Result;
use penstock_io::http::{
    Answers, BodyError, Budget, HttpServer, RequestBody, Room, Secured, Serving, read_body_within,
};
use penstock_io::tls::{Fingerprint, ServerTls};
use penstock_vgi::http::{self as core, Begun, Headers, Pending, Service};
use penstock_wire::Limit;
use percent_encoding::percent_decode_str;

use super::pieces::Pieces;
use super::queue::{Progress, Queue, Verdict, Waiting};

const SERVING: Serving = Serving {
    what: "HTTP",
    connections: 1_024,
    per_address: None,
    descriptors: 1,
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
/// Bodies up to this are read whatever the others hold.
const SMALL: usize = 64 << 10;
/// How long a handshake and a head may take.
const PATIENCE: Duration = Duration::from_secs(30);

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
    bodies: Budget,
    /// Whether callers are looked at, before their bodies are read.
    authenticates: bool,
}

impl HttpListener {
    /// Listens; port 0 picks a free one. Where the application authenticates callers, it does so before their bodies are read.
    pub fn bind(
        service: Arc<Service>,
        listen: SocketAddr,
        tls: Option<&ServerTls>,
        authenticates: bool,
    ) -> Result<Self> {
        let most = service.max_body();
        let shared = Arc::new(Shared {
            service,
            queue: Queue::new(CALLS),
            bodies: Budget::new(most.saturating_mul(BODIES), most).with_free(SMALL),
            authenticates,
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
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers: Headers = parts.headers.iter().map(|(name, value)| (name.as_str(), text(value))).collect();
    let path = percent_decode_str(parts.uri.path()).decode_utf8_lossy().into_owned();
    let asked = core::Request { method: parts.method.as_str().to_owned(), path, headers, body: Vec::new() };
    let query = parts.uri.query().unwrap_or_default();
    match shared.service.begin(asked) {
        Begun::Done(response) => converted(response),
        Begun::Call(pending) => call(pending, body, peer, query, shared).await.unwrap_or_else(|refused| refused),
    }
}

/// Has the caller looked at, reads the body, has the method called. The error is the answer of one that got no further.
async fn call(
    mut pending: Box<Pending>,
    body: RequestBody,
    peer: SocketAddr,
    query: &str,
    shared: &Shared,
) -> std::result::Result<Response<Pieces>, Response<Pieces>> {
    let mut progress = Progress::Whole;
    let mut held = None;
    if !pending.wants_page() {
        if shared.authenticates {
            match shared.ask(pending, Progress::Head, peer, query).await? {
                Verdict::Answered(response) => return Ok(converted(response)),
                Verdict::Admitted(admitted, caller) => (pending, progress) = (admitted, Progress::Admitted(caller)),
            }
        }
        let (bytes, room) = match shared.read(&pending, body, peer).await {
            Ok(read) => read,
            Err(BodyError::TooLarge(_)) => return Err(converted(pending.too_large())),
            Err(BodyError::Busy) => return Err(unavailable()),
            Err(BodyError::Broken) => return Err(broken(peer, "the body broke off")),
            Err(BodyError::Late(why)) => return Err(broken(peer, &why)),
        };
        held = Some(room);
        pending = pending.receive(bytes).map_err(converted)?;
    }
    let verdict = shared.ask(pending, progress, peer, query).await?;
    drop(held);
    match verdict {
        Verdict::Answered(response) => Ok(converted(response)),
        Verdict::Admitted(..) => Err(plain(StatusCode::INTERNAL_SERVER_ERROR, "the call was not answered")),
    }
}

impl Shared {
    /// Has a thread look at a call.
    async fn ask(
        &self,
        pending: Box<Pending>,
        progress: Progress,
        peer: SocketAddr,
        query: &str,
    ) -> std::result::Result<Verdict, Response<Pieces>> {
        let (waiting, verdict) = Waiting::new(pending, progress, peer.ip().to_string(), query.to_owned());
        if !self.queue.push(waiting) {
            return Err(unavailable());
        }
        verdict.await.map_err(|_| plain(StatusCode::INTERNAL_SERVER_ERROR, "the call was dropped"))
    }

    /// Reads a body, with the room that it takes.
    async fn read(
        &self,
        pending: &Pending,
        body: RequestBody,
        peer: SocketAddr,
    ) -> std::result::Result<(Vec<u8>, Room), BodyError> {
        let stated = pending.request().headers.get("Content-Length").and_then(|length| length.parse().ok());
        // A stated length is the limit: so no more room is taken than will be needed.
        let most = Limit { name: "body", value: stated.unwrap_or_else(|| self.service.max_body()) };
        let mut room = self.bodies.room(peer.ip(), 0).await?;
        Ok((read_body_within(body, most, &mut room).await?, room))
    }
}

/// A body that did not come: nobody knows where the next request begins.
fn broken(peer: SocketAddr, why: &str) -> Response<Pieces> {
    tracing::debug!(%peer, why, "a body did not come");
    let mut response = plain(StatusCode::BAD_REQUEST, why);
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
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

#[cfg(test)]
mod tests {
    use penstock_vgi::{Dialect, Limits, Protocol};

    use super::*;
    use penstock_io::runtime::block_on;

    /// A service without methods, whose pages are calls too.
    fn service() -> Arc<Service> {
        let config = core::Config {
            server_id: "0123456789ab".to_owned(),
            dialect: Dialect::Spec,
            description: None,
            limits: Limits::default(),
            seed: 1,
            prefix: String::new(),
            signing_key: vec![7; 32],
            token_ttl: 10,
            max_request_bytes: None,
            max_stream_response_bytes: None,
            fills: false,
            compression_level: None,
            cors_origins: Vec::new(),
            cors_max_age: None,
            health: true,
            landing_page: true,
            describe_page: true,
            not_found_page: true,
            repo_url: None,
            guarded_pages: true,
            own_pages: Vec::new(),
            upload_urls: false,
            max_upload_bytes: None,
        };
        let protocol = Protocol::new("Test", Vec::new()).expect("distinct names");
        Arc::new(Service::new(Arc::new(protocol), config).expect("a prefix"))
    }

    #[test]
    fn a_call_beyond_1024_that_wait_is_told_to_come_again() {
        let (service, peer) = (service(), SocketAddr::from(([192, 0, 2, 1], 9)));
        let bodies = Budget::new(1 << 10, 1 << 10);
        let shared = Shared { service: Arc::clone(&service), queue: Queue::new(CALLS), bodies, authenticates: false };
        let pending = || {
            let (method, path) = ("GET".to_owned(), "/".to_owned());
            match service.begin(core::Request { method, path, headers: Headers::default(), body: Vec::new() }) {
                Begun::Call(pending) => pending,
                Begun::Done(response) => panic!("answered with {}", response.status),
            }
        };
        let ask = async {
            let asked: Vec<_> = (0..1_025).map(|_| shared.ask(pending(), Progress::Whole, peer, "")).collect();
            let mut refused = Vec::new();
            for (nth, ask) in asked.into_iter().enumerate() {
                // Whoever waits is dropped here, and what it asks stays in the queue.
                if let Ok(answer) = tokio::time::timeout(Duration::ZERO, ask).await {
                    refused.push((nth, answer.expect_err("nobody answers").status()));
                }
            }
            refused
        };
        assert_eq!(block_on(ask).expect("runs"), [(1_024, StatusCode::SERVICE_UNAVAILABLE)]);
        assert_eq!(unavailable().headers().get(RETRY_AFTER), Some(&HeaderValue::from_static("1")));
    }
}
