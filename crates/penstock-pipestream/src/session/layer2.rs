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
    pub(super) heard: bool,
    /// How many yields there were.
    pub(super) yields: u64,
    /// The entity whose PENDING was the last frame. Its time begins with the next frame, or with its header, which show
    /// whether it has children: DEHYDRATING is sent together with PENDING (decision 9).
    pub(super) fresh: Option<EntityKey>,
    /// When the policies' times of received entities end.
    #[serde(with = "crate::stored::deadlines")]
    pub(super) deadlines: BTreeSet<(Instant, EntityKey)>,
    /// When our entities are to be retried.
    #[serde(with = "crate::stored::deadlines")]
    pub(super) resends: BTreeSet<(Instant, EntityKey)>,
    /// Our queries, in order.
    pub(super) asked: VecDeque<ClaimAsk>,
    /// The peer's queries, in order, with our answers. These are sent in that order, because a refusal names no claim
    /// check.
    pub(super) asking: VecDeque<Question>,
    pub(super) next_request: u64,
}

/// A question of the peer's.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Question {
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
        self.asking.iter().filter(|open| open.answer.is_none()).map(|open| (open.request, open.ask)).collect()
    }

    /// Return whether a question of either end has no answer yet.
    pub(super) fn has_open_questions(&self) -> bool {
        !self.asked.is_empty() || !self.asking.is_empty()
    }

    /// Return whether the peer has asked anything in this session.
    pub(super) fn has_been_asked(&self) -> bool {
        self.next_request > 0
    }

    pub(super) fn end(&mut self) {
        self.deadlines.clear();
        self.resends.clear();
        self.asked.clear();
        self.asking.clear();
    }
}
