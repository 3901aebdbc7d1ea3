//! The limits of one end, from the attributes of `penstock.pipestream.Limits`, which has checked
//! their ranges.

use penstock_io::duration::seconds;
use penstock_pipestream_net::{ClaimLimits, Result, SessionOptions};
use pyo3::prelude::*;

/// The attributes of the dataclass, in its units: bytes and seconds.
#[derive(FromPyObject)]
pub(crate) struct LimitFields {
    pub(crate) max_connections: u64,
    max_scope_depth: u32,
    max_entities_per_scope: u32,
    max_open_entities: usize,
    max_open_parents: usize,
    max_children: u64,
    max_children_per_mib: u64,
    max_parent_time: f64,
    max_open_checkpoints: usize,
    max_checkpoint_time: f64,
    max_header: u32,
    max_metadata: usize,
    max_held_headers: usize,
    max_claims: usize,
    max_claim_life: f64,
}

impl LimitFields {
    /// Set the limits of every session.
    pub(crate) fn apply(&self, options: &mut SessionOptions) -> Result<()> {
        let session = &mut options.session;
        session.capabilities.max_scope_depth = Some(self.max_scope_depth);
        session.capabilities.max_entities_per_scope = Some(self.max_entities_per_scope);
        session.max_open_entities = self.max_open_entities;
        session.manifest.max_entries = self.max_open_parents;
        session.manifest.max_age = seconds("max_parent_time", self.max_parent_time)?;
        session.max_children = self.max_children;
        session.children_per_mib = self.max_children_per_mib;
        session.max_open_checkpoints = self.max_open_checkpoints;
        session.max_checkpoint_time = seconds("max_checkpoint_time", self.max_checkpoint_time)?;
        session.max_header = self.max_header;
        session.max_metadata = self.max_metadata;
        session.max_held_bytes = self.max_held_headers;
        Ok(())
    }

    /// Return the limits of a server's claim checks.
    pub(crate) fn claims(&self) -> Result<ClaimLimits> {
        let life = seconds("max_claim_life", self.max_claim_life)?;
        Ok(ClaimLimits { max_claims: self.max_claims, life, ..ClaimLimits::default() })
    }
}
