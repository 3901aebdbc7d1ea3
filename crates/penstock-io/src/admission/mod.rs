//! Who may connect to a server, how long a connection has to say something, and what is left for the server's own files.
//!
//! A server makes one [`Admission`], which raises the limit of descriptors to what the connections of all servers need and
//! keeps [`RESERVED`] of them for files. Every connection holds a [`Permit`] as long as it lives.

mod accept;
mod counters;
mod descriptors;
mod first_byte;
mod permits;

pub(crate) use accept::Accept;
pub use counters::Counters;
use descriptors::Descriptors;
pub use first_byte::FirstByte;
pub use permits::{Admission, Config, LoopbackShare, Permit, WhenFull, network};

#[cfg(test)]
mod tests;

use std::time::Duration;

/// How many connections a server takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// At once.
    pub connections: u64,
    /// Of one address at once, an IPv6 address standing for its /64. Default: seven eighths
    /// of all, or 64 where that is more.
    pub per_address: Option<u64>,
}

/// From accept to the end of the handshake and the first byte, where nobody says otherwise.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Silence after which a connection ends, where the protocol lets it be silent and nobody says otherwise.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Descriptors that connections leave to the server's own files.
pub const RESERVED: u64 = 32;
