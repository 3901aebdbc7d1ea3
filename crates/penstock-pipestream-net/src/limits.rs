//! Memory limits of a session that several modules share.

/// Payloads of ours up to this length are written by the driver itself: they fit into the window of any stream, so none
/// waits for its reader.
pub(crate) const SMALL_PAYLOAD: usize = 64 << 10;
/// Payload bytes that may wait in memory for their streams, over a whole session; small ones wait elsewhere.
pub(crate) const CREDIT: usize = 16 << 20;
/// The largest payload that is parked, and how many are.
pub(crate) const PARKED_PAYLOAD: usize = 4 << 10;
pub(crate) const PARKED: usize = 1_024;
