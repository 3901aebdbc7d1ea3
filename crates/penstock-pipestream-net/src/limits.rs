//! Limits that several modules share: of a session's memory, and of its settings, which error
//! messages name.

/// The driver itself writes our payloads of up to this length: they fit into the window of any
/// stream, so no write waits for the reader.
pub(crate) const SMALL_PAYLOAD: usize = 64 << 10;
/// Payload bytes that may wait in memory for their streams, in a whole session. Small payloads have
/// their own limit.
pub(crate) const CREDIT: usize = 16 << 20;
/// The largest payload that may be parked, in bytes, and the number of entities that may be.
pub(crate) const PARKED_PAYLOAD: usize = 4 << 10;
pub(crate) const PARKED: usize = 1_024;
/// The size that every path of QUIC carries, and the largest that may be requested, which is about
/// that of a jumbo frame.
pub(crate) const MIN_MTU: u16 = 1_200;
pub(crate) const MAX_MTU: u16 = 9_000;
/// The longest time that a session waits, in seconds: a day.
pub(crate) const LONGEST_WAIT: f64 = 86_400.0;
/// The shortest and the longest status interval, in seconds: an idle connection is lost after 30.
pub(crate) const SHORTEST_INTERVAL: f64 = 0.001;
pub(crate) const LONGEST_INTERVAL: f64 = 10.0;
