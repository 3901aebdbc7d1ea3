//! Rate limits.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// How many buckets are kept; beyond that, full buckets are removed.
const REMEMBERED: usize = 65_536;

/// How many bursts a caller may owe: a caller that asks for too much at once waits until all of it
/// is paid back.
const OWED: f64 = 12.0;

/// Token buckets, one for each key: `burst` tokens at most, refilled at `per_second`.
#[derive(Debug)]
pub(super) struct Rates<K> {
    burst: f64,
    per_second: f64,
    buckets: HashMap<K, (f64, Instant)>,
}

impl<K: Eq + Hash> Rates<K> {
    pub(super) fn new(burst: u32, per_second: f64) -> Self {
        Self { burst: f64::from(burst), per_second, buckets: HashMap::new() }
    }

    fn left(&self, now: Instant, key: &K) -> f64 {
        let (left, at) = self.buckets.get(key).copied().unwrap_or((self.burst, now));
        (left + now.saturating_duration_since(at).as_secs_f64() * self.per_second).min(self.burst)
    }

    /// Fail with the time to wait if the bucket is empty.
    pub(super) fn check(&self, now: Instant, key: &K) -> Result<(), Duration> {
        let left = self.left(now, key);
        if left >= 1.0 {
            return Ok(());
        }
        Err(Duration::from_secs_f64((1.0 - left) / self.per_second))
    }

    /// Take a token, even if there is none.
    pub(super) fn take(&mut self, now: Instant, key: K) {
        let left = (self.left(now, &key) - 1.0).max(-self.burst * OWED);
        if self.buckets.len() >= REMEMBERED {
            let (burst, per_second) = (self.burst, self.per_second);
            self.buckets
                .retain(|_, (left, at)| *left + now.saturating_duration_since(*at).as_secs_f64() * per_second < burst);
        }
        // There are more keys than can be kept, so new keys are not limited.
        if self.buckets.len() < REMEMBERED || self.buckets.contains_key(&key) {
            self.buckets.insert(key, (left, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_beyond_is_owed_up_to_a_bound() {
        let (now, mut rates) = (Instant::now(), Rates::new(3, 2.0));
        for _ in 0..5 {
            rates.take(now, "a");
        }
        assert_eq!(rates.check(now, &"a"), Err(Duration::from_millis(1_500)));
        for _ in 0..100 {
            rates.take(now, "a");
        }
        assert_eq!(rates.check(now, &"a"), Err(Duration::from_millis(18_500)));
    }

    #[test]
    fn a_burst_passes_and_comes_back_with_time() {
        let (mut now, mut rates) = (Instant::now(), Rates::new(3, 2.0));
        for _ in 0..3 {
            assert_eq!(rates.check(now, &"a"), Ok(()));
            rates.take(now, "a");
        }
        assert_eq!(rates.check(now, &"a"), Err(Duration::from_millis(500)));
        assert_eq!(rates.check(now, &"b"), Ok(()));
        now += Duration::from_millis(500);
        assert_eq!(rates.check(now, &"a"), Ok(()));
    }
}
