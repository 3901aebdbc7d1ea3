//! The outcomes and events of a session, kept until a caller takes them. The IO thread never waits
//! here: the driver adds outcomes, any thread takes them, and a taker may come first.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::hash::Hash;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use penstock_io::sync::lock;

/// The tasks and threads that wait for a change.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Vec<Waker>);

impl Waiters {
    pub(crate) fn add(&mut self, context: &Context<'_>) {
        if !self.0.iter().any(|waker| waker.will_wake(context.waker())) {
            self.0.push(context.waker().clone());
        }
    }

    pub(crate) fn take(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.0)
    }
}

pub(crate) fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}

/// Why there is no outcome to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Never expected, or already taken.
    Unknown,
    /// The session ended before the outcome was known.
    Closed,
}

/// The state of the driver, which adds outcomes and events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Producer {
    /// It may add more.
    #[default]
    Active,
    /// It adds nothing more. What it has added can still be taken.
    Finished,
}

/// Outcomes by key: each is expected, then settled, then taken once.
#[derive(Debug)]
pub(crate) struct Outcomes<K, V>(Mutex<OutcomesState<K, V>>);

#[derive(Debug)]
struct OutcomesState<K, V> {
    slots: HashMap<K, Slot<V>>,
    producer: Producer,
}

#[derive(Debug)]
enum Slot<V> {
    Expected(Waiters),
    Settled(V),
}

impl<K: Copy + Eq + Hash, V> Outcomes<K, V> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(OutcomesState { slots: HashMap::new(), producer: Producer::Active }))
    }

    /// Expect an outcome.
    pub(crate) fn expect(&self, key: K) {
        lock(&self.0).slots.entry(key).or_insert_with(|| Slot::Expected(Waiters::default()));
    }

    /// Stop expecting an outcome.
    pub(crate) fn forget(&self, key: K) {
        if let Some(Slot::Expected(mut waiters)) = lock(&self.0).slots.remove(&key) {
            wake(waiters.take());
        }
    }

    /// Record outcomes. Drop those that are no longer expected.
    pub(crate) fn settle(&self, outcomes: impl IntoIterator<Item = (K, V)>) {
        let mut wakers = Vec::new();
        {
            let mut state = lock(&self.0);
            for (key, value) in outcomes {
                if let Some(slot) = state.slots.get_mut(&key)
                    && let Slot::Expected(waiters) = slot
                {
                    wakers.extend(waiters.take());
                    *slot = Slot::Settled(value);
                }
            }
        }
        wake(wakers);
    }

    /// Close, because no outcome follows, and wake all waiters.
    pub(crate) fn close(&self) {
        let mut wakers = Vec::new();
        {
            let mut state = lock(&self.0);
            state.producer = Producer::Finished;
            for slot in state.slots.values_mut() {
                if let Slot::Expected(waiters) = slot {
                    wakers.extend(waiters.take());
                }
            }
        }
        wake(wakers);
    }

    /// Wait for one outcome and take it.
    pub(crate) async fn wait(&self, key: K) -> Result<V, Missing> {
        poll_fn(|context| self.poll_one(key, context)).await
    }

    fn poll_one(&self, key: K, context: &Context<'_>) -> Poll<Result<V, Missing>> {
        let mut state = lock(&self.0);
        let producer = state.producer;
        match state.slots.get_mut(&key) {
            None => return Poll::Ready(Err(Missing::Unknown)),
            Some(Slot::Expected(waiters)) => match producer {
                Producer::Active => {
                    waiters.add(context);
                    return Poll::Pending;
                }
                Producer::Finished => return Poll::Ready(Err(Missing::Closed)),
            },
            Some(Slot::Settled(_)) => {}
        }
        Poll::Ready(state.take(key).ok_or(Missing::Unknown))
    }
}

impl<K: Copy + Eq + Hash, V> OutcomesState<K, V> {
    fn take(&mut self, key: K) -> Option<V> {
        if !matches!(self.slots.get(&key), Some(Slot::Settled(_))) {
            return None;
        }
        match self.slots.remove(&key) {
            Some(Slot::Settled(value)) => Some(value),
            Some(Slot::Expected(_)) | None => None,
        }
    }
}

/// Maximum size of the data that waiting events refer to, in bytes.
const EVENT_BYTES: usize = 16 << 20;

/// The latest events, for a caller that may never take them: beyond the capacity the oldest are
/// dropped and counted.
#[derive(Debug)]
pub(crate) struct EventQueue<E> {
    capacity: usize,
    /// Function that returns the size of the data that an event refers to.
    weigh: fn(&E) -> usize,
    state: Mutex<EventState<E>>,
}

#[derive(Debug)]
struct EventState<E> {
    events: VecDeque<E>,
    bytes: usize,
    lost: u64,
    waiters: Waiters,
    producer: Producer,
}

impl<E> EventQueue<E> {
    pub(crate) fn new(capacity: usize, weigh: fn(&E) -> usize) -> Self {
        let (events, waiters) = (VecDeque::new(), Waiters::default());
        let state = EventState { events, bytes: 0, lost: 0, waiters, producer: Producer::Active };
        Self { capacity, weigh, state: Mutex::new(state) }
    }

    /// Add events, and return how many older ones were dropped for them.
    pub(crate) fn push(&self, events: impl IntoIterator<Item = E>) -> u64 {
        let (wakers, dropped) = {
            let state = &mut *lock(&self.state);
            let bytes = &mut state.bytes;
            state.events.extend(events.into_iter().inspect(|event| *bytes += (self.weigh)(event)));
            let mut dropped = 0;
            while state.events.len() > self.capacity || (state.bytes > EVENT_BYTES && state.events.len() > 1) {
                let oldest = state.events.pop_front();
                state.bytes -= oldest.as_ref().map_or(0, self.weigh);
                dropped += 1;
            }
            state.lost = state.lost.saturating_add(dropped);
            (state.waiters.take(), dropped)
        };
        wake(wakers);
        dropped
    }

    /// Return how many events wait to be taken.
    pub(crate) fn len(&self) -> usize {
        lock(&self.state).events.len()
    }

    pub(crate) fn close(&self) {
        let wakers = {
            let mut state = lock(&self.state);
            state.producer = Producer::Finished;
            state.waiters.take()
        };
        wake(wakers);
    }

    /// Wait until there are events, and take at most `max`, with the number dropped since the last
    /// call. Return no events when the session is over and all are taken.
    pub(crate) async fn wait(&self, max: usize) -> (Vec<E>, u64) {
        poll_fn(|context| {
            let mut state = lock(&self.state);
            if state.events.is_empty() && state.producer == Producer::Active {
                state.waiters.add(context);
                return Poll::Pending;
            }
            let count = state.events.len().min(max.max(1));
            let events: Vec<E> = state.events.drain(..count).collect();
            state.bytes -= events.iter().map(self.weigh).sum::<usize>();
            Poll::Ready((events, std::mem::take(&mut state.lost)))
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use penstock_io::runtime::block_on;

    #[test]
    fn an_outcome_is_taken_once() {
        let outcomes = Outcomes::new();
        outcomes.expect(1);
        outcomes.settle([(1, 'a'), (2, 'b')]);
        assert_eq!(block_on(outcomes.wait(1)).unwrap(), Ok('a'));
        assert_eq!(block_on(outcomes.wait(1)).unwrap(), Err(Missing::Unknown));
        assert_eq!(block_on(outcomes.wait(2)).unwrap(), Err(Missing::Unknown));
    }

    #[test]
    fn outcomes_taken_by_key_leave_nothing_behind() {
        let outcomes = Outcomes::new();
        for key in 0..1_000 {
            outcomes.expect(key);
            outcomes.settle([(key, key)]);
            assert_eq!(block_on(outcomes.wait(key)).unwrap(), Ok(key));
        }
        assert!(lock(&outcomes.0).slots.is_empty());
        outcomes.expect(1_000);
        outcomes.close();
        assert_eq!(block_on(outcomes.wait(1_000)).unwrap(), Err(Missing::Closed));
    }

    #[test]
    fn a_wait_for_a_forgotten_outcome_ends() {
        let outcomes = Arc::new(Outcomes::<u32, ()>::new());
        outcomes.expect(1);
        let theirs = Arc::clone(&outcomes);
        let ended = block_on(async {
            let waiting = tokio::spawn(async move { theirs.wait(1).await });
            let waits = |slot: &Slot<()>| matches!(slot, Slot::Expected(waiters) if !waiters.0.is_empty());
            while !lock(&outcomes.0).slots.get(&1).is_some_and(waits) {
                tokio::task::yield_now().await;
            }
            outcomes.forget(1);
            tokio::time::timeout(Duration::from_secs(20), waiting).await
        });
        assert_eq!(ended.unwrap().unwrap().unwrap(), Err(Missing::Unknown));
    }

    #[test]
    fn events_beyond_the_capacity_are_counted() {
        let queue = EventQueue::new(2, |_| 0);
        assert_eq!(queue.push(0..5), 3);
        assert_eq!(block_on(queue.wait(9)).unwrap(), (vec![3, 4], 3));
        queue.close();
        assert_eq!(block_on(queue.wait(9)).unwrap(), (vec![], 0));
    }
}
