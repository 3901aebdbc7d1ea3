//! What the compiler cannot check: descriptors that come as numbers.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

/// Return a descriptor of our own for the same pipe, socket or file. A number that is no open descriptor is an error.
pub fn duplicate(descriptor: RawFd) -> io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: `BorrowedFd` wants a descriptor that is not -1, which was looked at, and that stays open while it is
    // borrowed. The borrow ends with this call, whose only use of it is one system call, and that checks the number.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    borrowed.try_clone_to_owned()
}
