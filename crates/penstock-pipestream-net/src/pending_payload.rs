//! Payloads that are made without blocking the caller's event loop.

use penstock_io::{DriverError as _, runtime};
use tokio::task::JoinHandle;

use crate::payload::Payload;
use crate::{Error, Result};

/// The most bytes that are hashed on the caller's thread: that takes about 10 us, as long as a
/// hand-over to another thread.
const HASHED_HERE: usize = 16 << 10;

/// A payload that is ready, or is being read and hashed by the pool. `E` is the error of its source.
#[derive(Debug)]
pub struct PendingPayload<E>(State<E>);

#[derive(Debug)]
enum State<E> {
    Ready(std::result::Result<Payload, E>),
    Coming(JoinHandle<std::result::Result<Payload, E>>),
}

impl<E: Send + 'static> PendingPayload<E> {
    /// Make a payload: on this thread if it is known to have few bytes, otherwise on a thread of
    /// the pool.
    pub fn new(
        length: Option<usize>,
        make: impl FnOnce() -> std::result::Result<Payload, E> + Send + 'static,
    ) -> Result<Self> {
        if length.is_some_and(|length| length <= HASHED_HERE) {
            return Ok(Self(State::Ready(make())));
        }
        Ok(Self(State::Coming(runtime::spawn_blocking(make)?)))
    }

    /// Return the payload, or the error of its source.
    ///
    /// # Errors
    ///
    /// The thread that made the payload has panicked.
    pub async fn get(self) -> Result<std::result::Result<Payload, E>> {
        match self.0 {
            State::Ready(made) => Ok(made),
            State::Coming(task) => task.await.map_err(Error::task),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread::{self, ThreadId};

    use penstock_io::runtime::block_on;

    use super::*;

    /// Return the thread that makes a payload.
    fn maker(length: Option<usize>) -> ThreadId {
        let (sender, receiver) = mpsc::channel();
        let pending = PendingPayload::<()>::new(length, move || {
            sender.send(thread::current().id()).unwrap();
            Ok(Payload::bytes(&b"bytes"[..]))
        });
        let payload = block_on(pending.unwrap().get()).unwrap().unwrap().unwrap();
        assert_eq!(payload.len(), 5);
        receiver.recv().unwrap()
    }

    #[test]
    fn payloads_of_up_to_16_kib_are_hashed_by_the_caller_and_all_others_by_the_pool() {
        let here = thread::current().id();
        for (length, is_here) in [(Some(0), true), (Some(16_384), true), (Some(16_385), false), (None, false)] {
            assert_eq!(maker(length) == here, is_here, "{length:?}");
        }
    }

    #[test]
    fn the_error_of_a_source_reaches_the_caller_wherever_it_was_read() {
        for length in [Some(1), None] {
            let pending = PendingPayload::new(length, || Err("unreadable")).unwrap();
            assert_eq!(block_on(pending.get()).unwrap().unwrap().unwrap_err(), "unreadable");
        }
    }
}
