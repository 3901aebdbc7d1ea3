//! What a log holds after any history, and wherever the last write was cut.
#![allow(clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;

use penstock_pool::PoolConfig;
use penstock_quicx::{Journal, Limit, Record, RecoveredState, TaskId, Write};
use proptest::prelude::*;

use crate::fuzzing::bytes::{quicx_frames, quicx_journal};
use crate::log::ModelLog;

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

/// A journal, its log, and what that should hold.
struct World {
    journal: Journal,
    log: ModelLog,
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
            log: ModelLog::new(200),
            model: Model::new(),
            places: BTreeMap::new(),
            history: vec![Model::new()],
            open: Vec::new(),
            next: 1,
        }
    }

    fn pick(&self, at: usize) -> Option<u32> {
        // A task that is not accepted yet cannot be used.
        let ids: Vec<u32> = self.model.keys().copied().filter(|id| !self.open.contains(id)).collect();
        ids.get(at.checked_rem(ids.len())?).copied()
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
        self.journal.append(&Record::Submit { id, order, attempts: 0, content, once: false });
        self.model.insert(id.0, (order, 0, None, content.to_vec()));
        self.open.push(id.0);
        self.history.push(self.model.clone());
    }

    fn change<'r>(&mut self, at: usize, change: impl FnOnce(TaskId, &mut Known) -> Record<'r>) {
        let Some(id) = self.pick(at) else { return };
        let record = change(TaskId(id), self.model.get_mut(&id).expect("picked"));
        self.journal.append(&record);
        self.history.push(self.model.clone());
    }

    fn gone(&mut self, at: usize) {
        let Some(id) = self.pick(at) else { return };
        let (.., content) = self.model.remove(&id).expect("picked");
        self.journal.append(&Record::Gone { id: TaskId(id) });
        self.journal.release_task(self.places.remove(&id).expect("placed"), content.len());
        self.history.push(self.model.clone());
    }

    /// Everything that waits is written; before each append is whole the process may die at any record of it.
    fn write(&mut self) {
        if self.journal.is_failed() {
            self.journal.retry();
        }
        self.compact();
        self.flush(true);
        self.history = vec![self.model.clone()];
        assert_eq!(held(&self.log), self.model);
    }

    fn flush(&mut self, dies: bool) {
        while let Some(write) = self.journal.poll_write() {
            match write {
                Write::Append(batch) => {
                    for count in 0..batch.records().count() {
                        let mut log = self.log.clone();
                        log.fail(&batch, count);
                        let held = held(&log);
                        assert!(!dies || self.history.contains(&held), "cut at {count}: {held:?}");
                    }
                    let segment = self.log.append(&batch);
                    for id in self.journal.handle_durable(segment) {
                        let Some(was) = self.places.insert(id.0, segment) else {
                            self.places.remove(&id.0);
                            continue;
                        };
                        let (.., content) = &self.model[&id.0];
                        self.journal.release_task(was, content.len());
                        self.journal.count_task(segment, content.len());
                    }
                    for id in self.open.drain(..) {
                        let (.., content) = &self.model[&id];
                        self.places.insert(id, segment);
                        self.journal.count_task(segment, content.len());
                    }
                }
                Write::Remove { segment } => self.log.remove(segment),
            }
        }
        assert!(self.journal.is_failed() || (self.journal.is_written() && self.journal.waiting() == 0));
    }

    /// What waits fails half-way: its submits are refused, all else is written later.
    fn fail(&mut self) {
        let Some(Write::Append(batch)) = self.journal.poll_write() else { return };
        self.log.fail(&batch, batch.records().count() / 2);
        for id in self.open.drain(..) {
            self.model.remove(&id);
        }
        self.journal.handle_failed();
        assert!(self.journal.is_failed() && self.journal.poll_write().is_none() && !self.journal.is_written());
        self.journal.retry();
        // Half of what failed may be there: only once an append has succeeded is it known what is held.
        self.flush(false);
        self.history = vec![self.model.clone()];
        assert_eq!(held(&self.log), self.model);
    }

    fn compact(&mut self) {
        let Some(oldest) = self.journal.to_compact(0) else { return };
        let ids: Vec<u32> = self.places.iter().filter(|(_, at)| **at == oldest).map(|(id, _)| *id).collect();
        for id in ids {
            let (order, attempts, dead, content) = self.model.get(&id).expect("placed").clone();
            let id = TaskId(id);
            self.journal.append_again(&Record::Submit { id, order, attempts, content: &content, once: false });
            // Between the two records a dead task looks alive; with the next one it is dead again.
            if let Some(reason) = &dead {
                let mut between = self.model.clone();
                between.get_mut(&id.0).expect("placed").2 = None;
                self.history.push(between);
                self.journal.append(&Record::Dead { id, attempts, reason, verdict: reason.len() > 20 });
            }
        }
    }
}

/// What a new process finds.
fn held(log: &ModelLog) -> Model {
    let log = log.clone().restarted();
    let recovery = log.recover();
    let tasks = recovery.tasks();
    assert!(tasks.is_sorted_by_key(|task| task.order));
    let held = tasks.iter().map(|task| {
        let reason = match &task.state {
            RecoveredState::Waiting => None,
            RecoveredState::Dead { reason, verdict } => {
                assert_eq!(*verdict, reason.len() > 20);
                Some(reason.clone())
            }
        };
        (task.id.0, (task.order, task.attempts, reason, log.content(task).to_vec()))
    });
    held.collect()
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
        quicx_journal(&[&[1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9], input.as_slice()].concat());
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
    assert!(world.log.segments().count() <= 2, "{} segments are left", world.log.segments().count());
}

#[test]
fn a_task_that_stays_does_not_hold_its_segment_indefinitely() {
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
    assert!(world.log.bytes() < 2_000);
    assert_eq!(world.model.keys().copied().collect::<Vec<_>>(), [1]);
}

#[test]
fn a_journal_that_does_not_fit_names_the_pool_it_needs() {
    let mut world = World::new();
    (0..100).for_each(|_| world.submit(&[7; 1_000]));
    world.write();
    let recovery = world.log.recover();
    let needed = PoolConfig::default().bytes_for(vec![1_000; 100]).expect("valid");
    let limit = Limit::JournalPool { tasks: 100, needed, bytes: needed - 1 };
    assert_eq!(recovery.check(&PoolConfig::with_bytes(needed - 1)), Err(limit.into()));
    assert!(recovery.check(&PoolConfig::with_bytes(needed)).is_ok());
}

#[test]
fn after_a_failure_the_disk_is_tried_also_where_nothing_waits() {
    let mut world = World::new();
    world.submit(b"\x01arefused");
    let Some(Write::Append(batch)) = world.journal.poll_write() else { panic!("nothing to write") };
    drop(batch);
    world.journal.handle_failed();
    assert_eq!((world.journal.waiting(), world.journal.wants_append()), (0, false));
    world.journal.retry();
    assert!(world.journal.wants_append() && !world.journal.is_written());
    let Some(Write::Append(batch)) = world.journal.poll_write() else { panic!("nothing is tried") };
    assert_eq!(batch.records().count(), 0);
    world.journal.handle_durable(1);
    assert!(world.journal.is_written());
}
