//! Jobs in memory, lost when the process ends.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;
use futures_util::future::{BoxFuture, ready};
use penstock_io::sync::lock;
use penstock_pimp::{Job, JobId};

use super::{Change, Store, Usage, up_to};
use crate::Result;

/// A store in memory.
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<HashMap<JobId, Entry>>);

#[derive(Debug)]
struct Entry {
    job: Job,
    chunks: BTreeMap<u32, Bytes>,
}

impl MemoryStore {
    /// Make an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn jobs(&self) -> MutexGuard<'_, HashMap<JobId, Entry>> {
        lock(&self.0)
    }

    fn change(&self, id: JobId, change: Change) {
        let mut jobs = self.jobs();
        let Some(job) = change.job else {
            jobs.remove(&id);
            return;
        };
        let entry = jobs.entry(id).or_insert_with(|| Entry { job: job.clone(), chunks: BTreeMap::new() });
        if job.is_deleted() {
            entry.chunks.clear();
        }
        entry.job = job;
        entry.chunks.extend(change.chunks);
    }
}

impl Store for MemoryStore {
    fn load(&self, id: JobId) -> BoxFuture<'_, Result<Option<Job>>> {
        Box::pin(ready(Ok(self.jobs().get(&id).map(|entry| entry.job.clone()))))
    }

    fn commit(&self, id: JobId, change: Change) -> BoxFuture<'_, Result<bool>> {
        self.change(id, change);
        Box::pin(ready(Ok(true)))
    }

    fn read(&self, id: JobId, indices: Vec<u32>, most: u64) -> BoxFuture<'_, Result<Vec<Bytes>>> {
        let jobs = self.jobs();
        let Some(Entry { chunks, .. }) = jobs.get(&id) else { return Box::pin(ready(Ok(Vec::new()))) };
        let found: Vec<&Bytes> = indices.iter().map_while(|index| chunks.get(index)).collect();
        let count = up_to(found.iter().map(|chunk| chunk.len() as u64), most);
        Box::pin(ready(Ok(found.into_iter().take(count).cloned().collect())))
    }

    fn sweep(&self, now: u64) -> BoxFuture<'_, Result<()>> {
        self.jobs().retain(|_, entry| {
            if now >= entry.job.expires_at() {
                entry.chunks.clear();
            }
            now < entry.job.forgotten_at()
        });
        Box::pin(ready(Ok(())))
    }

    fn usage(&self) -> Usage {
        let jobs = self.jobs();
        let bytes = |entry: &Entry| entry.chunks.values().map(|chunk| chunk.len() as u64).sum::<u64>();
        Usage { jobs: jobs.len() as u64, chunk_bytes: jobs.values().map(bytes).sum(), ..Usage::default() }
    }
}
