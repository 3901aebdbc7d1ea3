//! Files that are there as a whole or not at all, and folders that outlive a power cut.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};

use crate::{Disk, read};

/// Behind the name of a file that is yet to take its place.
const NEW: &str = ".tmp";

/// Return the folder that has a name.
fn parent(path: &Path) -> PathBuf {
    let folder = path.parent().unwrap_or(path);
    // A relative path of one component has an empty parent.
    if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder.to_owned() }
}

/// Write a file durably: after a crash there is the old one or the new one. Its folder is synced; [`make_folder`] has synced those above.
pub fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = PathBuf::from(format!("{}{NEW}", path.display()));
    match disk.remove(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        // An earlier process has left it, or none.
        Ok(()) | Err(_) => {}
    }
    let file = disk.create(&new)?;
    let written =
        file.append(&mut [IoSlice::new(bytes)]).and_then(|()| file.sync()).and_then(|()| disk.rename(&new, path));
    if let Err(error) = written {
        // It takes room on a disk that may be full.
        let _ = disk.remove(&new);
        return Err(error);
    }
    disk.sync_folder(&parent(path))
}

/// Give a file a second name, so that a disk that is full can have it too; where names cannot be given, make a copy. A file that has that
/// name already stays.
pub fn keep_aside(disk: &dyn Disk, path: &Path, kept: &Path) -> io::Result<()> {
    match disk.link(path, kept) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(_) => replace(disk, kept, &read(&*disk.open(path)?)?),
        Ok(()) => Ok(()),
    }
}

/// Make a folder and those above it where they are missing, and make their names durable.
pub fn make_folder(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    let is_new = match disk.make_folder(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_folder(disk, &parent(path))?;
            disk.make_folder(path).map(|()| true)?
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
        made => made.map(|()| true)?,
    };
    // A process that died, or a disk that failed, may have left a folder above it that is not durable. Where it is not new, that was
    // seen to when it was made.
    let above = path.ancestors().skip(1).take(if is_new { usize::MAX } else { 1 });
    for folder in above.map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder }) {
        match disk.sync_folder(folder) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                tracing::debug!(folder = %folder.display(), %error, "a folder above a log cannot be synced");
            }
            synced => synced?,
        }
    }
    Ok(())
}
