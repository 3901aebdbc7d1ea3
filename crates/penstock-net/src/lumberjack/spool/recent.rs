//! What is sent again (decision 12): which events of a new connection were taken from an earlier one.
//!
//! A sender that has lost its connection sends again, in order, what was not acknowledged, and then goes on. Only a
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

use super::Position;
use super::format::{Record, Sent};

/// Events that may be remembered of a connection: two of the largest windows, as no writer has more under way.
pub(super) const OF_CONNECTION: usize = 2 * 65_536;
/// Broken connections that are remembered of a sender, and their events.
const BROKEN: usize = 64;
const OF_SENDER: usize = 2 * OF_CONNECTION;
/// Events and connections that are remembered at all: 32 MiB of hashes.
const AT_ALL: usize = 4 << 20;
const CONNECTIONS: usize = 32_768;

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
struct Past {
    state: State,
    /// Of its events that may be sent again.
    hashes: VecDeque<u64>,
    /// Where the spool ended after each batch, with the count of all events by then; the newest at the back.
    ends: VecDeque<(u64, Position)>,
    count: u64,
    used: u64,
    again: Again,
}

/// Whether a connection sends again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Again {
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
pub(super) struct Seen {
    /// So many at its beginning.
    pub(super) events: usize,
    /// Where the spool has the last of them.
    pub(super) end: Position,
}

/// What was taken lately.
#[derive(Debug, Default)]
pub(super) struct Recent {
    senders: HashMap<Arc<str>, HashMap<u64, Past>>,
    /// Which connection was used when, the least recently used first.
    order: BTreeMap<u64, (Arc<str>, u64)>,
    total: usize,
    clock: u64,
}

impl Recent {
    /// How many events at the beginning of a batch were taken before; `begins`: it is the first of its connection.
    pub(super) fn seen(&mut self, sent: &Sent, begins: bool) -> Option<Seen> {
        let hashes = sent.hashes.as_slice();
        let pasts = self.senders.entry(Arc::clone(&sent.sender)).or_default();
        let again =
            if begins { Again::Unknown } else { pasts.get(&sent.connection).map_or(Again::Over, |past| past.again) };
        let found = match again {
            Again::Over => None,
            Again::From { connection: other, at } => pasts.get_mut(&other).and_then(|past| {
                // Unless it goes on, it was another sender's after all, who may still come back.
                past.state = State::Broken;
                let run = past.run(at, hashes);
                (run > 0).then_some((other, at, run))
            }),
            Again::Unknown => overlap_with_any(pasts, hashes),
        };
        let (mut seen, mut again, mut finished) = (None, Again::Over, None);
        if let Some((other, at, run)) = found
            && let Some(past) = pasts.get_mut(&other)
        {
            let to = at + run as u64;
            seen = past.end_of(to).map(|end| Seen { events: run, end });
            if to == past.count {
                finished = Some(other);
            } else if run == hashes.len() {
                past.state = State::Resent;
                again = Again::From { connection: other, at: to };
            }
        }
        if let Some(other) = finished {
            self.forget(&sent.sender, other);
        }
        self.past(&sent.sender, sent.connection).again = again;
        seen
    }

    /// These events were taken, or seen, and the spool has them before `end`.
    pub(super) fn take(&mut self, sent: &Sent, end: Position) {
        let past = self.past(&sent.sender, sent.connection);
        let before = past.hashes.len();
        past.count += sent.hashes.len() as u64;
        past.hashes.extend(&sent.hashes);
        past.ends.push_back((past.count, end));
        past.keep_last(usize::try_from(sent.unconfirmed).unwrap_or(usize::MAX).min(OF_CONNECTION));
        let after = past.hashes.len();
        self.total = self.total - before + after;
        while self.total > AT_ALL || self.order.len() > CONNECTIONS {
            let Some((_, (sender, connection))) = self.order.first_key_value() else { break };
            let (sender, connection) = (Arc::clone(sender), *connection);
            self.forget(&sender, connection);
        }
    }

    /// What is known of a connection, which is used now.
    fn past(&mut self, sender: &Arc<str>, connection: u64) -> &mut Past {
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

    /// A connection has ended, and all its acknowledgements have reached its sender.
    pub(super) fn ended(&mut self, sender: &Arc<str>, connection: u64) {
        let past = self.forget(sender, connection);
        if let Some(Again::From { connection: other, at }) = past.map(|past| past.again) {
            // What it did not come to may still be sent again.
            let pasts = self.senders.get_mut(sender);
            if let Some(other) = pasts.and_then(|pasts| pasts.get_mut(&other)) {
                other.state = State::Broken;
                let before = other.hashes.len();
                other.keep_last(usize::try_from(other.count.saturating_sub(at)).unwrap_or(usize::MAX));
                self.total = self.total - before + other.hashes.len();
            }
        }
    }

    /// A connection has ended, and some of its acknowledgements may not have reached its sender.
    pub(super) fn broke(&mut self, sender: &Arc<str>, connection: u64) {
        let Some(pasts) = self.senders.get_mut(sender) else { return };
        let Some(past) = pasts.get_mut(&connection) else { return };
        past.state = State::Broken;
        if let Again::From { connection: other, .. } = std::mem::replace(&mut past.again, Again::Over)
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

    /// Forgets what is too much of a sender's broken connections.
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

    fn forget(&mut self, sender: &Arc<str>, connection: u64) -> Option<Past> {
        let pasts = self.senders.get_mut(sender)?;
        let past = pasts.remove(&connection)?;
        if pasts.is_empty() {
            self.senders.remove(sender);
        }
        self.order.remove(&past.used);
        self.total -= past.hashes.len();
        Some(past)
    }

    /// Takes what a record says, when a spool is opened; `end` is where the spool ends behind it.
    pub(super) fn read(&mut self, record: &Record, end: Position) {
        if record.ended {
            self.forget(&record.sent.sender, record.sent.connection);
        } else if !record.sent.hashes.is_empty() {
            self.take(&record.sent, end);
        }
    }
}

/// The longest run that these events begin with in a broken connection: which one, where, and how long.
fn overlap_with_any(pasts: &HashMap<u64, Past>, hashes: &[u64]) -> Option<(u64, u64, usize)> {
    let mut broken = pasts.iter().filter(|(_, past)| past.state == State::Broken).peekable();
    broken.peek()?;
    let table = failures(hashes);
    let found = broken.filter_map(|(connection, past)| {
        let (at, run) = overlap(hashes, &table, past.hashes.iter().copied())?;
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

/// Where in the text the pattern is, or where the text ends with a beginning of it, and how much of it is there. The last
/// place, if there are several. Linear in both.
fn overlap<T: PartialEq>(pattern: &[T], table: &[usize], text: impl Iterator<Item = T>) -> Option<(usize, usize)> {
    let (mut state, mut length, mut whole) = (0, 0, None);
    for item in text {
        state = step(pattern, table, state, &item);
        length += 1;
        if state == pattern.len() {
            whole = Some((length - state, state));
            // It goes on as if the whole had not fitted, and may end with a beginning of another one.
            state = table.last().copied().unwrap_or(0);
        }
    }
    whole.or_else(|| (state > 0).then_some((length - state, state)))
}

impl Past {
    /// The number of the first event that is remembered.
    fn first(&self) -> u64 {
        self.count - self.hashes.len() as u64
    }

    /// Remembers no more than its last events.
    fn keep_last(&mut self, events: usize) {
        let surplus = self.hashes.len().saturating_sub(events);
        self.hashes.drain(..surplus);
        let first = self.first();
        while self.ends.front().is_some_and(|(count, _)| *count <= first) {
            self.ends.pop_front();
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
mod tests {
    use std::cell::Cell;

    use super::*;

    const END: Position = Position { segment: 1, row: 9 };

    /// A spool's memory of one sender.
    #[derive(Default)]
    struct Memory(Recent, HashMap<u64, bool>);

    impl Memory {
        fn with(broken: &[(u64, &[u64])]) -> Self {
            let mut memory = Self::default();
            for (connection, hashes) in broken {
                assert_eq!(memory.taken(*connection, hashes), 0);
                memory.0.broke(&"a".into(), *connection);
            }
            memory
        }

        /// So many of these events were taken before.
        fn taken(&mut self, connection: u64, hashes: &[u64]) -> usize {
            self.taken_of("a", connection, hashes, u32::MAX)
        }

        fn taken_of(&mut self, sender: &str, connection: u64, hashes: &[u64], unconfirmed: u32) -> usize {
            let sent = Sent { sender: sender.into(), connection, hashes: hashes.to_vec(), unconfirmed };
            let begins = self.1.insert(connection, true).is_none();
            let seen = self.0.seen(&sent, begins).map_or(0, |seen| seen.events);
            self.0.take(&sent, END);
            self.check();
            seen
        }

        fn broke(&mut self, connection: u64) {
            self.0.broke(&"a".into(), connection);
            self.check();
        }

        fn ended(&mut self, connection: u64) {
            self.0.ended(&"a".into(), connection);
            self.check();
        }

        fn check(&self) {
            let pasts = || self.0.senders.values().flat_map(HashMap::values);
            assert_eq!(pasts().map(|past| past.hashes.len()).sum::<usize>(), self.0.total);
            assert_eq!(pasts().count(), self.0.order.len());
            assert!(self.0.total <= AT_ALL && self.0.order.len() <= CONNECTIONS);
            for past in pasts() {
                assert_eq!(past.ends.back().map(|(count, _)| *count).unwrap_or_default(), past.count);
            }
        }
    }

    #[test]
    fn what_a_new_connection_begins_with_is_compared_up_to_the_first_difference() {
        let mut memory = Memory::default();
        assert_eq!((memory.taken(1, &[1, 2, 3]), memory.taken(1, &[4, 5]), memory.taken(1, &[4, 5])), (0, 0, 0));
        memory.broke(1);
        // The windows are cut otherwise, and the last goes on with what is new.
        assert_eq!((memory.taken(2, &[3]), memory.taken(2, &[4, 5, 4]), memory.taken(2, &[5, 6])), (1, 3, 1));
        let mut memory = Memory::with(&[(1, &[1, 2, 3, 4, 5])]);
        assert_eq!((memory.taken(2, &[3, 4]), memory.taken(2, &[5, 6]), memory.taken(2, &[1, 2])), (2, 1, 0));
        memory.broke(2);
        assert_eq!(memory.taken(3, &[5, 6, 1, 2, 8]), 4);
    }

    #[test]
    fn a_part_of_a_window_counts_and_so_does_its_rest() {
        assert_eq!(Memory::with(&[(1, &[1, 2, 3])]).taken(2, &[1, 2, 3, 4, 5]), 3);
        assert_eq!(Memory::with(&[(1, &[1, 2, 3, 4, 5])]).taken(2, &[4, 5]), 2);
        // In the midst, and then something else: nobody sends again so.
        assert_eq!(Memory::with(&[(1, &[1, 2, 3, 4, 5])]).taken(2, &[2, 3, 9]), 0);
        assert_eq!(Memory::with(&[(1, &[7, 7, 7, 1, 7, 7])]).taken(2, &[7, 7, 7, 7]), 2);
    }

    #[test]
    fn equal_events_of_connections_that_are_open_or_have_ended_are_new() {
        let mut memory = Memory::default();
        for connection in 0..5 {
            assert_eq!(memory.taken(connection, &[7]), 0);
            memory.ended(connection);
        }
        assert!(memory.0.senders.is_empty(), "nothing is left of them");
        assert_eq!((memory.taken(10, &[7]), memory.taken(11, &[7]), memory.taken(11, &[7])), (0, 0, 0));
        // The other one is no sender's second try, whatever becomes of this one.
        memory.broke(10);
        assert_eq!(memory.taken(11, &[7]), 0);
        assert_eq!(memory.taken(12, &[7]), 1);
        // It was sent again, and that is that.
        memory.ended(12);
        assert_eq!(memory.taken(13, &[7]), 0);
    }

    #[test]
    fn only_what_may_not_have_been_acknowledged_is_remembered() {
        let mut memory = Memory::default();
        for (window, unconfirmed) in [(1, 1), (2, 2), (3, 2), (4, 2)] {
            assert_eq!(memory.taken_of("a", 1, &[window], unconfirmed), 0);
        }
        memory.broke(1);
        assert_eq!(memory.taken(2, &[2, 3, 4]), 0);
        assert_eq!((memory.taken(3, &[3]), memory.taken(3, &[4, 5])), (1, 1));
    }

    #[test]
    fn a_connection_that_breaks_while_it_sends_again_leaves_the_whole_to_the_next() {
        let mut memory = Memory::with(&[(1, &[1, 2, 3, 4])]);
        assert_eq!(memory.taken(2, &[1, 2]), 2);
        // Nobody else sends it again meanwhile.
        assert_eq!(memory.taken(9, &[3, 4]), 0);
        memory.broke(2);
        assert_eq!((memory.taken(3, &[2, 3]), memory.taken(3, &[4, 5])), (2, 1));
        memory.ended(3);
        assert_eq!(memory.taken(4, &[1, 2]), 0);
        // One that ends properly leaves what it did not come to.
        let mut memory = Memory::with(&[(1, &[1, 2, 3, 4])]);
        assert_eq!(memory.taken(2, &[1, 2]), 2);
        memory.ended(2);
        assert_eq!((memory.taken(3, &[1]), memory.taken(4, &[3, 4, 5])), (0, 2));
        // One that goes on with something else was another sender behind the same address.
        let mut memory = Memory::with(&[(1, &[1, 2, 3, 4])]);
        assert_eq!((memory.taken(2, &[1, 2]), memory.taken(2, &[9])), (2, 0));
        assert_eq!((memory.taken(3, &[1, 2, 3]), memory.taken(3, &[8, 4])), (3, 0));
        assert_eq!(memory.taken(4, &[1, 2, 3, 4]), 4);
    }

    #[test]
    fn senders_are_apart_and_memory_is_bounded() {
        let mut memory = Memory::with(&[(1, &[1])]);
        assert_eq!(memory.taken_of("b", 2, &[1], 1), 0);
        for connection in 10..110 {
            memory.taken(connection, &[connection]);
            memory.broke(connection);
        }
        let kept = (10..110).filter(|connection| memory.0.knows(&"a".into(), *connection)).collect::<Vec<_>>();
        assert_eq!(kept, (110 - BROKEN as u64..110).collect::<Vec<_>>(), "the least recently used went first");
        // Of one sender, and of all.
        let many: Vec<u64> = (0..OF_CONNECTION as u64).collect();
        for connection in 200..210 {
            memory.taken(connection, &many);
            memory.broke(connection);
        }
        assert!(memory.0.senders[&Arc::from("a")].values().map(|past| past.hashes.len()).sum::<usize>() <= OF_SENDER);
        for sender in 0..40 {
            memory.taken_of(&sender.to_string(), 300 + sender, &many, u32::MAX);
        }
        for sender in 0..2 * CONNECTIONS as u64 {
            let (sender, sent) = (format!("c{sender}").into(), 1_000 + sender);
            memory.0.take(&Sent { sender, connection: sent, hashes: vec![1], unconfirmed: 1 }, END);
        }
        memory.check();
        assert_eq!(memory.0.order.len(), CONNECTIONS);
    }

    #[test]
    fn a_restart_forgets_what_had_ended_and_takes_the_rest_for_broken() {
        let entry = super::super::format::Entry { octets: 0, rows: 1, lost: false };
        let sent = |connection, hashes: &[u64]| Sent {
            sender: "a".into(),
            connection,
            hashes: hashes.to_vec(),
            unconfirmed: u32::try_from(hashes.len()).unwrap(),
        };
        let record = |sent, ended| Record { entry, first: 0, sent, ended, message: 0..0 };
        let mut memory = Memory::default();
        memory.0.read(&record(sent(1, &[1, 2]), false), END);
        memory.0.read(&record(sent(2, &[5, 6]), false), END);
        memory.0.read(&record(sent(1, &[]), true), END);
        memory.0.all_broke();
        assert_eq!((memory.taken(11, &[1, 2]), memory.taken(12, &[5, 6])), (0, 2));
    }

    thread_local!(static COMPARISONS: Cell<u64> = const { Cell::new(0) });

    #[derive(Clone)]
    struct Counted(u64);

    impl PartialEq for Counted {
        fn eq(&self, other: &Self) -> bool {
            COMPARISONS.set(COMPARISONS.get() + 1);
            self.0 == other.0
        }
    }

    #[test]
    fn the_search_is_linear_whatever_the_events_are() {
        let cost = |pattern: &[u64], text: &[u64]| {
            COMPARISONS.set(0);
            let pattern: Vec<_> = pattern.iter().copied().map(Counted).collect();
            let found = overlap(&pattern, &failures(&pattern), text.iter().copied().map(Counted));
            (found, COMPARISONS.get())
        };
        let (window, past) = (65_536, OF_CONNECTION);
        let mut almost = vec![7; window];
        almost[window - 1] = 8;
        let half_way: Vec<u64> = (0..past as u64).map(|at| if at % 1000 == 999 { 8 } else { 7 }).collect();
        for (pattern, text, found) in [
            (vec![7; window], vec![7; past], Some((past - window, window))),
            (almost.clone(), vec![7; past], Some((past - window + 1, window - 1))),
            (vec![7; window], half_way, Some((past - past % 1000, past % 1000))),
        ] {
            let (at, comparisons) = cost(&pattern, &text);
            assert_eq!(at, found);
            assert!(comparisons <= 2 * (pattern.len() + text.len()) as u64, "{comparisons}");
        }
    }

    #[test]
    fn the_search_finds_what_a_plain_one_finds() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let mut some = |most| (0..random.usize(1..most)).map(|_| random.u64(0..3)).collect::<Vec<_>>();
            let (pattern, text) = (some(8), some(16));
            let runs = (0..text.len()).filter_map(|at| {
                let run = pattern.iter().zip(&text[at..]).take_while(|(a, b)| a == b).count();
                (run > 0 && (run == pattern.len() || at + run == text.len())).then_some((at, run))
            });
            let plain = runs.max_by_key(|(at, run)| (*run, *at));
            assert_eq!(overlap(&pattern, &failures(&pattern), text.iter().copied()), plain, "{pattern:?} in {text:?}");
        }
    }
}
