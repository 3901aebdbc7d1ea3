//! The sender, which writes a job: chunks, batches, retries and the end (section 8).

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::io::Write as _;
use std::time::Instant;

use flate2::write::GzEncoder;
use penstock_wire::{Backoff, later};
use sha2::{Digest as _, Sha256};

use crate::error::{Conflict, Error, Failure, Misuse, Result, Stalled, Unwritable};
use crate::metadata::is_textual;
use crate::response::Answer;
use crate::{Code, ContentEncoding, Digest, Envelope, JobId, Metadata, Now};

mod config;
mod conflict_check;
mod cut;
mod phase;
mod request;
mod split;

pub use config::{Encoding, SenderConfig};
use conflict_check::{ConflictProbe, ProbeOutcome};
use cut::cut;
use phase::Phase;
pub use request::Transmit;
use request::{Chunk, EncodedEnvelope, Request, Step};

/// An event of a sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SenderEvent {
    /// The buffer has the chunks up to this index.
    Written(u32),
    /// The consumer has cancelled the job. The job ends with an error chunk; nothing more can be sent.
    Cancelled,
    /// The final chunk is written.
    Finished,
}

/// The longest error text, in bytes, that every buffer accepts (`Limits::error`).
const REASON: usize = 64 << 10;

/// The compressor of a payload.
struct Gzip {
    encoder: GzEncoder<Vec<u8>>,
    // Whether the encoder got bytes since its last flush; it may be holding them back.
    pending: bool,
}

impl Gzip {
    fn new() -> Self {
        Self { encoder: GzEncoder::new(Vec::new(), flate2::Compression::default()), pending: false }
    }
}

/// The sender of a job.
///
/// ```text
///  send ─▶ waits ─ 10 whole chunks, 250 ms, flush or finish ─▶ poll_transmit ─▶ on its way ─┬─ 200, 201 ─▶ Written
///                                                                    ▲                      ├─ 429, 5xx, no answer
///                                                                    └─── after a pause ◀───┘
/// ```
///
/// Chunks that the buffer already had come from a retry, or from a writer from whom the job was taken over. The sender
/// reads them. Where they differ, it fails the job with a final chunk after them, and the caller gets
/// [`Conflict`](Code::Conflict).
///
/// Chunk 0 is sent first and alone (section 8). Small pieces are combined into chunks, so the number of chunks does not
/// depend on the number of pieces. One request is in flight at a time. After any call, call
/// [`poll_event`](Self::poll_event) until it returns `None`, then [`poll_transmit`](Self::poll_transmit) and
/// [`poll_timeout`](Self::poll_timeout).
pub struct Sender {
    job: JobId,
    config: SenderConfig,
    phase: Phase,
    // Fixed when chunk 0 is made, in any phase: a later change is forbidden (section 3).
    encoding: Option<ContentEncoding>,
    meta: Metadata,
    gzip: Option<Gzip>,
    // Bytes that are in no chunk yet, and how many of them are known to be UTF-8.
    waiting: Vec<u8>,
    checked: usize,
    since: Option<Instant>,
    // Whether the caller wants waiting bytes to be sent even if they fill no chunk.
    flush: bool,
    hasher: Sha256,
    total: u64,
    next: u32,
    request: Option<Request>,
    // Chunks cut off from requests that were too large.
    rest: VecDeque<EncodedEnvelope>,
    // The time since which writes have failed, and the last reason.
    failing: Option<(Instant, Failure)>,
    backoff: Backoff,
    // Whether some chunks were already stored. From then on, in any phase, each chunk is sent alone, so that no chunk
    // is written after another writer's chunk.
    one_by_one: bool,
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
    /// Make a sender that writes a job from chunk 0 on. Fails as a misuse where the configuration is contradictory.
    pub fn new(job: JobId, config: SenderConfig) -> Result<Self> {
        config.check()?;
        let meta = config.metadata(ContentEncoding::Base64)?;
        let gzip = config.gzip.then(Gzip::new);
        let backoff = Backoff::new(config.retry_interval, config.max_retry_interval);
        Ok(Self {
            job,
            config,
            phase: Phase::Open,
            encoding: None,
            meta,
            gzip,
            waiting: Vec::new(),
            checked: 0,
            since: None,
            flush: false,
            hasher: Sha256::new(),
            total: 0,
            next: 0,
            request: None,
            rest: VecDeque::new(),
            failing: None,
            backoff,
            one_by_one: false,
            events: VecDeque::new(),
        })
    }

    /// Return how many bytes are in no chunk yet, so that a caller can apply back-pressure.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Return whether a request has no answer yet: it is in flight, or will be retried after a pause.
    pub const fn is_asking(&self) -> bool {
        self.request.is_some()
    }

    /// Return whether a request was too large, and a part of it is still to be sent.
    pub fn is_split(&self) -> bool {
        !self.rest.is_empty()
    }

    fn check_open(&self) -> Result<()> {
        if let Some(error) = self.phase.error() {
            return Err(error.clone());
        }
        if self.phase.is_open() { Ok(()) } else { Err(Misuse::Ended.into()) }
    }

    /// Send bytes. The job fails where they are not UTF-8 although chunk 0 stated text (decision 4).
    ///
    /// Fails with [`Cancelled`](Code::Cancelled), with the buffer's rejection, or as a misuse after the end.
    pub fn send(&mut self, now: Now, bytes: &[u8]) -> Result<()> {
        self.check_open()?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.total = self.total.saturating_add(bytes.len() as u64);
        self.since.get_or_insert(now.instant);
        match &mut self.gzip {
            None => self.waiting.extend_from_slice(bytes),
            Some(Gzip { encoder: gzip, pending }) => {
                gzip.write_all(bytes).map_err(|error| Unwritable::Gzip { reason: error.to_string() })?;
                self.waiting.append(gzip.get_mut());
                *pending = true;
            }
        }
        if self.encoding == Some(ContentEncoding::Identity) && !self.is_text(false) {
            return Err(self.give_up(Misuse::NoText));
        }
        Ok(())
    }

    /// Send the bytes that wait, even if they fill no chunk.
    pub fn flush(&mut self) {
        self.flush = true;
    }

    /// End the payload. Its last chunk becomes the final one, or an empty one is added after it (section 8).
    ///
    /// Fails, and fails the job too, where the payload ends within a code point or differs from the stated length.
    pub fn finish(&mut self) -> Result<()> {
        self.check_open()?;
        if let Some(said) = self.config.content_length.filter(|said| *said != self.total) {
            return Err(self.give_up(Misuse::Length { expected: said, actual: self.total }));
        }
        if let Some(Gzip { encoder: gzip, .. }) = self.gzip.take() {
            let rest = gzip.finish().map_err(|error| Unwritable::Gzip { reason: error.to_string() })?;
            self.waiting.extend_from_slice(&rest);
        }
        if self.encoding == Some(ContentEncoding::Identity) && !self.is_text(true) {
            return Err(self.give_up(Misuse::CodePoint));
        }
        self.phase.finish();
        Ok(())
    }

    /// Fail the job because the payload cannot be made; the consumer gets the reason (section 11). Waiting bytes are
    /// dropped.
    pub fn fail(&mut self, why: &str) -> Result<()> {
        self.check_open()?;
        self.end_with(why, None);
        Ok(())
    }

    /// End the job with a final chunk that tells the consumer the reason; then the caller gets the error.
    fn end_with(&mut self, why: &str, error: Option<Error>) {
        self.waiting.clear();
        self.checked = 0;
        self.gzip = None;
        // A buffer would reject a longer text, and readers would get no reason at all.
        let end = why.floor_char_boundary(REASON);
        self.phase.fail(why.get(..end).unwrap_or_default().to_owned(), error);
    }

    fn give_up(&mut self, misuse: Misuse) -> Error {
        let why = misuse.to_string();
        let error = Error::from(misuse);
        self.end_with(&why, Some(error.clone()));
        error
    }

    /// Return whether the waiting bytes are UTF-8. A code point may be incomplete at their end, unless the payload ends
    /// there.
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

    /// Return the next request; `None` while one is in flight.
    pub fn poll_transmit(&mut self, now: Now) -> Result<Option<Transmit>> {
        if self.phase.is_over() {
            return Ok(None);
        }
        if let Some(request) = &mut self.request {
            let due = request.again.is_some_and(|at| at <= now.instant);
            return Ok(due.then(|| {
                request.again = None;
                request.transmit()
            }));
        }
        let (envelopes, first) = if self.rest.is_empty() { self.fresh(now)? } else { self.remaining() };
        if envelopes.is_empty() {
            return Ok(None);
        }
        let request = Request { envelopes, first, since: now.instant, again: None, step: Step::Write };
        Ok(Some(self.request.insert(request).transmit()))
    }

    /// Make the next chunks; return them and the index of the first.
    fn fresh(&mut self, now: Now) -> Result<(Vec<EncodedEnvelope>, u32)> {
        let chunks = match self.encoding {
            None => vec![self.first_chunk()?],
            Some(encoding) => self.next_chunks(now, encoding)?,
        };
        let first = self.next;
        let envelopes = self.envelopes(now, chunks)?;
        self.next = first.saturating_add(u32::try_from(envelopes.len()).unwrap_or(u32::MAX));
        Ok((envelopes, first))
    }

    /// Make chunk 0: from here on the encoding is fixed (section 3).
    fn first_chunk(&mut self) -> Result<Chunk> {
        let text = match self.config.encoding {
            Encoding::Auto => is_textual(&self.config.content_type) && !self.config.gzip,
            Encoding::Identity => true,
            Encoding::Base64 => false,
        };
        let end = !self.phase.is_open();
        let encoding = if text && self.is_text(end) { ContentEncoding::Identity } else { ContentEncoding::Base64 };
        self.encoding = Some(encoding);
        self.meta.content_encoding = encoding;
        Ok(Chunk::of(Cow::Owned(self.meta.encode()?)))
    }

    /// Return the chunks that may be sent now; the last of them is final if the payload has ended.
    fn next_chunks(&mut self, now: Now, encoding: ContentEncoding) -> Result<Vec<Chunk>> {
        let (ending, error) = match &self.phase {
            Phase::Open => (false, None),
            Phase::Whole => (true, None),
            Phase::Failing { why, .. } => (true, Some(why.clone())),
            Phase::Finished(_) | Phase::Broken(_) => return Ok(Vec::new()),
        };
        let all = ending || self.flush || self.due().is_some_and(|due| due <= now.instant);
        if all {
            self.flush_gzip()?;
        }
        let mut chunks = self.take_chunks(encoding, all, ending);
        if all || !chunks.is_empty() {
            let pending = self.gzip.as_ref().is_some_and(|gzip| gzip.pending);
            self.since = (!self.waiting.is_empty() || pending).then_some(now.instant);
        }
        if ending && self.waiting.is_empty() {
            match chunks.last_mut() {
                Some(last) => last.done = true,
                None => chunks.push(Chunk { value: Cow::Borrowed(""), done: true, error }),
            }
        }
        Ok(chunks)
    }

    /// Flush the bytes that the compressor holds back.
    fn flush_gzip(&mut self) -> Result<()> {
        let Some(Gzip { encoder: gzip, pending }) = &mut self.gzip else { return Ok(()) };
        if !std::mem::take(pending) {
            return Ok(());
        }
        gzip.flush().map_err(|error| Unwritable::Gzip { reason: error.to_string() })?;
        self.waiting.append(gzip.get_mut());
        Ok(())
    }

    /// Cut up to a batch of chunks from the waiting bytes: whole chunks once they fill a batch, or any bytes if `all`.
    fn take_chunks(&mut self, encoding: ContentEncoding, all: bool, ending: bool) -> Vec<Chunk> {
        let most = if self.one_by_one { 1 } else { self.config.max_chunks_per_batch };
        // An incomplete code point may leave 3 bytes for the next chunk.
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

    fn envelopes(&mut self, now: Now, chunks: Vec<Chunk>) -> Result<Vec<EncodedEnvelope>> {
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
            envelopes.push(EncodedEnvelope { bytes, done });
        }
        Ok(envelopes)
    }

    /// Return when the waiting bytes must be sent.
    fn due(&self) -> Option<Instant> {
        self.since.map(|since| later(since, self.config.flush_interval))
    }

    /// Return the next event.
    pub fn poll_event(&mut self) -> Option<SenderEvent> {
        self.events.pop_front()
    }

    /// Return when to call [`handle_timeout`](Self::handle_timeout), and then [`poll_transmit`](Self::poll_transmit).
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.phase.is_over() {
            return None;
        }
        let stalled = self.failing.as_ref().map(|(since, _)| later(*since, self.config.stall_timeout));
        match &self.request {
            Some(request) => request.again.into_iter().chain(stalled).min(),
            None => self.due(),
        }
    }

    /// Check for a stall. Fails with [`Stalled`](Code::Stalled) where no write succeeded for too long.
    pub fn handle_timeout(&mut self, now: Now) -> Result<()> {
        self.check_over()?;
        let timeout = self.config.stall_timeout;
        let due = self.failing.take_if(|(since, _)| now.instant >= later(*since, timeout));
        let Some((_, failure)) = due else { return Ok(()) };
        let index = self.request.as_ref().map_or(self.next, |request| request.first);
        self.over(Stalled::Write { index, timeout, failure }.into())
    }

    /// Fail with the error of a job that is over.
    fn check_over(&self) -> Result<()> {
        let error = self.phase.error().filter(|_| self.phase.is_over());
        error.cloned().map_or(Ok(()), Err)
    }

    fn over(&mut self, error: Error) -> Result<()> {
        self.phase.break_with(error.clone());
        self.waiting.clear();
        Err(error)
    }

    /// Retry a request that could not be made, or whose answer was lost. Repeating it is safe (section 7).
    pub fn handle_failure(&mut self, now: Now, why: &str) {
        self.retry(now, Failure::Request(why.to_owned()));
    }

    fn retry(&mut self, now: Now, failure: Failure) {
        let Some(request) = &mut self.request else { return };
        request.again = Some(later(now.instant, self.backoff.advance()));
        let since = self.failing.as_ref().map_or(request.since, |(since, _)| *since);
        self.failing = Some((since, failure));
    }

    /// Handle the buffer's answer.
    ///
    /// 429 and 5xx are retried, and after 413 batches are smaller. If a single chunk gets 413, a final chunk tells the
    /// consumer why (buffers reserve room for it, decision 3), and then this fails. Any other rejection is final.
    pub fn handle_response(&mut self, now: Now, status: u16, body: &[u8]) -> Result<()> {
        self.check_over()?;
        let probes = self.request.as_ref().is_some_and(Request::is_probe);
        match status {
            200 if probes => self.probed(now, body),
            200 | 201 if !probes => self.taken(now, status, &Answer::decode(body)),
            429 | 500..=599 => {
                self.retry(now, Failure::Status(status));
                Ok(())
            }
            _ => self.rejected(now, status, body),
        }
    }

    /// Handle a write that the buffer has accepted; it may have had some of the chunks before.
    fn taken(&mut self, now: Now, status: u16, answer: &Answer) -> Result<()> {
        let Some(request) = &mut self.request else { return Ok(()) };
        self.failing = None;
        self.backoff.reset();
        let had_some = answer.duplicates > 0 || (status == 200 && answer.written < request.envelopes.len() as u64);
        // A cancelled job sends only an error chunk from now on, unless this request has its final chunk.
        let cancels = answer.cancelled && !request.is_final();
        self.one_by_one |= had_some;
        if had_some && !cancels {
            let probe = match ConflictProbe::compare(&request.body(), self.job) {
                Ok(probe) => probe,
                Err(error) => return self.over(error),
            };
            request.probe(now.instant, probe);
            return Ok(());
        }
        self.written()?;
        if cancels {
            self.drop_rest();
            self.end_with("cancelled by the consumer", Some(Error::Cancelled));
            self.events.push_back(SenderEvent::Cancelled);
        }
        Ok(())
    }

    fn written(&mut self) -> Result<()> {
        let Some(request) = self.request.take() else { return Ok(()) };
        self.events.push_back(SenderEvent::Written(request.last()));
        if !request.is_final() {
            return Ok(());
        }
        self.phase.final_chunk_written();
        self.events.push_back(SenderEvent::Finished);
        self.check_over()
    }

    /// Handle the answer to a probe.
    fn probed(&mut self, now: Now, body: &[u8]) -> Result<()> {
        let Some(request) = &mut self.request else { return Ok(()) };
        let Step::Probe(probe) = &mut request.step else { return Ok(()) };
        match probe.handle_response(body) {
            Ok(ProbeOutcome::Same) => {
                self.failing = None;
                self.backoff.reset();
                self.written()
            }
            Ok(ProbeOutcome::Partial) => {
                self.failing = None;
                self.backoff.reset();
                request.again = Some(now.instant);
                Ok(())
            }
            Ok(ProbeOutcome::Missing(index)) => {
                self.retry(now, Failure::Withheld { index });
                Ok(())
            }
            Ok(ProbeOutcome::Different { index, end }) => self.displaced(index, end),
            Err(error) => self.over(error),
        }
    }

    /// Fail the job because another writer's chunk has our index. An earlier reason for failing takes precedence.
    fn fail_displaced(&mut self, index: u32, error: Option<Error>) -> Error {
        let conflict = Conflict::Writer { index };
        let why = conflict.to_string();
        let error = error.unwrap_or_else(|| conflict.into());
        match &self.phase {
            Phase::Open | Phase::Whole => self.end_with(&why, Some(error.clone())),
            Phase::Failing { .. } | Phase::Finished(_) | Phase::Broken(_) => {}
        }
        self.phase.error().cloned().unwrap_or(error)
    }

    /// Move the final chunk after another writer's chunks, once, unless one of them has already ended the job.
    fn displaced(&mut self, index: u32, end: Option<u32>) -> Result<()> {
        self.request = None;
        self.drop_rest();
        let error = self.fail_displaced(index, None);
        let Some(end) = end.filter(|_| self.phase.may_move()) else { return self.over(error) };
        self.phase.move_behind();
        self.next = end;
        Ok(())
    }

    fn rejected(&mut self, now: Now, status: u16, body: &[u8]) -> Result<()> {
        let Some(request) = &mut self.request else { return Ok(()) };
        let first = request.first;
        let error = Error::of_response(format!("chunk {first}"), status, body);
        if let Some(refused) = self.phase.error() {
            let refused = refused.clone();
            return self.over(refused);
        }
        if request.is_probe() {
            return self.over(error);
        }
        if error.code() == Code::Conflict && self.phase.may_move() {
            // Another writer has chunks after our final chunk, which then must move after them, or has ended the job.
            request.probe(now.instant, ConflictProbe::find_end(self.job, first));
            self.fail_displaced(first, Some(error));
        } else if error.code() == Code::TooLarge && request.envelopes.len() > 1 {
            self.split(now);
        } else if error.code() == Code::TooLarge && first > 0 {
            // The chunk was not stored, so the final chunk takes its index.
            self.request = None;
            self.drop_rest();
            self.next = first;
            self.end_with("the job is larger than the buffer allows", Some(error));
        } else {
            return self.over(error);
        }
        Ok(())
    }
}
