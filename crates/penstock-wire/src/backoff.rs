use std::time::Duration;

/// An interval that doubles up to a maximum until it is reset: how long to wait before an operation is retried.
///
/// The type reads no clock and draws no random numbers. Where many clients may fail together,
/// [`advance_by`](Self::advance_by) takes a random number, so that they do not all retry at the same time.
///
/// ```
/// use std::time::Duration;
/// use penstock_wire::Backoff;
///
/// let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(3));
/// let waits: Vec<_> = (0..3).map(|_| backoff.advance().as_secs()).collect();
/// assert_eq!(waits, [1, 2, 3]);
/// backoff.reset();
/// assert_eq!(backoff.advance_by(0.5), Duration::from_millis(750));
/// ```
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    /// Make a backoff whose first interval is `first` and whose longest is `most`.
    pub fn new(first: Duration, most: Duration) -> Self {
        let first = first.min(most);
        Self { first, most, next: first }
    }

    /// Return how long to wait now, without changing the interval.
    pub const fn interval(&self) -> Duration {
        self.next
    }

    /// Return how long to wait now, and double the interval up to the maximum.
    pub fn advance(&mut self) -> Duration {
        let now = self.next;
        self.next = self.next.saturating_mul(2).min(self.most);
        now
    }

    /// Do what [`advance`](Self::advance) does, but return from half of the wait to all of it, as `chance`, a random
    /// number from 0 to 1, decides.
    pub fn advance_by(&mut self, chance: f64) -> Duration {
        let wait = self.advance();
        // For the longest waits, the product is rounded up beyond the range of a duration.
        Duration::try_from_secs_f64(wait.as_secs_f64() * (0.5 + chance.clamp(0.0, 1.0) / 2.0)).unwrap_or(wait)
    }

    /// Start over with the first interval, because an attempt succeeded.
    pub const fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn an_interval_doubles_up_to_its_maximum_and_restarts_when_it_is_reset() {
        let mut backoff = Backoff::new(100 * MILLI, 1_000 * MILLI);
        let waits: Vec<_> = (0..6).map(|_| backoff.advance().as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1_000, 1_000]);
        backoff.reset();
        assert_eq!(
            (backoff.interval(), backoff.advance(), backoff.interval()),
            (100 * MILLI, 100 * MILLI, 200 * MILLI)
        );
    }

    #[test]
    fn a_first_interval_above_the_maximum_is_the_maximum() {
        let mut backoff = Backoff::new(Duration::MAX, MILLI);
        assert_eq!((backoff.advance(), backoff.advance()), (MILLI, MILLI));
        backoff.reset();
        assert_eq!(backoff.advance(), MILLI);
    }

    #[test]
    fn an_interval_may_be_as_long_as_a_duration() {
        let mut backoff = Backoff::new(Duration::MAX, Duration::MAX);
        assert_eq!((backoff.advance_by(1.0), backoff.advance()), (Duration::MAX, Duration::MAX));
    }

    #[test]
    fn chance_takes_at_most_half_of_an_interval_and_none_of_the_next() {
        for (chance, wait) in [(0.0, 50), (0.5, 75), (1.0, 100), (-1.0, 50), (2.0, 100)] {
            let mut backoff = Backoff::new(100 * MILLI, 1_000 * MILLI);
            assert_eq!(backoff.advance_by(chance), wait * MILLI, "{chance}");
            assert_eq!(backoff.interval(), 200 * MILLI);
        }
    }
}
