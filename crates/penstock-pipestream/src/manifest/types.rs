//! The input and output types of the manifest.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::state::ResolutionState;
use crate::policy::Policy;
use crate::status::Status;

/// The key of an entry: the parent that was taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EntryKey {
    /// The scope of the parent.
    pub scope: u16,
    /// The parent's entity ID.
    pub entity: u32,
}

/// The limits of a manifest (section 9.5, the restored reference notes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ManifestLimits {
    /// The most open entries.
    pub max_entries: usize,
    /// How long an entry may stay open.
    pub max_age: Duration,
    /// How long a completion waits for its parent's entry.
    pub orphan_age: Duration,
    /// The most completions that wait for their parent's entry.
    pub max_orphans: usize,
}

impl ManifestLimits {
    /// Return the limits for parents that we send: an operator limits what peers make us keep, not our own entities.
    pub(crate) fn for_sent(self) -> Self {
        Self { max_entries: self.max_entries.max(Self::default().max_entries), ..self }
    }
}

impl Default for ManifestLimits {
    fn default() -> Self {
        Self {
            max_entries: 1_000_000,
            max_age: Duration::from_secs(3600),
            orphan_age: Duration::from_secs(30),
            max_orphans: 1_000_000,
        }
    }
}

/// An entry as section 9.2 describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct AssemblyManifestEntry {
    /// The parent's entity ID.
    pub parent_id: u32,
    /// The parent's scope.
    pub scope_id: u32,
    /// The children in the order of their IDs, each with its latest status if one is known.
    pub children: Vec<(u32, Option<Status>)>,
    /// When the entry was opened, in microseconds since the Unix epoch.
    pub created_at: u64,
    /// The entry's state.
    pub state: ResolutionState,
    /// The policy for the children, if the parent's header states one (layer 2).
    pub policy: Option<Policy>,
}

/// A parent all of whose children are terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resolution {
    /// The parent.
    pub key: EntryKey,
    /// The outcome: `Resolved`, `Failed` or, where a policy allows it, `Partial`.
    pub state: ResolutionState,
    /// How many children there are.
    pub children: u64,
    /// How many children are COMPLETE.
    pub succeeded: u64,
    /// How many children are FAILED or ABANDONED.
    pub failed: u64,
    /// How many children are DEFERRED.
    pub deferred: u64,
}

/// The effect of [`Manifest::complete_child`](super::Manifest::complete_child).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// The child is terminal now.
    Applied,
    /// The child was already terminal; the first status is kept.
    Repeated,
    /// There is no entry for the parent yet, so the completion is kept as an orphan.
    Orphaned,
}

/// The counters of a manifest since it was made, including refusals and drops.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestCounters {
    /// Entries opened.
    pub opened: u64,
    /// Entries returned by [`Manifest::pop_resolved`](super::Manifest::pop_resolved).
    pub resolved: u64,
    /// Entries removed by [`Manifest::remove`](super::Manifest::remove).
    pub removed: u64,
    /// Entries that stayed open longer than `max_age`.
    pub expired: u64,
    /// Entries refused at `max_entries`.
    pub entries_refused: u64,
    /// Completions of children that were already terminal, or already orphans.
    pub repeated: u64,
    /// Completions of entities that are not children of a sealed entry; refused.
    pub unknown_children_refused: u64,
    /// Completions kept for a parent without an entry.
    pub orphans_kept: u64,
    /// Orphans that an entry has adopted.
    pub orphans_adopted: u64,
    /// Orphans dropped after `orphan_age`.
    pub orphans_dropped: u64,
    /// Orphans refused at `max_orphans`.
    pub orphans_refused: u64,
}
