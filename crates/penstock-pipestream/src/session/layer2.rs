//! The layer-2 state of a session.

use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::types::{ClaimAsk, EntityKey, Reason};
use crate::ClaimResponse;
use crate::session_id::SessionId;

/// The layer-2 state of a session, apart from its entities.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Resilience {
    /// The session's name, once it may be used: for a client when it was sent, for a server when it has arrived.
    pub(super) name: Option<SessionId>,
    /// Whether the peer's SESSION has arrived.
    pub(super) session_received: bool,
    /// The number of yields so far.
    pub(super) yields: u64,
    /// The entity whose PENDING was the last frame. Its timer starts with the next frame, or with
    /// its header, which show whether it has children: DEHYDRATING is sent together with PENDING
    /// (decision 9).
    pub(super) last_pending: Option<EntityKey>,
    /// The deadlines of received entities under their policies.
    #[serde(with = "crate::stored::deadlines")]
    pub(super) deadlines: BTreeSet<(Instant, EntityKey)>,
    /// The times at which our failed entities are retried.
    #[serde(with = "crate::stored::deadlines")]
    pub(super) resends: BTreeSet<(Instant, EntityKey)>,
    /// Our unanswered queries, in order.
    pub(super) sent_claim_requests: VecDeque<ClaimAsk>,
    /// The peer's queries, in order, with our answers. Answers are sent in that order, because a
    /// refusal names no claim check.
    pub(super) received_claim_requests: VecDeque<ClaimRequest>,
    pub(super) next_request: u64,
}

/// A claim request of the peer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ClaimRequest {
    pub(super) request: u64,
    pub(super) ask: ClaimAsk,
    #[serde(with = "crate::stored::optional_answer")]
    pub(super) answer: Option<Result<ClaimResponse, Reason>>,
}

impl Resilience {
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        [self.deadlines.first(), self.resends.first()].into_iter().flatten().map(|(at, _)| *at).min()
    }

    /// Return the session's name, which at least one end knows.
    pub(super) fn name(&self) -> Option<SessionId> {
        self.name
    }

    /// Return the peer's unanswered queries, in order.
    pub(super) fn unanswered(&self) -> Vec<(u64, ClaimAsk)> {
        self.received_claim_requests
            .iter()
            .filter(|open| open.answer.is_none())
            .map(|open| (open.request, open.ask))
            .collect()
    }

    /// Return whether a claim request of either end is unanswered.
    pub(super) fn has_open_claim_requests(&self) -> bool {
        !self.sent_claim_requests.is_empty() || !self.received_claim_requests.is_empty()
    }

    /// Return whether the peer has sent a claim request in this session.
    pub(super) fn has_received_claim_requests(&self) -> bool {
        self.next_request > 0
    }

    pub(super) fn end(&mut self) {
        self.deadlines.clear();
        self.resends.clear();
        self.sent_claim_requests.clear();
        self.received_claim_requests.clear();
    }
}
