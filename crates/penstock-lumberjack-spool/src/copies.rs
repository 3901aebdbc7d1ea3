//! Copies of segments as they were found, so that the damage can be examined later.

use std::io;
use std::path::{Path, PathBuf};

use penstock_io::DriverError as _;
use penstock_log::{Disk, keep_aside, parent, read};

use crate::{Error, Result};

/// Keep a durable copy of a segment's file as it was found, under a name of its own; return the
/// name. A copy from an earlier start is used again.
pub(super) fn keep_copy(disk: &dyn Disk, path: &Path, suffix: &str) -> Result<PathBuf> {
    let name =
        |number: u32| path.with_extension(if number == 0 { suffix.to_owned() } else { format!("{suffix}.{number}") });
    let folder = parent(path);
    let keeping = || -> io::Result<PathBuf> {
        let (file, names) = (disk.open(path)?, disk.list(folder)?);
        file.sync()?;
        let found = read(&*file)?;
        let is_taken =
            |kept: &Path| names.iter().any(|name| kept.file_name().is_some_and(|kept| kept == name.as_str()));
        let is_kept =
            |kept: &Path| disk.open_to_read(kept).and_then(|kept| read(&*kept)).is_ok_and(|kept| kept == found);
        let kept = (0..).map(name).find(|kept| !is_taken(kept) || is_kept(kept)).unwrap_or_else(|| name(0));
        keep_aside(disk, path, &kept)?;
        disk.sync_folder(folder)?;
        Ok(kept)
    };
    keeping().map_err(|error| Error::file(UNCHANGED, path, error))
}

/// The message for a segment that could not be written again.
pub(super) const UNCHANGED: &str = "cannot copy, so nothing is changed,";
