//! Locks on folders that only one process at a time may write.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

use crate::{Error, Result};

/// A lock that is held while this process writes a folder. The system releases it when the process ends.
#[derive(Debug)]
pub struct FolderLock(File);

impl FolderLock {
    /// Lock a folder by its file `name`. `holder` is the error message if another process holds the
    /// lock, such as "another daemon has this journal".
    pub fn take(folder: &Path, name: &str, holder: &'static str) -> Result<Self> {
        let path = folder.join(name);
        let failed = |error| Error::file("cannot lock", &path, error);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => Err(Error::Busy { folder: folder.to_owned(), holder }),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Closing the file does not release the lock if a child that was forked meanwhile has it
        // open too.
        if let Err(error) = self.0.unlock() {
            tracing::debug!(%error, "a folder's lock goes only with the last process that has it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_dropped_is_free_although_the_file_is_open_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let lock = FolderLock::take(folder.path(), "lock", "somebody has it").unwrap();
        // A forked child would have such a descriptor.
        let _inherited = lock.0.try_clone().unwrap();
        let refused = FolderLock::take(folder.path(), "lock", "somebody has it").unwrap_err();
        assert!(matches!(refused, Error::Busy { folder: busy, holder: "somebody has it" } if busy == folder.path()));
        drop(lock);
        FolderLock::take(folder.path(), "lock", "somebody has it").unwrap();
    }
}
