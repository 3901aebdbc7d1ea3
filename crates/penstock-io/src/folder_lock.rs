//! Folders that one process at a time may write.

use std::path::Path;

use crate::Result;

/// Held as long as this process writes a folder: [`penstock_log::FolderLock`], with the errors of a driver.
#[derive(Debug)]
pub struct FolderLock {
    _lock: penstock_log::FolderLock,
}

impl FolderLock {
    /// Lock the folder by its file `name`. `taken` says of a folder that another process has it: "another daemon has
    /// this journal".
    pub fn take(folder: &Path, name: &str, taken: &str) -> Result<Self> {
        Ok(Self { _lock: penstock_log::FolderLock::take(folder, name, taken)? })
    }
}
