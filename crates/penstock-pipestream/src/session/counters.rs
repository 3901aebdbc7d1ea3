//! The counters of a session, and the resources that it holds.

use std::convert::Infallible;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::stored::written_as;

/// A limit whose violations are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Unresolved entities of a scope (section 9.1).
    Window,
    /// Entities of a scope over its whole life (section 6.2.5).
    ScopeEntities,
    /// Entities of the session without a terminal status.
    OpenEntities,
    /// Bytes of headers that wait for their PENDING or their scope.
    HeldHeaders,
    /// Unanswered checkpoints of the peer.
    Checkpoints,
    /// The time that a checkpoint of the peer may take.
    CheckpointTime,
    /// The depth of scopes.
    Depth,
    /// The bytes of a header.
    Header,
    /// The bytes of a payload.
    Payload,
    /// Children of one parent (section 10.5).
    Children,
    /// The time that a parent may be open.
    ParentTime,
    /// The bytes of a header's metadata.
    Metadata,
    /// Parents that are open (section 9.5).
    OpenParents,
}

impl Limit {
    /// All limits, in the order of [`Counters::limits`].
    pub const ALL: [Self; 13] = [
        Self::Window,
        Self::ScopeEntities,
        Self::OpenEntities,
        Self::HeldHeaders,
        Self::Checkpoints,
        Self::CheckpointTime,
        Self::Depth,
        Self::Header,
        Self::Payload,
        Self::Children,
        Self::ParentTime,
        Self::Metadata,
        Self::OpenParents,
    ];

    /// Return the limit's name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::ScopeEntities => "scope_entities",
            Self::OpenEntities => "open_entities",
            Self::HeldHeaders => "held_headers",
            Self::Checkpoints => "checkpoints",
            Self::CheckpointTime => "checkpoint_time",
            Self::Depth => "depth",
            Self::Header => "header",
            Self::Metadata => "metadata",
            Self::Payload => "payload",
            Self::Children => "children",
            Self::OpenParents => "open_parents",
            Self::ParentTime => "parent_time",
        }
    }
}

/// The number of limits in a session's records, which are those of the first version. The others
/// count from 0 when a session is restored.
const STORED: usize = 11;

/// How often each limit was exceeded, in the order of [`Limit::ALL`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitCounts([u64; Limit::ALL.len()]);

impl LimitCounts {
    /// Return the counts.
    pub fn values(&self) -> std::slice::Iter<'_, u64> {
        self.0.iter()
    }

    fn stored(&self) -> [u64; STORED] {
        std::array::from_fn(|at| self.0.get(at).copied().unwrap_or_default())
    }

    fn restored(counts: [u64; STORED]) -> Self {
        Self(std::array::from_fn(|at| counts.get(at).copied().unwrap_or_default()))
    }
}

written_as! {
    LimitCounts as [u64; STORED]: Self::stored, |counts| Ok::<_, Infallible>(Self::restored(counts));
}

/// The counters of a session. Every limit and every drop is counted here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Entities that we announced.
    pub announced: u64,
    /// Entities that the peer announced.
    pub received: u64,
    /// Received entities that we completed.
    pub completed: u64,
    /// Received entities that failed, including ABANDONED ones.
    pub failed: u64,
    /// Received entities that were DEFERRED.
    pub deferred: u64,
    /// Received entities that were SKIPPED.
    pub skipped: u64,
    /// Attempts of either end that failed and could be retried.
    pub retries: u64,
    /// Yields of received entities.
    pub yields: u64,
    /// STATUS frames for entities or scopes that were already resolved.
    pub late_statuses: u64,
    /// Entity streams that were stopped because their entity was already resolved.
    pub late_streams: u64,
    /// Entity streams that had to wait for their PENDING or their scope.
    pub held_streams: u64,
    /// Private-use frames that were skipped.
    pub skipped_frames: u64,
    /// Heartbeats received.
    pub heartbeats: u64,
    /// How often an announcement had to wait for window or scopes.
    pub blocked: u64,
    /// How often each limit was exceeded, in the order of [`Limit::ALL`].
    pub limits: LimitCounts,
}

impl Counters {
    /// Count violations of a limit.
    pub(super) fn exceeded(&mut self, limit: Limit, times: u64) {
        if let Some(count) = self.limits.0.get_mut(limit as usize) {
            *count += times;
        }
    }

    /// Return how often a limit was exceeded.
    pub fn limit(&self, limit: Limit) -> u64 {
        self.limits.0.get(limit as usize).copied().unwrap_or_default()
    }
}

/// The resources that a session holds at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Entities of ours without a terminal status.
    pub open_owned: usize,
    /// Entities of the peer without a terminal status.
    pub open_received: usize,
    /// Parents in the manifests of both directions.
    pub manifest_entries: usize,
    /// Scopes that are open, of both ends.
    pub scopes: usize,
    /// Bytes of headers that wait for their PENDING or their scope.
    pub held_bytes: usize,
    /// Unanswered checkpoints of the peer.
    pub checkpoints: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_has_its_own_number_and_name() {
        let mut counters = Counters::default();
        for (index, limit) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, index);
            counters.exceeded(limit, index as u64 + 1);
            assert_eq!(counters.limit(limit), index as u64 + 1);
        }
        let names: std::collections::HashSet<_> = Limit::ALL.into_iter().map(Limit::name).collect();
        assert_eq!(names.len(), Limit::ALL.len());
    }
}
