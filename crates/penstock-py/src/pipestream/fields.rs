//! The fields of frames and messages in both directions: read from the attributes of the
//! dataclasses in `python/penstock/pipestream`, and written into the dictionaries from which the
//! dataclasses are made.
//!
//! The names are those of the dataclasses, which have already checked the ranges.

use std::collections::BTreeMap;

use bytes::Bytes;
use penstock_pipestream::claims::Claim;
use penstock_pipestream::messages::{ClaimCheck, CompletionPolicy, StoppingPointValidation};
use penstock_pipestream::{
    Agreement, Barrier, Capabilities, Checkpoint, ChunkInfo, EntityHeader, Error, Extension, ScopeDigest, SessionId,
    Status, StatusFrame, YieldReason,
};
use penstock_pipestream_net as net;
use pyo3::prelude::*;

#[derive(FromPyObject, IntoPyObject)]
pub(crate) struct StatusFields {
    status: u8,
    entity_id: u32,
    scope_id: u16,
    depth: u8,
    cursor: Option<u32>,
    extension: Option<ExtensionFields>,
}

#[derive(FromPyObject, IntoPyObject)]
pub(crate) enum ExtensionFields {
    Yield { reason: u8, token: Bytes },
    Claim { id: u64, expiry_timestamp: u64 },
}

#[derive(FromPyObject, IntoPyObject)]
pub(crate) struct DigestFields {
    scope_id: u16,
    processed: u64,
    succeeded: u64,
    failed: u64,
    deferred: u64,
    merkle_root: [u8; 32],
}

#[derive(FromPyObject, IntoPyObject)]
pub(crate) struct BarrierFields {
    barrier_id: u16,
    parent_id: u32,
    released: bool,
}

#[derive(FromPyObject, IntoPyObject)]
pub(crate) struct CapabilitiesFields {
    layer0: bool,
    layer1: bool,
    layer2: bool,
    max_scope_depth: Option<u32>,
    max_entities_per_scope: Option<u32>,
    max_window_size: Option<u32>,
}

#[derive(IntoPyObject)]
pub(crate) struct AgreementFields {
    layer: u8,
    max_scope_depth: u8,
    max_entities_per_scope: u32,
    max_window_size: u32,
}

#[derive(FromPyObject, IntoPyObject)]
pub(crate) struct CheckpointFields {
    checkpoint_id: String,
    sequence_number: u64,
    checkpoint_entity_id: u32,
    scope_id: u32,
    flags: u32,
    timeout_ms: u32,
}

#[derive(FromPyObject, IntoPyObject)]
pub(crate) struct HeaderFields {
    entity_id: u32,
    parent_id: u32,
    scope_id: u32,
    layer: u32,
    content_type: String,
    payload_length: u64,
    checksum: Bytes,
    metadata: BTreeMap<String, String>,
    chunk_info: Option<ChunkFields>,
    completion_policy: Option<PolicyFields>,
}

#[derive(FromPyObject, IntoPyObject)]
pub(crate) struct ChunkFields {
    total_chunks: u32,
    chunk_index: u32,
    chunk_offset: u64,
}

#[derive(Debug, Clone, FromPyObject, IntoPyObject)]
pub(crate) struct PolicyFields {
    mode: Option<i32>,
    max_retries: Option<u32>,
    retry_delay_ms: Option<u32>,
    timeout_ms: Option<u32>,
    min_success_ratio: Option<f32>,
    on_timeout: Option<i32>,
    on_failure: Option<i32>,
}

#[derive(FromPyObject, IntoPyObject)]
pub(crate) struct ClaimFields {
    id: Option<u64>,
    /// The session in which the entity was deferred, which is not in the message.
    session: Option<String>,
    scope: Option<u32>,
    entity: Option<u32>,
    expiry_timestamp: Option<u64>,
    /// The status of the work, which is not in the message.
    status: u8,
    validation: Option<ValidationFields>,
    file: Option<String>,
}

#[derive(FromPyObject, IntoPyObject)]
pub(crate) struct ValidationFields {
    state_checksum: Option<Bytes>,
    bytes_processed: Option<u64>,
    children_complete: Option<u32>,
    children_total: Option<u32>,
    is_resumable: Option<bool>,
    checkpoint_ref: Option<String>,
}

impl TryFrom<StatusFields> for StatusFrame {
    type Error = Error;

    fn try_from(fields: StatusFields) -> Result<Self, Error> {
        let StatusFields { status, entity_id, scope_id, depth, cursor, extension } = fields;
        let extension = extension.map(Extension::try_from).transpose()?;
        let frame = Self { status: Status::try_from(status)?, entity_id, scope_id, depth, cursor, extension };
        frame.check()?;
        Ok(frame)
    }
}

impl From<StatusFrame> for StatusFields {
    fn from(frame: StatusFrame) -> Self {
        let StatusFrame { status, entity_id, scope_id, depth, cursor, extension } = frame;
        Self { status: status.code(), entity_id, scope_id, depth, cursor, extension: extension.map(Into::into) }
    }
}

impl TryFrom<ExtensionFields> for Extension {
    type Error = Error;

    fn try_from(fields: ExtensionFields) -> Result<Self, Error> {
        Ok(match fields {
            ExtensionFields::Yield { reason, token } => Self::Yield { reason: YieldReason::try_from(reason)?, token },
            ExtensionFields::Claim { id, expiry_timestamp } => {
                Self::Claim { claim_id: id, expiry_micros: expiry_timestamp }
            }
        })
    }
}

impl From<Extension> for ExtensionFields {
    fn from(extension: Extension) -> Self {
        match extension {
            Extension::Yield { reason, token } => Self::Yield { reason: reason.code(), token },
            Extension::Claim { claim_id, expiry_micros } => {
                Self::Claim { id: claim_id, expiry_timestamp: expiry_micros }
            }
        }
    }
}

/// Implement the conversions between structs with the same fields.
macro_rules! same_fields {
    ($($core:ident = $fields:ident { $($name:ident),* };)*) => {$(
        impl From<$core> for $fields {
            fn from(core: $core) -> Self {
                Self { $($name: core.$name),* }
            }
        }

        impl From<$fields> for $core {
            fn from(fields: $fields) -> Self {
                Self { $($name: fields.$name),* }
            }
        }
    )*};
}

same_fields! {
    ScopeDigest = DigestFields { scope_id, processed, succeeded, failed, deferred, merkle_root };
    Barrier = BarrierFields { barrier_id, parent_id, released };
    Capabilities = CapabilitiesFields {
        layer0, layer1, layer2, max_scope_depth, max_entities_per_scope, max_window_size
    };
    Checkpoint = CheckpointFields {
        checkpoint_id, sequence_number, checkpoint_entity_id, scope_id, flags, timeout_ms
    };
    ChunkInfo = ChunkFields { total_chunks, chunk_index, chunk_offset };
    CompletionPolicy = PolicyFields {
        mode, max_retries, retry_delay_ms, timeout_ms, min_success_ratio, on_timeout, on_failure
    };
    StoppingPointValidation = ValidationFields {
        state_checksum, bytes_processed, children_complete, children_total, is_resumable, checkpoint_ref
    };
}

impl From<Agreement> for AgreementFields {
    fn from(agreement: Agreement) -> Self {
        let Agreement { layer, max_scope_depth, max_entities_per_scope, max_window_size } = agreement;
        Self { layer, max_scope_depth, max_entities_per_scope, max_window_size }
    }
}

impl From<HeaderFields> for EntityHeader {
    fn from(fields: HeaderFields) -> Self {
        Self {
            entity_id: fields.entity_id,
            parent_id: fields.parent_id,
            scope_id: fields.scope_id,
            layer: fields.layer,
            content_type: fields.content_type,
            payload_length: fields.payload_length,
            checksum: fields.checksum,
            metadata: fields.metadata,
            chunk_info: fields.chunk_info.map(Into::into),
            completion_policy: fields.completion_policy.map(Into::into),
        }
    }
}

impl From<EntityHeader> for HeaderFields {
    fn from(header: EntityHeader) -> Self {
        Self {
            entity_id: header.entity_id,
            parent_id: header.parent_id,
            scope_id: header.scope_id,
            layer: header.layer,
            content_type: header.content_type,
            payload_length: header.payload_length,
            checksum: header.checksum,
            metadata: header.metadata,
            chunk_info: header.chunk_info.map(Into::into),
            completion_policy: header.completion_policy.map(Into::into),
        }
    }
}

impl From<ClaimFields> for ClaimCheck {
    fn from(fields: ClaimFields) -> Self {
        let ClaimFields { id, scope, entity, expiry_timestamp, validation, session: _, status: _, file: _ } = fields;
        let validation = validation.map(Into::into);
        Self { claim_id: id, entity_id: entity, scope_id: scope, expiry_timestamp, validation }
    }
}

impl From<ClaimCheck> for ClaimFields {
    fn from(message: ClaimCheck) -> Self {
        Self::known(message, None, Status::Deferred)
    }
}

impl From<net::ClaimCheck> for ClaimFields {
    fn from(check: net::ClaimCheck) -> Self {
        Self {
            id: Some(check.id),
            session: check.session.map(|session| session.to_string()),
            scope: Some(check.scope.into()),
            entity: Some(check.entity),
            expiry_timestamp: Some(check.expiry_micros),
            status: check.status.code(),
            validation: check.validation.map(Into::into),
            file: check.file,
        }
    }
}

/// A server's claim check, and the work that it represents.
#[derive(IntoPyObject)]
pub(crate) struct ClaimRowFields {
    claim_id: u64,
    session: Option<String>,
    scope_id: u16,
    entity_id: u32,
    status: u8,
    expiry_timestamp: u64,
    reason: String,
    document: Option<String>,
    path: Option<String>,
    content_type: Option<String>,
    bytes: Option<u64>,
    sha256: Option<String>,
    file: Option<String>,
}

impl From<net::ClaimRow> for ClaimRowFields {
    fn from(row: net::ClaimRow) -> Self {
        let net::ClaimRow { check, details } = row;
        let net::ClaimDetails { reason, document, path, content_type, bytes, sha256, file } = details;
        Self {
            claim_id: check.id,
            session: check.session.map(|session| session.to_string()),
            scope_id: check.scope,
            entity_id: check.entity,
            status: check.status.code(),
            expiry_timestamp: check.expiry_micros,
            reason,
            document,
            path,
            content_type,
            bytes,
            sha256,
            file,
        }
    }
}

impl From<&Claim> for ClaimFields {
    fn from(claim: &Claim) -> Self {
        Self::known(claim.check(), Some(claim.session), claim.status())
    }
}

impl ClaimFields {
    /// Make a claim check from its message, with the session and the status that the message lacks.
    pub(crate) fn known(message: ClaimCheck, session: Option<SessionId>, status: Status) -> Self {
        let ClaimCheck { claim_id, entity_id, scope_id, expiry_timestamp, validation } = message;
        Self {
            id: claim_id,
            session: session.map(|session| session.to_string()),
            scope: scope_id,
            entity: entity_id,
            expiry_timestamp,
            status: status.code(),
            validation: validation.map(Into::into),
            file: None,
        }
    }
}
