//! Files of lines that several processes may append to, one at a time.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use penstock_log::{Disk, DiskFile, parent, read_range};

/// A file of lines, which are durable once they are appended.
#[derive(Debug)]
pub(crate) struct LineFile(Arc<dyn DiskFile>);

impl LineFile {
    /// Open a file; create it if it does not exist.
    pub(crate) fn open(disk: &dyn Disk, path: &Path) -> io::Result<Self> {
        let file = match disk.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match disk.create(path) {
                // Another process has made it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => disk.open(path)?,
                made => made?,
            },
            opened => opened?,
        };
        // The process that has made it may have died before its name was durable.
        disk.sync_folder(parent(path))?;
        Ok(Self(file))
    }

    /// Return the lines from an offset on, durable. Half a line is truncated: the process that began it has died before it
    /// reported the line.
    pub(crate) fn read(&self, from: u64) -> io::Result<Vec<u8>> {
        let mut new = read_range(&*self.0, from..self.0.length()?.max(from))?;
        let whole = new.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        if whole < new.len() {
            new.truncate(whole);
            self.cut(from + whole as u64)?;
        }
        if !new.is_empty() {
            // The process that wrote them may have died before they were durable.
            self.0.sync()?;
        }
        Ok(new)
    }

    /// Truncate the file.
    pub(crate) fn cut(&self, end: u64) -> io::Result<()> {
        self.0.truncate(end)
    }

    /// Append lines at `end`, where the last one ends: all of them, or none.
    pub(crate) fn append(&self, end: u64, lines: &[u8]) -> io::Result<()> {
        let written = self.0.append(&mut [IoSlice::new(lines)]).and_then(|()| self.0.sync());
        if written.is_err() {
            // Lines that may not be durable must not look durable: no later sync reports that they were lost. The caller
            // writes them again from memory.
            self.cut(end)?;
        }
        written
    }
}
