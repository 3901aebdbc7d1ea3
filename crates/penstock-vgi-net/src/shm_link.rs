use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use penstock_vgi::Batch;
use penstock_vgi::transport::{End, Transport, TransportSelector};

use super::segment::Segment;
use crate::error::Result;

/// A connection's shared segment, and the measurements that decide when to use it.
pub(super) struct SharedMemoryLink {
    segment: Arc<Segment>,
    selector: TransportSelector,
    since: Instant,
    /// The most bytes of a batch that are copied out of the segment.
    limit: u64,
}

impl fmt::Debug for SharedMemoryLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMemoryLink").field("segment", &self.segment).finish_non_exhaustive()
    }
}

impl SharedMemoryLink {
    /// Make a link without measurements.
    pub(super) fn new(segment: Arc<Segment>, end: End, limit: u64) -> Self {
        Self { segment, selector: TransportSelector::new(end), since: Instant::now(), limit }
    }

    pub(super) const fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Return a pointer to the batch if that is faster and there is room, otherwise the batch. Call
    /// this only in this end's turn.
    pub(super) fn share(&mut self, batch: Batch) -> Result<Batch> {
        if batch.rows == 0 || self.selector.choose(batch.memory() as u64, self.since.elapsed()) == Transport::Pipe {
            return Ok(batch);
        }
        match self.segment.share(&batch)? {
            Some(pointer) => Ok(pointer),
            None => {
                self.selector.forget();
                Ok(batch)
            }
        }
    }

    /// Replace a pointer with its batch; return any other batch unchanged.
    pub(super) fn resolve(&self, batch: Batch) -> Result<Batch> {
        self.segment.resolve(batch, self.limit)
    }

    /// Record that the last shared batch was answered.
    pub(super) fn answered(&mut self) {
        self.selector.answered(self.since.elapsed());
    }
}
