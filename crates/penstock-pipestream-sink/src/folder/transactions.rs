//! Transactions of a folder sink, on its disk.
//!
//! ```text
//! DIR/.transactions/SHA256(KEY)/OWNER/SESSION         a session's end: it is prepared
//! DIR/.transactions/SHA256(KEY)/OWNER/committed.json  {"transaction": KEY, "sessions": [ID, ...], "owner": KIND}: never changed
//! DIR/.transactions/.old-SHA256(KEY)-OWNER            a record that is being removed
//! ```
//!
//! Files of transactions without an owner (`owner.rs`) are in `SHA256(KEY)` itself, where all files
//! were before owners existed.
//!
//! A session's marker is created once all lines of its list are durable. The record is linked into
//! place, whole or not at all, and once per transaction, even if several servers use the folder:
//! from then on the transaction is committed. The following steps (writing the lists' last lines,
//! then removing the markers) are repeated by each server that finds a record next to markers: at
//! the next order, or the next start.
//!
//! An abort removes the markers, then looks for a record again, and closes the lists only if there
//! is none. A commit checks its sessions again once its record exists: if one was given up, none of
//! them is read.
//!
//! Records of transactions that cannot be run again ([`origin`]) are removed at a start and from
//! time to time.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use penstock_io::hex;
use penstock_pipestream::ErrorCode;
use sha2::{Digest as _, Sha256};

use crate::folder::disk::{Faults, Step};
use crate::folder::lists::sessions_of;
use crate::folder::recover::closed_with;
use crate::format::names::is_session_folder;
use crate::format::{LOG, RECORD, TRANSACTIONS, encode};
use crate::transactions::owner::is_owner_folder;
use crate::transactions::{
    GIVEN_UP, JOB_RETENTION, KEPT_BATCHES, Origin, PrepareOutcome, Prepared, Record, Refusal, Transaction,
    committed_by_another, origin, prepared_by_another, resolve,
};

/// Prefix of the name of a folder that is being removed.
const OLD: &str = ".old-";
/// Number of commits between two searches for records that may be removed.
const PRUNE_INTERVAL: u64 = 1_000;

/// The transactions of a sink.
#[derive(Debug)]
pub(super) struct TransactionLog {
    sink: PathBuf,
    faults: Faults,
    commits: AtomicU64,
}

impl TransactionLog {
    pub(super) fn new(sink: &Path, faults: Faults) -> Self {
        Self { sink: sink.to_owned(), faults, commits: AtomicU64::new(0) }
    }

    /// Prepare a session that has ended properly and whose list is entirely durable. `session` is
    /// the name of its folder.
    pub(super) fn prepare(&self, of: &Transaction, session: &str) -> io::Result<PrepareOutcome> {
        let folder = self.folder(of);
        self.make_folder(&folder)?;
        let marker = folder.join(session);
        match self.write(&marker, of.key.as_bytes()) {
            // Another server has removed the folder, because it was empty.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.make_folder(&folder)?;
                self.write(&marker, of.key.as_bytes())?;
            }
            written => written?,
        }
        self.sync(&folder)?;
        // A commit looks for markers after it has written the record, so one of the two sees the
        // other.
        if read_record(&folder)?.is_none() {
            return Ok(PrepareOutcome::Prepared);
        }
        fs::remove_file(marker)?;
        Ok(PrepareOutcome::TooLate)
    }

    /// Close these sessions with 0, and all others of the transaction with [`GIVEN_UP`].
    /// Idempotent; if the transaction was committed with other sessions, change nothing.
    pub(super) fn commit(&self, of: &Transaction, sessions: &[String], exclusive: bool) -> Result<(), Refusal> {
        let folder = self.folder(of);
        match read_record(&folder)? {
            Some(record) if record.is_of(sessions) => {}
            Some(_) => return Err(Refusal::Committed),
            None => {
                self.check_others(of, exclusive)?;
                let prepared = self.check_prepared(of, sessions)?;
                self.make_folder(&folder)?;
                if !self.write_record(&folder, &Record::new(of, prepared))?
                    && !read_record(&folder)?.is_some_and(|record| record.is_of(sessions))
                {
                    return Err(Refusal::Committed);
                }
            }
        }
        self.settle(&folder)?;
        if self.commits.fetch_add(1, Ordering::Relaxed) % PRUNE_INTERVAL == PRUNE_INTERVAL - 1
            && let Err(error) = self.prune(SystemTime::now())
        {
            // The commit is done anyway.
            tracing::warn!(%error, "cannot remove records of old transactions: retried later");
        }
        Ok(())
    }

    /// Close prepared sessions with [`GIVEN_UP`]: these, or all. Do not undo a commit.
    pub(super) fn abort(&self, of: &Transaction, sessions: Option<&[String]>) -> Result<(), Refusal> {
        let folder = self.folder(of);
        if read_record(&folder)?.is_some() {
            return self.settle_for_abort(&folder);
        }
        let prepared = markers(&folder)?;
        let named = match sessions {
            None => prepared,
            Some(sessions) => {
                let (prepared, mut named) = (Prepared::new(&prepared), Vec::new());
                for session in sessions {
                    match prepared.folders(session) {
                        Some(folders) => named.extend(folders),
                        // A session that has not ended is not prepared, so there is nothing to close.
                        None => self.check_not_foreign(of, session)?,
                    }
                }
                named
            }
        };
        self.give_up(of, &folder, named)?;
        // The removal fails if the folder still contains sessions.
        let _ = fs::remove_dir(&folder);
        let _ = fs::remove_dir(self.name_folder(&of.key));
        Ok(())
    }

    /// Close prepared sessions that a commit can no longer include. If there is a record by then,
    /// leave them to its commit.
    fn give_up(&self, of: &Transaction, folder: &Path, sessions: Vec<String>) -> Result<(), Refusal> {
        let mut ours = Vec::new();
        for session in sessions {
            let marker = folder.join(&session);
            self.faults.check(Step::Rename, &marker)?;
            match fs::remove_file(marker) {
                Ok(()) => ours.push(session),
                // Another order handles this session.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        if ours.is_empty() {
            return Ok(());
        }
        self.sync(folder)?;
        if read_record(folder)?.is_some() {
            self.mark(of, folder, &ours)?;
            return self.settle_for_abort(folder);
        }
        for (at, session) in ours.iter().enumerate() {
            if let Err(refusal) = self.close_list(session, GIVEN_UP) {
                // Prepare the sessions again, so that the abort can be repeated.
                self.mark(of, folder, ours.get(at..).unwrap_or_default())?;
                return Err(refusal);
            }
        }
        Ok(())
    }

    fn mark(&self, of: &Transaction, folder: &Path, sessions: &[String]) -> io::Result<()> {
        for session in sessions {
            self.write(&folder.join(session), of.key.as_bytes())?;
        }
        self.sync(folder)
    }

    /// Settle an abort against a record. An abort of a committed transaction changes nothing, and
    /// an abort of one that was given up has already succeeded.
    fn settle_for_abort(&self, folder: &Path) -> Result<(), Refusal> {
        match self.settle(folder) {
            Err(Refusal::GivenUp) => Ok(()),
            settled => settled,
        }
    }

    /// Return the sessions with which a transaction was committed, for each owner that has
    /// committed it.
    pub(super) fn committed(&self, key: &str) -> io::Result<Vec<Vec<String>>> {
        let mut committed = Vec::new();
        for folder in owners(&self.name_folder(key))? {
            committed.extend(read_record(&folder)?.map(|record| record.sessions));
        }
        Ok(committed)
    }

    /// Return the sessions of a transaction that are prepared and not closed yet, of all owners.
    pub(super) fn prepared(&self, key: &str) -> io::Result<Vec<String>> {
        let mut prepared = Vec::new();
        for folder in owners(&self.name_folder(key))? {
            prepared.extend(markers(&folder)?);
        }
        Ok(prepared)
    }

    /// Refuse a first commit if another owner's record shows that the rows may already exist.
    fn check_others(&self, of: &Transaction, exclusive: bool) -> Result<(), Refusal> {
        for folder in owners(&self.name_folder(&of.key))? {
            let Some(record) = read_record(&folder)? else { continue };
            if record.has_no_owner() || exclusive {
                return Err(committed_by_another(&record));
            }
        }
        Ok(())
    }

    /// Return the folders of these sessions, or refuse the commit if one is not prepared.
    fn check_prepared(&self, of: &Transaction, sessions: &[String]) -> Result<Vec<String>, Refusal> {
        let missing = match resolve(sessions, &markers(&self.folder(of))?) {
            Ok(folders) => return Ok(folders),
            Err(missing) => missing,
        };
        self.check_not_foreign(of, &missing)?;
        for session in sessions_of(&self.sink, &missing)? {
            match File::open(self.sink.join(session).join(LOG)) {
                // A server locks the list of each open session.
                Ok(log) if log.try_lock().is_err() => return Err(Refusal::StillOpen(missing)),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Refusal::Unknown(missing))
    }

    /// Refuse a session that another owner has prepared.
    fn check_not_foreign(&self, of: &Transaction, session: &str) -> Result<(), Refusal> {
        let own = self.folder(of);
        for folder in owners(&self.name_folder(&of.key))?.into_iter().filter(|folder| *folder != own) {
            if resolve(&[session.to_owned()], &markers(&folder)?).is_ok() {
                return Err(prepared_by_another(session));
            }
        }
        Ok(())
    }

    /// Finish the commits of servers that crashed.
    pub(super) fn redo(&self) -> io::Result<()> {
        for name in folders(&self.sink.join(TRANSACTIONS))? {
            for folder in owners(&name)? {
                match read_record(&folder) {
                    Ok(Some(_)) => {}
                    Ok(None) => continue,
                    // The damage concerns one transaction, and is reported to clients that ask for
                    // it.
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                        tracing::error!(%error, "cannot finish a committed transaction: its record is damaged");
                        continue;
                    }
                    Err(error) => return Err(error),
                }
                match self.settle(&folder) {
                    Ok(()) => {}
                    // Another server handles the session.
                    Err(Refusal::StillOpen(session) | Refusal::Unknown(session)) => {
                        tracing::info!(session, "a committed session is still open: it is closed later");
                    }
                    Err(Refusal::Storage(error)) => return Err(error),
                    // No session of this record was committed.
                    Err(Refusal::Committed | Refusal::GivenUp | Refusal::Refused(_)) => {}
                }
            }
        }
        self.prune(SystemTime::now())
    }

    /// Remove the records of transactions that cannot be run again.
    fn prune(&self, now: SystemTime) -> io::Result<()> {
        let top = self.sink.join(TRANSACTIONS);
        let (mut batches, mut over) = (Vec::new(), Vec::new());
        // The newest batch by owner and query, because an owner's commit must not remove another's
        // record.
        let mut newest: HashMap<(Option<String>, String), u64> = HashMap::new();
        for name in folders(&top)? {
            if is_old_name(&name) {
                // A server crashed while it was removing the folder.
                ignore_missing(fs::remove_dir_all(&name))?;
                remove_if_empty(&top, &name);
                continue;
            }
            for folder in owners(&name)? {
                let record = match read_record(&folder) {
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
                    record => record?,
                };
                let Some(Record { transaction, .. }) = record else { continue };
                match origin(&transaction) {
                    Origin::MicroBatch { query, number } => {
                        let owner = folder.file_name().filter(|_| folder != name);
                        let query = (owner.map(|owner| owner.to_string_lossy().into_owned()), query.to_owned());
                        let last = newest.entry(query.clone()).or_default();
                        *last = number.max(*last);
                        batches.push((query, number, folder));
                    }
                    Origin::Job if is_old(&folder, now)? => over.push(folder),
                    Origin::Job | Origin::Named => {}
                }
            }
        }
        let is_over =
            |query: &_, number: u64| newest.get(query).is_some_and(|last| number.saturating_add(KEPT_BATCHES) <= *last);
        over.extend(
            batches.into_iter().filter(|(query, number, _)| is_over(query, *number)).map(|(_, _, folder)| folder),
        );
        for folder in over {
            // A record with markers is not settled: the marked sessions have to be closed first.
            if markers(&folder)?.is_empty() {
                self.remove(&top, &folder)?;
            }
        }
        Ok(())
    }

    /// Remove a record in one step for other servers: a folder without its record would look like a
    /// transaction that is not committed.
    fn remove(&self, top: &Path, folder: &Path) -> io::Result<()> {
        if folder.parent() == Some(top) && owners(folder)?.len() > 1 {
            // The folders of owners stay.
            self.faults.check(Step::Rename, folder)?;
            return ignore_missing(fs::remove_file(folder.join(RECORD)));
        }
        let name = folder.strip_prefix(top).unwrap_or(folder).to_string_lossy().replace(['/', '\\'], "-");
        let old = top.join(format!("{OLD}{name}"));
        self.faults.check(Step::Rename, folder)?;
        ignore_missing(fs::rename(folder, &old))?;
        self.faults.check(Step::Rename, &old)?;
        ignore_missing(fs::remove_dir_all(&old))?;
        remove_if_empty(top, &old);
        Ok(())
    }

    /// Write the last lines of a committed transaction's sessions, if there is a record.
    fn settle(&self, folder: &Path) -> Result<(), Refusal> {
        let Some(record) = read_record(folder)? else { return Ok(()) };
        let markers = markers(folder)?;
        let given_up = self.is_given_up(&record, &markers)?;
        let committed: HashSet<&String> = record.sessions.iter().collect();
        for session in &markers {
            let committed = !given_up && committed.contains(session);
            self.close_list(session, if committed { ErrorCode::NoError } else { GIVEN_UP })?;
            let marker = folder.join(session);
            self.faults.check(Step::Rename, &marker)?;
            ignore_missing(fs::remove_file(marker))?;
        }
        if given_up { Err(Refusal::GivenUp) } else { Ok(()) }
    }

    /// Return whether an abort closed a session of the record before it could see the record.
    /// Return [`Refusal::StillOpen`] while an abort may still decide: the caller has to repeat the
    /// check.
    fn is_given_up(&self, record: &Record, markers: &[String]) -> Result<bool, Refusal> {
        let mut undecided = None;
        for session in &record.sessions {
            let mut log = match File::open(self.sink.join(session).join(LOG)) {
                Ok(log) => log,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error.into()),
            };
            match closed_with(&mut log)? {
                Some(code) if code == ErrorCode::NoError.code() => {}
                Some(_) => return Ok(true),
                // `markers` is sorted.
                None if markers.binary_search(session).is_ok() => {}
                None => undecided = Some(session.clone()),
            }
        }
        undecided.map_or(Ok(false), |session| Err(Refusal::StillOpen(session)))
    }

    /// Close the list of a prepared session durably.
    fn close_list(&self, session: &str, code: ErrorCode) -> Result<(), Refusal> {
        let path = self.sink.join(session).join(LOG);
        match OpenOptions::new().read(true).append(true).open(&path) {
            Ok(mut log) => {
                match log.try_lock() {
                    Err(fs::TryLockError::WouldBlock) => return Err(Refusal::StillOpen(session.to_owned())),
                    // The file system may have no locks.
                    Err(fs::TryLockError::Error(_)) | Ok(()) => {}
                }
                let open = match closed_with(&mut log)? {
                    None => {
                        remove_half_a_line(&mut log)?;
                        let length = log.metadata()?.len();
                        self.faults.check(Step::Append, &path)?;
                        log.write_all(&encode::closed(code))?;
                        Some(length)
                    }
                    Some(closed) if code == ErrorCode::NoError && closed != code.code() => {
                        return Err(Refusal::GivenUp);
                    }
                    Some(_) => None,
                };
                let synced = self.faults.check(Step::Sync, &path).and_then(|()| log.sync_data());
                if let (Err(_), Some(length)) = (&synced, open) {
                    // The list must not look closed when the order is repeated, because a later
                    // sync would not report this failure.
                    log.set_len(length)?;
                }
                synced?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                tracing::warn!(session, "a prepared session no longer exists");
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn name_folder(&self, key: &str) -> PathBuf {
        self.sink.join(TRANSACTIONS).join(hex::encode(Sha256::digest(key.as_bytes())))
    }

    fn folder(&self, of: &Transaction) -> PathBuf {
        let folder = self.name_folder(&of.key);
        match of.owner.folder() {
            Some(owner) => folder.join(owner),
            None => folder,
        }
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        if !folder.is_dir() {
            self.faults.check(Step::Create, folder)?;
            fs::create_dir_all(folder)?;
            if let Some(parent) = folder.parent() {
                self.sync(parent)?;
            }
            self.sync(&self.sink.join(TRANSACTIONS))?;
            self.sync(&self.sink)?;
        }
        Ok(())
    }

    /// Link the record into place, unless there is one. Return whether this call linked it.
    fn write_record(&self, folder: &Path, record: &Record) -> io::Result<bool> {
        // No other commit may write to this file, whether in this process or in another container
        // with a process of the same ID, so the name is random.
        let random = penstock_io::tls::random::<8>().map_err(|error| io::Error::other(error.to_string()))?;
        let (path, new) = (folder.join(RECORD), folder.join(format!(".new-{}", hex::encode(random))));
        let written = self.write(&new, &serde_json::to_vec(record)?).and_then(|()| {
            self.faults.check(Step::Rename, &path)?;
            match fs::hard_link(&new, &path) {
                // Another server was faster, and its record counts.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
                linked => linked.map(|()| true),
            }
        });
        let _ = fs::remove_file(&new);
        let written = written?;
        self.sync(folder)?;
        Ok(written)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.faults.check(Step::Create, path)?;
        let mut file = File::create(path)?;
        self.faults.check(Step::Write, path)?;
        file.write_all(bytes)?;
        self.faults.check(Step::Sync, path)?;
        file.sync_data()
    }

    fn sync(&self, folder: &Path) -> io::Result<()> {
        self.faults.check(Step::Sync, folder)?;
        File::open(folder)?.sync_all()
    }
}

fn read_record(folder: &Path) -> io::Result<Option<Record>> {
    let path = folder.join(RECORD);
    match fs::read(&path) {
        Ok(bytes) => match serde_json::from_slice(&bytes) {
            Ok(record) => Ok(Some(record)),
            Err(error) => {
                let message = format!(
                    "{} is damaged: {error}; put a copy that is whole into its \
                     place, or remove it if its folder contains no other file",
                    path.display()
                );
                Err(io::Error::new(io::ErrorKind::InvalidData, message))
            }
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Return the paths in a folder; none if the folder does not exist.
fn folders(top: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(top) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.map(|entry| Ok(entry?.path())).collect(),
    }
}

/// Return the folders of a transaction's owners; the first is the one for no owner.
fn owners(name: &Path) -> io::Result<Vec<PathBuf>> {
    let is_owner = |path: &PathBuf| path.file_name().and_then(OsStr::to_str).is_some_and(is_owner_folder);
    let mut owners = vec![name.to_owned()];
    owners.extend(folders(name)?.into_iter().filter(is_owner));
    Ok(owners)
}

/// Remove the folder of a transaction's name if it is empty, after an owner's folder in it was
/// removed as `old`.
fn remove_if_empty(top: &Path, old: &Path) {
    let name = old.file_name().and_then(OsStr::to_str).and_then(|old| old.strip_prefix(OLD));
    if let Some((name, _)) = name.and_then(|name| name.split_once('-')) {
        let _ = fs::remove_dir(top.join(name));
    }
}

/// Return whether a folder is being removed.
fn is_old_name(folder: &Path) -> bool {
    folder.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(OLD.as_bytes()))
}

/// Return whether a record is so old that its job is over.
fn is_old(folder: &Path, now: SystemTime) -> io::Result<bool> {
    match fs::metadata(folder.join(RECORD)).and_then(|record| record.modified()) {
        Ok(committed) => Ok(now.duration_since(committed).unwrap_or_default() >= JOB_RETENTION),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Ignore an error because another server has already removed the path.
fn ignore_missing(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Return the folders of the prepared sessions, sorted.
fn markers(folder: &Path) -> io::Result<Vec<String>> {
    let names = folders(folder)?.into_iter().filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
    let mut found: Vec<String> = names.filter(|name| is_session_folder(name)).collect();
    found.sort_unstable();
    Ok(found)
}

/// Remove half a line at the end, which a server that crashed has left.
fn remove_half_a_line(log: &mut File) -> io::Result<()> {
    let length = log.metadata()?.len();
    // Only a last line can be incomplete: all lines before it were durable before the session was
    // prepared.
    let from = length.saturating_sub(u64::try_from(encode::closed(GIVEN_UP).len()).unwrap_or(0));
    log.seek(SeekFrom::Start(from))?;
    let mut tail = Vec::new();
    log.read_to_end(&mut tail)?;
    if let Some(last) = tail.iter().rposition(|byte| *byte == b'\n')
        && last.saturating_add(1) < tail.len()
    {
        let whole = u64::try_from(last.saturating_add(1)).unwrap_or(u64::MAX);
        log.set_len(from.saturating_add(whole))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
