use crate::frame::FoundClaim;
use crate::messages::{ClaimCheck, StoppingPointValidation};
use crate::session_id::SessionId;
use crate::status::Status;
use crate::time::Now;

/// The state of a claim check, with the session that redeemed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimState {
    /// No session has redeemed it.
    Open,
    /// A session has redeemed it.
    Redeemed {
        /// The session that redeemed it.
        by: SessionId,
    },
    /// A session has redeemed it, and its entity has ended there.
    Settled {
        /// The session that redeemed it.
        by: SessionId,
        /// The terminal status of the entity.
        status: Status,
    },
}

/// A claim check and its state.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// The claim check's ID: random, never 0.
    pub id: u64,
    /// The session in which the entity was deferred.
    pub session: SessionId,
    /// The entity's scope.
    pub scope: u16,
    /// The entity.
    pub entity: u32,
    /// When the claim check expires, in microseconds since the Unix epoch.
    pub expiry_micros: u64,
    /// Where processing has stopped, if it had begun.
    pub validation: Option<Box<StoppingPointValidation>>,
    /// The claim check's state.
    pub state: ClaimState,
}

impl Claim {
    /// Return the claim check's message.
    pub fn check(&self) -> ClaimCheck {
        ClaimCheck {
            claim_id: Some(self.id),
            entity_id: Some(self.entity),
            scope_id: Some(u32::from(self.scope)),
            expiry_timestamp: Some(self.expiry_micros),
            validation: Some(self.validation.as_deref().cloned().unwrap_or_else(Self::untouched)),
        }
    }

    /// Return the claim check and the status of its entity.
    pub fn found(&self) -> FoundClaim {
        FoundClaim { check: self.check(), status: self.status(), file: None }
    }

    /// Return the stopping point of an entity whose processing had not begun (section 9.6).
    pub fn untouched() -> StoppingPointValidation {
        StoppingPointValidation {
            bytes_processed: Some(0),
            children_complete: Some(0),
            children_total: Some(0),
            is_resumable: Some(false),
            ..StoppingPointValidation::default()
        }
    }

    /// Return the status of the entity.
    pub fn status(&self) -> Status {
        match self.state {
            ClaimState::Open => Status::Deferred,
            ClaimState::Redeemed { .. } => Status::Processing,
            ClaimState::Settled { status, .. } => status,
        }
    }

    /// Return whether the claim check may be redeemed.
    pub fn is_open(&self, now: Now) -> bool {
        self.state == ClaimState::Open && !self.is_expired(now)
    }

    /// Return whether `session` has redeemed the claim check.
    pub fn is_with(&self, session: SessionId) -> bool {
        match self.state {
            ClaimState::Open => false,
            ClaimState::Redeemed { by } | ClaimState::Settled { by, .. } => by == session,
        }
    }

    pub(super) fn is_expired(&self, now: Now) -> bool {
        now.unix_micros >= self.expiry_micros
    }
}
