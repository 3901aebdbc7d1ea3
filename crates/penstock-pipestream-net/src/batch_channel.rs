//! The transfer of entities from the IO thread to the caller: all entities that arrived together
//! are passed with one lock and one wake-up. A wake-up for each would cost more than a small entity
//! does, because the caller would run immediately and find only that one.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use penstock_io::sync::lock;

use crate::outcomes::{Waiters, wake};

/// Return the two ends of a channel. It is unbounded; the code that sends must limit what waits.
pub(crate) fn batch_channel<T>() -> (BatchSender<T>, BatchReceiver<T>) {
    let state = State { waiting: VecDeque::new(), waiters: Waiters::default(), ends: Ends::Connected };
    let shared = Arc::new(Mutex::new(state));
    (BatchSender(Arc::clone(&shared)), BatchReceiver(shared))
}

/// The IO thread's end.
#[derive(Debug)]
pub(crate) struct BatchSender<T>(Arc<Mutex<State<T>>>);

/// The caller's end, from which several tasks may take.
#[derive(Debug)]
pub(crate) struct BatchReceiver<T>(Arc<Mutex<State<T>>>);

#[derive(Debug)]
struct State<T> {
    waiting: VecDeque<T>,
    waiters: Waiters,
    ends: Ends,
}

/// The two ends of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// Both ends exist.
    Connected,
    /// One end was dropped.
    Disconnected,
}

impl<T> BatchSender<T> {
    /// Send values in order. Return them if the receiver is dropped.
    pub(crate) fn send(&self, values: Vec<T>) -> Result<(), Vec<T>> {
        let wakers = {
            let mut state = lock(&self.0);
            if state.ends == Ends::Disconnected {
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
            state.ends = Ends::Disconnected;
            state.waiters.take()
        };
        wake(wakers);
    }
}

impl<T> BatchReceiver<T> {
    /// Wait until there are values, and return one to `max` of them; none when the sender is
    /// dropped and all are received. Safe to cancel.
    pub(crate) async fn recv(&self, max: usize) -> Vec<T> {
        poll_fn(|context| {
            let mut state = lock(&self.0);
            if state.waiting.is_empty() && state.ends == Ends::Connected {
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
        let remaining = {
            let mut state = lock(&self.0);
            state.ends = Ends::Disconnected;
            std::mem::take(&mut state.waiting)
        };
        // Dropped without the lock, because dropping the values may run other code.
        drop(remaining);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_io::runtime::{block_on, spawn};

    #[test]
    fn what_is_given_together_is_taken_in_order_and_in_parts() {
        let (sender, receiver) = batch_channel();
        sender.send(vec![1, 2, 3]).unwrap();
        sender.send(vec![4]).unwrap();
        assert_eq!(block_on(receiver.recv(2)).unwrap(), [1, 2]);
        assert_eq!(block_on(receiver.recv(9)).unwrap(), [3, 4]);
    }

    #[test]
    fn a_waiting_receiver_is_woken_by_values_and_by_the_end() {
        let (sender, receiver) = batch_channel();
        let taking = spawn(async move { (receiver.recv(9).await, receiver.recv(9).await) }).unwrap();
        sender.send(vec!['a', 'b']).unwrap();
        drop(sender);
        assert_eq!(block_on(taking).unwrap().unwrap(), (vec!['a', 'b'], vec![]));
    }

    #[test]
    fn values_that_are_not_received_come_back() {
        let (sender, receiver) = batch_channel();
        let held = Arc::new(());
        sender.send(vec![Arc::clone(&held)]).unwrap();
        drop(receiver);
        assert_eq!(Arc::strong_count(&held), 1);
        assert_eq!(sender.send(vec![held]).map_err(|back| back.len()), Err(1));
    }
}
