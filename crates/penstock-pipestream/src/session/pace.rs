//! The intervals of stream 0.

use std::time::{Duration, Instant};

use penstock_wire::later;

/// The bytes of a block: 96 heartbeats, which fit into a QUIC packet of the minimum size that every path carries.
pub const STATUS_BLOCK: usize = 1_152;

/// The times at which stream 0 may be written to.
#[derive(Debug, Clone)]
pub(super) struct Pace {
    pub(super) interval: Duration,
    pub(super) next: Instant,
    pub(super) due: bool,
}

impl Pace {
    pub(super) fn new(interval: Duration, start: Instant) -> Self {
        Self { interval, next: later(start, interval), due: false }
    }

    /// Cancel the block that is due, because the connection was lost.
    pub(super) fn interrupt(&mut self) {
        self.due = false;
    }

    /// Advance to the next interval. Missed intervals are skipped, so that two blocks are never sent together.
    pub(super) fn tick(&mut self, now: Instant) {
        let late = now.saturating_duration_since(self.next).as_nanos();
        let missed = u32::try_from(late / self.interval.as_nanos().max(1)).unwrap_or(u32::MAX - 1);
        self.next = self.interval.checked_mul(missed + 1).and_then(|by| self.next.checked_add(by)).unwrap_or(now);
        self.due = true;
    }
}
