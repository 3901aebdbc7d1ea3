//! The payload of a completed job: read once to its end to check it and to learn its length; then streamed as the
//! client reads.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{BoxStream, try_unfold};
use penstock_io::memory::MemoryPermit;
use penstock_io::runtime::spawn_blocking;
use penstock_io::sync::lock;
use penstock_pimp::{Compression, Decoder, Digest, Envelope, Error, Job, JobId, Limits, Metadata};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::body::Broken;
use super::chunk_stream::{ChunkSource, Chunks, PIECE, largest};
use super::refused::{Refused, ended};

/// The largest payload that is inflated for a client that does not accept gzip. Other clients inflate it themselves.
const INFLATED: u64 = 256 << 20;
/// The part of a compressed value that is decoded in one step, because it can inflate to a thousand times its size.
const PART: usize = 1 << 10;
/// Inflated bytes are sent in frames of this size.
const FRAME: usize = 64 << 10;
/// The most inflated bytes that one part, and the frame before it, can add up to.
const STEP: u64 = 2 << 20;
/// How many payloads are read to their end at the same time to check them.
const READING: usize = 2;
/// How many checked payloads are cached.
const MAX_CHECKED: usize = 4_096;
/// How long a request waits for its turn to read a payload.
const WAIT: Duration = Duration::from_secs(10);

/// A payload that was checked.
#[derive(Debug, Clone)]
pub(super) struct Payload {
    /// The metadata without `meta`.
    pub(super) metadata: Metadata,
    /// Its length, inflated or not.
    pub(super) length: u64,
}

/// The result of checking a payload, and when it expires.
type CachedCheck = (Result<Payload, Error>, u64);

/// The name of a payload: its job and its `ETag`.
pub(super) type Name = (JobId, String);

/// A decoder of chunks that works in steps.
struct Unpacker {
    id: JobId,
    limits: Limits,
    decoder: Decoder,
    inflates: bool,
    chunks: VecDeque<Bytes>,
    value: String,
    at: usize,
    /// Set if this value is the last: the stated SHA-256 of the payload.
    last: Option<Option<Digest>>,
}

impl Unpacker {
    fn new(id: JobId, limits: &Limits, metadata: &Metadata, inflates: bool) -> Self {
        let compression = if inflates { metadata.compression } else { Compression::None };
        let decoder = Decoder::new(&Metadata { compression, ..metadata.clone() }, INFLATED);
        let (chunks, value, at, last) = (VecDeque::new(), String::new(), 0, None);
        Self { id, limits: limits.clone(), decoder, inflates, chunks, value, at, last }
    }

    /// Return the next bytes of the payload, up to a frame if it is inflated; none if more chunks are needed.
    fn step(&mut self) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        while !self.inflates || out.len() < FRAME {
            if self.at >= self.value.len() {
                let Some(chunk) = self.chunks.pop_front() else { break };
                let envelope = envelope(&chunk, self.id, &self.limits)?;
                if envelope.index == 0 {
                    continue;
                }
                self.last = envelope.done.then_some(envelope.sha256);
                (self.value, self.at) = (envelope.value.into_owned(), 0);
            }
            let end = if self.inflates { self.value.ceil_char_boundary(self.at + PART) } else { self.value.len() };
            self.decoder.push(self.value.get(self.at..end).unwrap_or_default(), &mut out)?;
            self.at = end;
            if self.at >= self.value.len()
                && let Some(sha256) = self.last.take()
            {
                self.decoder.finish(sha256.as_ref(), &mut out)?;
            }
        }
        Ok(out)
    }

    /// Return how many bytes the available chunks decode to.
    fn count(&mut self) -> Result<u64, Error> {
        let mut length = 0;
        loop {
            let bytes = self.step()?.len() as u64;
            length += bytes;
            if bytes == 0 {
                return Ok(length);
            }
        }
    }
}

fn envelope(chunk: &[u8], id: JobId, limits: &Limits) -> Result<Envelope<'static>, Error> {
    Envelope::decode(&String::from_utf8_lossy(chunk), id, limits)
}

/// The payloads of completed jobs, and the results of checking them.
pub(super) struct Payloads {
    source: Arc<ChunkSource>,
    /// Limits how many payloads are read to their end at the same time.
    reading: Semaphore,
    checked: Mutex<HashMap<Name, CachedCheck>>,
}

impl Payloads {
    pub(super) fn new(source: Arc<ChunkSource>) -> Self {
        Self { source, reading: Semaphore::new(READING), checked: Mutex::default() }
    }

    /// Return the checked payload of a complete job. The first request for it reads it to its end.
    pub(super) async fn checked(
        &self,
        name: Name,
        job: &Job,
        inflates: bool,
        peer: IpAddr,
    ) -> Result<Payload, Refused> {
        if let Some(checked) = self.cached(&name) {
            return Ok(checked?);
        }
        let Ok(Ok(_turn)) = timeout(WAIT, self.reading.acquire()).await else { return Err(Refused::Busy) };
        if let Some(checked) = self.cached(&name) {
            return Ok(checked?);
        }
        let found = match self.check(name.0, job, inflates, peer).await {
            Err(Refused::Pimp(error)) => Err(error),
            found => Ok(found?),
        };
        self.insert(name, (found.clone(), job.expires_at()));
        Ok(found?)
    }

    /// Forget the payloads of jobs that have expired by now.
    pub(super) fn sweep(&self, now: u64) {
        self.all().retain(|_, (_, until)| now < *until);
    }

    fn cached(&self, name: &Name) -> Option<Result<Payload, Error>> {
        self.all().get(name).map(|(checked, _)| checked.clone())
    }

    fn insert(&self, name: Name, checked: CachedCheck) {
        let mut all = self.all();
        if all.len() >= MAX_CHECKED {
            all.clear();
        }
        all.insert(name, checked);
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Name, CachedCheck>> {
        lock(&self.checked)
    }

    fn chunks(&self, id: JobId, job: &Job, peer: IpAddr) -> Chunks {
        self.source.chunks(id, peer, job.indices().iter_from(0).collect())
    }

    /// Read a payload to its end.
    async fn check(&self, id: JobId, job: &Job, inflates: bool, peer: IpAddr) -> Result<Payload, Refused> {
        let (mut chunks, limits) = (self.chunks(id, job, peer), self.source.jobs.limits());
        let (first, mut permit) = chunks.next().await?.ok_or(Error::NotFound)?;
        let metadata = first.first().map(|chunk| envelope(chunk, id, limits)).transpose()?.ok_or(Error::NotFound)?;
        let metadata = Metadata { meta: None, ..Metadata::decode(&metadata.value)? };
        let mut unpacker = Unpacker::new(id, limits, &metadata, inflates);
        unpacker.chunks.extend(first);
        let mut length = 0;
        loop {
            let working = spawn_blocking(move || unpacker.count().map(|bytes| (unpacker, bytes)))?;
            let (back, bytes) = working.await.map_err(ended)??;
            (unpacker, length) = (back, length + bytes);
            drop(permit);
            let Some((next, fresh)) = chunks.next().await? else { return Ok(Payload { metadata, length }) };
            unpacker.chunks.extend(next);
            permit = fresh;
        }
    }

    /// Return a range of the payload, read as the client reads it.
    pub(super) async fn stream(
        &self,
        id: JobId,
        job: &Job,
        payload: &Payload,
        inflates: bool,
        range: RangeInclusive<u64>,
        peer: IpAddr,
    ) -> Result<BoxStream<'static, Result<Bytes, Broken>>, Refused> {
        let inflates = inflates && payload.metadata.compression == Compression::Gzip;
        let limits = self.source.jobs.limits();
        let unpacker = Unpacker::new(id, limits, &payload.metadata, inflates);
        // Reserved once, because a request that holds inflated bytes must not wait for more memory.
        let most = PIECE.max(largest(limits)).saturating_add(limits.value).saturating_add(STEP);
        let permit = if inflates { Some(self.source.memory.reserve(peer, most).await?) } else { None };
        let streamed = StreamedRange { chunks: self.chunks(id, job, peer), unpacker, at: 0, range, permit };
        Ok(try_unfold(streamed, StreamedRange::next).boxed())
    }
}

/// A range of a payload that is being streamed.
struct StreamedRange {
    chunks: Chunks,
    unpacker: Unpacker,
    /// The position in the payload.
    at: u64,
    range: RangeInclusive<u64>,
    /// The memory for the inflated bytes, if it is inflated.
    permit: Option<MemoryPermit>,
}

impl StreamedRange {
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, Broken> {
        let mut permit = None;
        while self.at <= *self.range.end() {
            let mut unpacker = self.unpacker;
            let working =
                spawn_blocking(move || unpacker.step().map(|bytes| (unpacker, bytes))).map_err(Refused::from)?;
            let (back, bytes) = working.await.map_err(|error| Refused::from(ended(error)))?.map_err(Refused::from)?;
            self.unpacker = back;
            if bytes.is_empty() {
                if self.chunks.are_read() {
                    return Ok(None);
                }
                // Chunks before the range reuse the memory of the chunks before them, so a request that waits for
                // memory holds none.
                if self.permit.is_none() && permit.is_none() {
                    permit = Some(self.chunks.permit().await?);
                }
                self.unpacker.chunks.extend(self.chunks.read().await?);
                continue;
            }
            let begin = self.at;
            self.at += bytes.len() as u64;
            let place = |at: u64| usize::try_from(at.saturating_sub(begin)).unwrap_or(usize::MAX).min(bytes.len());
            let wanted = place(*self.range.start())..place(self.range.end().saturating_add(1));
            if wanted.is_empty() {
                continue;
            }
            // The memory of inflated bytes is in `self`. Bytes that are not inflated are all that their chunks decode
            // to, and carry their permit.
            let bytes = match permit.take() {
                Some(permit) => permit.holds(bytes),
                None => Bytes::from(bytes),
            };
            return Ok(Some((bytes.slice(wanted), self)));
        }
        Ok(None)
    }
}
