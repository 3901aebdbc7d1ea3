//! `file://` URLs for development, below one folder that the user has set.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use penstock_io::DriverError as _;
use reqwest::Url;

use crate::faults::{LocationFault, SizeLimit};
use crate::{Error, Result};

/// Read a file if it is below the folder and within the limit.
pub(super) fn read(root: Option<&Path>, url: &Url, most: u64) -> Result<Vec<u8>> {
    let path = inside(root, url, |path| path.canonicalize())?;
    let failed = |error: std::io::Error| Error::io(url.as_str(), error);
    let file = File::open(&path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(Error::Location(LocationFault::NotAFile { url: url.to_string() }));
    }
    let mut bytes = Vec::new();
    if metadata.len() <= most {
        file.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    }
    if metadata.len() > most || bytes.len() as u64 > most {
        return Err(Error::Size(SizeLimit::File { url: url.to_string(), limit: most }));
    }
    Ok(bytes)
}

/// Write a new file below the folder.
pub(super) fn write(root: Option<&Path>, url: &Url, bytes: &[u8]) -> Result<()> {
    let path = inside(root, url, place)?;
    let written = OpenOptions::new().write(true).create_new(true).open(path).and_then(|mut file| file.write_all(bytes));
    written.map_err(|error| Error::io(url.as_str(), error))
}

/// Return the real path of a file that need not exist, in a folder that must.
fn place(path: &Path) -> std::io::Result<PathBuf> {
    let name = path.file_name().ok_or(std::io::ErrorKind::InvalidInput)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    // A bare name is in the current folder, but its parent path is empty, and the system cannot
    // resolve that.
    Ok(folder.unwrap_or(Path::new(".")).canonicalize()?.join(name))
}

/// Return the path of a URL, or refuse one that leaves the folder.
fn inside(root: Option<&Path>, url: &Url, real: impl Fn(&Path) -> std::io::Result<PathBuf>) -> Result<PathBuf> {
    let named = || url.to_string();
    let root = root.ok_or_else(|| Error::Location(LocationFault::NoFolder { url: named() }))?;
    let path = url.to_file_path().map_err(|()| Error::Location(LocationFault::NoPath { url: named() }))?;
    let failed = |error: std::io::Error| Error::io(url.as_str(), error);
    let (root, path) = (root.canonicalize().map_err(failed)?, real(&path).map_err(failed)?);
    if !path.starts_with(&root) {
        return Err(Error::Location(LocationFault::OutsideFolder { url: named() }));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use penstock_wire::ErrorKind;

    use super::*;

    #[test]
    fn a_file_directly_below_its_root_or_named_alone_has_a_folder() {
        assert_eq!(place(Path::new("/object")).unwrap(), Path::new("/object"));
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        assert_eq!(place(Path::new("object")).unwrap(), here.join("object"));
        assert!(place(Path::new("/")).is_err(), "it is no file");
    }

    #[test]
    fn nothing_outside_the_folder_is_read_or_written() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(folder.path().join("secret"), b"secret").unwrap();
        std::os::unix::fs::symlink(folder.path().join("secret"), root.join("link")).unwrap();
        let url = |path: &Path| Url::from_file_path(path).unwrap();
        let object = url(&root.join("object"));
        write(Some(&root), &object, b"bytes").unwrap();
        assert_eq!(read(Some(&root), &object, 5).unwrap(), b"bytes");
        let kinds = [
            read(Some(&root), &object, 4).unwrap_err().kind(),
            read(None, &object, 6).unwrap_err().kind(),
            read(Some(&root), &url(&root.join("link")), 6).unwrap_err().kind(),
            read(Some(&root), &url(&folder.path().join("secret")), 6).unwrap_err().kind(),
            read(Some(&root), &url(&root), 6).unwrap_err().kind(),
            read(Some(&root), &url(&root.join("nothing")), 6).unwrap_err().kind(),
            write(Some(&root), &object, b"again").unwrap_err().kind(),
            write(Some(&root), &url(&folder.path().join("out")), b"out").unwrap_err().kind(),
        ];
        let violation = ErrorKind::Violation;
        let expected =
            [ErrorKind::Limit, violation, violation, violation, violation, ErrorKind::Io, ErrorKind::Io, violation];
        assert_eq!(kinds, expected);
    }
}
