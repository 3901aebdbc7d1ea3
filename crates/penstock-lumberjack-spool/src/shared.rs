//! The state of a spool that its writer, its readers and its service share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use penstock_io::sync::lock;
use tokio::sync::oneshot;

use crate::Result;
use crate::index::Index;
use crate::options::Ack;
use crate::store::Position;

/// The counters of a spool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpoolCounters {
    /// Events that were made durable.
    pub events: u64,
    /// Events that were sent again and left out.
    pub duplicates: u64,
    /// Syncs of the disk, or objects that were written.
    pub syncs: u64,
    /// Batches that were refused, because the disk or the store failed.
    pub refused: u64,
    /// Records that were found damaged when the spool was opened, and whose rows are lost.
    pub damaged: u64,
    /// Bytes that the spool has now.
    pub bytes: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) events: AtomicU64,
    pub(super) duplicates: AtomicU64,
    pub(super) syncs: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) damaged: AtomicU64,
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Ordering::Relaxed);
    }
}

/// The state that the writer, the readers and the service share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) index: Index,
    pub(super) counters: Counters,
    pub(super) ack: Ack,
    pub(super) parked: Mutex<BTreeMap<Position, Vec<oneshot::Sender<Result<()>>>>>,
}

impl Shared {
    pub(super) fn new(index: Index, counters: Counters, ack: Ack) -> Arc<Self> {
        Arc::new(Self { index, counters, ack, parked: Mutex::default() })
    }

    /// Record that a reader has committed everything before a position: acknowledge the batches
    /// that all readers have committed now, and remove segments.
    pub(super) fn commit(&self, reader: &str, position: Position) -> Result<()> {
        let oldest = self.index.commit(reader, position)?;
        let mut parked = lock(&self.parked);
        let later = parked.split_off(&Position { row: oldest.row.saturating_add(1), ..oldest });
        for waiting in std::mem::replace(&mut *parked, later).into_values().flatten() {
            // The waiter's connection may be gone, so a failed send is ignored.
            let _ = waiting.send(Ok(()));
        }
        Ok(())
    }

    pub(super) fn read_counters(&self) -> SpoolCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { events, duplicates, syncs, refused, damaged } = &self.counters;
        SpoolCounters {
            events: read(events),
            duplicates: read(duplicates),
            syncs: read(syncs),
            refused: read(refused),
            damaged: read(damaged),
            bytes: self.index.bytes(),
        }
    }
}
