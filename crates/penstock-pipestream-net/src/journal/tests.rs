//! Tests of the log of sessions against a model, on a disk in memory that loses power, is full or
//! fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use fastrand::Rng;
use penstock_log::{Disk, Format, PrivateDisk, make_folder};
use penstock_pipestream::{EntityKey, ErrorCode, Reason, ScopeDigest, ScopeKey, SessionId, Status, Ticket};
use penstock_testkit::disk::{Fault, MemoryDisk};

use crate::journal::book::Book;
use crate::journal::labels::encode_ended;
use crate::journal::record::{Entry, Form, Kind, SERVER, StoredSession, put};
use crate::journal::writer::{JournalWriter, Store};
use crate::port::{Ended, Owner};
use crate::types::Resolution;

mod damage;
mod ends;
mod folders;

/// Segments of a few records each.
const SMALL: Format = Format { segment: 1_024, ..SERVER };
/// Number of records in a run.
const STEPS: u8 = 60;

fn folder() -> &'static Path {
    Path::new("state")
}

pub(super) fn ended(entity: u32) -> Ended {
    let key = EntityKey { scope: 2, scope_use: 1, entity, entity_use: 0 };
    let child_scope = entity.is_multiple_of(2).then_some(ScopeKey { scope: 4, scope_use: 0 });
    let reason = Reason { code: ErrorCode::IntegrityError, message: "why \"so\"".into() };
    let digest = ScopeDigest {
        scope_id: 4,
        processed: 3,
        succeeded: 1,
        failed: 1,
        deferred: 1,
        merkle_root: [entity.to_be_bytes()[3]; 32],
    };
    Ended {
        ticket: Ticket { key, parent_id: 7, depth: 1, child_scope },
        resolution: Resolution { status: Status::Failed, reason: Some(reason), attempts: 2, claim: Some(u64::MAX) },
        digest: child_scope.map(|_| digest),
    }
}

pub(super) fn label(number: u8) -> Bytes {
    Bytes::from(format!("part {number} \u{1f4c4}"))
}

pub(super) fn owner(session: u8) -> Owner {
    Owner { session: SessionId::new([session; 16]), certificate: Some([9; 32]) }
}

/// The core records of a session, by their numbers, and its labels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Told {
    core: Vec<u8>,
    labels: BTreeSet<u8>,
}

type Model = BTreeMap<u8, Told>;

impl Told {
    /// Create the record with a number, and with or without a label of that number.
    fn tell(&mut self, session: u8, form: Form, number: u8, has_label: bool) -> Entry {
        let mut parts = Vec::new();
        if form == Form::New {
            *self = Self::default();
        }
        if form != Form::More {
            self.core.clear();
            put(Kind::Begin, &owner(session).encode(), &mut parts);
        }
        if has_label {
            self.labels.insert(number);
            put(Kind::Label, &encode_ended(&label(number), &ended(number.into())), &mut parts);
        }
        self.core.push(number);
        put(Kind::Core, &vec![number; usize::from(number) + 1], &mut parts);
        Entry::new(owner(session).session, form, u32::try_from(self.labels.len()).unwrap(), parts)
    }
}

fn open(disk: &MemoryDisk) -> Store {
    try_open(disk).unwrap()
}

/// Return the outcome of a label's entity.
fn ended_of(book: &Book, session: SessionId, number: u8) -> Option<Ended> {
    book.find(session, &label(number)).and_then(|(place, files)| files.find(place, &label(number)).unwrap())
}

/// Read a session from the log; `None` if something of it is damaged.
fn found(store: &Store, session: u8) -> Option<Told> {
    let (book, id) = (store.book(), owner(session).session);
    book.check(Some(id)).ok()?;
    let found = StoredSession::read(&book.records(id).parts().unwrap()).unwrap();
    assert_eq!(found.owner, owner(session));
    let core = found.core.iter().map(|record| record[0]).collect();
    let labels = (0..STEPS).filter(|number| {
        let found = ended_of(&book, id, *number);
        assert!(found.is_none() || found == Some(ended((*number).into())));
        found.is_some()
    });
    Some(Told { core, labels: labels.collect() })
}

fn all_found(store: &Store) -> Model {
    let sessions = store.book().sessions();
    sessions.iter().map(|id| (id.bytes()[0], found(store, id.bytes()[0]).unwrap())).collect()
}

/// The random records of three sessions, and the single record of an idle one.
struct Steps {
    rng: Rng,
    model: Model,
}

impl Steps {
    fn new() -> Self {
        Self { rng: Rng::with_seed(5), model: Model::new() }
    }

    /// Return the session of a step, and its record.
    fn step(&mut self, number: u8) -> (u8, Entry) {
        let session = if number == 0 { 9 } else { self.rng.u8(1..4) };
        let form = match (self.model.contains_key(&session), self.rng.u8(0..10)) {
            (false, _) => Form::New,
            (true, 0) => Form::Gone,
            (true, 1..4) => Form::Whole,
            (true, _) => Form::More,
        };
        if form == Form::Gone {
            self.model.remove(&session);
            return (session, Entry::gone(owner(session).session));
        }
        (session, self.model.entry(session).or_default().tell(session, form, number, number.is_multiple_of(4)))
    }
}

fn try_open(disk: &MemoryDisk) -> Option<Store> {
    make_folder(disk, folder()).ok()?;
    Store::open(Arc::new(disk.clone()), folder(), SMALL, false).ok()
}

/// Run all steps until one fails. Return the durable sessions, and those that may be on disk.
fn run(disk: &MemoryDisk) -> (Model, Model) {
    let mut steps = Steps::new();
    let Some(mut store) = try_open(disk) else { return (Model::new(), Model::new()) };
    for number in 0..STEPS {
        let before = steps.model.clone();
        let (_, entry) = steps.step(number);
        if store.write(vec![entry]).is_err() {
            return (before, steps.model);
        }
        store.tidy();
    }
    (steps.model.clone(), steps.model)
}

#[test]
fn what_sessions_were_told_is_there_wherever_the_power_goes() {
    let whole = MemoryDisk::default();
    let (model, _) = run(&whole);
    assert!(model.len() > 2 && model[&9].core == [0]);
    // The idle session's data was moved from its first segment, and the log is within its limit.
    let names = whole.list(folder()).unwrap();
    let bytes: usize = names.iter().map(|name| whole.read(&folder().join(name)).unwrap().len()).sum();
    let live = open(&whole.copy()).book().all_live();
    assert!(!names.contains(&format!("{:020}.log.session", 1)));
    assert!(bytes as u64 <= 2 * live + 4 * SMALL.segment, "{bytes} bytes, of which {live} count");
    let calls = whole.calls();
    for call in 0..=calls {
        let disk = MemoryDisk::default();
        disk.fail(call, Fault::Power, 1);
        let (durable, pending) = run(&disk);
        for seed in 0..6 {
            let image = disk.crash(seed);
            let mut store = open(&image);
            let there = all_found(&store);
            assert!(
                there == durable || there == pending,
                "call {call}, {seed}: {there:?}, not {durable:?}, {pending:?}"
            );
            // What a start has found is durable, and the log takes more records.
            let mut told = Told::default();
            store.write(vec![told.tell(5, Form::New, 1, true)]).unwrap();
            drop(store);
            let expected: Model = there.into_iter().chain([(5, told)]).collect();
            assert_eq!(all_found(&open(&image.crash(seed))), expected, "call {call}, {seed}, and once more");
        }
    }
}

#[test]
fn whatever_call_fails_only_the_sessions_end_that_it_was_for() {
    let whole = MemoryDisk::default();
    run(&whole);
    for fault in [Fault::Io, Fault::Full, Fault::Short] {
        for call in 0..whole.calls() {
            let disk = MemoryDisk::default();
            disk.fail(call, fault, 1);
            let (mut steps, mut store) = (Steps::new(), try_open(&disk).unwrap_or_else(|| open(&disk)));
            for number in 0..STEPS {
                let (session, entry) = steps.step(number);
                if store.write(vec![entry]).is_err() {
                    steps.model.remove(&session);
                    store.write(vec![Entry::gone(owner(session).session)]).unwrap();
                }
                store.tidy();
            }
            assert_eq!(all_found(&store), steps.model, "{fault:?} at call {call}");
            drop(store);
            assert_eq!(all_found(&open(&disk.crash(call))), steps.model, "{fault:?} at call {call}, and a start");
        }
    }
}

#[test]
fn sessions_that_a_full_disk_does_not_take_end_and_do_not_come_back() {
    for fault in [Fault::Io, Fault::Full, Fault::Short] {
        let disk = MemoryDisk::default();
        let mut store = open(&disk);
        let mut model = Model::new();
        for session in 1..4 {
            let told = model.entry(session).or_default();
            store.write(vec![told.tell(session, Form::New, session, true)]).unwrap();
        }
        disk.fail(disk.calls(), fault, 100);
        assert!(store.write(vec![Told::default().tell(1, Form::More, 7, false)]).is_err());
        assert!(store.write(vec![Entry::gone(owner(1).session)]).is_err());
        disk.heal();
        let entry = model.get_mut(&2).unwrap().tell(2, Form::More, 8, true);
        store.write(vec![entry]).unwrap();
        model.remove(&1);
        assert_eq!(all_found(&store), model, "{fault:?}");
        drop(store);
        assert_eq!(all_found(&open(&disk.crash(1))), model, "{fault:?}");
    }
}

#[test]
fn an_end_that_the_disk_did_not_take_does_not_end_the_next_session_of_that_id() {
    let disk = MemoryDisk::default();
    let mut store = open(&disk);
    store.write(vec![Told::default().tell(1, Form::New, 1, true)]).unwrap();
    disk.fail(disk.calls(), Fault::Full, 100);
    store.write(vec![Entry::gone(owner(1).session)]).unwrap_err();
    disk.heal();
    let mut told = Told::default();
    store.write(vec![told.tell(1, Form::New, 2, false)]).unwrap();
    assert_eq!(found(&store, 1).as_ref(), Some(&told));
    drop(store);
    assert_eq!(found(&open(&disk.crash(1)), 1), Some(told));
}

#[test]
fn a_session_whose_records_were_said_again_is_still_due_for_a_snapshot() {
    let disk = MemoryDisk::default();
    let mut store = open(&disk);
    let session = owner(1).session;
    let long = |form, length: usize| {
        let mut parts = Vec::new();
        if form == Form::New {
            put(Kind::Begin, &owner(1).encode(), &mut parts);
        }
        put(Kind::Core, &vec![7; length], &mut parts);
        Entry::new(session, form, 0, parts)
    };
    store.write(vec![long(Form::New, 100)]).unwrap();
    assert!(!store.book().is_long(session));
    store.write(vec![long(Form::More, 1 << 19)]).unwrap();
    assert!(store.book().is_long(session));
    let again = store.book().rescue(session, u64::MAX).unwrap().entry().unwrap();
    store.write(vec![again]).unwrap();
    assert!(store.book().is_long(session));
    drop(store);
    assert!(open(&disk).book().is_long(session));
}

fn on_disk(folder: &Path, keeps_one: bool) -> Store {
    Store::open(Arc::new(PrivateDisk), folder, SERVER, keeps_one).unwrap()
}

#[test]
fn a_session_of_the_same_id_takes_the_place_of_records_that_were_left() {
    let disk = MemoryDisk::default();
    let mut told = Told::default();
    let mut store = open(&disk);
    store.write(vec![told.tell(1, Form::New, 1, true), told.tell(1, Form::More, 2, true)]).unwrap();
    store.write(vec![told.tell(1, Form::New, 3, false)]).unwrap();
    let expected = Told { core: vec![3], labels: BTreeSet::new() };
    assert_eq!(found(&store, 1).as_ref(), Some(&expected));
    drop(store);
    assert_eq!(found(&open(&disk), 1), Some(expected));
}

#[test]
fn a_snapshot_stands_for_what_was_before_it_and_a_client_keeps_nothing_of_a_session_that_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let mut told = Told::default();
    let mut store = on_disk(dir.path(), true);
    for (form, number) in [(Form::New, 1), (Form::More, 2), (Form::Whole, 8), (Form::More, 3)] {
        store.write(vec![told.tell(1, form, number, number == 2)]).unwrap();
    }
    drop(store);
    let mut store = on_disk(dir.path(), true);
    assert_eq!(found(&store, 1), Some(Told { core: vec![8, 3], labels: BTreeSet::from([2]) }));
    // Another session replaces this one, whose end may not have been stored.
    store.write(vec![told.tell(2, Form::New, 4, false)]).unwrap();
    assert_eq!(all_found(&store).into_keys().collect::<Vec<_>>(), [2]);
    store.write(vec![Entry::gone(owner(2).session)]).unwrap();
    assert!(store.book().is_empty());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_label_is_known_before_and_after_a_snapshot_and_to_the_next_process() {
    let disk = MemoryDisk::default();
    let (mut told, mut store) = (Told::default(), open(&disk));
    for number in 0..10 {
        let form = if number == 0 {
            Form::New
        } else if number == 6 {
            Form::Whole
        } else {
            Form::More
        };
        store.write(vec![told.tell(1, form, number, true)]).unwrap();
        assert_eq!(found(&store, 1).as_ref(), Some(&told));
    }
    drop(store);
    let store = open(&disk);
    assert_eq!((told.labels.len(), found(&store, 1)), (10, Some(told)));
    assert_eq!(ended_of(&store.book(), owner(1).session, 11), None);
}

#[test]
fn only_its_owner_may_look_into_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a").join("b");
    make_folder(&PrivateDisk, &folder).unwrap();
    on_disk(&folder, false).write(vec![Told::default().tell(1, Form::New, 1, false)]).unwrap();
    // Twice: a start writes the file again.
    for _ in 0..2 {
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let file = folder.join(format!("{:020}.log.session", 1));
        assert_eq!((mode(&folder), mode(&folder.join("..")), mode(&file)), (0o700, 0o700, 0o600));
        drop(on_disk(&folder, false));
    }
}

#[test]
fn what_many_sessions_say_at_once_costs_as_much_as_what_one_says() {
    let disk = MemoryDisk::default();
    make_folder(&disk, folder()).unwrap();
    let mut store = Store::open(Arc::new(disk.clone()), folder(), SERVER, false).unwrap();
    store.write(vec![Told::default().tell(200, Form::New, 1, false)]).unwrap();
    let mut calls = Vec::new();
    for sessions in [1..2, 2..40] {
        let before = disk.calls();
        store.write(sessions.map(|session| Told::default().tell(session, Form::New, 1, true)).collect()).unwrap();
        calls.push(disk.calls() - before);
    }
    assert_eq!(calls[0], calls[1]);
}

#[test]
fn a_write_is_durable_when_it_is_answered_and_what_no_caller_waits_for_when_the_keeper_goes() {
    let disk = MemoryDisk::default();
    let keeper = JournalWriter::start(open(&disk), None).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let writes = (1..40).map(|session| keeper.write(Told::default().tell(session, Form::New, session, false)));
    runtime.block_on(futures_util::future::join_all(writes)).into_iter().for_each(|written| written.unwrap());
    assert_eq!(all_found(&open(&disk.crash(3))).len(), 39);
    (1..10).for_each(|session| keeper.forget(owner(session).session));
    drop(keeper);
    assert_eq!(all_found(&open(&disk.crash(4))).len(), 30);
}
