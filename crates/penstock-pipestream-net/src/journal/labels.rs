//! The stored forms of the outcomes of labelled entities of ours, and of the digests of scopes.

use bytes::Bytes;
use penstock_pipestream::{EntityKey, ErrorCode, Reason, ScopeDigest, ScopeKey, Status, Ticket};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::port::Ended;
use crate::types::Resolution;

/// [`Ended`] as it is stored.
#[derive(Serialize, Deserialize)]
struct EndedRecord {
    label: Vec<u8>,
    key: (u16, u32, u32, u32),
    parent: u32,
    depth: u8,
    child: Option<(u16, u32)>,
    status: u8,
    reason: Option<(u64, String)>,
    attempts: u32,
    claim: Option<u64>,
    digest: Option<DigestRecord>,
}

#[derive(Serialize, Deserialize)]
struct DigestRecord {
    scope: u16,
    counts: [u64; 4],
    root: [u8; 32],
}

/// A released scope of ours, with its parent.
#[derive(Serialize, Deserialize)]
struct ReleasedRecord {
    parent: (u16, u32, u32, u32),
    digest: DigestRecord,
}

const fn key_fields(key: EntityKey) -> (u16, u32, u32, u32) {
    (key.scope, key.scope_use, key.entity, key.entity_use)
}

const fn key_of((scope, scope_use, entity, entity_use): (u16, u32, u32, u32)) -> EntityKey {
    EntityKey { scope, scope_use, entity, entity_use }
}

impl From<&ScopeDigest> for DigestRecord {
    fn from(digest: &ScopeDigest) -> Self {
        let counts = [digest.processed, digest.succeeded, digest.failed, digest.deferred];
        Self { scope: digest.scope_id, counts, root: digest.merkle_root }
    }
}

impl From<DigestRecord> for ScopeDigest {
    fn from(record: DigestRecord) -> Self {
        let [processed, succeeded, failed, deferred] = record.counts;
        Self { scope_id: record.scope, processed, succeeded, failed, deferred, merkle_root: record.root }
    }
}

fn encode(record: &impl Serialize) -> Vec<u8> {
    // This cannot fail: every key is a string, and writes to a `Vec` succeed.
    serde_json::to_vec(record).unwrap_or_default()
}

/// Encode the record of a label.
pub(super) fn encode_ended(label: &Bytes, ended: &Ended) -> Vec<u8> {
    let Ended { ticket, resolution, digest } = ended;
    encode(&EndedRecord {
        label: label.to_vec(),
        key: key_fields(ticket.key),
        parent: ticket.parent_id,
        depth: ticket.depth,
        child: ticket.child_scope.map(|scope| (scope.scope, scope.scope_use)),
        status: resolution.status.code(),
        reason: resolution.reason.as_ref().map(|reason| (reason.code.code(), reason.message.clone())),
        attempts: resolution.attempts,
        claim: resolution.claim,
        digest: digest.as_ref().map(Into::into),
    })
}

pub(super) fn decode_ended(bytes: &[u8]) -> Option<(Bytes, Ended)> {
    let record: EndedRecord = serde_json::from_slice(bytes).ok()?;
    let ticket = Ticket {
        key: key_of(record.key),
        parent_id: record.parent,
        depth: record.depth,
        child_scope: record.child.map(|(scope, scope_use)| ScopeKey { scope, scope_use }),
    };
    let reason = record.reason.map(|(code, message)| Reason { code: ErrorCode::from_code(code), message });
    let status = Status::try_from(record.status).ok()?;
    let resolution = Resolution { status, reason, attempts: record.attempts, claim: record.claim };
    Some((record.label.into(), Ended { ticket, resolution, digest: record.digest.map(Into::into) }))
}

/// Encode the record of a scope.
pub(super) fn encode_released(parent: EntityKey, digest: &ScopeDigest) -> Vec<u8> {
    encode(&ReleasedRecord { parent: key_fields(parent), digest: digest.into() })
}

pub(super) fn decode_released(bytes: &[u8]) -> Option<(EntityKey, ScopeDigest)> {
    let record: ReleasedRecord = serde_json::from_slice(bytes).ok()?;
    Some((key_of(record.parent), record.digest.into()))
}

/// The first half of a label's SHA-256.
pub(super) type Key = [u8; 16];

pub(super) fn key_of_label(label: &Bytes) -> Key {
    let digest: [u8; 32] = Sha256::digest(label).into();
    digest.first_chunk().copied().unwrap_or_default()
}
