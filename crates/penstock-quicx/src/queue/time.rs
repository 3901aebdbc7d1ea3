//! Timers: the ends of leases and delays, rates, and heartbeats.

use std::time::{Duration, Instant};

use super::connection::{Heartbeats, Role};
use super::task::{State, Tick, later};
use super::timer::Timer;
use super::{ConnectionId, Event, Queue};
use crate::Frame;
use crate::pulse::UNANSWERED;

impl Queue {
    /// Return when to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(due, _)| self.began + Duration::from_micros(*due))
    }

    /// Handle the passage of time.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.tick(now);
        while let Some((_, timer)) = self.timers.pop_first_due(now) {
            match timer {
                Timer::Task(place) => self.task_is_due(now, place),
                Timer::Rate(kind) => {
                    self.kinds.unblock(kind);
                    self.offer(now, kind);
                }
                Timer::Beat(index) => self.beat(now, index),
                Timer::Journal => {
                    if let Some(journal) = &mut self.journal {
                        journal.retry();
                    }
                }
            }
        }
    }

    fn task_is_due(&mut self, now: Tick, place: u32) {
        let Some(task) = self.tasks.get_mut(place) else { return };
        let (kind, order) = (task.kind, task.order);
        match task.state {
            State::Delayed { .. } => {
                task.state = State::Waiting;
                self.kinds.push(kind, order, place);
                self.offer(now, kind);
            }
            State::Held { worker, since, .. } => self.lease_is_over(now, place, worker, since),
            State::Accepting { .. } | State::Waiting | State::Dead => {}
        }
    }

    /// End a lease, unless the worker has sent a heartbeat since.
    fn lease_is_over(&mut self, now: Tick, place: u32, index: u32, since: Tick) {
        let Some(task) = self.tasks.get_mut(place) else { return };
        let timeout = self.kinds.get(task.kind).and_then(|kind| kind.policy.task_timeout).unwrap_or_default();
        let renewed = self.connections.worker_mut(index).map_or(0, |worker| worker.renewed);
        let due = later(since.max(renewed), timeout);
        if due > now {
            task.state = State::Held { worker: index, since, due: Some(due) };
            self.timers.insert((due, Timer::Task(place)));
            return;
        }
        self.counters.late += 1;
        self.release(place);
        self.give_back(now, place, &format!("no answer within {} s", timeout.as_secs_f64()));
        self.feed(now, index);
    }

    /// Answer HEARTBEAT. A worker's heartbeat extends the leases of its tasks.
    pub(super) fn heartbeat(&mut self, now: Tick, id: ConnectionId) {
        if let Some(worker) = self.connections.worker_mut(id.index) {
            worker.renewed = now;
        }
        self.answer(id, &Frame::Pong);
    }

    /// Handle PONG; an unsolicited one is ignored.
    pub(super) fn pong(&mut self, id: ConnectionId) {
        if let Some(open) = self.connections.open_mut(id) {
            open.answer_heartbeats();
        }
    }

    /// Schedule the next heartbeat to a worker or a producer, which is sent if the peer is idle
    /// then (decision 10).
    pub(super) fn begin_beats(&mut self, now: Tick, id: ConnectionId, unanswered: u8) {
        if let (Some(interval), Some(open)) = (self.config.heartbeat_interval, self.connections.open_mut(id)) {
            let due = later(now, interval.max(Duration::from_micros(1)));
            open.heartbeats = Some(Heartbeats { due, unanswered });
            self.timers.insert((due, Timer::Beat(id.index)));
        }
    }

    fn beat(&mut self, now: Tick, index: u32) {
        let Some(id) = self.connections.id(index) else { return };
        let Some(open) = self.connections.open_mut(id) else { return };
        let Some(Heartbeats { unanswered, .. }) = open.heartbeats.take() else { return };
        // A worker is idle while it holds no task, a producer while it sends no frame for a role.
        let (idle, silent) = match &mut open.role {
            Role::Unknown => return,
            Role::Producer(producer) => (!std::mem::take(&mut producer.active), &mut self.counters.silent_producers),
            Role::Worker(worker) => (worker.holds.is_empty(), &mut self.counters.silent),
        };
        if idle && unanswered >= UNANSWERED {
            *silent += 1;
            self.events.push(Event::Silent { connection: id });
            return self.cut(now, id);
        }
        self.begin_beats(now, id, if idle { unanswered + 1 } else { 0 });
        if idle {
            self.push(now, id, &Frame::Heartbeat);
        }
    }
}

/// The removal of timers that are due.
trait Due {
    fn pop_first_due(&mut self, now: Tick) -> Option<(Tick, Timer)>;
}

impl Due for std::collections::BTreeSet<(Tick, Timer)> {
    fn pop_first_due(&mut self, now: Tick) -> Option<(Tick, Timer)> {
        self.first().filter(|(due, _)| *due <= now)?;
        self.pop_first()
    }
}
