use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use crate::format::{LOG, encode};

/// Maximum length of a list's last line, which contains one number.
pub(super) const TAIL: i64 = 64;

/// Remove the temporary files of a server that crashed: hidden files of sessions that are neither
/// closed nor open.
pub(super) fn clean(dir: &Path) -> io::Result<()> {
    for session in fs::read_dir(dir)? {
        let session = session?;
        if session.file_type()?.is_dir() {
            clean_session(&session.path())?;
        }
    }
    Ok(())
}

fn clean_session(session: &Path) -> io::Result<()> {
    // A process that has a session open locks its list. A folder without a list is not a session's.
    let Ok(mut log) = File::open(session.join(LOG)) else { return Ok(()) };
    if log.try_lock().is_err() || is_closed(&mut log)? {
        return Ok(());
    }
    remove_hidden(session)
}

/// Remove the hidden files of a session that no process has open.
pub(super) fn remove_hidden(session: &Path) -> io::Result<()> {
    for entry in fs::read_dir(session)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") && entry.file_type()?.is_file() {
            tracing::info!(file = %entry.path().display(), "removed a temporary file of a server that crashed");
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Return whether the list has a last line that closes it.
fn is_closed(log: &mut File) -> io::Result<bool> {
    closed_with(log).map(|code| code.is_some())
}

/// Return the code with which the list's last line closes it, if it does.
pub(super) fn closed_with(log: &mut File) -> io::Result<Option<u64>> {
    let length = i64::try_from(log.metadata()?.len()).unwrap_or(i64::MAX);
    log.seek(SeekFrom::End(-length.min(TAIL)))?;
    let mut tail = Vec::new();
    log.read_to_end(&mut tail)?;
    Ok(encode::code_of(&tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(dir: &Path, name: &str, log: &str) -> std::path::PathBuf {
        let session = dir.join(name);
        fs::create_dir(&session).unwrap();
        fs::write(session.join(LOG), log).unwrap();
        fs::write(session.join(".tmp-0.0-1.0"), "half").unwrap();
        session
    }

    #[test]
    fn only_sessions_that_crashed_are_cleaned() {
        let dir = tempfile::tempdir().unwrap();
        let crashed = session(dir.path(), "crashed", "{\"scope\":0}\n{\"sco");
        let empty = session(dir.path(), "empty", "");
        let closed = session(dir.path(), "closed", "{\"scope\":0}\n{\"closed\":0}\n");
        let open = session(dir.path(), "open", "");
        let held = File::open(open.join(LOG)).unwrap();
        held.lock().unwrap();
        fs::create_dir(dir.path().join("other")).unwrap();
        fs::write(dir.path().join("other/.keep"), "").unwrap();
        clean(dir.path()).unwrap();
        assert!(!crashed.join(".tmp-0.0-1.0").exists() && !empty.join(".tmp-0.0-1.0").exists());
        assert!(closed.join(".tmp-0.0-1.0").exists() && open.join(".tmp-0.0-1.0").exists());
        assert!(dir.path().join("other/.keep").exists());
    }
}
