use std::time::{Duration, Instant};

/// Longer than any process runs, and within the range of every clock.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

/// Return the moment that is `wait` after `moment`. A wait of more than 100 years ends after 100
/// years, because a wait that a user or a peer has chosen may be beyond the clock's range.
///
/// ```
/// use std::time::{Duration, Instant};
/// use penstock_wire::later;
///
/// let now = Instant::now();
/// assert_eq!(later(now, Duration::from_secs(1)), now + Duration::from_secs(1));
/// ```
pub fn later(moment: Instant, wait: Duration) -> Instant {
    moment.checked_add(wait.min(LONGEST)).unwrap_or(moment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_beyond_the_clocks_range_ends_after_a_century() {
        let now = Instant::now();
        assert_eq!(later(now, Duration::MAX), now + LONGEST);
        assert_eq!(later(now, LONGEST), now + LONGEST);
        assert_eq!(later(now, Duration::ZERO), now);
    }
}
