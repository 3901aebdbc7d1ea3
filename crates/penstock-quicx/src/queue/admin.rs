//! The dead list, and STOP (decision 9).

use std::ops::Bound;

use super::event::words;
use super::held::DeadList;
use super::outcome::{MAX_ATTEMPTS, Outcome};
use super::task::{State, Tick};
use super::{ConnectionId, DeadEntry, Event, Queue};
use crate::{DeadTask, DeadTasks, ErrorCode, Frame, Journal, REASON, Record, TaskId};

/// The bytes of a reason that the dead list always keeps, and the total up to which it keeps whole reasons.
const LEAST: usize = 1 << 10;
const REASONS: usize = 4 << 20;
/// The most bytes of DEAD_TASKS.
const LISTED: usize = 512 << 10;

impl Queue {
    /// Handle a task without attempts left: it goes to the dead list, and keeps its ID and its block (decision 7).
    /// Connections that wait for it get the worker's reason unchanged, or "max attempts" if no worker has given one
    /// (decision 8).
    pub(super) fn die(&mut self, now: Tick, place: u32, whole: &[u8], verdict: bool) {
        self.bury(place, whole, verdict);
        let Some(task) = self.tasks.get(place) else { return };
        let reason = self.dead.tasks.get(&task.order).map_or(&[][..], |dead| &*dead.reason);
        let (id, attempts, submitter) = (task.id, task.attempts, task.submitter);
        if let Some(journal) = &mut self.journal {
            journal.append(&Record::Dead { id, attempts, reason, verdict });
        }
        let kind = self.kinds.get(task.kind).map_or_else(String::new, |kind| words(&kind.name));
        self.counters.died += 1;
        self.events.push(Event::Dead { id, kind, attempts, reason: words(reason) });
        let outcome = if verdict { whole } else { MAX_ATTEMPTS };
        self.resolve(now, id, submitter, Outcome::Failed(outcome.into()));
    }

    /// Put a task on the dead list.
    pub(super) fn bury(&mut self, place: u32, reason: &[u8], verdict: bool) {
        self.forget_unique(place);
        let Some(task) = self.tasks.get_mut(place) else { return };
        task.state = State::Dead;
        // At least 1 KiB of a reason is kept, even if there is no room.
        let room = REASONS.saturating_sub(self.dead.bytes).max(LEAST);
        let kept = reason.len().min(REASON).min(room);
        self.dead.bytes += kept;
        let reason = reason.get(..kept).unwrap_or_default().into();
        self.dead.tasks.insert(task.order, DeadEntry { place, reason, verdict });
        self.dead.orders.insert(task.id.0, task.order);
    }

    /// Handle DEAD_LIST and DEAD_AFTER, in order. The answer is large, so it is made when it can be written, and a
    /// connection has one at a time.
    pub(super) fn dead_list(&mut self, id: ConnectionId, list: DeadList) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if connection.output.holds() {
            connection.output.hold_list(list);
        } else {
            self.write_dead(id, list);
        }
    }

    /// Write DEAD_TASKS: the oldest tasks, or those with IDs above a given one. A client that asks
    /// by ID continues after an earlier answer even if tasks have left the list since.
    pub(super) fn write_dead(&mut self, id: ConnectionId, list: DeadList) {
        let bytes = match list {
            DeadList::Oldest => self.listed(self.dead.tasks.values()),
            DeadList::After(task) => {
                let behind = self.dead.orders.range((Bound::Excluded(task.0), Bound::Unbounded));
                self.listed(behind.filter_map(|(_, order)| self.dead.tasks.get(order)))
            }
        };
        if let Some(connection) = self.connections.get_mut(id) {
            connection.output.write(&Frame::DeadTasks(DeadTasks::of(&bytes)));
            connection.output.listed();
        }
        self.mark(id);
    }

    /// Encode as many dead tasks as fit into an answer.
    fn listed<'q>(&'q self, dead: impl Iterator<Item = &'q DeadEntry>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for DeadEntry { place, reason, verdict: _ } in dead {
            let Some(task) = self.tasks.get(*place) else { continue };
            let Some(kind) = self.kinds.get(task.kind) else { continue };
            let before = bytes.len();
            DeadTask { id: task.id, attempts: task.attempts, kind: &kind.name, reason }.encode(&mut bytes);
            if bytes.len() > LISTED {
                bytes.truncate(before);
                break;
            }
        }
        bytes
    }

    pub(super) fn dead_requeue(&mut self, now: Tick, id: ConnectionId, task_id: TaskId) {
        let Some(place) = self.exhume(id, task_id) else { return };
        let order = self.order;
        self.order += 1;
        let Some(task) = self.tasks.get_mut(place) else { return };
        (task.order, task.attempts, task.state, task.submitter) = (order, 0, State::Waiting, None);
        let kind = task.kind;
        self.outcomes.forget(task_id);
        self.counters.requeued += 1;
        self.remember_unique(place);
        self.record(id, task_id, &Record::Requeued { id: task_id, order });
        self.kinds.push(kind, order, place);
        self.offer(now, kind);
    }

    pub(super) fn dead_drop(&mut self, id: ConnectionId, task_id: TaskId) {
        let Some(place) = self.exhume(id, task_id) else { return };
        self.counters.dropped += 1;
        self.remove(place);
        // The record of the dropped task is the last one in the journal.
        let end = self.journal.as_ref().map_or(crate::Lsn(0), Journal::end);
        self.answer_when_durable(id, task_id, end);
    }

    /// Remove a task from the dead list; refuse the request if it is not there.
    fn exhume(&mut self, id: ConnectionId, task_id: TaskId) -> Option<u32> {
        let place = self.tasks.find(task_id);
        let dead = place.and_then(|place| self.tasks.get(place)).filter(|task| task.state == State::Dead);
        let Some(order) = dead.map(|task| task.order) else {
            self.refuse(id, ErrorCode::Invalid, &format!("task {task_id} is not on the dead list"));
            return None;
        };
        self.dead.orders.remove(&task_id.0);
        self.dead.bytes -= self.dead.tasks.remove(&order)?.reason.len();
        place
    }

    /// Append a record, and answer with OK once it is durable.
    fn record(&mut self, id: ConnectionId, task: TaskId, record: &Record<'_>) {
        match &mut self.journal {
            None => self.answer(id, &Frame::Ok(task)),
            Some(journal) => {
                let lsn = journal.append(record);
                self.answer_when_durable(id, task, lsn);
            }
        }
    }

    /// Handle STOP from a trusted connection.
    pub(super) fn asked_to_stop(&mut self, id: ConnectionId) {
        if !self.connections.get(id).is_some_and(|connection| connection.trusted) {
            let message = "STOP is taken from this machine and from clients with a certificate only";
            return self.refuse(id, ErrorCode::Invalid, message);
        }
        self.answer(id, &Frame::Ok(TaskId(0)));
        self.stop();
        self.events.push(Event::Stop { connection: id });
    }
}
