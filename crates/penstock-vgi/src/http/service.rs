//! The meaning of paths, and the responses that need no method.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_buffer::Buffer;
use arrow_schema::SchemaRef;

use super::config::Config;
use super::route::{Kind, Route};
use super::{
    ARROW, Headers, MAX_REQUEST_BYTES, MAX_UPLOAD_BYTES, REQUEST_ID, RPC_ERROR, Request, Response, UPLOAD_URL,
    UPLOAD_URLS, body, pages,
};
use crate::error::{Misuse, Result};
use crate::failure::Failure;
use crate::ids::id;
use crate::ipc::{self, Batch, Output};
use crate::protocol::{Dialect, Protocol};
use crate::token::Signer;

/// The size below which a response is not worth compressing.
const WORTH: usize = 1 << 10;
/// The caching of the server's capabilities by clients: 300 seconds.
const KEEP: &str = "public, max-age=300";

/// A service, which handles all requests; its only state is a counter.
pub struct Service {
    pub(super) protocol: Arc<Protocol>,
    pub(super) config: Config,
    pub(super) signer: Signer,
    requests: AtomicU64,
}

impl Service {
    /// Make a service from its configuration.
    pub fn new(protocol: Arc<Protocol>, config: Config) -> Result<Self> {
        let whole = config.prefix.is_empty() || (config.prefix.starts_with('/') && !config.prefix.ends_with('/'));
        if !whole {
            return Err(Misuse::Prefix(config.prefix).into());
        }
        let signer = Signer::new(config.signing_key.clone(), config.dialect, config.token_ttl);
        Ok(Self { protocol, config, signer, requests: AtomicU64::new(0) })
    }

    /// Return the most bytes of a body, compressed or not.
    pub fn max_body(&self) -> u64 {
        self.config.max_request_bytes.unwrap_or(Config::BODY)
    }

    pub(super) fn too_large(&self) -> Response {
        let message = format!("the body has more than the {} bytes that this server takes\n", self.max_body());
        Response::text(413, "text/plain; charset=utf-8", message)
    }

    pub(super) fn made(&self, route: &Route<'_>) -> Response {
        match route {
            Route::Health => pages::health(&self.config, self.protocol.name()),
            Route::Landing => pages::landing(&self.config, self.protocol.name()),
            Route::Describe => pages::describe(&self.config, &self.protocol),
            Route::Nothing | Route::Capabilities | Route::Method(..) => {
                pages::not_found(&self.config, self.protocol.name())
            }
        }
    }

    pub(super) fn route<'p>(&self, path: &'p str) -> Route<'p> {
        let Some(rest) = path.strip_prefix(self.config.prefix.as_str()) else { return Route::Nothing };
        if matches!(rest, "" | "/") {
            return if self.config.landing_page { Route::Landing } else { Route::Nothing };
        }
        let Some(rest) = rest.strip_prefix('/') else { return Route::Nothing };
        match rest.split_once('/') {
            None if rest == "health" && self.config.health => Route::Health,
            None if rest == "describe" && self.config.describe_page && self.config.description.is_some() => {
                Route::Describe
            }
            None if rest == "__capabilities__" && self.config.dialect == Dialect::Spec => Route::Capabilities,
            None => Route::Method(rest, Kind::Unary),
            Some((UPLOAD_URL, "init")) if self.config.upload_urls => Route::Method(UPLOAD_URL, Kind::UploadUrls),
            Some((method, "init")) if !method.is_empty() => Route::Method(method, Kind::Init),
            Some((method, "exchange")) if !method.is_empty() => Route::Method(method, Kind::Exchange),
            Some(_) => Route::Nothing,
        }
    }

    /// Return whether a content type is Arrow's. The reference package accepts no parameters.
    pub(super) fn is_arrow(&self, given: Option<&str>) -> bool {
        let Some(given) = given else { return false };
        match self.config.dialect {
            Dialect::V0_10 => given == ARROW,
            Dialect::Spec => given.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(ARROW)),
        }
    }

    pub(super) fn unsupported(&self, given: Option<&str>) -> Response {
        let message = format!("Expected Content-Type: '{ARROW}', got {:?}", given.unwrap_or_default());
        match self.config.dialect {
            Dialect::Spec => Response::text(415, "text/plain; charset=utf-8", format!("{message}\n")),
            Dialect::V0_10 => self.failure(415, self.protocol.empty_schema(), &Failure::new("TypeError", &message), ""),
        }
    }

    pub(super) fn next_id(&self) -> String {
        id(self.config.seed, self.requests.fetch_add(1, Ordering::Relaxed).wrapping_add(1))
    }

    /// Return a response with an error stream.
    pub(super) fn failure(&self, status: u16, schema: &SchemaRef, failure: &Failure, request_id: &str) -> Response {
        let metadata = failure.metadata(&self.config.server_id, request_id);
        let mut out = Output::new();
        if ipc::stream(schema, [&Batch::empty(schema, metadata)], &mut out).is_err() {
            // A schema that cannot be encoded was rejected when the method was declared.
            return Response::text(500, "text/plain; charset=utf-8", failure.message.clone());
        }
        self.arrow(status, out)
    }

    /// Return an Arrow response. The reference package never sends 500, because proxies discard the
    /// bodies.
    pub(super) fn arrow(&self, status: u16, mut out: Output) -> Response {
        let mut headers: Headers = [("Content-Type", ARROW)].into_iter().collect();
        let hidden = status == 500 && self.config.dialect == Dialect::V0_10;
        if hidden {
            headers.push(RPC_ERROR, "true");
        }
        Response { status: if hidden { 200 } else { status }, headers, body: out.take() }
    }

    /// Add the parts of every response: its ID, the server's capabilities, CORS headers, and zstd
    /// for clients that accept it.
    pub(super) fn finish_response(
        &self,
        mut response: Response,
        request: &Request,
        request_id: Option<String>,
    ) -> Response {
        self.compress(&mut response, &request.headers);
        let request_id = request_id.filter(|given| !given.is_empty()).unwrap_or_else(|| self.next_id());
        response.headers.push(REQUEST_ID, request_id);
        if let Some(most) = self.config.max_request_bytes {
            response.headers.push(MAX_REQUEST_BYTES, most.to_string());
        }
        if self.config.upload_urls {
            response.headers.push(UPLOAD_URLS, "true");
            if let Some(most) = self.config.max_upload_bytes {
                response.headers.push(MAX_UPLOAD_BYTES, most.to_string());
            }
        }
        if request.method == "OPTIONS" && response.status == 200 {
            response.headers.push("Allow", "GET, POST, OPTIONS");
            response.headers.push("Cache-Control", KEEP);
        }
        // The codings that a request to this server may have (RFC 9110, section 12.5.3).
        response.headers.push("Accept-Encoding", "zstd");
        self.allow_origin(&mut response, request);
        response
    }

    fn compress(&self, response: &mut Response, accepted: &Headers) {
        let Some(level) = self.config.compression_level else { return };
        let own = accepted.lists("X-VGI-Accept-Encoding", "zstd");
        if response.headers.get("Content-Type") != Some(ARROW)
            || response.len() < WORTH
            || !(own || accepted.lists("Accept-Encoding", "zstd"))
        {
            return;
        }
        let pieces: Vec<&[u8]> = response.body.iter().map(Buffer::as_slice).collect();
        // If compression fails, the body is sent uncompressed.
        let Ok(Some(smaller)) = body::compress(&pieces, level) else { return };
        response.body = vec![smaller.into()];
        response.headers.push(if own { "X-VGI-Content-Encoding" } else { "Content-Encoding" }, "zstd");
    }

    fn allow_origin(&self, response: &mut Response, request: &Request) {
        let Some(origin) = request.headers.get("Origin") else { return };
        let all = self.config.cors_origins.iter().any(|each| each == "*");
        if !all && !self.config.cors_origins.iter().any(|each| each == origin) {
            return;
        }
        response.headers.push("Access-Control-Allow-Origin", if all { "*" } else { origin });
        response.headers.push("Vary", "Origin");
        let mut exposed =
            format!("WWW-Authenticate, {REQUEST_ID}, X-VGI-Content-Encoding, {RPC_ERROR}, {MAX_REQUEST_BYTES}");
        if self.config.upload_urls {
            exposed = format!("{exposed}, {UPLOAD_URLS}, {MAX_UPLOAD_BYTES}");
        }
        response.headers.push("Access-Control-Expose-Headers", exposed);
        if request.method == "OPTIONS" {
            response.headers.push("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
            let wanted = request.headers.get("Access-Control-Request-Headers").unwrap_or("*");
            response.headers.push("Access-Control-Allow-Headers", wanted);
            if let Some(seconds) = self.config.cors_max_age {
                response.headers.push("Access-Control-Max-Age", seconds.to_string());
            }
        }
    }
}
