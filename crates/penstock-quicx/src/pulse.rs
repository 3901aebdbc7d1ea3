//! The heartbeats of clients and workers.

use std::time::{Duration, Instant};

/// The number of unanswered heartbeats that ends a connection (decision 10).
pub(crate) const UNANSWERED: u8 = 3;

/// The next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beat {
    /// Do nothing.
    None,
    /// Send a HEARTBEAT.
    Send,
    /// End the connection: the daemon has not answered earlier heartbeats.
    Silent,
}

/// The schedule of the heartbeats.
#[derive(Debug)]
pub(crate) struct Pulse {
    interval: Option<Duration>,
    due: Option<Instant>,
    unanswered: u8,
}

impl Pulse {
    /// No heartbeats at all.
    pub(crate) const NONE: Self = Self { interval: None, due: None, unanswered: 0 };

    pub(crate) fn new(now: Instant, interval: Duration) -> Self {
        Self { interval: Some(interval), due: now.checked_add(interval), unanswered: 0 }
    }

    /// Move the first beat forward, to within this time.
    pub(crate) fn first_within(mut self, now: Instant, limit: Duration) -> Self {
        self.due = self.due.min(now.checked_add(limit));
        self
    }

    /// Return when to call [`beat`](Self::beat) again.
    pub(crate) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Return the action that is due. While requests are outstanding, a heartbeat is sent only if
    /// an earlier one is unanswered.
    pub(crate) fn beat(&mut self, now: Instant, idle: bool) -> Beat {
        let Some(interval) = self.interval.filter(|_| self.due.is_some_and(|due| due <= now)) else {
            return Beat::None;
        };
        self.due = now.checked_add(interval);
        if self.unanswered >= UNANSWERED {
            return Beat::Silent;
        }
        if !idle && self.unanswered == 0 {
            return Beat::None;
        }
        self.unanswered += 1;
        Beat::Send
    }

    /// Record an answer of the daemon.
    pub(crate) const fn answered(&mut self) {
        self.unanswered = 0;
    }
}
