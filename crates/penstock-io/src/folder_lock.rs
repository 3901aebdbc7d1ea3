//! Folders that one process at a time may write.

use std::path::Path;

use crate::Result;

/// A folder's lock, held as long as this process writes it: [`penstock_log::FolderLock`] with the errors of a driver.
#[derive(Debug)]
pub struct FolderLock {
    _lock: penstock_log::FolderLock,
}

impl FolderLock {
    /// Lock the folder by its file `name`. `taken` is the message for a folder that another process holds, such as
    /// "another daemon has this journal".
    pub fn take(folder: &Path, name: &str, taken: &str) -> Result<Self> {
        Ok(Self { _lock: penstock_log::FolderLock::take(folder, name, taken)? })
    }
}
