//! The parts that every penstock protocol core shares: a cursor that cannot overrun its input,
//! limits that are checked before memory is allocated, hex digits, intervals between attempts,
//! moments after waits of any length, and the kinds of errors, by blame.
//!
//! This crate depends on no protocol, socket, file or clock.

mod backoff;
mod error;
mod fast_map;
pub mod hex;
mod limit;
mod moment;
mod reader;
mod writer;

pub use backoff::Backoff;
pub use error::ErrorKind;
pub use fast_map::{FastHash, FastHasher, FastMap};
pub use limit::{Limit, LimitExceeded};
pub use moment::later;
pub use reader::{Reader, Truncated};
pub use writer::Writer;
