//! A cache of the newest chunks: most polls ask for these, and need not read the disk.

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::Bytes;
use penstock_pimp::JobId;

use crate::store::up_to;

/// The size of the cache in bytes.
const MOST: usize = 64 << 20;

/// The newest chunks, up to a number of bytes.
#[derive(Debug, Default)]
pub(super) struct Recent {
    chunks: HashMap<JobId, BTreeMap<u32, Bytes>>,
    // Oldest first. Entries that are missing in `chunks` were deleted.
    order: VecDeque<(JobId, u32)>,
    bytes: usize,
}

impl Recent {
    /// Add chunks that were just stored; the oldest ones are evicted.
    pub(super) fn add(&mut self, id: JobId, chunks: Vec<(u32, Bytes)>) {
        for (index, chunk) in chunks {
            self.bytes += chunk.len();
            self.order.push_back((id, index));
            if let Some(old) = self.chunks.entry(id).or_default().insert(index, chunk) {
                self.bytes = self.bytes.saturating_sub(old.len());
            }
        }
        while self.bytes > MOST {
            let Some((id, index)) = self.order.pop_front() else { return };
            let Some(chunks) = self.chunks.get_mut(&id) else { continue };
            if let Some(chunk) = chunks.remove(&index) {
                self.bytes = self.bytes.saturating_sub(chunk.len());
            }
            if chunks.is_empty() {
                self.chunks.remove(&id);
            }
        }
    }

    /// Return the first of these chunks, up to one that is missing or to the limit of
    /// [`Store::read`](crate::Store::read).
    pub(super) fn read(&self, id: JobId, indices: &[u32], most: u64) -> Vec<Bytes> {
        let Some(chunks) = self.chunks.get(&id) else { return Vec::new() };
        let found: Vec<&Bytes> = indices.iter().map_while(|index| chunks.get(index)).collect();
        let count = up_to(found.iter().map(|chunk| chunk.len() as u64), most);
        found.into_iter().take(count).cloned().collect()
    }

    /// Remove the chunks of a job.
    pub(super) fn forget(&mut self, id: JobId) {
        for chunk in self.chunks.remove(&id).into_iter().flat_map(BTreeMap::into_values) {
            self.bytes = self.bytes.saturating_sub(chunk.len());
        }
    }

    /// Remove the jobs for which the predicate is false.
    pub(super) fn retain(&mut self, lives: impl Fn(JobId) -> bool) {
        let gone: Vec<JobId> = self.chunks.keys().copied().filter(|id| !lives(*id)).collect();
        for id in gone {
            self.forget(id);
        }
        self.order.retain(|(id, _)| self.chunks.contains_key(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_chunks_go_first_and_a_job_that_is_gone_takes_its_own_along() {
        let id = |number| JobId::from_random([number; 16]);
        let chunk = Bytes::from(vec![0; MOST / 4]);
        let mut recent = Recent::default();
        recent.add(id(1), (0..3).map(|index| (index, chunk.clone())).collect());
        recent.add(id(2), vec![(0, chunk.clone())]);
        let most = u64::MAX;
        assert_eq!(recent.read(id(1), &[2, 0], most).len(), 2);
        assert_eq!(recent.read(id(1), &[2, 0], 1).len(), 1, "one at least");
        recent.add(id(2), vec![(1, chunk.clone())]);
        assert_eq!(recent.read(id(1), &[0, 1], most).len(), 0);
        assert_eq!(recent.read(id(1), &[1, 2], most).len(), 2);
        recent.forget(id(1));
        assert_eq!((recent.bytes, recent.read(id(1), &[1], most).len()), (MOST / 2, 0));
        recent.retain(|_| false);
        assert_eq!((recent.bytes, recent.order.len(), recent.chunks.len()), (0, 0, 0));
    }
}
