//! Tests of the log of claim checks against the book, on a disk in memory that loses power, is
//! full, or breaks.

use std::collections::BTreeMap;
use std::path::PathBuf;

use penstock_log::make_folder;
use penstock_pipestream::claims::{Claim, ClaimLimits, ClaimState, ClaimTerms};
use penstock_pipestream::{SessionId, Status};
use penstock_pipestream_net::now;
use penstock_pipestream_net::port::Details;
use penstock_testkit::disk::{Fault, MemoryDisk};

use super::*;
use crate::claims::record::FORMAT;

mod damage;
mod earlier;
mod looks;

/// The format, with segments of a few records each.
const SMALL: Format = Format { segment: 1_024, ..FORMAT };
/// Number of changes of a run.
const STEPS: u64 = 60;

fn folder() -> &'static Path {
    Path::new("sink/.claims")
}

fn segment(number: u64) -> PathBuf {
    folder().join(format!("{number:020}.claims"))
}

fn session(byte: u8) -> SessionId {
    SessionId::new([byte; 16])
}

/// The known states of claim checks, by their IDs.
type Model = BTreeMap<u64, ClaimState>;

/// The claim checks of a process, and its log.
struct Process {
    state: State,
    log: ClaimLog,
}

impl Process {
    fn try_open(disk: &MemoryDisk, format: Format) -> Result<Self> {
        make_folder(disk, folder()).map_err(|error| Error::file("cannot make", folder(), error))?;
        let mut state = State::new(ClaimLimits::default());
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let log = ClaimLog::open(&disk, folder(), format, &mut state)?;
        Ok(Self { state, log })
    }

    fn open(disk: &MemoryDisk) -> Self {
        Self::try_open(disk, SMALL).unwrap()
    }

    /// Store the changes of the book.
    fn save(&mut self) -> io::Result<()> {
        let mut entries = Vec::new();
        while let Some(record) = self.state.book.poll_record() {
            let details =
                if let ClaimRecord::Issued(claim) = &record { self.state.details.get(&claim.id) } else { None };
            entries.push(Entry::change(&record, details));
        }
        self.log.append(entries)
    }

    fn issue(&mut self, id: u64) {
        let terms = ClaimTerms { session: session(1), scope: 2, entity: 7, life: None, validation: None };
        self.state.book.issue(now(), &terms, id).unwrap().unwrap();
        self.state.remember(id, Details { reason: format!("part {id}"), ..Details::default() });
    }

    fn redeem(&mut self, id: u64) {
        self.state.book.redeem(now(), id, session(1), session(9)).unwrap();
    }

    fn settle(&mut self, id: u64) {
        self.state.book.settle(id, session(9), Status::Complete).unwrap();
    }

    fn void(&mut self, id: u64) {
        self.state.book.void(id);
        self.state.forget(id);
    }

    /// Make one change. Most claim checks are voided, so that the log is rewritten again and again.
    fn step(&mut self, number: u64) {
        let id = number / 3 + 1;
        match (number % 3, id % 4) {
            (0, _) => self.issue(id),
            (1, 0 | 1) => self.redeem(id),
            (2, 0) => self.settle(id),
            (1, _) => self.void(id),
            (_, _) => {
                if id > 9 {
                    self.void(id - 8);
                }
            }
        }
    }

    fn tidy(&mut self) {
        self.log.limit = self.log.limit.min(3_000);
        self.log.tidy(&mut || self.state.entries());
    }

    /// Return the states of the claim checks that are not in doubt.
    fn model(&self) -> Model {
        let sure = self.state.book.iter().filter(|claim| self.state.check(claim.id).is_ok());
        let state = |claim: &Claim| {
            assert_eq!(self.state.row(claim).details.reason, format!("part {}", claim.id));
            (claim.id, claim.state)
        };
        sure.map(state).collect()
    }

    fn doubts(&self) -> usize {
        self.state.doubts.all().count()
    }
}

/// Make all changes, until one is not stored. Return the states that are durable, and those that
/// may be.
fn run(disk: &MemoryDisk) -> (Model, Model) {
    let Ok(mut process) = Process::try_open(disk, SMALL) else { return (Model::new(), Model::new()) };
    for number in 0..STEPS {
        let before = process.model();
        process.step(number);
        if process.save().is_err() {
            return (before, process.model());
        }
        process.tidy();
    }
    (process.model(), process.model())
}

#[test]
fn what_was_stored_is_there_wherever_the_power_goes() {
    let whole = MemoryDisk::default();
    let (model, _) = run(&whole);
    let states = model.values().filter(|state| matches!(state, ClaimState::Settled { .. })).count();
    assert!(model.len() > states && states > 2, "{model:?}");
    let names = whole.list(folder()).unwrap();
    let bytes: usize = names.iter().map(|name| whole.read(&folder().join(name)).unwrap().len()).sum();
    assert!(!names.contains(&format!("{:020}.claims", 1)) && bytes < 6_000, "{bytes} bytes in {names:?}");
    for call in 0..=whole.calls() {
        let disk = MemoryDisk::default();
        disk.fail(call, Fault::Power, 1);
        let (durable, pending) = run(&disk);
        for seed in 0..4 {
            let image = disk.crash(seed);
            let mut process = Process::open(&image);
            let there = process.model();
            let when = format!("call {call}, image {seed}");
            assert!(there == durable || there == pending, "{when}: {there:?}, not {durable:?}, {pending:?}");
            assert_eq!((process.doubts(), process.log.damaged()), (0, 0), "{when}");
            // The state that a start has found is durable, and the process can continue.
            process.issue(1_000);
            process.save().unwrap();
            let expected = process.model();
            drop(process);
            assert_eq!(Process::open(&image.crash(seed)).model(), expected, "{when}, and once more");
        }
    }
}

#[test]
fn whatever_call_fails_its_waiter_hears_of_it_and_the_disk_has_all_of_it_later() {
    let whole = MemoryDisk::default();
    run(&whole);
    for fault in [Fault::Io, Fault::Full, Fault::Short] {
        for call in 0..whole.calls() {
            let disk = MemoryDisk::default();
            disk.fail(call, fault, 1);
            let mut process = Process::try_open(&disk, SMALL).unwrap_or_else(|_| Process::open(&disk));
            let mut failures = 0;
            for number in 0..STEPS {
                let issues = number % 3 == 0;
                process.step(number);
                if process.save().is_err() {
                    failures += 1;
                    // Void the claim check as a server does, because its client does not know it.
                    if issues {
                        process.void(number / 3 + 1);
                        process.issue(number / 3 + 1);
                    }
                }
                process.tidy();
            }
            assert!(failures <= 1, "{fault:?} at call {call}");
            process.issue(1_000);
            process.save().unwrap();
            let expected = process.model();
            drop(process);
            let process = Process::open(&disk.crash(call));
            assert_eq!((process.model(), process.doubts()), (expected, 0), "{fault:?} at call {call}");
        }
    }
}

#[test]
fn what_a_full_disk_did_not_take_goes_before_what_comes_next_and_claim_checks_that_were_voided_do_not_wait() {
    for fault in [Fault::Io, Fault::Full, Fault::Short] {
        let disk = MemoryDisk::default();
        let mut process = Process::open(&disk);
        process.issue(1);
        process.save().unwrap();
        disk.fail(disk.calls(), fault, 1_000);
        process.redeem(1);
        process.save().unwrap_err();
        for id in 2..50 {
            process.issue(id);
            process.save().unwrap_err();
            process.void(id);
            process.save().unwrap_err();
            assert_eq!(process.log.unwritten.len(), 1, "{fault:?}");
        }
        disk.heal();
        // A save without changes still writes the earlier ones, as a query does.
        process.save().unwrap();
        drop(process);
        let expected = Model::from([(1, ClaimState::Redeemed { by: session(9) })]);
        assert_eq!(Process::open(&disk.crash(1)).model(), expected, "{fault:?}");
    }
}

#[test]
fn a_log_that_cannot_be_written_anew_stays_and_leaves_nothing_behind() {
    let mut stayed = 0;
    for call in 0..30 {
        let disk = MemoryDisk::default();
        let mut process = Process::open(&disk);
        for id in 1..40 {
            process.issue(id);
            process.save().unwrap();
        }
        let names = disk.list(folder()).unwrap();
        disk.fail(disk.calls() + call, Fault::Full, 1);
        process.tidy();
        let now = disk.list(folder()).unwrap();
        stayed += usize::from(now == names);
        assert!(now == names || !now.iter().any(|name| names.contains(name)), "call {call}: {now:?}");
        process.redeem(1);
        process.save().unwrap();
        let expected = process.model();
        drop(process);
        for seed in 0..4 {
            assert_eq!(Process::open(&disk.crash(seed)).model(), expected, "call {call}, image {seed}");
        }
    }
    assert!(stayed > 15, "{stayed}");
}

#[test]
fn changes_that_come_together_cost_as_much_as_one() {
    let disk = MemoryDisk::default();
    let mut process = Process::try_open(&disk, FORMAT).unwrap();
    process.issue(1);
    process.save().unwrap();
    let mut calls = Vec::new();
    for ids in [2..3, 3..60] {
        let before = disk.calls();
        ids.for_each(|id| process.issue(id));
        process.save().unwrap();
        calls.push(disk.calls() - before);
    }
    assert_eq!(calls[0], calls[1]);
}
