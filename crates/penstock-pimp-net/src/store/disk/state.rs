//! The contents of the segments, and their positions.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use penstock_log::DiskFile;
use penstock_pimp::{Job, JobId};

use super::recent::Recent;
use super::record::{Chunk, Update};

/// The position of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkPosition {
    pub(super) segment: u64,
    pub(super) offset: u64,
    pub(super) length: u32,
    /// The CRC-32 of its bytes.
    pub(super) sum: u32,
}

impl ChunkPosition {
    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.length))
    }
}

/// A job that was stored here and is not forgotten yet.
#[derive(Debug)]
pub(super) struct Entry {
    /// The job; `None` if it was deleted, which must be remembered as long as older records of it
    /// may exist.
    pub(super) job: Option<Job>,
    pub(super) until: u64,
    /// The segment of its newest record.
    pub(super) record: u64,
    pub(super) chunks: BTreeMap<u32, ChunkPosition>,
}

/// The live contents of a segment.
#[derive(Debug)]
pub(super) struct Segment {
    file: Arc<dyn DiskFile>,
    /// Bytes of live chunks.
    pub(super) live: u64,
    /// Jobs whose newest record is here.
    pub(super) records: u64,
}

impl Segment {
    /// Return whether nothing in it is live, so that a restart without it has the same result.
    pub(super) fn is_empty(&self) -> bool {
        self.live == 0 && self.records == 0
    }
}

/// The complete state of the log in memory.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) jobs: HashMap<JobId, Entry>,
    pub(super) segments: BTreeMap<u64, Segment>,
    pub(super) recent: Recent,
}

impl State {
    /// Remove chunks that their jobs do not have. A job that was deleted and created again may have such chunks, if the
    /// record of its deletion is missing.
    pub(super) fn remove_unowned_chunks(&mut self) {
        let Self { jobs, segments, .. } = self;
        for entry in jobs.values_mut() {
            let Entry { job, chunks, .. } = entry;
            chunks.retain(|index, place| {
                let known = job.as_ref().is_some_and(|job| job.indices().contains(*index));
                if let Some(segment) = segments.get_mut(&place.segment).filter(|_| !known) {
                    segment.live = segment.live.saturating_sub(u64::from(place.length));
                }
                known
            });
        }
    }

    /// Add a segment, in which nothing is live yet.
    pub(super) fn add_segment(&mut self, number: u64, file: &Arc<dyn DiskFile>) {
        self.segments.entry(number).or_insert_with(|| Segment { file: Arc::clone(file), live: 0, records: 0 });
    }

    /// Apply a record whose body is at this position of the log; `recent` stays in memory.
    pub(super) fn apply(&mut self, segment: u64, at: u64, update: Update, recent: Vec<(u32, Bytes)>) {
        let Update { id, until, job, chunks } = update;
        let fresh = || Entry { job: None, until, record: segment, chunks: BTreeMap::new() };
        let mut entry = match self.jobs.remove(&id) {
            None => fresh(),
            Some(entry) => {
                self.count(entry.record, |segment| segment.records = segment.records.saturating_sub(1));
                entry
            }
        };
        if job.as_ref().is_none_or(Job::is_deleted) {
            self.drop_chunks(&mut entry);
            self.recent.forget(id);
        }
        self.recent.add(id, recent);
        (entry.job, entry.until, entry.record) = (job, until, segment);
        self.count(segment, |segment| segment.records += 1);
        for chunk in chunks {
            self.place(&mut entry, segment, at, chunk);
        }
        self.jobs.insert(id, entry);
    }

    fn place(&mut self, entry: &mut Entry, segment: u64, at: u64, chunk: Chunk) {
        let Chunk { index, offset, length, sum } = chunk;
        let place = ChunkPosition { segment, offset: at.saturating_add(offset), length, sum };
        if let Some(old) = entry.chunks.insert(index, place) {
            self.count(old.segment, |segment| segment.live = segment.live.saturating_sub(u64::from(old.length)));
        }
        self.count(segment, |segment| segment.live += u64::from(length));
    }

    fn count(&mut self, segment: u64, change: impl FnOnce(&mut Segment)) {
        if let Some(segment) = self.segments.get_mut(&segment) {
            change(segment);
        }
    }

    fn drop_chunks(&mut self, entry: &mut Entry) {
        for place in std::mem::take(&mut entry.chunks).into_values() {
            self.count(place.segment, |segment| segment.live = segment.live.saturating_sub(u64::from(place.length)));
        }
    }

    /// Drop the chunks of expired jobs, and the jobs whose `until` is over.
    pub(super) fn expire(&mut self, now: u64) {
        for (id, mut entry) in std::mem::take(&mut self.jobs) {
            if entry.job.as_ref().is_some_and(|job| now >= job.expires_at()) {
                self.drop_chunks(&mut entry);
            }
            if now < entry.until {
                self.jobs.insert(id, entry);
            } else {
                self.drop_chunks(&mut entry);
                self.count(entry.record, |segment| segment.records = segment.records.saturating_sub(1));
            }
        }
        let jobs = &self.jobs;
        self.recent.retain(|id| jobs.get(&id).is_some_and(|entry| !entry.chunks.is_empty()));
    }

    pub(super) fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id).and_then(|entry| entry.job.as_ref())
    }

    /// Return the positions of chunks, up to one that is missing, and their files, which stay readable even if they are
    /// removed.
    pub(super) fn places(&self, id: JobId, indices: &[u32]) -> Vec<(Arc<dyn DiskFile>, ChunkPosition)> {
        let Some(entry) = self.jobs.get(&id) else { return Vec::new() };
        let place = |index| {
            let place = *entry.chunks.get(index)?;
            Some((Arc::clone(&self.segments.get(&place.segment)?.file), place))
        };
        indices.iter().map_while(place).collect()
    }

    /// Return how many jobs are known.
    pub(super) fn known(&self) -> usize {
        self.jobs.values().filter(|entry| entry.job.is_some()).count()
    }

    /// Return the bytes of live chunks.
    pub(super) fn live(&self) -> u64 {
        self.segments.values().map(|segment| segment.live).sum()
    }
}
