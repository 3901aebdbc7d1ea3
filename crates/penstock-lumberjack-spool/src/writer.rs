//! The thread that makes batches durable, a group at a time.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_io::DriverError as _;
use penstock_io::sync::lock;
use penstock_log::GROUP;
use penstock_lumberjack_net::{ConnectionEnd, Delivery};
use tokio::sync::oneshot;

use crate::dedup::Recent;
use crate::format::{self, Encoder, Entry, HeadSeed, Sent, footer, limit};
use crate::options::{Ack, SpoolOptions};
use crate::shared::{Counters, Shared};
use crate::store::Position;
use crate::target::{Durable, Target, TargetState};
use crate::{Error, Result};

/// The most messages of a group that are made durable together; the rest follow in the next write.
const MESSAGES: usize = 4_096;

/// A message to the writer.
pub(super) enum Message {
    /// A batch, and the channel that reports when it is safe.
    Batch { delivery: Delivery, safe: oneshot::Sender<Result<()>> },
    /// The end of a connection.
    Ended(ConnectionEnd),
}

/// Whether the open segment accepts writes:
///
/// ```text
///           a write fails, or its end begins
///  Writable ────────────────────────────────▶ Ending
///     ▲   it has ended, and the next begins      │
///     └──────────────────────────────────────────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SegmentState {
    Writable,
    /// The segment must be ended before anything else is written. After a failed write the bytes
    /// after its records are unknown: a shorter record in the same place would leave the rest of a
    /// longer one after it.
    Ending,
}

pub(super) struct Writer {
    options: SpoolOptions,
    encoder: Encoder,
    target: Box<dyn Target>,
    shared: Arc<Shared>,
    recent: Recent,
    /// The number of the open segment; `length`, `rows` and `began` describe the same one.
    segment: u64,
    length: u64,
    rows: u64,
    began: Option<Instant>,
    state: SegmentState,
    /// Added to the connections' numbers, which start at the same value in every process.
    epoch: u64,
    /// The buffer of a group, which the next group reuses: fresh memory costs more than the copy
    /// into it.
    bytes: Vec<u8>,
}

/// A message of a group that is not durable yet, and what to do when it is.
struct Pending {
    sent: Sent,
    entry: Option<Entry>,
    then: Then,
}

enum Then {
    /// Report that the events are safe. `seen` is the place after the last of them if all were
    /// accepted before.
    Safe { safe: oneshot::Sender<Result<()>>, seen: Option<Position>, duplicates: usize },
    /// Note the end of the connection.
    Ended { clean: bool },
}

impl Pending {
    fn rows(&self) -> u64 {
        self.entry.map_or(0, |entry| u64::from(entry.rows))
    }
}

impl penstock_log::Writer for Writer {
    type Item = Message;

    fn weight(message: &Message) -> usize {
        match message {
            Message::Batch { delivery, .. } => delivery.bytes,
            Message::Ended(_) => 0,
        }
    }

    fn write(&mut self, group: &mut Vec<Message>) {
        let mut messages = group.drain(..).peekable();
        while messages.peek().is_some() {
            let (mut together, mut broken) = (Vec::new(), HashSet::new());
            while let Some(message) =
                messages.next_if(|message| together.len() < MESSAGES && !is_compared(message, &broken))
            {
                if let Message::Ended(ConnectionEnd { sender, clean: false, .. }) = &message {
                    broken.insert(Arc::clone(sender));
                }
                together.push(message);
            }
            self.commit(together);
        }
    }

    fn linger(&self) -> Duration {
        if self.target.is_whole() { self.options.linger } else { Duration::ZERO }
    }

    fn due(&self) -> Option<Instant> {
        // An age too large for the clock means no limit.
        self.began?.checked_add(self.options.segment_age)
    }

    fn wake(&mut self) {
        self.seal();
    }

    fn end(&mut self) {
        self.seal();
    }
}

impl Writer {
    pub(super) fn new(mut options: SpoolOptions, opened: TargetState) -> Result<Self> {
        let TargetState { target, shared, recent, next, .. } = opened;
        // Only whole segments are removed, and the last two are kept, so they must be much smaller
        // than the spool.
        options.segment_bytes = options.segment_bytes.min(options.max_bytes / 4);
        Ok(Self {
            encoder: Encoder::new()?,
            target,
            shared,
            recent,
            segment: next,
            length: 0,
            rows: 0,
            began: None,
            state: SegmentState::Writable,
            epoch: fastrand::u64(..),
            bytes: Vec::new(),
            options,
        })
    }

    fn head_seed(&self) -> HeadSeed {
        HeadSeed::of(&self.shared.index.spool, self.segment)
    }

    /// Make a group durable, and answer its waiters.
    fn commit(&mut self, group: Vec<Message>) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        self.commit_into(group, &mut bytes);
        bytes.shrink_to(2 * GROUP);
        self.bytes = bytes;
    }

    fn commit_into(&mut self, group: Vec<Message>, bytes: &mut Vec<u8>) {
        let mut pending: Vec<Pending> = Vec::with_capacity(group.len());
        let ended = match self.state {
            SegmentState::Writable => Ok(()),
            SegmentState::Ending => self.end_segment(),
        };
        let fresh = self.length == 0;
        if fresh {
            bytes.extend_from_slice(&self.encoder.header(&self.shared.index.spool, self.segment));
        }
        let header = bytes.len();
        let mut rows = self.rows;
        for message in group {
            match message {
                Message::Batch { delivery, safe } => {
                    let prepared = self.prepare(delivery, safe, rows, bytes);
                    rows += prepared.as_ref().map_or(0, Pending::rows);
                    pending.extend(prepared);
                }
                Message::Ended(ended) => self.prepare_end(ended, rows, bytes, &mut pending),
            }
        }
        let entries: Vec<Entry> = pending.iter().filter_map(|pending| pending.entry).collect();
        if !entries.is_empty() {
            if self.target.is_whole() {
                bytes.extend_from_slice(&footer(&entries));
            }
            // The end of a connection is not acknowledged.
            let later = if rows > self.rows { Durable::Now } else { Durable::Later };
            let durable = if fresh { Durable::Header(header) } else { later };
            if let Err(error) = ended.and_then(|()| self.put(bytes, durable, rows)) {
                self.give_up(pending, &error);
                return;
            }
            self.shared.index.update(self.segment, |segment| {
                segment.bytes += bytes.len() as u64;
                segment.sealed = self.target.is_whole();
                if fresh {
                    segment.header = header as u64;
                }
            });
        }
        self.publish(pending);
        if self.length >= self.options.segment_bytes || (self.target.is_whole() && self.length > 0) {
            self.seal();
        }
    }

    /// Write a group; `row` is the number of rows in the segment after it.
    fn put(&mut self, bytes: &[u8], durable: Durable, row: u64) -> Result<()> {
        let wanted = bytes.len() as u64;
        if wanted > self.options.max_bytes {
            return Err(limit("a write", wanted, self.options.max_bytes));
        }
        if !self.shared.index.wait_for_room(wanted, self.options.max_bytes) {
            return Err(Error::stopped("the spool"));
        }
        self.shared.index.extend(Position { segment: self.segment, row });
        if let Err(error) = self.target.write(self.segment, self.length, bytes, durable) {
            // Ended at once, so that no reader gets the refused bytes; if that fails, the next
            // group ends it first.
            self.state = SegmentState::Ending;
            self.seal();
            return Err(error);
        }
        Counters::add(&self.shared.counters.syncs, u64::from(durable != Durable::Later));
        self.length += wanted;
        self.began.get_or_insert_with(Instant::now);
        Ok(())
    }

    /// Append the new rows of a batch to a group's bytes; the first is number `row` of the segment.
    fn prepare(
        &mut self,
        delivery: Delivery,
        safe: oneshot::Sender<Result<()>>,
        row: u64,
        bytes: &mut Vec<u8>,
    ) -> Option<Pending> {
        let Delivery { batch, sender, connection, first, confirmed, hashes, .. } = delivery;
        let unconfirmed = first.saturating_add(batch.num_rows() as u64).saturating_sub(confirmed);
        let unconfirmed = u32::try_from(unconfirmed).unwrap_or(u32::MAX);
        let sent = Sent { sender, connection: connection.wrapping_add(self.epoch), hashes, unconfirmed };
        let seen = if sent.hashes.is_empty() { None } else { self.recent.seen(&sent, first == 0) };
        let duplicates = seen.map_or(0, |seen| seen.events).min(batch.num_rows());
        let rows = batch.num_rows() - duplicates;
        if rows == 0 {
            let then = Then::Safe { safe, seen: seen.map(|seen| seen.end), duplicates };
            return Some(Pending { sent, entry: None, then });
        }
        match self.encoder.record(&batch.slice(duplicates, rows), (self.head_seed(), row), &sent, bytes) {
            Ok(entry) => Some(Pending { sent, entry: Some(entry), then: Then::Safe { safe, seen: None, duplicates } }),
            Err(error) => {
                self.refuse([safe], &error);
                None
            }
        }
    }

    /// Append records of the end of a connection, if a restart would otherwise remember any of its
    /// events, and of the connections whose events it has sent again completely.
    fn prepare_end(&self, ended: ConnectionEnd, row: u64, bytes: &mut Vec<u8>, pending: &mut Vec<Pending>) {
        let ConnectionEnd { sender, connection, clean } = ended;
        let connection = connection.wrapping_add(self.epoch);
        let finished = if clean { self.recent.finished_by(&sender, connection) } else { Vec::new() };
        let known = self.recent.knows(&sender, connection)
            || pending.iter().any(|earlier| earlier.sent.connection == connection);
        for (connection, known) in finished.into_iter().map(|number| (number, true)).chain([(connection, known)]) {
            let sent = Sent { sender: Arc::clone(&sender), connection, hashes: Vec::new(), unconfirmed: 0 };
            let entry = (clean && known).then(|| format::end((self.head_seed(), row), &sent, bytes));
            pending.push(Pending { sent, entry, then: Then::Ended { clean } });
        }
    }

    fn publish(&mut self, pending: Vec<Pending>) {
        let mut row = self.rows;
        self.rows += pending.iter().map(Pending::rows).sum::<u64>();
        let entries: Vec<Entry> = pending.iter().filter_map(|pending| pending.entry).collect();
        if !entries.is_empty() {
            self.shared.index.update(self.segment, |segment| segment.entries.extend(entries));
        }
        for pending in pending {
            row += pending.rows();
            let (rows, sent) = (pending.rows(), pending.sent);
            match pending.then {
                Then::Ended { clean } => self.ended(&sent, clean),
                Then::Safe { safe, seen, duplicates } => {
                    let end = seen.unwrap_or(Position { segment: self.segment, row });
                    if !sent.hashes.is_empty() {
                        self.recent.take(&sent, end);
                    }
                    Counters::add(&self.shared.counters.events, rows);
                    Counters::add(&self.shared.counters.duplicates, duplicates as u64);
                    self.answer(end, safe);
                }
            }
        }
    }

    fn answer(&self, end: Position, safe: oneshot::Sender<Result<()>>) {
        match self.shared.ack {
            Ack::Spool => {}
            Ack::Commit => {
                let mut parked = lock(&self.shared.parked);
                // Checked under the lock: a commit in between would leave the waiter parked.
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
        // The connection may be gone, so a failed send is ignored.
        let _ = safe.send(Ok(()));
    }

    fn ended(&mut self, of: &Sent, clean: bool) {
        if clean {
            self.recent.ended(&of.sender, of.connection);
        } else {
            self.recent.broke(&of.sender, of.connection);
        }
    }

    /// Refuse a group that could not be written.
    fn give_up(&mut self, pending: Vec<Pending>, error: &Error) {
        let mut refused = Vec::new();
        for Pending { sent, then, .. } in pending {
            match then {
                Then::Safe { safe, .. } => refused.push(safe),
                // The connection has ended all the same; only a restart would not know it.
                Then::Ended { clean } => self.ended(&sent, clean),
            }
        }
        self.refuse(refused, error);
    }

    fn refuse(&self, waiting: impl IntoIterator<Item = oneshot::Sender<Result<()>>>, error: &Error) {
        for safe in waiting {
            tracing::error!(%error, "events are refused, and nothing is acknowledged");
            Counters::add(&self.shared.counters.refused, 1);
            // The connection may be gone, so a failed send is ignored.
            let _ = safe.send(Err(error.clone()));
        }
    }

    /// End the open segment; the next group begins another one.
    fn seal(&mut self) {
        if (self.length > 0 || self.state == SegmentState::Ending)
            && let Err(error) = self.end_segment()
        {
            tracing::warn!(%error, segment = self.segment, "a segment cannot be ended, and nothing is taken before it is");
        }
    }

    /// Write the footer of the open segment, and count up to the next one. If this fails, it is
    /// tried again before the next write: only the last segment of a spool may lack its footer.
    fn end_segment(&mut self) -> Result<()> {
        // The segment has no age any more, so no retry happens until the next group arrives.
        (self.state, self.began) = (SegmentState::Ending, None);
        let entries = self
            .shared
            .index
            .with(|state| state.segments.get(&self.segment).map(|segment| segment.entries.clone()).unwrap_or_default());
        let bytes = footer(&entries);
        self.target.end(self.segment, self.length, &bytes)?;
        if self.length > 0 && !self.target.is_whole() {
            self.shared.index.update(self.segment, |segment| {
                segment.bytes += bytes.len() as u64;
                segment.sealed = true;
            });
        }
        // A refused object may exist nevertheless, so its number is not used again.
        (self.segment, self.length, self.rows) = (self.segment + 1, 0, 0);
        self.state = SegmentState::Writable;
        self.shared.index.extend(Position { segment: self.segment, row: 0 });
        Ok(())
    }
}

/// Return whether a message must wait until those before it are durable: it may send events again
/// from connections that broke in this group.
fn is_compared(message: &Message, broken: &HashSet<Arc<str>>) -> bool {
    match message {
        Message::Batch { delivery, .. } => delivery.first == 0 && broken.contains(&delivery.sender),
        Message::Ended(_) => false,
    }
}
