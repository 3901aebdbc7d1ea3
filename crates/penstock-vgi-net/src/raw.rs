//! Descriptors passed as numbers, which the compiler cannot check.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

/// Duplicate the descriptor of a pipe, socket or file. Fail if the number is not an open
/// descriptor.
pub fn duplicate(descriptor: RawFd) -> io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: `BorrowedFd` requires a descriptor that is not -1, which was checked, and that stays open while it is
    // borrowed. The borrow ends with this call, whose only use of it is one system call, which checks the number.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    borrowed.try_clone_to_owned()
}
