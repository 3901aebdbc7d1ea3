//! The state of checkpoints.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::types::EntityKey;
use crate::Checkpoint;
use crate::manifest::EntryKey;

/// The longest ID, in bytes, that is kept of a satisfied checkpoint; one is kept for each open
/// scope.
const MAX_REFERENCE: usize = 256;

/// A checkpoint of the peer that is not answered yet.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct OpenCheckpoint {
    pub(super) frame: Checkpoint,
    pub(super) scope_id: u16,
    /// The position after the last entity that it covers.
    pub(super) covers: u64,
    #[serde(with = "crate::stored::moment")]
    pub(super) deadline: Instant,
}

/// The checkpoints of both ends.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Checkpoints {
    pub(super) open: Vec<OpenCheckpoint>,
    pub(super) open_bytes: usize,
    pub(super) next_sequence: u64,
    /// Our checkpoints by sequence number, until the peer answers.
    pub(super) requests: BTreeMap<u64, Checkpoint>,
    /// The ID of the last satisfied checkpoint of either end, by scope, while the scope is open.
    pub(super) passed: BTreeMap<u16, String>,
    /// The ID of the last satisfied checkpoint over all scopes.
    pub(super) last_passed: Option<String>,
}

impl Checkpoints {
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    pub(super) fn pass(&mut self, checkpoint: &Checkpoint, is_open: bool) {
        let id = &checkpoint.checkpoint_id;
        if id.is_empty() || id.len() > MAX_REFERENCE {
            return;
        }
        if let Some(scope) = u16::try_from(checkpoint.scope_id).ok().filter(|_| is_open) {
            self.passed.insert(scope, id.clone());
        }
        self.last_passed = Some(id.clone());
    }

    /// Return the `checkpoint_ref` of an entity (section 9.6): the last satisfied checkpoint in the entity's scope or,
    /// if there is none, in the session.
    pub(super) fn reference(&self, scope: u16) -> Option<String> {
        self.passed.get(&scope).or(self.last_passed.as_ref()).cloned()
    }

    /// Forget the checkpoints of a scope that has ended.
    pub(super) fn forget(&mut self, scope: u16) {
        self.passed.remove(&scope);
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.open.iter().map(|open| open.deadline).min()
    }
}

/// Parents at layer 0, whose children are known only by their headers.
#[derive(Debug, Clone, Default)]
pub(super) struct LevelZero {
    /// Dehydrated roots that no CHECKPOINT has closed yet, in the order of announcement.
    pub(super) parents: VecDeque<EntityKey>,
    /// The position after the last entity that any CHECKPOINT covers.
    pub(super) covered: u64,
    /// The position before which every entity is terminal, or its header has arrived.
    pub(super) known: u64,
    /// Parents that a CHECKPOINT covers and whose children are not all terminal.
    pub(super) closing: HashSet<EntryKey>,
    /// The number of our parents whose children are still being announced.
    pub(super) own_open: usize,
}
