//! The consumer, which polls a job and reassembles its payload (section 9).

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use penstock_wire::{Backoff, Limit, later};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Failure, Malformed, Result, Stalled};
use crate::object::Object;
use crate::payload::DecoderState;
use crate::validate::{BoundedEnvelopes, json};
use crate::{Decoder, Envelope, JobId, Limits, Metadata, Now};

/// How a consumer polls (section 12). A value after a colon is the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerConfig {
    /// The pause between polls: 500 ms.
    pub poll_interval: Duration,
    /// The longest pause while nothing arrives: 5 s.
    pub max_poll_interval: Duration,
    /// How long the consumer waits without new chunks before it fails: 30 s.
    pub stall_timeout: Duration,
    /// How long the buffer is asked to hold an empty poll open; then there is no pause between polls. 0: not at all.
    pub wait: Duration,
    /// How many chunks each poll asks for; 0: as many as there are, as in the specification.
    pub limit: u32,
    /// The most bytes of a payload: 1 GiB.
    pub inflated: u64,
    /// The limits of a job.
    pub limits: Limits,
    /// The most bytes of values that are held until a gap before them is filled: 64 MiB.
    pub held: u64,
}

impl Default for ConsumerConfig {
    fn default() -> Self {
        Self {
            poll_interval: Duration::from_millis(500),
            max_poll_interval: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(30),
            wait: Duration::ZERO,
            limit: 0,
            inflated: 1 << 30,
            limits: Limits::default(),
            held: 64 << 20,
        }
    }
}

/// The state of a consumer, from which another one can resume.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Position {
    job: String,
    /// The value of chunk 0, once it has arrived.
    metadata: Option<String>,
    /// The next index that the payload needs.
    next: u32,
    /// Bytes of the payload that were returned.
    given: u64,
    /// If absent, the payload is read from its beginning, and the bytes that were already returned are skipped.
    decoder: Option<DecoderState>,
    completed: bool,
}

/// A poll to make: `GET {job}?from=..`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Poll {
    /// The first index wanted.
    pub from: u32,
    /// How long the buffer may hold it open.
    pub wait: Duration,
    /// The most chunks in the answer; 0: no limit.
    pub limit: u32,
}

impl Poll {
    /// Return the query that follows the job's URL.
    pub fn query(&self) -> String {
        let mut query = format!("?from={}", self.from);
        if !self.wait.is_zero() {
            query.push_str(&format!("&wait={}", self.wait.as_millis()));
        }
        if self.limit > 0 {
            query.push_str(&format!("&limit={}", self.limit));
        }
        query
    }
}

/// An event of a consumer.
#[derive(Debug, Clone, PartialEq)]
pub enum ConsumerEvent {
    /// Chunk 0 has arrived.
    Metadata(Metadata),
    /// The next bytes of the payload.
    Data(Vec<u8>),
    /// The payload is complete, and its length and checksum are as stated.
    Completed,
}

/// The phase of a consumer.
///
/// ```text
///       poll_transmit          the final chunk
///  Due ───────────────▶ Asked ─────────────────▶ Completed
///   ▲                    │
///   └────────────────────┘ chunks; no answer, 429 or 5xx: after a longer pause
///
///  Due, Asked ── a stall, a rejection, a broken rule ──▶ Failed
/// ```
#[derive(Debug)]
enum Phase {
    /// The next poll is made at this time.
    Due(Instant),
    /// A poll has been in flight since this time.
    Asked(Instant),
    /// The payload is complete.
    Completed,
    /// Every later call returns this error again.
    Failed(Error),
}

/// The consumer of a job.
///
/// After any `handle_*`, call [`poll_event`](Self::poll_event) until it returns `None`, then
/// [`poll_transmit`](Self::poll_transmit) and [`poll_timeout`](Self::poll_timeout). Events from before an error are
/// still valid.
pub struct Consumer {
    job: JobId,
    config: ConsumerConfig,
    decoder: Option<Decoder>,
    // The next index that the payload needs.
    next: u32,
    // Chunks after a gap.
    held: BTreeMap<u32, Envelope<'static>>,
    bytes: u64,
    metadata: Option<String>,
    // Bytes of the payload, and how many of them an earlier consumer has already returned.
    given: u64,
    skip: u64,
    // The most chunks to request: fewer after polls that failed.
    most: u32,
    phase: Phase,
    last_progress: Instant,
    backoff: Backoff,
    failure: Option<Failure>,
    // The next events, each with the position after it.
    events: VecDeque<(ConsumerEvent, Position)>,
    position: Position,
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("job", &self.job).field("next", &self.next).finish_non_exhaustive()
    }
}

impl Consumer {
    /// Make a consumer whose first poll is due now.
    pub fn new(now: Now, job: JobId, config: ConsumerConfig) -> Self {
        let backoff = Backoff::new(config.poll_interval, config.max_poll_interval);
        let most = config.limit;
        let position =
            Position { job: job.to_string(), metadata: None, next: 0, given: 0, decoder: None, completed: false };
        Self {
            job,
            config,
            decoder: None,
            next: 0,
            held: BTreeMap::new(),
            bytes: 0,
            metadata: None,
            given: 0,
            skip: 0,
            most,
            phase: Phase::Due(now.instant),
            last_progress: now.instant,
            backoff,
            failure: None,
            events: VecDeque::new(),
            position,
        }
    }

    /// Make a consumer that resumes at a [`position`](Self::position), possibly that of another process. It reports the
    /// metadata again.
    ///
    /// A compressed payload is requested from its beginning, but bytes that were already returned are not returned
    /// again.
    ///
    /// Fails with [`Malformed`](crate::Code::Malformed) where the text is not a position in this job.
    pub fn resume(now: Now, job: JobId, config: ConsumerConfig, position: &str) -> Result<Self> {
        let wrong = |error: serde_json::Error| Malformed::Position { reason: error.to_string() };
        let Object(position): Object<Position> = serde_json::from_str(position).map_err(wrong)?;
        if position.job != job.to_string() {
            return Err(Malformed::PositionJob { position: position.job, job }.into());
        }
        let mut consumer = Self::new(now, job, config);
        let Some(text) = &position.metadata else { return Ok(consumer) };
        let metadata = Metadata::decode(text)?;
        consumer.metadata.clone_from(&position.metadata);
        if position.completed {
            consumer.phase = Phase::Completed;
        }
        consumer.given = position.given;
        let decoder = match &position.decoder {
            Some(kept) => {
                consumer.next = position.next.max(1);
                Decoder::resume(&metadata, consumer.config.inflated, kept)?
            }
            None => {
                (consumer.next, consumer.skip, consumer.given) = (1, position.given, 0);
                Decoder::new(&metadata, consumer.config.inflated)
            }
        };
        consumer.decoder = Some(decoder);
        consumer.events.push_back((ConsumerEvent::Metadata(metadata), position.clone()));
        consumer.position = position;
        Ok(consumer)
    }

    /// Return the position after the last event of [`poll_event`](Self::poll_event): a line of JSON for
    /// [`resume`](Self::resume).
    pub fn position(&self) -> String {
        serde_json::to_string(&self.position).unwrap_or_default()
    }

    fn tell(&mut self, event: ConsumerEvent) {
        let position = Position {
            job: self.job.to_string(),
            metadata: self.metadata.clone(),
            next: self.next,
            given: self.given.max(self.skip),
            decoder: self.decoder.as_ref().and_then(Decoder::keep),
            completed: self.is_completed(),
        };
        self.events.push_back((event, position));
    }

    /// Return the next poll when it is due. Only one is in flight at a time.
    pub fn poll_transmit(&mut self, now: Now) -> Option<Poll> {
        match self.phase {
            Phase::Due(at) if at <= now.instant => self.phase = Phase::Asked(now.instant),
            Phase::Due(_) | Phase::Asked(_) | Phase::Completed | Phase::Failed(_) => return None,
        }
        Some(Poll { from: self.next, wait: self.config.wait, limit: self.config.limit.min(self.most) })
    }

    /// Extend the stall timeout by the time in which the application did not poll, because that was not the sender's
    /// fault.
    pub fn handle_absence(&mut self, away: Duration) {
        self.last_progress = later(self.last_progress, away);
    }

    /// Return the next event.
    pub fn poll_event(&mut self) -> Option<ConsumerEvent> {
        let (event, position) = self.events.pop_front()?;
        self.position = position;
        Some(event)
    }

    /// Return when to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Instant> {
        let stalled = later(self.last_progress, self.config.stall_timeout);
        match self.phase {
            Phase::Due(at) => Some(stalled.min(at)),
            Phase::Asked(_) => Some(stalled),
            Phase::Completed | Phase::Failed(_) => None,
        }
    }

    /// Return whether the payload is complete.
    pub const fn is_completed(&self) -> bool {
        match self.phase {
            Phase::Completed => true,
            Phase::Due(_) | Phase::Asked(_) | Phase::Failed(_) => false,
        }
    }

    /// Return the next index that the payload needs.
    pub const fn next_index(&self) -> u32 {
        self.next
    }

    /// Make the next poll at this time, unless the consumer has ended.
    fn poll_at(&mut self, at: Instant) {
        match self.phase {
            Phase::Due(_) | Phase::Asked(_) => self.phase = Phase::Due(at),
            Phase::Completed | Phase::Failed(_) => {}
        }
    }

    fn end_with(&mut self, result: Result<()>) -> Result<()> {
        if let Err(error) = &result {
            self.phase = Phase::Failed(error.clone());
            self.held.clear();
        }
        result
    }

    /// Check for a stall. Fails with [`Stalled`](crate::Code::Stalled) where nothing new arrived for too long, naming
    /// the last index.
    pub fn handle_timeout(&mut self, now: Now) -> Result<()> {
        match &self.phase {
            Phase::Due(_) | Phase::Asked(_) => {}
            Phase::Completed => return Ok(()),
            Phase::Failed(error) => return Err(error.clone()),
        }
        if now.instant < later(self.last_progress, self.config.stall_timeout) {
            return Ok(());
        }
        let (last, failure) = (self.next.checked_sub(1), self.failure.take());
        self.end_with(Err(Stalled::Poll { timeout: self.config.stall_timeout, last, failure }.into()))
    }

    /// Retry a poll that could not be made, or whose answer was lost (decision "restored").
    pub fn handle_failure(&mut self, now: Now, why: &str) {
        self.retry(now, Failure::Request(why.to_owned()));
    }

    fn retry(&mut self, now: Now, failure: Failure) {
        self.failure = Some(failure);
        let pause = self.backoff.advance();
        self.poll_at(later(now.instant, pause));
    }

    /// Take the buffer's answer to a poll.
    ///
    /// 429 and 5xx are retried. Fails with the [`Code`](crate::Code) of any other status; with
    /// [`Failed`](crate::Code::Failed) where the sender reports that the job has failed; and where the answer breaks a
    /// rule or the payload is not as stated.
    pub fn handle_response(&mut self, now: Now, status: u16, body: &[u8]) -> Result<()> {
        let asked = match &self.phase {
            Phase::Due(at) | Phase::Asked(at) => *at,
            Phase::Completed => return Ok(()),
            Phase::Failed(error) => return Err(error.clone()),
        };
        match status {
            200 => {
                let result = self.read(now, asked, body);
                self.end_with(result)
            }
            429 | 500..=599 => {
                // A gateway may have cut off an answer that was too large for it.
                if status != 429 {
                    self.most = (self.most / 2).max(1);
                }
                self.retry(now, Failure::Status(status));
                Ok(())
            }
            _ => self.end_with(Err(Error::of_response("the poll", status, body))),
        }
    }

    /// Take the chunks of a poll that was made at `asked`.
    fn read(&mut self, now: Now, asked: Instant, body: &[u8]) -> Result<()> {
        let Object(Answer { chunks }) = json(body)?;
        self.config.limits.envelopes().check(chunks.count())?;
        // The answer has as many chunks as requested, so there may be more.
        let requested = self.config.limit.min(self.most);
        let more = requested > 0 && chunks.count() >= u64::from(requested);
        let mut news = false;
        for fields in chunks.into_fields() {
            let envelope = fields.check(self.job, &self.config.limits)?;
            if envelope.index < self.next || self.held.contains_key(&envelope.index) {
                continue;
            }
            self.bytes = self.bytes.saturating_add(envelope.value.len() as u64);
            self.config.limits.job().check(self.bytes)?;
            self.held.insert(envelope.index, envelope.into_owned());
            news = true;
        }
        self.failure = None;
        if news {
            self.last_progress = now.instant;
            self.backoff.reset();
            self.assemble()?;
        }
        // A buffer that held the poll open has already waited; one that did not must not be polled in a tight loop.
        let held_open = self.config.wait.min(self.config.poll_interval);
        let waited = !self.config.wait.is_zero() && (news || now.instant >= later(asked, held_open));
        let pause = match (waited || (more && news), news) {
            (true, _) => Duration::ZERO,
            (false, true) => self.config.poll_interval,
            (false, false) => self.backoff.advance(),
        };
        self.poll_at(later(now.instant, pause));
        Ok(())
    }

    /// Append chunks to the payload in order, never past a gap (section 11).
    fn assemble(&mut self) -> Result<()> {
        let mut data = Vec::new();
        let result = self.advance(&mut data);
        // Skip the bytes that an earlier consumer has already returned.
        let before = self.given.saturating_sub(data.len() as u64);
        let known = usize::try_from(self.skip.saturating_sub(before)).unwrap_or(usize::MAX);
        data.drain(..known.min(data.len()));
        if let Ok(true) = result {
            self.phase = Phase::Completed;
        }
        if !data.is_empty() {
            self.tell(ConsumerEvent::Data(data));
        }
        if result? {
            self.tell(ConsumerEvent::Completed);
            return Ok(());
        }
        let held = self.held.values().map(|envelope| envelope.value.len() as u64).sum();
        Limit::new("the bytes of chunks behind a gap", self.config.held).check(held)?;
        // An error chunk fails the job even if chunks before it are missing.
        match self.held.values().find_map(|envelope| envelope.error.as_deref()) {
            Some(reason) => Err(Error::Failed { reason: reason.to_owned() }),
            None => Ok(()),
        }
    }

    fn advance(&mut self, data: &mut Vec<u8>) -> Result<bool> {
        while let Some(envelope) = self.held.remove(&self.next) {
            if envelope.error.is_some() {
                self.held.insert(envelope.index, envelope);
                return Ok(false);
            }
            self.next += 1;
            let Some(decoder) = &mut self.decoder else {
                let metadata = Metadata::decode(&envelope.value)?;
                self.decoder = Some(Decoder::new(&metadata, self.config.inflated));
                self.metadata = Some(envelope.value.into_owned());
                self.tell(ConsumerEvent::Metadata(metadata));
                continue;
            };
            let (before, given) = (data.len(), self.given);
            let result = decoder.push(&envelope.value, data);
            let result = match result {
                Ok(()) if envelope.done => decoder.finish(envelope.sha256.as_ref(), data),
                result => result,
            };
            self.given = given.saturating_add(data.len().saturating_sub(before) as u64);
            result?;
            Limit::new("the bytes of the payload", self.config.inflated).check(self.given)?;
            if envelope.done {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The answer to a poll. `nextIndex` is not used: after a gap it is not the index that is needed (decision 8).
#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    chunks: BoundedEnvelopes<'a>,
}
