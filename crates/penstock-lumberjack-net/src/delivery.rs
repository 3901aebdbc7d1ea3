//! What a receiver hands over, and to whom.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use arrow_array::RecordBatch;
use penstock_io::metrics::Page;

use super::columns::Layout;
use crate::Result;

/// Where events came from, and when: the same for all of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The writer's address, `IP:PORT`.
    pub peer: Arc<str>,
    /// The subject of its certificate, or the certificate's fingerprint where that has none; none without a certificate.
    pub identity: Option<Arc<str>>,
    /// When the last of the events had arrived: microseconds since 1970, UTC.
    pub received: i64,
}

/// Events of one connection, in their order.
///
/// They are whole windows as long as these are small. A part of a window comes where the window is large, after a pause,
/// and at the end of the connection.
#[derive(Debug)]
pub struct Delivery {
    /// The events, a row for each.
    pub batch: RecordBatch,
    /// Bytes that the events had on the wire, inflated.
    pub bytes: usize,
    /// Where they came from.
    pub origin: Origin,
    /// Who sent them, over connections: the certificate's fingerprint, or the address without its port.
    pub sender: Arc<str>,
    /// The connection, by a number that no other connection of this process has.
    pub connection: u64,
    /// How many events of the connection came before.
    pub first: u64,
    /// How many of these events, which are the first of the connection, cannot be sent again: their acknowledgement has
    /// reached the writer, or else it would not have sent this window.
    pub confirmed: u64,
    /// For each row the XXH3 hash of what its frame carried, if the destination wants hashes.
    pub hashes: Vec<u64>,
    /// For each window that ends in this batch, the row after its last.
    pub windows: Vec<u32>,
}

/// That a connection has ended, behind its last batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionEnd {
    /// As in its batches.
    pub sender: Arc<str>,
    /// As in its batches.
    pub connection: u64,
    /// Whether every acknowledgement has reached the writer: nothing will be sent again.
    pub clean: bool,
}

/// Resolves when the events are safe. An error means that none of them is: nothing is acknowledged, and the connection
/// ends.
pub type Safe = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// Takes batches.
///
/// The order of the calls is that of a connection's events. A connection may have several batches under way; it
/// acknowledges them in their order, whichever is safe first.
pub trait Destination: fmt::Debug + Send + Sync + 'static {
    /// The columns that it wants; none if it counts events and drops them.
    fn layout(&self) -> Option<&Layout>;

    /// The seed of the hashes by which it knows what is sent again (decision 12); none if it does not look. No writer knows
    /// it, so none can make events that look like others.
    fn hash_seed(&self) -> Option<u64>;

    /// Takes a batch. Called on an IO thread: it must not block.
    fn take(&self, delivery: Delivery) -> Safe;

    /// A connection has ended: its batches have all been taken, or refused. Called on an IO thread: it must not block.
    fn ended(&self, _ended: ConnectionEnd) {}

    /// What it has to tell on the receiver's page of metrics.
    fn write(&self, _page: &mut Page<'_>) -> fmt::Result {
        Ok(())
    }
}
