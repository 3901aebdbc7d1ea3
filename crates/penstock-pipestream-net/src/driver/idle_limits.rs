use std::time::{Duration, Instant};

/// The limit on the time without input from the peer and the user.
#[derive(Debug)]
pub(super) struct IdleLimits {
    /// The session ends after this time without input, if nothing is open.
    limit: Option<Duration>,
    /// The time of the last input, or when the limit was last exceeded.
    since: Instant,
}

impl IdleLimits {
    pub(super) fn new(limit: Option<Duration>) -> Self {
        Self { limit, since: Instant::now() }
    }

    /// Record input at `now`.
    pub(super) fn broken(&mut self, now: Instant) {
        self.since = now;
    }

    /// Return when the limit is exceeded.
    pub(super) fn ends(&self) -> Option<Instant> {
        self.limit.and_then(|limit| self.since.checked_add(limit))
    }

    /// Return whether the limit is exceeded at `now`; if so, it starts over.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        let over = self.ends().is_some_and(|end| end <= now);
        if over {
            self.since = now;
        }
        over
    }
}
