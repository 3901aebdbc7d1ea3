//! The port of what a spool's writer makes bytes durable in.

use std::fmt;
use std::sync::Arc;

use crate::Result;
use crate::dedup::Recent;
use crate::shared::Shared;
use crate::store::Store;

/// Where bytes become durable.
pub(super) trait Target: fmt::Debug + Send {
    /// Write bytes at a position in a segment, and make them durable unless that may be done later. After a failed call
    /// nothing more is written to the segment: [`end`](Self::end) comes next.
    fn write(&mut self, segment: u64, at: u64, bytes: &[u8], durable: Durable) -> Result<()>;

    /// End a segment durably: its footer replaces everything from a position on, which a failed call may have left there. A
    /// segment without anything before that position is removed.
    fn end(&mut self, segment: u64, at: u64, footer: &[u8]) -> Result<()>;

    /// Whether a segment is written at once, and never added to.
    fn is_whole(&self) -> bool;
}

/// Whether bytes must be on disk before a call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durable {
    /// Now, and the first ones, this many bytes of the segment's header, before the others: a segment that a crash has left without
    /// one has nothing else either.
    Header(usize),
    Now,
    /// With what follows. A process may die meanwhile, but not the machine.
    Later,
}

/// What a target had when it was opened.
pub(super) struct TargetState {
    pub(super) target: Box<dyn Target>,
    pub(super) shared: Arc<Shared>,
    pub(super) store: Arc<dyn Store>,
    pub(super) recent: Recent,
    pub(super) next: u64,
}
