//! Batches that were too large: what is cut off goes behind, in smaller ones.

use super::Sender;
use super::request::Encoded;
use crate::Now;

impl Sender {
    /// Take what was cut off, as much of it as may go at once, and the index of the first chunk.
    pub(super) fn remaining(&mut self) -> (Vec<Encoded>, u32) {
        let first = self.next.saturating_sub(u32::try_from(self.rest.len()).unwrap_or(u32::MAX));
        let count = self.rest.len().min(self.config.max_chunks_per_batch);
        (self.rest.drain(..count).collect(), first)
    }

    /// What was cut off is not written any more: its indices are free.
    pub(super) fn drop_rest(&mut self) {
        self.next = self.next.saturating_sub(u32::try_from(self.rest.len()).unwrap_or(u32::MAX));
        self.rest.clear();
    }

    /// A batch was too large, perhaps for a gateway before the buffer, and nothing of it was taken: from now on half as many chunks go
    /// at once. One that is alone and too large is too large for the job.
    pub(super) fn split(&mut self, now: Now) {
        let Some(request) = &mut self.request else { return };
        let half = request.envelopes.len() / 2;
        for envelope in request.envelopes.split_off(half).into_iter().rev() {
            self.rest.push_front(envelope);
        }
        request.again = Some(now.instant);
        self.config.max_chunks_per_batch = half;
    }
}
