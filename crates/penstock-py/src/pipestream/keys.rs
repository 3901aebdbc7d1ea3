//! Keys of entities and scopes, and reasons, in their Python form.

use penstock_pipestream_net::{EntityKey, ErrorCode, Reason, ScopeKey, SentEntity};
use pyo3::prelude::*;

/// An EntityKey: scope, use of the scope, entity, use of the entity.
pub(crate) type KeyTuple = (u16, u32, u32, u32);
/// A ScopeKey: scope, use of the scope.
pub(crate) type ScopeTuple = (u16, u32);

pub(crate) fn key_tuple(key: EntityKey) -> KeyTuple {
    (key.scope, key.scope_use, key.entity, key.entity_use)
}

pub(crate) fn entity_key((scope, scope_use, entity, entity_use): KeyTuple) -> EntityKey {
    EntityKey { scope, scope_use, entity, entity_use }
}

pub(crate) fn scope_tuple(key: ScopeKey) -> ScopeTuple {
    (key.scope, key.scope_use)
}

pub(crate) fn scope_key((scope, scope_use): ScopeTuple) -> ScopeKey {
    ScopeKey { scope, scope_use }
}

/// The reason of a failure: the registry's number and name, and a message.
#[derive(IntoPyObject)]
pub(crate) struct ReasonFields {
    code: u64,
    name: &'static str,
    message: String,
}

impl From<Reason> for ReasonFields {
    fn from(reason: Reason) -> Self {
        Self { code: reason.code.code(), name: reason.code.name(), message: reason.message }
    }
}

pub(crate) fn reason(code: u64, message: String) -> Reason {
    Reason { code: ErrorCode::from_code(code), message }
}

/// The keys assigned to an announced entity.
#[derive(IntoPyObject)]
pub(crate) struct TicketFields {
    key: KeyTuple,
    parent_id: u32,
    depth: u8,
    child_scope: Option<ScopeTuple>,
}

impl From<SentEntity> for TicketFields {
    fn from(ticket: SentEntity) -> Self {
        Self {
            key: key_tuple(ticket.key),
            parent_id: ticket.parent_id,
            depth: ticket.depth,
            child_scope: ticket.child_scope.map(scope_tuple),
        }
    }
}
