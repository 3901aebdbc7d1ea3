use std::time::Instant;

/// The two clocks, read by the driver and handed to every call that needs one: the core has no clock of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Monotonic time, for time-outs.
    pub instant: Instant,
    /// Microseconds since the Unix epoch, for what outlives the process.
    pub unix_micros: u64,
}

impl Now {
    /// Milliseconds since the Unix epoch, as envelopes and states have them.
    pub const fn unix_millis(self) -> u64 {
        self.unix_micros / 1_000
    }
}
