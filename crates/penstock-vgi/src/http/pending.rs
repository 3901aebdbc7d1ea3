//! Requests on their way to a method: authentication, then the body, then the call.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::call::{Call, Resumed};
use super::route::{Kind, Route};
use super::service::Service;
use super::{REQUEST_ID, Request, Response, body, pages, uploads};
use crate::ErrorKind;
use crate::cast::conform;
use crate::classify::Class;
use crate::error::{Error, Malformed};
use crate::failure::Failure;
use crate::ipc::{self, Batch, Item, Output};
use crate::metadata::{Metadata, key};
use crate::protocol::{DESCRIBE, Dialect, MethodKind};
use crate::request::{self, Parsed, Rejection};
use crate::token::{Identity, Refused, Token};

/// The length above which a request ID is replaced, as is one that is not plain text.
const LONGEST_ID: usize = 128;

/// The result of beginning a request.
pub enum RequestStart {
    /// The response to the request.
    Done(Response),
    /// The request calls a method, after the caller is authenticated.
    Call(Box<Pending>),
}

/// A request for a method, whose caller is not authenticated yet.
pub struct Pending {
    service: Arc<Service>,
    request: Request,
    method: String,
    kind: Kind,
    request_id: String,
    /// The first batch of the body, once it has been decoded.
    first: Option<std::result::Result<Batch, Refusal>>,
    page: Option<Page>,
}

/// The page with which a GET is answered instead of a method's result.
enum Page {
    /// A finished page for authenticated callers.
    Made(Response),
    /// A page that the application makes.
    Own,
}

impl Service {
    /// Begin a request.
    pub fn begin(self: &Arc<Self>, request: Request) -> RequestStart {
        let given = request.headers.get(REQUEST_ID);
        let plain = |text: &&str| {
            !text.is_empty() && text.len() <= LONGEST_ID && text.bytes().all(|each| each.is_ascii_graphic())
        };
        let request_id = given.filter(plain).map(str::to_owned);
        if let Some(page) = self.page(&request) {
            let (service, request_id) = (Arc::clone(self), request_id.unwrap_or_default());
            let (method, kind, page) = (String::new(), Kind::Unary, Some(page));
            return RequestStart::Call(Box::new(Pending {
                service,
                request,
                method,
                kind,
                request_id,
                page,
                first: None,
            }));
        }
        let refuse = |response| RequestStart::Done(self.finish_response(response, &request, request_id.clone()));
        let (method, kind) = match (self.route(&request.path), request.method.as_str()) {
            (Route::Nothing, "OPTIONS") if self.config.own_pages.contains(&request.path) => {
                return refuse(Response { status: 200, ..Response::default() });
            }
            (Route::Nothing, _) => return refuse(self.made(&Route::Nothing)),
            (Route::Capabilities, "OPTIONS") => return refuse(Response { status: 200, ..Response::default() }),
            (Route::Method(..) | Route::Health | Route::Landing | Route::Describe, "OPTIONS") => {
                return refuse(Response { status: 200, ..Response::default() });
            }
            (route @ (Route::Health | Route::Landing | Route::Describe), "GET" | "HEAD") => {
                return refuse(self.made(&route));
            }
            (Route::Method(method, kind), "POST") => (method.to_owned(), kind),
            (Route::Method(..), _) => return refuse(not_allowed("POST, OPTIONS")),
            (Route::Health | Route::Landing | Route::Describe, _) => return refuse(not_allowed("GET, OPTIONS")),
            (Route::Capabilities, _) => return refuse(not_allowed("OPTIONS")),
        };
        let stated = request.headers.get("Content-Length").and_then(|length| length.parse::<u64>().ok());
        if stated.unwrap_or(0).max(request.body.len() as u64) > self.max_body() {
            return refuse(self.too_large());
        }
        if !self.is_arrow(request.headers.get("Content-Type")) {
            return refuse(self.unsupported(request.headers.get("Content-Type")));
        }
        let request_id = request_id.unwrap_or_default();
        let service = Arc::clone(self);
        RequestStart::Call(Box::new(Pending { service, request, method, kind, request_id, page: None, first: None }))
    }

    /// Return the page to serve after authentication, if there is one.
    fn page(&self, request: &Request) -> Option<Page> {
        let reads = matches!(request.method.as_str(), "GET" | "HEAD");
        if reads && self.config.own_pages.contains(&request.path) {
            return Some(Page::Own);
        }
        let route = self.route(&request.path);
        let guarded = match route {
            Route::Landing | Route::Describe => reads,
            // Unauthenticated callers must not learn which paths are missing either.
            Route::Nothing => request.method != "OPTIONS",
            Route::Method(..) | Route::Health | Route::Capabilities => false,
        };
        (self.config.guarded_pages && guarded).then(|| Page::Made(self.made(&route)))
    }
}

impl Pending {
    /// Return the request, for authentication.
    pub const fn request(&self) -> &Request {
        &self.request
    }

    /// Return whether the request is for a page that the application makes.
    pub const fn wants_own_page(&self) -> bool {
        matches!(self.page, Some(Page::Own))
    }

    /// Return whether the request is for a page, not for a method.
    pub const fn wants_page(&self) -> bool {
        self.page.is_some()
    }

    /// Add the body, which may arrive after authentication. If it is too large, return the response
    /// as the error.
    pub fn receive(mut self: Box<Self>, body: Vec<u8>) -> std::result::Result<Box<Self>, Response> {
        if body.len() as u64 > self.service.max_body() {
            return Err(self.too_large());
        }
        self.request.body = body;
        Ok(self)
    }

    /// Return the response to a body that is too large.
    pub fn too_large(self) -> Response {
        let response = self.service.too_large();
        self.done(response)
    }

    /// Return a response that does not come from a method.
    pub fn respond(self, response: Response) -> Response {
        self.done(response)
    }

    /// Return the response to a caller that is not authorized.
    pub fn unauthorized(self, message: &str, challenge: Option<&str>) -> Response {
        let mut response = match self.service.config.dialect {
            Dialect::Spec => Response::text(401, "text/plain; charset=utf-8", message),
            Dialect::V0_10 => pages::unauthorized(message),
        };
        if let Some(challenge) = challenge {
            response.headers.push("WWW-Authenticate", challenge);
        }
        self.done(response)
    }

    /// Return an error that does not come from a method.
    pub fn error(self, status: u16, message: &str) -> Response {
        self.done(Response::text(status, "text/plain; charset=utf-8", format!("{message}\n")))
    }

    fn done(self, response: Response) -> Response {
        self.service.finish_response(response, &self.request, Some(self.request_id))
    }

    /// Decode the body for an authenticated caller. `now` is in seconds since the Unix epoch.
    pub fn accept(mut self, identity: Identity, now: u64) -> std::result::Result<Box<Call>, Response> {
        match self.page.take() {
            None => {}
            Some(Page::Made(response)) => return Err(self.done(response)),
            Some(Page::Own) => return Err(self.error(404, "there is nothing here")),
        }
        match self.parse(&identity, now) {
            Ok(Found::Call(call, given)) => {
                if self.request_id.is_empty() {
                    self.request_id = given.filter(|id| !id.is_empty()).unwrap_or_else(|| self.service.next_id());
                }
                let Self { service, mut request, kind, request_id, .. } = self;
                request.body = Vec::new();
                Ok(Box::new(Call::new(service, request, kind, request_id, identity, *call)))
            }
            Ok(Found::Urls(count, given)) => {
                if self.request_id.is_empty() {
                    self.request_id = given.filter(|id| !id.is_empty()).unwrap_or_else(|| self.service.next_id());
                }
                let Self { service, mut request, kind, request_id, .. } = self;
                request.body = Vec::new();
                let metadata = Metadata::new();
                let parsed = request::Request { method: usize::MAX, values: Vec::new(), metadata, bytes: 0 };
                let mut call = Call::new(service, request, kind, request_id, identity, (parsed, None));
                call.urls = count;
                Ok(Box::new(call))
            }
            Ok(Found::Description) => {
                let mut out = Output::new();
                let description = self.service.config.description.clone();
                let written = description.map(|about| ipc::stream(&about.batch().schema, [about.batch()], &mut out));
                let response = match written {
                    Some(Ok(())) => self.service.arrow(200, out),
                    Some(Err(_)) | None => Response::text(500, "text/plain", "the description cannot be written\n"),
                };
                Err(self.done(response))
            }
            Err(refusal) => {
                let (status, schema, failure) = *refusal;
                let schema = schema.unwrap_or_else(|| Arc::clone(self.service.protocol.empty_schema()));
                let response = self.service.failure(status, &schema, &failure, &self.request_id);
                Err(self.done(response))
            }
        }
    }

    /// Return the pointer in the request, if its values are behind a URL. Pass the fetched batch to
    /// [`resolved`](Self::resolved) before [`accept`](Self::accept). Return `None` for a
    /// continuation without a valid token.
    pub fn pointer(&mut self, identity: &Identity, now: u64) -> Option<&Batch> {
        let found = self.service.protocol.find(&self.method).is_some();
        if !found || self.first.is_some() {
            return None;
        }
        let first = self.first_batch();
        let pointer = first.as_ref().is_ok_and(|batch| {
            let mut batch = batch.clone();
            batch.class() == Class::External
                && (self.kind != Kind::Exchange || self.token(&mut batch, identity, now).is_ok())
        });
        // `accept` rejects an invalid body.
        let first = self.first.insert(first);
        first.as_ref().ok().filter(|_| pointer)
    }

    /// Set the batch behind the pointer, with the pointer's metadata.
    pub fn resolved(&mut self, batch: Batch) {
        self.first = Some(Ok(batch));
    }

    /// Return the response to a request whose pointer cannot be followed.
    pub fn unresolved(self, failure: &Failure) -> Response {
        let response = self.service.failure(400, self.service.protocol.empty_schema(), failure, &self.request_id);
        self.done(response)
    }

    fn parse(&mut self, identity: &Identity, now: u64) -> std::result::Result<Found, Refusal> {
        let refused =
            |status, kind: &str, message: &str| -> Refusal { Box::new((status, None, Failure::new(kind, message))) };
        let service = Arc::clone(&self.service);
        if self.kind == Kind::UploadUrls {
            let batch = self.first_batch()?;
            let count = uploads::count(&batch).map_err(|failure| -> Refusal { Box::new((400, None, failure)) })?;
            return Ok(Found::Urls(count, batch.metadata.text(key::REQUEST_ID).map(str::to_owned)));
        }
        let describes = service.config.description.is_some() && self.method == DESCRIBE && self.kind == Kind::Unary;
        let index = service.protocol.find(&self.method);
        let method = index.and_then(|index| Some((index, service.protocol.method(index)?)));
        let kind = method.map(|(_, method)| method.kind);
        let name = &self.method;
        match (kind, self.kind) {
            (None, _) if !describes => {
                let message = request::unknown(&service.protocol, name, service.config.description.is_some());
                return Err(refused(404, "AttributeError", &message));
            }
            (Some(MethodKind::Stream), Kind::Unary) => {
                let message = format!("Stream method '{name}' requires /init and /exchange endpoints");
                return Err(refused(400, "TypeError", &message));
            }
            (Some(MethodKind::Unary), Kind::Init) => {
                return Err(refused(400, "TypeError", &format!("Method '{name}' is not a stream")));
            }
            (Some(MethodKind::Unary), Kind::Exchange) => {
                return Err(refused(400, "TypeError", &format!("Method '{name}' does not support /exchange")));
            }
            (None | Some(MethodKind::Unary), Kind::Unary)
            | (None | Some(MethodKind::Stream), Kind::Init | Kind::Exchange)
            | (_, Kind::UploadUrls) => {}
        }
        let batch = match self.first.take() {
            Some(first) => first?,
            None => self.first_batch()?,
        };
        match (self.kind, index) {
            (Kind::Exchange, Some(index)) => self.resume(index, batch, identity, now),
            (Kind::Unary | Kind::Init | Kind::Exchange | Kind::UploadUrls, _) => self.called(batch),
        }
    }

    /// Return the first batch of the body. Tolerate further batches, as on a pipe.
    fn first_batch(&mut self) -> std::result::Result<Batch, Refusal> {
        let refused =
            |error: &Error| -> Refusal { Box::new((400, None, Failure::new("ProtocolError", &error.to_string()))) };
        let headers = &self.request.headers;
        let coding = headers.get("X-VGI-Content-Encoding").or_else(|| headers.get("Content-Encoding"));
        let bytes = std::mem::take(&mut self.request.body);
        let bytes = match coding.map(str::trim) {
            None | Some("" | "identity") => bytes,
            Some("zstd") => body::inflate(&bytes, self.service.max_body()).map_err(|error| -> Refusal {
                // A body over the limit gets 413, whether the excess shows before or after
                // decompression.
                let status = if error.kind() == ErrorKind::Limit { 413 } else { 400 };
                Box::new((status, None, Failure::new("ProtocolError", &error.to_string())))
            })?,
            Some(other) => {
                let message = format!("the body is coded as {other:?}: \"zstd\" is understood");
                return Err(Box::new((415, None, Failure::new("ProtocolError", &message))));
            }
        };
        let items = ipc::read_streams(&bytes.into(), &self.service.config.limits).map_err(|error| refused(&error))?;
        let mut batches = items.into_iter().filter_map(|item| match item {
            Item::Batch(batch) => Some(batch),
            Item::Schema(_) | Item::End => None,
        });
        batches.next().ok_or_else(|| refused(&Malformed::NoBatch.into()))
    }

    fn called(&self, batch: Batch) -> std::result::Result<Found, Refusal> {
        let service = &self.service;
        if let Some(named) = batch.metadata.get(key::METHOD).filter(|named| *named != self.method.as_bytes()) {
            let message = format!(
                "Method name mismatch: URL path has '{}' but Arrow IPC custom_metadata 'vgi_rpc.method' has '{}'. \
                 These must match.",
                self.method,
                named.escape_ascii()
            );
            return Err(Box::new((400, None, Failure::new("TypeError", &message))));
        }
        let request_id = batch.metadata.text(key::REQUEST_ID).map(str::to_owned);
        match request::parse(&service.protocol, batch, service.config.description.is_some()) {
            Parsed::Describe => Ok(Found::Description),
            Parsed::Call(request) => Ok(Found::Call(Box::new((request, None)), request_id)),
            Parsed::Rejected(why, schema, failure) => Err(Box::new(match why {
                Rejection::Method => (404, None, failure),
                Rejection::Params if service.config.dialect == Dialect::Spec => (400, Some(schema), failure),
                Rejection::Params | Rejection::Protocol | Rejection::Version => (400, None, failure),
            })),
        }
    }

    /// Take the token out of a batch, and verify it.
    fn token(&self, batch: &mut Batch, identity: &Identity, now: u64) -> std::result::Result<Token, Refusal> {
        let service = &self.service;
        let refused = |message: &str| -> Refusal { Box::new((400, None, Failure::new("RuntimeError", message))) };
        let token = match service.config.dialect {
            Dialect::Spec => batch.metadata.remove(key::STREAM_STATE),
            Dialect::V0_10 => batch
                .metadata
                .remove(key::STREAM_STATE_B64)
                .map(|text| STANDARD.decode(text).map_err(|_| refused(Refused::Malformed.message())))
                .transpose()?,
        };
        let token = token.ok_or_else(|| refused("Missing state token in exchange request"))?;
        service.signer.open(&token, identity, now).map_err(|why| refused(why.message()))
    }

    /// Return the state of a stream from its verified token.
    fn resume(
        &self,
        index: usize,
        mut batch: Batch,
        identity: &Identity,
        now: u64,
    ) -> std::result::Result<Found, Refusal> {
        let service = &self.service;
        let refused = |message: &str| -> Refusal { Box::new((400, None, Failure::new("RuntimeError", message))) };
        let token = self.token(&mut batch, identity, now)?;
        let read = |bytes: &[u8]| {
            ipc::read_schema(bytes, &service.config.limits).map_err(|_| refused(Refused::Malformed.message()))
        };
        let (output, input) = (read(&token.schema)?, read(&token.input_schema)?);
        let unresolved = batch.unresolved();
        let bytes = batch.bytes;
        let metadata = std::mem::take(&mut batch.metadata);
        let cancelled = batch.rows == 0 && metadata.contains(key::CANCEL);
        if !cancelled {
            if let Some(why) = unresolved {
                return Err(Box::new((400, Some(output), Failure::new("ProtocolError", why))));
            }
            let came = Arc::clone(&batch.schema);
            batch = conform(batch, &input).ok_or_else(|| {
                let message = request::mismatch(&input, &came);
                Box::new((400, Some(Arc::clone(&output)), Failure::new("TypeError", &message)))
            })?;
        }
        let resumed = Resumed {
            state: token.state,
            stream_id: token.stream_id,
            output,
            input,
            batch: batch.with_metadata(metadata.clone()),
            cancelled,
        };
        let request = request::Request { method: index, values: Vec::new(), metadata: Metadata::new(), bytes };
        let request_id = metadata.text(key::REQUEST_ID).map(str::to_owned);
        Ok(Found::Call(Box::new((request, Some(resumed))), request_id))
    }
}

/// A status, the schema of the error stream (`None`: the empty schema), and the error.
type Refusal = Box<(u16, Option<SchemaRef>, Failure)>;

enum Found {
    Call(Box<(request::Request, Option<Resumed>)>, Option<String>),
    Description,
    /// The number of URLs, and the ID of the request.
    Urls(usize, Option<String>),
}

fn not_allowed(allow: &str) -> Response {
    let mut response = Response::text(405, "text/plain; charset=utf-8", format!("{allow} only\n"));
    response.headers.push("Allow", allow);
    response
}
