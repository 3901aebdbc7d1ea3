//! What an endpoint has seen, for `--metrics` and for tests.

use std::sync::atomic::{AtomicU64, Ordering};

use penstock_pipestream::ErrorCode;

/// How many codes the registry names (section 11.4); all others share one more slot.
const NAMED_CODES: usize = 13;

/// Counts that all sessions of a server, or one client, share.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections_total: AtomicU64,
    pub(crate) connections_open: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) entities: AtomicU64,
    pub(crate) octets: AtomicU64,
    pub(crate) completed: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) late_streams: AtomicU64,
    pub(crate) late_statuses: AtomicU64,
    pub(crate) events_lost: AtomicU64,
    failures: [AtomicU64; NAMED_CODES + 1],
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    /// An entity or a connection failed with this code.
    pub(crate) fn failure(&self, code: ErrorCode) {
        let index = usize::try_from(code.code()).map_or(NAMED_CODES, |code| code.min(NAMED_CODES));
        if let Some(counter) = self.failures.get(index) {
            Self::add(counter, 1);
        }
    }

    pub(crate) fn snapshot(&self) -> CounterSnapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let code = |index| ErrorCode::from_code(u64::try_from(index).unwrap_or(u64::MAX));
        CounterSnapshot {
            connections_total: read(&self.connections_total),
            connections_open: read(&self.connections_open),
            refused: read(&self.refused),
            entities: read(&self.entities),
            octets: read(&self.octets),
            completed: read(&self.completed),
            failed: read(&self.failed),
            late_streams: read(&self.late_streams),
            late_statuses: read(&self.late_statuses),
            events_lost: read(&self.events_lost),
            failures: self
                .failures
                .iter()
                .enumerate()
                .map(|(index, counter)| (code(index), read(counter)))
                .filter(|(_, count)| *count > 0)
                .collect(),
        }
    }
}

/// The counts at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CounterSnapshot {
    /// Connections whose handshake was begun.
    pub connections_total: u64,
    /// Those that are open now.
    pub connections_open: u64,
    /// Connections refused because of a limit.
    pub refused: u64,
    /// Entities whose payload came whole and right.
    pub entities: u64,
    /// Their payload octets.
    pub octets: u64,
    /// Received entities that ended COMPLETE.
    pub completed: u64,
    /// Received entities that ended otherwise.
    pub failed: u64,
    /// Entity streams that came for an entity that was resolved already, of ended sessions.
    pub late_streams: u64,
    /// Statuses that came for such an entity, of ended sessions.
    pub late_statuses: u64,
    /// Events dropped because nobody took them.
    pub events_lost: u64,
    /// Failures of entities and connections by code; codes without a name are counted under 0x0D.
    pub failures: Vec<(ErrorCode, u64)>,
}
