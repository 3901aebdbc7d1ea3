use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use penstock_vgi::Batch;
use penstock_vgi::road::{Chooser, End, Road};

use super::segment::Segment;
use crate::error::Result;

/// A segment beside a connection, and what was measured of it.
pub(super) struct Beside {
    segment: Arc<Segment>,
    chooser: Chooser,
    since: Instant,
    /// How many bytes of a batch are copied out of the segment at most.
    limit: u64,
}

impl fmt::Debug for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beside").field("segment", &self.segment).finish_non_exhaustive()
    }
}

impl Beside {
    /// Nothing was measured yet.
    pub(super) fn new(segment: Arc<Segment>, end: End, limit: u64) -> Self {
        Self { segment, chooser: Chooser::new(end), since: Instant::now(), limit }
    }

    pub(super) const fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Return a pointer to the batch, if that is the faster way and there is room for it; else the batch. It is this
    /// end's turn.
    pub(super) fn share(&mut self, batch: Batch) -> Result<Batch> {
        if batch.rows == 0 || self.chooser.choose(batch.memory() as u64, self.since.elapsed()) == Road::Pipe {
            return Ok(batch);
        }
        match self.segment.share(&batch)? {
            Some(pointer) => Ok(pointer),
            None => {
                self.chooser.forget();
                Ok(batch)
            }
        }
    }

    /// Return the batch instead of a pointer to it; anything else as it is.
    pub(super) fn resolve(&self, batch: Batch) -> Result<Batch> {
        self.segment.resolve(batch, self.limit)
    }

    /// What was shared last is answered.
    pub(super) fn answered(&mut self) {
        self.chooser.answered(self.since.elapsed());
    }
}
