//! Locks of state that stays consistent when a thread panics, and latches.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// Lock a mutex, even one that a thread held when it panicked: no critical section of the drivers
/// leaves its value half-changed.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A switch that is set once and stays set, for example when a server is closed.
#[derive(Debug, Default)]
pub struct Latch(watch::Sender<bool>);

impl Latch {
    /// Set the latch, and wake its waiters.
    pub fn set(&self) {
        self.0.send_replace(true);
    }

    /// Return whether the latch is set.
    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Wait until the latch is set.
    pub async fn wait(&self) {
        // An error would mean that the latch was dropped, which its borrow prevents.
        let _ = self.0.subscribe().wait_for(|set| *set).await;
    }

    /// Return the result of `work`, or `None` if the latch is set before the result is ready.
    pub async fn unless_set<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.wait() => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::pin::pin;
    use std::time::Instant;

    use super::*;
    use crate::runtime::{block_on, wait};

    #[test]
    fn a_latch_ends_waits_that_began_before_it_was_set_and_those_that_begin_later() {
        let latch = Latch::default();
        let mut waiting = pin!(latch.unless_set(pending::<()>()));
        assert!(wait(waiting.as_mut(), Some(Instant::now()), &mut || Ok(())).is_err());
        latch.set();
        assert_eq!(block_on(waiting).unwrap(), None);
        assert_eq!(block_on(latch.unless_set(pending::<()>())).unwrap(), None);
    }

    #[test]
    fn a_latch_that_is_set_stays_set() {
        let latch = Latch::default();
        assert!(!latch.is_set());
        latch.set();
        latch.set();
        assert!(latch.is_set());
        block_on(latch.wait()).unwrap();
        assert!(latch.is_set());
    }

    #[test]
    fn a_result_that_is_ready_comes_before_a_latch_that_is_set() {
        let latch = Latch::default();
        latch.set();
        assert_eq!(block_on(latch.unless_set(ready(1))).unwrap(), Some(1));
    }
}
