//! The byte streams that a channel reads and writes.

use std::io::{Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

/// A source of a channel's bytes.
pub trait Source: Read + Send {
    /// Return the descriptor that the system can wait for, or `None` if only this object knows when
    /// it is ready.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Set the deadline of the next read, for a source whose reads each consist of several system calls.
    fn set_deadline(&mut self, _deadline: Option<Instant>) {}

    /// Return whether the peer can pass descriptors.
    fn receives_descriptors(&self) -> bool {
        false
    }

    /// Return the last descriptor that the peer has passed.
    fn received(&mut self) -> Option<OwnedFd> {
        None
    }
}

/// A destination of a channel's bytes.
pub trait Sink: Write + Send {
    /// Return the descriptor that the system can wait for, or `None` as for [`Source::descriptor`].
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Return whether descriptors can be passed to the peer.
    fn passes_descriptors(&self) -> bool {
        false
    }

    /// Pass a descriptor with the next byte that is written.
    fn pass(&mut self, _descriptor: OwnedFd) {}
}
