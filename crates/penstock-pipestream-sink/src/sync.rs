use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lock data that a panic cannot leave half-changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
