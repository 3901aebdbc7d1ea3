use std::time::Instant;

/// The two clocks. The driver reads them and passes them to every call that needs the time, because the core reads no
/// clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Monotonic time, for timeouts.
    pub instant: Instant,
    /// Microseconds since the Unix epoch, for times that outlive the process.
    pub unix_micros: u64,
}
