//! The counters of an endpoint, for `--metrics` and for tests. Counting is an atomic addition, without a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use penstock_io::admission;
use penstock_io::metrics::Histogram;
use penstock_pipestream::{Counters as Seen, ErrorCode, Limit, Status, Usage};

/// Number of codes that the registry names (section 11.4); all other codes share one more slot.
const NAMED_CODES: usize = 13;

/// Counters of failures or ends by error code.
#[derive(Debug, Default)]
pub(crate) struct ByCode([AtomicU64; NAMED_CODES + 1]);

impl ByCode {
    fn add(&self, code: ErrorCode) {
        let index = usize::try_from(code.code()).map_or(NAMED_CODES, |code| code.min(NAMED_CODES));
        if let Some(counter) = self.0.get(index) {
            Counters::add(counter, 1);
        }
    }

    /// Return the count of each code that has a name, and of all others together.
    pub(crate) fn read(&self) -> impl Iterator<Item = (ErrorCode, u64)> {
        let code = |index| ErrorCode::from_code(u64::try_from(index).unwrap_or(u64::MAX));
        self.0.iter().enumerate().map(move |(index, counter)| (code(index), counter.load(Ordering::Relaxed)))
    }
}

/// The sums of the sessions' own counters.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    pub(crate) announced: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) late_statuses: AtomicU64,
    pub(crate) late_streams: AtomicU64,
    pub(crate) held_streams: AtomicU64,
    pub(crate) skipped_frames: AtomicU64,
    pub(crate) blocked: AtomicU64,
    pub(crate) attempts_failed: AtomicU64,
    pub(crate) yields: AtomicU64,
    limits: [AtomicU64; Limit::ALL.len()],
}

impl Sessions {
    /// Add the difference of a session's counters between two moments.
    pub(crate) fn add(&self, before: &Seen, after: &Seen) {
        for (total, before, after) in [
            (&self.announced, before.announced, after.announced),
            (&self.received, before.received, after.received),
            (&self.late_statuses, before.late_statuses, after.late_statuses),
            (&self.late_streams, before.late_streams, after.late_streams),
            (&self.held_streams, before.held_streams, after.held_streams),
            (&self.skipped_frames, before.skipped_frames, after.skipped_frames),
            (&self.blocked, before.blocked, after.blocked),
            (&self.attempts_failed, before.retries, after.retries),
            (&self.yields, before.yields, after.yields),
        ] {
            if after > before {
                Counters::add(total, after - before);
            }
        }
        if before.limits != after.limits {
            for (total, (before, after)) in self.limits.iter().zip(before.limits.values().zip(after.limits.values())) {
                Counters::add(total, after.saturating_sub(*before));
            }
        }
    }
}

/// Current state of one session, written by its driver and read by metrics.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    pub(crate) open_owned: AtomicUsize,
    pub(crate) open_received: AtomicUsize,
    pub(crate) manifest_entries: AtomicUsize,
    pub(crate) scopes: AtomicUsize,
    pub(crate) held_bytes: AtomicUsize,
    pub(crate) checkpoints: AtomicUsize,
    /// Bytes for stream 0 that the peer has not read.
    pub(crate) control_bytes: AtomicUsize,
    /// Entity streams that are being received.
    pub(crate) streams: AtomicUsize,
}

impl Gauges {
    pub(crate) fn set(&self, usage: &Usage, control_bytes: usize, streams: usize) {
        for (gauge, value) in [
            (&self.open_owned, usage.open_owned),
            (&self.open_received, usage.open_received),
            (&self.manifest_entries, usage.manifest_entries),
            (&self.scopes, usage.scopes),
            (&self.held_bytes, usage.held_bytes),
            (&self.checkpoints, usage.checkpoints),
            (&self.control_bytes, control_bytes),
            (&self.streams, streams),
        ] {
            gauge.store(value, Ordering::Relaxed);
        }
    }
}

/// Counters of the journal of sessions.
#[derive(Debug, Default)]
pub(crate) struct JournalCounters {
    pub(crate) restored: AtomicU64,
    /// Restored sessions whose client did not return, and sessions that could not be restored.
    pub(crate) in_vain: AtomicU64,
    pub(crate) records: AtomicU64,
    /// Time taken to make records durable, one group at a time.
    pub(crate) commits: Histogram,
}

/// Counters of a log of events: lines that could not be written, and times that a session waited
/// for the log.
#[derive(Debug, Default)]
pub(crate) struct LogCounters {
    pub(crate) lost: AtomicU64,
    pub(crate) waits: AtomicU64,
}

/// The counters that all sessions of a server or of a client share.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections_total: AtomicU64,
    pub(crate) connections_open: AtomicU64,
    pub(crate) refused: AtomicU64,
    /// Counters of the reasons for refusals.
    pub(crate) admission: Arc<admission::Counters>,
    /// Clients that had to prove their address.
    pub(crate) retries: AtomicU64,
    pub(crate) handshakes_failed: AtomicU64,
    pub(crate) handshakes_late: AtomicU64,
    pub(crate) capabilities_late: AtomicU64,
    pub(crate) idle: AtomicU64,
    /// Connections over which sessions continued after another one was lost.
    pub(crate) reconnects: AtomicU64,
    /// Times that a connection had all its entity streams open.
    pub(crate) streams_full: AtomicU64,
    /// Times that the peer did not read stream 0, so that work was suspended that would have
    /// written more to it.
    pub(crate) control_full: AtomicU64,
    pub(crate) entities: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Received root entities that are terminal.
    pub(crate) roots: AtomicU64,
    pub(crate) completed: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) abandoned: AtomicU64,
    pub(crate) skipped: AtomicU64,
    pub(crate) deferred: AtomicU64,
    pub(crate) events_lost: AtomicU64,
    pub(crate) sessions: Sessions,
    pub(crate) entity_failures: ByCode,
    pub(crate) ends: ByCode,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    /// Count payloads that arrived completely and were verified, and the bytes of all of them.
    pub(crate) fn arrived(&self, entities: u64, bytes: u64) {
        Self::add(&self.entities, entities);
        Self::add(&self.bytes, bytes);
    }

    /// Count a received entity that has ended with a status other than COMPLETE.
    pub(crate) fn entity_ended(&self, status: Status, code: ErrorCode) {
        let counter = match status {
            Status::Skipped => &self.skipped,
            Status::Deferred => &self.deferred,
            Status::Abandoned => &self.abandoned,
            Status::Failed
            | Status::Complete
            | Status::Unspecified
            | Status::Pending
            | Status::Processing
            | Status::Checkpoint
            | Status::Dehydrating
            | Status::Rehydrating
            | Status::Yielded
            | Status::Retrying => &self.failed,
        };
        Self::add(counter, 1);
        if matches!(status, Status::Failed | Status::Abandoned) {
            self.entity_failures.add(code);
        }
    }

    /// Count a session that has ended with this code.
    pub(crate) fn ended(&self, code: ErrorCode) {
        self.ends.add(code);
    }

    /// Return how often each limit was exceeded.
    pub(crate) fn limits(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = Limit::ALL.into_iter().map(Limit::name);
        let own = [
            ("connections", &self.refused),
            ("handshake_time", &self.handshakes_late),
            ("capabilities_time", &self.capabilities_late),
            ("idle_time", &self.idle),
            ("entity_streams", &self.streams_full),
            ("control_bytes", &self.control_full),
        ];
        names.zip(&self.sessions.limits).chain(own).map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }

    pub(crate) fn snapshot(&self) -> CounterSnapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let failures = self.entity_failures.read().zip(self.ends.read()).map(|((code, entities), (_, ends))| {
            (code, if code == ErrorCode::NoError { entities } else { entities + ends })
        });
        CounterSnapshot {
            connections_total: read(&self.connections_total),
            connections_open: read(&self.connections_open),
            refused: read(&self.refused),
            entities: read(&self.entities),
            bytes: read(&self.bytes),
            completed: read(&self.completed),
            failed: read(&self.failed) + read(&self.abandoned),
            abandoned: read(&self.abandoned),
            skipped: read(&self.skipped),
            deferred: read(&self.deferred),
            retries: read(&self.sessions.attempts_failed),
            yields: read(&self.sessions.yields),
            reconnects: read(&self.reconnects),
            claims: 0,
            late_streams: read(&self.sessions.late_streams),
            late_statuses: read(&self.sessions.late_statuses),
            events_lost: read(&self.events_lost),
            failures: failures.filter(|(_, count)| *count > 0).collect(),
            limits: self.limits().collect(),
        }
    }
}

/// The counters at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CounterSnapshot {
    /// Connections that a server admitted or a client established.
    pub connections_total: u64,
    /// Connections of a server that are open now; 0 for a client.
    pub connections_open: u64,
    /// Connections refused because of a limit.
    pub refused: u64,
    /// Entities whose payload arrived completely and was verified.
    pub entities: u64,
    /// Payload bytes of these entities.
    pub bytes: u64,
    /// Received entities that ended COMPLETE.
    pub completed: u64,
    /// Received entities that ended FAILED or ABANDONED.
    pub failed: u64,
    /// Received entities that ended ABANDONED.
    pub abandoned: u64,
    /// Received entities that ended SKIPPED.
    pub skipped: u64,
    /// Received entities that ended DEFERRED.
    pub deferred: u64,
    /// Failed attempts, ours and the peers', that were not the last of their entity.
    pub retries: u64,
    /// Times that a received entity was made to wait.
    pub yields: u64,
    /// Connections over which sessions continued after another one was lost.
    pub reconnects: u64,
    /// Claim checks in the store; 0 for a client.
    pub claims: u64,
    /// Entity streams that arrived for an entity that was already resolved.
    pub late_streams: u64,
    /// Statuses that arrived for an entity that was already resolved.
    pub late_statuses: u64,
    /// Events dropped because they were not taken.
    pub events_lost: u64,
    /// Failures of entities and connections by code; codes without a name are counted under 0x0D.
    pub failures: Vec<(ErrorCode, u64)>,
    /// How often each limit was exceeded, by the limit's name.
    pub limits: Vec<(&'static str, u64)>,
}
