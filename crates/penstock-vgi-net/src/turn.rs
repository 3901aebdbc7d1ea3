//! The turn of one thread on a connection, whose calls are lockstep.

use std::sync::{Mutex, MutexGuard, TryLockError};

use penstock_io::DriverError as _;

use crate::{Error, Result};

/// Take the connection for one step.
///
/// # Errors
///
/// Misuse if another thread has it: waiting for that thread would hide the caller's mistake.
pub(crate) fn turn<T>(connection: &Mutex<T>) -> Result<MutexGuard<'_, T>> {
    match connection.try_lock() {
        Ok(connection) => Ok(connection),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => {
            let message = "another thread is using this connection; each thread needs its own";
            Err(Error::misuse(message.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use penstock_wire::ErrorKind;

    use super::*;

    #[test]
    fn a_second_thread_is_told_that_the_connection_is_in_use() {
        let connection = Mutex::new(());
        let held = turn(&connection).expect("free");
        assert_eq!(turn(&connection).expect_err("in use").kind(), ErrorKind::Misuse);
        drop(held);
        assert!(turn(&connection).is_ok());
    }
}
