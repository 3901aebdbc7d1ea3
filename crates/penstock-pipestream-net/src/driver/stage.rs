//! How far a session has come, and how its driver comes to an end.

use std::time::{Duration, Instant};

use penstock_pipestream::Reason;

/// How far a session has come with its peer.
///
/// ```text
///               CAPABILITIES, and SESSION at layer 2              the sink has taken it
///  Negotiating ──────────────────────────────────────► Identified ─────────────────────► Open
///       │                                                  │
///       └─ another session has its ID ─────► Mute ◄────────┴─ the sink cannot take it
/// ```
///
/// A session that ends while it is Negotiating has its line in the sink too; where the sink refuses, it is Mute.
#[derive(Debug)]
pub(super) enum Stage {
    /// The peer's capabilities, and its SESSION at layer 2, are due `within` this time, so by `until`. `None`: never, or
    /// they were late and the session ends.
    Negotiating { within: Duration, until: Option<Instant> },
    /// The session has its ID; its place in the sink is opened next.
    Identified,
    /// Entities may be admitted.
    Open,
    /// The session could not begin. The peer hears why, and nothing else.
    Mute,
}

impl Stage {
    /// Note that the session has its ID. A session that has come further stays where it is.
    pub(super) fn identify(&mut self) {
        match self {
            Self::Negotiating { .. } => *self = Self::Identified,
            Self::Identified | Self::Open | Self::Mute => {}
        }
    }

    /// Return by when the peer must have said what it offers, where that is awaited.
    pub(super) fn due(&self) -> Option<Instant> {
        match self {
            Self::Negotiating { until, .. } => *until,
            Self::Identified | Self::Open | Self::Mute => None,
        }
    }

    /// Return how much time the peer had, if that is over by `now`. Return it once.
    pub(super) fn take_overdue(&mut self, now: Instant) -> Option<Duration> {
        match self {
            Self::Negotiating { within, until } => until.take_if(|until| *until <= now).map(|_| *within),
            Self::Identified | Self::Open | Self::Mute => None,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    pub(super) fn is_mute(&self) -> bool {
        matches!(self, Self::Mute)
    }
}

/// How long a driver runs.
///
/// ```text
///            the server goes down
///  Running ───────────────────────► Retiring ── nothing is open: the session closes ──► Running
///     └────────────────┬───────────────┘
///                      ├─ the session has ended ───────► Ended: the peer, the sink and all waiters hear of it
///                      │                                   ▲ the session has ended in the same round
///                      └─ another process continues it ──► Leaving
/// ```
#[derive(Debug)]
pub(super) enum Life {
    Running,
    /// The session closes as soon as nothing is open.
    Retiring,
    /// The next process takes the session up.
    Leaving,
    /// The session is over, and why.
    Ended(Reason),
}

/// Our root scope, for a client that closes a session that survives its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Root {
    Open,
    /// A close waits until the peer has released it; nothing more is announced.
    Closing,
    Released,
}
