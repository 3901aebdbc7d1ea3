use std::time::Instant;

/// The time on two clocks. The driver reads them and passes this to every call that needs the time, because the core
/// reads no clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Monotonic time, for timeouts.
    pub instant: Instant,
    /// Microseconds since the Unix epoch, for times that outlive the process.
    pub unix_micros: u64,
}

impl Now {
    /// Return the milliseconds since the Unix epoch, as envelopes and jobs store them.
    pub const fn unix_millis(self) -> u64 {
        self.unix_micros / 1_000
    }
}
