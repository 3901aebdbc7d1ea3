use std::time::{Duration, Instant};

/// How long the peer and the user may be silent.
#[derive(Debug)]
pub(super) struct IdleLimits {
    /// After so long a silence the session ends, if nothing is open.
    limit: Option<Duration>,
    /// When it began.
    since: Instant,
}

impl IdleLimits {
    pub(super) fn new(limit: Option<Duration>) -> Self {
        Self { limit, since: Instant::now() }
    }

    /// Note that something was said.
    pub(super) fn broken(&mut self, now: Instant) {
        self.since = now;
    }

    /// Return when the silence has lasted too long.
    pub(super) fn ends(&self) -> Option<Instant> {
        self.limit.and_then(|limit| self.since.checked_add(limit))
    }

    /// Return whether the silence has lasted too long by `now`; the next one begins then.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        let over = self.ends().is_some_and(|end| end <= now);
        if over {
            self.since = now;
        }
        over
    }
}
