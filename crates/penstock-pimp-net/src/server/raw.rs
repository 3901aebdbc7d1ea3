//! The payload of a completed job without encoding, with ranges (decision 9).

use std::net::IpAddr;

use hyper::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH,
    IF_RANGE, RANGE, VARY,
};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use penstock_pimp::{Compression, Conflict, Error, Job, JobId};

use super::body::ResponseBody;
use super::jobs::Jobs;
use super::payload::Payloads;
use super::refused::Refused;
use super::request::header;
use super::{answer, compression};
use crate::clock::now;

/// Respond with the payload, or a range of it.
pub(super) async fn respond(
    jobs: &Jobs,
    payloads: &Payloads,
    id: JobId,
    key: Option<&str>,
    parts: &Parts,
    peer: IpAddr,
) -> Result<Response<ResponseBody>, Refused> {
    let job = jobs.job(id, key).await?;
    job.check_reader(now(), key)?;
    if !job.is_whole() {
        return Err(Error::from(Conflict::NotCompleted).into());
    }
    let as_it_is = compression::wanted(&parts.headers);
    // Whether the payload is compressed is known once it was read; if it is not, both forms are the same.
    let payload = payloads.checked((id, etag(&job, as_it_is)), &job, !as_it_is, peer).await?;
    let compressed = payload.metadata.compression == Compression::Gzip;
    let etag = etag(&job, as_it_is && compressed);
    let mut response = if header(&parts.headers, &IF_NONE_MATCH).is_some_and(|tags| names(tags, &etag)) {
        answer::empty(StatusCode::NOT_MODIFIED)
    } else {
        // Ranges apply to GET only (RFC 9110, 14.2).
        let asked = header(&parts.headers, &RANGE).filter(|_| parts.method == Method::GET);
        let asked = asked.filter(|_| header(&parts.headers, &IF_RANGE).is_none_or(|tag| tag == etag));
        let (status, range) = ranged(asked, payload.length);
        let mut response = answer::empty(status);
        if let Some((first, last)) = range {
            let pieces = payloads.stream(id, &job, &payload, !as_it_is, first..=last, peer).await?;
            *response.body_mut() = ResponseBody::Stream { pieces, left: Some(last - first + 1) };
        }
        let placed = match (status, range) {
            (StatusCode::PARTIAL_CONTENT, Some((first, last))) => {
                Some(format!("bytes {first}-{last}/{}", payload.length))
            }
            (StatusCode::RANGE_NOT_SATISFIABLE, _) => Some(format!("bytes */{}", payload.length)),
            (_, _) => None,
        };
        if let Some(placed) = placed {
            answer::set(response.headers_mut(), CONTENT_RANGE, &placed);
        }
        response
    };
    let headers = response.headers_mut();
    answer::set(headers, ETAG, &etag);
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    answer::set(headers, CONTENT_TYPE, &payload.metadata.content_type);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    // A payload that its sender labels text/html must not act as a page of this host.
    headers.insert("content-security-policy", HeaderValue::from_static("sandbox"));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    if compressed {
        headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    }
    if compressed && as_it_is {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(response)
}

/// Return the tag of a completed job's payload. It cannot change, so the job's time and length identify it.
fn etag(job: &Job, packed: bool) -> String {
    let bytes = job.done().map_or(0, |done| done.bytes);
    format!("\"{:x}-{:x}-{bytes:x}{}\"", job.created_at(), job.indices().count(), if packed { "-gzip" } else { "" })
}

/// Return whether a list of tags contains this one.
fn names(list: &str, etag: &str) -> bool {
    list.split(',').any(|each| matches!(each.trim().trim_start_matches("W/"), tag if tag == etag || tag == "*"))
}

/// Return the first and the last byte of the response, if it has any, and its status.
fn ranged(asked: Option<&str>, length: u64) -> (StatusCode, Option<(u64, u64)>) {
    match asked.map_or(Range::All, |asked| Range::parse(asked, length)) {
        Range::All => (StatusCode::OK, length.checked_sub(1).map(|last| (0, last))),
        Range::None => (StatusCode::RANGE_NOT_SATISFIABLE, None),
        Range::Part(first, last) => (StatusCode::PARTIAL_CONTENT, Some((first, last))),
    }
}

/// The requested bytes.
#[derive(Debug, PartialEq, Eq)]
enum Range {
    /// All of them: no range is requested, several are, or the range is invalid.
    All,
    /// The first and the last.
    Part(u64, u64),
    /// None of the bytes exist.
    None,
}

impl Range {
    fn parse(text: &str, length: u64) -> Self {
        let number =
            |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
        let Some((first, last)) = text.trim().strip_prefix("bytes=").and_then(|range| range.split_once('-')) else {
            return Self::All;
        };
        let end = length.saturating_sub(1);
        match (first.is_empty(), number(first), last.is_empty(), number(last)) {
            (true, _, false, Some(0)) => Self::None,
            (true, _, false, Some(_)) if length == 0 => Self::None,
            (true, _, false, Some(suffix)) => Self::Part(length.saturating_sub(suffix), end),
            (false, Some(first), true, _) if first < length => Self::Part(first, end),
            (false, Some(first), false, Some(last)) if first <= last && first < length => {
                Self::Part(first, last.min(end))
            }
            (false, Some(first), false, Some(last)) if first > last => Self::All,
            (false, Some(_), true, _) | (false, Some(_), false, Some(_)) => Self::None,
            (_, _, _, _) => Self::All,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_rfc_9110() {
        for (text, range) in [
            ("bytes=0-3", Range::Part(0, 3)),
            ("bytes=4-", Range::Part(4, 9)),
            ("bytes=-3", Range::Part(7, 9)),
            ("bytes=-30", Range::Part(0, 9)),
            ("bytes=9-99", Range::Part(9, 9)),
            ("bytes=10-", Range::None),
            ("bytes=-0", Range::None),
            ("bytes=3-2", Range::All),
            ("bytes=0-1,3-4", Range::All),
            ("bytes=-", Range::All),
            ("bytes=x-1", Range::All),
            ("items=0-1", Range::All),
        ] {
            assert_eq!(Range::parse(text, 10), range, "{text}");
        }
        assert_eq!((Range::parse("bytes=0-", 0), Range::parse("bytes=-1", 0)), (Range::None, Range::None));
    }
}
