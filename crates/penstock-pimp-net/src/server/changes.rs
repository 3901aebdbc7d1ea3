//! Requests that change a job: create, take over, write, cancel, delete.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Body;
use hyper::header::{CONTENT_TYPE, IF_MATCH};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use penstock_io::http::BodyBudget;
use penstock_io::runtime::spawn_blocking;
use penstock_pimp::{Answer, Batch, Code, Creation, Envelope, Error, Job, JobId, Malformed, Settings};
use penstock_wire::Limit;

use super::answer;
use super::body::ResponseBody;
use super::callers::Callers;
use super::jobs::Jobs;
use super::metrics::Counters;
use super::refused::{Refused, ended};
use super::request::header;
use crate::clock::now;

/// The limit of the body of a PUT.
const SETTINGS: Limit = Limit::new("the length of the body", 16 << 10);
/// Bodies of up to this many bytes need no memory permit.
const SMALL: usize = 16 << 10;
/// Larger bodies are parsed on a thread of the pool.
const HERE: usize = 256 << 10;

type Result<T> = std::result::Result<T, Refused>;
type Answered = Result<Response<ResponseBody>>;

/// The handler of requests that change jobs, with the memory of their bodies and their counters.
pub(super) struct Changes {
    jobs: Arc<Jobs>,
    pub(super) bodies: BodyBudget,
    callers: Arc<Callers>,
    counters: Arc<Counters>,
}

impl Changes {
    pub(super) fn new(jobs: Arc<Jobs>, callers: Arc<Callers>, counters: Arc<Counters>) -> Self {
        let bodies = BodyBudget::new(jobs.limits().body, SMALL);
        Self { jobs, bodies, callers, counters }
    }

    pub(super) async fn create<B>(&self, id: JobId, key: Option<&str>, parts: &Parts, body: B, peer: IpAddr) -> Answered
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let writer = key.ok_or(Error::Unauthorized)?;
        let (body, permit) = self.bodies.read(body, SETTINGS, peer).await?;
        // Many requests may have started before the first guess was counted, so check again.
        self.callers.check_guesses(peer)?;
        if !body.is_empty() {
            Batch::check_content_type(header(&parts.headers, &CONTENT_TYPE))?;
        }
        let creation = Creation::decode(&body, self.jobs.limits())?;
        let if_match = header(&parts.headers, &IF_MATCH);
        if if_match.is_none() && creation.write_key.is_some() {
            return Err(Error::from(Malformed::NoGeneration).into());
        }
        self.jobs
            .change(id, Some(permit), |known, now| {
                // A deleted job may be created again with keys of the caller's choice.
                let known = known.filter(|job| !job.is_deleted());
                let (status, job, key, changed) = match (known, if_match) {
                    (None, Some(_)) => return Err(Error::NotFound.into()),
                    (None, None) => {
                        let settings = Settings { ttl_ms: creation.ttl_ms, read_key: creation.read_key.as_deref() };
                        let mut job = Job::create(now, writer, settings, self.jobs.limits())?;
                        job.set_token(self.jobs.token(id, writer, now)?);
                        (StatusCode::CREATED, job, writer, true)
                    }
                    (Some(mut job), Some(if_match)) => {
                        self.jobs.renew(id, &mut job, key, now);
                        job.handle_take_over(now, key, if_match, creation.write_key.as_deref())?;
                        let new = creation.write_key.as_deref().unwrap_or(writer);
                        job.set_token(self.jobs.token(id, new, now)?);
                        (StatusCode::OK, job, new, true)
                    }
                    (Some(mut job), None) => {
                        let renewed = self.jobs.renew(id, &mut job, key, now);
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

    pub(super) async fn write<B>(&self, id: JobId, key: Option<&str>, parts: &Parts, body: B, peer: IpAddr) -> Answered
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let writer = key.ok_or(Error::Unauthorized)?;
        // Checked before the body is read, so that a caller without a key costs nothing.
        match self.jobs.known(id, key).await? {
            Some(job) => job.check_writer(now(), key)?,
            None => drop(self.jobs.created_by_token(id, writer, now())?),
        }
        Batch::check_content_type(header(&parts.headers, &CONTENT_TYPE))?;
        // Parsed and stored chunks need the same amount again, until they are stored.
        let (body, permit) = self.bodies.read(body, self.jobs.limits().body(), peer).await?;
        let body = Bytes::from(body);
        let batch = self.decode(id, &body).await?;
        let answer = self
            .jobs
            .change(id, Some(permit), |known, now| {
                let mut job = known.map_or_else(|| self.jobs.created_by_token(id, writer, now), Ok)?;
                let renewed = self.jobs.renew(id, &mut job, key, now);
                let written = job.handle_write(now, key, &batch, self.jobs.limits())?;
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
            return Ok(Batch::decode(body, id, self.jobs.limits())?);
        }
        let (body, limits) = (body.clone(), self.jobs.limits().clone());
        let decoding = spawn_blocking(move || Batch::decode(&body, id, &limits).map(Batch::into_owned))?;
        Ok(decoding.await.map_err(ended)??)
    }

    pub(super) async fn cancel(&self, id: JobId, key: Option<&str>) -> Answered {
        key.ok_or(Error::Unauthorized)?;
        let cancelled = self.jobs.change(id, None, |known, now| {
            let known = known.ok_or(Error::NotFound)?;
            let mut job = known.clone();
            self.jobs.renew(id, &mut job, key, now);
            let cancelled = job.handle_cancel(now, key)?;
            // A repeated cancellation, or one after the job's end, changes nothing, so nothing is written and no
            // waiting request is woken.
            Ok(((job != known).then_some((Some(job), Vec::new())), cancelled))
        });
        Ok(answer::json(StatusCode::OK, &serde_json::json!({"cancelled": cancelled.await?})))
    }

    pub(super) async fn delete(&self, id: JobId, key: Option<&str>) -> Answered {
        key.ok_or(Error::Unauthorized)?;
        let deleted = self.jobs.change(id, None, |known, now| {
            let mut job = known.ok_or(Error::NotFound)?;
            self.jobs.renew(id, &mut job, key, now);
            job.handle_delete(now, key)?;
            // Otherwise a token that is still valid would create the job again with its next write, without its
            // readKey.
            let left = self.jobs.takes_tokens().then(|| job.into_deleted(now, self.jobs.limits()));
            Ok((Some((left, Vec::new())), ()))
        });
        deleted.await?;
        Ok(answer::empty(StatusCode::NO_CONTENT))
    }
}

/// Convert an error. A conflict with another key counts as a guess, because it tells keys apart as well as a 401 does.
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
