//! Who polls, and puts the payload together (section 9).

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::backoff::Backoff;
use crate::object::Object;
use crate::validate::{Bounded, json};
use crate::{Code, Decoder, Envelope, Error, JobId, Limits, Metadata, Now, Result};

/// How a consumer polls (section 12).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerConfig {
    /// The pause between polls: 500 ms.
    pub poll_interval: Duration,
    /// What the pause grows to while nothing comes: 5 s.
    pub max_poll_interval: Duration,
    /// How long nothing new may come: 30 s.
    pub stall_timeout: Duration,
    /// How long the buffer is asked to hold an empty poll open; then there is no pause. 0: not at all.
    pub wait: Duration,
    /// The most octets of a payload that was compressed: 1 GiB.
    pub inflated: u64,
    /// How large a job may be.
    pub limits: Limits,
}

impl Default for ConsumerConfig {
    fn default() -> Self {
        Self {
            poll_interval: Duration::from_millis(500),
            max_poll_interval: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(30),
            wait: Duration::ZERO,
            inflated: 1 << 30,
            limits: Limits::default(),
        }
    }
}

/// A poll to be made: `GET {job}?from=..`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Poll {
    /// The first index wanted.
    pub from: u32,
    /// How long the buffer may hold it open.
    pub wait: Duration,
}

impl Poll {
    /// What goes behind the job's URL.
    pub fn query(&self) -> String {
        if self.wait.is_zero() {
            return format!("?from={}", self.from);
        }
        format!("?from={}&wait={}", self.from, self.wait.as_millis())
    }
}

/// What a consumer learns.
#[derive(Debug, Clone, PartialEq)]
pub enum ConsumerEvent {
    /// Chunk 0 is there.
    Metadata(Metadata),
    /// The next octets of the payload.
    Data(Vec<u8>),
    /// The payload is whole, and what is known of it holds.
    Completed,
}

/// The consumer of a job.
///
/// ```text
///  due ─ poll_transmit ─▶ asked ─┬─ handle_response ─▶ due, after a pause ─▶ .. ─▶ Completed
///                                ├─ handle_failure ──▶ due, after a longer pause
///                                └─ an error: it is over, and every call says so again
/// ```
///
/// After any `handle_*` call [`poll_event`](Self::poll_event) until it gives none, then
/// [`poll_transmit`](Self::poll_transmit) and [`poll_timeout`](Self::poll_timeout). What was learnt before an error counts.
#[derive(Debug)]
pub struct Consumer {
    job: JobId,
    config: ConsumerConfig,
    decoder: Option<Decoder>,
    // The next index that the payload needs.
    next: u32,
    // Chunks behind a gap.
    held: BTreeMap<u32, Envelope<'static>>,
    octets: u64,
    asked: bool,
    due: Instant,
    heard: Instant,
    backoff: Backoff,
    trouble: Option<String>,
    events: VecDeque<ConsumerEvent>,
    completed: bool,
    failed: Option<Error>,
}

impl Consumer {
    /// A consumer whose first poll is due now.
    pub fn new(now: Now, job: JobId, config: ConsumerConfig) -> Self {
        let backoff = Backoff::new(config.poll_interval, config.max_poll_interval);
        Self {
            job,
            config,
            decoder: None,
            next: 0,
            held: BTreeMap::new(),
            octets: 0,
            asked: false,
            due: now.instant,
            heard: now.instant,
            backoff,
            trouble: None,
            events: VecDeque::new(),
            completed: false,
            failed: None,
        }
    }

    /// The next poll, when it is due. One at a time.
    pub fn poll_transmit(&mut self, now: Now) -> Option<Poll> {
        if self.asked || self.is_over() || now.instant < self.due {
            return None;
        }
        self.asked = true;
        self.due = now.instant;
        Some(Poll { from: self.next, wait: self.config.wait })
    }

    /// What was learnt.
    pub fn poll_event(&mut self) -> Option<ConsumerEvent> {
        self.events.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let stalled = self.heard + self.config.stall_timeout;
        (!self.is_over()).then(|| if self.asked { stalled } else { stalled.min(self.due) })
    }

    /// Whether the payload is whole.
    pub const fn is_completed(&self) -> bool {
        self.completed
    }

    /// The next index that the payload needs.
    pub const fn next_index(&self) -> u32 {
        self.next
    }

    const fn is_over(&self) -> bool {
        self.completed || self.failed.is_some()
    }

    fn over(&mut self, result: Result<()>) -> Result<()> {
        if let Err(error) = &result {
            self.failed = Some(error.clone());
            self.held.clear();
        }
        result
    }

    /// Time has passed. Fails with [`Stalled`](Code::Stalled) where nothing new came for too long, naming the last index.
    pub fn handle_timeout(&mut self, now: Now) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.completed || now.instant < self.heard + self.config.stall_timeout {
            return Ok(());
        }
        let last =
            self.next.checked_sub(1).map_or_else(|| "none came".to_owned(), |last| format!("the last is {last}"));
        let trouble = self.trouble.as_ref().map_or_else(String::new, |trouble| format!("; {trouble}"));
        let waited = self.config.stall_timeout.as_millis();
        self.over(Err(Error::new(Code::Stalled, format!("no new chunk within {waited} ms: {last}{trouble}"))))
    }

    /// The poll could not be made, or its answer did not come: it is made again (decision "restored").
    pub fn handle_failure(&mut self, now: Now, why: &str) {
        self.asked = false;
        self.trouble = Some(why.to_owned());
        self.due = now.instant + self.backoff.advance();
    }

    /// The answer of the buffer.
    ///
    /// 429 and 5xx are asked again. Fails with the [`Code`] of any other status; with [`Failed`](Code::Failed) where the
    /// sender says that the job has failed; where the answer breaks a rule, and where the payload is not what it should be.
    pub fn handle_response(&mut self, now: Now, status: u16, body: &[u8]) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.completed {
            return Ok(());
        }
        self.asked = false;
        match status {
            200 => {
                let result = self.read(now, body);
                self.over(result)
            }
            429 | 500..=599 => {
                self.handle_failure(now, &format!("the buffer answered with {status}"));
                Ok(())
            }
            _ => {
                let message = format!("the buffer refused the poll with {status}: {}", crate::response::excerpt(body));
                self.over(Err(Error::new(Code::of_status(status), message)))
            }
        }
    }

    fn read(&mut self, now: Now, body: &[u8]) -> Result<()> {
        let Object(Answer { chunks }) = json(body)?;
        self.config.limits.envelopes().check(chunks.count())?;
        let mut news = false;
        for fields in chunks.into_fields() {
            let envelope = fields.check(self.job, &self.config.limits)?;
            if envelope.index < self.next || self.held.contains_key(&envelope.index) {
                continue;
            }
            self.octets = self.octets.saturating_add(envelope.value.len() as u64);
            self.config.limits.job().check(self.octets)?;
            self.held.insert(envelope.index, envelope.into_owned());
            news = true;
        }
        self.trouble = None;
        if news {
            self.heard = now.instant;
            self.backoff.reset();
            self.assemble()?;
        }
        // A buffer that has held the poll open has waited for us; one that has not is not asked in a circle.
        let held_open = self.config.wait.min(self.config.poll_interval);
        let waited = !self.config.wait.is_zero() && (news || now.instant >= self.due + held_open);
        let pause = match (waited, news) {
            (true, _) => Duration::ZERO,
            (false, true) => self.config.poll_interval,
            (false, false) => self.backoff.advance(),
        };
        self.due = now.instant + pause;
        Ok(())
    }

    /// Takes what is there in order; never past a gap (section 11).
    fn assemble(&mut self) -> Result<()> {
        let mut data = Vec::new();
        let result = self.advance(&mut data);
        if !data.is_empty() {
            self.events.push_back(ConsumerEvent::Data(data));
        }
        if result? {
            self.completed = true;
            self.events.push_back(ConsumerEvent::Completed);
            return Ok(());
        }
        // A job that has failed has failed, whatever is missing below.
        match self.held.values().find_map(|envelope| envelope.error.as_deref()) {
            Some(error) => Err(Error::new(Code::Failed, format!("the sender failed: {error}"))),
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
                self.events.push_back(ConsumerEvent::Metadata(metadata));
                continue;
            };
            decoder.push(&envelope.value, data)?;
            if envelope.done {
                decoder.finish(envelope.sha256.as_ref(), data)?;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The answer to a poll. `nextIndex` is not used: over a gap it is not what is needed (decision 8).
#[derive(serde::Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    chunks: Bounded<'a>,
}
