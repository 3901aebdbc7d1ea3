//! Batches that were too large: the chunks cut off are sent later, in smaller batches.

use super::Sender;
use super::request::EncodedEnvelope;
use crate::Now;

impl Sender {
    /// Take chunks that were cut off, up to a batch of them, and return them with the index of the first.
    pub(super) fn remaining(&mut self) -> (Vec<EncodedEnvelope>, u32) {
        let first = self.next.saturating_sub(u32::try_from(self.rest.len()).unwrap_or(u32::MAX));
        let count = self.rest.len().min(self.config.max_chunks_per_batch);
        (self.rest.drain(..count).collect(), first)
    }

    /// Discard the chunks that were cut off and release their indices.
    pub(super) fn drop_rest(&mut self) {
        self.next = self.next.saturating_sub(u32::try_from(self.rest.len()).unwrap_or(u32::MAX));
        self.rest.clear();
    }

    /// Halve a batch, and the batch size, because the buffer or a gateway in front of it found the batch too large and
    /// stored nothing of it. The batch has two or more chunks: a single one that is too large fails the job instead.
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
