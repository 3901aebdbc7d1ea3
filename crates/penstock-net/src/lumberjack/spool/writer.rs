//! The thread that makes batches durable, a group at a time.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::format::{Encoder, Entry, Sent, footer};
use super::index::Segment;
use super::recent::Recent;
use super::{Ack, Counters, Keep, Position, Shared, SpoolOptions, Store, folder, lock, objects};
use crate::lumberjack::Delivery;
use crate::{Error, Result};

/// Octets of a group, and batches: what comes meanwhile is in the next one.
const GROUP_BYTES: usize = 16 << 20;
const GROUP: usize = 4_096;

/// A batch, and whom to tell when it is safe.
pub(super) struct Message {
    pub(super) delivery: Delivery,
    pub(super) safe: oneshot::Sender<Result<()>>,
}

/// Where octets become durable.
pub(super) trait Target: std::fmt::Debug + Send {
    /// Makes octets durable at a place in a segment, which begins at 0. What a failed call has left there may be
    /// overwritten.
    fn write(&mut self, segment: u64, at: u64, octets: &[u8]) -> Result<()>;

    /// Whether a segment is written at once, and never added to.
    fn is_whole(&self) -> bool;
}

/// What a target had when it was opened.
pub(super) struct Opened {
    pub(super) target: Box<dyn Target>,
    pub(super) shared: Arc<Shared>,
    pub(super) store: Arc<dyn Store>,
    pub(super) recent: Recent,
    pub(super) next: u64,
}

pub(super) struct Writer {
    options: SpoolOptions,
    encoder: Encoder,
    target: Box<dyn Target>,
    shared: Arc<Shared>,
    recent: Recent,
    /// The segment that is written, and when it was begun.
    segment: u64,
    length: u64,
    began: Option<Instant>,
    /// Added to the numbers of connections, which begin anew in every process.
    epoch: u64,
    /// The octets of a group, whose memory the next one has again: fresh memory costs more than what is copied into it.
    octets: Vec<u8>,
}

/// What becomes of a batch when its group is durable.
struct Pending {
    safe: oneshot::Sender<Result<()>>,
    sent: Sent,
    /// Where its last event is, if that was taken before.
    seen: Option<Position>,
    entry: Option<Entry>,
    duplicates: usize,
}

impl Writer {
    pub(super) fn open(options: SpoolOptions) -> Result<(Self, Arc<Shared>, Arc<dyn Store>)> {
        let opened = match &options.keep {
            Keep::Folder(folder) => folder::open(folder, options.ack)?,
            Keep::Objects(place) => objects::open(place, options.ack)?,
        };
        Self::with(options, opened)
    }

    pub(super) fn with(mut options: SpoolOptions, opened: Opened) -> Result<(Self, Arc<Shared>, Arc<dyn Store>)> {
        let Opened { target, shared, store, recent, next } = opened;
        // Only whole segments are removed, and the last two are kept: so all of them must be smaller than the spool.
        options.segment_bytes = options.segment_bytes.min(options.max_bytes / 4);
        let writer = Self {
            encoder: Encoder::new()?,
            target,
            shared: Arc::clone(&shared),
            recent,
            segment: next,
            length: 0,
            began: None,
            epoch: fastrand::u64(..),
            octets: Vec::new(),
            options,
        };
        Ok((writer, shared, store))
    }

    /// Runs until nobody can send any more.
    pub(super) fn run(mut self, inbox: &Receiver<Message>) {
        loop {
            let first = match self.due() {
                None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(due) => inbox.recv_timeout(due),
            };
            match first {
                Ok(first) => self.groups(first, inbox),
                Err(RecvTimeoutError::Timeout) => self.seal(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.seal();
    }

    /// How long the open segment may still stay so.
    fn due(&self) -> Option<Duration> {
        self.began.map(|began| self.options.segment_age.saturating_sub(began.elapsed()))
    }

    /// Takes what is there, in groups.
    fn groups(&mut self, first: Message, inbox: &Receiver<Message>) {
        let until = self.target.is_whole().then(|| Instant::now() + self.options.linger);
        let mut next = Some(first);
        while let Some(first) = next.take() {
            let mut octets = first.delivery.octets;
            let mut group = vec![first];
            while octets < GROUP_BYTES && group.len() < GROUP {
                let message = match until {
                    None => inbox.try_recv().ok(),
                    Some(until) => inbox.recv_timeout(until.saturating_duration_since(Instant::now())).ok(),
                };
                let Some(message) = message else { break };
                // What is sent again is compared with what is durable, so its first sending must be.
                let again = |other: &Message| {
                    other.delivery.sender == message.delivery.sender
                        && (message.delivery.gone || other.delivery.connection != message.delivery.connection)
                };
                if self.options.dedup && group.iter().any(again) {
                    next = Some(message);
                    break;
                }
                octets = octets.saturating_add(message.delivery.octets);
                group.push(message);
            }
            self.commit(group);
        }
    }

    /// Makes a group durable, and says so.
    fn commit(&mut self, group: Vec<Message>) {
        let mut octets = std::mem::take(&mut self.octets);
        octets.clear();
        self.commit_into(group, &mut octets);
        octets.shrink_to(2 * GROUP_BYTES);
        self.octets = octets;
    }

    fn commit_into(&mut self, group: Vec<Message>, octets: &mut Vec<u8>) {
        let mut pending = Vec::with_capacity(group.len());
        let fresh = self.length == 0;
        if fresh {
            octets.extend_from_slice(&self.encoder.header(&self.shared.index.spool, self.segment));
        }
        let header = octets.len() as u64;
        let mut rows = self.shared.index.with(|state| state.segments.get(&self.segment).map_or(0, Segment::rows));
        for message in group {
            match self.prepare(message.delivery, rows, octets) {
                Ok((sent, seen, entry, duplicates)) => {
                    rows += entry.map_or(0, |entry| u64::from(entry.rows));
                    pending.push(Pending { safe: message.safe, sent, seen, entry, duplicates });
                }
                Err(error) => self.refuse(vec![message.safe], &error),
            }
        }
        let entries: Vec<Entry> = pending.iter().filter_map(|pending| pending.entry).collect();
        if !entries.is_empty() {
            if self.target.is_whole() {
                octets.extend_from_slice(&footer(&entries));
            }
            if let Err(error) = self.write(octets) {
                // An object that was refused may be there after all, and none is written twice.
                self.segment += u64::from(self.target.is_whole());
                self.refuse(pending.into_iter().map(|pending| pending.safe).collect(), &error);
                return;
            }
            self.shared.index.update(self.segment, |segment| {
                segment.octets += octets.len() as u64;
                segment.sealed = self.target.is_whole();
                if fresh {
                    segment.header = header;
                }
            });
        }
        self.publish(pending);
        if self.length >= self.options.segment_bytes || (self.target.is_whole() && self.length > 0) {
            self.seal();
        }
    }

    fn write(&mut self, octets: &[u8]) -> Result<()> {
        let wanted = octets.len() as u64;
        if wanted > self.options.max_bytes {
            return Err(Error::Misuse(format!(
                "{wanted} octets at a time; the spool keeps {}",
                self.options.max_bytes
            )));
        }
        if !self.shared.index.wait_for_room(wanted, self.options.max_bytes) {
            return Err(Error::Misuse("the spool was closed".into()));
        }
        self.target.write(self.segment, self.length, octets)?;
        Counters::add(&self.shared.counters.syncs, 1);
        self.length += wanted;
        self.began.get_or_insert_with(Instant::now);
        Ok(())
    }

    /// Appends what is new of a batch to a group's octets, as the rows from number `first` of the segment on.
    fn prepare(
        &mut self,
        delivery: Delivery,
        first: u64,
        octets: &mut Vec<u8>,
    ) -> Result<(Sent, Option<Position>, Option<Entry>, usize)> {
        let Delivery { batch, sender, connection, gone, hashes, .. } = delivery;
        let unconfirmed = u32::try_from(hashes.len()).unwrap_or(u32::MAX);
        let sent = Sent { sender, connection: connection.wrapping_add(self.epoch), hashes, unconfirmed };
        let seen = match sent.hashes.as_slice() {
            [] => None,
            hashes => self.recent.seen(&sent.sender, sent.connection, hashes, gone),
        };
        let skip = seen.map_or(0, |seen| seen.events).min(batch.num_rows());
        let rows = batch.num_rows() - skip;
        if rows == 0 {
            return Ok((sent, seen.map(|seen| seen.end), None, skip));
        }
        let entry = self.encoder.record(&batch.slice(skip, rows), first, &sent, octets)?;
        Ok((sent, None, Some(entry), skip))
    }

    fn publish(&mut self, pending: Vec<Pending>) {
        for Pending { safe, sent, seen, entry, duplicates } in pending {
            let end = self.shared.index.update(self.segment, |segment| {
                segment.entries.extend(entry);
                Position { segment: self.segment, row: segment.rows() }
            });
            let end = seen.unwrap_or(end);
            if !sent.hashes.is_empty() {
                self.recent.take(&sent.sender, sent.connection, &sent.hashes, end);
            }
            let rows = entry.map_or(0, |entry| u64::from(entry.rows));
            Counters::add(&self.shared.counters.events, rows);
            Counters::add(&self.shared.counters.duplicates, duplicates as u64);
            self.answer(end, safe);
        }
    }

    fn answer(&self, end: Position, safe: oneshot::Sender<Result<()>>) {
        match self.shared.ack {
            Ack::Spool => {}
            Ack::Commit => {
                let mut parked = lock(&self.shared.parked);
                // Looked at under the lock, or a commit in between would leave it waiting.
                if !self
                    .shared
                    .index
                    .with(|state| state.readers.values().all(|at| *at >= end) && !state.readers.is_empty())
                {
                    parked.entry(end).or_default().push(safe);
                    return;
                }
            }
        }
        // Whoever is gone has no connection any more.
        let _ = safe.send(Ok(()));
    }

    fn refuse(&self, waiting: Vec<oneshot::Sender<Result<()>>>, error: &Error) {
        tracing::error!(%error, "events are refused, and nothing is acknowledged");
        Counters::add(&self.shared.counters.refused, waiting.len() as u64);
        for safe in waiting {
            let _ = safe.send(Err(error.clone()));
        }
    }

    /// Ends the open segment; the next group begins another one.
    fn seal(&mut self) {
        if self.length == 0 {
            return;
        }
        if !self.target.is_whole() {
            let entries = self.shared.index.with(|state| {
                state.segments.get(&self.segment).map(|segment| segment.entries.clone()).unwrap_or_default()
            });
            let octets = footer(&entries);
            if let Err(error) = self.target.write(self.segment, self.length, &octets) {
                // Its records are durable; whoever reads it looks through them.
                tracing::warn!(%error, segment = self.segment, "a segment has no index");
            } else {
                self.shared.index.update(self.segment, |segment| segment.octets += octets.len() as u64);
            }
            self.shared.index.update(self.segment, |segment| segment.sealed = true);
        }
        (self.segment, self.length, self.began) = (self.segment + 1, 0, None);
    }
}
