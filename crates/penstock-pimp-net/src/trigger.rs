//! The server of a trigger (section 6): it passes requests to the threads that answer them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName};
use hyper::{Request, Response, StatusCode};
use penstock_io::Addresses;
use penstock_io::http::{BodyBudget, BodyError, HTTPS, Handler, HttpServer, RequestBody, Serving};
use penstock_io::memory::MemoryPermit;
use penstock_io::sync::Latch;
use penstock_io::tls::{Acceptor, Fingerprint, ServerTls};
use penstock_pimp::{Code, Malformed, Refusal};
use penstock_wire::Limit;
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::{Misuse, Result};

const SERVING: Serving = Serving {
    what: "triggers",
    connections: 1_024,
    per_address: None,
    descriptors: 1,
    keep_alive: true,
    header_timeout: Duration::from_secs(10),
    stall: Duration::from_secs(30),
    unsent: None,
    grace: Duration::from_secs(10),
};
/// Requests that may wait for a thread; further ones are told to retry.
const WAITING: usize = 256;
/// Bodies of up to this many bytes need no memory permit.
const SMALL: usize = 64 << 10;

/// A request that waits for its answer. If it is dropped, the answer is 500.
#[derive(Debug)]
pub struct PendingReply {
    /// The method.
    pub method: String,
    /// The body.
    pub body: Vec<u8>,
    /// The body's content type.
    pub content_type: String,
    /// The `Authorization` header, with the caller's key.
    pub authorization: String,
    reply: oneshot::Sender<Reply>,
    /// The permit for the body's memory, until the request is answered.
    _room: MemoryPermit,
}

#[derive(Debug)]
struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl PendingReply {
    /// Answer the request.
    pub fn answer(self, status: u16, headers: Vec<(String, String)>, body: Vec<u8>) {
        // The caller may have disconnected.
        let _ = self.reply.send(Reply { status, headers, body });
    }
}

/// A server that listens for triggers.
#[derive(Debug)]
pub struct TriggerServer {
    server: HttpServer,
    requests: Mutex<mpsc::Receiver<PendingReply>>,
    closed: Latch,
}

struct Front {
    requests: mpsc::Sender<PendingReply>,
    bodies: BodyBudget,
    most: Limit,
}

impl TriggerServer {
    /// Listen; without TLS on loopback only. `most` limits the bytes of a body.
    pub fn bind(listen: Addresses, tls: Option<&ServerTls>, most: u64) -> Result<Self> {
        if tls.is_none() && !listen.is_loopback() {
            return Err(Misuse::PlainListener { listen: listen.to_string(), server: "a trigger" }.into());
        }
        let (requests, receiver) = mpsc::channel(WAITING);
        let (bodies, most) = (BodyBudget::new(most, SMALL), Limit::new("the length of the body", most));
        let front = Arc::new(Front { requests, bodies, most });
        let acceptor = Acceptor::optional(tls, HTTPS)?;
        let server = HttpServer::bind(front, listen, acceptor, SERVING, Arc::default())?;
        Ok(Self { server, requests: Mutex::new(receiver), closed: Latch::default() })
    }

    /// Return the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Return the fingerprint that clients pin now; `None` without TLS.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.server.fingerprint()
    }

    /// Return the next request; `None` once the server is closed.
    pub async fn next(&self) -> Option<PendingReply> {
        self.closed.unless_set(async { self.requests.lock().await.recv().await }).await.flatten()
    }

    /// Stop accepting connections, wait for running requests up to `grace`, and end.
    pub fn close(&self, grace: Duration) -> Result<()> {
        let ended = self.server.close_within(grace);
        self.closed.set();
        Ok(ended?)
    }
}

impl Handler for Front {
    type Body = Full<Bytes>;

    async fn answer(self: Arc<Self>, request: Request<RequestBody>, peer: SocketAddr) -> Response<Full<Bytes>> {
        let (parts, body) = request.into_parts();
        let text = |headers: &HeaderMap, name: &HeaderName| {
            headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        let (body, room) = match self.bodies.read(body, self.most, peer.ip()).await {
            Ok(read) => read,
            Err(error) => return refusal(error),
        };
        let (reply, answered) = oneshot::channel();
        let request = PendingReply {
            method: parts.method.to_string(),
            body,
            content_type: text(&parts.headers, &CONTENT_TYPE),
            authorization: text(&parts.headers, &AUTHORIZATION),
            reply,
            _room: room,
        };
        if self.requests.try_send(request).is_err() {
            return unavailable();
        }
        match answered.await {
            Ok(Reply { status, headers, body }) => response(status, &headers, body),
            Err(_) => {
                let refusal =
                    Refusal { error: "the trigger has failed".into(), code: Code::Failed.name(), state: None };
                response(500, &[], serde_json::to_vec(&refusal).unwrap_or_default())
            }
        }
    }
}

fn refusal(error: BodyError) -> Response<Full<Bytes>> {
    let (status, code, error) = match error {
        BodyError::TooLarge(exceeded) => (413, Code::TooLarge, exceeded.to_string()),
        BodyError::Broken => (400, Code::Malformed, Malformed::BodyEnd.to_string()),
        BodyError::Late(message) => (400, Code::Malformed, message),
        BodyError::Busy => return unavailable(),
    };
    let refusal = Refusal { error: error.into(), code: code.name(), state: None };
    response(status, &[], serde_json::to_vec(&refusal).unwrap_or_default())
}

fn unavailable() -> Response<Full<Bytes>> {
    let refusal = Refusal { error: "too many requests wait".into(), code: "UNAVAILABLE", state: None };
    let later = [("Retry-After".to_owned(), "1".to_owned())];
    response(503, &later, serde_json::to_vec(&refusal).unwrap_or_default())
}

fn response(status: u16, headers: &[(String, String)], body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), value.parse()) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

#[cfg(test)]
mod tests;
