//! Limits of a session that several modules share: of its memory, and of its settings, which messages of errors name.

/// Payloads of ours up to this length are written by the driver itself: they fit into the window of any stream, so none
/// waits for its reader.
pub(crate) const SMALL_PAYLOAD: usize = 64 << 10;
/// Payload bytes that may wait in memory for their streams, over a whole session; small ones wait elsewhere.
pub(crate) const CREDIT: usize = 16 << 20;
/// The largest payload that is parked, and how many are.
pub(crate) const PARKED_PAYLOAD: usize = 4 << 10;
pub(crate) const PARKED: usize = 1_024;
/// The size that every path of QUIC carries, and the largest that may be requested: it fits a jumbo frame of 9,000
/// bytes, approximately.
pub(crate) const MIN_MTU: u16 = 1_200;
pub(crate) const MAX_MTU: u16 = 9_000;
/// The longest time that a session waits, in seconds: a day.
pub(crate) const LONGEST_WAIT: f64 = 86_400.0;
/// The shortest and the longest status interval, in seconds: an idle connection is lost after 30.
pub(crate) const SHORTEST_INTERVAL: f64 = 0.001;
pub(crate) const LONGEST_INTERVAL: f64 = 10.0;
