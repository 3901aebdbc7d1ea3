//! Types that driver, sinks, claim checks and the journal share.

use penstock_pipestream::yield_token::StoppingPoint;
use penstock_pipestream::{EntityHeader, EntityKey, ErrorCode, Reason, ScopeDigest, ScopeKey, Status};

/// Point from which an entity that has waited continues; `None`: from its beginning.
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
    /// The reason, where it is not COMPLETE and one was reported.
    pub reason: Option<Reason>,
    /// Number of attempts; more than one only where its parent's policy has retries.
    pub attempts: u32,
    /// The claim check under which the receiver has deferred it, where it is DEFERRED.
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
    /// Its parent; `None` for the root scope.
    pub parent: Option<EntityKey>,
    /// Its depth.
    pub depth: u8,
    /// Its digest.
    pub digest: ScopeDigest,
}

/// Return a reason as text, as lists of sinks and claim checks contain it.
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
