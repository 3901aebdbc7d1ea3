//! Requests that change a job: create, take over, write, cancel, delete.
//!
//! A decision is repeated if another process has changed the job meanwhile, because buffers may share a store.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Body;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, IF_MATCH};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use penstock_io::DriverError as _;
use penstock_io::http::read_body_within;
use penstock_io::memory::MemoryPermit;
use penstock_io::runtime::{spawn, spawn_blocking};
use penstock_pimp::{
    Answer, Batch, Code, Creation, Envelope, Error, Job, JobId, Lost, Malformed, Now, Settings, verify_jwt,
};
use penstock_wire::Limit;

use super::answer::{self, Refused};
use super::body::ResponseBody;
use super::payload::ended;
use super::service::{Service, header, now};
use crate::Change;

/// The body of a PUT.
const SETTINGS: Limit = Limit::new("the length of the body", 16 << 10);
/// Larger bodies are parsed on a thread of the pool.
const HERE: usize = 256 << 10;
/// How often a decision is repeated before the store counts as failed.
const TRIES: usize = 100;
/// How far the clocks of a buffer and its store may differ: chunks of a job that expires sooner are not taken for lost.
const SKEW: Duration = Duration::from_secs(10);

type Result<T> = std::result::Result<T, Refused>;
type Answered = Result<Response<ResponseBody>>;
/// The new state of a job (`None`: it is deleted), and its new chunks.
type Next = (Option<Job>, Vec<(u32, Bytes)>);

impl Service {
    /// Change a job by a decision on its current state. Changes of one job run one at a time. `decide` may be called
    /// several times, so it must be deterministic.
    ///
    /// `held` is the change's memory permit, which is held until the store has committed.
    async fn change<T>(
        &self,
        id: JobId,
        held: Option<MemoryPermit>,
        decide: impl Fn(Option<Job>, Now) -> Result<(Option<Next>, T)> + Send,
    ) -> Result<T> {
        let live = self.live(id);
        let mut turn = (Arc::clone(&live.turn).lock_owned().await, held);
        for _ in 0..TRIES {
            let (was, now) = (self.store.load(id).await?, now());
            let known = was.clone().filter(|job| now.unix_millis() < job.forgotten_at());
            let (next, answer) = decide(known, now)?;
            let Some((job, chunks)) = next else { return Ok(answer) };
            let (store, live) = (Arc::clone(&self.store), Arc::clone(&live));
            // A separate task: when the client disconnects, this future is dropped, but the store continues. The next
            // change must see the result of this one, and the memory is in use until then.
            let committing = spawn(async move {
                let stored = store.commit(id, Change { was, job, chunks }).await;
                if stored.as_ref().is_ok_and(|stored| *stored) {
                    live.tell();
                }
                (stored, turn)
            })?;
            let (stored, back) = committing.await.map_err(ended)?;
            turn = back;
            if stored? {
                return Ok(answer);
            }
        }
        Err(crate::Error::busy(format!("others changed job {id} {TRIES} times meanwhile")).into())
    }

    /// Read a body and return it with its memory permit. A Content-Length is checked first.
    async fn body<B>(&self, parts: &Parts, body: B, most: Limit, peer: IpAddr) -> Result<(Vec<u8>, MemoryPermit)>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let told = header(&parts.headers, &CONTENT_LENGTH).and_then(|text| text.parse().ok());
        most.check(told.unwrap_or(0)).map_err(Error::from)?;
        // The stated length becomes the limit, so that no more memory is reserved than needed.
        let most = Limit { value: told.unwrap_or(most.value), ..most };
        let mut room = self.bodies.room(peer, 0).await?;
        Ok((read_body_within(body, most, &mut room).await?, room))
    }

    pub(super) async fn create<B>(&self, id: JobId, key: Option<&str>, parts: &Parts, body: B, peer: IpAddr) -> Answered
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let writer = key.ok_or(Error::Unauthorized)?;
        let (body, room) = self.body(parts, body, SETTINGS, peer).await?;
        // Many requests may have started before the first guess was counted, so check again.
        self.check_guesses(peer)?;
        if !body.is_empty() {
            Batch::check_content_type(header(&parts.headers, &CONTENT_TYPE))?;
        }
        let creation = Creation::decode(&body, self.limits())?;
        let if_match = header(&parts.headers, &IF_MATCH);
        if if_match.is_none() && creation.write_key.is_some() {
            return Err(Error::from(Malformed::NoGeneration).into());
        }
        self.change(id, Some(room), |known, now| {
            // A deleted job may be created again with keys of the caller's choice.
            let known = known.filter(|job| !job.is_deleted());
            let (status, job, key, changed) = match (known, if_match) {
                (None, Some(_)) => return Err(Error::NotFound.into()),
                (None, None) => {
                    let settings = Settings { ttl_ms: creation.ttl_ms, read_key: creation.read_key.as_deref() };
                    let mut job = Job::create(now, writer, settings, self.limits())?;
                    job.set_token(self.token(id, writer, now)?);
                    (StatusCode::CREATED, job, writer, true)
                }
                (Some(mut job), Some(if_match)) => {
                    self.renew(id, &mut job, key, now);
                    job.handle_take_over(now, key, if_match, creation.write_key.as_deref())?;
                    let new = creation.write_key.as_deref().unwrap_or(writer);
                    job.set_token(self.token(id, new, now)?);
                    (StatusCode::OK, job, new, true)
                }
                (Some(mut job), None) => {
                    let renewed = self.renew(id, &mut job, key, now);
                    job.handle_create(now, key).map_err(of_another_key)?;
                    (StatusCode::OK, job, writer, renewed)
                }
            };
            let body = job.handle_status(now, Some(key))?;
            let answer = answer::tagged(answer::json(status, &body), &job.etag());
            Ok((changed.then_some((Some(job), Vec::new())), answer))
        })
        .await
    }

    /// Return when a key that is a signed token expires; `None` for an ordinary key.
    fn token(&self, id: JobId, key: &str, now: Now) -> Result<Option<u64>> {
        let Some(secret) = self.jwt_secret.as_deref() else { return Ok(None) };
        Ok(verify_jwt(key, secret, id, now, self.limits().ttl)?)
    }

    /// Replace the job's token by the one of this request; return whether it was replaced.
    pub(super) fn renew(&self, id: JobId, job: &mut Job, key: Option<&str>, now: Now) -> bool {
        let Some(key) = key.filter(|key| job.has_other_token(key)) else { return false };
        self.token(id, key, now).is_ok_and(|until| until.is_some_and(|until| job.renew(key, until)))
    }

    /// Make the job for a first write with a signed token (decision 1).
    fn created_by_token(&self, id: JobId, key: &str, now: Now) -> Result<Job> {
        if self.jwt_secret.is_none() {
            return Err(Error::NotFound.into());
        }
        let until = self.token(id, key, now)?.ok_or_else(|| Refused::Guess(Error::NotFound))?;
        let mut job = Job::create(now, key, Settings::default(), self.limits())?;
        job.set_token(Some(until));
        Ok(job)
    }

    pub(super) async fn write<B>(&self, id: JobId, key: Option<&str>, parts: &Parts, body: B, peer: IpAddr) -> Answered
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let writer = key.ok_or(Error::Unauthorized)?;
        // Checked before the body is read, so that a caller without a key costs nothing.
        match self.known(id, key).await? {
            Some(job) => job.check_writer(now(), key)?,
            None => drop(self.created_by_token(id, writer, now())?),
        }
        Batch::check_content_type(header(&parts.headers, &CONTENT_TYPE))?;
        // Parsed and stored chunks need the same amount again, until they are stored.
        let (body, room) = self.body(parts, body, self.limits().body(), peer).await?;
        let body = Bytes::from(body);
        let batch = self.decode(id, &body).await?;
        let answer = self
            .change(id, Some(room), |known, now| {
                let mut job = known.map_or_else(|| self.created_by_token(id, writer, now), Ok)?;
                let renewed = self.renew(id, &mut job, key, now);
                let written = job.handle_write(now, key, &batch, self.limits())?;
                let chunks = encoded(written.new.iter().filter_map(|place| batch.envelopes().get(*place)), body.len())?;
                let (count, duplicates) = (chunks.len() as u64, written.duplicates as u64);
                let answer = Answer { written: count, duplicates, cancelled: written.cancelled };
                Ok(((count > 0 || renewed).then_some((Some(job), chunks)), answer))
            })
            .await?;
        self.counters.wrote(answer.written, answer.duplicates);
        Ok(answer::json(StatusCode::from_u16(answer.status()).unwrap_or(StatusCode::OK), &answer))
    }

    /// Parse a write; a large one on a thread of the pool.
    async fn decode<'a>(&self, id: JobId, body: &'a Bytes) -> Result<Batch<'a>> {
        if body.len() <= HERE {
            return Ok(Batch::decode(body, id, self.limits())?);
        }
        let (body, limits) = (body.clone(), self.limits().clone());
        let decoding = spawn_blocking(move || Batch::decode(&body, id, &limits).map(Batch::into_owned))?;
        Ok(decoding.await.map_err(ended)??)
    }

    /// Return the error for a chunk that the job has but the store did not find.
    ///
    /// Either the job has ended meanwhile, or its store has lost the chunk, as a Redis with eviction does: then the job
    /// is LOST.
    pub(super) async fn missing(&self, id: JobId, index: u32) -> Refused {
        let is_lost = async {
            let has = |job: &Job, now: Now| {
                job.indices().contains(index) && !job.is_deleted() && job.time_left(now) > SKEW && job.is_intact()
            };
            let Some(before) = self.store.load(id).await?.filter(|job| has(job, now())) else { return Ok(false) };
            if !self.store.read(id, vec![index], 0).await?.is_empty() {
                return Ok(false);
            }
            self.change(id, None, |known, now| {
                // If it is the same job as before, it had the chunk all the time.
                let same = known.filter(|job| job.created_at() == before.created_at() && has(job, now));
                let Some(mut job) = same else { return Ok((None, false)) };
                job.set_lost();
                Ok((Some((Some(job), Vec::new())), true))
            })
            .await
        };
        match is_lost.await {
            Err(refused) => refused,
            Ok(false) => Refused::Busy,
            Ok(true) => {
                tracing::error!(job = %id, index, "the store has lost a chunk that was answered for: the job is refused with 410");
                Error::from(Lost::Chunk { index }).into()
            }
        }
    }

    pub(super) async fn cancel(&self, id: JobId, key: Option<&str>) -> Answered {
        key.ok_or(Error::Unauthorized)?;
        let cancelled = self.change(id, None, |known, now| {
            let known = known.ok_or(Error::NotFound)?;
            let mut job = known.clone();
            self.renew(id, &mut job, key, now);
            let cancelled = job.handle_cancel(now, key)?;
            // A repeated cancellation, or one after the job's end, changes nothing, so nothing is written and no
            // waiting request is woken.
            Ok(((job != known).then_some((Some(job), Vec::new())), cancelled))
        });
        Ok(answer::json(StatusCode::OK, &serde_json::json!({"cancelled": cancelled.await?})))
    }

    pub(super) async fn delete(&self, id: JobId, key: Option<&str>) -> Answered {
        key.ok_or(Error::Unauthorized)?;
        let deleted = self.change(id, None, |known, now| {
            let mut job = known.ok_or(Error::NotFound)?;
            self.renew(id, &mut job, key, now);
            job.handle_delete(now, key)?;
            // Otherwise a token that is still valid would create the job again with its next write, without its
            // readKey.
            let left = self.jwt_secret.is_some().then(|| job.into_deleted(now, self.limits()));
            Ok((Some((left, Vec::new())), ()))
        });
        deleted.await?;
        Ok(answer::empty(StatusCode::NO_CONTENT))
    }
}

/// A conflict with another key counts as a guess, because it tells keys apart as well as a 401 does.
fn of_another_key(error: Error) -> Refused {
    if error.code() == Code::Conflict { Refused::Guess(error) } else { error.into() }
}

/// Encode chunks as they are stored, in one allocation about as long as the write.
fn encoded<'a>(
    envelopes: impl Iterator<Item = &'a Envelope<'a>>,
    length: usize,
) -> std::result::Result<Vec<(u32, Bytes)>, Error> {
    let (mut bytes, mut ends) = (Vec::with_capacity(length + 160), Vec::new());
    for envelope in envelopes {
        envelope.encode(&mut bytes)?;
        ends.push((envelope.index, bytes.len()));
    }
    bytes.shrink_to_fit();
    let (bytes, mut from) = (Bytes::from(bytes), 0);
    let chunk = |(index, end)| (index, bytes.slice(std::mem::replace(&mut from, end)..end));
    Ok(ends.into_iter().map(chunk).collect())
}
