//! Workers: deliveries and outcomes.

use super::connection::{Role, Worker};
use super::event::words;
use super::kinds::Turn;
use super::outcome::Outcome;
use super::task::{State, Tick, later};
use super::timer::Timer;
use super::{ConnectionId, Event, Queue};
use crate::frame::write_task;
use crate::{ErrorCode, Frame, HEADER, Record, TaskId, Types};

/// The most types that one worker may subscribe to.
const SUBSCRIPTIONS: usize = 256;

impl Queue {
    /// Handle READY (decision 5): register the worker, and send it tasks or WAIT. If it holds
    /// tasks, ignore READY.
    pub(super) fn ready(&mut self, now: Tick, id: ConnectionId) {
        let since = self.moment();
        let Some(worker) = self.connections.worker_mut(id.index) else { return };
        if !worker.holds.is_empty() {
            return;
        }
        if !worker.registered {
            (worker.registered, worker.since) = (true, since);
            self.begin_beats(now, id, 0);
            self.workers += 1;
            self.idle += 1;
        }
        self.feed(now, id.index);
        if self.connections.worker_mut(id.index).is_some_and(|worker| worker.holds.is_empty()) {
            self.answer(id, &Frame::Wait);
        }
    }

    pub(super) fn prefetch(&mut self, now: Tick, id: ConnectionId, tasks: u16) {
        if let Some(worker) = self.connections.worker_mut(id.index) {
            worker.prefetch = tasks;
            self.feed(now, id.index);
        }
    }

    /// Handle SUBSCRIBE, which replaces earlier subscriptions of the worker (decision 6).
    pub(super) fn subscribe(&mut self, now: Tick, id: ConnectionId, types: Types<'_>) {
        let count = types.count();
        if count > SUBSCRIPTIONS {
            let message = format!("SUBSCRIBE to {count} types is above the limit of {SUBSCRIPTIONS}");
            return self.refuse(id, ErrorCode::Invalid, &message);
        }
        let mut kinds = Vec::new();
        for name in types {
            let Some(kind) = self.kinds.enter(name, &self.config) else {
                kinds.into_iter().for_each(|kind| self.kinds.leave(kind));
                let message = format!("there are {} types of tasks already", self.config.types);
                return self.refuse(id, ErrorCode::Invalid, &message);
            };
            if kinds.contains(&kind) { self.kinds.leave(kind) } else { kinds.push(kind) }
        }
        self.wait(id.index, None);
        let Some(worker) = self.connections.worker_mut(id.index) else { return };
        let kinds = (!kinds.is_empty()).then(|| kinds.into_boxed_slice());
        let before = std::mem::replace(&mut worker.kinds, kinds);
        before.into_iter().flatten().for_each(|kind| self.kinds.leave(kind));
        self.feed(now, id.index);
    }

    fn moment(&mut self) -> u64 {
        self.moments += 1;
        self.moments
    }

    /// Deliver as many tasks as the worker has room for; then it waits for more.
    pub(super) fn feed(&mut self, now: Tick, index: u32) {
        while self.has_room(index)
            && let Some(worker) = self.connections.worker_mut(index)
            && let Some(kind) = self.kinds.best(worker.kinds.as_deref())
            && self.give(now, kind, index)
        {}
        let turn = self
            .has_room(index)
            .then(|| self.connections.worker_mut(index).map(|worker| (!worker.holds.is_empty(), worker.since, index)));
        self.wait(index, turn.flatten());
    }

    /// Deliver tasks of a type to waiting workers.
    pub(super) fn offer(&mut self, now: Tick, kind: u32) {
        while let Some(index) = self.kinds.next_worker(kind)
            && self.give(now, kind, index)
        {
            // This worker may have room for more, but other workers come first.
            let turn = self
                .has_room(index)
                .then(|| self.connections.worker_mut(index).map(|worker| (true, worker.since, index)));
            self.wait(index, turn.flatten());
        }
    }

    /// Return whether a worker may get another task.
    fn has_room(&self, index: u32) -> bool {
        let limit = self.config.output;
        !self.stopping
            && self.connections.at(index).is_some_and(|connection| {
                connection.output.waiting() <= limit
                    && connection
                        .worker()
                        .is_some_and(|worker| worker.registered && worker.holds.len() < usize::from(worker.prefetch))
            })
    }

    /// Set a worker's position among the waiting workers; `None` removes it.
    fn wait(&mut self, index: u32, turn: Option<Turn>) {
        let Some(worker) = self.connections.worker_mut(index) else { return };
        if worker.turn != turn {
            let kinds = worker.kinds.as_deref();
            if let Some(before) = std::mem::replace(&mut worker.turn, turn) {
                self.kinds.wait(kinds, before, false);
            }
            if let Some(turn) = turn {
                self.kinds.wait(kinds, turn, true);
            }
        }
    }

    /// Deliver the type's oldest task to a worker; return whether there was one.
    fn give(&mut self, now: Tick, kind: u32, index: u32) -> bool {
        let Some((place, again)) = self.kinds.pop(now, kind) else { return false };
        if let Some(again) = again {
            self.timers.insert((again, Timer::Rate(kind)));
        }
        let timeout = self.kinds.get(kind).and_then(|kind| kind.policy.task_timeout);
        let due = timeout.map(|timeout| later(now, timeout));
        let since = self.moment();
        let Some(task) = self.tasks.get_mut(place) else { return true };
        task.attempts = task.attempts.saturating_add(1);
        task.state = State::Held { worker: index, since: now, due };
        let (id, attempts) = (task.id, task.attempts);
        if let Some(due) = due {
            self.timers.insert((due, Timer::Task(place)));
        }
        if let Some(journal) = &mut self.journal {
            journal.append(&Record::Delivered { id, attempts });
        }
        self.held += 1;
        self.counters.delivered += 1;
        let Some(connection) = self.connections.at_mut(index) else { return true };
        if let Some(task) = self.tasks.get(place)
            && let Ok(block) = self.pool.get(task.block)
        {
            let content = task.content(block);
            write_task(id, content, connection.output.room(HEADER + TaskId::LENGTH + content.len(), 0));
        }
        if let Some(open) = connection.open_mut() {
            if let Role::Worker(worker) = &mut open.role {
                self.idle -= usize::from(worker.holds.is_empty());
                worker.holds.push(place);
                worker.since = since;
            }
            open.answer_heartbeats();
        }
        if let Some(id) = self.connections.id(index) {
            self.mark(id);
        }
        true
    }

    /// Handle DONE (decision 7).
    pub(super) fn worker_done(&mut self, now: Tick, id: ConnectionId, task: TaskId) {
        let Some(place) = self.take_from(id, task) else { return };
        self.counters.done += 1;
        self.remove(place);
        self.resolve(now, task, None, Outcome::Done);
        self.feed(now, id.index);
    }

    /// Handle FAILED, which is final or causes a retry (decision 8).
    pub(super) fn worker_failed(&mut self, now: Tick, id: ConnectionId, task_id: TaskId, reason: &[u8]) {
        let Some(place) = self.take_from(id, task_id) else { return };
        let Some(task) = self.tasks.get_mut(place) else { return };
        let Some(kind) = self.kinds.get(task.kind) else { return };
        let policy = &kind.policy;
        let again = policy.retry_failed && task.attempts < policy.attempts;
        let name = String::from_utf8_lossy(&kind.name).into_owned();
        if !policy.retry_failed || again {
            self.events.push(Event::Failed { id: task_id, kind: name, reason: words(reason), again });
        }
        if again {
            let until = later(now, policy.retry_after(task.attempts));
            task.state = State::Delayed { until };
            self.timers.insert((until, Timer::Task(place)));
            self.counters.retried += 1;
        } else if policy.retry_failed {
            self.die(now, place, reason, true);
        } else {
            let submitter = task.submitter;
            self.counters.failed += 1;
            self.remove(place);
            self.resolve(now, task_id, submitter, Outcome::Failed(reason.into()));
        }
        self.feed(now, id.index);
    }

    /// Release a task that this connection holds; refuse the frame if it does not hold the task.
    fn take_from(&mut self, id: ConnectionId, task: TaskId) -> Option<u32> {
        let place = self.tasks.find(task).filter(|place| {
            self.tasks.get(*place).is_some_and(|task| match task.state {
                State::Held { worker, .. } => worker == id.index,
                State::Accepting { .. } | State::Waiting | State::Delayed { .. } | State::Dead => false,
            })
        });
        match place {
            Some(place) => self.release(place),
            None => self.refuse(id, ErrorCode::Invalid, &format!("task {task} is not held by this connection")),
        }
        place
    }

    /// Take a task away from its worker.
    pub(super) fn release(&mut self, place: u32) {
        let since = self.moment();
        let Some(task) = self.tasks.get_mut(place) else { return };
        let State::Held { worker, due, .. } = task.state else { return };
        task.state = State::Waiting;
        if let Some(due) = due {
            self.timers.remove(&(due, Timer::Task(place)));
        }
        self.held -= 1;
        if let Some(worker) = self.connections.worker_mut(worker) {
            if let Some(at) = worker.holds.iter().position(|held| *held == place) {
                worker.holds.swap_remove(at);
            }
            if worker.holds.is_empty() {
                worker.since = since;
                self.idle += 1;
            }
        }
    }

    /// Return an unanswered task to its place in the queue, or to the dead list if it has no
    /// attempts left (decision 7).
    pub(super) fn give_back(&mut self, now: Tick, place: u32, why: &str) {
        let Some(task) = self.tasks.get(place) else { return };
        let (kind, order) = (task.kind, task.order);
        let most = self.kinds.get(kind).map_or(u16::MAX, |kind| kind.policy.attempts);
        if task.attempts >= most {
            self.die(now, place, why.as_bytes(), false);
        } else {
            self.kinds.push(kind, order, place);
            self.offer(now, kind);
        }
    }

    /// End a connection: return the tasks that it holds to the queue, and forget the tasks that it
    /// observes. Do nothing if it is ending already.
    pub(super) fn dismiss(&mut self, now: Tick, id: ConnectionId) {
        let Some(open) = self.connections.get_mut(id).and_then(|connection| connection.state.end()) else { return };
        if let Some(heartbeats) = open.heartbeats {
            self.timers.remove(&(heartbeats.due, Timer::Beat(id.index)));
        }
        match open.role {
            Role::Unknown => {}
            Role::Producer(producer) => self.forget_observer(id, producer.observes),
            Role::Worker(worker) => self.dismiss_worker(now, *worker),
        }
    }

    fn dismiss_worker(&mut self, now: Tick, mut worker: Worker) {
        if let Some(turn) = worker.turn {
            self.kinds.wait(worker.kinds.as_deref(), turn, false);
        }
        if worker.registered {
            self.workers -= 1;
            self.idle -= usize::from(worker.holds.is_empty());
        }
        for kind in worker.kinds.iter().flatten() {
            self.kinds.leave(*kind);
        }
        // Other workers get the tasks in the order of submission.
        worker.holds.sort_unstable_by_key(|place| self.tasks.get(*place).map(|task| task.order));
        for place in &worker.holds {
            self.counters.lost += 1;
            self.release(*place);
        }
        for place in worker.holds {
            self.give_back(now, place, "the worker's connection ended");
        }
    }
}
