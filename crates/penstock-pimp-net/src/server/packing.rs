//! Answers in gzip, for who takes it.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::Response;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, VARY};

use super::body::Octets;
use super::service::header;

/// Below it a header more costs as much.
const WORTH: usize = 1 << 10;
/// Above it a thread of the pool does it.
const HERE: usize = 32 << 10;

/// Whether a request takes gzip.
pub(super) fn wanted(headers: &HeaderMap) -> bool {
    header(headers, &ACCEPT_ENCODING).is_some_and(|accepted| accepts(accepted, "gzip"))
}

/// Whether a list of what is accepted names this, not with a quality of 0.
pub(super) fn accepts(list: &str, wanted: &str) -> bool {
    list.split(',').any(|each| {
        let mut parts = each.split(';').map(str::trim);
        let refused = |part: &str| {
            let quality = part.split_once('=').filter(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
            quality.is_some_and(|(_, quality)| quality.trim().parse() == Ok(0.0))
        };
        parts.next().is_some_and(|name| name.eq_ignore_ascii_case(wanted)) && !parts.any(refused)
    })
}

/// The same answer, smaller, where it is JSON and worth it.
pub(super) async fn packed(asked: &HeaderMap, response: Response<Octets>) -> Response<Octets> {
    let json = header(response.headers(), &CONTENT_TYPE) == Some("application/json");
    let (mut parts, body) = response.into_parts();
    match body {
        Octets::Whole(octets) if json && octets.len() >= WORTH => {
            parts.headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
            let smaller = if wanted(asked) { smaller(octets.clone()).await } else { None };
            if smaller.is_some() {
                parts.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            }
            Response::from_parts(parts, Octets::Whole(smaller.unwrap_or(octets)))
        }
        Octets::Whole(_) | Octets::Stream { .. } => Response::from_parts(parts, body),
    }
}

/// Says whether an answer that comes in pieces is in gzip.
pub(super) fn tagged(mut response: Response<Octets>, packed: bool) -> Response<Octets> {
    let headers = response.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if packed {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

async fn smaller(octets: Bytes) -> Option<Bytes> {
    if octets.len() <= HERE {
        return gzip(&octets);
    }
    penstock_io::runtime::spawn_blocking(move || gzip(&octets)).ok()?.await.ok()?
}

fn gzip(octets: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(octets.len() / 2), Compression::fast());
    encoder.write_all(octets).ok()?;
    encoder.finish().ok().map(Bytes::from)
}
