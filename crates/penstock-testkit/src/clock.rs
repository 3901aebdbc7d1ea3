//! Time that moves only when a test moves it.

use std::time::{Duration, Instant};

/// The time at which the Unix clock of every [`FakeClock`] starts: 2026-01-01T00:00:00Z.
const EPOCH_MICROS: u64 = 1_767_225_600_000_000;

/// Both clocks that a core takes as an argument: a monotonic one and Unix microseconds. They move together.
#[derive(Debug, Clone)]
pub struct FakeClock {
    start: Instant,
    elapsed: Duration,
}

impl FakeClock {
    /// Make a clock at 2026-01-01T00:00:00Z.
    pub fn new() -> Self {
        Self { start: Instant::now(), elapsed: Duration::ZERO }
    }

    /// Return the monotonic time.
    pub fn instant(&self) -> Instant {
        self.start + self.elapsed
    }

    /// Return the microseconds since the Unix epoch.
    pub fn unix_micros(&self) -> u64 {
        EPOCH_MICROS.saturating_add(u64::try_from(self.elapsed.as_micros()).unwrap_or(u64::MAX))
    }

    /// Return how far the clock has been moved.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Move both clocks forwards.
    pub fn advance(&mut self, by: Duration) {
        self.elapsed = self.elapsed.saturating_add(by);
    }

    /// Move both clocks forwards to `instant`; never backwards.
    pub fn advance_to(&mut self, instant: Instant) {
        self.elapsed = self.elapsed.max(instant.saturating_duration_since(self.start));
    }
}

impl Default for FakeClock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_move_together_and_only_when_advanced() {
        let mut clock = FakeClock::new();
        let (instant, micros) = (clock.instant(), clock.unix_micros());
        assert_eq!(micros, 1_767_225_600_000_000);
        clock.advance(Duration::from_micros(1500));
        assert_eq!((clock.instant() - instant, clock.unix_micros() - micros), (Duration::from_micros(1500), 1500));
        clock.advance_to(instant + Duration::from_secs(3600));
        clock.advance_to(instant);
        assert_eq!(clock.elapsed(), Duration::from_secs(3600));
    }
}
