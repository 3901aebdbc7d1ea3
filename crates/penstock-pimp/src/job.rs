//! The state of a job at a buffer, and the rules that depend on it.

mod stored;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::stored::FinalChunk;
use self::stored::StoredJob;
use crate::error::{Conflict, Error, Lost, Malformed, Result, Unwritable};
use crate::key::LEEWAY_MS;
use crate::validate::is_key;
use crate::{Batch, Digest, Indices, Limits, Now, State, StatusBody};

/// The settings of a new job.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings<'a> {
    /// Its lifetime in milliseconds; the longest if not set.
    pub ttl_ms: Option<u64>,
    /// The key that readers need; if not set, anyone may read.
    pub read_key: Option<&'a str>,
}

impl fmt::Debug for Settings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("ttl_ms", &self.ttl_ms).finish_non_exhaustive()
    }
}

/// The result of a write (section 7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The positions in the batch of the new chunks, which the caller must store.
    pub new: Vec<usize>,
    /// How many chunks were already stored.
    pub duplicates: usize,
    /// Whether the consumer has cancelled the job.
    pub cancelled: bool,
}

/// The result of a poll (section 9).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PollResult {
    /// The available chunks, ascending.
    pub indices: Vec<u32>,
    /// The nextIndex of the answer.
    pub next_index: u64,
    /// Whether nothing more will arrive; then an empty poll is not held open.
    pub finished: bool,
}

/// How much of a job the buffer has.
///
/// ```text
///  Intact ─┬─ a store has lost a part ─▶ Lost
///          └─ DELETE ─────────────────▶ Deleted
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Storage {
    /// All of it, as far as the buffer knows.
    Intact,
    /// Less than it has acknowledged: writes and reads are refused until the job expires.
    Lost,
    /// Nothing: the job's record is kept only so that no token can make the job again.
    Deleted,
}

/// A job at the buffer, without its chunks.
///
/// The caller stores a job together with the chunks of a write: it changes a copy, stores the copy and the chunks, and
/// only then replaces the job by the copy. So a 201 means that the chunks are on disk, and a write is stored completely
/// or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredJob", into = "StoredJob")]
pub struct Job {
    write_key: Digest,
    /// When the key expires, if it is a signed token.
    write_until: Option<u64>,
    /// The latest expiry of the signed tokens that were its key; 0: there were none.
    tokens_until: u64,
    read_key: Option<Digest>,
    generation: u64,
    created_at: u64,
    ttl: u64,
    indices: Indices,
    bytes: u64,
    done: Option<FinalChunk>,
    /// Whether the consumer has cancelled the job. Its writer still ends it, and its buffer may lose or delete it.
    cancelled: bool,
    storage: Storage,
}

impl Job {
    /// Make a job: its state is CREATED (decision 1).
    ///
    /// Fails with [`Malformed`](crate::Code::Malformed) where the key is invalid, or the lifetime is longer than the
    /// limit.
    pub fn create(now: Now, key: &str, settings: Settings<'_>, limits: &Limits) -> Result<Self> {
        if !is_key(key) || settings.read_key.is_some_and(|key| !is_key(key)) {
            return Err(Malformed::JobKey.into());
        }
        let ttl = settings.ttl_ms.unwrap_or(limits.ttl);
        if ttl == 0 || ttl > limits.ttl {
            return Err(Malformed::Ttl { limit: limits.ttl }.into());
        }
        Ok(Self {
            write_key: Digest::of(key.as_bytes()),
            write_until: None,
            tokens_until: 0,
            read_key: settings.read_key.map(|key| Digest::of(key.as_bytes())),
            generation: 1,
            created_at: now.unix_millis(),
            ttl,
            indices: Indices::new(),
            bytes: 0,
            done: None,
            cancelled: false,
            storage: Storage::Intact,
        })
    }

    /// Read what [`encode`](Self::encode) wrote. Fails with [`Malformed`](crate::Code::Malformed) for anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes).map_err(|error| Malformed::Job { reason: error.to_string() }.into())
    }

    /// Encode the job as stores keep it. The keys are not included, only their SHA-256.
    pub fn encode(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|error| Unwritable::Job { reason: error.to_string() }.into())
    }

    /// Return its state.
    pub fn state(&self, now: Now) -> State {
        if now.unix_millis() >= self.expires_at() {
            return State::Expired;
        }
        if !self.is_intact() {
            return State::Failed;
        }
        match &self.done {
            Some(done) if done.failed => State::Failed,
            Some(_) => State::Completed,
            None if self.indices.contains(0) => State::Active,
            None => State::Created,
        }
    }

    /// Return when it was made, in milliseconds since the Unix epoch.
    pub const fn created_at(&self) -> u64 {
        self.created_at
    }

    /// Return when its chunks expire and may be deleted, in milliseconds since the Unix epoch (section 10).
    pub const fn expires_at(&self) -> u64 {
        self.created_at.saturating_add(self.ttl)
    }

    /// Return when a buffer may forget the job: until then it answers that the job has expired (decision 8).
    ///
    /// A job is not forgotten while a token that was its key is valid, because the token could make the job again,
    /// without its readKey.
    pub fn forgotten_at(&self) -> u64 {
        self.expires_at().saturating_add(self.ttl).max(self.tokens_until)
    }

    /// Return its remaining lifetime; zero once it has expired.
    pub fn time_left(&self, now: Now) -> Duration {
        Duration::from_millis(self.expires_at().saturating_sub(now.unix_millis()))
    }

    /// Return the generation, as an `ETag` (decision 11).
    pub fn etag(&self) -> String {
        format!("\"{}\"", self.generation)
    }

    /// Return the indices of the stored chunks.
    pub const fn indices(&self) -> &Indices {
        &self.indices
    }

    /// Return the final chunk; `None` until it is stored.
    pub const fn done(&self) -> Option<&FinalChunk> {
        self.done.as_ref()
    }

    /// Return whether every chunk up to the final one is stored, and the final one has no error.
    pub fn is_whole(&self) -> bool {
        self.done.as_ref().is_some_and(|done| !done.failed && self.indices.first_missing(0) > done.index)
    }

    /// Record when the key that was just set expires, in milliseconds since the Unix epoch, if it is a signed token.
    pub fn set_token(&mut self, until: Option<u64>) {
        self.write_until = until;
        self.tokens_until = self.tokens_until.max(until.unwrap_or(0));
    }

    /// Return the record that remains of a deleted job where tokens make jobs: it has no chunks, and its keys are not
    /// accepted. The buffer forgets it once every token that is valid now has expired.
    pub fn into_deleted(self, now: Now, limits: &Limits) -> Self {
        let until = now.unix_millis().saturating_add(limits.ttl).saturating_add(LEEWAY_MS);
        let (indices, tokens_until) = (Indices::new(), self.tokens_until.max(until));
        Self { indices, tokens_until, bytes: 0, done: None, storage: Storage::Deleted, ..self }
    }

    /// Mark the job as damaged, because its buffer has lost chunks or its progress: from now on writes and reads are
    /// refused with that reason.
    pub const fn set_lost(&mut self) {
        match self.storage {
            Storage::Intact => self.storage = Storage::Lost,
            Storage::Lost | Storage::Deleted => {}
        }
    }

    /// Return whether the buffer has lost nothing of it, as far as it knows.
    pub const fn is_intact(&self) -> bool {
        match self.storage {
            Storage::Intact | Storage::Deleted => true,
            Storage::Lost => false,
        }
    }

    /// Return whether it was deleted. A store keeps no chunks of a deleted job.
    pub const fn is_deleted(&self) -> bool {
        match self.storage {
            Storage::Intact | Storage::Lost => false,
            Storage::Deleted => true,
        }
    }

    /// Return whether its key is a signed token other than this one, so that a token signed later may replace it.
    pub fn has_other_token(&self, key: &str) -> bool {
        self.write_until.is_some() && !self.write_key.matches(key)
    }

    /// Replace the job's token by this one, whose signature was checked, unless the old one expires later. Return
    /// whether it was replaced.
    pub fn renew(&mut self, key: &str, until: u64) -> bool {
        let renews = self.has_other_token(key) && self.write_until.is_some_and(|before| before <= until);
        if renews {
            self.write_key = Digest::of(key.as_bytes());
            self.set_token(Some(until));
        }
        renews
    }

    fn is_writer(&self, now: Now, key: &str) -> bool {
        self.write_key.matches(key) && self.write_until.is_none_or(|until| now.unix_millis() < until)
    }

    fn check_known(&self) -> Result<()> {
        if self.is_deleted() { Err(Error::NotFound) } else { Ok(()) }
    }

    fn check_life(&self, now: Now) -> Result<()> {
        if self.state(now) == State::Expired {
            return Err(Error::Expired { ttl: self.ttl });
        }
        if self.is_intact() { Ok(()) } else { Err(Lost::Part.into()) }
    }

    /// Check that this key may write now. A buffer calls this before it reads a body.
    ///
    /// Fails with [`Unauthorized`](crate::Code::Unauthorized), or where the job was deleted, has expired or is damaged.
    pub fn check_writer(&self, now: Now, bearer: Option<&str>) -> Result<()> {
        self.check_known()?;
        // A wrong key is 401 also when the job has expired (decision 1).
        if !bearer.is_some_and(|key| self.is_writer(now, key)) {
            return Err(Error::Unauthorized);
        }
        self.check_life(now)
    }

    /// Check that this key may read: without a readKey anyone may, otherwise the readKey or the writeKey is needed
    /// (decision 9).
    ///
    /// Fails with [`Unauthorized`](crate::Code::Unauthorized), or where the job was deleted, has expired or is damaged.
    pub fn check_reader(&self, now: Now, bearer: Option<&str>) -> Result<()> {
        self.check_known()?;
        let known = |key| self.read_key.is_some_and(|read| read.matches(key)) || self.is_writer(now, key);
        if self.read_key.is_some() && !bearer.is_some_and(known) {
            return Err(Error::Unauthorized);
        }
        self.check_life(now)
    }

    /// Handle a PUT for an existing job: the same key changes nothing, another key is a conflict (decision 1).
    pub fn handle_create(&self, now: Now, bearer: Option<&str>) -> Result<()> {
        self.check_known()?;
        let key = bearer.ok_or(Error::Unauthorized)?;
        if !self.write_key.matches(key) {
            return Err(Conflict::Key.into());
        }
        self.check_writer(now, bearer)
    }

    /// Handle a PUT with `If-Match`: replace the key and begin a new generation (decision 11).
    ///
    /// Fails with [`PreconditionFailed`](crate::Code::PreconditionFailed) where the current generation is a different
    /// one.
    pub fn handle_take_over(
        &mut self,
        now: Now,
        bearer: Option<&str>,
        if_match: &str,
        new_key: Option<&str>,
    ) -> Result<()> {
        self.check_writer(now, bearer)?;
        let etag = self.etag();
        if !if_match.split(',').map(str::trim).any(|each| each == "*" || each == etag) {
            return Err(Error::Generation { etag });
        }
        let key = new_key.filter(|key| is_key(key)).ok_or(Malformed::NewKey)?;
        (self.write_key, self.write_until) = (Digest::of(key.as_bytes()), None);
        self.generation += 1;
        Ok(())
    }

    /// Handle a write; return which chunks are new. A write that fails changes nothing (section 7, decisions 2 and 3).
    pub fn handle_write(
        &mut self,
        now: Now,
        bearer: Option<&str>,
        batch: &Batch<'_>,
        limits: &Limits,
    ) -> Result<Written> {
        self.check_writer(now, bearer)?;
        let mut next = self.clone();
        let mut new = Vec::new();
        for (place, envelope) in batch.envelopes().iter().enumerate() {
            // The first write of an index wins, also within a batch.
            if !next.indices.insert(envelope.index) {
                continue;
            }
            new.push(place);
            let bytes = envelope.value.len() as u64;
            next.bytes = next.bytes.saturating_add(bytes);
            if !envelope.done {
                continue;
            }
            let done =
                FinalChunk { index: envelope.index, bytes, failed: envelope.error.is_some(), sha256: envelope.sha256 };
            if let Some(other) = next.done.replace(done) {
                return Err(Conflict::TwoEnds { first: other.index, second: envelope.index }.into());
            }
        }
        next.check_end()?;
        next.check_bytes(limits)?;
        *self = next;
        Ok(Written { duplicates: batch.envelopes().len() - new.len(), new, cancelled: self.cancelled })
    }

    fn check_end(&self) -> Result<()> {
        match (&self.done, self.indices.highest()) {
            (Some(done), Some(highest)) if highest > done.index => {
                Err(Conflict::BehindEnd { index: highest, done: done.index }.into())
            }
            (_, _) => Ok(()),
        }
    }

    fn check_bytes(&self, limits: &Limits) -> Result<()> {
        let last = self.done.as_ref().map_or(0, |done| done.bytes);
        limits.job_before_end().check(self.bytes.saturating_sub(last))?;
        Ok(limits.job().check(self.bytes)?)
    }

    /// Handle a poll; return the chunks of its answer (section 9, decision 8).
    pub fn handle_poll(&self, now: Now, bearer: Option<&str>, from: u64, limit: Option<u64>) -> Result<PollResult> {
        self.check_reader(now, bearer)?;
        let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        let first = u32::try_from(from).ok();
        let indices: Vec<u32> = first.map_or_else(Vec::new, |from| self.indices.iter_from(from).take(limit).collect());
        let next_index = indices.last().map_or(from, |last| u64::from(*last) + 1);
        let finished = self.done.as_ref().is_some_and(|done| from > u64::from(done.index));
        Ok(PollResult { indices, next_index, finished })
    }

    /// Return the end of the range that can be read in order from `from` on, before the first gap, and whether it
    /// includes the final chunk (decision 10).
    pub fn handle_follow(&self, now: Now, bearer: Option<&str>, from: u32) -> Result<(u32, bool)> {
        self.check_reader(now, bearer)?;
        let end = self.indices.first_missing(from);
        Ok((end, self.done.as_ref().is_some_and(|done| end > done.index)))
    }

    /// Return the answer to `GET .../status` (decision 10).
    pub fn handle_status(&self, now: Now, bearer: Option<&str>) -> Result<StatusBody> {
        self.check_reader(now, bearer)?;
        Ok(StatusBody {
            state: self.state(now),
            chunks: self.indices.count(),
            bytes: self.bytes,
            next_index: self.indices.highest().map_or(0, |highest| u64::from(highest) + 1),
            created_at: self.created_at,
            expires_at: self.expires_at(),
            cancelled: self.cancelled,
            sha256: self.done.as_ref().and_then(|done| done.sha256),
        })
    }

    /// Cancel the job for the consumer (decision 11): the next answer to a write says so. Return `false` if the job had
    /// ended before it was cancelled.
    ///
    /// A key is required (401 without one), even where reading needs none; the writeKey may cancel too.
    pub fn handle_cancel(&mut self, now: Now, bearer: Option<&str>) -> Result<bool> {
        self.check_known()?;
        let known = |key| self.read_key.is_some_and(|read| read.matches(key)) || self.is_writer(now, key);
        if !bearer.is_some_and(known) {
            return Err(Error::Unauthorized);
        }
        self.check_life(now)?;
        self.cancelled |= self.done.is_none();
        Ok(self.cancelled)
    }

    /// Handle a DELETE: the job and its chunks may be deleted (decision 10).
    pub fn handle_delete(&self, now: Now, bearer: Option<&str>) -> Result<()> {
        self.check_writer(now, bearer)
    }
}

impl From<StoredJob> for Job {
    fn from(stored: StoredJob) -> Self {
        let storage = match (stored.deleted, stored.lost) {
            (false, false) => Storage::Intact,
            (false, true) => Storage::Lost,
            // No buffer wrote both: a lost job cannot be deleted, and a deleted one has nothing that can be lost.
            (true, _) => Storage::Deleted,
        };
        Self {
            write_key: stored.write_key,
            write_until: stored.write_until,
            tokens_until: stored.tokens_until,
            read_key: stored.read_key,
            generation: stored.generation,
            created_at: stored.created_at,
            ttl: stored.ttl,
            indices: stored.indices,
            bytes: stored.bytes,
            done: stored.done,
            cancelled: stored.cancelled,
            storage,
        }
    }
}

impl From<Job> for StoredJob {
    fn from(job: Job) -> Self {
        let (deleted, lost) = match job.storage {
            Storage::Intact => (false, false),
            Storage::Lost => (false, true),
            Storage::Deleted => (true, false),
        };
        Self {
            write_key: job.write_key,
            write_until: job.write_until,
            tokens_until: job.tokens_until,
            deleted,
            read_key: job.read_key,
            generation: job.generation,
            created_at: job.created_at,
            ttl: job.ttl,
            indices: job.indices,
            bytes: job.bytes,
            done: job.done,
            cancelled: job.cancelled,
            lost,
        }
    }
}
