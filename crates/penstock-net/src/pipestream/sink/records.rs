//! Transactions of a folder sink, on its disk.
//!
//! ```text
//! DIR/.transactions/SHA256(KEY)/SESSION           an empty session's end: it is prepared
//! DIR/.transactions/SHA256(KEY)/committed.json    {"transaction": KEY, "sessions": [ID, ...]}: never changed
//! DIR/.transactions/.old-SHA256(KEY)              a record that is being removed
//! ```
//!
//! A session's marker is made once all lines of its list are durable. The record is linked into place, whole or not at
//! all, and only once for a key, whoever else works in the same folder: from then on the transaction is committed.
//! What follows (last lines for the lists, then the markers go) is done again by whoever finds a record beside markers:
//! the next order, or the next start.
//!
//! Records go at a start and now and then where the transaction cannot be run again ([`origin`]).

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use penstock_pipestream::ErrorCode;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::super::transport::hex;
use super::disk::{Faults, Step};
use super::entries::LOG;
use super::record;
use super::recover::is_closed;
use super::transaction::{FINISHED, GIVEN_UP, KEPT, Origin, Refusal, is_session, origin};

/// Where all of it lies, below the sink. No session has such a name.
const FOLDER: &str = ".transactions";
const RECORD: &str = "committed.json";
/// What is being removed begins so.
const OLD: &str = ".old-";
/// Commits between two looks for records that may go.
const LOOK_EVERY: u64 = 1_000;

/// The transactions of a sink.
#[derive(Debug)]
pub(super) struct Records {
    sink: PathBuf,
    faults: Faults,
    commits: AtomicU64,
}

/// What has become of a transaction by the time one of its sessions ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The session waits for the commit.
    Prepared,
    /// It was committed without this session.
    TooLate,
}

/// A commit.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    transaction: String,
    sessions: Vec<String>,
}

impl Records {
    pub(super) fn new(sink: &Path, faults: Faults) -> Self {
        Self { sink: sink.to_owned(), faults, commits: AtomicU64::new(0) }
    }

    /// A session has ended as it should, and all of its list is durable.
    pub(super) fn prepare(&self, key: &str, session: &str) -> io::Result<Standing> {
        let folder = self.folder(key);
        self.make_folder(&folder)?;
        let marker = folder.join(session);
        self.write(&marker, key.as_bytes())?;
        self.sync(&folder)?;
        // Whoever commits looks for markers after the record; so one of the two sees the other.
        if read_record(&folder)?.is_none() {
            return Ok(Standing::Prepared);
        }
        fs::remove_file(marker)?;
        Ok(Standing::TooLate)
    }

    /// Closes these sessions with 0 and all others of the transaction with [`GIVEN_UP`]; or, where it is committed
    /// already, those that it was committed with.
    pub(super) fn commit(&self, key: &str, sessions: &[String]) -> Result<(), Refusal> {
        let folder = self.folder(key);
        if read_record(&folder)?.is_none() {
            for session in sessions {
                self.check_prepared(&folder, session)?;
            }
            self.make_folder(&folder)?;
            self.write_record(&folder, &Record { transaction: key.to_owned(), sessions: sessions.to_vec() })?;
        }
        self.settle(&folder)?;
        if self.commits.fetch_add(1, Ordering::Relaxed) % LOOK_EVERY == LOOK_EVERY - 1
            && let Err(error) = self.prune(SystemTime::now())
        {
            // The commit is done all the same.
            tracing::warn!(%error, "records of old transactions stay");
        }
        Ok(())
    }

    /// Closes prepared sessions with [`GIVEN_UP`]: these, or all. A commit stays.
    pub(super) fn abort(&self, key: &str, sessions: Option<&[String]>) -> Result<(), Refusal> {
        let folder = self.folder(key);
        if read_record(&folder)?.is_some() {
            return self.settle(&folder);
        }
        for session in markers(&folder)? {
            if sessions.is_none_or(|named| named.contains(&session)) {
                self.close(&folder, &session, GIVEN_UP)?;
            }
        }
        // It stays where sessions are left.
        let _ = fs::remove_dir(&folder);
        Ok(())
    }

    /// The sessions that a transaction was committed with; `None` where it has no record.
    pub(super) fn committed(&self, key: &str) -> io::Result<Option<Vec<String>>> {
        Ok(read_record(&self.folder(key))?.map(|record| record.sessions))
    }

    /// The sessions of a transaction that are prepared and not closed yet.
    pub(super) fn prepared(&self, key: &str) -> io::Result<Vec<String>> {
        markers(&self.folder(key))
    }

    /// Brings to its end what a server that crashed had committed.
    pub(super) fn redo(&self) -> io::Result<()> {
        let folders = match fs::read_dir(self.sink.join(FOLDER)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            folders => folders?,
        };
        for folder in folders {
            let folder = folder?.path();
            if read_record(&folder)?.is_none() {
                continue;
            }
            match self.settle(&folder) {
                Ok(()) => {}
                // Another server is at it.
                Err(Refusal::StillOpen(session) | Refusal::Unknown(session)) => {
                    tracing::info!(session, "a committed session is in use; it is closed later");
                }
                Err(Refusal::Storage(error)) => return Err(error),
            }
        }
        self.prune(SystemTime::now())
    }

    /// Removes the records of transactions that cannot be run again.
    fn prune(&self, now: SystemTime) -> io::Result<()> {
        let top = self.sink.join(FOLDER);
        let (mut batches, mut over) = (Vec::new(), Vec::new());
        let mut newest: HashMap<String, u64> = HashMap::new();
        for entry in fs::read_dir(&top)? {
            let folder = entry?.path();
            if folder.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(OLD.as_bytes())) {
                // Whoever began to remove it has crashed.
                gone(fs::remove_dir_all(folder))?;
                continue;
            }
            let Some(Record { transaction, .. }) = read_record(&folder)? else { continue };
            match origin(&transaction) {
                Origin::MicroBatch { query, number } => {
                    let last = newest.entry(query.to_owned()).or_default();
                    *last = number.max(*last);
                    batches.push((query.to_owned(), number, folder));
                }
                Origin::Job if is_old(&folder, now)? => over.push(folder),
                Origin::Job | Origin::Named => {}
            }
        }
        let is_over =
            |query: &str, number: u64| newest.get(query).is_some_and(|last| number.saturating_add(KEPT) <= *last);
        over.extend(
            batches.into_iter().filter(|(query, number, _)| is_over(query, *number)).map(|(_, _, folder)| folder),
        );
        for folder in over {
            // One with markers is not settled: somebody has to close those sessions first.
            if markers(&folder)?.is_empty() {
                self.remove(&top, &folder)?;
            }
        }
        Ok(())
    }

    /// At once as far as anybody sees: a folder without its record would look like a transaction that is not committed.
    fn remove(&self, top: &Path, folder: &Path) -> io::Result<()> {
        let Some(name) = folder.file_name() else { return Ok(()) };
        let old = top.join(format!("{OLD}{}", name.to_string_lossy()));
        self.faults.check(Step::Rename, folder)?;
        gone(fs::rename(folder, &old))?;
        self.faults.check(Step::Rename, &old)?;
        gone(fs::remove_dir_all(old))
    }

    /// Last lines for the sessions of a transaction that is committed.
    fn settle(&self, folder: &Path) -> Result<(), Refusal> {
        let Some(record) = read_record(folder)? else { return Ok(()) };
        for session in markers(folder)? {
            let code = if record.sessions.contains(&session) { ErrorCode::NoError } else { GIVEN_UP };
            self.close(folder, &session, code)?;
        }
        Ok(())
    }

    fn check_prepared(&self, folder: &Path, session: &str) -> Result<(), Refusal> {
        if fs::exists(folder.join(session))? {
            return Ok(());
        }
        match File::open(self.sink.join(session).join(LOG)) {
            // Whoever has a session open holds its lock.
            Ok(log) if log.try_lock().is_err() => Err(Refusal::StillOpen(session.to_owned())),
            Ok(_) => Err(Refusal::Unknown(session.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Refusal::Unknown(session.to_owned())),
            Err(error) => Err(error.into()),
        }
    }

    /// The last line of a prepared session, durable; then its marker goes.
    fn close(&self, folder: &Path, session: &str, code: ErrorCode) -> Result<(), Refusal> {
        let path = self.sink.join(session).join(LOG);
        match OpenOptions::new().read(true).append(true).open(&path) {
            Ok(mut log) => {
                match log.try_lock() {
                    Err(fs::TryLockError::WouldBlock) => return Err(Refusal::StillOpen(session.to_owned())),
                    // A file system without locks.
                    Err(fs::TryLockError::Error(_)) | Ok(()) => {}
                }
                if !is_closed(&mut log)? {
                    remove_half_a_line(&mut log)?;
                    self.faults.check(Step::Append, &path)?;
                    log.write_all(&record::closed(code))?;
                }
                self.faults.check(Step::Sync, &path)?;
                log.sync_data()?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                tracing::warn!(session, "a prepared session is not there any more");
            }
            Err(error) => return Err(error.into()),
        }
        let marker = folder.join(session);
        self.faults.check(Step::Rename, &marker)?;
        fs::remove_file(marker)?;
        Ok(())
    }

    fn folder(&self, key: &str) -> PathBuf {
        self.sink.join(FOLDER).join(hex(&Sha256::digest(key.as_bytes())))
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        if !folder.is_dir() {
            self.faults.check(Step::Create, folder)?;
            fs::create_dir_all(folder)?;
            self.sync(&self.sink.join(FOLDER))?;
            self.sync(&self.sink)?;
        }
        Ok(())
    }

    /// Puts the record into place, unless there is one.
    fn write_record(&self, folder: &Path, record: &Record) -> io::Result<()> {
        let (path, new) = (folder.join(RECORD), folder.join(format!(".new-{}", std::process::id())));
        let _ = fs::remove_file(&new);
        let written = self.write(&new, &serde_json::to_vec(record)?).and_then(|()| {
            self.faults.check(Step::Rename, &path)?;
            match fs::hard_link(&new, &path) {
                // Another server was faster: its word counts.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                linked => linked,
            }
        });
        let _ = fs::remove_file(&new);
        written?;
        self.sync(folder)
    }

    fn write(&self, path: &Path, octets: &[u8]) -> io::Result<()> {
        self.faults.check(Step::Create, path)?;
        let mut file = File::create(path)?;
        self.faults.check(Step::Write, path)?;
        file.write_all(octets)?;
        self.faults.check(Step::Sync, path)?;
        file.sync_data()
    }

    fn sync(&self, folder: &Path) -> io::Result<()> {
        self.faults.check(Step::Sync, folder)?;
        File::open(folder)?.sync_all()
    }
}

fn read_record(folder: &Path) -> io::Result<Option<Record>> {
    match fs::read(folder.join(RECORD)) {
        Ok(octets) => Ok(Some(serde_json::from_slice(&octets)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a transaction was committed so long ago that its job is over.
fn is_old(folder: &Path, now: SystemTime) -> io::Result<bool> {
    match fs::metadata(folder.join(RECORD)).and_then(|record| record.modified()) {
        Ok(committed) => Ok(now.duration_since(committed).unwrap_or_default() >= FINISHED),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whatever another server has removed meanwhile is gone as well.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// The sessions that are prepared.
fn markers(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        found.extend(entry?.file_name().into_string().ok().filter(|name| is_session(name)));
    }
    found.sort_unstable();
    Ok(found)
}

/// What a server that crashed has left behind the last whole line.
fn remove_half_a_line(log: &mut File) -> io::Result<()> {
    let length = log.metadata()?.len();
    // Only a last line can be half there: the others were durable before the session was prepared.
    let from = length.saturating_sub(u64::try_from(record::closed(GIVEN_UP).len()).unwrap_or(0));
    log.seek(SeekFrom::Start(from))?;
    let mut tail = Vec::new();
    log.read_to_end(&mut tail)?;
    if let Some(last) = tail.iter().rposition(|octet| *octet == b'\n')
        && last.saturating_add(1) < tail.len()
    {
        let whole = u64::try_from(last.saturating_add(1)).unwrap_or(u64::MAX);
        log.set_len(from.saturating_add(whole))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
