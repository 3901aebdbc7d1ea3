//! A spool that this process writes: the destination of a receiver.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use penstock_io::metrics::Page;
use penstock_io::runtime::PerProcess;
use penstock_io::sync::lock;
use penstock_io::tls::{Fingerprint, ServerTls};
use penstock_io::{Addresses, DriverError as _, ReadKey};
use penstock_log::{GroupCommit, SystemDisk};
use penstock_lumberjack_net::columns::Layout;
use penstock_lumberjack_net::{ConnectionEnd, Delivery, Destination, Safe};
use tokio::sync::oneshot;
use twox_hash::XxHash3_64;

use crate::options::{Keep, SpoolOptions};
use crate::service::Service;
use crate::shared::{Shared, SpoolCounters};
use crate::store::{Position, Store};
use crate::target::TargetState;
use crate::writer::{Message, Writer};
use crate::{Error, Result, folder, objects};

/// A spool that this process writes.
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
    service: Mutex<Option<Service>>,
}

impl fmt::Debug for Spool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spool").field("dedup", &self.dedup).finish_non_exhaustive()
    }
}

impl Spool {
    /// Open a spool, or make one. A record that a crash left half-written is cut off; a damaged
    /// record is lost, and no other. Blocks.
    ///
    /// Fails where a segment belongs to another spool, and where another process writes the folder.
    /// In an object store this process takes the spool over, and the previous writer is refused
    /// from then on.
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
        let inner = PerProcess::new(Inner { commit, shared, store, service: Mutex::default() });
        Ok(Arc::new(Self { layout: Layout::raw(), dedup, max_bytes, inner }))
    }

    /// Return the store to read its rows from.
    pub fn store(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::clone(&self.inner.get()?.store))
    }

    /// Record that a reader has committed everything before a position. Segments that no reader
    /// needs are removed.
    pub fn commit(&self, reader: &str, position: Position) -> Result<()> {
        self.inner.get()?.shared.commit(reader, position)
    }

    /// Return the counters of the spool.
    pub fn counters(&self) -> Result<SpoolCounters> {
        Ok(self.inner.get()?.shared.read_counters())
    }

    /// Serve the rows to readers that have the key, in place of an earlier service. Return the
    /// address, and the fingerprint that readers pin.
    pub fn serve(&self, listen: Addresses, tls: &ServerTls, key: ReadKey) -> Result<(SocketAddr, Fingerprint)> {
        let inner = self.inner.get()?;
        let service = Service::bind(listen, tls, key, Arc::clone(&inner.store))?;
        let served = (service.address(), service.fingerprint());
        if let Some(earlier) = lock(&inner.service).replace(service) {
            earlier.close();
        }
        Ok(served)
    }

    /// Stop serving readers, accept no more events, and wait until all accepted ones are on disk.
    /// Batches that wait for a reader's commit are not acknowledged.
    pub fn close(&self) -> Result<()> {
        self.inner.get()?.close();
        Ok(())
    }
}

impl Inner {
    fn close(&self) {
        if let Some(service) = lock(&self.service).take() {
            service.close();
        }
        // A write that waits for room fails from here on.
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
        // The seed comes from the spool's ID, which readers know and senders do not.
        let spool = self.inner.get().ok()?.shared.index.spool;
        self.dedup.then(|| XxHash3_64::oneshot(&spool))
    }

    fn ended(&self, ended: ConnectionEnd) {
        if let Ok(inner) = self.inner.get() {
            // A closed spool takes no messages.
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

    fn close(&self) -> Result<()> {
        Self::close(self)
    }

    /// Write the metrics. docs/operations-lumberjack.md lists them, and a test compares both.
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
