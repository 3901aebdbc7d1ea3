//! The responses to requests, independent of the connection.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::Body;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode, Uri};
use penstock_io::admission;
use penstock_io::metrics::{Page, Source};
use penstock_pimp::{Error, JobId, Limits, Malformed, Query, bearer, poll_body};
use tokio::time::{sleep, timeout};

use super::body::ResponseBody;
use super::callers::Callers;
use super::changes::Changes;
use super::chunk_stream::{ChunkSource, Chunks, PollPieces};
use super::jobs::Jobs;
use super::metrics::Counters;
use super::payload::Payloads;
use super::refused::Refused;
use super::request::{ServerStop, caller, header};
use super::{answer, chunk_stream, compression, events, page, raw};
use crate::clock::now;
use crate::{Misuse, Store};

/// How often expired jobs are deleted (decision 13).
const SWEEP: Duration = Duration::from_secs(2);
/// The memory for responses in bytes; those of up to 16 KiB are not counted.
const ANSWERS: u64 = 256 << 20;
const SMALL: usize = 16 << 10;

/// The configuration of a buffer.
pub struct ServiceConfig {
    /// Where jobs are stored.
    pub store: Arc<dyn Store>,
    /// The limits of a job.
    pub limits: Limits,
    /// The secret of the tokens that create jobs; without it, no tokens are accepted.
    pub jwt_secret: Option<Vec<u8>>,
    /// The origin whose pages may send requests, or `*`; without it none may (decision 12).
    pub allow_origin: Option<HeaderValue>,
}

impl ServiceConfig {
    /// Check the configuration. Fails with [`Misuse`] if nothing could be
    /// written, anyone could sign tokens, or no page of the origin could send a request.
    pub fn check(&self) -> crate::Result<()> {
        let Limits { job, chunks, value, ttl, .. } = self.limits;
        for (name, limit) in [("job", job), ("chunks", chunks.into()), ("value", value), ("ttl_ms", ttl)] {
            if limit == 0 {
                return Err(Misuse::NoLimit { name }.into());
            }
        }
        if self.jwt_secret.as_ref().is_some_and(Vec::is_empty) {
            return Err(Misuse::EmptySecret.into());
        }
        let origin = self.allow_origin.as_ref().filter(|origin| *origin != "*");
        if let Some(origin) = origin.filter(|origin| !is_origin(origin)) {
            return Err(Misuse::Origin { origin: origin.clone() }.into());
        }
        Ok(())
    }
}

/// Return whether a browser could send this text as an Origin (RFC 6454, section 6.2).
fn is_origin(text: &HeaderValue) -> bool {
    let Ok(url) = Uri::try_from(text.as_bytes()) else { return false };
    let usual = match url.scheme_str() {
        Some("http") => 80,
        Some("https") => 443,
        Some(_) | None => return false,
    };
    let Some(authority) = url.authority().filter(|authority| authority.port_u16() != Some(usual)) else { return false };
    let said = format!("{}://{authority}", url.scheme_str().unwrap_or_default()).to_ascii_lowercase();
    !said.contains('@') && said.as_bytes() == text.as_bytes()
}

/// A buffer without its sockets.
pub struct Service {
    pub(super) jobs: Arc<Jobs>,
    pub(super) chunks: Arc<ChunkSource>,
    payloads: Payloads,
    pub(super) changes: Changes,
    callers: Arc<Callers>,
    allow_origin: Option<HeaderValue>,
    counters: Arc<Counters>,
    /// Counters of connections.
    pub(super) admission: Arc<admission::Counters>,
    /// Whether the buffer was told to stop.
    stopping: AtomicBool,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("store", &self.jobs.store).finish_non_exhaustive()
    }
}

type Answered = std::result::Result<Response<ResponseBody>, Refused>;

impl Service {
    /// Make a buffer over a store.
    pub fn new(config: ServiceConfig) -> Arc<Self> {
        let ServiceConfig { store, limits, jwt_secret, allow_origin } = config;
        let jobs = Jobs::new(store, limits, jwt_secret);
        let chunks = ChunkSource::new(Arc::clone(&jobs), ANSWERS);
        let (callers, counters) = (Arc::<Callers>::default(), Arc::<Counters>::default());
        Arc::new(Self {
            payloads: Payloads::new(Arc::clone(&chunks)),
            chunks,
            changes: Changes::new(Arc::clone(&jobs), Arc::clone(&callers), Arc::clone(&counters)),
            jobs,
            callers,
            allow_origin,
            counters,
            admission: Arc::default(),
            stopping: AtomicBool::new(false),
        })
    }

    /// Delete expired jobs periodically, and notify waiting requests of changes by other processes.
    pub(super) async fn keep_clean(self: Arc<Self>) {
        let cleaning = async {
            loop {
                sleep(SWEEP).await;
                self.jobs.sweep().await;
                self.payloads.sweep(now().unix_millis());
            }
        };
        tokio::join!(cleaning, self.jobs.follow_store());
    }

    /// Report as unhealthy from now on.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Respond to a request from this address.
    pub async fn respond<B>(self: &Arc<Self>, request: Request<B>, peer: IpAddr) -> Response<ResponseBody>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let (parts, body) = request.into_parts();
        let peer = caller(&parts.headers, peer);
        let mut response = if parts.method == Method::OPTIONS {
            answer::empty(StatusCode::NO_CONTENT)
        } else {
            let result = self.answer(&parts, body, peer).await;
            if result.as_ref().is_err_and(Refused::is_guess) {
                self.callers.count_guess(peer);
            }
            let response = result.unwrap_or_else(|refused| refused.response());
            compression::packed(&parts.headers, response).await
        };
        self.counters.count(response.status());
        if let Some(origin) = &self.allow_origin {
            cors(response.headers_mut(), origin, parts.method == Method::OPTIONS);
        }
        response
    }

    async fn answer<B>(self: &Arc<Self>, parts: &Parts, body: B, peer: IpAddr) -> Answered
    where
        B: Body<Data = Bytes> + Unpin,
    {
        if let Some(answer) = page::respond(parts, self.jobs.limits()) {
            return answer;
        }
        let mut path = parts.uri.path().split('/').skip(1);
        let (Some("pimp"), Some(id)) = (path.next(), path.next()) else { return Err(Refused::NoPath) };
        let (what, beyond) = (path.next(), path.next());
        if beyond.is_some() {
            return Err(Refused::NoPath);
        }
        let key = bearer(header(&parts.headers, &AUTHORIZATION));
        self.callers.check(key, peer)?;
        let id = JobId::parse(id).ok_or_else(|| Error::from(Malformed::JobId))?;
        let reads = parts.method == Method::GET || parts.method == Method::HEAD;
        match what {
            None if parts.method == Method::PUT => self.changes.create(id, key, parts, body, peer).await,
            None if parts.method == Method::DELETE => self.changes.delete(id, key).await,
            None if reads && events::wanted(&parts.headers) => {
                events::respond(&self.chunks, id, key, parts, peer).await
            }
            None if reads => self.poll(id, key, parts, peer).await,
            None => Err(Refused::Method("GET, HEAD, PUT, DELETE")),
            Some("chunks") if parts.method == Method::POST => self.changes.write(id, key, parts, body, peer).await,
            Some("cancel") if parts.method == Method::POST => self.changes.cancel(id, key).await,
            Some("chunks" | "cancel") => Err(Refused::Method("POST")),
            Some("status") if reads => self.status(id, key).await,
            Some("raw") if reads => raw::respond(&self.jobs, &self.payloads, id, key, parts, peer).await,
            Some("status" | "raw") => Err(Refused::Method("GET, HEAD")),
            Some(_) => Err(Refused::NoPath),
        }
    }

    async fn poll(self: &Arc<Self>, id: JobId, key: Option<&str>, parts: &Parts, peer: IpAddr) -> Answered {
        let query = Query::decode(parts.uri.query())?;
        let until = Instant::now() + query.wait;
        let (_notifier, mut news) = self.jobs.news(id);
        let mut stop = ServerStop::of(parts);
        let mut stopped = false;
        loop {
            news.mark_unchanged();
            let (job, now) = (self.jobs.job(id, key).await?, now());
            let found = job.handle_poll(now, key, query.from, query.limit)?;
            let left = until.saturating_duration_since(now.instant);
            if !found.indices.is_empty() || found.finished || left.is_zero() || stopped {
                let chunks = self.chunks.chunks(id, peer, found.indices);
                return found_chunks(chunks, found.next_index, &parts.headers).await;
            }
            // A change, the job's end, or the timeout: each iteration checks again.
            tokio::select! {
                _ = timeout(left.min(job.time_left(now)), news.changed()) => {}
                () = stop.wait() => stopped = true,
            }
        }
    }

    async fn status(&self, id: JobId, key: Option<&str>) -> Answered {
        let job = self.jobs.job(id, key).await?;
        Ok(answer::tagged(answer::json(StatusCode::OK, &job.handle_status(now(), key)?), &job.etag()))
    }
}

impl Source for Service {
    fn write(&self, page: &mut Page<'_>) -> fmt::Result {
        self.counters.write(page)?;
        self.admission.write(page, "penstock_pimp")?;
        let usage = self.jobs.store.usage();
        let damaged = "Stretches of the store that were found damaged at the start.";
        page.counter("penstock_pimp_damaged", damaged, usage.damaged)?;
        let failing = "1 while the store takes no writes, as /healthz says then.";
        page.gauge("penstock_pimp_store_failing", failing, u64::from(self.jobs.store.failing().is_some()))?;
        page.gauge("penstock_pimp_jobs", "Known jobs, including expired ones.", usage.jobs)?;
        page.gauge("penstock_pimp_chunk_bytes", "Bytes of chunks stored.", usage.chunk_bytes)?;
        page.gauge("penstock_pimp_disk_bytes", "Bytes on the disk.", usage.disk_bytes)
    }

    fn is_healthy(&self) -> bool {
        !self.is_stopping() && self.jobs.store.failing().is_none()
    }

    fn failure(&self) -> Option<String> {
        let why = self.jobs.store.failing().filter(|_| !self.is_stopping())?;
        Some(format!("the store takes no writes: {why}"))
    }
}

/// Respond with chunks: immediately those that fit into a piece, and the rest as the client reads.
async fn found_chunks(mut chunks: Chunks, next_index: u64, asked: &HeaderMap) -> Answered {
    let Some((first, permit)) = chunks.next().await? else {
        return Ok(answer::bytes(StatusCode::OK, poll_body([""; 0], next_index)));
    };
    if !chunks.are_read() {
        let packer = compression::wanted(asked).then(chunk_stream::packer);
        let packed = packer.is_some();
        let pieces = PollPieces { chunks, next_index, first: Some((first, permit)), packer };
        return Ok(compression::tagged(answer::pieces(pieces.stream()), packed));
    }
    let body = poll_body(first, next_index);
    let small = body.len() <= SMALL;
    let mut response = answer::bytes(StatusCode::OK, Vec::new());
    *response.body_mut() = ResponseBody::Whole(if small { Bytes::from(body) } else { permit.holds(body) });
    Ok(response)
}

/// Allow the pages of an origin to send requests with keys, and to read the headers that they need.
fn cors(headers: &mut HeaderMap, origin: &HeaderValue, before: bool) {
    let mut set = |name: &'static str, value: &'static str| {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    };
    set("access-control-expose-headers", "ETag, Retry-After, Content-Range, Accept-Ranges");
    if before {
        set("access-control-allow-methods", "GET, HEAD, PUT, POST, DELETE");
        set(
            "access-control-allow-headers",
            "Authorization, Content-Type, If-Match, If-None-Match, Range, Last-Event-ID",
        );
        set("access-control-max-age", "600");
    }
    set("vary", "origin, accept-encoding");
    headers.insert("access-control-allow-origin", origin.clone());
}
