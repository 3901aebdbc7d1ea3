//! The transfer of entities from the IO thread to their caller: all that arrived together are passed with one lock and
//! one wake-up. A wake-up for each would cost more than a small entity does, because the caller runs immediately and
//! finds just that one.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use penstock_io::sync::lock;

use crate::outcomes::{Waiters, wake};

/// Return the two ends of a handover; its user is responsible for its capacity.
pub(crate) fn batch_channel<T>() -> (BatchSender<T>, BatchReceiver<T>) {
    let state = State { waiting: VecDeque::new(), waiters: Waiters::default(), over: false };
    let shared = Arc::new(Mutex::new(state));
    (BatchSender(Arc::clone(&shared)), BatchReceiver(shared))
}

/// The IO thread's end.
#[derive(Debug)]
pub(crate) struct BatchSender<T>(Arc<Mutex<State<T>>>);

/// The caller's end; several may take.
#[derive(Debug)]
pub(crate) struct BatchReceiver<T>(Arc<Mutex<State<T>>>);

#[derive(Debug)]
struct State<T> {
    waiting: VecDeque<T>,
    waiters: Waiters,
    /// Whether one of the ends is gone.
    over: bool,
}

impl<T> BatchSender<T> {
    /// Hand values over, in order. Return them if the other end has stopped taking.
    pub(crate) fn give(&self, values: Vec<T>) -> Result<(), Vec<T>> {
        let wakers = {
            let mut state = lock(&self.0);
            if state.over {
                return Err(values);
            }
            state.waiting.extend(values);
            state.waiters.take()
        };
        wake(wakers);
        Ok(())
    }
}

impl<T> Drop for BatchSender<T> {
    fn drop(&mut self) {
        let wakers = {
            let mut state = lock(&self.0);
            state.over = true;
            state.waiters.take()
        };
        wake(wakers);
    }
}

impl<T> BatchReceiver<T> {
    /// Wait until there are values and take at most `max`, at least one; none when the other end is gone and all are
    /// taken. Safe to cancel.
    pub(crate) async fn take(&self, max: usize) -> Vec<T> {
        poll_fn(|context| {
            let mut state = lock(&self.0);
            if state.waiting.is_empty() && !state.over {
                state.waiters.add(context);
                return Poll::Pending;
            }
            let count = state.waiting.len().min(max.max(1));
            Poll::Ready(state.waiting.drain(..count).collect())
        })
        .await
    }
}

impl<T> Drop for BatchReceiver<T> {
    fn drop(&mut self) {
        let left = {
            let mut state = lock(&self.0);
            state.over = true;
            std::mem::take(&mut state.waiting)
        };
        // Not under the lock: dropping the values may run other code.
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_io::runtime::{block_on, spawn};

    #[test]
    fn what_is_given_together_is_taken_in_order_and_in_parts() {
        let (giver, taker) = batch_channel();
        giver.give(vec![1, 2, 3]).unwrap();
        giver.give(vec![4]).unwrap();
        assert_eq!(block_on(taker.take(2)).unwrap(), [1, 2]);
        assert_eq!(block_on(taker.take(9)).unwrap(), [3, 4]);
    }

    #[test]
    fn whoever_waits_is_woken_by_values_and_by_the_end() {
        let (giver, taker) = batch_channel();
        let taking = spawn(async move { (taker.take(9).await, taker.take(9).await) }).unwrap();
        giver.give(vec!['a', 'b']).unwrap();
        drop(giver);
        assert_eq!(block_on(taking).unwrap().unwrap(), (vec!['a', 'b'], vec![]));
    }

    #[test]
    fn what_nobody_takes_comes_back() {
        let (giver, taker) = batch_channel();
        let held = Arc::new(());
        giver.give(vec![Arc::clone(&held)]).unwrap();
        drop(taker);
        assert_eq!(Arc::strong_count(&held), 1);
        assert_eq!(giver.give(vec![held]).map_err(|back| back.len()), Err(1));
    }
}
