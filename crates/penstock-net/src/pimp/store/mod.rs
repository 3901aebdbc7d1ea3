//! Stores: a job's record and its chunks, by its ID.

mod disk;
mod memory;
#[cfg(test)]
mod tests;

use std::fmt;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use penstock_pimp::{Job, JobId};

pub use disk::DiskStore;
pub use memory::MemoryStore;

use crate::Result;

/// What is to be stored of a job, all of it or nothing.
#[derive(Debug, Clone)]
pub struct Change {
    /// What the job is from now on; `None` deletes it with its chunks.
    pub job: Option<Job>,
    /// New chunks, as [`Envelope::encode`](penstock_pimp::Envelope::encode) wrote them.
    pub chunks: Vec<(u32, Bytes)>,
}

/// How much a store holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Jobs known, those that have expired included.
    pub jobs: u64,
    /// Octets of chunks that have not expired.
    pub chunk_octets: u64,
    /// Octets on the disk.
    pub disk_octets: u64,
}

/// Where jobs are kept. Who changes a job sees to it that nobody else does meanwhile.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// A job, as it was stored last; `None` where it is not known.
    fn load(&self, id: JobId) -> BoxFuture<'_, Result<Option<Job>>>;

    /// Stores a change; it is durable when this returns (decision 13). Where it fails, nothing has changed.
    fn commit(&self, id: JobId, change: Change) -> BoxFuture<'_, Result<()>>;

    /// The chunks of these indices, in their order; those that are not there are left out.
    fn read(&self, id: JobId, indices: Vec<u32>) -> BoxFuture<'_, Result<Vec<Bytes>>>;

    /// Deletes the chunks of jobs that have expired and forgets those that have been expired for long; `now` is in
    /// milliseconds since the Unix epoch. What they took on the disk is free when this returns.
    fn sweep(&self, now: u64) -> BoxFuture<'_, Result<()>>;

    /// How much it holds.
    fn usage(&self) -> Usage;
}
