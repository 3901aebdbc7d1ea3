//! Layer 2: attempts, entities that wait, and claim checks. Below layer 2, and while none of its
//! functions is used, these maps stay empty and cost no lookups.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use penstock_pipestream::{ClaimResponse, EntityHeader, EntityKey, Reason};
use penstock_wire::FastMap;
use tokio::sync::oneshot;

use crate::command::Reply;
use crate::draft::EntityDraft;
use crate::payload::Payload;
use crate::types::{IssuedClaim, Resumed, header_weight};

/// Maximum number of bytes of payloads that are kept to be sent again: a payload in memory counts
/// with its length, one in a file with the memory that it takes while it is sent. Beyond the limit,
/// announcements wait until a kept entity is terminal.
pub(super) const MAX_KEPT_BYTES: usize = 64 << 20;
const MIN_KEPT_BYTES: usize = 16 << 10;
/// Maximum number of bytes of headers that are kept for claim checks; beyond it a claim check has no description of its
/// entity.
const MAX_HEADER_BYTES: usize = 64 << 20;

/// The driver's state for layer 2.
#[derive(Debug, Default)]
pub(super) struct Layer2 {
    /// Parents of ours whose children may be sent again.
    pub(super) retryable_parents: HashSet<EntityKey>,
    /// Children of those parents without a terminal status.
    pub(super) kept: FastMap<EntityKey, KeptEntity>,
    pub(super) kept_bytes: usize,
    pub(super) kept_room: KeptRoom,
    /// Received entities that have yielded.
    pub(super) yielded: FastMap<EntityKey, oneshot::Sender<Resumed>>,
    /// Callers that have returned a token and wait for the response.
    pub(super) resume_replies: FastMap<EntityKey, VecDeque<Reply<Option<Reason>>>>,
    /// Our requests about claim checks, in order.
    pub(super) claim_requests: VecDeque<Reply<ClaimResponse>>,
    pub(super) header_use: HeaderUse,
    /// The headers that are kept for claim checks.
    pub(super) headers: FastMap<EntityKey, Arc<EntityHeader>>,
    pub(super) header_bytes: usize,
    /// The claim checks of received entities whose DEFERRED is being sent.
    pub(super) deferring: FastMap<EntityKey, IssuedClaim>,
    /// The claim checks of entities of ours whose DEFERRED has arrived.
    pub(super) deferred: FastMap<EntityKey, u64>,
    /// Claim checks that this session has redeemed, and whose entities have not arrived.
    pub(super) redeemed: HashSet<u64>,
    /// Redeemed claim checks whose entities have arrived.
    pub(super) settling: FastMap<EntityKey, u64>,
}

/// Whether an announcement waits for kept payloads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum KeptRoom {
    /// No announcement waits.
    #[default]
    Unclaimed,
    /// An announcement waits until kept payloads are below their limit.
    Awaited,
}

/// Whether the headers of received entities are needed later.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum HeaderUse {
    /// No policy of the peer defers entities, so that no header is kept.
    #[default]
    Admission,
    /// A policy of the peer may defer entities: claim checks describe them by the headers that arrive from now on.
    ClaimChecks,
}

/// An entity of ours that may be sent again.
#[derive(Debug)]
pub(super) struct KeptEntity {
    pub(super) draft: EntityDraft,
    pub(super) payload: Payload,
}

impl KeptEntity {
    /// Return its weight toward the limit. An entity with children has none: it ends only after its
    /// children, which could then wait for it forever.
    pub(super) fn weight(&self) -> usize {
        if self.draft.dehydrate { 0 } else { self.payload.footprint().max(MIN_KEPT_BYTES) }
    }
}

impl Layer2 {
    /// Restore the state of an earlier process's session: it has redeemed these claim checks, and may have parents with
    /// any policy.
    pub(super) fn resumed(&mut self, redeemed: HashSet<u64>) {
        (self.header_use, self.redeemed) = (HeaderUse::ClaimChecks, redeemed);
    }

    /// Return whether an entity of ours is kept to be sent again.
    pub(super) fn keeps(&self, key: EntityKey) -> bool {
        !self.kept.is_empty() && self.kept.contains_key(&key)
    }

    /// Keep a header for the claim check that its entity may get, unless there are too many.
    pub(super) fn keep_header(&mut self, key: EntityKey, header: &Arc<EntityHeader>) {
        let bytes = self.header_bytes.saturating_add(header_weight(header));
        if bytes > MAX_HEADER_BYTES {
            return;
        }
        self.header_bytes = bytes;
        if let Some(old) = self.headers.insert(key, Arc::clone(header)) {
            self.header_bytes = self.header_bytes.saturating_sub(header_weight(&old));
        }
    }

    pub(super) fn drop_header(&mut self, key: EntityKey) -> Option<Arc<EntityHeader>> {
        let header = self.headers.remove(&key)?;
        self.header_bytes = self.header_bytes.saturating_sub(header_weight(&header));
        Some(header)
    }

    pub(super) fn drop_kept(&mut self, key: EntityKey) {
        if let Some(kept) = self.kept.remove(&key) {
            self.kept_bytes = self.kept_bytes.saturating_sub(kept.weight());
        }
    }
}
