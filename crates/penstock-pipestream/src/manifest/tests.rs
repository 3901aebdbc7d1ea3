use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::error::{Error, ErrorCode, LimitError};

struct Clock {
    start: Instant,
    seconds: u64,
}

impl Clock {
    fn new() -> Self {
        Self { start: Instant::now(), seconds: 0 }
    }

    fn now(&self) -> Now {
        Now {
            instant: self.start + Duration::from_secs(self.seconds),
            unix_micros: 1_700_000_000_000_000 + self.seconds * 1_000_000,
        }
    }

    fn at(start: &Self, seconds: u64) -> Now {
        Self { start: start.start, seconds }.now()
    }
}

fn key(entity: u32) -> EntryKey {
    EntryKey { scope: 0, entity }
}

fn small(max_entries: usize, max_orphans: usize) -> Manifest {
    Manifest::new(ManifestLimits { max_entries, max_orphans, ..ManifestLimits::default() })
}

#[test]
fn a_parent_is_resolved_when_the_last_child_is_terminal_and_the_entry_is_sealed() {
    let clock = Clock::new();
    let mut manifest = Manifest::default();
    manifest.open(clock.now(), key(1)).expect("opened");
    for child in 2..=4 {
        manifest.add_child(key(1), child, Some(Status::Pending)).expect("added");
        manifest.complete_child(clock.now(), key(1), child, Status::Complete).expect("completed");
    }
    assert_eq!(manifest.pop_resolved(), None, "it may have more children until it is sealed");
    manifest.seal(key(1)).expect("sealed");
    manifest.seal(key(1)).expect("sealing again changes nothing");
    let resolution = manifest.pop_resolved().expect("resolved");
    assert_eq!((resolution.key, resolution.state), (key(1), ResolutionState::Resolved));
    assert_eq!((resolution.children, resolution.succeeded, resolution.failed, resolution.deferred), (3, 3, 0, 0));
    assert!(manifest.is_empty() && manifest.pop_resolved().is_none());
}

#[test]
fn under_strict_a_child_that_is_not_complete_makes_its_parent_failed() {
    let clock = Clock::new();
    for (status, failed, deferred) in
        [(Status::Failed, 1, 0), (Status::Abandoned, 1, 0), (Status::Deferred, 0, 1), (Status::Skipped, 0, 0)]
    {
        let mut manifest = Manifest::default();
        manifest.open(clock.now(), key(1)).expect("opened");
        manifest.add_child(key(1), 2, None).expect("added");
        manifest.add_child(key(1), 3, None).expect("added");
        manifest.seal(key(1)).expect("sealed");
        manifest.complete_child(clock.now(), key(1), 3, status).expect("completed");
        assert_eq!(manifest.entry(key(1)).expect("open").state, ResolutionState::Active);
        manifest.complete_child(clock.now(), key(1), 2, Status::Complete).expect("completed");
        assert_eq!(manifest.entry(key(1)).expect("open").state, ResolutionState::Failed);
        let resolution = manifest.pop_resolved().expect("resolved");
        assert_eq!((resolution.state, resolution.succeeded), (ResolutionState::Failed, 1));
        assert_eq!((resolution.failed, resolution.deferred), (failed, deferred));
    }
}

#[test]
fn a_parent_without_children_is_resolved_when_it_is_sealed() {
    let mut manifest = Manifest::default();
    manifest.open(Clock::new().now(), key(9)).expect("opened");
    manifest.seal(key(9)).expect("sealed");
    assert_eq!(manifest.pop_resolved().map(|resolution| resolution.state), Some(ResolutionState::Resolved));
}

#[test]
fn the_first_terminal_status_stands_and_the_second_is_counted() {
    let clock = Clock::new();
    let mut manifest = Manifest::default();
    manifest.open(clock.now(), key(1)).expect("opened");
    manifest.add_child(key(1), 2, None).expect("added");
    manifest.add_child(key(1), 3, None).expect("added");
    manifest.seal(key(1)).expect("sealed");
    assert_eq!(manifest.complete_child(clock.now(), key(1), 2, Status::Failed), Ok(Completion::Applied));
    assert_eq!(manifest.complete_child(clock.now(), key(1), 2, Status::Complete), Ok(Completion::Repeated));
    manifest.add_child(key(1), 2, Some(Status::Complete)).expect("idempotent, also when sealed");
    let children: Vec<_> = manifest.children(key(1)).collect();
    assert_eq!(children, [(2, Some(Status::Failed)), (3, None)]);
    assert_eq!((manifest.unresolved_count(key(1)), manifest.counters().repeated), (1, 1));
}

#[test]
fn a_sealed_entry_takes_no_new_child() {
    let clock = Clock::new();
    let mut manifest = Manifest::default();
    manifest.open(clock.now(), key(1)).expect("opened");
    manifest.add_child(key(1), 2, None).expect("added");
    manifest.seal(key(1)).expect("sealed");
    assert_eq!(manifest.add_child(key(1), 3, None).expect_err("sealed").kind(), penstock_wire::ErrorKind::Misuse);
    let error = manifest.complete_child(clock.now(), key(1), 3, Status::Complete).expect_err("no such child");
    assert_eq!(error.code(), ErrorCode::EntityInvalid);
    assert_eq!((manifest.children(key(1)).count(), manifest.counters().unknown_children_refused), (1, 1));
}

#[test]
fn misuse_changes_nothing() {
    let clock = Clock::new();
    let mut manifest = Manifest::default();
    manifest.open(clock.now(), key(1)).expect("opened");
    assert!(manifest.open(clock.now(), key(1)).is_err(), "open already");
    assert!(manifest.add_child(key(2), 3, None).is_err() && manifest.seal(key(2)).is_err(), "not open");
    assert!(manifest.complete_child(clock.now(), key(1), 3, Status::Processing).is_err(), "not terminal");
    assert!(manifest.add_child(key(1), 0, None).is_err(), "a reserved ID");
    assert!(manifest.complete_child(clock.now(), key(7), 0, Status::Complete).is_err(), "a reserved ID");
    assert_eq!((manifest.len(), manifest.children(key(1)).count(), manifest.orphan_count()), (1, 0, 0));
}

#[test]
fn a_completion_before_its_parents_entry_waits_for_it() {
    let clock = Clock::new();
    let mut manifest = Manifest::default();
    assert_eq!(manifest.complete_child(clock.now(), key(1), 2, Status::Complete), Ok(Completion::Orphaned));
    assert_eq!(manifest.complete_child(clock.now(), key(1), 2, Status::Failed), Ok(Completion::Repeated));
    assert_eq!(manifest.complete_child(clock.now(), key(5), 2, Status::Failed), Ok(Completion::Orphaned));
    manifest.open(clock.now(), key(1)).expect("opened");
    assert_eq!((manifest.orphan_count(), manifest.counters().orphans_adopted), (1, 1));
    manifest.add_child(key(1), 2, Some(Status::Pending)).expect("idempotent");
    manifest.seal(key(1)).expect("sealed");
    assert_eq!(manifest.pop_resolved().map(|resolution| resolution.succeeded), Some(1));
}

#[test]
fn an_orphan_is_dropped_after_thirty_seconds_and_not_before() {
    let clock = Clock::new();
    let mut manifest = Manifest::default();
    manifest.complete_child(Clock::at(&clock, 0), key(1), 2, Status::Complete).expect("kept");
    manifest.complete_child(Clock::at(&clock, 10), key(1), 3, Status::Complete).expect("kept");
    assert_eq!(manifest.poll_timeout(), Some(Clock::at(&clock, 30).instant));
    manifest.handle_timeout(Clock::at(&clock, 29));
    assert_eq!(manifest.orphan_count(), 2);
    manifest.handle_timeout(Clock::at(&clock, 30));
    assert_eq!((manifest.orphan_count(), manifest.counters().orphans_dropped), (1, 1));
    assert_eq!(manifest.poll_timeout(), Some(Clock::at(&clock, 40).instant));
    manifest.open(Clock::at(&clock, 31), key(1)).expect("opened");
    assert_eq!(manifest.children(key(1)).collect::<Vec<_>>(), [(3, Some(Status::Complete))]);
}

#[test]
fn an_orphan_kept_again_after_its_adoption_gets_its_whole_time() {
    let clock = Clock::new();
    let mut manifest = Manifest::default();
    manifest.complete_child(Clock::at(&clock, 0), key(8), 9, Status::Complete).expect("kept");
    manifest.complete_child(Clock::at(&clock, 1), key(1), 2, Status::Complete).expect("kept");
    manifest.open(Clock::at(&clock, 2), key(1)).expect("opened");
    assert!(manifest.remove(key(1)) && !manifest.remove(key(1)));
    manifest.complete_child(Clock::at(&clock, 20), key(1), 2, Status::Complete).expect("kept");
    manifest.handle_timeout(Clock::at(&clock, 31));
    assert_eq!((manifest.orphan_count(), manifest.counters().orphans_dropped), (1, 1));
    assert_eq!(manifest.poll_timeout(), Some(Clock::at(&clock, 50).instant));
}

#[test]
fn entries_expire_in_the_order_in_which_they_were_opened() {
    let clock = Clock::new();
    let mut manifest = Manifest::default();
    for entity in 1..=4 {
        manifest.open(Clock::at(&clock, u64::from(entity)), key(entity)).expect("opened");
    }
    manifest.seal(key(1)).expect("sealed");
    assert!(manifest.remove(key(2)));
    assert_eq!(manifest.poll_timeout(), Some(Clock::at(&clock, 3601).instant));
    assert_eq!(manifest.handle_timeout(Clock::at(&clock, 3600)), []);
    assert_eq!(manifest.handle_timeout(Clock::at(&clock, 3603)), [key(1), key(3)]);
    assert_eq!(manifest.pop_resolved(), None, "the expired entry has left the heap");
    assert_eq!((manifest.len(), manifest.counters().expired), (1, 2));
    assert_eq!(manifest.poll_timeout(), Some(Clock::at(&clock, 3604).instant));
    assert_eq!(manifest.handle_timeout(Clock::at(&clock, 9999)), [key(4)]);
    assert_eq!(manifest.poll_timeout(), None);
}

#[test]
fn the_limits_of_entries_and_orphans_hold_and_are_counted() {
    let clock = Clock::new();
    let mut manifest = small(2, 1);
    manifest.open(clock.now(), key(1)).expect("opened");
    manifest.open(clock.now(), key(2)).expect("opened");
    let error = manifest.open(clock.now(), key(3)).expect_err("full");
    assert!(matches!(error, Error::Limit(LimitError::ManifestEntries { count: 2 }, Some(_))), "{error}");
    manifest.complete_child(clock.now(), key(3), 4, Status::Complete).expect("kept");
    let error = manifest.complete_child(clock.now(), key(3), 5, Status::Complete).expect_err("full");
    assert!(matches!(error, Error::Limit(LimitError::Orphans { count: 1 }, Some(_))), "{error}");
    assert_eq!((manifest.counters().entries_refused, manifest.counters().orphans_refused), (1, 1));
    assert!(manifest.remove(key(1)));
    manifest.open(clock.now(), key(3)).expect("room again");
    assert_eq!(manifest.children(key(3)).count(), 1);
}

#[test]
fn an_entry_reads_as_the_specification_describes_it() {
    let clock = Clock::new();
    let mut manifest = Manifest::default();
    let parent = EntryKey { scope: 4, entity: 7 };
    manifest.open(clock.now(), parent).expect("opened");
    manifest.add_child(parent, 1, Some(Status::Processing)).expect("added");
    let entry = manifest.entry(parent).expect("open");
    assert_eq!((entry.parent_id, entry.scope_id, entry.created_at), (7, 4, 1_700_000_000_000_000));
    assert_eq!((entry.state, entry.state.code()), (ResolutionState::Active, 1));
    assert_eq!(entry.children, [(1, Some(Status::Processing))]);
    assert_eq!(manifest.entry(key(7)), None);
}

#[test]
fn a_time_beyond_the_clocks_range_means_never() {
    let clock = Clock::new();
    let limits = ManifestLimits { max_age: Duration::MAX, orphan_age: Duration::MAX, ..ManifestLimits::default() };
    let mut manifest = Manifest::new(limits);
    manifest.open(clock.now(), key(1)).expect("opened");
    manifest.complete_child(clock.now(), key(2), 3, Status::Complete).expect("kept");
    assert_eq!((manifest.poll_timeout(), manifest.handle_timeout(clock.now())), (None, Vec::new()));
}

/// A model of the manifest as plain maps: entries with their children, and orphans with their times.
#[derive(Default)]
struct Model {
    entries: HashMap<EntryKey, ModelEntry>,
    orphans: BTreeMap<(EntryKey, u32), (Status, u64)>,
}

struct ModelEntry {
    opened: u64,
    serial: usize,
    sealed: bool,
    children: BTreeMap<u32, Option<Status>>,
}

impl ModelEntry {
    fn resolved(&self) -> bool {
        self.sealed && self.children.values().all(|status| is_terminal(*status))
    }
}

#[derive(Debug, Clone)]
enum Operation {
    Open,
    Add(u32, Option<Status>),
    Complete(u32, Status),
    Seal,
    Pop,
    Remove,
    Wait(u64),
}

fn operation() -> impl Strategy<Value = (u32, Operation)> {
    let terminal: Vec<_> = Status::ALL.into_iter().filter(|status| status.is_terminal()).collect();
    let any_status = prop::option::of(prop::sample::select(&Status::ALL[..]));
    let operation = prop_oneof![
        3 => Just(Operation::Open),
        6 => (1_u32..8, any_status).prop_map(|(child, status)| Operation::Add(child, status)),
        8 => (1_u32..8, prop::sample::select(terminal)).prop_map(|(child, status)| Operation::Complete(child, status)),
        3 => Just(Operation::Seal),
        3 => Just(Operation::Pop),
        1 => Just(Operation::Remove),
        2 => (0_u64..40).prop_map(Operation::Wait),
    ];
    (1_u32..5, operation)
}

const MAX_AGE: u64 = 100;
const MAX_ENTRIES: usize = 3;
const MAX_ORPHANS: usize = 6;

impl Model {
    fn complete(&mut self, key: EntryKey, child: u32, status: Status, seconds: u64) -> Option<Completion> {
        let Some(entry) = self.entries.get_mut(&key) else {
            if self.orphans.contains_key(&(key, child)) {
                return Some(Completion::Repeated);
            }
            if self.orphans.len() >= MAX_ORPHANS {
                return None;
            }
            self.orphans.insert((key, child), (status, seconds));
            return Some(Completion::Orphaned);
        };
        if entry.sealed && !entry.children.contains_key(&child) {
            return None;
        }
        let known = entry.children.entry(child).or_default();
        if is_terminal(*known) {
            return Some(Completion::Repeated);
        }
        *known = Some(status);
        Some(Completion::Applied)
    }

    fn open(&mut self, key: EntryKey, seconds: u64, serial: usize) -> bool {
        if self.entries.contains_key(&key) || self.entries.len() >= MAX_ENTRIES {
            return false;
        }
        let mut children = BTreeMap::new();
        self.orphans.retain(|(parent, child), (status, _)| {
            if *parent == key {
                children.insert(*child, Some(*status));
            }
            *parent != key
        });
        self.entries.insert(key, ModelEntry { opened: seconds, serial, sealed: false, children });
        true
    }

    fn add(&mut self, key: EntryKey, child: u32, status: Option<Status>) -> bool {
        let Some(entry) = self.entries.get_mut(&key) else { return false };
        if entry.sealed && !entry.children.contains_key(&child) {
            return false;
        }
        let known = entry.children.entry(child).or_default();
        if !is_terminal(*known) && status.is_some() {
            *known = status;
        }
        true
    }

    fn expire(&mut self, seconds: u64) -> Vec<EntryKey> {
        self.orphans.retain(|_, (_, kept)| seconds - *kept < 30);
        let mut expired: Vec<_> = self
            .entries
            .iter()
            .filter(|(_, entry)| seconds - entry.opened >= MAX_AGE)
            .map(|(key, entry)| (entry.serial, *key))
            .collect();
        expired.sort_unstable();
        expired.into_iter().map(|(_, key)| self.entries.remove(&key).map(|_| key).expect("there")).collect()
    }

    fn next_timeout(&self) -> Option<u64> {
        let entries = self.entries.values().map(|entry| entry.opened + MAX_AGE);
        entries.chain(self.orphans.values().map(|(_, kept)| kept + 30)).min()
    }
}

proptest! {
    #[test]
    fn a_manifest_does_what_plain_maps_do(operations in prop::collection::vec(operation(), 0..250)) {
        let mut clock = Clock::new();
        let mut manifest = Manifest::new(ManifestLimits {
            max_entries: MAX_ENTRIES,
            max_orphans: MAX_ORPHANS,
            max_age: Duration::from_secs(MAX_AGE),
            ..ManifestLimits::default()
        });
        let mut model = Model::default();
        for (serial, (entity, operation)) in operations.into_iter().enumerate() {
            let (key, now) = (key(entity), clock.now());
            match operation {
                Operation::Open => {
                    prop_assert_eq!(manifest.open(now, key).is_ok(), model.open(key, clock.seconds, serial));
                }
                Operation::Add(child, status) => {
                    prop_assert_eq!(manifest.add_child(key, child, status).is_ok(), model.add(key, child, status));
                }
                Operation::Complete(child, status) => {
                    let expected = model.complete(key, child, status, clock.seconds);
                    prop_assert_eq!(manifest.complete_child(now, key, child, status).ok(), expected);
                }
                Operation::Seal => {
                    let entry = model.entries.get_mut(&key);
                    prop_assert_eq!(manifest.seal(key).is_ok(), entry.is_some());
                    if let Some(entry) = entry {
                        entry.sealed = true;
                    }
                }
                Operation::Pop => match manifest.pop_resolved() {
                    Some(resolution) => {
                        let entry = model.entries.remove(&resolution.key).expect("in the model too");
                        prop_assert!(entry.resolved());
                        let count = |of: Status| entry.children.values().filter(|status| **status == Some(of)).count() as u64;
                        let children = entry.children.len() as u64;
                        prop_assert_eq!(resolution.children, children);
                        prop_assert_eq!(resolution.succeeded, count(Status::Complete));
                        prop_assert_eq!(resolution.failed, count(Status::Failed) + count(Status::Abandoned));
                        prop_assert_eq!(resolution.deferred, count(Status::Deferred));
                        let all = count(Status::Complete) == children;
                        prop_assert_eq!(resolution.state == ResolutionState::Resolved, all);
                    }
                    None => prop_assert!(!model.entries.values().any(ModelEntry::resolved)),
                },
                Operation::Remove => {
                    prop_assert_eq!(manifest.remove(key), model.entries.remove(&key).is_some());
                }
                Operation::Wait(seconds) => {
                    clock.seconds += seconds;
                    prop_assert_eq!(manifest.handle_timeout(clock.now()), model.expire(clock.seconds));
                }
            }
            prop_assert_eq!(manifest.len(), model.entries.len());
            prop_assert_eq!(manifest.orphan_count(), model.orphans.len());
            let timeout = model.next_timeout().map(|seconds| Clock::at(&clock, seconds).instant);
            prop_assert_eq!(manifest.poll_timeout(), timeout);
            let mut children: Vec<_> = manifest.children(key).collect();
            children.sort_unstable_by_key(|(child, _)| *child);
            let expected = model.entries.get(&key).map(|entry| entry.children.clone()).unwrap_or_default();
            prop_assert_eq!(children, expected.into_iter().collect::<Vec<_>>());
        }
    }
}

#[test]
fn an_entry_has_the_outcome_of_its_policy() {
    use crate::messages::CompletionMode;
    let now = Now { instant: Instant::now(), unix_micros: 0 };
    let cases =
        [(CompletionMode::BestEffort, ResolutionState::Partial), (CompletionMode::Strict, ResolutionState::Failed)];
    for (mode, expected) in cases {
        let mut manifest = Manifest::default();
        manifest.open(now, key(1)).expect("room");
        let policy = Policy { mode, ..Policy::STRICT };
        manifest.set_policy(key(1), policy);
        manifest.set_policy(key(2), policy);
        for (child, status) in
            [(1, Status::Complete), (2, Status::Skipped), (3, Status::Deferred), (4, Status::Abandoned)]
        {
            manifest.complete_child(now, key(1), child, status).expect("known");
        }
        manifest.seal(key(1)).expect("open");
        assert_eq!(manifest.entry(key(1)).map(|entry| (entry.state, entry.policy)), Some((expected, Some(policy))));
        let resolution = manifest.pop_resolved().expect("resolved");
        assert_eq!(
            (resolution.state, resolution.succeeded, resolution.failed, resolution.deferred),
            (expected, 1, 1, 1)
        );
    }
}
