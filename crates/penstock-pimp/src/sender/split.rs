//! Batches that were too large: what is cut off goes behind, in smaller ones.

use super::Sender;
use crate::Now;

impl Sender {
    /// What was cut off, as much of it as may go at once.
    pub(super) fn remaining(&mut self) -> (Vec<Vec<u8>>, u32, bool) {
        let first = self.next.saturating_sub(u32::try_from(self.rest.len()).unwrap_or(u32::MAX));
        let count = self.rest.len().min(self.config.max_chunks_per_batch);
        let envelopes = self.rest.drain(..count).collect();
        let done = self.rest.is_empty() && std::mem::take(&mut self.rest_done);
        (envelopes, first, done)
    }

    /// What was cut off is not written any more: its indices are free.
    pub(super) fn drop_rest(&mut self) {
        self.next = self.next.saturating_sub(u32::try_from(self.rest.len()).unwrap_or(u32::MAX));
        self.rest.clear();
        self.rest_done = false;
    }

    /// A batch was too large, perhaps for a gateway before the buffer, and nothing of it was taken: from now on half as many chunks go
    /// at once. One that is alone and too large is too large for the job.
    pub(super) fn split(&mut self, now: Now) {
        let Some(request) = &mut self.request else { return };
        let half = request.envelopes.len() / 2;
        for envelope in request.envelopes.split_off(half).into_iter().rev() {
            self.rest.push_front(envelope);
        }
        self.rest_done |= std::mem::take(&mut request.done);
        request.last = request.first.saturating_add(u32::try_from(half).unwrap_or(u32::MAX)).saturating_sub(1);
        request.again = Some(now.instant);
        self.config.max_chunks_per_batch = half;
    }
}
