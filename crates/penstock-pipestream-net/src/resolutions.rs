//! The outcomes of entities of ours, kept until they are taken. Each takes one byte, so a caller
//! that sends a million entities and never takes their outcomes loses a megabyte. Only outcomes
//! other than COMPLETE take more, because they have a reason.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use penstock_io::sync::lock;
use penstock_pipestream::EntityKey;
use penstock_wire::FastMap;

use crate::outcomes::{Missing, Producer, Waiters, wake};
use crate::types::Resolution;

/// Outcomes by key: each is expected, in the order of the IDs of its scope, then settled, then taken once, by key or in
/// a batch with others.
#[derive(Debug, Default)]
pub(crate) struct Resolutions(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    runs: FastMap<RunKey, Run>,
    /// Outcomes other than COMPLETE at the first attempt.
    reasons: FastMap<EntityKey, Resolution>,
    waiting: FastMap<EntityKey, Waiters>,
    /// Runs with settled outcomes, each once.
    ready: VecDeque<RunKey>,
    any: Waiters,
    producer: Producer,
}

/// A scope, how often it was used before, and how often its entity IDs were used before.
type RunKey = (u16, u32, u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    Expected,
    Complete,
    /// The outcome is in `reasons`.
    Other,
    Taken,
}

/// The entities of one scope, from the first one whose outcome is not taken.
#[derive(Debug, Default)]
struct Run {
    /// The ID of the first slot.
    first: u32,
    slots: VecDeque<Slot>,
    settled: usize,
    /// The index before which no slot is settled.
    lowest: usize,
    place: RunPlace,
}

/// Whether the queue of runs with settled outcomes has a run; it has each run at most once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum RunPlace {
    /// The queue does not have the run, which is removed as soon as all of its outcomes are taken.
    #[default]
    Outside,
    /// The queue has the run, which is removed only after it has left the queue.
    Queued,
}

const fn run_key(key: EntityKey) -> RunKey {
    (key.scope, key.scope_use, key.entity_use)
}

impl Run {
    fn slot_mut(&mut self, entity: u32) -> Option<(usize, &mut Slot)> {
        let index = usize::try_from(entity.checked_sub(self.first)?).ok()?;
        Some((index, self.slots.get_mut(index)?))
    }

    fn expect(&mut self, entity: u32) {
        if self.slots.is_empty() {
            self.first = entity;
        }
        // A scope's IDs are consecutive, except for entities that an earlier process has announced.
        while self.first > entity {
            self.first -= 1;
            self.lowest += 1;
            self.slots.push_front(Slot::Taken);
        }
        let index = usize::try_from(entity - self.first).unwrap_or(usize::MAX);
        while self.slots.len() <= index {
            self.slots.push_back(Slot::Taken);
        }
        if let Some(slot) = self.slots.get_mut(index).filter(|slot| **slot == Slot::Taken) {
            *slot = Slot::Expected;
        }
    }

    /// Take a settled slot, and return its value.
    fn take(&mut self, index: usize) -> Option<Slot> {
        let slot = self.slots.get_mut(index).filter(|slot| matches!(slot, Slot::Complete | Slot::Other))?;
        let previous = std::mem::replace(slot, Slot::Taken);
        self.settled -= 1;
        self.trim();
        Some(previous)
    }

    fn trim(&mut self) {
        while self.slots.front() == Some(&Slot::Taken) {
            self.slots.pop_front();
            self.first = self.first.saturating_add(1);
            self.lowest = self.lowest.saturating_sub(1);
        }
    }

    /// Take the settled slot with the lowest ID.
    fn take_lowest(&mut self) -> Option<(u32, Slot)> {
        if self.settled == 0 {
            return None;
        }
        let settled = |slot: &Slot| matches!(slot, Slot::Complete | Slot::Other);
        self.lowest += self.slots.iter().skip(self.lowest).position(settled)?;
        let entity = self.first.saturating_add(u32::try_from(self.lowest).unwrap_or(u32::MAX));
        self.take(self.lowest).map(|slot| (entity, slot))
    }
}

impl State {
    fn settle(&mut self, key: EntityKey, resolution: Resolution) -> Option<Waiters> {
        let run = self.runs.get_mut(&run_key(key))?;
        let (index, slot) = run.slot_mut(key.entity).filter(|(_, slot)| **slot == Slot::Expected)?;
        let plain = resolution == Resolution::COMPLETE;
        *slot = if plain { Slot::Complete } else { Slot::Other };
        run.lowest = if run.settled == 0 { index } else { run.lowest.min(index) };
        run.settled += 1;
        match std::mem::replace(&mut run.place, RunPlace::Queued) {
            RunPlace::Outside => self.ready.push_back(run_key(key)),
            RunPlace::Queued => {}
        }
        if !plain {
            self.reasons.insert(key, resolution);
        }
        if self.waiting.is_empty() { None } else { self.waiting.remove(&key) }
    }

    fn resolution(&mut self, key: EntityKey, slot: Slot) -> Option<Resolution> {
        match slot {
            Slot::Complete => Some(Resolution::COMPLETE),
            Slot::Other => self.reasons.remove(&key),
            Slot::Expected | Slot::Taken => None,
        }
    }

    fn take(&mut self, key: EntityKey) -> Option<Resolution> {
        let run = self.runs.get_mut(&run_key(key))?;
        let index = run.slot_mut(key.entity)?.0;
        let slot = run.take(index)?;
        self.forget_if_empty(run_key(key));
        self.resolution(key, slot)
    }

    /// Remove a run whose outcomes are all taken. A run in `ready` is removed when it leaves the
    /// queue.
    fn forget_if_empty(&mut self, key: RunKey) {
        if self.runs.get(&key).is_some_and(|run| run.slots.is_empty() && run.place == RunPlace::Outside) {
            self.runs.remove(&key);
        }
    }

    fn take_any(&mut self, max: usize) -> Vec<(EntityKey, Resolution)> {
        let mut taken = Vec::new();
        while taken.len() < max
            && let Some(key) = self.ready.front().copied()
        {
            let lowest = self.runs.get_mut(&key).and_then(Run::take_lowest);
            let Some((entity, slot)) = lowest else {
                self.ready.pop_front();
                if let Some(run) = self.runs.get_mut(&key) {
                    run.place = RunPlace::Outside;
                }
                self.forget_if_empty(key);
                continue;
            };
            let (scope, scope_use, entity_use) = key;
            let key = EntityKey { scope, scope_use, entity, entity_use };
            taken.extend(self.resolution(key, slot).map(|resolution| (key, resolution)));
        }
        taken
    }
}

impl Resolutions {
    /// Expect outcomes.
    pub(crate) fn expect(&self, keys: impl IntoIterator<Item = EntityKey>) {
        let mut state = lock(&self.0);
        for key in keys {
            state.runs.entry(run_key(key)).or_default().expect(key.entity);
        }
    }

    /// Stop expecting this outcome. Those that wait for it learn that it is unknown.
    pub(crate) fn forget(&self, key: EntityKey) {
        let mut state = lock(&self.0);
        if state.take(key).is_some() {
            return;
        }
        if let Some(run) = state.runs.get_mut(&run_key(key)) {
            if let Some((_, slot)) = run.slot_mut(key.entity) {
                *slot = Slot::Taken;
            }
            run.trim();
        }
        state.forget_if_empty(run_key(key));
        let waiters = state.waiting.remove(&key);
        drop(state);
        wake(waiters.map(|mut waiters| waiters.take()).unwrap_or_default());
    }

    /// Record outcomes. Drop those that are no longer expected.
    pub(crate) fn settle(&self, outcomes: impl IntoIterator<Item = (EntityKey, Resolution)>) {
        let mut wakers: Vec<Waker> = Vec::new();
        {
            let mut state = lock(&self.0);
            for (key, resolution) in outcomes {
                if let Some(mut waiters) = state.settle(key, resolution) {
                    wakers.extend(waiters.take());
                }
            }
            wakers.extend(state.any.take());
        }
        wake(wakers);
    }

    /// Close, because no outcome follows, and wake all waiters.
    pub(crate) fn close(&self) {
        let mut wakers: Vec<Waker> = Vec::new();
        {
            let mut state = lock(&self.0);
            state.producer = Producer::Finished;
            wakers.extend(state.waiting.drain().flat_map(|(_, mut waiters)| waiters.take()));
            wakers.extend(state.any.take());
        }
        wake(wakers);
    }

    /// Wait for one outcome and take it.
    pub(crate) async fn wait(&self, key: EntityKey) -> Result<Resolution, Missing> {
        poll_fn(|context| self.poll_one(key, context)).await
    }

    fn poll_one(&self, key: EntityKey, context: &Context<'_>) -> Poll<Result<Resolution, Missing>> {
        let mut state = lock(&self.0);
        let producer = state.producer;
        let slot = state.runs.get_mut(&run_key(key)).and_then(|run| run.slot_mut(key.entity)).map(|(_, slot)| *slot);
        match slot {
            None | Some(Slot::Taken) => Poll::Ready(Err(Missing::Unknown)),
            Some(Slot::Expected) => match producer {
                Producer::Active => {
                    state.waiting.entry(key).or_default().add(context);
                    Poll::Pending
                }
                Producer::Finished => Poll::Ready(Err(Missing::Closed)),
            },
            Some(Slot::Complete | Slot::Other) => Poll::Ready(state.take(key).ok_or(Missing::Unknown)),
        }
    }

    /// Wait until there are outcomes, and take at most `max` of them, scope by scope in the order
    /// of their IDs. Return none when the session is over and all are taken.
    pub(crate) async fn wait_any(&self, max: usize) -> Vec<(EntityKey, Resolution)> {
        poll_fn(|context| {
            let mut state = lock(&self.0);
            let taken = state.take_any(max.max(1));
            if !taken.is_empty() || state.producer == Producer::Finished {
                return Poll::Ready(taken);
            }
            state.any.add(context);
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use penstock_pipestream::{ErrorCode, Reason, Status};

    use super::*;
    use penstock_io::runtime::block_on;

    fn key(entity: u32) -> EntityKey {
        EntityKey { scope: 0, scope_use: 0, entity, entity_use: 0 }
    }

    fn complete() -> Resolution {
        Resolution::COMPLETE
    }

    fn failed() -> Resolution {
        let reason = Reason { code: ErrorCode::EntityInvalid, message: "bad".into() };
        Resolution { status: Status::Failed, reason: Some(reason), attempts: 1, claim: None }
    }

    fn expecting(count: u32) -> Resolutions {
        let outcomes = Resolutions::default();
        outcomes.expect((1..=count).map(key));
        outcomes
    }

    #[test]
    fn an_outcome_is_taken_once() {
        let outcomes = expecting(1);
        outcomes.settle([(key(1), failed()), (key(2), complete())]);
        assert_eq!(block_on(outcomes.wait(key(1))).unwrap(), Ok(failed()));
        assert_eq!(block_on(outcomes.wait(key(1))).unwrap(), Err(Missing::Unknown));
        assert_eq!(block_on(outcomes.wait(key(2))).unwrap(), Err(Missing::Unknown));
    }

    #[test]
    fn a_batch_leaves_out_what_was_taken_by_key() {
        let outcomes = expecting(4);
        outcomes.settle([(key(3), failed()), (key(2), complete()), (key(1), complete())]);
        assert_eq!(block_on(outcomes.wait(key(2))).unwrap(), Ok(complete()));
        assert_eq!(block_on(outcomes.wait_any(9)).unwrap(), [(key(1), complete()), (key(3), failed())]);
        outcomes.close();
        assert_eq!(block_on(outcomes.wait_any(9)).unwrap(), []);
        assert_eq!(block_on(outcomes.wait(key(4))).unwrap(), Err(Missing::Closed));
    }

    #[test]
    fn outcomes_that_are_taken_leave_nothing_behind() {
        let outcomes = Resolutions::default();
        for entity in 1..=1_000 {
            outcomes.expect([key(entity)]);
            outcomes.settle([(key(entity), failed())]);
            assert_eq!(block_on(outcomes.wait(key(entity))).unwrap(), Ok(failed()));
        }
        for entity in 1_001..=2_000 {
            outcomes.expect([key(entity)]);
            outcomes.settle([(key(entity), failed())]);
        }
        assert_eq!(block_on(outcomes.wait_any(5_000)).unwrap().len(), 1_000);
        let state = lock(&outcomes.0);
        assert!(state.reasons.is_empty() && state.ready.len() <= 1 && state.runs.len() <= 1);
        assert!(state.runs.values().all(|run| run.slots.is_empty()));
    }

    #[test]
    fn a_forgotten_outcome_has_no_owner() {
        let outcomes = expecting(3);
        outcomes.settle([(key(1), failed())]);
        outcomes.forget(key(1));
        outcomes.forget(key(2));
        outcomes.settle([(key(2), complete()), (key(3), complete())]);
        assert_eq!(block_on(outcomes.wait(key(2))).unwrap(), Err(Missing::Unknown));
        assert_eq!(block_on(outcomes.wait_any(9)).unwrap(), [(key(3), complete())]);
        let state = lock(&outcomes.0);
        assert!(state.runs.values().all(|run| run.slots.is_empty()) && state.reasons.is_empty());
    }

    #[test]
    fn a_wait_for_a_forgotten_outcome_ends() {
        let outcomes = Arc::new(expecting(1));
        let theirs = Arc::clone(&outcomes);
        let ended = block_on(async {
            let waiting = tokio::spawn(async move { theirs.wait(key(1)).await });
            while lock(&outcomes.0).waiting.is_empty() {
                tokio::task::yield_now().await;
            }
            outcomes.forget(key(1));
            tokio::time::timeout(Duration::from_secs(20), waiting).await
        });
        assert_eq!(ended.unwrap().unwrap().unwrap(), Err(Missing::Unknown));
    }

    #[test]
    fn a_million_outcomes_without_a_waiter_take_a_megabyte() {
        let outcomes = expecting(1_000_000);
        outcomes.settle((1..=1_000_000).map(|entity| (key(entity), complete())));
        let state = lock(&outcomes.0);
        let slots: usize = state.runs.values().map(|run| run.slots.capacity() * size_of::<Slot>()).sum();
        assert!(slots <= 2 << 20 && state.reasons.is_empty(), "{slots}");
    }
}
