//! The clocks of this process.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use penstock_pimp::Now;

/// Read both clocks.
pub(crate) fn now() -> Now {
    let micros = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
    Now { instant: Instant::now(), unix_micros: u64::try_from(micros).unwrap_or(u64::MAX) }
}
