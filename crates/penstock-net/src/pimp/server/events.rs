//! Server-sent events: the chunks without a gap, as they come (decision 10).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use penstock_pimp::{Code, Error, JobId, Query};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::answer::{self, Refused};
use super::body::Octets;
use super::service::{Service, header, now};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// After so long a silence a comment says that the connection is alive.
const ALIVE: Duration = Duration::from_secs(15);
/// Chunks that are read at once.
const AT_ONCE: u32 = 64;

/// Whether a request asks for events.
pub(super) fn wanted(headers: &HeaderMap) -> bool {
    header(headers, &ACCEPT).is_some_and(|accept| {
        accept
            .split(',')
            .any(|each| each.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("text/event-stream"))
    })
}

/// The first index wanted: behind the last event that was seen, else that of the query.
fn first(parts: &Parts) -> Result<u32, Error> {
    let wrong = || Error::new(Code::Malformed, "Last-Event-ID is no index");
    let from = match header(&parts.headers, &LAST_EVENT_ID) {
        Some(last) if !last.bytes().all(|octet| octet.is_ascii_digit()) => return Err(wrong()),
        Some(last) => last.parse::<u64>().ok().and_then(|last| last.checked_add(1)).ok_or_else(wrong)?,
        None => Query::decode(parts.uri.query())?.from,
    };
    Ok(u32::try_from(from).unwrap_or(u32::MAX))
}

/// Answers with events; with 204 where nothing more will come, so that a browser does not ask again.
pub(super) async fn respond(
    service: &Arc<Service>,
    id: JobId,
    key: Option<&str>,
    parts: &Parts,
) -> Result<Response<Octets>, Refused> {
    let from = first(parts)?;
    let job = service.job(id).await?;
    job.check_reader(now(), key)?;
    if job.done().is_some_and(|done| from > done.index) {
        return Ok(answer::empty(StatusCode::NO_CONTENT));
    }
    let (pieces, body) = mpsc::channel(4);
    let (service, key) = (Arc::clone(service), key.map(str::to_owned));
    tokio::spawn(async move {
        if let Err(refused) = follow(&service, id, key.as_deref(), from, &pieces).await {
            tracing::debug!(%id, ?refused, "events have ended early");
        }
    });
    let mut response = Response::new(Octets::Stream(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Writes events until the job or the connection ends.
async fn follow(
    service: &Service,
    id: JobId,
    key: Option<&str>,
    mut from: u32,
    pieces: &mpsc::Sender<Bytes>,
) -> Result<(), Refused> {
    let (_live, mut news) = service.news(id);
    loop {
        news.mark_unchanged();
        let (job, now) = (service.job(id).await?, now());
        let (end, finished) = job.handle_follow(now, key, from)?;
        while from < end {
            let indices: Vec<u32> = (from..end.min(from.saturating_add(AT_ONCE))).collect();
            let chunks = service.store.read(id, indices.clone()).await?;
            let whole = chunks.len() == indices.len();
            let events: Vec<u8> = indices.iter().zip(&chunks).flat_map(|(index, chunk)| event(*index, chunk)).collect();
            if pieces.send(Bytes::from(events)).await.is_err() || !whole {
                return Ok(());
            }
            from = from.saturating_add(AT_ONCE).min(end);
        }
        if finished {
            return Ok(());
        }
        let waited = tokio::select! {
            waited = timeout(ALIVE.min(job.time_left(now)), news.changed()) => waited,
            () = pieces.closed() => return Ok(()),
        };
        if waited.is_err() && pieces.send(Bytes::from_static(b":\n\n")).await.is_err() {
            return Ok(());
        }
    }
}

/// JSON as it is stored has no line break.
fn event(index: u32, chunk: &[u8]) -> Vec<u8> {
    [format!("id: {index}\ndata: ").as_bytes(), chunk, b"\n\n"].concat()
}
