use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{fmt, io};

use penstock_io::metrics::{Histogram, Page};
use penstock_log::is_full;
use penstock_pipestream_net::port::SinkLimits;

/// The counters of a sink, over all sessions.
#[derive(Debug, Default)]
pub(crate) struct SinkCounters {
    /// Batches that were made durable, and the number of entities in them.
    pub(crate) commits: AtomicU64,
    pub(crate) committed: AtomicU64,
    /// Time from the start of a batch until it is durable.
    pub(crate) commit_seconds: Histogram,
    /// Calls that made one file durable, and calls that made all files durable.
    pub(crate) file_syncs: AtomicU64,
    pub(crate) system_syncs: AtomicU64,
    /// Times that a driver waited because the sink had fallen behind.
    pub(crate) waits: AtomicU64,
    /// Entities that could not be stored: for lack of space, and for any other reason.
    pub(crate) no_space: AtomicU64,
    pub(crate) other_errors: AtomicU64,
    /// Sessions whose open entities had too many bytes of headers, and sessions with too many bytes
    /// of waiting FAILED lines.
    pub(crate) headers_exceeded: AtomicU64,
    pub(crate) lines_exceeded: AtomicU64,
    /// Bytes of headers of open entities.
    pub(crate) header_bytes: AtomicU64,
}

impl SinkCounters {
    pub(crate) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn remove(gauge: &AtomicU64, count: usize) {
        gauge.fetch_sub(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Count a batch that is durable.
    pub(crate) fn committed(&self, entities: usize, took: Duration) {
        Self::add(&self.commits, 1);
        Self::add(&self.committed, entities);
        self.commit_seconds.observe(took);
    }

    /// Count an entity that could not be stored.
    pub(crate) fn failed(&self, error: &io::Error) {
        Self::add(if is_full(error) { &self.no_space } else { &self.other_errors }, 1);
    }

    /// Return how often a limit was exceeded.
    pub(crate) fn limits(&self) -> SinkLimits {
        SinkLimits { headers: read(&self.headers_exceeded), lines: read(&self.lines_exceeded) }
    }

    /// Write the counters to a page of metrics. docs/operations.md lists them, and a test compares
    /// the two.
    pub(crate) fn write(&self, page: &mut Page<'_>) -> fmt::Result {
        page.counter("penstock_sink_commits", "Batches made durable.", read(&self.commits))?;
        page.counter("penstock_sink_committed_entities", "Entities in durable batches.", read(&self.committed))?;
        page.histogram("penstock_sink_commit_seconds", "How long a batch took.", &self.commit_seconds)?;
        page.counters(
            "penstock_sink_syncs",
            "Calls that made a file, or all of the file system, durable.",
            "of",
            [("file", read(&self.file_syncs)), ("system", read(&self.system_syncs))],
        )?;
        page.counter("penstock_sink_waits", "Times that a session waited for the sink.", read(&self.waits))?;
        page.counters(
            "penstock_sink_errors",
            "Entities that could not be stored.",
            "kind",
            [("no_space", read(&self.no_space)), ("other", read(&self.other_errors))],
        )?;
        page.gauge("penstock_sink_header_bytes", "Bytes of headers of open entities.", read(&self.header_bytes))
    }
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
