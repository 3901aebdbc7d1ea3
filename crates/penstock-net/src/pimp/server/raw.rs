//! The payload of a completed job as it is, with ranges (decision 9).

use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue,
    IF_NONE_MATCH, IF_RANGE, RANGE, VARY,
};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use penstock_pimp::{Code, Compression, Decoder, Envelope, Error, Job, JobId, Limits, Metadata};

use super::answer::{self, Refused};
use super::body::Octets;
use super::packing;
use super::service::{Service, header, now};

/// The most that a compressed payload is inflated to for who does not take gzip; others do it themselves.
const INFLATED: u64 = 256 << 20;

/// Answers with the payload, or a range of it.
pub(super) async fn respond(
    service: &Arc<Service>,
    id: JobId,
    key: Option<&str>,
    parts: &Parts,
) -> Result<Response<Octets>, Refused> {
    let job = service.job(id).await?;
    job.check_reader(now(), key)?;
    if !job.is_whole() {
        return Err(Error::new(Code::Conflict, "the job is not completed").into());
    }
    let chunks = service.store.read(id, job.indices().iter_from(0).collect()).await?;
    let limits = service.limits().clone();
    let as_it_is = packing::wanted(&parts.headers);
    let assembling = crate::runtime::spawn_blocking(move || assemble(id, &chunks, as_it_is, &limits))?;
    let ended = |_| crate::Error::Misuse("the process ends".to_owned());
    let (metadata, octets) = assembling.await.map_err(ended)??;
    let packed = as_it_is && metadata.compression == Compression::Gzip;
    let mut response = ranged(&parts.headers, &etag(&job, packed), octets);
    let headers = response.headers_mut();
    answer::set(headers, CONTENT_TYPE, &metadata.content_type);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    // What a sender calls text/html is not a page of this host's.
    headers.insert("content-security-policy", HeaderValue::from_static("sandbox"));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    if metadata.compression == Compression::Gzip {
        headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    }
    if packed {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(response)
}

/// What is done does not change: its time and its length name it.
fn etag(job: &Job, packed: bool) -> String {
    let octets = job.done().map_or(0, |done| done.octets);
    format!("\"{:x}-{:x}-{octets:x}{}\"", job.created_at(), job.indices().count(), if packed { "-gzip" } else { "" })
}

fn assemble(id: JobId, chunks: &[Bytes], as_it_is: bool, limits: &Limits) -> Result<(Metadata, Bytes), Error> {
    let read = |chunk: &Bytes| Envelope::decode(&String::from_utf8_lossy(chunk), id, limits);
    let (first, rest) = chunks.split_first().ok_or_else(Error::not_found)?;
    let metadata = Metadata::decode(&read(first)?.value)?;
    // What goes out as gzip is not inflated here.
    let compression = if as_it_is { Compression::None } else { metadata.compression };
    let mut decoder = Decoder::new(&Metadata { compression, ..metadata.clone() }, INFLATED);
    let mut octets = Vec::new();
    for chunk in rest {
        let envelope = read(chunk)?;
        decoder.push(&envelope.value, &mut octets)?;
        if envelope.done {
            decoder.finish(envelope.sha256.as_ref(), &mut octets)?;
        }
    }
    Ok((metadata, Bytes::from(octets)))
}

fn ranged(headers: &HeaderMap, etag: &str, octets: Bytes) -> Response<Octets> {
    let named = |list: &str| {
        list.split(',').any(|each| matches!(each.trim().trim_start_matches("W/"), tag if tag == etag || tag == "*"))
    };
    let length = octets.len() as u64;
    let asked = header(headers, &RANGE).filter(|_| header(headers, &IF_RANGE).is_none_or(|tag| tag == etag));
    let mut response = if header(headers, &IF_NONE_MATCH).is_some_and(named) {
        answer::empty(StatusCode::NOT_MODIFIED)
    } else {
        match asked.map_or(Range::All, |asked| Range::parse(asked, length)) {
            Range::All => Response::new(Octets::Whole(octets)),
            Range::None => {
                let mut response = answer::empty(StatusCode::RANGE_NOT_SATISFIABLE);
                answer::set(response.headers_mut(), CONTENT_RANGE, &format!("bytes */{length}"));
                response
            }
            Range::Part(first, last) => {
                let (start, end) = (usize::try_from(first).unwrap_or(0), usize::try_from(last).unwrap_or(0));
                let mut response = Response::new(Octets::Whole(octets.slice(start..=end)));
                *response.status_mut() = StatusCode::PARTIAL_CONTENT;
                answer::set(response.headers_mut(), CONTENT_RANGE, &format!("bytes {first}-{last}/{length}"));
                response
            }
        }
    };
    answer::set(response.headers_mut(), ETAG, etag);
    response.headers_mut().insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    response
}

/// Which octets are asked for.
#[derive(Debug, PartialEq, Eq)]
enum Range {
    /// All: none is asked for, several are, or what is asked for is no range.
    All,
    /// The first and the last.
    Part(u64, u64),
    /// None of those that are there.
    None,
}

impl Range {
    fn parse(text: &str, length: u64) -> Self {
        let number =
            |text: &str| text.bytes().all(|octet| octet.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
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
