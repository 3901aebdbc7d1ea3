//! What is sent again (decision 12): which events of a new connection were taken from an earlier one.
//!
//! A sender that has lost its connection sends again, in order, what was not acknowledged, and then goes on. So the
//! events of a new connection are compared with the end of what was taken from the same sender over other connections,
//! up to the first difference: then everything is new.
//!
//! The end of the old connection may be read later than the beginning of the new one. What is taken of a connection that
//! its sender has closed is therefore compared with what newer ones have brought since, and these go on behind it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::Position;

/// Events that are remembered of a connection: two of the largest windows.
pub(super) const OF_CONNECTION: usize = 2 * 65_536;
/// Events that are remembered at all: 32 MiB of hashes.
const AT_ALL: usize = 4 << 20;

/// What was taken of one connection, and where the spool has it.
#[derive(Debug, Default)]
struct Past {
    hashes: VecDeque<u64>,
    /// Where the spool ended after each batch, with the count of all events by then; the newest at the back.
    ends: VecDeque<(u64, Position)>,
    count: u64,
    used: u64,
    /// When its first batch was taken, and when it was last seen open, by the clock.
    began: u64,
    open: u64,
    resent: Resent,
}

/// Whether a connection sends again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Resent {
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
    total: usize,
    clock: u64,
}

impl Recent {
    /// How many events at the beginning of a batch were taken before; `gone`: its sender has closed the connection.
    pub(super) fn seen(&mut self, sender: &Arc<str>, connection: u64, hashes: &[u64], gone: bool) -> Option<Seen> {
        let seen = self.resent(sender, connection, hashes);
        let pasts = self.senders.entry(Arc::clone(sender)).or_default();
        if gone {
            let late = late(pasts, connection, hashes);
            return seen.into_iter().chain(late).max_by_key(|seen| seen.events);
        }
        pasts.entry(connection).or_default().open = self.clock;
        seen
    }

    /// What a connection begins with, and others have brought.
    fn resent(&mut self, sender: &Arc<str>, connection: u64, hashes: &[u64]) -> Option<Seen> {
        let pasts = self.senders.entry(Arc::clone(sender)).or_default();
        let resent = pasts.entry(connection).or_default().resent;
        let found = match resent {
            Resent::Over => None,
            Resent::From { connection: other, at } => {
                let run = pasts.get(&other).map_or(0, |past| past.run(at, hashes));
                (run > 0).then_some((other, at, run))
            }
            Resent::Unknown => pasts
                .iter()
                .filter(|(other, _)| **other != connection)
                .filter_map(|(other, past)| past.overlap(hashes).map(|(at, run)| (*other, at, run)))
                .max_by_key(|(other, at, run)| (*run, *at, *other)),
        };
        let goes_on = found.filter(|(other, at, run)| {
            *run == hashes.len() && pasts.get(other).is_some_and(|past| at + (*run as u64) < past.count)
        });
        let seen = found.and_then(|(other, at, run)| {
            let end = pasts.get(&other)?.end_of(at + run as u64)?;
            Some(Seen { events: run, end })
        });
        if let Some(past) = pasts.get_mut(&connection) {
            past.resent = goes_on
                .map_or(Resent::Over, |(other, at, run)| Resent::From { connection: other, at: at + run as u64 });
        }
        seen
    }

    /// These events were taken, or seen, and the spool has them before `end`.
    pub(super) fn take(&mut self, sender: &Arc<str>, connection: u64, hashes: &[u64], end: Position) {
        self.clock += 1;
        let past = self.senders.entry(Arc::clone(sender)).or_default().entry(connection).or_default();
        past.used = self.clock;
        if past.count == 0 {
            past.began = self.clock;
        }
        past.count += hashes.len() as u64;
        past.hashes.extend(hashes);
        past.ends.push_back((past.count, end));
        let surplus = past.hashes.len().saturating_sub(OF_CONNECTION);
        past.hashes.drain(..surplus);
        let first = past.first();
        while past.ends.front().is_some_and(|(count, _)| *count <= first) {
            past.ends.pop_front();
        }
        self.total += hashes.len();
        self.total -= surplus;
        while self.total > AT_ALL && self.forget() {}
    }

    /// Nobody goes on after a restart: what is remembered is compared with new connections only.
    fn forget(&mut self) -> bool {
        let all = self.senders.iter().flat_map(|(sender, pasts)| pasts.iter().map(move |past| (sender, past)));
        let oldest =
            all.min_by_key(|(_, (_, past))| past.used).map(|(sender, (number, _))| (Arc::clone(sender), *number));
        let Some((sender, number)) = oldest else { return false };
        if let Some(pasts) = self.senders.get_mut(&sender) {
            self.total -= pasts.remove(&number).map_or(0, |past| past.hashes.len());
            if pasts.is_empty() {
                self.senders.remove(&sender);
            }
        }
        true
    }
}

/// How many events of a batch, which comes late, its sender has sent again over a newer connection, which began when this
/// one had no more to say.
fn late(pasts: &mut HashMap<u64, Past>, connection: u64, hashes: &[u64]) -> Option<Seen> {
    let old = pasts.get(&connection)?;
    let (count, open) = (old.count, old.open);
    // Connections are numbered as they come; another process began elsewhere.
    let is_newer = |number: &u64| u32::try_from(number.wrapping_sub(connection)).is_ok_and(|distance| distance > 0);
    let whole: VecDeque<u64> = old.hashes.iter().chain(hashes).copied().collect();
    let whole = Past { hashes: whole, count: count + hashes.len() as u64, ..Past::default() };
    let mut found: Option<Seen> = None;
    for (_, newer) in pasts.iter_mut().filter(|(number, newer)| is_newer(number) && newer.began > open) {
        // All that it has sent, which begins with what was not acknowledged: nothing behind the beginning of the batch.
        let sent: Vec<u64> = newer.hashes.iter().copied().collect();
        let fits = |(at, _): &(u64, usize)| newer.first() == 0 && *at <= count;
        let Some((at, run)) = whole.overlap(&sent).filter(fits) else { continue };
        let end = at + run as u64;
        let Some(events) = end.checked_sub(count).and_then(|events| usize::try_from(events).ok()) else { continue };
        if run == sent.len() {
            newer.resent = Resent::From { connection, at: end };
        }
        if let Some(end) = newer.end_of(run as u64).filter(|_| found.is_none_or(|found| found.events < events)) {
            found = Some(Seen { events, end });
        }
    }
    found.filter(|seen| seen.events > 0)
}

impl Past {
    /// The number of the first event that is remembered.
    fn first(&self) -> u64 {
        self.count - self.hashes.len() as u64
    }

    /// How many of these events are those from number `at` on.
    fn run(&self, at: u64, hashes: &[u64]) -> usize {
        let Some(skip) = at.checked_sub(self.first()).and_then(|skip| usize::try_from(skip).ok()) else { return 0 };
        self.hashes.iter().skip(skip).zip(hashes).take_while(|(a, b)| a == b).count()
    }

    /// The longest run that these events begin with, and that is either all of them or goes up to the end.
    fn overlap(&self, hashes: &[u64]) -> Option<(u64, usize)> {
        let wanted = hashes.first()?;
        let starts = self.hashes.iter().enumerate().filter(|(_, hash)| *hash == wanted);
        let runs = starts.filter_map(|(index, _)| {
            let at = self.first() + index as u64;
            let run = self.run(at, hashes);
            (run == hashes.len() || index + run == self.hashes.len()).then_some((at, run))
        });
        runs.max_by_key(|(at, run)| (*run, *at))
    }

    /// Where the spool has the events before number `count`.
    fn end_of(&self, count: u64) -> Option<Position> {
        self.ends.iter().find(|(end, _)| *end >= count).map(|(_, position)| *position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: Position = Position { segment: 1, row: 9 };

    fn handed_on(recent: &mut Recent, connection: u64, hashes: &[u64], gone: bool) -> usize {
        let sender: Arc<str> = "a".into();
        let seen = recent.seen(&sender, connection, hashes, gone).map_or(0, |seen| seen.events);
        recent.take(&sender, connection, hashes, END);
        seen
    }

    fn taken(recent: &mut Recent, connection: u64, hashes: &[u64]) -> usize {
        handed_on(recent, connection, hashes, false)
    }

    /// What is taken of a connection that was closed.
    fn late(recent: &mut Recent, connection: u64, hashes: &[u64]) -> usize {
        handed_on(recent, connection, hashes, true)
    }

    #[test]
    fn what_a_new_connection_begins_with_is_compared_up_to_the_first_difference() {
        let mut recent = Recent::default();
        assert_eq!(taken(&mut recent, 1, &[1, 2, 3]), 0);
        assert_eq!(taken(&mut recent, 1, &[4, 5]), 0);
        // The same connection may say the same again.
        assert_eq!(taken(&mut recent, 1, &[4, 5]), 0);
        // The windows are cut otherwise, and the last goes on with what is new.
        assert_eq!(taken(&mut recent, 2, &[5]), 1);
        assert_eq!(taken(&mut recent, 2, &[4, 5, 6, 7]), 0);
        let mut recent = Recent::default();
        taken(&mut recent, 1, &[1, 2, 3, 4, 5]);
        assert_eq!(taken(&mut recent, 2, &[3, 4]), 2);
        assert_eq!(taken(&mut recent, 2, &[5, 6]), 1);
        assert_eq!(taken(&mut recent, 2, &[1, 2]), 0);
        // What the second one took counts as well.
        assert_eq!(taken(&mut recent, 3, &[5, 6, 1, 2, 8]), 4);
    }

    #[test]
    fn a_part_of_a_window_counts_and_so_does_its_rest() {
        let mut recent = Recent::default();
        taken(&mut recent, 1, &[1, 2, 3]);
        assert_eq!(taken(&mut recent, 2, &[1, 2, 3, 4, 5]), 3);
        let mut recent = Recent::default();
        taken(&mut recent, 1, &[1, 2, 3, 4, 5]);
        assert_eq!(taken(&mut recent, 2, &[4, 5]), 2);
        // In the midst, and then something else: nobody sends again so.
        let mut recent = Recent::default();
        taken(&mut recent, 1, &[1, 2, 3, 4, 5]);
        assert_eq!(taken(&mut recent, 2, &[2, 3, 9]), 0);
    }

    #[test]
    fn the_end_of_a_closed_connection_may_come_after_the_beginning_of_the_next() {
        // The whole of it; all but its first window; its last part, before and after the next one has sent that again.
        let mut recent = Recent::default();
        assert_eq!(taken(&mut recent, 2, &[1, 2, 3, 4]), 0);
        assert_eq!((late(&mut recent, 1, &[1, 2]), late(&mut recent, 1, &[3])), (2, 1));
        assert_eq!(taken(&mut recent, 2, &[5]), 0);
        let mut recent = Recent::default();
        taken(&mut recent, 1, &[1, 2]);
        assert_eq!(taken(&mut recent, 2, &[3, 4]), 0);
        assert_eq!((late(&mut recent, 1, &[3, 4]), late(&mut recent, 1, &[5])), (2, 0));
        assert_eq!(taken(&mut recent, 2, &[5, 6]), 1);
        for (again, events, rest, left) in [
            (&[1, 2][..], 0, &[3, 4][..], 1),
            (&[2], 0, &[3, 4], 1),
            (&[2, 3], 1, &[4], 0),
            (&[1, 2, 3, 4], 1, &[5], 0),
        ] {
            let mut recent = Recent::default();
            taken(&mut recent, 1, &[1, 2]);
            taken(&mut recent, 2, again);
            assert_eq!((late(&mut recent, 1, &[3]), taken(&mut recent, 2, rest)), (events, left), "{again:?}");
        }
    }

    #[test]
    fn connections_side_by_side_may_say_the_same() {
        let mut recent = Recent::default();
        assert_eq!(taken(&mut recent, 1, &[1]), 0);
        assert_eq!(taken(&mut recent, 2, &[9]), 0);
        // It was open when the other one had begun, so that one does not send again what this one says.
        assert_eq!(taken(&mut recent, 1, &[8]), 0);
        assert_eq!(taken(&mut recent, 2, &[7]), 0);
        assert_eq!(late(&mut recent, 1, &[9]), 0);
        // An older one is no successor, and no more is one that began otherwise.
        let mut recent = Recent::default();
        taken(&mut recent, 1, &[5, 6]);
        taken(&mut recent, 2, &[4]);
        assert_eq!(late(&mut recent, 2, &[5]), 0);
        assert_eq!(taken(&mut recent, 3, &[7, 5]), 0);
        assert_eq!(late(&mut recent, 2, &[5]), 0);
    }

    #[test]
    fn other_senders_are_others_and_memory_is_bounded() {
        let mut recent = Recent::default();
        taken(&mut recent, 1, &[1]);
        assert_eq!(recent.seen(&"b".into(), 2, &[1], false), None);
        for connection in 0..40 {
            let hashes: Vec<u64> = (0..150_000).map(|hash| hash + connection * 1_000_000).collect();
            taken(&mut recent, connection + 10, &hashes);
        }
        let kept: usize = recent.senders.values().flat_map(HashMap::values).map(|past| past.hashes.len()).sum();
        assert_eq!(kept, recent.total);
        assert!(kept <= AT_ALL);
    }
}
