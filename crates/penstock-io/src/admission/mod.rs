//! Who may connect to a server, how long a connection has to say something, and what is left for the server's own files.
//!
//! ```text
//!  listener ── accept ──▶ admit ── Permit ──▶ handshake ──▶ FirstByte ──▶ the protocol
//!                 │          │                    └─── 10 s from accept ──────┘
//!                 │          └── refused: the server is full, an address has its share, descriptors run out
//!                 └── EMFILE, ENFILE, ENOBUFS, ENOMEM: one line in the log, a pause, again
//! ```
//!
//! A server makes one [`Admission`], which raises the limit of descriptors to what the connections of all servers need and
//! keeps [`RESERVED`] of them for files. Every connection holds a [`Permit`] as long as it lives.

mod accept;
mod counters;
mod descriptors;
mod first_byte;
mod permits;

pub use accept::Listen;
pub use counters::Counters;
pub use descriptors::Descriptors;
pub use first_byte::FirstByte;
pub use permits::{Admission, Config, Permit, WhenFull, network};

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::Result;

/// Raises the limit of descriptors to what so many connections need, each of which needs so many, beside what is open, what
/// other servers were promised, and what is kept for files. Says how many connections there can be; where they are fewer than
/// asked for, the log says so.
///
/// For servers that do not accept by this crate: those that do have it done.
///
/// # Errors
///
/// IO where there could be none.
pub fn provide_descriptors(what: &str, connections: u64, each: u64) -> Result<Descriptors> {
    Descriptors::provide(what, connections, each)
}

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
