//! Deduplication of resent events (decision 12): which events of a new connection were already
//! accepted from an earlier one.
//!
//! A sender that has lost its connection sends the events without an acknowledgement again, in
//! order, and then continues. Only a broken connection may have lost acknowledgements, and only
//! those of its last windows. So the events of a new connection are compared with the tails of the
//! same sender's broken connections, up to the first difference; every event after that is new. A
//! connection that ended after its last acknowledgement was delivered leaves nothing to compare
//! with, and an open connection is not compared with at all.
//!
//! ```text
//!  open ── broke ──▶ broken ── a new connection begins with it ──▶ resent ── up to its end ──▶ forgotten
//!   │                  ▲                                             │
//!   └─ ended ─▶ forgotten   └────────── and then says something else ──────────┘
//! ```

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use crate::Result;
use crate::format::{Record, Sent, read_record, verify};
use crate::store::{Position, Store};

/// The most events remembered of a connection: two of the largest windows, because no writer has
/// more in flight.
const OF_CONNECTION: usize = 2 * 65_536;
/// The most broken connections remembered of a sender, and the most events of them together.
const BROKEN: usize = 64;
const OF_SENDER: usize = 2 * OF_CONNECTION;
/// The most memory for all senders, in units of 8 bytes (32 MiB), and the most connections.
const AT_ALL: usize = 4 << 20;
const CONNECTIONS: usize = 32_768;

/// A capacity, in events, up to which a connection's queues are never shrunk.
const ROOM: usize = 64;

/// The state of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    /// Some of its acknowledgements may not have reached its sender.
    Broken,
    /// Another connection is sending the events of this one again.
    Resent,
}

/// The last events that were accepted from one connection, and their places in the spool.
#[derive(Debug, Default)]
struct ConnectionHistory {
    state: State,
    /// The hashes of the events that may be sent again.
    hashes: VecDeque<u64>,
    /// The end of the spool after each batch, with the number of events up to then; the newest at
    /// the back.
    ends: VecDeque<(u64, Position)>,
    count: u64,
    used: u64,
    again: Replay,
    /// The connections whose events this one has sent again completely. Their records are still in
    /// the spool, so the record of this connection's end has to end them too.
    finished: Vec<u64>,
}

/// Whether a connection is sending events of another one again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Replay {
    /// No event has arrived yet.
    #[default]
    Unknown,
    /// The next event is expected to equal event number `at` of another connection.
    From { connection: u64, at: u64 },
    /// It is not, or not any more.
    Over,
}

/// The events of a batch that were accepted before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Duplicates {
    /// The number of duplicates, all at the beginning of the batch.
    pub(super) events: usize,
    /// The place in the spool after the last of them.
    pub(super) end: Position,
}

/// The events that were accepted recently, by sender and connection.
#[derive(Debug, Default)]
pub(super) struct Recent {
    senders: HashMap<Arc<str>, HashMap<u64, ConnectionHistory>>,
    /// The connections by time of use, the least recently used first.
    order: BTreeMap<u64, (Arc<str>, u64)>,
    total: usize,
    clock: u64,
}

impl Recent {
    /// Find the events at the beginning of a batch that were accepted before. `begins` says that
    /// the batch is the first of its connection.
    pub(super) fn seen(&mut self, sent: &Sent, begins: bool) -> Option<Duplicates> {
        let hashes = sent.hashes.as_slice();
        let pasts = self.senders.entry(Arc::clone(&sent.sender)).or_default();
        let again =
            if begins { Replay::Unknown } else { pasts.get(&sent.connection).map_or(Replay::Over, |past| past.again) };
        let found = match again {
            Replay::Over => None,
            Replay::From { connection: other, at } => pasts.get_mut(&other).and_then(|past| {
                // If the repetition does not continue, the other connection was that of a different
                // sender, which may still reconnect.
                past.state = State::Broken;
                let run = past.run(at, hashes);
                let goes_on = run == hashes.len() || at + run as u64 == past.count;
                (run > 0 && goes_on).then_some((other, at, run))
            }),
            Replay::Unknown => overlap_with_any(pasts, hashes),
        };
        let (mut seen, mut again, mut finished) = (None, Replay::Over, None);
        if let Some((other, at, run)) = found
            && let Some(past) = pasts.get_mut(&other)
        {
            let to = at + run as u64;
            seen = past.end_of(to).map(|end| Duplicates { events: run, end });
            if to == past.count {
                finished = Some(other);
            } else if run == hashes.len() {
                past.state = State::Resent;
                again = Replay::From { connection: other, at: to };
            }
        }
        let finished = finished.and_then(|other| {
            let mut numbers = self.forget(&sent.sender, other)?.finished;
            numbers.push(other);
            Some(numbers)
        });
        let past = self.past(&sent.sender, sent.connection);
        past.again = again;
        past.finished.extend(finished.into_iter().flatten());
        let surplus = past.finished.len().saturating_sub(BROKEN);
        past.finished.drain(..surplus);
        seen
    }

    /// Remember events that were accepted or recognized as duplicates; the spool has them before
    /// `end`.
    pub(super) fn take(&mut self, sent: &Sent, end: Position) {
        let past = self.past(&sent.sender, sent.connection);
        let before = past.size();
        past.count += sent.hashes.len() as u64;
        past.hashes.extend(&sent.hashes);
        past.ends.push_back((past.count, end));
        past.keep_last(usize::try_from(sent.unconfirmed).unwrap_or(usize::MAX).min(OF_CONNECTION));
        let after = past.size();
        self.total = self.total - before + after;
        while self.total > AT_ALL || self.order.len() > CONNECTIONS {
            let Some((_, (sender, connection))) = self.order.first_key_value() else { break };
            let (sender, connection) = (Arc::clone(sender), *connection);
            self.forget(&sender, connection);
        }
    }

    /// Return the history of a connection, and mark it as used now.
    fn past(&mut self, sender: &Arc<str>, connection: u64) -> &mut ConnectionHistory {
        self.clock += 1;
        let past = self.senders.entry(Arc::clone(sender)).or_default().entry(connection).or_default();
        self.order.remove(&past.used);
        past.used = self.clock;
        self.order.insert(self.clock, (Arc::clone(sender), connection));
        past
    }

    /// Return whether the history has anything of a connection.
    pub(super) fn knows(&self, sender: &Arc<str>, connection: u64) -> bool {
        self.senders.get(sender).is_some_and(|pasts| pasts.contains_key(&connection))
    }

    /// Return the connections whose events this one has sent again completely.
    pub(super) fn finished_by(&self, sender: &Arc<str>, connection: u64) -> Vec<u64> {
        let past = self.senders.get(sender).and_then(|pasts| pasts.get(&connection));
        past.map(|past| past.finished.clone()).unwrap_or_default()
    }

    /// Note that a connection has ended after all its acknowledgements had reached its sender.
    pub(super) fn ended(&mut self, sender: &Arc<str>, connection: u64) {
        let past = self.forget(sender, connection);
        if let Some(Replay::From { connection: other, at }) = past.map(|past| past.again) {
            // The events that it did not get to may still be sent again.
            let pasts = self.senders.get_mut(sender);
            if let Some(other) = pasts.and_then(|pasts| pasts.get_mut(&other)) {
                other.state = State::Broken;
                let before = other.size();
                other.keep_last(usize::try_from(other.count.saturating_sub(at)).unwrap_or(usize::MAX));
                self.total = self.total - before + other.size();
            }
        }
    }

    /// Note that a connection has ended, and that some of its acknowledgements may not have reached
    /// its sender.
    pub(super) fn broke(&mut self, sender: &Arc<str>, connection: u64) {
        let Some(pasts) = self.senders.get_mut(sender) else { return };
        let Some(past) = pasts.get_mut(&connection) else { return };
        past.state = State::Broken;
        if let Replay::From { connection: other, .. } = std::mem::replace(&mut past.again, Replay::Over)
            && let Some(other) = pasts.get_mut(&other)
        {
            // Every event of the broken connection is also in the history of the other one.
            other.state = State::Broken;
            self.forget(sender, connection);
        }
        self.bound(sender);
    }

    /// Mark all connections as broken: they ended with the process that had them.
    pub(super) fn all_broke(&mut self) {
        let senders: Vec<_> = self.senders.keys().cloned().collect();
        for sender in senders {
            let pasts = self.senders.entry(Arc::clone(&sender)).or_default();
            pasts.values_mut().for_each(|past| past.state = State::Broken);
            self.bound(&sender);
        }
    }

    /// Forget a sender's oldest broken connections where it has more of them than the limits allow.
    fn bound(&mut self, sender: &Arc<str>) {
        let Some(pasts) = self.senders.get(sender) else { return };
        let mut broken: Vec<_> = pasts
            .iter()
            .filter(|(_, past)| past.state != State::Open)
            .map(|(connection, past)| (past.used, *connection, past.hashes.len()))
            .collect();
        broken.sort_unstable_by(|a, b| b.cmp(a));
        let mut events = 0;
        for (at, (_, connection, hashes)) in broken.into_iter().enumerate() {
            events += hashes;
            if at >= BROKEN || events > OF_SENDER {
                self.forget(sender, connection);
            }
        }
    }

    fn forget(&mut self, sender: &Arc<str>, connection: u64) -> Option<ConnectionHistory> {
        let pasts = self.senders.get_mut(sender)?;
        let past = pasts.remove(&connection)?;
        if pasts.is_empty() {
            self.senders.remove(sender);
        }
        self.order.remove(&past.used);
        self.total -= past.size();
        Some(past)
    }

    /// Rebuild the history from the last of these segments; all their connections have ended.
    pub(super) fn of(store: &dyn Store, numbers: impl DoubleEndedIterator<Item = u64>) -> Result<Self> {
        let (mut rows, mut newest) = (0, Vec::new());
        for number in numbers.rev() {
            if rows >= 2 * OF_CONNECTION as u64 {
                break;
            }
            if let Some(info) = store.segments(number, 1)?.pop().filter(|info| info.number == number) {
                rows += info.rows();
                newest.push(info);
            }
        }
        let mut recent = Self::default();
        for info in newest.into_iter().rev() {
            let length: u64 = info.entries.iter().map(|entry| u64::from(entry.bytes)).sum();
            let bytes = store.read(info.number, info.header..info.header + length)?;
            let (mut left, mut row) = (bytes.as_slice(), 0);
            for entry in &info.entries {
                let (record, behind) = left.split_at_checked(entry.bytes as usize).unwrap_or_default();
                (left, row) = (behind, row + u64::from(entry.rows));
                // A damaged record has no hashes to compare with.
                if let Some(record) = read_record(record).filter(|_| !entry.lost && verify(record)) {
                    recent.read(&record, Position { segment: info.number, row });
                }
            }
        }
        recent.all_broke();
        Ok(recent)
    }

    /// Apply a record while a spool is opened; `end` is the spool's end after the record.
    fn read(&mut self, record: &Record, end: Position) {
        if record.ended {
            self.forget(&record.sent.sender, record.sent.connection);
        } else if !record.sent.hashes.is_empty() {
            self.take(&record.sent, end);
        }
    }
}

/// Return the longest run of a broken connection's events that these events begin with: which
/// connection, where, and how long.
fn overlap_with_any(pasts: &HashMap<u64, ConnectionHistory>, hashes: &[u64]) -> Option<(u64, u64, usize)> {
    let mut broken = pasts.iter().filter(|(_, past)| past.state == State::Broken).peekable();
    broken.peek()?;
    let table = failures(hashes);
    let found = broken.filter_map(|(connection, past)| {
        let begins = |at: usize| past.begins(past.first() + at as u64);
        let (at, run) = overlap(hashes, &table, past.hashes.iter().copied(), begins)?;
        Some((*connection, past.first() + at as u64, run))
    });
    found.max_by_key(|(connection, at, run)| (*run, *at, *connection))
}

/// Compute the Knuth-Morris-Pratt table: for each prefix of the pattern, the length of its longest
/// proper prefix that is also its suffix.
fn failures<T: PartialEq>(pattern: &[T]) -> Vec<usize> {
    let mut table = vec![0; pattern.len()];
    let mut state = 0;
    for (at, item) in pattern.iter().enumerate().skip(1) {
        state = step(pattern, &table, state, item);
        if let Some(slot) = table.get_mut(at) {
            *slot = state;
        }
    }
    table
}

/// Return how much of the pattern the text ends with after `item`, where the text before the item
/// ended with `state` items of the pattern.
fn step<T: PartialEq>(pattern: &[T], table: &[usize], mut state: usize, item: &T) -> usize {
    loop {
        if pattern.get(state) == Some(item) {
            return state + 1;
        }
        let Some(before) = state.checked_sub(1) else { return 0 };
        state = table.get(before).copied().unwrap_or(0);
    }
}

/// Return where the text contains the pattern, or else where its end is a prefix of the pattern,
/// and the length of the match. Only places for which `begins` holds count; of several, the last
/// one wins. Linear in pattern and text.
fn overlap<T: PartialEq>(
    pattern: &[T],
    table: &[usize],
    text: impl Iterator<Item = T>,
    begins: impl Fn(usize) -> bool,
) -> Option<(usize, usize)> {
    let (mut state, mut length, mut whole) = (0, 0, None);
    for item in text {
        state = step(pattern, table, state, &item);
        length += 1;
        if state == pattern.len() {
            whole = Some((length - state, state)).filter(|(at, _)| begins(*at)).or(whole);
            // The search continues as after a mismatch: another occurrence may overlap this one.
            state = table.last().copied().unwrap_or(0);
        }
    }
    while whole.is_none() && state > 0 {
        whole = Some((length - state, state)).filter(|(at, _)| begins(*at));
        // The next shorter prefix that the text ends with.
        state = table.get(state - 1).copied().unwrap_or(0);
    }
    whole
}

impl ConnectionHistory {
    /// Return the number of the first event that is remembered.
    fn first(&self) -> u64 {
        self.count - self.hashes.len() as u64
    }

    /// Return whether event number `at` may be the first that is sent again: acknowledgements are
    /// for whole batches.
    fn begins(&self, at: u64) -> bool {
        at == self.first() || self.ends.binary_search_by_key(&at, |(count, _)| *count).is_ok()
    }

    /// Return the memory that the history takes, in units of 8 bytes.
    fn size(&self) -> usize {
        self.hashes.len() + 3 * self.ends.len()
    }

    /// Forget all but the last events.
    fn keep_last(&mut self, events: usize) {
        let surplus = self.hashes.len().saturating_sub(events);
        self.hashes.drain(..surplus);
        let first = self.first();
        while self.ends.front().is_some_and(|(count, _)| *count <= first) {
            self.ends.pop_front();
        }
        // Without this, the memory of one large window would never be freed.
        if self.hashes.capacity() > ROOM && self.hashes.capacity() > 4 * self.hashes.len() {
            self.hashes.shrink_to(2 * self.hashes.len());
        }
        if self.ends.capacity() > ROOM && self.ends.capacity() > 4 * self.ends.len() {
            self.ends.shrink_to(2 * self.ends.len());
        }
    }

    /// Count how many of these events equal the remembered ones from number `at` on.
    fn run(&self, at: u64, hashes: &[u64]) -> usize {
        let Some(skip) = at.checked_sub(self.first()).and_then(|skip| usize::try_from(skip).ok()) else { return 0 };
        self.hashes.iter().skip(skip).zip(hashes).take_while(|(a, b)| a == b).count()
    }

    /// Return the place in the spool after the events before number `count`.
    fn end_of(&self, count: u64) -> Option<Position> {
        let at = self.ends.partition_point(|(end, _)| *end < count);
        self.ends.get(at).map(|(_, position)| *position)
    }
}

#[cfg(test)]
mod tests;
