//! Stores: a job's record and its chunks, by the job's ID.

mod disk;
mod memory;
mod open;
mod redis;
#[cfg(test)]
mod tests;

use std::fmt;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use penstock_pimp::{Job, JobId};

pub use disk::DiskStore;
pub use memory::MemoryStore;
pub use open::open_store;
pub use redis::RedisStore;

use crate::Result;

/// A change of a job, stored completely or not at all.
#[derive(Debug, Clone)]
pub struct Change {
    /// The job on which the decision was based.
    pub was: Option<Job>,
    /// The new state of the job. `None` deletes it with its chunks; a job that [is deleted](Job::is_deleted) has no
    /// chunks either.
    pub job: Option<Job>,
    /// New chunks, as [`Envelope::encode`](penstock_pimp::Envelope::encode) wrote them.
    pub chunks: Vec<(u32, Bytes)>,
}

/// How much a store holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Known jobs, including expired ones.
    pub jobs: u64,
    /// Bytes of chunks that have not expired; 0 if the store is in another process (Redis).
    pub chunk_bytes: u64,
    /// Bytes on the disk; 0 if the store is in another process (Redis).
    pub disk_bytes: u64,
    /// Damaged places that were found when the store was opened.
    pub damaged: u64,
}

/// Return how many of these lengths, from the first on, have at most `most` bytes in total; at least one.
fn up_to(lengths: impl Iterator<Item = u64>, most: u64) -> usize {
    let mut bytes = 0_u64;
    let fits = |(place, length): &(usize, u64)| {
        bytes = bytes.saturating_add(*length);
        *place == 0 || bytes <= most
    };
    lengths.enumerate().take_while(fits).count()
}

/// A store of jobs. The caller ensures that no other task of this process changes the same job meanwhile.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Return a job as it was stored last; `None` if it is unknown.
    fn load(&self, id: JobId) -> BoxFuture<'_, Result<Option<Job>>>;

    /// Store a change; it is durable when this returns (decision 13). If this fails or returns
    /// `false`, nothing was changed. `false` means that another process has changed the job first,
    /// so the decision must be repeated.
    fn commit(&self, id: JobId, change: Change) -> BoxFuture<'_, Result<bool>>;

    /// Return the first chunks of these indices, in order: at least one, and more while all have at
    /// most `most` bytes in total. Return none if the first one is missing. More chunks may exist
    /// even if fewer are returned than were requested.
    fn read(&self, id: JobId, indices: Vec<u32>, most: u64) -> BoxFuture<'_, Result<Vec<Bytes>>>;

    /// Delete the chunks of expired jobs and forget those that expired long ago; `now` is in milliseconds since the
    /// Unix epoch. Their space on the disk is free when this returns. A store that [fails](Self::failing) is tested.
    fn sweep(&self, now: u64) -> BoxFuture<'_, Result<()>>;

    /// Return the next job that another process has changed; `None` if any job may have changed.
    /// Never resolves if no other process can change jobs.
    fn changed(&self) -> BoxFuture<'_, Option<JobId>> {
        Box::pin(std::future::pending())
    }

    /// Return why the store accepts no changes: the last one failed, and none has succeeded since.
    /// Return `None` if it accepts them, as far as it knows.
    fn failing(&self) -> Option<String> {
        None
    }

    /// Return how much the store holds.
    fn usage(&self) -> Usage;
}
