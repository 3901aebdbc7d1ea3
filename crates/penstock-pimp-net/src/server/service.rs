//! The responses to requests, whatever the connection.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use hyper::body::Body;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode, Uri};
use penstock_io::DriverError as _;
use penstock_io::admission::{self, network};
use penstock_io::http::Stopping;
use penstock_io::memory::MemoryBudget;
use penstock_pimp::{Digest, Error, Job, JobId, Limits, Now, Query, bearer, poll_body};
use tokio::sync::{Mutex as Turn, Semaphore, watch};
use tokio::time::{sleep, timeout};

use super::answer::{self, Refused};
use super::body::ResponseBody;
use super::metrics::Counters;
use super::payload::{Known, Name, Payload, READING};
use super::pieces::{Chunks, PIECE, PollPieces, largest};
use super::rates::Rates;
use super::{events, packing, page, pieces, raw};
use crate::Store;

/// Wrong keys that an address may try in a burst, and how many more per second.
const GUESSES: (u32, f64) = (50, 5.0);
/// Requests with a key in a burst, and how many more per second.
const REQUESTS: (u32, f64) = (2_000, 1_000.0);
/// How often expired jobs are deleted (decision 13).
const SWEEP: Duration = Duration::from_secs(2);
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// The memory for bodies, as a multiple of the largest body.
const BODIES: u64 = 4;
/// The memory for responses in bytes; responses and bodies of up to 16 KiB are not counted.
const ANSWERS: u64 = 256 << 20;
const SMALL: usize = 16 << 10;

/// The configuration of a buffer.
pub struct ServiceConfig {
    /// Where jobs are stored.
    pub store: Arc<dyn Store>,
    /// The limits of a job.
    pub limits: Limits,
    /// The secret of the tokens that create jobs; without it there are no such tokens.
    pub jwt_secret: Option<Vec<u8>>,
    /// The origin whose pages may send requests, or `*`; without it none may (decision 12).
    pub allow_origin: Option<HeaderValue>,
}

impl ServiceConfig {
    /// Fails with [`Misuse`](crate::Error::misuse) where nothing could be written, anyone could sign tokens, or no page
    /// of the origin could send a request.
    pub fn check(&self) -> crate::Result<()> {
        let Limits { job, chunks, value, ttl, .. } = self.limits;
        for (name, limit) in [("job", job), ("chunks", chunks.into()), ("value", value), ("ttl_ms", ttl)] {
            if limit == 0 {
                return Err(crate::Error::misuse(format!("limits: {name} is 0, so nothing could be written")));
            }
        }
        if self.jwt_secret.as_ref().is_some_and(Vec::is_empty) {
            return Err(crate::Error::misuse("jwt_secret is empty: whoever likes could sign with it".to_owned()));
        }
        let origin = self.allow_origin.as_ref().filter(|origin| *origin != "*");
        if let Some(origin) = origin.filter(|origin| !is_origin(origin)) {
            let why =
                "browsers say scheme://host, with the port where it is not the scheme's, in lower case, without a path";
            return Err(crate::Error::misuse(format!("allow_origin={origin:?} is no origin: {why}")));
        }
        Ok(())
    }
}

/// Return whether a browser could send it as an Origin (RFC 6454, section 6.2).
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

/// A job that requests are waiting for or changing.
#[derive(Debug)]
pub(super) struct Live {
    /// Lets one request of this process change the job at a time.
    pub(super) turn: Arc<Turn<()>>,
    /// Grows with each change.
    news: watch::Sender<u64>,
}

impl Live {
    /// Notify waiting requests that the job has changed.
    pub(super) fn tell(&self) {
        self.news.send_modify(|number| *number += 1);
    }
}

/// A buffer without its sockets.
pub struct Service {
    pub(super) store: Arc<dyn Store>,
    limits: Limits,
    pub(super) jwt_secret: Option<Vec<u8>>,
    allow_origin: Option<HeaderValue>,
    pub(super) counters: Counters,
    /// Counters of connections.
    pub(super) admission: Arc<admission::Counters>,
    live: Mutex<HashMap<JobId, Arc<Live>>>,
    guesses: Mutex<Rates<IpAddr>>,
    requests: Mutex<Rates<Digest>>,
    /// The memory of bodies.
    pub(super) bodies: MemoryBudget,
    /// The memory of responses.
    pub(super) answers: MemoryBudget,
    /// Limits the payloads that are read to their end.
    pub(super) reading: Semaphore,
    payloads: Mutex<HashMap<Name, Known>>,
    /// The buffer was told to stop.
    stopping: AtomicBool,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("store", &self.store).finish_non_exhaustive()
    }
}

/// Read both clocks.
pub(super) fn now() -> Now {
    let micros = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
    Now { instant: Instant::now(), unix_micros: u64::try_from(micros).unwrap_or(u64::MAX) }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

type Answered = std::result::Result<Response<ResponseBody>, Refused>;

impl Service {
    /// Make a buffer over a store.
    pub fn new(config: ServiceConfig) -> Arc<Self> {
        let ServiceConfig { store, limits, jwt_secret, allow_origin } = config;
        let most = largest(&limits).max(PIECE).saturating_mul(2);
        let answers = MemoryBudget::new(ANSWERS, most);
        let bodies = MemoryBudget::new(limits.body.saturating_mul(BODIES), limits.body).with_free(SMALL);
        Arc::new(Self {
            store,
            limits,
            jwt_secret,
            allow_origin,
            counters: Counters::default(),
            admission: Arc::default(),
            live: Mutex::default(),
            guesses: Mutex::new(Rates::new(GUESSES.0, GUESSES.1)),
            requests: Mutex::new(Rates::new(REQUESTS.0, REQUESTS.1)),
            bodies,
            answers,
            reading: Semaphore::new(READING),
            payloads: Mutex::default(),
            stopping: AtomicBool::new(false),
        })
    }

    /// Delete expired jobs periodically, and notify waiting requests of changes by other processes.
    pub async fn keep_clean(self: Arc<Self>) {
        let cleaning = async {
            loop {
                sleep(SWEEP).await;
                if let Err(error) = self.store.sweep(now().unix_millis()).await {
                    tracing::error!(%error, "what has expired could not be deleted");
                }
                locked(&self.live).retain(|_, live| Arc::strong_count(live) > 1);
                let now = now().unix_millis();
                locked(&self.payloads).retain(|_, (_, until)| now < *until);
            }
        };
        let telling = async {
            loop {
                let changed = self.store.changed().await;
                let live = locked(&self.live);
                match changed {
                    Some(id) => live.get(&id).into_iter().for_each(|live| live.tell()),
                    None => live.values().for_each(|live| live.tell()),
                }
            }
        };
        tokio::join!(cleaning, telling);
    }

    /// Report as unhealthy from now on.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    pub(super) const fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(super) fn live(&self, id: JobId) -> Arc<Live> {
        let fresh = || Arc::new(Live { turn: Arc::default(), news: watch::Sender::new(0) });
        Arc::clone(locked(&self.live).entry(id).or_insert_with(fresh))
    }

    /// Return a subscription to a job's changes.
    pub(super) fn news(&self, id: JobId) -> (Arc<Live>, watch::Receiver<u64>) {
        let live = self.live(id);
        let news = live.news.subscribe();
        (live, news)
    }

    /// Return how many requests wait for a change of a job.
    #[cfg(test)]
    pub(super) fn waiting(&self, id: JobId) -> usize {
        locked(&self.live).get(&id).map_or(0, |live| live.news.receiver_count())
    }

    /// Return the remembered result of checking a payload.
    pub(super) fn known_payload(&self, name: &Name) -> Option<std::result::Result<Payload, Error>> {
        locked(&self.payloads).get(name).map(|(known, _)| known.clone())
    }

    /// Remember the result of checking a payload; at `most` entries, drop all others.
    pub(super) fn remember_payload(&self, name: Name, known: Known, most: usize) {
        let mut payloads = locked(&self.payloads);
        if payloads.len() >= most {
            payloads.clear();
        }
        payloads.insert(name, known);
    }

    /// Return a known job, with its token renewed if this key is a newer one.
    pub(super) async fn job(&self, id: JobId, key: Option<&str>) -> std::result::Result<Job, Refused> {
        self.known(id, key).await?.ok_or_else(|| Error::NotFound.into())
    }

    pub(super) async fn known(&self, id: JobId, key: Option<&str>) -> crate::Result<Option<Job>> {
        let (job, now) = (self.store.load(id).await?, now());
        let mut job = job.filter(|job| now.unix_millis() < job.forgotten_at());
        if let Some(job) = &mut job {
            self.renew(id, job, key, now);
        }
        Ok(job)
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
                locked(&self.guesses).take(Instant::now(), peer);
            }
            let response = result.unwrap_or_else(|refused| refused.response());
            packing::packed(&parts.headers, response).await
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
        if let Some(answer) = page::respond(parts, &self.limits) {
            return answer;
        }
        let mut path = parts.uri.path().split('/').skip(1);
        let (Some("pimp"), Some(id)) = (path.next(), path.next()) else { return Err(Refused::NoPath) };
        let (what, beyond) = (path.next(), path.next());
        if beyond.is_some() {
            return Err(Refused::NoPath);
        }
        let key = bearer(header(&parts.headers, &AUTHORIZATION));
        self.check_rates(key, peer)?;
        let id = JobId::parse(id)?;
        let reads = parts.method == Method::GET || parts.method == Method::HEAD;
        match what {
            None if parts.method == Method::PUT => self.create(id, key, parts, body, peer).await,
            None if parts.method == Method::DELETE => self.delete(id, key).await,
            None if reads && events::wanted(&parts.headers) => events::respond(self, id, key, parts, peer).await,
            None if reads => self.poll(id, key, parts, peer).await,
            None => Err(Refused::Method("GET, HEAD, PUT, DELETE")),
            Some("chunks") if parts.method == Method::POST => self.write(id, key, parts, body, peer).await,
            Some("cancel") if parts.method == Method::POST => self.cancel(id, key).await,
            Some("chunks" | "cancel") => Err(Refused::Method("POST")),
            Some("status") if reads => self.status(id, key).await,
            Some("raw") if reads => raw::respond(self, id, key, parts, peer).await,
            Some("status" | "raw") => Err(Refused::Method("GET, HEAD")),
            Some(_) => Err(Refused::NoPath),
        }
    }

    /// Limit callers that guess keys, and callers that send too many requests.
    fn check_rates(&self, key: Option<&str>, peer: IpAddr) -> std::result::Result<(), Refused> {
        self.check_guesses(peer)?;
        let Some(key) = key.map(|key| Digest::of(key.as_bytes())) else { return Ok(()) };
        let (now, mut requests) = (Instant::now(), locked(&self.requests));
        requests.check(now, &key).map_err(too_often)?;
        requests.take(now, key);
        Ok(())
    }

    pub(super) fn check_guesses(&self, peer: IpAddr) -> std::result::Result<(), Refused> {
        locked(&self.guesses).check(Instant::now(), &peer).map_err(too_often)
    }

    async fn poll(self: &Arc<Self>, id: JobId, key: Option<&str>, parts: &Parts, peer: IpAddr) -> Answered {
        let query = Query::decode(parts.uri.query())?;
        let until = Instant::now() + query.wait;
        let (_live, mut news) = self.news(id);
        let mut stopping = parts.extensions.get::<Stopping>().cloned();
        let mut stopped = false;
        loop {
            news.mark_unchanged();
            let (job, now) = (self.job(id, key).await?, now());
            let found = job.handle_poll(now, key, query.from, query.limit)?;
            let left = until.saturating_duration_since(now.instant);
            if !found.indices.is_empty() || found.finished || left.is_zero() || stopped {
                let chunks = Chunks { service: Arc::clone(self), id, peer, indices: found.indices, read: 0 };
                return found_chunks(chunks, found.next_index, &parts.headers).await;
            }
            // A change, the job's end, or the timeout: each iteration checks again.
            tokio::select! {
                _ = timeout(left.min(job.time_left(now)), news.changed()) => {}
                () = told(&mut stopping) => stopped = true,
            }
        }
    }

    async fn status(&self, id: JobId, key: Option<&str>) -> Answered {
        let job = self.job(id, key).await?;
        Ok(answer::tagged(answer::json(StatusCode::OK, &job.handle_status(now(), key)?), &job.etag()))
    }
}

/// Respond with chunks: immediately those that fit into a piece, and the rest as the client reads.
async fn found_chunks(mut chunks: Chunks, next_index: u64, asked: &HeaderMap) -> Answered {
    let Some((first, room)) = chunks.next().await? else {
        return Ok(answer::bytes(StatusCode::OK, poll_body([""; 0], next_index)));
    };
    if !chunks.are_read() {
        let packer = packing::wanted(asked).then(pieces::packer);
        let packed = packer.is_some();
        let pieces = PollPieces { chunks, next_index, first: Some((first, room)), packer };
        return Ok(packing::tagged(answer::pieces(pieces.stream()), packed));
    }
    let body = poll_body(first, next_index);
    let small = body.len() <= SMALL;
    let mut response = answer::bytes(StatusCode::OK, Vec::new());
    *response.body_mut() = ResponseBody::Whole(if small { Bytes::from(body) } else { room.holds(body) });
    Ok(response)
}

/// Return the address of the caller. A loopback peer may be a proxy that names its client: the last address is the one
/// that the proxy has seen.
fn caller(headers: &HeaderMap, peer: IpAddr) -> IpAddr {
    let named = headers.get_all(FORWARDED_FOR).iter().next_back().and_then(|value| value.to_str().ok());
    let last = named.and_then(|list| list.rsplit(',').next()?.trim().parse().ok());
    let peer = peer.to_canonical();
    network(last.filter(|_| peer.is_loopback()).unwrap_or(peer))
}

fn too_often(wait: Duration) -> Refused {
    Refused::TooOften(wait.as_secs() + 1)
}

/// Wait until the server stops, if the request came through one.
pub(super) async fn told(stopping: &mut Option<Stopping>) {
    match stopping {
        Some(stopping) => stopping.told().await,
        None => std::future::pending().await,
    }
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
