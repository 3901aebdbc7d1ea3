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
mod copies;
mod dedup;
mod earlier;
mod folder;
mod format;
mod index;
mod names;
mod objects;
mod options;
mod reading;
mod recovery;
mod remote;
mod requests;
mod scan;
mod service;
mod shared;
mod store;
mod target;
mod writer;

use std::fmt;
use std::sync::Arc;

use penstock_io::DriverError as _;
use penstock_io::metrics::Page;
use penstock_io::runtime::PerProcess;
use penstock_io::sync::lock;
use penstock_log::{GroupCommit, SystemDisk};
use tokio::sync::oneshot;
use twox_hash::XxHash3_64;

pub use self::folder::FolderStore;
pub use self::objects::ObjectStore;
pub use self::options::{Ack, Keep, SpoolOptions};
pub use self::reading::{Plan, PlanLimits, Reader, RowRange, plan};
pub use self::remote::RemoteStore;
pub use self::service::Service;
use self::shared::Shared;
pub use self::shared::SpoolCounters;
pub use self::store::{Missing, Position, Store};
use self::target::TargetState;
use self::writer::{Message, Writer};
use crate::columns::Layout;
use crate::delivery::{ConnectionEnd, Delivery, Destination, Safe};
use crate::{Error, Result};

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
        Ok(self.inner.get()?.shared.read_counters())
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
            pushed.map_err(|_| Error::stopped("the spool"))
        });
        Box::pin(async move {
            sent?;
            answer.await.unwrap_or_else(|_| Err(Error::stopped("the spool")))
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

#[cfg(test)]
mod tests;
