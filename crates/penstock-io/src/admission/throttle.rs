//! How often connections that are not served are logged.

use std::time::{Duration, Instant};

/// The time between two log lines about a problem that persists.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Why connections are not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Problem {
    Accept,
    Full,
    Address,
    Descriptors,
    /// The process cannot serve an admitted connection.
    Unserved,
}

/// The times at which each problem was last logged. A persisting problem is logged once per
/// interval, because a log that a flood can fill would be another target of attacks.
#[derive(Debug, Default)]
pub(super) struct LogThrottle([Option<Instant>; 5]);

impl LogThrottle {
    /// Return whether to log the problem now.
    pub(super) fn allows(&mut self, problem: Problem) -> bool {
        let Some(logged) = self.0.get_mut(problem as usize) else { return false };
        let allows = logged.is_none_or(|logged| logged.elapsed() >= LOG_INTERVAL);
        if allows {
            *logged = Some(Instant::now());
        }
        allows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lasting_problem_is_logged_once_and_another_one_separately() {
        let mut throttle = LogThrottle::default();
        for problem in [Problem::Accept, Problem::Full, Problem::Address, Problem::Descriptors, Problem::Unserved] {
            let told = (0..1_000).filter(|_| throttle.allows(problem)).count();
            assert_eq!(told, 1, "{problem:?}");
        }
    }
}
