//! The interface between a receiver and the destination of its events.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use arrow_array::RecordBatch;
use penstock_io::metrics::Page;

use super::columns::Layout;
use crate::Result;

/// The origin of events and their time of arrival, the same for all events of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The writer's address, `IP:PORT`.
    pub peer: Arc<str>,
    /// The subject of its certificate, or the fingerprint if that has no subject; `None` without a certificate.
    pub identity: Option<Arc<str>>,
    /// When the last of the events had arrived: microseconds since 1970, UTC.
    pub received: i64,
}

/// Events of one connection, in order.
///
/// A delivery holds whole windows as long as these are small. It holds a part of a window if the
/// window is large, after a pause, and at the end of the connection.
#[derive(Debug)]
pub struct Delivery {
    /// The events, one per row.
    pub batch: RecordBatch,
    /// The decompressed bytes of the events on the wire.
    pub bytes: usize,
    /// Their origin.
    pub origin: Origin,
    /// Identifies the sender across connections: the certificate's fingerprint, or the address without its port.
    pub sender: Arc<str>,
    /// The number of the connection, unique in this process.
    pub connection: u64,
    /// The number of earlier events of the connection.
    pub first: u64,
    /// The number of the connection's first events that cannot be sent again: their acknowledgement
    /// has reached the writer, which would not have sent this window otherwise.
    pub confirmed: u64,
    /// The XXH3 hash of each row's frame payload, if the destination needs hashes.
    pub hashes: Vec<u64>,
    /// For each window that ends in this batch, the row after its last.
    pub windows: Vec<u32>,
}

/// The end of a connection, after its last batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionEnd {
    /// The sender, as in its batches.
    pub sender: Arc<str>,
    /// The number of the connection, as in its batches.
    pub connection: u64,
    /// Whether every acknowledgement has reached the writer, so that no event will be sent again.
    pub clean: bool,
}

/// Resolves when the events are durable. After an error no event is acknowledged, and the
/// connection ends.
pub type Safe = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// Accepts batches.
///
/// Calls are in the order of a connection's events. A connection may have several batches in flight; it
/// acknowledges them in order, even if a later one is durable first.
pub trait Destination: fmt::Debug + Send + Sync + 'static {
    /// Return the columns that it needs; `None` if it only counts events.
    fn layout(&self) -> Option<&Layout>;

    /// Return the seed of the hashes that detect replays (decision 12); `None` if it does not detect them. Writers do
    /// not know the seed, so they cannot forge collisions.
    fn hash_seed(&self) -> Option<u64>;

    /// Accept a batch. Called on an IO thread: it must not block.
    fn take(&self, delivery: Delivery) -> Safe;

    /// Handle the end of a connection, after all of its batches. Called on an IO thread: it must not block.
    fn ended(&self, _ended: ConnectionEnd) {}

    /// Accept no more events, and finish the accepted ones: the receiver that owns this has ended.
    /// Blocks.
    fn close(&self) -> Result<()> {
        Ok(())
    }

    /// Write the destination's part of the receiver's metrics.
    fn write(&self, _page: &mut Page<'_>) -> fmt::Result {
        Ok(())
    }
}
