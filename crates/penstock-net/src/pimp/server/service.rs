//! What is answered to a request, whatever it came over.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use hyper::body::Body;
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, IF_MATCH};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use penstock_pimp::{
    Answer, Batch, Code, Creation, Digest, Envelope, Error, Job, JobId, Limits, Now, Query, Settings, bearer,
    poll_body, verify_jwt,
};
use penstock_wire::Limit;
use tokio::sync::{Mutex as Turn, Semaphore, watch};
use tokio::time::{sleep, timeout};

use super::answer::{self, Refused};
use super::body::{self, Octets};
use super::metrics::Counters;
use super::rates::Rates;
use super::{events, packing, raw};
use crate::pimp::{Change, Store};
use crate::runtime::spawn_blocking;

/// Wrong keys that an address may try at once, and how many more a second.
const GUESSES: (u32, f64) = (50, 5.0);
/// Requests with a key at once, and how many more a second.
const REQUESTS: (u32, f64) = (2_000, 1_000.0);
/// How often what has expired is deleted (decision 13).
const SWEEP: Duration = Duration::from_secs(2);
/// Bodies of so many times the largest one may be in memory.
const BODIES: usize = 4;
/// The unit of that budget.
const UNIT: u64 = 1 << 10;
/// The body of a PUT.
const SETTINGS: Limit = Limit::new("the length of the body", 16 << 10);
/// Bodies above it are read on a thread of the pool.
const HERE: usize = 256 << 10;

/// What a buffer is.
pub struct ServiceConfig {
    /// Where jobs are kept.
    pub store: Arc<dyn Store>,
    /// How large a job may be.
    pub limits: Limits,
    /// What signs the tokens that make jobs; without it there are none.
    pub jwt_secret: Option<Vec<u8>>,
    /// The origin whose pages may ask, or `*`; without it none may (decision 12).
    pub allow_origin: Option<HeaderValue>,
}

/// A job that somebody is at.
#[derive(Debug)]
pub(super) struct Live {
    /// One change at a time.
    turn: Turn<()>,
    /// Grows with each change.
    news: watch::Sender<u64>,
}

/// A buffer, but for its sockets.
pub struct Service {
    pub(super) store: Arc<dyn Store>,
    limits: Limits,
    jwt_secret: Option<Vec<u8>>,
    allow_origin: Option<HeaderValue>,
    pub(super) counters: Counters,
    live: Mutex<HashMap<JobId, Arc<Live>>>,
    guesses: Mutex<Rates<IpAddr>>,
    requests: Mutex<Rates<Digest>>,
    bodies: Semaphore,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("store", &self.store).finish_non_exhaustive()
    }
}

/// Both clocks.
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

type Answered = std::result::Result<Response<Octets>, Refused>;

impl Service {
    /// A buffer over a store.
    pub fn new(config: ServiceConfig) -> Arc<Self> {
        let ServiceConfig { store, limits, jwt_secret, allow_origin } = config;
        let units = usize::try_from(limits.body / UNIT).unwrap_or(usize::MAX);
        let budget = units.saturating_mul(BODIES).min(Semaphore::MAX_PERMITS);
        Arc::new(Self {
            store,
            limits,
            jwt_secret,
            allow_origin,
            counters: Counters::default(),
            live: Mutex::default(),
            guesses: Mutex::new(Rates::new(GUESSES.0, GUESSES.1)),
            requests: Mutex::new(Rates::new(REQUESTS.0, REQUESTS.1)),
            bodies: Semaphore::new(budget),
        })
    }

    /// Deletes what has expired, again and again.
    pub async fn keep_clean(self: Arc<Self>) {
        loop {
            sleep(SWEEP).await;
            if let Err(error) = self.store.sweep(now().unix_millis()).await {
                tracing::error!(%error, "what has expired could not be deleted");
            }
            locked(&self.live).retain(|_, live| Arc::strong_count(live) > 1);
        }
    }

    pub(super) const fn limits(&self) -> &Limits {
        &self.limits
    }

    fn live(&self, id: JobId) -> Arc<Live> {
        let fresh = || Arc::new(Live { turn: Turn::new(()), news: watch::Sender::new(0) });
        Arc::clone(locked(&self.live).entry(id).or_insert_with(fresh))
    }

    /// What will be different when the job is.
    pub(super) fn news(&self, id: JobId) -> (Arc<Live>, watch::Receiver<u64>) {
        let live = self.live(id);
        let news = live.news.subscribe();
        (live, news)
    }

    /// A job that is known.
    pub(super) async fn job(&self, id: JobId) -> std::result::Result<Job, Refused> {
        self.known(id).await?.ok_or_else(|| Error::not_found().into())
    }

    async fn known(&self, id: JobId) -> crate::Result<Option<Job>> {
        let job = self.store.load(id).await?;
        Ok(job.filter(|job| now().unix_millis() < job.forgotten_at()))
    }

    async fn commit(&self, id: JobId, live: &Live, change: Change) -> crate::Result<()> {
        self.store.commit(id, change).await?;
        live.news.send_modify(|number| *number += 1);
        Ok(())
    }

    /// Answers a request of somebody at this address.
    pub async fn respond<B>(self: &Arc<Self>, request: Request<B>, peer: IpAddr) -> Response<Octets>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let (parts, body) = request.into_parts();
        let mut response = if parts.method == Method::OPTIONS {
            answer::empty(StatusCode::NO_CONTENT)
        } else {
            let result = self.answer(&parts, body, peer).await;
            if matches!(&result, Err(Refused::Pimp(error)) if error.code() == Code::Unauthorized) {
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
            None if parts.method == Method::PUT => self.create(id, key, parts, body).await,
            None if parts.method == Method::DELETE => self.delete(id, key).await,
            None if reads && events::wanted(&parts.headers) => events::respond(self, id, key, parts).await,
            None if reads => self.poll(id, key, parts).await,
            None => Err(Refused::Method("GET, HEAD, PUT, DELETE")),
            Some("chunks") if parts.method == Method::POST => self.write(id, key, parts, body).await,
            Some("cancel") if parts.method == Method::POST => self.cancel(id, key).await,
            Some("chunks" | "cancel") => Err(Refused::Method("POST")),
            Some("status") if reads => self.status(id, key).await,
            Some("raw") if reads => raw::respond(self, id, key, parts).await,
            Some("status" | "raw") => Err(Refused::Method("GET, HEAD")),
            Some(_) => Err(Refused::NoPath),
        }
    }

    /// Who guesses keys waits, and so does who asks without end.
    fn check_rates(&self, key: Option<&str>, peer: IpAddr) -> std::result::Result<(), Refused> {
        let now = Instant::now();
        let too_often = |wait: Duration| Refused::TooOften(wait.as_secs() + 1);
        locked(&self.guesses).check(now, &peer).map_err(too_often)?;
        let Some(key) = key.map(|key| Digest::of(key.as_bytes())) else { return Ok(()) };
        let mut requests = locked(&self.requests);
        requests.check(now, &key).map_err(too_often)?;
        requests.take(now, key);
        Ok(())
    }

    /// Reads a body whose length, where it is told, is looked at before.
    async fn body<B>(&self, parts: &Parts, body: B, most: Limit) -> std::result::Result<Vec<u8>, Refused>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let told = header(&parts.headers, &CONTENT_LENGTH).and_then(|text| text.parse().ok());
        let length = told.unwrap_or(most.value);
        most.check(length).map_err(Error::from)?;
        let units = u32::try_from(length.div_ceil(UNIT)).unwrap_or(u32::MAX);
        // Whoever comes first is read first: the others wait before they cost memory.
        let Ok(_room) = self.bodies.acquire_many(units).await else { return Err(Refused::TooOften(1)) };
        Ok(body::read(body, most).await?)
    }

    async fn create<B>(&self, id: JobId, key: Option<&str>, parts: &Parts, body: B) -> Answered
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let writer = key.ok_or_else(Error::unauthorized)?;
        let body = self.body(parts, body, SETTINGS).await?;
        if !body.is_empty() {
            Batch::check_content_type(header(&parts.headers, &CONTENT_TYPE))?;
        }
        let creation = Creation::decode(&body, &self.limits)?;
        let if_match = header(&parts.headers, &IF_MATCH);
        if if_match.is_none() && creation.write_key.is_some() {
            return Err(Error::new(Code::Malformed, "writeKey without If-Match").into());
        }
        let live = self.live(id);
        let _turn = live.turn.lock().await;
        let now = now();
        let (status, job, key) = match (self.known(id).await?, if_match) {
            (None, Some(_)) => return Err(Error::not_found().into()),
            (None, None) => {
                let settings = Settings { ttl_ms: creation.ttl_ms, read_key: creation.read_key.as_deref() };
                let job = Job::create(now, writer, settings, &self.limits)?;
                self.commit(id, &live, Change { job: Some(job.clone()), chunks: Vec::new() }).await?;
                (StatusCode::CREATED, job, writer)
            }
            (Some(mut job), Some(if_match)) => {
                job.handle_take_over(now, key, if_match, creation.write_key.as_deref())?;
                self.commit(id, &live, Change { job: Some(job.clone()), chunks: Vec::new() }).await?;
                (StatusCode::OK, job, creation.write_key.as_deref().unwrap_or(writer))
            }
            (Some(job), None) => {
                job.handle_create(now, key)?;
                (StatusCode::OK, job, writer)
            }
        };
        Ok(answer::tagged(answer::json(status, &job.handle_status(now, Some(key))?), &job.etag()))
    }

    /// The job of a first write that makes it, by a signed token (decision 1).
    fn created_by_token(&self, id: JobId, key: &str, now: Now) -> std::result::Result<Job, Refused> {
        let secret = self.jwt_secret.as_deref().ok_or_else(Error::not_found)?;
        verify_jwt(key, secret, id, now).map_err(|_| Error::not_found())?;
        Ok(Job::create(now, key, Settings::default(), &self.limits)?)
    }

    async fn write<B>(&self, id: JobId, key: Option<&str>, parts: &Parts, body: B) -> Answered
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let writer = key.ok_or_else(Error::unauthorized)?;
        // Before the body is read: who has no key costs nothing.
        match self.known(id).await? {
            Some(job) => job.check_writer(now(), key)?,
            None => drop(self.created_by_token(id, writer, now())?),
        }
        Batch::check_content_type(header(&parts.headers, &CONTENT_TYPE))?;
        let body = self.body(parts, body, self.limits.body()).await?;
        let batch = self.decode(id, body).await?;
        let live = self.live(id);
        let _turn = live.turn.lock().await;
        let now = now();
        let mut job = match self.known(id).await? {
            Some(job) => job,
            None => self.created_by_token(id, writer, now)?,
        };
        let written = job.handle_write(now, key, &batch, &self.limits)?;
        let mut chunks = Vec::with_capacity(written.new.len());
        for envelope in written.new.iter().filter_map(|place| batch.envelopes().get(*place)) {
            chunks.push((envelope.index, encoded(envelope)?));
        }
        let (count, duplicates) = (chunks.len() as u64, written.duplicates as u64);
        self.counters.wrote(count, duplicates);
        if count > 0 {
            self.commit(id, &live, Change { job: Some(job), chunks }).await?;
        }
        let answer = Answer { written: count, duplicates, cancelled: written.cancelled };
        Ok(answer::json(StatusCode::from_u16(answer.status()).unwrap_or(StatusCode::OK), &answer))
    }

    /// Reads a write; a large one on a thread of the pool.
    async fn decode(&self, id: JobId, body: Vec<u8>) -> std::result::Result<Batch<'static>, Refused> {
        if body.len() <= HERE {
            return Ok(Batch::decode(&body, id, &self.limits)?.into_owned());
        }
        let limits = self.limits.clone();
        let decoding = spawn_blocking(move || Batch::decode(&body, id, &limits).map(Batch::into_owned))?;
        let ended = |_| crate::Error::Misuse("the process ends".to_owned());
        Ok(decoding.await.map_err(ended)??)
    }

    async fn poll(&self, id: JobId, key: Option<&str>, parts: &Parts) -> Answered {
        let query = Query::decode(parts.uri.query())?;
        let until = Instant::now() + query.wait;
        let (_live, mut news) = self.news(id);
        loop {
            news.mark_unchanged();
            let (job, now) = (self.job(id).await?, now());
            let found = job.handle_poll(now, key, query.from, query.limit)?;
            let left = until.saturating_duration_since(now.instant);
            if !found.indices.is_empty() || found.finished || left.is_zero() {
                let chunks = self.store.read(id, found.indices).await?;
                return Ok(answer::octets(StatusCode::OK, poll_body(chunks, found.next_index)));
            }
            // What ends the wait is looked at again: a change, the job's end, or nothing.
            let _ = timeout(left.min(job.time_left(now)), news.changed()).await;
        }
    }

    async fn status(&self, id: JobId, key: Option<&str>) -> Answered {
        let job = self.job(id).await?;
        Ok(answer::tagged(answer::json(StatusCode::OK, &job.handle_status(now(), key)?), &job.etag()))
    }

    async fn cancel(&self, id: JobId, key: Option<&str>) -> Answered {
        key.ok_or_else(Error::unauthorized)?;
        let live = self.live(id);
        let _turn = live.turn.lock().await;
        let mut job = self.job(id).await?;
        let cancelled = job.handle_cancel(now(), key)?;
        self.commit(id, &live, Change { job: Some(job), chunks: Vec::new() }).await?;
        Ok(answer::json(StatusCode::OK, &serde_json::json!({"cancelled": cancelled})))
    }

    async fn delete(&self, id: JobId, key: Option<&str>) -> Answered {
        key.ok_or_else(Error::unauthorized)?;
        let live = self.live(id);
        let _turn = live.turn.lock().await;
        self.job(id).await?.handle_delete(now(), key)?;
        self.commit(id, &live, Change { job: None, chunks: Vec::new() }).await?;
        Ok(answer::empty(StatusCode::NO_CONTENT))
    }
}

fn encoded(envelope: &Envelope<'_>) -> std::result::Result<Bytes, Error> {
    let mut octets = Vec::with_capacity(envelope.value.len() + 160);
    envelope.encode(&mut octets)?;
    Ok(Bytes::from(octets))
}

/// Lets the pages of an origin ask, with keys, and read what they need.
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
