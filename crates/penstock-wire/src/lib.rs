//! What every penstock protocol core shares: a cursor that cannot overrun its input, limits that are checked before
//! memory is taken, and the kinds of errors, by blame.
//!
//! Nothing here knows a protocol, a socket, a file or a clock.

mod error;

pub use error::ErrorKind;
