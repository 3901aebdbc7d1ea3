//! Files of lines to which several processes may append, one at a time.

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
                // Another process has created the file in the meantime.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => disk.open(path)?,
                made => made?,
            },
            opened => opened?,
        };
        // The process that created the file may have died before the file's name was durable.
        disk.sync_folder(parent(path))?;
        Ok(Self(file))
    }

    /// Make the lines from an offset on durable, and return them. Truncate an incomplete last line:
    /// the process that began it died before it reported the line.
    pub(crate) fn read(&self, from: u64) -> io::Result<Vec<u8>> {
        let mut new = read_range(&*self.0, from..self.0.length()?.max(from))?;
        let whole = new.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        if whole < new.len() {
            new.truncate(whole);
            self.cut(from + whole as u64)?;
        }
        if !new.is_empty() {
            // The process that wrote the lines may have died before they were durable.
            self.0.sync()?;
        }
        Ok(new)
    }

    /// Truncate the file to `end` bytes.
    pub(crate) fn cut(&self, end: u64) -> io::Result<()> {
        self.0.truncate(end)
    }

    /// Append all lines durably, or none; `end` is the file's length before.
    pub(crate) fn append(&self, end: u64, lines: &[u8]) -> io::Result<()> {
        let written = self.0.append(&mut [IoSlice::new(lines)]).and_then(|()| self.0.sync());
        if written.is_err() {
            // Remove lines that may not be durable, because no later sync would report their loss.
            // The caller still has them, and may append them again.
            self.cut(end)?;
        }
        written
    }
}
