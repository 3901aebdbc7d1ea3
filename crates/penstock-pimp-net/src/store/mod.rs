//! Stores: a job's record and its chunks, by its ID.

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

/// What is to be stored of a job, all of it or nothing.
#[derive(Debug, Clone)]
pub struct Change {
    /// What the job was when the change was decided.
    pub was: Option<Job>,
    /// What the job is from now on; `None` deletes it with its chunks, one that [is deleted](Job::is_deleted) has none either.
    pub job: Option<Job>,
    /// New chunks, as [`Envelope::encode`](penstock_pimp::Envelope::encode) wrote them.
    pub chunks: Vec<(u32, Bytes)>,
}

/// How much a store holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Jobs known, those that have expired included.
    pub jobs: u64,
    /// Bytes of chunks that have not expired; 0 where the store is another process's.
    pub chunk_bytes: u64,
    /// Bytes on the disk; 0 where the store is another process's.
    pub disk_bytes: u64,
    /// Stretches of the store that were found damaged when it was opened.
    pub damaged: u64,
}

/// Return how many come first, of these lengths, that have no more than `most` bytes together; one at least.
fn up_to(lengths: impl Iterator<Item = u64>, most: u64) -> usize {
    let mut bytes = 0_u64;
    let fits = |(place, length): &(usize, u64)| {
        bytes = bytes.saturating_add(*length);
        *place == 0 || bytes <= most
    };
    lengths.enumerate().take_while(fits).count()
}

/// Where jobs are kept. Who changes a job sees to it that nobody else in this process does meanwhile.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Return a job, as it was stored last; `None` where it is not known.
    fn load(&self, id: JobId) -> BoxFuture<'_, Result<Option<Job>>>;

    /// Store a change; it is durable when this returns (decision 13). Where it fails, nothing has changed, as where it
    /// gives `false`: then another process was faster, and it is to be decided again.
    fn commit(&self, id: JobId, change: Change) -> BoxFuture<'_, Result<bool>>;

    /// Return the first chunks of these indices, in their order: one, and further ones as long as they have no more
    /// than `most` bytes together. None where the first is not there. That fewer come than were asked for does not mean
    /// that there are no more.
    fn read(&self, id: JobId, indices: Vec<u32>, most: u64) -> BoxFuture<'_, Result<Vec<Bytes>>>;

    /// Delete the chunks of jobs that have expired and forgets those that have been expired for long; `now` is in
    /// milliseconds since the Unix epoch. What they took on the disk is free when this returns. A store that
    /// [fails](Self::failing) is tried again.
    fn sweep(&self, now: u64) -> BoxFuture<'_, Result<()>>;

    /// Return the next job that was changed, by another process; `None`: any may have been. It waits for ever where no
    /// other process can.
    fn changed(&self) -> BoxFuture<'_, Option<JobId>> {
        Box::pin(std::future::pending())
    }

    /// Return why it takes no changes: the last one failed, and none was taken since. `None`: it takes them, as far as
    /// it knows.
    fn failing(&self) -> Option<String> {
        None
    }

    /// Return how much it holds.
    fn usage(&self) -> Usage;
}
