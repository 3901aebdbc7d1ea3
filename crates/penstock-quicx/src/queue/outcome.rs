//! Outcomes: who hears of them, and how long they are remembered (decision 9).

use std::collections::VecDeque;
use std::time::Duration;

use penstock_wire::FastMap;

use super::task::{State, Tick};
use super::{ConnectionId, Queue};
use crate::{ErrorCode, Failed, Frame, REASON, Record, TaskId};

/// Bytes of all reasons together that are remembered.
const REASONS: usize = 4 << 20;
/// Live tasks that a connection may observe at once.
const OBSERVED: usize = 65_536;

/// What became of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// With its reason.
    Failed(Box<[u8]>),
}

/// The outcomes of the last while, outside the pool.
#[derive(Debug)]
pub(super) struct Outcomes {
    most: usize,
    time: Tick,
    known: FastMap<u32, (Tick, Outcome)>,
    /// In the order in which they came. One that was forgotten, or came again, is passed over.
    order: VecDeque<(Tick, u32)>,
    bytes: usize,
    /// So many at the front of the order have no reason any more.
    emptied: usize,
}

impl Outcomes {
    pub(super) fn new(most: usize, time: Duration) -> Self {
        let (known, order) = (FastMap::default(), VecDeque::new());
        Self { most, time: time.as_micros() as u64, known, order, bytes: 0, emptied: 0 }
    }

    fn remember(&mut self, now: Tick, id: TaskId, mut outcome: Outcome) {
        self.forget(id);
        if let Outcome::Failed(reason) = &mut outcome {
            if let Some(cut) = reason.get(..REASON) {
                *reason = cut.into();
            }
            self.make_room(reason.len());
            self.bytes += reason.len();
        }
        self.known.insert(id.0, (now, outcome));
        self.order.push_back((now, id.0));
        while self.order.len() > self.most
            || self.order.front().is_some_and(|(since, _)| now.saturating_sub(*since) > self.time)
        {
            let Some((since, id)) = self.order.pop_front() else { break };
            self.emptied = self.emptied.saturating_sub(1);
            if self.known.get(&id).is_some_and(|(known, _)| *known == since) {
                self.forget(TaskId(id));
            }
        }
    }

    /// The oldest reasons make room for a new one: who asks for a task asks soon.
    fn make_room(&mut self, bytes: usize) {
        while self.bytes + bytes > REASONS {
            let Some((since, id)) = self.order.get(self.emptied) else { return };
            self.emptied += 1;
            if let Some((known, Outcome::Failed(reason))) = self.known.get_mut(id)
                && known == since
            {
                self.bytes -= std::mem::take(reason).len();
            }
        }
    }

    /// The ID is another task's from now on.
    pub(super) fn forget(&mut self, id: TaskId) {
        if self.known.is_empty() {
            return;
        }
        if let Some((_, Outcome::Failed(reason))) = self.known.remove(&id.0) {
            self.bytes -= reason.len();
        }
    }

    fn find(&self, now: Tick, id: TaskId) -> Option<&Outcome> {
        let (since, outcome) = self.known.get(&id.0)?;
        (now.saturating_sub(*since) <= self.time).then_some(outcome)
    }
}

fn frame_of(id: TaskId, outcome: &Outcome) -> Frame<'_> {
    match outcome {
        Outcome::Done => Frame::Done(id),
        Outcome::Failed(reason) => Frame::Failed(Failed { id, reason }),
    }
}

impl Queue {
    /// OBSERVE: answered when the outcome is known, perhaps now.
    pub(super) fn observe(&mut self, now: Tick, id: ConnectionId, task: TaskId) {
        if let Some(place) = self.tasks.find(task) {
            match self.tasks.get(place).map(|task| task.state) {
                Some(State::Dead) => self.tell_death(now, id, task, place),
                // Nobody was told its ID.
                Some(State::Accepting { .. }) | None => self.unknown(id, task),
                Some(State::Waiting | State::Delayed { .. } | State::Held { .. }) => self.add_observer(id, task),
            }
            return;
        }
        match self.outcomes.find(now, task).cloned() {
            Some(outcome) => self.push(now, id, &frame_of(task, &outcome)),
            None => self.unknown(id, task),
        }
    }

    /// What those hear who ask for a dead task: the worker's reason, as far as the dead list has kept it.
    fn tell_death(&mut self, now: Tick, id: ConnectionId, task: TaskId, place: u32) {
        let dead = self.tasks.get(place).and_then(|task| self.dead.tasks.get(&task.order));
        let reason = dead.filter(|dead| dead.verdict).map_or_else(|| MAX_ATTEMPTS.into(), |dead| dead.reason.clone());
        self.push(now, id, &Frame::Failed(Failed { id: task, reason: &reason }));
    }

    pub(super) fn unknown(&mut self, id: ConnectionId, task: TaskId) {
        self.refuse(id, ErrorCode::Invalid, &format!("task {task} is not known"));
    }

    fn add_observer(&mut self, id: ConnectionId, task: TaskId) {
        let Some(producer) = self.connections.producer_mut(id) else { return };
        if producer.observes.len() >= OBSERVED {
            let message = format!("{OBSERVED} tasks are observed already");
            return self.refuse(id, ErrorCode::Invalid, &message);
        }
        let observers = self.observers.entry(task.0).or_default();
        if !observers.contains(&id) {
            producer.observes.insert(task.0, ());
            observers.push(id);
        }
    }

    /// Forget that a connection observes these tasks.
    pub(super) fn forget_observer(&mut self, id: ConnectionId, observes: FastMap<u32, ()>) {
        for task in observes.into_keys() {
            if let Some(observers) = self.observers.get_mut(&task) {
                observers.retain(|observer| *observer != id);
                if observers.is_empty() {
                    self.observers.remove(&task);
                }
            }
        }
    }

    /// An outcome is known: those who wait for it hear of it, each once; it is remembered for others.
    pub(super) fn resolve(&mut self, now: Tick, id: TaskId, submitter: Option<ConnectionId>, outcome: Outcome) {
        let mut hearers = self.observers.remove(&id.0).unwrap_or_default();
        for hearer in &hearers {
            if let Some(producer) = self.connections.producer_mut(*hearer) {
                producer.observes.remove(&id.0);
            }
        }
        if let Some(submitter) = submitter.filter(|submitter| !hearers.contains(submitter)) {
            hearers.push(submitter);
        }
        let frame = frame_of(id, &outcome);
        for hearer in hearers {
            self.push(now, hearer, &frame);
        }
        self.outcomes.remember(now, id, outcome);
    }

    /// A task leaves the queue for good, and its block is free (decision 7).
    pub(super) fn remove(&mut self, place: u32) {
        self.forget_unique(place);
        let Some(task) = self.tasks.remove(place) else { return };
        self.keys.over(task.id, self.pool.get(task.block).ok().and_then(|block| task.key(block)));
        // A block of a task is allocated as long as the task is there.
        let _ = self.pool.free(task.block);
        self.kinds.leave(task.kind);
        if let Some(journal) = &mut self.journal {
            journal.append(&Record::Gone { id: task.id });
            journal.gone(task.segment, task.bytes as usize);
        }
    }
}

/// What those hear who wait for a task that has died with no worker's word (decision 8).
pub(super) const MAX_ATTEMPTS: &[u8] = b"max attempts";
