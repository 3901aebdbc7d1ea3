//! Submits: a task goes into the pool, into the journal, and once durable into its type's queue.

use std::hash::BuildHasher as _;

use penstock_pool::AllocError;

use super::keys::{Key, KeyState};
use super::task::{State, Task, Tick, later};
use super::timer::Timer;
use super::{ConnectionId, Queue};
use crate::{ErrorCode, Frame, Journal, Lsn, Record, Submit, TaskId};

impl Queue {
    pub(super) fn submit(&mut self, now: Tick, id: ConnectionId, submit: Submit<'_>, key: Option<Key>) {
        match self.accept(id, submit, key) {
            Ok(Accepted::New(place)) => self.accepted(now, id, place),
            Ok(Accepted::There(place)) => self.merged(id, place),
            Ok(Accepted::Over(task)) => {
                self.counters.merged += 1;
                self.answer(id, &Frame::Ok(task));
            }
            Err((code, message)) => self.refuse(id, code, &message),
        }
    }

    fn accept(
        &mut self,
        submitter: ConnectionId,
        submit: Submit<'_>,
        key: Option<Key>,
    ) -> Result<Accepted, (ErrorCode, String)> {
        let full = |message: &str| Err((ErrorCode::QueueFull, message.to_owned()));
        if self.stopping {
            return full("shutting down");
        }
        if self.journal.as_ref().is_some_and(Journal::is_failed) {
            return full("the journal cannot be written");
        }
        if !self.config.allows(submit.kind) {
            let kind = String::from_utf8_lossy(submit.kind);
            return Err((ErrorCode::UnknownType, format!("tasks of type {kind} are not taken here")));
        }
        if let Some(owner) = key.and_then(|key| self.keys.find(key)) {
            let place = match owner.state {
                KeyState::Own | KeyState::Merged => self.tasks.find(owner.id),
                // The ID of a unique task that has ended may belong to another task.
                KeyState::Ended => None,
            };
            return Ok(place.map_or(Accepted::Over(owner.id), Accepted::There));
        }
        let Some(kind) = self.kinds.enter(submit.kind, &self.config) else {
            return full(&format!("there are {} types of tasks already", self.config.types));
        };
        if let Some(place) = self.find_unique(kind, submit) {
            self.kinds.leave(kind);
            if let (Some(key), Some(task)) = (key, self.tasks.get(place)) {
                self.keys.merged(key, task.id);
            }
            return Ok(Accepted::There(place));
        }
        let bytes = submit.bytes() + key.map_or(0, |key| key.len());
        let block = match self.pool.alloc(bytes) {
            Ok(block) => block,
            Err(error) => {
                self.kinds.leave(kind);
                return Err(refusal(error));
            }
        };
        if let Ok(content) = self.pool.get_mut(block) {
            fill(content, submit, key);
        }
        let (id, order) = (self.tasks.new_id(), self.order);
        self.order += 1;
        self.outcomes.forget(id);
        if let Some(key) = key {
            self.keys.remember(key, id);
        }
        Ok(Accepted::New(self.tasks.insert(Task {
            id,
            kind,
            attempts: 0,
            bytes: bytes as u32,
            order,
            block,
            submitter: Some(submitter),
            segment: 0,
            state: State::Waiting,
            once: key.is_some(),
        })))
    }

    /// Answer OK for a new task, immediately or once it is durable.
    fn accepted(&mut self, now: Tick, id: ConnectionId, place: u32) {
        self.remember_unique(place);
        let Some(task) = self.tasks.get_mut(place) else { return };
        let task_id = task.id;
        if let Some(journal) = &mut self.journal
            && let Ok(content) = self.pool.get(task.block)
        {
            let record = Record::Submit { id: task_id, order: task.order, attempts: 0, content, once: task.once };
            let lsn = journal.append(&record);
            task.state = State::Accepting { lsn };
            self.accepting.push_back((lsn, place));
            self.accept_when_durable(id, task_id, lsn);
        } else {
            self.counters.submitted += 1;
            self.answer(id, &Frame::Ok(task_id));
            self.start(now, place);
        }
    }

    /// Answer OK for a submit that was merged into another task.
    fn merged(&mut self, id: ConnectionId, place: u32) {
        self.counters.merged += 1;
        let Some(task) = self.tasks.get(place) else { return };
        let lsn = match task.state {
            State::Accepting { lsn } => lsn,
            State::Waiting | State::Delayed { .. } | State::Held { .. } | State::Dead => Lsn(0),
        };
        let task = task.id;
        self.accept_when_durable(id, task, lsn);
    }

    /// Let an accepted task wait for a worker or for its time.
    pub(super) fn start(&mut self, now: Tick, place: u32) {
        let Some(task) = self.tasks.get_mut(place) else { return };
        let (kind, order) = (task.kind, task.order);
        let Some(policy) = self.kinds.get(kind).map(|kind| &kind.policy) else { return };
        if !policy.start_delay.is_zero() && task.attempts == 0 {
            let until = later(now, policy.start_delay);
            task.state = State::Delayed { until };
            self.timers.insert((until, Timer::Task(place)));
            return;
        }
        task.state = State::Waiting;
        self.kinds.push(kind, order, place);
        self.offer(now, kind);
    }

    /// Return the live task with the same type and payload, if the policy merges such submits.
    fn find_unique(&self, kind: u32, submit: Submit<'_>) -> Option<u32> {
        let found = self.kinds.get(kind).filter(|kind| kind.policy.unique)?;
        let place = *found.unique.get(&self.hasher.hash_one(submit.payload))?;
        let task = self.tasks.get(place)?;
        let content = task.content(self.pool.get(task.block).ok()?);
        let same = content.get(1 + submit.kind.len()..) == Some(submit.payload);
        (same && task.state != State::Dead).then_some(place)
    }

    pub(super) fn remember_unique(&mut self, place: u32) {
        if let Some((hash, kind)) = self.unique_key(place)
            && let Some(kind) = self.kinds.get_mut(kind)
        {
            kind.unique.insert(hash, place);
        }
    }

    /// Stop merging submits into the task.
    pub(super) fn forget_unique(&mut self, place: u32) {
        if let Some((hash, kind)) = self.unique_key(place)
            && let Some(kind) = self.kinds.get_mut(kind)
            && kind.unique.get(&hash) == Some(&place)
        {
            kind.unique.remove(&hash);
        }
    }

    fn unique_key(&self, place: u32) -> Option<(u64, u32)> {
        let task = self.tasks.get(place)?;
        let kind = self.kinds.get(task.kind).filter(|kind| kind.policy.unique)?;
        let payload = task.content(self.pool.get(task.block).ok()?).get(1 + kind.name.len()..)?;
        Some((self.hasher.hash_one(payload), task.kind))
    }
}

fn refusal(error: AllocError) -> (ErrorCode, String) {
    let code = match error {
        AllocError::TooLarge { .. } => ErrorCode::TooLarge,
        AllocError::Exhausted { .. } => ErrorCode::QueueFull,
    };
    (code, error.to_string())
}

/// Write a task into its block.
fn fill(content: &mut [u8], submit: Submit<'_>, key: Option<Key>) {
    if let Some((length, rest)) = content.split_first_mut()
        && let Some((name, rest)) = rest.split_at_mut_checked(submit.kind.len())
        && let Some((payload, behind)) = rest.split_at_mut_checked(submit.payload.len())
    {
        *length = submit.kind.len() as u8;
        name.copy_from_slice(submit.kind);
        payload.copy_from_slice(submit.payload);
        behind.iter_mut().zip(key.iter().flatten()).for_each(|(to, from)| *to = *from);
    }
}

/// The result of a submit.
enum Accepted {
    /// A new task.
    New(u32),
    /// A live task into which the submit was merged.
    There(u32),
    /// A task with the same key that has ended.
    Over(TaskId),
}
