//! The tasks and their states. Types and payloads are in the pool.

use std::time::Duration;

use penstock_pool::Block;
use penstock_wire::FastMap;

use super::connection_id::ConnectionId;
use super::keys::Key;
use crate::{Lsn, SubmitOnce, TaskId};

/// Microseconds since the queue began.
pub(super) type Tick = u64;

/// Return the tick that is this long after another one; the last one for a wait beyond all ticks.
pub(super) fn later(tick: Tick, wait: Duration) -> Tick {
    tick.saturating_add(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX))
}

/// The state of a task.
///
/// ```text
///             durable               delivered            DONE, FAILED
///  Accepting ────────▶ Waiting ◀──▶ Held ───────────────▶ gone
///       │     start    ▲   ▲  lost   │ │ max attempts
///       └──▶ Delayed ──┘   │         │ └──────────▶ Dead ──▶ dropped
///               ▲          └─────────┼───────────────┘ requeued
///               └────────────────────┘ FAILED, with a retry
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Its record is not durable.
    Accepting { lsn: Lsn },
    /// It waits for a worker.
    Waiting,
    /// It waits for its delay to end.
    Delayed { until: Tick },
    /// It is held by a worker, the connection at this index, until its lease ends.
    Held { worker: u32, since: Tick, due: Option<Tick> },
    /// It is on the dead list.
    Dead,
}

#[derive(Debug)]
pub(super) struct Task {
    pub(super) id: TaskId,
    pub(super) kind: u32,
    pub(super) attempts: u16,
    pub(super) bytes: u32,
    /// Its number in the order of submission.
    pub(super) order: u64,
    pub(super) block: Block,
    /// The connection that submitted it, and is told if it fails.
    pub(super) submitter: Option<ConnectionId>,
    /// The journal's segment with its content, once that is durable.
    pub(super) segment: u64,
    pub(super) state: State,
    /// Whether a key follows its content.
    pub(super) once: bool,
}

impl Task {
    /// Return the type and the payload in its block.
    pub(super) fn content<'b>(&self, block: &'b [u8]) -> &'b [u8] {
        let key = if self.once { SubmitOnce::KEY } else { 0 };
        block.get(..block.len().saturating_sub(key)).unwrap_or_default()
    }

    /// Return the key in its block.
    pub(super) fn key(&self, block: &[u8]) -> Option<Key> {
        block.last_chunk().copied().filter(|_| self.once)
    }
}

/// All tasks, by index and by ID.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    places: Vec<Option<Task>>,
    free: Vec<u32>,
    by_id: FastMap<u32, u32>,
    next: u32,
}

impl Tasks {
    pub(super) fn get(&self, place: u32) -> Option<&Task> {
        self.places.get(place as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, place: u32) -> Option<&mut Task> {
        self.places.get_mut(place as usize)?.as_mut()
    }

    pub(super) fn find(&self, id: TaskId) -> Option<u32> {
        self.by_id.get(&id.0).copied()
    }

    /// Return the upper bound of all indices.
    pub(super) fn places(&self) -> usize {
        self.places.len()
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Return an ID that no live task has (decision 11).
    pub(super) fn new_id(&mut self) -> TaskId {
        loop {
            let id = TaskId(self.next).next();
            self.next = id.0;
            if !self.by_id.contains_key(&id.0) {
                return id;
            }
        }
    }

    /// Let IDs continue after this one.
    pub(super) const fn go_on_behind(&mut self, id: TaskId) {
        self.next = id.0;
    }

    pub(super) fn insert(&mut self, task: Task) -> u32 {
        let id = task.id.0;
        let place = match self.free.pop() {
            Some(place) => {
                if let Some(slot) = self.places.get_mut(place as usize) {
                    *slot = Some(task);
                }
                place
            }
            None => {
                self.places.push(Some(task));
                (self.places.len() - 1) as u32
            }
        };
        self.by_id.insert(id, place);
        place
    }

    pub(super) fn remove(&mut self, place: u32) -> Option<Task> {
        let task = self.places.get_mut(place as usize)?.take()?;
        self.by_id.remove(&task.id.0);
        self.free.push(place);
        if self.by_id.is_empty() && self.places.len() > 4_096 {
            // Shrink after a peak.
            let next = self.next;
            *self = Self { next, ..Self::default() };
        }
        Some(task)
    }
}
