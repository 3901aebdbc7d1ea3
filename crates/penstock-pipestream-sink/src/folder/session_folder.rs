use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_pipestream::{EntityKey, ErrorCode, Reason, ScopeKey};
use penstock_pipestream_net::port::SinkEvent;
use tokio::sync::oneshot;

use crate::entries::{Entries, VerifiedPayload};
use crate::folder::disk::{Disk, Faults, Step};
use crate::folder::lists::lock;
use crate::folder::recover::remove_hidden;
use crate::folder::restored_session::RestoredSession;
use crate::folder::stored::StoredPayload;
use crate::format::LOG;
use crate::format::encode::{self, PayloadProperties};
use crate::format::names::{id_exhausted, payload_names, session_folders};
use crate::transactions::{MAX_ORDER, TransactionCommand};

/// A session's folder, and the session's uncommitted entities.
#[derive(Debug)]
pub(super) struct SessionFolder {
    pub(super) id: Arc<str>,
    /// The name of the folder: the session's ID, followed by the number of its earlier uses, if
    /// any.
    pub(super) name: String,
    pub(super) entries: Entries<StoredPayload>,
    path: PathBuf,
    log: File,
    /// Scopes whose folders exist.
    scopes: HashSet<ScopeKey>,
    /// Files and folders that changed since the last sync.
    touched: HashSet<PathBuf>,
    done: oneshot::Sender<()>,
}

/// The lines that were appended to a list and are not durable yet.
pub(super) struct UnsyncedLines {
    /// The list's length without them.
    length: u64,
    /// The FAILED lines among them.
    lines: Vec<u8>,
}

impl VerifiedPayload for StoredPayload {
    fn unnamed(&self) -> PayloadProperties {
        PayloadProperties { file: None, bytes: self.bytes, sha256: self.sha256, reference: self.reference.clone() }
    }

    fn named_files(&self) -> Vec<String> {
        Vec::new()
    }
}

impl SessionFolder {
    /// Create the folder and its list, and lock the list while the session is open.
    pub(super) fn create(
        sink: &Path,
        faults: &Faults,
        id: &Arc<str>,
        entries: Entries<StoredPayload>,
        done: oneshot::Sender<()>,
    ) -> io::Result<Self> {
        let (name, path) = make_session(sink, faults, id)?;
        let path = path.as_path();
        let log = OpenOptions::new().append(true).create_new(true).open(path.join(LOG))?;
        lock(&log)?;
        File::open(path)?.sync_all()?;
        File::open(sink)?.sync_all()?;
        Ok(Self {
            id: Arc::clone(id),
            name,
            entries,
            path: path.to_owned(),
            log,
            scopes: HashSet::new(),
            touched: HashSet::new(),
            done,
        })
    }

    /// Open the folder of a session that an earlier process had open. The client sends entities
    /// again that were being received.
    pub(super) fn reopen(
        sink: &Path,
        faults: &Faults,
        id: &Arc<str>,
        mut found: RestoredSession,
        mut entries: Entries<StoredPayload>,
        done: oneshot::Sender<()>,
    ) -> io::Result<Self> {
        let name = found.folder.clone();
        let path = sink.join(&name);
        if !path.is_dir() {
            return Self::create(sink, faults, id, entries, done);
        }
        let log = OpenOptions::new().read(true).append(true).create(true).open(path.join(LOG))?;
        lock(&log)?;
        remove_hidden(&path)?;
        let log = found.repair(sink, log)?;
        if found.is_closed() {
            entries.mark_listed();
        }
        entries.restore(found.membership.clone(), found.into_entities());
        Ok(Self { id: Arc::clone(id), name, entries, path, log, scopes: HashSet::new(), touched: HashSet::new(), done })
    }

    /// Apply an event of the driver. Return the entity for which the next commit has work.
    pub(super) fn apply(&mut self, event: SinkEvent) -> Option<EntityKey> {
        let due = self.entries.apply(event);
        for file in self.entries.take_discarded() {
            self.remove(&file);
        }
        due
    }

    fn remove(&self, file: &str) {
        let Some(path) = self.path.parent().map(|sink| sink.join(file)) else { return };
        if let Err(error) = fs::remove_file(&path) {
            tracing::warn!(path = %path.display(), %error, "cannot remove the file of a failed entity");
        }
    }

    /// Return the temporary file that has to be made durable before this entity can be placed.
    pub(super) fn unsynced(&self, key: EntityKey) -> Option<PathBuf> {
        match self.entries.waiting(key)? {
            StoredPayload { temp: Some(temp), synced: false, .. } => Some(temp.path().to_owned()),
            StoredPayload { .. } => None,
        }
    }

    /// Parse the order in an entity, if the entity is one.
    pub(super) fn order(&self, key: EntityKey) -> Option<Result<TransactionCommand, Reason>> {
        let header = self.entries.order(key)?;
        let StoredPayload { temp, bytes, .. } = self.entries.waiting(key)?;
        if *bytes > MAX_ORDER {
            let message = format!("an order of {bytes} bytes is more than the limit of {MAX_ORDER}");
            return Some(Err(Reason { code: ErrorCode::EntityTooLarge, message }));
        }
        let payload = temp.as_ref().map_or_else(|| Ok(Vec::new()), |temp| fs::read(temp.path()));
        Some(match payload {
            Ok(payload) => TransactionCommand::parse(&header, &payload, self.entries.certificate()),
            Err(error) => {
                let message = format!("the sink cannot read the order: {error}");
                Err(Reason { code: ErrorCode::InternalError, message })
            }
        })
    }

    /// Give a stored payload its name.
    pub(super) fn place(&mut self, key: EntityKey, disk: &Disk) -> io::Result<()> {
        let Some(stored) = self.entries.take_waiting(key) else { return Ok(()) };
        let mut placed = stored.unnamed();
        if let Some(temp) = stored.temp {
            let (scope, name) = payload_names(key);
            let folder = self.path.join(&scope);
            if !self.scopes.contains(&key.scope_key()) {
                fs::create_dir_all(&folder)?;
                self.scopes.insert(key.scope_key());
                self.touched.insert(self.path.clone());
            }
            let message = placed.reference.as_ref().and_then(|referred| referred.message_file(&name));
            let message = message.map(|(message_name, bytes)| (folder.join(message_name), bytes));
            let written = message.as_ref().map_or(Ok(()), |(path, bytes)| fs::write(path, bytes));
            let message = message.map(|(path, _)| path);
            if let Err(error) = written.and_then(|()| disk.rename(temp.path(), &folder.join(&name))) {
                // No line will name the message.
                if let Some(path) = message {
                    let _ = fs::remove_file(path);
                }
                return Err(error);
            }
            temp.keep();
            self.touched.extend(message);
            self.touched.insert(folder);
            placed.file = Some(format!("{}/{scope}/{name}", self.name));
        }
        self.entries.placed(key, placed);
        Ok(())
    }

    /// Append these lines and the FAILED ones, all or none.
    pub(super) fn append(&mut self, complete: &[u8], disk: &Disk) -> io::Result<()> {
        let failed = self.entries.failed_lines();
        if failed.is_empty() && complete.is_empty() {
            return Ok(());
        }
        let before = self.log.metadata()?.len();
        let path = self.path.join(LOG);
        let mut append = || {
            disk.faults().check(Step::Append, &path)?;
            self.log.write_all(failed)?;
            self.log.write_all(complete)
        };
        if let Err(error) = append() {
            self.truncate(before);
            return Err(error);
        }
        self.entries.clear_failed_lines();
        self.touched.insert(path);
        Ok(())
    }

    /// Append the waiting FAILED lines and the last line of a session that cannot change any more.
    /// Return the lines that have to be written again if they cannot be made durable.
    pub(super) fn close_list(&mut self, disk: &Disk) -> io::Result<UnsyncedLines> {
        let unsynced =
            UnsyncedLines { length: self.log.metadata()?.len(), lines: self.entries.failed_lines().to_vec() };
        self.append(&encode::closed(ErrorCode::NoError), disk)?;
        Ok(unsynced)
    }

    /// Undo [`close_list`](Self::close_list), so that its lines are written again: they may be
    /// lost, and no later sync would report it.
    pub(super) fn reopen_list(&mut self, unsynced: UnsyncedLines) {
        self.truncate(unsynced.length);
        self.entries.requeue_failed_lines(unsynced.lines);
    }

    /// Truncate the list to a length, after which it has half a line or lines that may be lost.
    fn truncate(&mut self, length: u64) {
        if let Err(error) = self.log.set_len(length) {
            tracing::error!(session = %self.id, %error, "cannot truncate {LOG} to its last whole line");
            self.entries.mark_incomplete(format!("{LOG} ends in half a line that cannot be cut off: {error}"));
        }
    }

    /// Release the list, to which this process appends nothing more, and notify the driver.
    pub(super) fn finish(self) {
        let Self { done, log, entries, .. } = self;
        // The receiver of the notification may take the session over, so release its temporary files
        // and its lock first.
        drop((entries, log));
        // The receiver may have stopped waiting.
        let _ = done.send(());
    }

    /// Return the paths that must be durable before anything is reported.
    pub(super) fn take_touched(&mut self) -> Vec<PathBuf> {
        self.touched.drain().collect()
    }
}

/// Create a folder for a session, with the first unused name of its ID.
fn make_session(sink: &Path, faults: &Faults, id: &str) -> io::Result<(String, PathBuf)> {
    for name in session_folders(id) {
        let path = sink.join(&name);
        faults.check(Step::Create, &path)?;
        match fs::create_dir(&path) {
            Ok(()) => return Ok((name, path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(id_exhausted(id))
}
