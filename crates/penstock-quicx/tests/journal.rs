//! What segments hold after any history, and wherever the last write was cut.
#![allow(clippy::expect_used)]

#[path = "fuzzing/bytes.rs"]
#[allow(unreachable_pub)]
mod fuzzing;

use std::collections::BTreeMap;

use penstock_pool::PoolConfig;
use penstock_quicx::{Journal, Limit, Record, Recovery, TaskId, Write};
use proptest::prelude::*;

use crate::fuzzing::{quicx_frames, quicx_journal};

/// A task as the model knows it: order, attempts, reason if it is dead, and content.
type Known = (u64, u16, Option<Vec<u8>>, Vec<u8>);
type Model = BTreeMap<u32, Known>;

#[derive(Debug, Clone)]
enum Operation {
    Submit(Vec<u8>),
    Deliver(usize),
    Gone(usize),
    Dead(usize, Vec<u8>),
    Requeue(usize),
    Write,
    Fail,
}

fn operation() -> impl Strategy<Value = Operation> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        6 => bytes().prop_map(Operation::Submit),
        2 => any::<usize>().prop_map(Operation::Deliver),
        5 => any::<usize>().prop_map(Operation::Gone),
        1 => (any::<usize>(), bytes()).prop_map(|(at, reason)| Operation::Dead(at, reason)),
        1 => any::<usize>().prop_map(Operation::Requeue),
        6 => Just(Operation::Write),
        1 => Just(Operation::Fail),
    ]
}

/// A journal, the files that it makes, and what they should hold.
struct World {
    journal: Journal,
    files: BTreeMap<u64, Vec<u8>>,
    /// What is appended, durable or not, and which segment holds each content.
    model: Model,
    places: BTreeMap<u32, u64>,
    /// The model after each record since the last one that is durable.
    history: Vec<Model>,
    /// Tasks whose SUBMIT is not durable.
    open: Vec<u32>,
    next: u32,
}

impl World {
    fn new() -> Self {
        Self {
            journal: Journal::new(200, []),
            files: BTreeMap::new(),
            model: Model::new(),
            places: BTreeMap::new(),
            history: vec![Model::new()],
            open: Vec::new(),
            next: 1,
        }
    }

    fn pick(&self, at: usize) -> Option<u32> {
        // What is not accepted yet nobody can touch.
        let ids: Vec<u32> = self.model.keys().copied().filter(|id| !self.open.contains(id)).collect();
        ids.get(at.checked_rem(ids.len())?).copied()
    }

    fn append(&mut self, record: &Record<'_>, is_submit: bool) -> u64 {
        let (segment, _) = self.journal.append(record, is_submit);
        segment
    }

    fn step(&mut self, operation: &Operation) {
        match operation {
            Operation::Submit(content) => self.submit(content),
            Operation::Deliver(at) => self.change(*at, |id, task| {
                task.1 = task.1.saturating_add(1);
                Record::Delivered { id, attempts: task.1 }
            }),
            Operation::Dead(at, reason) => self.change(*at, |id, task| {
                task.2 = Some(reason.clone());
                Record::Dead { id, attempts: task.1, reason, verdict: reason.len() > 20 }
            }),
            Operation::Requeue(at) => {
                let order = u64::from(self.next) + 1_000_000;
                self.next += 1;
                self.change(*at, |id, task| {
                    (task.0, task.1, task.2) = (order, 0, None);
                    Record::Requeued { id, order }
                });
            }
            Operation::Gone(at) => self.gone(*at),
            Operation::Write => self.write(),
            Operation::Fail => self.fail(),
        }
    }

    fn submit(&mut self, content: &[u8]) {
        if self.journal.is_failed() {
            return;
        }
        let (id, order) = (TaskId(self.next), u64::from(self.next));
        self.next += 1;
        let segment = self.append(&Record::Submit { id, order, attempts: 0, content, once: false }, true);
        self.journal.born(segment, content.len());
        self.model.insert(id.0, (order, 0, None, content.to_vec()));
        self.places.insert(id.0, segment);
        self.open.push(id.0);
        self.history.push(self.model.clone());
    }

    fn change<'r>(&mut self, at: usize, change: impl FnOnce(TaskId, &mut Known) -> Record<'r>) {
        let Some(id) = self.pick(at) else { return };
        let record = change(TaskId(id), self.model.get_mut(&id).expect("picked"));
        self.append(&record, false);
        self.history.push(self.model.clone());
    }

    fn gone(&mut self, at: usize) {
        let Some(id) = self.pick(at) else { return };
        let (.., content) = self.model.remove(&id).expect("picked");
        self.append(&Record::Gone { id: TaskId(id) }, false);
        self.journal.gone(self.places.remove(&id).expect("placed"), content.len());
        self.history.push(self.model.clone());
    }

    /// Everything that waits is written; before each append is whole the process may die at any byte of it.
    fn write(&mut self) {
        if self.journal.is_failed() {
            self.journal.retry();
        }
        self.compact();
        while let Some(write) = self.journal.poll_write() {
            match write {
                Write::Append { segment, bytes, .. } => {
                    self.begin(segment, &bytes);
                    for cut in 0..bytes.len() {
                        let held = self.recover(segment, bytes.get(..cut).unwrap_or_default());
                        assert!(self.history.contains(&held), "cut at {cut} of {}: {held:?}", bytes.len());
                    }
                    self.files.entry(segment).or_default().extend_from_slice(&bytes);
                    self.journal.handle_durable();
                }
                Write::Remove { segment } => {
                    self.files.remove(&segment);
                }
            }
        }
        self.open.clear();
        self.history = vec![self.model.clone()];
        assert_eq!(self.recover(u64::MAX, &[]), self.model);
    }

    /// What begins a segment begins its file.
    fn begin(&mut self, segment: u64, bytes: &[u8]) {
        if bytes.starts_with(b"QUICXJ") {
            self.files.remove(&segment);
        }
    }

    /// What waits fails half-way: its submits are refused, all else is written later.
    fn fail(&mut self) {
        let Some(Write::Append { segment, bytes, .. }) = self.journal.poll_write() else { return };
        let half = bytes.get(..bytes.len() / 2).unwrap_or_default();
        self.begin(segment, &bytes);
        self.files.entry(segment).or_default().extend_from_slice(half);
        for id in &self.open {
            self.model.remove(id);
            self.journal.gone(self.places.remove(id).expect("placed"), 0);
        }
        self.journal.handle_failed(self.open.drain(..).map(TaskId));
        assert!(self.journal.is_failed() && self.journal.poll_write().is_none());
        self.journal.retry();
        // Half of what failed may be there: only once the rest is written is it known what is held.
        while let Some(write) = self.journal.poll_write() {
            if let Write::Append { segment, bytes, .. } = write {
                self.begin(segment, &bytes);
                self.files.entry(segment).or_default().extend_from_slice(&bytes);
                self.journal.handle_durable();
            } else if let Write::Remove { segment } = write {
                self.files.remove(&segment);
            }
        }
        self.history = vec![self.model.clone()];
        assert_eq!(self.recover(u64::MAX, &[]), self.model);
    }

    fn compact(&mut self) {
        let Some(oldest) = self.journal.to_compact(0) else { return };
        let ids: Vec<u32> = self.places.iter().filter(|(_, at)| **at == oldest).map(|(id, _)| *id).collect();
        for id in ids {
            let (order, attempts, dead, content) = self.model.get(&id).expect("placed").clone();
            let id = TaskId(id);
            let segment = self.append(&Record::Submit { id, order, attempts, content: &content, once: false }, false);
            // Between the two records a dead task looks alive; with the next one it is dead again.
            if let Some(reason) = &dead {
                let mut between = self.model.clone();
                between.get_mut(&id.0).expect("placed").2 = None;
                self.history.push(between);
                self.append(&Record::Dead { id, attempts, reason, verdict: reason.len() > 20 }, false);
            }
            self.journal.gone(oldest, content.len());
            self.journal.born(segment, content.len());
            self.places.insert(id.0, segment);
        }
    }

    /// What a new process finds, where so many bytes more have come to a segment.
    fn recover(&self, segment: u64, torn: &[u8]) -> Model {
        let mut files = self.files.clone();
        if segment != u64::MAX {
            files.entry(segment).or_default().extend_from_slice(torn);
        }
        let mut recovery = Recovery::default();
        for (number, bytes) in &files {
            recovery.scan(*number, bytes).expect("ours");
        }
        let mut held = Model::new();
        for (number, bytes) in &files {
            for (task, content) in recovery.content(*number, bytes) {
                assert_eq!(task.verdict, task.dead.as_ref().is_some_and(|reason| reason.len() > 20));
                held.insert(task.id.0, (task.order, task.attempts, task.dead.clone(), content.to_vec()));
            }
        }
        assert_eq!(held.len(), recovery.tasks().len());
        assert!(recovery.tasks().is_sorted_by_key(|task| task.order));
        held
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_journal_holds_what_is_durable_wherever_the_process_dies(operations in prop::collection::vec(operation(), 1..60)) {
        let mut world = World::new();
        operations.iter().for_each(|operation| world.step(operation));
        world.write();
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(input in prop::collection::vec(any::<u8>(), 0..200)) {
        quicx_frames(&input);
        quicx_journal(&input);
        quicx_journal(&[b"QUICXJ\x00\x01\0\0\0\0\0\0\0\x01".as_slice(), &input].concat());
    }

    #[test]
    fn frames_that_are_nearly_right_do_not_depend_on_cuts(
        cut in any::<u8>(),
        frames in prop::collection::vec((0_u8..0x29, 0_u32..80, prop::collection::vec(0_u8..4, 0..80)), 0..8),
    ) {
        let mut input = vec![cut];
        for (opcode, lie, payload) in frames {
            let length = if lie < 60 { u32::try_from(payload.len()).unwrap_or(0) } else { lie };
            input.extend([1, opcode].iter().chain(&length.to_be_bytes()).chain(&payload));
        }
        quicx_frames(&input);
    }
}

#[test]
fn a_queue_that_flows_is_never_copied_and_leaves_no_old_segments() {
    let mut world = World::new();
    for _ in 0..200 {
        world.submit(b"\x01apayload");
        world.write();
        world.gone(0);
    }
    world.write();
    assert!(world.files.len() <= 2, "{} segments are left", world.files.len());
}

#[test]
fn a_task_that_stays_does_not_hold_its_segment_for_ever() {
    let mut world = World::new();
    world.submit(b"\x01astays");
    world.write();
    for _ in 0..200 {
        world.submit(b"\x01apayload");
        world.write();
        world.gone(1);
    }
    world.write();
    world.write();
    assert!(world.files.values().map(Vec::len).sum::<usize>() < 2_000);
    assert_eq!(world.model.keys().copied().collect::<Vec<_>>(), [1]);
}

#[test]
fn what_is_damaged_in_a_journal_is_named_and_costs_no_other_task() {
    let mut world = World::new();
    (0..20).for_each(|_| world.submit(b"\x01apayload"));
    world.write();
    let (number, bytes) = world.files.pop_first().expect("segments");
    let mut broken = bytes.clone();
    broken[60] ^= 4;
    world.files.insert(number, broken);
    let mut recovery = Recovery::default();
    world.files.iter().for_each(|(number, bytes)| assert!(recovery.scan(*number, bytes).is_ok()));
    let [damage] = recovery.damage() else { panic!("{:?}", recovery.damage()) };
    assert_eq!((damage.segment, damage.cut, damage.bytes), (1, false, 32));
    assert!((16..=60).contains(&damage.offset) && damage.behind > 0);
    assert_eq!(recovery.tasks().len(), 19);
    let found: usize = world.files.iter().map(|(number, bytes)| recovery.content(*number, bytes).count()).sum();
    assert_eq!(found, 19);
    // An end that is missing is nothing of that kind.
    let mut recovery = Recovery::default();
    assert!(recovery.scan(number, &bytes[..bytes.len() - 5]).is_ok());
    assert!(recovery.damage().iter().all(|damage| damage.cut && damage.bytes == 27));
}

#[test]
fn whatever_bit_of_a_segment_flips_all_tasks_but_one_are_readable_and_all_where_it_is_in_the_header() {
    const HEADER: usize = 16;
    let mut journal = Journal::new(1 << 20, []);
    for number in 1..=5 {
        let (content, order) = ([b"\x01a".as_slice(), &[number; 20]].concat(), u64::from(number));
        let record = Record::Submit { id: TaskId(number.into()), order, attempts: 0, content: &content, once: false };
        journal.append(&record, true);
    }
    let Some(Write::Append { segment, bytes: whole, .. }) = journal.poll_write() else { panic!("nothing to write") };
    for bit in 0..whole.len() * 8 {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let mut recovery = Recovery::default();
        assert_eq!(recovery.scan(segment, &flipped), Ok(true), "bit {bit}");
        let readable = recovery.content(segment, &flipped).count();
        let told: Vec<_> = recovery.damage().iter().map(|damage| (damage.is_header(), damage.behind)).collect();
        if bit >= HEADER * 8 {
            assert_eq!((readable, told.len()), (4, 1), "bit {bit}");
            assert!(!told[0].0, "bit {bit}");
        } else if matches!(flipped[7], 1 | 2) {
            // Format 3 has become an older one, which is read in the same way.
            assert_eq!((readable, told), (5, vec![]), "bit {bit}");
        } else {
            assert_eq!((readable, told), (5, vec![(true, 5)]), "bit {bit}");
        }
    }
}

#[test]
fn a_journal_that_does_not_fit_names_the_pool_it_needs() {
    let mut world = World::new();
    (0..100).for_each(|_| world.submit(&[7; 1_000]));
    world.write();
    let mut recovery = Recovery::default();
    world.files.iter().for_each(|(number, bytes)| assert!(recovery.scan(*number, bytes).is_ok()));
    let needed = PoolConfig::default().bytes_for(vec![1_000; 100]).expect("valid");
    let limit = Limit::JournalPool { tasks: 100, needed, bytes: needed - 1 };
    assert_eq!(recovery.check(&PoolConfig::with_bytes(needed - 1)), Err(limit.into()));
    assert!(recovery.check(&PoolConfig::with_bytes(needed)).is_ok());
}
