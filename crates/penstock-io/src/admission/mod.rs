//! How many connections a server admits, how long a connection may stay silent, and how many
//! descriptors are reserved for the server's files.
//!
//! A server makes one [`Admission`], which raises the limit of descriptors to what the connections
//! of all servers need, and reserves [`RESERVED`] of them for files. Every connection holds a
//! [`Permit`] while it is open.

mod accept;
mod counters;
mod descriptors;
mod first_byte;
mod permits;
mod throttle;

pub(crate) use accept::Accept;
pub use counters::Counters;
pub use first_byte::FirstByte;
pub use permits::{Admission, Config, LoopbackShare, Permit, WhenFull, network};

#[cfg(test)]
mod tests;

use std::time::Duration;

/// The maximum numbers of connections of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// In total at the same time.
    pub connections: u64,
    /// From one address at the same time; an IPv6 address stands for its /64. Default: seven eighths of all, or 64 if
    /// that is more.
    pub per_address: Option<u64>,
}

/// The default time from accept to the end of the handshake and the first byte.
pub const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(10);
/// The default silence after which a connection is closed, if the protocol allows silence at all.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// The number of connections that may wait in the system's queue to be accepted.
pub(crate) const BACKLOG: i32 = 1_024;
/// Descriptors reserved for the server's own files.
pub const RESERVED: u64 = 32;
