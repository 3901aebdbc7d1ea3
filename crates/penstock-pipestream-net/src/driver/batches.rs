use std::sync::Arc;

use penstock_pipestream::{EntityHeader, EntityKey, Event, ScopeKey};

use crate::events::LogEvent;
use crate::port::SinkEvent;
use crate::types::{Released, Resolution};

/// Items that are handed over together, once the session has no more events.
#[derive(Debug, Default)]
pub(super) struct Batches {
    pub(super) sink: Vec<SinkEvent>,
    pub(super) log: Vec<LogEvent>,
    pub(super) user: Vec<Event>,
    pub(super) resolved: Vec<(EntityKey, Resolution)>,
    pub(super) released: Vec<(ScopeKey, Released)>,
    /// Headers that the session has just refused, for the lines of their entities in the sink.
    pub(super) rejected: Vec<Arc<EntityHeader>>,
    /// Numbers of received entities that became terminal: those without a parent, and COMPLETE
    /// ones.
    pub(super) roots: u64,
    pub(super) completed: u64,
    /// Whether an entity ended without COMPLETE in this round: its line is written before the
    /// session's record.
    pub(super) ended: bool,
    /// Whether everything in the peer's root scope became terminal in this round: the list is
    /// closed after the session's record.
    pub(super) whole: bool,
}

impl Batches {
    /// Add an event that only a sink needs.
    pub(super) fn sink(&mut self, event: SinkEvent) {
        self.sink.push(event);
    }

    pub(super) fn rejected(&mut self, header: Arc<EntityHeader>) {
        self.rejected.push(header);
    }
}
