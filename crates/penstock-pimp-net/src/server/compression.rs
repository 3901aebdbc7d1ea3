//! Responses in gzip, for clients that accept it.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::Response;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, VARY};

use super::body::ResponseBody;
use super::request::{accepts, header};

/// The smallest body worth compressing: below it the additional headers cost as much as gzip saves.
const WORTH: usize = 1 << 10;
/// Larger bodies are compressed on a thread of the pool.
const HERE: usize = 32 << 10;

/// Return whether a request accepts gzip.
pub(super) fn wanted(headers: &HeaderMap) -> bool {
    header(headers, &ACCEPT_ENCODING).is_some_and(|accepted| accepts(accepted, "gzip"))
}

/// Compress a response if it is JSON and large enough.
pub(super) async fn packed(accepted: &HeaderMap, response: Response<ResponseBody>) -> Response<ResponseBody> {
    let json = header(response.headers(), &CONTENT_TYPE) == Some("application/json");
    let (mut parts, body) = response.into_parts();
    match body {
        ResponseBody::Whole(bytes) if json && bytes.len() >= WORTH => {
            parts.headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
            let smaller = if wanted(accepted) { smaller(bytes.clone()).await } else { None };
            if smaller.is_some() {
                parts.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            }
            Response::from_parts(parts, ResponseBody::Whole(smaller.unwrap_or(bytes)))
        }
        ResponseBody::Whole(_) | ResponseBody::Stream { .. } => Response::from_parts(parts, body),
    }
}

/// Set the headers that state whether a streamed response is gzip.
pub(super) fn tagged(mut response: Response<ResponseBody>, packed: bool) -> Response<ResponseBody> {
    let headers = response.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if packed {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

async fn smaller(bytes: Bytes) -> Option<Bytes> {
    if bytes.len() <= HERE {
        return gzip(&bytes);
    }
    penstock_io::runtime::spawn_blocking(move || gzip(&bytes)).ok()?.await.ok()?
}

fn gzip(bytes: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 2), Compression::fast());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok().map(Bytes::from)
}
