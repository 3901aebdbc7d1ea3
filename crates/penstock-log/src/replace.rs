//! Atomic replacement of files, and folders that survive a power cut.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};

use crate::{Disk, read};

/// The suffix of a new file until it is renamed.
const NEW: &str = ".tmp";

/// Return the folder of a path.
#[must_use]
pub fn parent(path: &Path) -> &Path {
    named(path.parent().unwrap_or(path))
}

/// Return a folder under a name that the system accepts: a relative path of one component has an
/// empty parent.
fn named(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

/// Write a file durably: after a crash, either the old or the new file is there. This syncs the
/// file's folder; [`make_folder`] has synced the folders above it.
pub fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = PathBuf::from(format!("{}{NEW}", path.display()));
    match disk.remove(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        // An earlier process may have left the file.
        Ok(()) | Err(_) => {}
    }
    let file = disk.create(&new)?;
    let written =
        file.append(&mut [IoSlice::new(bytes)]).and_then(|()| file.sync()).and_then(|()| disk.rename(&new, path));
    if let Err(error) = written {
        // The file would take room on a disk that may be full.
        let _ = disk.remove(&new);
        return Err(error);
    }
    disk.sync_folder(parent(path))
}

/// Link a file under a second name, which works on a full disk too; copy it if the file system has
/// no links. An existing file of that name stays.
pub fn keep_aside(disk: &dyn Disk, path: &Path, kept: &Path) -> io::Result<()> {
    match disk.link(path, kept) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(_) => replace(disk, kept, &read(&*disk.open(path)?)?),
        Ok(()) => Ok(()),
    }
}

/// Make a folder and the missing folders above it, and make their names durable.
pub fn make_folder(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    let is_new = match disk.make_folder(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_folder(disk, parent(path))?;
            disk.make_folder(path).map(|()| true)?
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
        made => made.map(|()| true)?,
    };
    // A crash or a failed disk may have left a folder above it that is not durable. If the folder
    // is not new, the folders above it were synced when it was made.
    let above = path.ancestors().skip(1).take(if is_new { usize::MAX } else { 1 });
    for folder in above.map(named) {
        match disk.sync_folder(folder) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                tracing::debug!(folder = %folder.display(), %error, "a folder above a log cannot be synced");
            }
            synced => synced?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_has_a_folder_that_can_be_opened() {
        for (path, expected) in [("a", "."), ("", "."), ("a/b", "a"), ("./a", "."), ("/a", "/"), ("/", "/")] {
            assert_eq!(parent(Path::new(path)), Path::new(expected), "{path:?}");
        }
    }
}
