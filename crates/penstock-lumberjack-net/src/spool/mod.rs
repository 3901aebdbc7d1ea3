//! The spool: what a receiver has acknowledged, durable, until everybody has read it.
//!
//! ```text
//!  receiver ── take ──► writer (one thread): record ─► append, fdatasync ─► safe     a group of batches at a time
//!                                               │
//!                    a folder of segments ◄─────┘          or a prefix in an object store
//!                        │
//!  Store ── plan ──► Pieces ── read ──► RecordBatches       Service ══ HTTPS, a key ══ RemoteStore
//! ```
//!
//! A segment is a file of records (see [`format`]), a record is a batch of the raw layout. Segments are numbered from 1
//! on, rows from 0 in each; a [`Position`] names the next row, and what lies between two positions never changes. A
//! segment is removed when every named reader has committed a position behind it; without readers none is.

mod claim;
mod dedup;
mod earlier;
mod folder;
mod format;
mod index;
mod objects;
mod reading;
mod recovery;
mod remote;
mod service;
mod writer;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use penstock_io::DriverError as _;
use penstock_io::metrics::Page;
use penstock_io::runtime::PerProcess;
use penstock_io::storage::ObjectPrefix;
use penstock_log::{GroupCommit, SystemDisk};
use tokio::sync::oneshot;
use twox_hash::XxHash3_64;

pub use self::folder::FolderStore;
use self::index::Index;
pub use self::objects::ObjectStore;
pub use self::reading::{Plan, PlanLimits, Reader, RowRange, Store, plan};
pub use self::remote::RemoteStore;
pub use self::service::Service;
use self::writer::{Message, TargetState, Writer};
use super::columns::Layout;
use super::delivery::{ConnectionEnd, Delivery, Destination, Safe};
use crate::{Error, Result};

/// A place between two rows: the next row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The number of the segment.
    pub segment: u64,
    /// The row in it.
    pub row: u64,
}

/// Where segments are kept.
#[derive(Debug, Clone)]
pub enum Keep {
    /// In a local folder.
    Folder(PathBuf),
    /// In an object store: a segment is an object, and written at once.
    Objects(ObjectPrefix),
}

/// When events are safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    /// On disk.
    Spool,
    /// Committed by every reader.
    Commit,
}

/// How a spool behaves.
#[derive(Debug, Clone)]
pub struct SpoolOptions {
    /// Where it is.
    pub keep: Keep,
    /// Bytes of all segments; when they are used up nothing is taken until readers commit. Default: 10 GiB.
    pub max_bytes: u64,
    /// A segment is full with so many bytes, or with a quarter of all. Default: 64 MiB.
    pub segment_bytes: u64,
    /// And after so long. Default: 60 s.
    pub segment_age: Duration,
    /// How long an object waits for more events. Default: 500 ms.
    pub linger: Duration,
    /// When events are acknowledged.
    pub ack: Ack,
    /// Whether what is sent again after a reconnect is left out (decision 12).
    pub dedup: bool,
}

impl SpoolOptions {
    /// The defaults.
    pub fn new(keep: Keep) -> Self {
        Self {
            keep,
            max_bytes: 10 << 30,
            segment_bytes: 64 << 20,
            segment_age: Duration::from_secs(60),
            linger: Duration::from_millis(500),
            ack: Ack::Spool,
            dedup: true,
        }
    }
}

/// What a spool has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpoolCounters {
    /// Events that were made durable.
    pub events: u64,
    /// Events that were sent again and left out.
    pub duplicates: u64,
    /// Times that the disk was asked to be sure, or objects that were written.
    pub syncs: u64,
    /// Batches that were refused, because disk or store failed.
    pub refused: u64,
    /// Records that were found damaged when the spool was opened, and whose rows are lost.
    pub damaged: u64,
    /// Bytes that are kept.
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct Counters {
    events: AtomicU64,
    duplicates: AtomicU64,
    syncs: AtomicU64,
    refused: AtomicU64,
    damaged: AtomicU64,
}

impl Counters {
    fn add(counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Ordering::Relaxed);
    }
}

/// What the writer, the readers and the service share.
#[derive(Debug)]
struct Shared {
    index: Index,
    counters: Counters,
    ack: Ack,
    parked: Mutex<BTreeMap<Position, Vec<oneshot::Sender<Result<()>>>>>,
}

impl Shared {
    /// Everything before a position was committed by a reader: what is acknowledged then, and what may be removed.
    fn commit(&self, reader: &str, position: Position) -> Result<()> {
        let oldest = self.index.commit(reader, position)?;
        let mut parked = lock(&self.parked);
        let later = parked.split_off(&Position { row: oldest.row.saturating_add(1), ..oldest });
        for waiting in std::mem::replace(&mut *parked, later).into_values().flatten() {
            // Whoever is gone has no connection any more.
            let _ = waiting.send(Ok(()));
        }
        Ok(())
    }
}

/// A spool that is written.
pub struct Spool {
    layout: Layout,
    dedup: bool,
    max_bytes: u64,
    inner: PerProcess<Inner>,
}

struct Inner {
    commit: GroupCommit<Message>,
    shared: Arc<Shared>,
    store: Arc<dyn Store>,
}

impl fmt::Debug for Spool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spool").field("dedup", &self.dedup).finish_non_exhaustive()
    }
}

impl Spool {
    /// Opens a spool, or makes one; what a crash has left half-written is cut off, and what was damaged is lost, but no more.
    /// Blocks.
    ///
    /// Fails where a segment is not of this spool, and where another process writes a folder. In an object store this one
    /// takes the spool over, and whoever wrote it before is refused from then on.
    pub fn open(options: SpoolOptions) -> Result<Arc<Self>> {
        let opened = match &options.keep {
            Keep::Folder(folder) => folder::open(Arc::new(SystemDisk), folder, options.ack)?,
            Keep::Objects(place) => objects::open(place, options.ack)?,
        };
        Self::with(options, opened)
    }

    fn with(options: SpoolOptions, opened: TargetState) -> Result<Arc<Self>> {
        let (dedup, max_bytes) = (options.dedup, options.max_bytes);
        let (shared, store) = (Arc::clone(&opened.shared), Arc::clone(&opened.store));
        let commit = GroupCommit::start("penstock-spool", Writer::new(options, opened)?);
        let commit = commit.map_err(|error| Error::io("cannot start the spool's thread", error))?;
        let inner = PerProcess::new(Inner { commit, shared, store });
        Ok(Arc::new(Self { layout: Layout::raw(), dedup, max_bytes, inner }))
    }

    /// Its rows.
    pub fn store(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::clone(&self.inner.get()?.store))
    }

    /// A reader has made everything before a position its own. Segments that no reader needs are removed.
    pub fn commit(&self, reader: &str, position: Position) -> Result<()> {
        self.inner.get()?.shared.commit(reader, position)
    }

    /// What it has seen.
    pub fn counters(&self) -> Result<SpoolCounters> {
        let shared = &self.inner.get()?.shared;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { events, duplicates, syncs, refused, damaged } = &shared.counters;
        Ok(SpoolCounters {
            events: read(events),
            duplicates: read(duplicates),
            syncs: read(syncs),
            refused: read(refused),
            damaged: read(damaged),
            bytes: shared.index.bytes(),
        })
    }

    /// Takes no more, and waits until what was taken is on disk. What waits for readers is not acknowledged.
    pub fn close(&self) -> Result<()> {
        self.inner.get()?.close();
        Ok(())
    }
}

impl Inner {
    fn close(&self) {
        // What waits for room is refused.
        self.shared.index.close();
        self.commit.close();
        lock(&self.shared.parked).clear();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

impl Destination for Spool {
    fn layout(&self) -> Option<&Layout> {
        Some(&self.layout)
    }

    fn hash_seed(&self) -> Option<u64> {
        // Readers know the spool's ID, and no writer does.
        let spool = self.inner.get().ok()?.shared.index.spool;
        self.dedup.then(|| XxHash3_64::oneshot(&spool))
    }

    fn ended(&self, ended: ConnectionEnd) {
        if let Ok(inner) = self.inner.get() {
            // A spool that is closed takes nothing.
            let _ = inner.commit.push(Message::Ended(ended));
        }
    }

    fn take(&self, delivery: Delivery) -> Safe {
        let (safe, answer) = oneshot::channel();
        let sent = self.inner.get().map_err(Error::from).and_then(|inner| {
            let pushed = inner.commit.push(Message::Batch { delivery, safe });
            pushed.map_err(|_| Error::misuse("the spool is closed".into()))
        });
        Box::pin(async move {
            sent?;
            answer.await.unwrap_or_else(|_| Err(Error::task(&"the spool was closed")))
        })
    }

    /// docs/operations-lumberjack.md lists them, and a test compares.
    fn write(&self, page: &mut Page<'_>) -> fmt::Result {
        let Ok(counters) = self.counters() else { return Ok(()) };
        for (name, help, value) in [
            ("events", "Events made durable.", counters.events),
            ("duplicates", "Events sent again after a reconnect and left out.", counters.duplicates),
            ("syncs", "Times that the disk was asked to be sure, or objects written.", counters.syncs),
            ("refused_batches", "Batches refused, because disk or store failed.", counters.refused),
            ("damaged", "Records found damaged, whose rows are lost.", counters.damaged),
        ] {
            page.counter(&format!("penstock_lumberjack_spool_{name}"), help, value)?;
        }
        page.gauge("penstock_lumberjack_spool_bytes", "Bytes kept.", counters.bytes)?;
        page.gauge("penstock_lumberjack_spool_limit_bytes", "Bytes kept at most.", self.max_bytes)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
