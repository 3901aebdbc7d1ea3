//! When a client asks whether its daemon is still there.

use std::time::{Duration, Instant};

/// Heartbeats that may be left without an answer: then the connection is over (decision 10).
pub(crate) const UNANSWERED: u8 = 3;

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beat {
    /// Nothing.
    None,
    /// A HEARTBEAT.
    Send,
    /// The end: the daemon has not answered those before.
    Silent,
}

/// A heartbeat at regular times.
#[derive(Debug)]
pub(crate) struct Pulse {
    interval: Option<Duration>,
    due: Option<Instant>,
    unanswered: u8,
}

impl Pulse {
    /// None: there are no heartbeats.
    pub(crate) const NONE: Self = Self { interval: None, due: None, unanswered: 0 };

    pub(crate) fn new(now: Instant, interval: Duration) -> Self {
        Self { interval: Some(interval), due: now.checked_add(interval), unanswered: 0 }
    }

    /// Brings the first beat forward, to within this time.
    pub(crate) fn first_within(mut self, now: Instant, limit: Duration) -> Self {
        self.due = self.due.min(now.checked_add(limit));
        self
    }

    /// When [`beat`](Self::beat) is to be asked again.
    pub(crate) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// What is due now. While requests are not answered they are what is waited for, and only a heartbeat before them counts.
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

    /// The daemon has answered.
    pub(crate) const fn answered(&mut self) {
        self.unanswered = 0;
    }
}
