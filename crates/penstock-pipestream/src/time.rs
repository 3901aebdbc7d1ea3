use std::time::Instant;

/// The times of two clocks. The driver reads the clocks and passes the times to every call that
/// needs them, because the core reads no clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Monotonic time, for timeouts.
    pub instant: Instant,
    /// Microseconds since the Unix epoch, for times that outlive the process.
    pub unix_micros: u64,
}
