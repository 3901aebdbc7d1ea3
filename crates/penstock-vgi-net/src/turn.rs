//! The turn of one thread on a connection, whose calls are lockstep.

use std::sync::{Mutex, MutexGuard, TryLockError};

use crate::{Misuse, Result};

/// Take the connection for one step.
///
/// # Errors
///
/// Misuse if another thread has it: waiting for that thread would hide the caller's mistake.
pub(crate) fn turn<T>(connection: &Mutex<T>) -> Result<MutexGuard<'_, T>> {
    match connection.try_lock() {
        Ok(connection) => Ok(connection),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => Err(Misuse::InUse.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn a_second_thread_is_told_that_the_connection_is_in_use() {
        let connection = Mutex::new(());
        let held = turn(&connection).expect("free");
        assert!(matches!(turn(&connection), Err(Error::Misuse(Misuse::InUse))));
        drop(held);
        assert!(turn(&connection).is_ok());
    }
}
