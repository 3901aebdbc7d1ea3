//! Locks of state that stays consistent when a thread panics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lock a mutex, even one that a thread held when it panicked: no critical section of the drivers leaves its value half-changed.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
