//! The state of an entity that we send.

use std::time::Instant;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::types::{EntityKey, Event, Layer2Event, Reason, ScopeKey};
use crate::YieldReason;
use crate::error::ErrorCode;
use crate::manifest::ResolutionState;
use crate::messages::CompletionPolicy;
use crate::status::Status;

/// The state of one of our entities that has no terminal status yet.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Outbound {
    pub(super) parent_id: u32,
    /// Its children's scope at layer 1.
    pub(super) child: Option<ScopeKey>,
    pub(super) dehydrated: bool,
    /// Whether its last child was announced.
    pub(super) ended: bool,
    /// The result under its policy, once the receiver has released its children's scope.
    pub(super) released: Option<ResolutionState>,
    /// Whether we have sent FAILED, SKIPPED or ABANDONED.
    pub(super) gave_up: bool,
    /// The reason for its failure: ours, or the peer's 0xC0.
    pub(super) reason: Option<Box<Reason>>,
    /// Its layer-2 state.
    pub(super) layer2: Option<Box<Sent>>,
}

impl Outbound {
    pub(super) fn parent_id(&self) -> u32 {
        self.parent_id
    }

    pub(super) fn is_dehydrated(&self) -> bool {
        self.dehydrated
    }

    pub(super) fn has_given_up(&self) -> bool {
        self.gave_up
    }

    pub(super) fn is_ended(&self) -> bool {
        self.ended
    }

    pub(super) fn child(&self) -> Option<ScopeKey> {
        self.child
    }

    /// Return whether its stream must be opened again on a new connection: not if it was given up, or waits for a
    /// retry.
    pub(super) fn is_to_be_sent(&self) -> bool {
        !self.gave_up && !self.layer2.as_ref().is_some_and(|layer2| layer2.waits())
    }

    pub(super) fn layer2_mut(&mut self) -> &mut Sent {
        self.layer2.get_or_insert_default()
    }

    /// Return how many attempts at it have failed.
    pub(super) fn failures(&self) -> u32 {
        self.layer2.as_ref().map_or(0, |layer2| layer2.failures)
    }

    pub(super) fn attempt(&self) -> u32 {
        self.failures() + 1
    }

    /// Return how many attempts at it were made.
    pub(super) fn attempts(&self) -> u32 {
        let current = match self.layer2.as_ref().map_or(NextAttempt::Requested, |layer2| layer2.next_attempt) {
            NextAttempt::Requested => 1,
            NextAttempt::Missing => 0,
        };
        self.failures().saturating_add(current)
    }
}

/// The layer-2 state of one of our entities; most have none.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Sent {
    /// The policy for its children, as its header carries it.
    pub(super) policy: Option<CompletionPolicy>,
    /// The number of failures after which it could be retried.
    pub(super) failures: u32,
    /// Whether it has failed, and the caller has not decided about a retry yet.
    pub(super) failed: bool,
    /// The time of its retry, if one is scheduled.
    #[serde(with = "crate::stored::optional_moment")]
    pub(super) due: Option<Instant>,
    /// The status with which we gave it up.
    pub(super) given_up_status: Option<Status>,
    /// The code of the receiver's latest 0xC0 about it.
    pub(super) last_code: Option<ErrorCode>,
    /// The number of returned tokens that the receiver has not answered yet.
    pub(super) resuming: u32,
    /// The latest token that we have not returned, if the session is stored.
    #[serde(with = "crate::stored::optional_token")]
    pub(super) token: Option<(YieldReason, Bytes)>,
    /// The caller's label for it.
    #[serde(with = "crate::stored::optional_bytes")]
    pub(super) label: Option<Bytes>,
    /// Not stored: after a restart it follows from [`waits`](Self::waits). It is separate from
    /// `failed` and `due`, because a peer that reports FAILED twice can produce any combination of
    /// the three.
    #[serde(skip)]
    pub(super) next_attempt: NextAttempt,
}

/// The attempt that follows the last failure of one of our entities.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum NextAttempt {
    /// Its stream was requested, or the entity has not failed.
    #[default]
    Requested,
    /// No attempt has followed the failure.
    Missing,
}

impl Sent {
    /// Return the events for it that the caller must still answer.
    pub(super) fn owed(&self, key: EntityKey) -> Vec<Event> {
        let mut owed = Vec::new();
        if self.failed {
            let message = "it failed before the restart".to_owned();
            let reason = Reason { code: ErrorCode::NoError, message };
            owed.push(Layer2Event::AttemptFailed { key, failures: self.failures, reason, owned: true });
        }
        if let Some((reason, token)) = self.token.clone() {
            owed.push(Layer2Event::Yielded { key, reason, token });
        }
        owed.into_iter().map(Event::Layer2).collect()
    }

    /// Return whether a retry is scheduled, or the caller must decide whether to retry.
    pub(super) fn waits(&self) -> bool {
        self.failed || self.due.is_some()
    }
}
