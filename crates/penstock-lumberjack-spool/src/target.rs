//! The port to the storage in which a spool's writer makes bytes durable.

use std::fmt;
use std::sync::Arc;

use crate::Result;
use crate::dedup::Recent;
use crate::shared::Shared;
use crate::store::Store;

/// The storage that a writer appends to.
pub(super) trait Target: fmt::Debug + Send {
    /// Write bytes at a position in a segment, and make them durable unless `durable` allows that
    /// to happen later. After a failed call, nothing more is written to the segment:
    /// [`end`](Self::end) comes next.
    fn write(&mut self, segment: u64, at: u64, bytes: &[u8], durable: Durable) -> Result<()>;

    /// End a segment durably: its footer replaces everything from a position on, which may be left
    /// from a failed call. A segment without anything before that position is removed.
    fn end(&mut self, segment: u64, at: u64, footer: &[u8]) -> Result<()>;

    /// Return whether a segment is written at once, and never appended to.
    fn is_whole(&self) -> bool;
}

/// Whether bytes must be on disk before a call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durable {
    /// Now, and this many bytes of the segment's header before the others: a segment that a crash
    /// left without a header has no records either.
    Header(usize),
    Now,
    /// With a later write. Until then the bytes survive a crash of the process, but not of the
    /// machine.
    Later,
}

/// The state of a target when it was opened.
pub(super) struct TargetState {
    pub(super) target: Box<dyn Target>,
    pub(super) shared: Arc<Shared>,
    pub(super) store: Arc<dyn Store>,
    pub(super) recent: Recent,
    pub(super) next: u64,
}
