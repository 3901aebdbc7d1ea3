//! The outcomes of tasks, and how long they are remembered (decision 9).

use std::collections::VecDeque;
use std::time::Duration;

use penstock_wire::FastMap;

use super::task::{Tick, later};
use crate::{Failed, Frame, REASON, TaskId};

/// The most bytes of all remembered reasons.
const REASONS: usize = 4 << 20;
/// The reason of a task that has died without a worker's reason (decision 8).
pub(super) const MAX_ATTEMPTS: &[u8] = b"max attempts";

/// The outcome of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// Failed, with the reason.
    Failed(Box<[u8]>),
}

/// The recent outcomes, outside the pool.
#[derive(Debug)]
pub(super) struct Outcomes {
    most: usize,
    time: Tick,
    known: FastMap<u32, (Tick, Outcome)>,
    /// The IDs in order of arrival. Entries that were forgotten or replaced are skipped.
    order: VecDeque<(Tick, u32)>,
    bytes: usize,
    /// The number of entries at the front without a reason.
    emptied: usize,
}

impl Outcomes {
    pub(super) fn new(most: usize, time: Duration) -> Self {
        let (known, order) = (FastMap::default(), VecDeque::new());
        Self { most, time: later(0, time), known, order, bytes: 0, emptied: 0 }
    }

    pub(super) fn remember(&mut self, now: Tick, id: TaskId, mut outcome: Outcome) {
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

    /// Drop the oldest reasons to make room for a new one: most observers come soon after the outcome.
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

    /// Forget the outcome, because the ID belongs to a new task.
    pub(super) fn forget(&mut self, id: TaskId) {
        if self.known.is_empty() {
            return;
        }
        if let Some((_, Outcome::Failed(reason))) = self.known.remove(&id.0) {
            self.bytes -= reason.len();
        }
    }

    pub(super) fn find(&self, now: Tick, id: TaskId) -> Option<&Outcome> {
        let (since, outcome) = self.known.get(&id.0)?;
        (now.saturating_sub(*since) <= self.time).then_some(outcome)
    }
}

pub(super) fn frame_of(id: TaskId, outcome: &Outcome) -> Frame<'_> {
    match outcome {
        Outcome::Done => Frame::Done(id),
        Outcome::Failed(reason) => Frame::Failed(Failed { id, reason }),
    }
}
