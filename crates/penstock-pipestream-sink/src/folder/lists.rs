//! The lists in a sink's folder: which sessions exist, and which are open.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use crate::format::names::uses_of;

/// Mark a session as open by locking its list. On a file system without locks, nothing is cleaned
/// up after a crash.
pub(super) fn lock(log: &File) -> io::Result<()> {
    match log.lock() {
        Err(error) if error.kind() != io::ErrorKind::Unsupported => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Return the folders of all sessions of an ID, by their numbers. An operator may have removed any
/// of them, so this examines all names in the sink.
pub(crate) fn sessions_of(sink: &Path, id: &str) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(sink)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(id)).and_then(uses_of);
        if let Some(number) = number.filter(|_| entry.path().is_dir()) {
            found.push((number, name.to_string_lossy().into_owned()));
        }
    }
    found.sort_unstable();
    Ok(found.into_iter().map(|(_, name)| name).collect())
}
