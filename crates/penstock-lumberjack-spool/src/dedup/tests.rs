use std::cell::Cell;

use super::*;

const END: Position = Position { segment: 1, row: 9 };

/// The history of senders, and the connections that have sent something.
#[derive(Default)]
struct Memory(Recent, HashMap<u64, bool>);

impl Memory {
    fn with(broken: &[(u64, &[u64])]) -> Self {
        let mut memory = Self::default();
        for (connection, hashes) in broken {
            // Each event is a batch of its own, so a repetition may begin with any of them.
            hashes.iter().for_each(|hash| assert_eq!(memory.taken(*connection, &[*hash]), 0));
            memory.0.broke(&"a".into(), *connection);
        }
        memory
    }

    /// Take events of a connection; return how many of them were taken before.
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
        assert_eq!(pasts().map(ConnectionHistory::size).sum::<usize>(), self.0.total);
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
    for window in [&[1, 2][..], &[3], &[4, 5], &[4, 5]] {
        assert_eq!(memory.taken(1, window), 0);
    }
    memory.broke(1);
    // The windows are cut differently, and the last one continues with new events.
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
    // A repetition from the middle that does not reach the end is none.
    assert_eq!(Memory::with(&[(1, &[1, 2, 3, 4, 5])]).taken(2, &[2, 3, 9]), 0);
    assert_eq!(Memory::with(&[(1, &[7, 7, 7, 1, 7, 7])]).taken(2, &[7, 7, 7, 7]), 2);
}

#[test]
fn what_is_sent_again_begins_behind_an_acknowledgement_and_goes_on_to_the_end() {
    let begins_with = |events: &[u64]| {
        let mut memory = Memory::default();
        assert_eq!((memory.taken(1, &[1, 2]), memory.taken(1, &[3, 4])), (0, 0));
        memory.broke(1);
        memory.taken(2, events)
    };
    assert_eq!((begins_with(&[1, 2]), begins_with(&[3, 4]), begins_with(&[3, 4, 5])), (2, 2, 2));
    // No batch ended before these events.
    assert_eq!((begins_with(&[2]), begins_with(&[2, 3]), begins_with(&[4]), begins_with(&[4, 5])), (0, 0, 0, 0));
    // The longest matching suffix does not begin a batch, but a shorter one does.
    let mut memory = Memory::default();
    assert_eq!((memory.taken(1, &[7, 7]), memory.taken(1, &[7])), (0, 0));
    memory.broke(1);
    assert_eq!(memory.taken_of("a", 2, &[7, 7, 8], u32::MAX), 1);
    // A connection that continues differently is another sender's, and its whole batch is new.
    let mut memory = Memory::with(&[(1, &[1, 2, 3, 4])]);
    assert_eq!((memory.taken(2, &[1, 2]), memory.taken(2, &[3, 9])), (2, 0));
    let mut memory = Memory::with(&[(1, &[1, 2, 3, 4])]);
    assert_eq!((memory.taken(2, &[1, 2]), memory.taken(2, &[3, 4, 9])), (2, 2));
}

#[test]
fn a_connection_that_sent_again_ends_those_before_it_too() {
    let mut memory = Memory::with(&[(1, &[1, 2])]);
    assert_eq!(memory.taken(2, &[1, 2, 3]), 2);
    memory.broke(2);
    assert_eq!(memory.taken(3, &[1, 2, 3]), 3);
    assert_eq!(memory.0.finished_by(&"a".into(), 3), [1, 2]);
}

#[test]
fn a_large_window_leaves_no_room_behind() {
    let mut memory = Memory::default();
    memory.taken(1, &(0..65_536).collect::<Vec<_>>());
    memory.taken_of("a", 1, &[1], 1);
    let past = &memory.0.senders[&Arc::from("a")][&1];
    assert!(past.hashes.capacity() <= ROOM, "{}", past.hashes.capacity());
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
    // The other connection was open at the same time, so it repeats nothing after this one breaks.
    memory.broke(10);
    assert_eq!(memory.taken(11, &[7]), 0);
    assert_eq!(memory.taken(12, &[7]), 1);
    // The events were sent again, and are forgotten.
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
    // Meanwhile, no other connection can repeat the same events.
    assert_eq!(memory.taken(9, &[3, 4]), 0);
    memory.broke(2);
    assert_eq!((memory.taken(3, &[2, 3]), memory.taken(3, &[4, 5])), (2, 1));
    memory.ended(3);
    assert_eq!(memory.taken(4, &[1, 2]), 0);
    // A connection that ends cleanly leaves the events that it did not get to.
    let mut memory = Memory::with(&[(1, &[1, 2, 3, 4])]);
    assert_eq!(memory.taken(2, &[1, 2]), 2);
    memory.ended(2);
    assert_eq!((memory.taken(3, &[1]), memory.taken(4, &[3, 4, 5])), (0, 2));
    // A connection that continues with other events is of another sender behind the same address.
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
    // The limit for one sender, and the limits for all.
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
    let entry = crate::format::Entry { bytes: 0, rows: 1, lost: false };
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
        let found = overlap(&pattern, &failures(&pattern), text.iter().copied().map(Counted), |_| true);
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
        let (pattern, text, places) = (some(8), some(16), random.u64(..));
        let begins = |at: usize| (places >> at) & 1 == 1;
        let runs = (0..text.len()).filter_map(|at| {
            let run = pattern.iter().zip(&text[at..]).take_while(|(a, b)| a == b).count();
            (begins(at) && run > 0 && (run == pattern.len() || at + run == text.len())).then_some((at, run))
        });
        let plain = runs.max_by_key(|(at, run)| (*run, *at));
        let found = overlap(&pattern, &failures(&pattern), text.iter().copied(), begins);
        assert_eq!(found, plain, "{pattern:?} in {text:?}");
    }
}
