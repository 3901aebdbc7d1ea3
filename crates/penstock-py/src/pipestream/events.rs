//! The events of a session, in the fields of the dataclasses of `penstock.pipestream`; `kind` is
//! the name of the class.

use bytes::Bytes;
use penstock_pipestream::Barrier;
use penstock_pipestream_net::{Event, Layer2Event, ResolutionState};
use pyo3::prelude::*;

use super::fields::{AgreementFields, BarrierFields, CheckpointFields, DigestFields};
use super::keys::{KeyTuple, ReasonFields, ScopeTuple, key_tuple, scope_tuple};

#[derive(IntoPyObject)]
pub(crate) enum EventFields {
    Agreed {
        kind: &'static str,
        agreement: AgreementFields,
    },
    Status {
        kind: &'static str,
        key: KeyTuple,
        status: u8,
        depth: u8,
        cursor: Option<u32>,
        by_peer: bool,
    },
    Gathered {
        kind: &'static str,
        key: Option<KeyTuple>,
        scope: ScopeTuple,
        digest: Option<DigestFields>,
        outcome: u8,
    },
    Resolved {
        kind: &'static str,
        key: KeyTuple,
        parent_id: u32,
        status: u8,
        reason: Option<ReasonFields>,
        owned: bool,
        failures: u32,
    },
    Released {
        kind: &'static str,
        scope: ScopeTuple,
        parent: Option<KeyTuple>,
        depth: u8,
        digest: DigestFields,
    },
    Digest {
        kind: &'static str,
        digest: DigestFields,
        by_peer: bool,
    },
    Barrier {
        kind: &'static str,
        barrier: BarrierFields,
        by_peer: bool,
    },
    Checkpoint {
        kind: &'static str,
        checkpoint: CheckpointFields,
        ours: bool,
    },
    Failure {
        kind: &'static str,
        reason: ReasonFields,
        scope_id: Option<u32>,
        entity_id: Option<u32>,
        by_peer: bool,
    },
    Closed {
        kind: &'static str,
        reason: ReasonFields,
        by_peer: bool,
    },
    Yielded {
        kind: &'static str,
        key: KeyTuple,
        reason: u8,
        token: Bytes,
    },
    Deferred {
        kind: &'static str,
        key: KeyTuple,
        claim_id: u64,
        expiry_timestamp: u64,
    },
    AttemptFailed {
        kind: &'static str,
        key: KeyTuple,
        failures: u32,
        reason: ReasonFields,
        owned: bool,
    },
    Resumed {
        kind: &'static str,
        key: KeyTuple,
    },
    Outcome {
        kind: &'static str,
        parent: KeyTuple,
        state: &'static str,
        owned: bool,
    },
    /// An event that only the driver needs.
    Internal {
        kind: &'static str,
    },
}

impl From<Event> for EventFields {
    fn from(event: Event) -> Self {
        match event {
            Event::Agreed(agreement) => Self::Agreed { kind: "agreed", agreement: agreement.into() },
            Event::Status { key, status, depth, cursor, by_peer } => {
                Self::Status { kind: "status", key: key_tuple(key), status: status.code(), depth, cursor, by_peer }
            }
            Event::Gathered { key, scope, digest, outcome } => Self::Gathered {
                kind: "gathered",
                key: key.map(key_tuple),
                scope: scope_tuple(scope),
                digest: digest.map(Into::into),
                outcome: outcome.code(),
            },
            Event::Resolved { key, parent_id, status, reason, owned, failures, attempts: _ } => Self::Resolved {
                kind: "resolved",
                key: key_tuple(key),
                parent_id,
                status: status.code(),
                reason: reason.map(Into::into),
                owned,
                failures,
            },
            Event::Released { scope, parent, depth, digest } => Self::Released {
                kind: "released",
                scope: scope_tuple(scope),
                parent: parent.map(key_tuple),
                depth,
                digest: digest.into(),
            },
            Event::Digest { digest, by_peer } => Self::Digest { kind: "digest", digest: digest.into(), by_peer },
            Event::Barrier { barrier_id, parent_id, released, by_peer } => {
                let barrier = Barrier { barrier_id, parent_id, released }.into();
                Self::Barrier { kind: "barrier", barrier, by_peer }
            }
            Event::Checkpoint { checkpoint, ours, .. } => {
                Self::Checkpoint { kind: "checkpoint", checkpoint: checkpoint.into(), ours }
            }
            Event::Error { reason, scope, entity, by_peer } => {
                Self::Failure { kind: "error", reason: reason.into(), scope_id: scope, entity_id: entity, by_peer }
            }
            Event::Closed { reason, by_peer } => Self::Closed { kind: "closed", reason: reason.into(), by_peer },
            Event::Layer2(event) => event.into(),
            Event::Admitted { .. } | Event::Capacity => Self::Internal { kind: "internal" },
        }
    }
}

impl From<Layer2Event> for EventFields {
    fn from(event: Layer2Event) -> Self {
        match event {
            Layer2Event::Yielded { key, reason, token } => {
                Self::Yielded { kind: "yielded", key: key_tuple(key), reason: reason.code(), token }
            }
            Layer2Event::Deferred { key, claim_id, expiry_micros } => {
                Self::Deferred { kind: "deferred", key: key_tuple(key), claim_id, expiry_timestamp: expiry_micros }
            }
            Layer2Event::AttemptFailed { key, failures, reason, owned } => {
                let (key, reason) = (key_tuple(key), reason.into());
                Self::AttemptFailed { kind: "attempt_failed", key, failures, reason, owned }
            }
            Layer2Event::Resumed { key, .. } => Self::Resumed { kind: "resumed", key: key_tuple(key) },
            Layer2Event::Outcome { parent, state, owned } => {
                let state = match state {
                    ResolutionState::Active => "ACTIVE",
                    ResolutionState::Resolved => "RESOLVED",
                    ResolutionState::Partial => "PARTIAL",
                    ResolutionState::Failed => "FAILED",
                };
                Self::Outcome { kind: "outcome", parent: key_tuple(parent), state, owned }
            }
            Layer2Event::Named(_)
            | Layer2Event::SendAgain(_)
            | Layer2Event::ResumeAnswered { .. }
            | Layer2Event::ClaimWanted { .. }
            | Layer2Event::ClaimAsked { .. }
            | Layer2Event::ClaimAnswered { .. }
            | Layer2Event::Returns(_)
            | Layer2Event::Reconnected => Self::Internal { kind: "internal" },
        }
    }
}
