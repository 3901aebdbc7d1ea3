//! The requests of a spool's readers to its writer, over HTTPS, with a key:
//!
//! ```text
//! GET  /v1/spool                                  {"spool": ID}
//! GET  /v1/segments?from=N&max=M                  [{"number": N, "header": BYTES, "entries": [[BYTES, ROWS], ...]}, ...]
//! GET  /v1/segments/N?start=A&end=B               bytes of a segment
//! POST /v1/commit?reader=NAME&segment=N&row=R     204
//! ```
//!
//! Each request has `Authorization: Bearer KEY`. The answer is 401 without the key, and 400 with
//! the reason where the spool refuses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use penstock_io::http::{Handler, HttpServer, RequestBody, Serving};
use penstock_io::tls::{Acceptor, Fingerprint, Offer, ServerTls};
use penstock_io::{Addresses, DriverError as _, ReadKey};
use tokio::task::spawn_blocking;

use crate::store::{Position, Store};
use crate::{Error, Misuse, Result};

/// The most bytes of an answer.
pub(super) const MAX_BYTES: u64 = 64 << 20;
/// The most segments of an answer.
pub(super) const MAX_SEGMENTS: usize = 64;
/// The protocol's name in the handshake.
pub(super) const ALPN: &[u8] = b"http/1.1";
const OFFER: Offer = Offer::named(&[ALPN]);
const SERVING: Serving = Serving {
    what: "readers",
    connections: 256,
    per_address: None,
    // A read opens a file in addition to the connection.
    descriptors: 2,
    keep_alive: true,
    // The longest pause of a reader between two requests.
    header_timeout: Duration::from_secs(60),
    // The longest time for 64 KiB of an answer.
    stall: Duration::from_secs(60),
    unsent: None,
    grace: Duration::from_secs(1),
};

/// A server that serves a spool to its readers until it is dropped.
#[derive(Debug)]
pub struct Service {
    server: HttpServer,
    acceptor: Arc<Acceptor>,
}

impl Service {
    /// Listen; port 0 picks a free one.
    pub fn bind(listen: Addresses, tls: &ServerTls, key: ReadKey, store: Arc<dyn Store>) -> Result<Self> {
        let (served, acceptor) = (Arc::new(Served { key, store }), Arc::new(Acceptor::new(tls.clone(), OFFER)?));
        let server = HttpServer::bind(served, listen, Some(Arc::clone(&acceptor)), SERVING, Arc::default())?;
        Ok(Self { server, acceptor })
    }

    /// Return the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Return the fingerprint that readers pin now.
    pub fn fingerprint(&self) -> Fingerprint {
        self.acceptor.fingerprint()
    }

    /// Read the certificate again if its files have changed; return whether they had. The service
    /// itself checks every 5 s.
    pub fn reload(&self) -> Result<bool> {
        Ok(self.server.reload()?)
    }

    /// Stop serving readers.
    pub fn close(&self) {
        self.server.stop();
    }
}

struct Served {
    key: ReadKey,
    store: Arc<dyn Store>,
}

impl Handler for Served {
    type Body = Full<Bytes>;

    async fn answer(self: Arc<Self>, request: Request<RequestBody>, peer: SocketAddr) -> Response<Full<Bytes>> {
        respond(&request, &self, peer).await
    }
}

async fn respond<B>(request: &Request<B>, served: &Served, peer: SocketAddr) -> Response<Full<Bytes>> {
    let given = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let known = given.and_then(|value| value.strip_prefix("Bearer ")).is_some_and(|key| served.key.matches(key));
    if !known {
        tracing::warn!(%peer, "a reader without the read key was refused");
        return answer(StatusCode::UNAUTHORIZED, "text/plain", "the read key is wrong\n".into());
    }
    let Some(asked) = ReadRequest::of(request) else {
        return answer(StatusCode::NOT_FOUND, "text/plain", "there is no such thing\n".into());
    };
    let store = Arc::clone(&served.store);
    let done = spawn_blocking(move || asked.look_up(&*store)).await;
    match done {
        Ok(Ok(Found::Nothing)) => answer(StatusCode::NO_CONTENT, "text/plain", Bytes::new()),
        Ok(Ok(Found::Json(text))) => answer(StatusCode::OK, "application/json", text.into()),
        Ok(Ok(Found::Bytes(bytes))) => answer(StatusCode::OK, "application/octet-stream", bytes.into()),
        Ok(Err(error)) => answer(StatusCode::BAD_REQUEST, "text/plain", error.to_string().into()),
        Err(died) => answer(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", died.to_string().into()),
    }
}

fn answer(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// A request that was understood.
#[derive(Debug, PartialEq, Eq)]
enum ReadRequest {
    Spool,
    Segments { from: u64, max: usize },
    Bytes { segment: u64, start: u64, end: u64 },
    Commit { reader: String, position: Position },
}

enum Found {
    Nothing,
    Json(Vec<u8>),
    Bytes(Vec<u8>),
}

impl ReadRequest {
    fn of<B>(request: &Request<B>) -> Option<Self> {
        let query = request.uri().query().unwrap_or_default();
        let text = |name: &str| {
            query
                .split('&')
                .find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name))
                .map(|(_, value)| value)
        };
        let number = |name: &str| text(name)?.parse::<u64>().ok();
        let path = request.uri().path();
        match (request.method(), path) {
            (&Method::GET, "/v1/spool") => Some(Self::Spool),
            (&Method::GET, "/v1/segments") => {
                let max = usize::try_from(number("max")?).ok()?.min(MAX_SEGMENTS);
                Some(Self::Segments { from: number("from")?, max })
            }
            (&Method::POST, "/v1/commit") => {
                let position = Position { segment: number("segment")?, row: number("row")? };
                Some(Self::Commit { reader: unescape(text("reader")?)?, position })
            }
            (&Method::GET, path) => {
                let segment = path.strip_prefix("/v1/segments/")?.parse().ok()?;
                Some(Self::Bytes { segment, start: number("start")?, end: number("end")? })
            }
            _ => None,
        }
    }

    fn look_up(self, store: &dyn Store) -> Result<Found> {
        let json = |bytes: serde_json::Result<Vec<u8>>| {
            bytes.map(Found::Json).map_err(|error| Error::internal("an answer to a reader", error))
        };
        match self {
            Self::Spool => json(serde_json::to_vec(&serde_json::json!({"spool": store.spool()?}))),
            Self::Segments { from, max } => json(serde_json::to_vec(&store.segments(from, max)?)),
            Self::Bytes { segment, start, end } => {
                if end.saturating_sub(start) > MAX_BYTES {
                    return Err(Misuse::AnswerLength { limit: MAX_BYTES }.into());
                }
                store.read(segment, start..end).map(Found::Bytes)
            }
            Self::Commit { reader, position } => store.commit(&reader, position).map(|()| Found::Nothing),
        }
    }
}

/// Escape a name for a query: every byte except letters and digits becomes `%XX`.
pub(super) fn escape(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        bytes.push((digit(rest.next()?)? << 4) | digit(rest.next()?)?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: Method, uri: &str) -> Option<ReadRequest> {
        ReadRequest::of(&Request::builder().method(method).uri(uri).body(()).unwrap())
    }

    #[test]
    fn requests_are_paths_and_anything_else_is_none() {
        assert_eq!(asked(Method::GET, "/v1/spool"), Some(ReadRequest::Spool));
        let bytes = ReadRequest::Bytes { segment: 7, start: 1, end: 20 };
        assert_eq!(asked(Method::GET, "/v1/segments/7?start=1&end=20"), Some(bytes));
        let segments = ReadRequest::Segments { from: 0, max: MAX_SEGMENTS };
        assert_eq!(asked(Method::GET, "/v1/segments?from=0&max=100000"), Some(segments));
        let uri = format!("/v1/commit?reader={}&segment=2&row=3", escape("a b/ü%"));
        let commit = ReadRequest::Commit { reader: "a b/ü%".into(), position: Position { segment: 2, row: 3 } };
        assert_eq!(asked(Method::POST, &uri), Some(commit));
        for wrong in
            ["/v1/segments", "/v1/segments/../x?start=0&end=1", "/v1/segments/7?start=-1&end=2", "/", "/v1/commit"]
        {
            assert_eq!(asked(Method::GET, wrong), None, "{wrong}");
        }
        assert_eq!(unescape("%G1"), None);
        assert_eq!(unescape("%4"), None);
    }
}
