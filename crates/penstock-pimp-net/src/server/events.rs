//! Server-sent events: the chunks in order, as they arrive (decision 10).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{BoxStream, unfold};
use hyper::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use penstock_pimp::{Error, JobId, Malformed, Query};
use tokio::sync::watch;
use tokio::time::timeout;

use super::answer;
use super::body::{Broken, ResponseBody};
use super::chunk_stream::ChunkSource;
use super::jobs::JobNotifier;
use super::refused::Refused;
use super::request::{ServerStop, accepts, header};
use crate::clock::now;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// The silence after which a comment is sent, to show that the connection is alive.
const ALIVE: Duration = Duration::from_secs(15);

/// Return whether a request asks for events.
pub(super) fn wanted(headers: &HeaderMap) -> bool {
    header(headers, &ACCEPT).is_some_and(|accept| accepts(accept, "text/event-stream"))
}

/// Return the first index wanted: after the last event that the client has seen, otherwise the one in the query.
fn first(parts: &Parts) -> Result<u32, Error> {
    let wrong = || Error::from(Malformed::LastEventId);
    let from = match header(&parts.headers, &LAST_EVENT_ID) {
        Some(last) if !last.bytes().all(|byte| byte.is_ascii_digit()) => return Err(wrong()),
        Some(last) => last.parse::<u64>().ok().and_then(|last| last.checked_add(1)).ok_or_else(wrong)?,
        None => Query::decode(parts.uri.query())?.from,
    };
    Ok(u32::try_from(from).unwrap_or(u32::MAX))
}

/// Respond with events; with 204 if nothing more will come, so that a browser does not reconnect.
pub(super) async fn respond(
    source: &Arc<ChunkSource>,
    id: JobId,
    key: Option<&str>,
    parts: &Parts,
    peer: IpAddr,
) -> Result<Response<ResponseBody>, Refused> {
    let from = first(parts)?;
    let job = source.jobs.job(id, key).await?;
    job.check_reader(now(), key)?;
    if job.done().is_some_and(|done| from > done.index) {
        return Ok(answer::empty(StatusCode::NO_CONTENT));
    }
    let (notifier, news) = source.jobs.news(id);
    let (source, key) = (Arc::clone(source), key.map(str::to_owned));
    let stop = ServerStop::of(parts);
    let events = EventStream { source, id, key, peer, from, ended: false, stop, news, _notifier: notifier };
    let mut response = Response::new(ResponseBody::Stream { pieces: events.stream(), left: None });
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// The events of a job, for a request that follows it.
struct EventStream {
    source: Arc<ChunkSource>,
    id: JobId,
    key: Option<String>,
    peer: IpAddr,
    /// The next index.
    from: u32,
    /// Whether the error was sent.
    ended: bool,
    stop: ServerStop,
    news: watch::Receiver<u64>,
    _notifier: Arc<JobNotifier>,
}

impl EventStream {
    /// Return the events until the job or the server ends. A client that reconnects continues after the last event.
    fn stream(self) -> BoxStream<'static, Result<Bytes, Broken>> {
        unfold(self, |mut stream| async move {
            match stream.next().await {
                Ok(events) => Some((Ok(events?), stream)),
                Err(refused) => {
                    tracing::debug!(id = %stream.id, ?refused, "events have ended early");
                    None
                }
            }
        })
        .boxed()
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Refused> {
        loop {
            self.news.mark_unchanged();
            let (job, now) = (self.source.jobs.job(self.id, self.key.as_deref()).await?, now());
            let (end, finished) = job.handle_follow(now, self.key.as_deref(), self.from)?;
            if self.from < end {
                return self.read(self.from, end).await.map(Some);
            }
            if finished || self.ended {
                return Ok(None);
            }
            if let Some(failed) = job.done().filter(|done| done.failed) {
                // Missing chunks before the error will not come, so the client gets the error now, as a poll does.
                self.ended = true;
                return self.read(failed.index, failed.index.saturating_add(1)).await.map(Some);
            }
            tokio::select! {
                waited = timeout(ALIVE.min(job.time_left(now)), self.news.changed()) => {
                    if waited.is_err() {
                        return Ok(Some(Bytes::from_static(b":\n\n")));
                    }
                }
                () = self.stop.wait() => return Ok(None),
            }
        }
    }

    /// Return the events of these indices, as many as fit into a piece.
    async fn read(&mut self, from: u32, end: u32) -> Result<Bytes, Refused> {
        let mut chunks = self.source.chunks(self.id, self.peer, (from..end).collect());
        let (read, permit) = chunks.next().await?.ok_or(Refused::Busy)?;
        let events = (from..).zip(&read).flat_map(|(index, chunk)| event(index, chunk)).collect();
        self.from = from.saturating_add(u32::try_from(read.len()).unwrap_or(u32::MAX));
        drop(read);
        Ok(permit.holds(events))
    }
}

/// Format an event. Stored JSON contains no line break.
fn event(index: u32, chunk: &[u8]) -> Vec<u8> {
    [format!("id: {index}\ndata: ").as_bytes(), chunk, b"\n\n"].concat()
}
