//! Types that the driver, sinks, claim checks and the journal share.

use penstock_pipestream::yield_token::StoppingPoint;
use penstock_pipestream::{EntityHeader, EntityKey, ErrorCode, Reason, ScopeDigest, ScopeKey, Status};

/// Point from which an entity that has waited continues; `None` for its beginning.
pub(crate) type Resumed = Option<StoppingPoint>;

/// A claim check that is stored.
#[derive(Debug, Clone)]
pub(crate) struct IssuedClaim {
    pub(crate) id: u64,
    pub(crate) expiry_micros: u64,
    pub(crate) reason: Reason,
}

/// How an entity of ours ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// Its terminal status.
    pub status: Status,
    /// The reason for a status other than COMPLETE, if one was reported.
    pub reason: Option<Reason>,
    /// Number of attempts; more than one only if the parent's policy has retries.
    pub attempts: u32,
    /// The receiver's claim check for the entity, if the status is DEFERRED.
    pub claim: Option<u64>,
}

impl Resolution {
    /// COMPLETE at the first attempt.
    pub(crate) const COMPLETE: Self = Self { status: Status::Complete, reason: None, attempts: 1, claim: None };
}

/// A scope of ours that the peer released: all entities in it are terminal, and both ends have the same digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Released {
    /// The scope.
    pub scope: ScopeKey,
    /// The scope's parent; `None` for the root scope.
    pub parent: Option<EntityKey>,
    /// The scope's depth.
    pub depth: u8,
    /// The scope's digest.
    pub digest: ScopeDigest,
}

/// Return a reason as the text that the lists of sinks and claim checks contain.
pub fn in_words(reason: &Reason) -> String {
    match (reason.code, reason.message.as_str()) {
        (code, "") => code.name().to_owned(),
        // The entity itself has no error: a part of it failed.
        (ErrorCode::NoError, message) => message.to_owned(),
        (code, message) => format!("{}: {message}", code.name()),
    }
}

/// Return approximately how much memory a header takes.
pub fn header_weight(header: &EntityHeader) -> usize {
    let metadata: usize = header.metadata.iter().map(|(key, value)| key.len() + value.len() + 64).sum();
    header.content_type.len() + metadata + 256
}
