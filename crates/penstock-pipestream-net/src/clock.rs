//! The clocks that the core reads its time from.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use penstock_pipestream::Now;

/// Return the current time of both clocks.
pub fn now() -> Now {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { instant: Instant::now(), unix_micros: u64::try_from(unix.as_micros()).unwrap_or(u64::MAX) }
}
