//! Who writes a job: chunks, batches, retries and the end (section 8).

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::io::Write as _;
use std::time::Instant;

use flate2::write::GzEncoder;
use penstock_wire::Backoff;
use sha2::{Digest as _, Sha256};

use crate::error::{Conflict, Error, Misuse, Result, Stalled, Trouble, Unwritable};
use crate::metadata::is_textual;
use crate::response::Answer;
use crate::{Code, ContentEncoding, Digest, Envelope, JobId, Metadata, Now, Poll};

mod config;
mod cut;
mod look;
mod request;
mod split;

pub use config::{Encoding, SenderConfig};
use cut::cut;
use look::{Look, Seen};
use request::{Chunk, Request};

/// What a sender learns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SenderEvent {
    /// The buffer has the chunks up to this index.
    Written(u32),
    /// The consumer wants no more. The job ends with an error chunk; nothing more can be sent.
    Cancelled,
    /// The final chunk is written.
    Finished,
}

/// What is to be asked of the buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transmit {
    /// `POST {job}/chunks` with this body.
    Write(Vec<u8>),
    /// A poll, by the writeKey: chunks were there already, and it counts whose they are.
    Look(Poll),
}

/// Bytes of the text of an error that every buffer takes (`Limits::error`).
const REASON: usize = 64 << 10;

/// Where a sender is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    /// More may come.
    Open,
    /// The final chunk is still to be written, with this error.
    Ending(Option<String>),
    /// The final chunk is written.
    Finished,
}

/// The sender of a job.
///
/// ```text
///  send ─▶ waits ─ 10 whole chunks, 250 ms, flush or finish ─▶ poll_transmit ─▶ on its way ─┬─ 200, 201 ─▶ Written
///                                                                    ▲                      ├─ 429, 5xx, no answer
///                                                                    └─── after a pause ◀───┘
/// ```
///
/// Chunks that the buffer had already are a retry's, or those of a writer from whom the job was taken over: they are read, and where
/// they are not the same the job is failed behind them, with [`Conflict`](Code::Conflict) to the caller.
///
/// Chunk 0 goes first and alone (section 8). What is sent in small pieces is put together into chunks, so the number of chunks
/// does not depend on the number of pieces. One request is on its way at a time. After any call, [`poll_event`](Self::poll_event)
/// until it gives none, then [`poll_transmit`](Self::poll_transmit) and [`poll_timeout`](Self::poll_timeout).
pub struct Sender {
    job: JobId,
    config: SenderConfig,
    // Decided when chunk 0 goes: switching later is forbidden (section 3).
    encoding: Option<ContentEncoding>,
    meta: Metadata,
    gzip: Option<GzEncoder<Vec<u8>>>,
    // Bytes that are in no chunk yet, and how many of them are known to be UTF-8.
    waiting: Vec<u8>,
    checked: usize,
    since: Option<Instant>,
    // Whether the compressor was given something since it last said everything.
    unpacked: bool,
    flush: bool,
    hasher: Sha256,
    total: u64,
    next: u32,
    phase: Phase,
    request: Option<Request>,
    // What was cut off requests that were too large, and whether the last of it is the final chunk.
    rest: VecDeque<Vec<u8>>,
    rest_done: bool,
    troubled: Option<(Instant, Trouble)>,
    backoff: Backoff,
    // Why it fails, once the final chunk has told the consumer.
    refused: Option<Error>,
    // Whether chunks were there already: then each goes alone, so that none is written behind another writer's.
    careful: bool,
    // Whether the final chunk has its place behind those of another writer.
    moved: bool,
    cancelled: bool,
    failed: Option<Error>,
    events: VecDeque<SenderEvent>,
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("job", &self.job)
            .field("next", &self.next)
            .field("phase", &self.phase)
            .finish_non_exhaustive()
    }
}

impl Sender {
    /// A sender of a job of which nothing is written yet. Fails as a misuse where the configuration makes no sense.
    pub fn new(job: JobId, config: SenderConfig) -> Result<Self> {
        config.check()?;
        let meta = config.metadata(ContentEncoding::Base64)?;
        let gzip = config.gzip.then(|| GzEncoder::new(Vec::new(), flate2::Compression::default()));
        let backoff = Backoff::new(config.retry_interval, config.max_retry_interval);
        Ok(Self {
            job,
            config,
            encoding: None,
            meta,
            gzip,
            waiting: Vec::new(),
            checked: 0,
            since: None,
            unpacked: false,
            flush: false,
            hasher: Sha256::new(),
            total: 0,
            next: 0,
            phase: Phase::Open,
            request: None,
            rest: VecDeque::new(),
            rest_done: false,
            troubled: None,
            backoff,
            refused: None,
            careful: false,
            moved: false,
            cancelled: false,
            failed: None,
            events: VecDeque::new(),
        })
    }

    /// Bytes that wait, so that a caller can wait too.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether a request has no answer yet: it is on its way, or goes again after a pause.
    pub const fn is_asking(&self) -> bool {
        self.request.is_some()
    }

    /// Whether a request was too large, and a part of it is still to be asked.
    pub fn is_split(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Whether the final chunk is written.
    pub fn is_finished(&self) -> bool {
        self.phase == Phase::Finished
    }

    fn check_open(&self) -> Result<()> {
        if let Some(error) = self.failed.as_ref().or(self.refused.as_ref()) {
            return Err(error.clone());
        }
        match self.phase {
            Phase::Open => Ok(()),
            Phase::Ending(_) | Phase::Finished => Err(Misuse::Ended.into()),
        }
    }

    /// Sends bytes. The job fails where they are no UTF-8 and chunk 0 has said that they are (decision 4).
    ///
    /// Fails with [`Cancelled`](Code::Cancelled), with what the buffer refused, or as a misuse after the end.
    pub fn send(&mut self, now: Now, bytes: &[u8]) -> Result<()> {
        self.check_open()?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.total = self.total.saturating_add(bytes.len() as u64);
        self.since.get_or_insert(now.instant);
        match &mut self.gzip {
            None => self.waiting.extend_from_slice(bytes),
            Some(gzip) => {
                gzip.write_all(bytes).map_err(|error| Unwritable::Gzip { reason: error.to_string() })?;
                self.waiting.append(gzip.get_mut());
                self.unpacked = true;
            }
        }
        if self.encoding == Some(ContentEncoding::Identity) && !self.is_text(false) {
            return Err(self.give_up(Misuse::NoText));
        }
        Ok(())
    }

    /// Lets what was sent so far go, though it fills no chunk.
    pub fn flush(&mut self) {
        self.flush = true;
    }

    /// The payload is whole. The last chunk is done, or an empty one behind it (section 8).
    ///
    /// Fails, and the job too, where the payload ends within a code point or is not as long as was said.
    pub fn finish(&mut self) -> Result<()> {
        self.check_open()?;
        if let Some(said) = self.config.content_length.filter(|said| *said != self.total) {
            return Err(self.give_up(Misuse::Length { expected: said, actual: self.total }));
        }
        if let Some(gzip) = self.gzip.take() {
            let rest = gzip.finish().map_err(|error| Unwritable::Gzip { reason: error.to_string() })?;
            self.waiting.extend_from_slice(&rest);
            self.unpacked = false;
        }
        if self.encoding == Some(ContentEncoding::Identity) && !self.is_text(true) {
            return Err(self.give_up(Misuse::CodePoint));
        }
        self.phase = Phase::Ending(None);
        Ok(())
    }

    /// The payload cannot be made: the consumer is told why (section 11). What waits is dropped.
    pub fn fail(&mut self, why: &str) -> Result<()> {
        self.check_open()?;
        self.end_with(why);
        Ok(())
    }

    fn end_with(&mut self, why: &str) {
        self.waiting.clear();
        self.checked = 0;
        // Nor does the compressor say any more.
        (self.gzip, self.unpacked) = (None, false);
        // A longer one would be refused, and readers would not learn it at all.
        let end = why.floor_char_boundary(REASON);
        self.phase = Phase::Ending(Some(why.get(..end).unwrap_or_default().to_owned()));
    }

    fn give_up(&mut self, misuse: Misuse) -> Error {
        self.end_with(&misuse.to_string());
        let error = Error::from(misuse);
        self.refused = Some(error.clone());
        error
    }

    /// Whether what waits is UTF-8; a code point may be cut at its end, unless that is the payload's.
    fn is_text(&mut self, end: bool) -> bool {
        match std::str::from_utf8(self.waiting.get(self.checked..).unwrap_or_default()) {
            Ok(text) => self.checked += text.len(),
            Err(error) => {
                self.checked += error.valid_up_to();
                return !end && error.error_len().is_none();
            }
        }
        true
    }

    /// The next request; none while one is on its way.
    pub fn poll_transmit(&mut self, now: Now) -> Result<Option<Transmit>> {
        if self.failed.is_some() {
            return Ok(None);
        }
        if let Some(request) = &mut self.request {
            let due = request.again.is_some_and(|at| at <= now.instant);
            return Ok(due.then(|| {
                request.again = None;
                request.transmit()
            }));
        }
        let (envelopes, first, done) = if self.rest.is_empty() { self.fresh(now)? } else { self.remaining() };
        let Ok(count) = u32::try_from(envelopes.len()) else { return Ok(None) };
        if count == 0 {
            return Ok(None);
        }
        let (last, since) = (first.saturating_add(count - 1), now.instant);
        let request = Request { envelopes, first, last, done, since, again: None, look: None };
        Ok(Some(self.request.insert(request).transmit()))
    }

    /// The next chunks, the index of the first, and whether the last is the final one.
    fn fresh(&mut self, now: Now) -> Result<(Vec<Vec<u8>>, u32, bool)> {
        let chunks = match self.encoding {
            None => vec![self.first_chunk()?],
            Some(encoding) => self.next_chunks(now, encoding)?,
        };
        let (done, first) = (chunks.last().is_some_and(|last| last.done), self.next);
        let envelopes = self.envelopes(now, chunks)?;
        self.next = first.saturating_add(u32::try_from(envelopes.len()).unwrap_or(u32::MAX));
        Ok((envelopes, first, done))
    }

    /// Chunk 0: from here on the encoding stays (section 3).
    fn first_chunk(&mut self) -> Result<Chunk> {
        let text = match self.config.encoding {
            Encoding::Auto => is_textual(&self.config.content_type) && !self.config.gzip,
            Encoding::Identity => true,
            Encoding::Base64 => false,
        };
        let end = self.phase != Phase::Open;
        let encoding = if text && self.is_text(end) { ContentEncoding::Identity } else { ContentEncoding::Base64 };
        self.encoding = Some(encoding);
        self.meta.content_encoding = encoding;
        Ok(Chunk::of(Cow::Owned(self.meta.encode()?)))
    }

    /// The chunks that may go now, the last of them done where the payload is at its end.
    fn next_chunks(&mut self, now: Now, encoding: ContentEncoding) -> Result<Vec<Chunk>> {
        let (ending, error) = match &self.phase {
            Phase::Open => (false, None),
            Phase::Ending(error) => (true, error.clone()),
            Phase::Finished => return Ok(Vec::new()),
        };
        let all = ending || self.flush || self.due().is_some_and(|due| due <= now.instant);
        if all && self.unpacked {
            self.unpack()?;
        }
        let mut chunks = self.take_chunks(encoding, all, ending);
        if all || !chunks.is_empty() {
            self.since = (!self.waiting.is_empty() || self.unpacked).then_some(now.instant);
        }
        if ending && self.waiting.is_empty() {
            match chunks.last_mut() {
                Some(last) => last.done = true,
                None => chunks.push(Chunk { value: Cow::Borrowed(""), done: true, error }),
            }
        }
        Ok(chunks)
    }

    /// Lets the compressor say what it holds back.
    fn unpack(&mut self) -> Result<()> {
        self.unpacked = false;
        let Some(gzip) = &mut self.gzip else { return Ok(()) };
        gzip.flush().map_err(|error| Unwritable::Gzip { reason: error.to_string() })?;
        self.waiting.append(gzip.get_mut());
        Ok(())
    }

    /// Cuts what waits: whole chunks once enough of them are there, everything if `all`.
    fn take_chunks(&mut self, encoding: ContentEncoding, all: bool, ending: bool) -> Vec<Chunk> {
        let most = if self.careful { 1 } else { self.config.max_chunks_per_batch };
        // A code point that is cut may leave 3 bytes to the next chunk.
        let (whole, left) = match encoding {
            ContentEncoding::Identity => (self.config.max_chunk, 3),
            ContentEncoding::Base64 => (self.config.max_chunk / 4 * 3, 0),
        };
        let mut chunks = Vec::new();
        if !all && self.waiting.len() < whole.saturating_mul(most).saturating_add(left) {
            return chunks;
        }
        let mut taken = 0;
        while chunks.len() < most {
            let rest = self.waiting.get(taken..).unwrap_or_default();
            let Some((value, bytes)) = cut(rest, whole, encoding, ending) else { break };
            taken += bytes;
            chunks.push(Chunk::of(value));
        }
        self.hasher.update(self.waiting.get(..taken).unwrap_or_default());
        self.waiting.drain(..taken.min(self.waiting.len()));
        self.checked = self.checked.saturating_sub(taken);
        self.flush &= self.waiting.len() >= whole;
        chunks
    }

    fn envelopes(&mut self, now: Now, chunks: Vec<Chunk>) -> Result<Vec<Vec<u8>>> {
        let mut envelopes = Vec::with_capacity(chunks.len());
        for (index, Chunk { value, done, error }) in (self.next..).zip(chunks) {
            let whole = done && error.is_none();
            let envelope = Envelope {
                job_id: self.job,
                index,
                value,
                done,
                error: error.map(Cow::Owned),
                created_at: now.unix_millis(),
                sha256: whole.then(|| Digest::finish(std::mem::take(&mut self.hasher))),
            };
            let mut bytes = Vec::new();
            envelope.encode(&mut bytes)?;
            envelopes.push(bytes);
        }
        Ok(envelopes)
    }

    /// When what waits has waited long enough.
    fn due(&self) -> Option<Instant> {
        self.since.map(|since| since + self.config.flush_interval)
    }

    /// What was learnt.
    pub fn poll_event(&mut self) -> Option<SenderEvent> {
        self.events.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout), and then [`poll_transmit`](Self::poll_transmit), want to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.failed.is_some() || self.is_finished() {
            return None;
        }
        let stalled = self.troubled.as_ref().map(|(since, _)| *since + self.config.stall_timeout);
        match &self.request {
            Some(request) => request.again.into_iter().chain(stalled).min(),
            None => self.due(),
        }
    }

    /// Time has passed. Fails with [`Stalled`](Code::Stalled) where nothing could be written for too long.
    pub fn handle_timeout(&mut self, now: Now) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let timeout = self.config.stall_timeout;
        let due = self.troubled.take_if(|(since, _)| now.instant >= *since + timeout);
        let Some((_, trouble)) = due else { return Ok(()) };
        let index = self.request.as_ref().map_or(self.next, |request| request.first);
        self.over(Stalled::Write { index, timeout, trouble }.into())
    }

    fn over(&mut self, error: Error) -> Result<()> {
        self.failed = Some(error.clone());
        self.waiting.clear();
        Err(error)
    }

    /// The request could not be made, or its answer did not come: it goes again, which is safe (section 7).
    pub fn handle_failure(&mut self, now: Now, why: &str) {
        self.retry(now, Trouble::Request(why.to_owned()));
    }

    fn retry(&mut self, now: Now, trouble: Trouble) {
        let Some(request) = &mut self.request else { return };
        request.again = Some(now.instant + self.backoff.advance());
        let since = self.troubled.as_ref().map_or(request.since, |(since, _)| *since);
        self.troubled = Some((since, trouble));
    }

    /// The answer of the buffer.
    ///
    /// 429 and 5xx go again, and after 413 smaller batches. After a chunk that is 413 alone the consumer is told why by a final chunk, for
    /// which buffers keep room (decision 3), and then this fails. Any other refusal is final.
    pub fn handle_response(&mut self, now: Now, status: u16, body: &[u8]) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let looking = self.request.as_ref().is_some_and(|request| request.look.is_some());
        match status {
            200 if looking => self.looked(now, body),
            200 | 201 if !looking => self.taken(now, status, &Answer::decode(body)),
            429 | 500..=599 => {
                self.retry(now, Trouble::Status(status));
                Ok(())
            }
            _ => self.rejected(now, status, body),
        }
    }

    /// The buffer has the request's chunks; some of them it had already, perhaps.
    fn taken(&mut self, now: Now, status: u16, answer: &Answer) -> Result<()> {
        let Some(request) = &mut self.request else { return Ok(()) };
        self.troubled = None;
        self.backoff.reset();
        let count = u64::from(request.last - request.first) + 1;
        let had_some = answer.duplicates > 0 || (status == 200 && answer.written < count);
        let cancels = answer.cancelled && !self.cancelled && !request.done;
        // A job that is cancelled ends anyhow.
        self.careful |= had_some;
        if had_some && !cancels {
            let look = match Look::compare(&request.body(), self.job) {
                Ok(look) => look,
                Err(error) => return self.over(error),
            };
            (request.look, request.again) = (Some(look), Some(now.instant));
            return Ok(());
        }
        self.written()?;
        if cancels {
            self.cancelled = true;
            self.drop_rest();
            self.end_with("cancelled by the consumer");
            self.refused = Some(Error::Cancelled);
            self.events.push_back(SenderEvent::Cancelled);
        }
        Ok(())
    }

    fn written(&mut self) -> Result<()> {
        let Some(request) = self.request.take() else { return Ok(()) };
        self.events.push_back(SenderEvent::Written(request.last));
        if !request.done {
            return Ok(());
        }
        self.phase = Phase::Finished;
        self.events.push_back(SenderEvent::Finished);
        self.refused.take().map_or(Ok(()), |error| self.over(error))
    }

    /// What the buffer has in the place of the request's chunks.
    fn looked(&mut self, now: Now, body: &[u8]) -> Result<()> {
        let Some(look) = self.request.as_mut().and_then(|request| request.look.as_mut()) else { return Ok(()) };
        match look.handle_response(body) {
            Ok(Seen::Same) => {
                self.troubled = None;
                self.backoff.reset();
                self.written()
            }
            Ok(Seen::Part) => {
                self.troubled = None;
                self.backoff.reset();
                if let Some(request) = &mut self.request {
                    request.again = Some(now.instant);
                }
                Ok(())
            }
            Ok(Seen::Nothing(index)) => {
                self.retry(now, Trouble::Withheld { index });
                Ok(())
            }
            Ok(Seen::Other { index, end }) => self.displaced(index, end),
            Err(error) => self.over(error),
        }
    }

    /// Where chunks should be, another writer's are. The job can only fail: behind them, unless it has ended.
    fn displaced(&mut self, index: u32, end: Option<u32>) -> Result<()> {
        self.request = None;
        self.drop_rest();
        let conflict = Conflict::Writer { index };
        let why = conflict.to_string();
        let error = self.refused.take().unwrap_or_else(|| conflict.into());
        let Some(end) = end.filter(|_| !self.moved) else { return self.over(error) };
        self.moved = true;
        self.next = end;
        // Who fails the job has a reason of his own, and nothing more to learn.
        if !matches!(self.phase, Phase::Ending(Some(_))) {
            self.end_with(&why);
            self.refused = Some(error);
        }
        Ok(())
    }

    fn rejected(&mut self, now: Now, status: u16, body: &[u8]) -> Result<()> {
        let Some(request) = &mut self.request else { return Ok(()) };
        let first = request.first;
        let error = Error::of_response(format!("chunk {first}"), status, body);
        let looking = request.look.is_some();
        if let Some(refused) = self.refused.take() {
            return self.over(refused);
        }
        if error.code() == Code::Conflict && !looking && !self.moved {
            // Chunks of another writer are above the final chunk: it goes behind them.
            request.look = Some(Look::end(self.job, first));
            request.again = Some(now.instant);
        } else if error.code() == Code::TooLarge && !looking && request.envelopes.len() > 1 {
            self.split(now);
            return Ok(());
        } else if error.code() == Code::TooLarge && !looking && first > 0 {
            // It was not taken: its index is the final chunk's.
            self.request = None;
            self.drop_rest();
            self.next = first;
            self.end_with("the job is larger than the buffer allows");
        } else {
            return self.over(error);
        }
        self.refused = Some(error);
        Ok(())
    }
}
