//! What is sent again (decision 12): which events of a new connection were taken from an earlier one.
//!
//! A sender that has lost its connection sends again, in order, what was not acknowledged, and then continues. Only a
//! connection that broke may have lost acknowledgements, and only those of its last windows: so the events of a new
//! connection are compared with the tails of the same sender's broken connections, up to the first difference; then
//! everything is new. A connection that ended after its last acknowledgement was delivered leaves nothing to compare with,
//! and one that is open is not compared with at all.
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

/// Events that may be remembered of a connection: two of the largest windows, as no writer has more under way.
const OF_CONNECTION: usize = 2 * 65_536;
/// Broken connections that are remembered of a sender, and their events.
const BROKEN: usize = 64;
const OF_SENDER: usize = 2 * OF_CONNECTION;
/// What is remembered at all, in units of 8 bytes (32 MiB), and of how many connections.
const AT_ALL: usize = 4 << 20;
const CONNECTIONS: usize = 32_768;

/// Room that a connection may have whatever is in it, in events.
const ROOM: usize = 64;

/// What became of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    /// Some of its acknowledgements may not have reached its sender.
    Broken,
    /// Another connection sends again what it brought.
    Resent,
}

/// The last that was taken of one connection, and where the spool has it.
#[derive(Debug, Default)]
struct ConnectionHistory {
    state: State,
    /// Of its events that may be sent again.
    hashes: VecDeque<u64>,
    /// Where the spool ended after each batch, with the count of all events by then; the newest at the back.
    ends: VecDeque<(u64, Position)>,
    count: u64,
    used: u64,
    again: Replay,
    /// Connections of which it has sent again everything. A spool still has their records, so its end is theirs too.
    finished: Vec<u64>,
}

/// Whether a connection sends again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Replay {
    /// Nothing has come.
    #[default]
    Unknown,
    /// What comes next was event number `at` of another connection.
    From { connection: u64, at: u64 },
    /// No, or no more.
    Over,
}

/// The events of a batch that were taken before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Duplicates {
    /// So many at its beginning.
    pub(super) events: usize,
    /// Where the spool has the last of them.
    pub(super) end: Position,
}

/// What was taken lately.
#[derive(Debug, Default)]
pub(super) struct Recent {
    senders: HashMap<Arc<str>, HashMap<u64, ConnectionHistory>>,
    /// Which connection was used when, the least recently used first.
    order: BTreeMap<u64, (Arc<str>, u64)>,
    total: usize,
    clock: u64,
}

impl Recent {
    /// How many events at the beginning of a batch were taken before; `begins`: it is the first of its connection.
    pub(super) fn seen(&mut self, sent: &Sent, begins: bool) -> Option<Duplicates> {
        let hashes = sent.hashes.as_slice();
        let pasts = self.senders.entry(Arc::clone(&sent.sender)).or_default();
        let again =
            if begins { Replay::Unknown } else { pasts.get(&sent.connection).map_or(Replay::Over, |past| past.again) };
        let found = match again {
            Replay::Over => None,
            Replay::From { connection: other, at } => pasts.get_mut(&other).and_then(|past| {
                // If the repetition does not continue, it was another sender's, which may still come back.
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

    /// These events were taken, or seen, and the spool has them before `end`.
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

    /// What is known of a connection, which is used now.
    fn past(&mut self, sender: &Arc<str>, connection: u64) -> &mut ConnectionHistory {
        self.clock += 1;
        let past = self.senders.entry(Arc::clone(sender)).or_default().entry(connection).or_default();
        self.order.remove(&past.used);
        past.used = self.clock;
        self.order.insert(self.clock, (Arc::clone(sender), connection));
        past
    }

    /// Whether anything is remembered of a connection.
    pub(super) fn knows(&self, sender: &Arc<str>, connection: u64) -> bool {
        self.senders.get(sender).is_some_and(|pasts| pasts.contains_key(&connection))
    }

    /// Of which connections this one has sent again everything.
    pub(super) fn finished_by(&self, sender: &Arc<str>, connection: u64) -> Vec<u64> {
        let past = self.senders.get(sender).and_then(|pasts| pasts.get(&connection));
        past.map(|past| past.finished.clone()).unwrap_or_default()
    }

    /// A connection has ended, and all its acknowledgements have reached its sender.
    pub(super) fn ended(&mut self, sender: &Arc<str>, connection: u64) {
        let past = self.forget(sender, connection);
        if let Some(Replay::From { connection: other, at }) = past.map(|past| past.again) {
            // What it did not come to may still be sent again.
            let pasts = self.senders.get_mut(sender);
            if let Some(other) = pasts.and_then(|pasts| pasts.get_mut(&other)) {
                other.state = State::Broken;
                let before = other.size();
                other.keep_last(usize::try_from(other.count.saturating_sub(at)).unwrap_or(usize::MAX));
                self.total = self.total - before + other.size();
            }
        }
    }

    /// A connection has ended, and some of its acknowledgements may not have reached its sender.
    pub(super) fn broke(&mut self, sender: &Arc<str>, connection: u64) {
        let Some(pasts) = self.senders.get_mut(sender) else { return };
        let Some(past) = pasts.get_mut(&connection) else { return };
        past.state = State::Broken;
        if let Replay::From { connection: other, .. } = std::mem::replace(&mut past.again, Replay::Over)
            && let Some(other) = pasts.get_mut(&other)
        {
            // All that it brought is in what the other one brought.
            other.state = State::Broken;
            self.forget(sender, connection);
        }
        self.bound(sender);
    }

    /// All connections have ended with the process that had them.
    pub(super) fn all_broke(&mut self) {
        let senders: Vec<_> = self.senders.keys().cloned().collect();
        for sender in senders {
            let pasts = self.senders.entry(Arc::clone(&sender)).or_default();
            pasts.values_mut().for_each(|past| past.state = State::Broken);
            self.bound(&sender);
        }
    }

    /// Forget a sender's oldest broken connections, beyond the limit.
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

    /// What the last of these segments say was taken lately, as their connections have all ended.
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
                // A record that is damaged is nothing to compare with.
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

/// The longest run that these events begin with in a broken connection: which one, where, and how long.
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

/// For each beginning of a pattern, how long the longest is that it ends with as well (Knuth, Morris and Pratt).
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

/// How much of the pattern a text ends with, where it ended with `state` of it before the item.
fn step<T: PartialEq>(pattern: &[T], table: &[usize], mut state: usize, item: &T) -> usize {
    loop {
        if pattern.get(state) == Some(item) {
            return state + 1;
        }
        let Some(before) = state.checked_sub(1) else { return 0 };
        state = table.get(before).copied().unwrap_or(0);
    }
}

/// Where in the text the pattern is, or where the text ends with a beginning of it, and how much of it is there; only
/// places count where it may begin. The last place, if there are several. Linear in both.
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
            // The search continues as if the whole had not fitted: the events may end with the beginning of another one.
            state = table.last().copied().unwrap_or(0);
        }
    }
    while whole.is_none() && state > 0 {
        whole = Some((length - state, state)).filter(|(at, _)| begins(*at));
        // The next shorter beginning that the text ends with.
        state = table.get(state - 1).copied().unwrap_or(0);
    }
    whole
}

impl ConnectionHistory {
    /// The number of the first event that is remembered.
    fn first(&self) -> u64 {
        self.count - self.hashes.len() as u64
    }

    /// Whether event number `at` may be the first that is sent again: acknowledgements are for whole batches.
    fn begins(&self, at: u64) -> bool {
        at == self.first() || self.ends.binary_search_by_key(&at, |(count, _)| *count).is_ok()
    }

    /// What it takes of the memory, in units of 8 bytes.
    fn size(&self) -> usize {
        self.hashes.len() + 3 * self.ends.len()
    }

    /// Remembers no more than its last events.
    fn keep_last(&mut self, events: usize) {
        let surplus = self.hashes.len().saturating_sub(events);
        self.hashes.drain(..surplus);
        let first = self.first();
        while self.ends.front().is_some_and(|(count, _)| *count <= first) {
            self.ends.pop_front();
        }
        // A large window leaves its room to nobody.
        if self.hashes.capacity() > ROOM && self.hashes.capacity() > 4 * self.hashes.len() {
            self.hashes.shrink_to(2 * self.hashes.len());
        }
        if self.ends.capacity() > ROOM && self.ends.capacity() > 4 * self.ends.len() {
            self.ends.shrink_to(2 * self.ends.len());
        }
    }

    /// How many of these events are those from number `at` on.
    fn run(&self, at: u64, hashes: &[u64]) -> usize {
        let Some(skip) = at.checked_sub(self.first()).and_then(|skip| usize::try_from(skip).ok()) else { return 0 };
        self.hashes.iter().skip(skip).zip(hashes).take_while(|(a, b)| a == b).count()
    }

    /// Where the spool has the events before number `count`.
    fn end_of(&self, count: u64) -> Option<Position> {
        let at = self.ends.partition_point(|(end, _)| *end < count);
        self.ends.get(at).map(|(_, position)| *position)
    }
}

#[cfg(test)]
mod tests;
