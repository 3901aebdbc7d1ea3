//! vgi-rpc over HTTP (section 10), without IO: it turns a request into a response.
//!
//! ```text
//!  request ─▶ Service::begin ─┬─▶ Done: pages, health, capabilities, 404, 405, 413, 415
//!                             └─▶ Pending ─ who calls? ─┬─▶ unauthorized: 401
//!                                                       └─▶ accept ─┬─▶ Done: 400, 404, the description
//!                                                                   └─▶ Call ─▶ reply | fail | open, emit, finish
//! ```

mod body;
mod call;
mod client;
mod config;
mod pages;
mod pending;
mod route;
mod service;
mod uploads;

use arrow_buffer::Buffer;

pub use body::{compress, inflate};
pub use call::{Call, Resumed};
pub use client::{RequestKind, ResponseContent, StreamToken, exchange_body, read_answer, request_body};
pub use config::Config;
pub use pending::{Pending, RequestStart};
pub use route::Kind;
pub use service::Service;
pub use uploads::{UPLOAD_URL, UploadUrl, read_upload_urls, upload_request};

/// The content type of all requests, and of all responses in Arrow.
pub const ARROW: &str = "application/vnd.apache.arrow.stream";
/// The header that marks a response as an error although its status is 200 (dialect 0.10).
pub const RPC_ERROR: &str = "X-VGI-RPC-Error";
/// The header with the largest request body that a server accepts.
pub const MAX_REQUEST_BYTES: &str = "VGI-Max-Request-Bytes";
/// The header that says whether a server issues URLs for uploading requests.
pub const UPLOAD_URLS: &str = "VGI-Upload-URL-Support";
/// The header with the most bytes of an upload.
pub const MAX_UPLOAD_BYTES: &str = "VGI-Max-Upload-Bytes";
/// The header with the ID that correlates a request with its response.
pub const REQUEST_ID: &str = "X-Request-ID";

/// Headers in the order of the wire; their names are case-insensitive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// Make an empty list.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Return the first value of a header.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Append a field.
    pub fn push(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.push((name.into(), value.into()));
    }

    /// Return the fields.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Return whether a list header contains a word.
    fn lists(&self, name: &str, word: &str) -> bool {
        self.0.iter().filter(|(field, _)| field.eq_ignore_ascii_case(name)).any(|(_, value)| {
            value.split(',').any(|each| {
                let (each, weight) = each.split_once(';').unwrap_or((each, ""));
                each.trim().eq_ignore_ascii_case(word) && !matches!(weight.trim(), "q=0" | "q=0.0")
            })
        })
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(fields: I) -> Self {
        Self(fields.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// A request from a web server.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The HTTP method, such as `POST`.
    pub method: String,
    /// The path, decoded, without the query.
    pub path: String,
    /// The request's headers.
    pub headers: Headers,
    /// The body or its beginning; one byte more than the limit means that the body is too large.
    pub body: Vec<u8>,
}

/// An answer.
#[derive(Debug, Clone, Default)]
pub struct Response {
    /// The status, such as 200.
    pub status: u16,
    /// The response's headers, without the length.
    pub headers: Headers,
    /// The body in pieces; large pieces share the memory of the arrays.
    pub body: Vec<Buffer>,
}

impl Response {
    fn text(status: u16, content_type: &str, text: impl Into<Vec<u8>>) -> Self {
        let headers = [("Content-Type", content_type)].into_iter().collect();
        Self { status, headers, body: vec![Buffer::from_vec(text.into())] }
    }

    /// Return the number of bytes of the body.
    pub fn len(&self) -> usize {
        self.body.iter().map(Buffer::len).sum()
    }

    /// Return whether there is no body.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Return the body in one piece.
    pub fn concat(&self) -> Vec<u8> {
        self.body.iter().map(Buffer::as_slice).collect::<Vec<_>>().concat()
    }
}
