//! Observers: the connections that get outcomes (decision 9).

use penstock_wire::FastMap;

use super::outcome::{MAX_ATTEMPTS, Outcome, frame_of};
use super::task::{State, Tick};
use super::{ConnectionId, Queue};
use crate::{ErrorCode, Failed, Frame, Record, TaskId};

/// The most live tasks that a connection may observe at once.
const OBSERVED: usize = 65_536;

impl Queue {
    /// Handle OBSERVE, which is answered once the outcome is known, maybe now.
    pub(super) fn observe(&mut self, now: Tick, id: ConnectionId, task: TaskId) {
        if let Some(place) = self.tasks.find(task) {
            match self.tasks.get(place).map(|task| task.state) {
                Some(State::Dead) => self.tell_death(now, id, task, place),
                // No client knows its ID yet.
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

    /// Send FAILED for a dead task, with the worker's reason as far as the dead list has kept it,
    /// or with "max attempts".
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

    /// Send an outcome to its observers, once to each, and remember it for later ones.
    pub(super) fn resolve(&mut self, now: Tick, id: TaskId, submitter: Option<ConnectionId>, outcome: Outcome) {
        let mut observers = self.observers.remove(&id.0).unwrap_or_default();
        for observer in &observers {
            if let Some(producer) = self.connections.producer_mut(*observer) {
                producer.observes.remove(&id.0);
            }
        }
        if let Some(submitter) = submitter.filter(|submitter| !observers.contains(submitter)) {
            observers.push(submitter);
        }
        let frame = frame_of(id, &outcome);
        for observer in observers {
            self.push(now, observer, &frame);
        }
        self.outcomes.remember(now, id, outcome);
    }

    /// Remove a task and free its block (decision 7).
    pub(super) fn remove(&mut self, place: u32) {
        self.forget_unique(place);
        let Some(task) = self.tasks.remove(place) else { return };
        self.keys.over(task.id, self.pool.get(task.block).ok().and_then(|block| task.key(block)));
        // This cannot fail: a task's block is allocated as long as the task exists.
        let _ = self.pool.free(task.block);
        self.kinds.leave(task.kind);
        if let Some(journal) = &mut self.journal {
            journal.append(&Record::Gone { id: task.id });
            journal.release_task(task.segment, task.bytes as usize);
        }
    }
}
