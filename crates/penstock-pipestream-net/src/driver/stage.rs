//! How far a session has come, and how its driver comes to an end.

use std::time::{Duration, Instant};

use penstock_pipestream::Reason;

/// The progress of a session with its peer.
///
/// ```text
///               CAPABILITIES, and SESSION at layer 2              the sink has taken it
///  Negotiating ──────────────────────────────────────► Identified ─────────────────────► Open
///       │                                                  │
///       └─ another session has its ID ─────► Mute ◄────────┴─ the sink cannot take it
/// ```
///
/// A session that ends while it is Negotiating is opened in the sink, too; it is Mute if the sink
/// refuses it.
#[derive(Debug)]
pub(super) enum Stage {
    /// The peer's capabilities, and its SESSION at layer 2, are due `within` this time, so by
    /// `until`; that is `None` if there is no deadline, or it has passed and the session ends.
    Negotiating { within: Duration, until: Option<Instant> },
    /// The session has its ID; its place in the sink is opened next.
    Identified,
    /// Entities may be admitted.
    Open,
    /// The session could not begin. The peer gets the reason in CONNECTION_CLOSE, and no frames.
    Mute,
}

impl Stage {
    /// Record that the session has its ID. A session in a later stage stays there.
    pub(super) fn identify(&mut self) {
        match self {
            Self::Negotiating { .. } => *self = Self::Identified,
            Self::Identified | Self::Open | Self::Mute => {}
        }
    }

    /// Return the deadline of the peer's capabilities and SESSION, if they are awaited.
    pub(super) fn due(&self) -> Option<Instant> {
        match self {
            Self::Negotiating { until, .. } => *until,
            Self::Identified | Self::Open | Self::Mute => None,
        }
    }

    /// Return the time that the peer had, if the deadline has passed by `now`. Return it only once.
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

/// The state of a driver's run.
///
/// ```text
///            the server goes down
///  Running ───────────────────────► Retiring ── nothing is open: the session closes ──► Running
///     └────────────────┬───────────────┘
///                      ├─ the session has ended ───────► Ended: the peer, the sink and all waiters are notified
///                      │                                   ▲ the session has ended in the same round
///                      └─ another process continues it ──► Leaving
/// ```
#[derive(Debug)]
pub(super) enum Life {
    Running,
    /// The session closes as soon as nothing is open.
    Retiring,
    /// The next process continues the session.
    Leaving,
    /// The session is over, for this reason.
    Ended(Reason),
}

/// The state of our root scope, for a client that closes a session that survives its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Root {
    Open,
    /// A close waits until the peer has released the scope; nothing more is announced.
    Closing,
    Released,
}
