//! Jobs in a folder: a log of segments that are only appended to, and that are deleted as a whole.
//!
//! A change is one record, so it is stored completely or not at all, wherever the process dies.
//! Changes that wait while the disk is busy are written and synced together. The positions of
//! chunks are kept in memory; a restart reads the segments. Jobs live for minutes, so most segments
//! die as a whole; the sweep rewrites the live rest of the others.

mod earlier;
mod read;
mod recent;
mod record;
mod recovery;
mod state;
mod writer;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{BoxFuture, ready};
use penstock_io::DriverError as _;
use penstock_io::runtime::spawn_blocking;
use penstock_log::{Disk, FolderLock, GroupCommit, Log, SystemDisk, make_folder};
use penstock_pimp::{Job, JobId};
use tokio::sync::oneshot;

use self::read::read;
use self::recovery::Recovery;
use self::writer::{Pending, Shared, Writer};
use super::{Change, Store, Usage, up_to};
use crate::clock::now;
use crate::{Error, Result};

const LOCK: &str = ".lock";

/// A store in a folder, which one process may open at a time.
pub struct DiskStore {
    shared: Arc<Shared>,
    commit: GroupCommit<Pending>,
}

impl fmt::Debug for DiskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskStore").field("folder", &self.shared.folder).finish_non_exhaustive()
    }
}

impl DiskStore {
    /// Open a folder, creating it if necessary, and read its contents.
    ///
    /// Fails if another process has the folder open, or a segment has an unknown format.
    pub fn open(folder: &Path) -> Result<Self> {
        Self::with_segments(folder, writer::SEGMENT)
    }

    /// Open a folder like [`open`](Self::open), with segments that end after this many bytes.
    pub(super) fn with_segments(folder: &Path, most: u64) -> Result<Self> {
        let disk: Arc<dyn Disk> = Arc::new(SystemDisk);
        make_folder(&*disk, folder).map_err(|error| Error::file("cannot make", folder, error))?;
        let guard =
            FolderLock::take(folder, LOCK, "another buffer has this store").map_err(penstock_io::Error::from)?;
        let mut recovery = Recovery::default();
        let log = Log::open(Arc::clone(&disk), folder, record::format(most), &mut recovery);
        let log = log.map_err(penstock_io::Error::from)?;
        let shared = Arc::new(Shared::new(&log, recovery.end(now().unix_millis())));
        let writer = Writer { shared: Arc::clone(&shared), disk, log, _guard: guard };
        let commit = GroupCommit::start("penstock-pimp-store", writer);
        let commit = commit.map_err(|error| Error::io("cannot start the store's thread", error))?;
        Ok(Self { shared, commit })
    }

    /// Pass work to the writer, which answers when it is durable.
    fn hand_over<T: Send + 'static>(
        &self,
        pending: Pending,
        answer: oneshot::Receiver<Result<T>>,
    ) -> BoxFuture<'_, Result<T>> {
        if self.commit.push(pending).is_err() {
            return Box::pin(ready(Err(Error::stopped("the store"))));
        }
        Box::pin(async move { answer.await.unwrap_or_else(|_| Err(Error::stopped("the store"))) })
    }
}

impl Store for DiskStore {
    fn load(&self, id: JobId) -> BoxFuture<'_, Result<Option<Job>>> {
        Box::pin(ready(Ok(self.shared.state().job(id).cloned())))
    }

    fn commit(&self, id: JobId, change: Change) -> BoxFuture<'_, Result<bool>> {
        let until = change.job.as_ref().map(Job::forgotten_at);
        // A deleted job must stay deleted as long as an older record of it could reappear.
        let until = until.or_else(|| self.shared.state().job(id).map(Job::forgotten_at));
        let Some(until) = until else { return Box::pin(ready(Ok(true))) };
        match record::encode(id, until, change) {
            Ok(encoded) => {
                let (done, answer) = oneshot::channel();
                let stored = self.hand_over(Pending::Record(Box::new(encoded), done), answer);
                Box::pin(async move { stored.await.map(|()| true) })
            }
            Err(error) => Box::pin(ready(Err(error.into()))),
        }
    }

    fn read(&self, id: JobId, indices: Vec<u32>, most: u64) -> BoxFuture<'_, Result<Vec<Bytes>>> {
        let recent = self.shared.state().recent.read(id, &indices, most);
        if !recent.is_empty() {
            return Box::pin(ready(Ok(recent)));
        }
        let mut found = self.shared.state().places(id, &indices);
        found.truncate(up_to(found.iter().map(|(_, place)| u64::from(place.length)), most));
        if found.is_empty() {
            return Box::pin(ready(Ok(Vec::new())));
        }
        Box::pin(async move {
            let reading = spawn_blocking(move || read(&found))?;
            reading
                .await
                .unwrap_or_else(|error| Err(io::Error::other(error)))
                .map_err(|error| Error::io("cannot read chunks", error))
        })
    }

    fn sweep(&self, now: u64) -> BoxFuture<'_, Result<()>> {
        let (done, answer) = oneshot::channel();
        self.hand_over(Pending::Sweep(now, done), answer)
    }

    fn failing(&self) -> Option<String> {
        self.shared.failing()
    }

    fn usage(&self) -> Usage {
        self.shared.usage()
    }
}
