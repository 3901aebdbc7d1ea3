//! Layer 2: attempts, entities that wait, and claim checks. Below it, and where nothing of it is used, none of these maps
//! is ever filled, and nothing is looked up in them.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use penstock_pipestream::{ClaimResponse, EntityHeader, EntityKey, Reason};
use penstock_wire::FastMap;
use tokio::sync::oneshot;

use crate::command::Reply;
use crate::draft::EntityDraft;
use crate::payload::Payload;
use crate::types::{Attempt, Issued, Resumed, header_weight};

/// What may be kept to be sent again: a payload in memory counts with its bytes, one in a file for what it takes while it
/// is sent. Beyond it announcements wait until something kept is terminal.
pub(super) const KEPT: usize = 64 << 20;
const LEAST_KEPT: usize = 16 << 10;
/// Bytes of headers that are kept for claim checks; beyond it a claim check does not say what it stands for.
const HEADERS: usize = 64 << 20;

/// What the driver keeps for layer 2.
#[derive(Debug, Default)]
pub(super) struct Layer2 {
    /// How often what has come of a received entity was void: it had failed, or its connection was lost.
    pub(super) voids: FastMap<EntityKey, u32>,
    /// Parents of ours whose children may be sent again.
    pub(super) retrying: HashSet<EntityKey>,
    /// Those children, as long as they are not terminal.
    pub(super) kept: FastMap<EntityKey, Kept>,
    pub(super) kept_bytes: usize,
    /// Whether an announcement waits for what is kept.
    pub(super) kept_full: bool,
    /// Received entities that wait.
    pub(super) waiting: FastMap<EntityKey, oneshot::Sender<Resumed>>,
    /// Tokens that were handed back.
    pub(super) resuming: FastMap<EntityKey, VecDeque<Reply<Option<Reason>>>>,
    /// Questions of ours about claim checks, in order.
    pub(super) asked: VecDeque<Reply<ClaimResponse>>,
    /// Whether a policy of the peer's may set entities aside, and the headers of those that are open since.
    pub(super) defers: bool,
    pub(super) headers: FastMap<EntityKey, Arc<EntityHeader>>,
    pub(super) header_bytes: usize,
    /// The claim checks of received entities whose DEFERRED is on its way.
    pub(super) deferring: FastMap<EntityKey, Issued>,
    /// The claim checks of entities of ours whose DEFERRED has come.
    pub(super) deferred: FastMap<EntityKey, u64>,
    /// Claim checks that this session has redeemed, and whose entities have not come.
    pub(super) redeemed: HashSet<u64>,
    /// Those whose entities have come.
    pub(super) settling: FastMap<EntityKey, u64>,
}

/// An entity of ours that may be sent again.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) draft: EntityDraft,
    pub(super) payload: Payload,
}

impl Kept {
    /// What it counts for. What has children does not: they could wait for ever for the end of what waits for them.
    pub(super) fn weight(&self) -> usize {
        if self.draft.dehydrate { 0 } else { self.payload.footprint().max(LEAST_KEPT) }
    }
}

impl Layer2 {
    /// The number of the attempt at a received entity that counts.
    pub(super) fn present(&self, key: EntityKey) -> u32 {
        if self.voids.is_empty() { 0 } else { self.voids.get(&key).copied().unwrap_or_default() }
    }

    /// Whether what came of an attempt still counts.
    pub(super) fn is_present(&self, attempt: Attempt) -> bool {
        self.present(attempt.key) == attempt.number
    }

    /// The session is of an earlier process: it has redeemed these claim checks, and may have parents with any policy.
    pub(super) fn resumed(&mut self, redeemed: HashSet<u64>) {
        (self.defers, self.redeemed) = (true, redeemed);
    }

    /// What has come of a received entity counts no more.
    pub(super) fn void(&mut self, key: EntityKey) {
        let voids = self.voids.entry(key).or_default();
        *voids = voids.saturating_add(1);
    }

    /// Whether an entity of ours may be sent again as it is.
    pub(super) fn keeps(&self, key: EntityKey) -> bool {
        !self.kept.is_empty() && self.kept.contains_key(&key)
    }

    /// Keeps a header for the claim check that its entity may get, unless there are too many.
    pub(super) fn keep_header(&mut self, key: EntityKey, header: &Arc<EntityHeader>) {
        let bytes = self.header_bytes.saturating_add(header_weight(header));
        if bytes > HEADERS {
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
