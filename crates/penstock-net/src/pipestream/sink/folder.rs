use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_pipestream::{EntityHeader, EntityKey, ErrorCode, Reason, ScopeKey, Status};
use tokio::sync::oneshot;

use super::super::command::{Commands, Urgent};
use super::disk::{Disk, Step};
use super::record::{self, Placed};
use super::{Shared, SinkEvent, Stored};

/// The list of a session's entities.
pub(super) const LOG: &str = "entities.jsonl";

/// Headers of entities without a terminal status, for a whole session.
const MAX_HEADER_OCTETS: usize = 64 << 20;
/// FAILED lines that a full disk keeps waiting.
const MAX_WAITING_LINES: usize = 16 << 20;

/// An entity that is not terminal yet.
///
/// ```text
///  Receiving ──payload right──► Stored ──renamed──► Placed ──line written──► Delivered ──COMPLETE──► gone
///      └──────────── FAILED: files removed, line FAILED ────────────────────────┘
/// ```
///
/// A container stays Placed until it has been gathered.
#[derive(Debug)]
struct Entry {
    header: Arc<EntityHeader>,
    dehydrated: bool,
    gathered: Option<Status>,
    state: State,
}

#[derive(Debug)]
enum State {
    Receiving,
    Stored(Stored),
    Placed(Placed),
    Delivered(Placed),
}

/// A session's folder, and what is not committed in it yet.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) id: Arc<str>,
    path: PathBuf,
    log: File,
    commands: Commands,
    entries: HashMap<EntityKey, Entry>,
    header_octets: usize,
    /// Folders of scopes that are there.
    scopes: HashSet<ScopeKey>,
    /// Folders whose names changed since the last sync.
    touched: HashSet<PathBuf>,
    /// FAILED lines to be written. They stay here while the disk is full.
    failed_lines: Vec<u8>,
    /// The log lacks a line and must not be closed.
    incomplete: bool,
    closed: Option<ErrorCode>,
    _done: oneshot::Sender<()>,
}

/// An entity whose line is in the log, and not on disk for good yet.
pub(super) struct Delivery {
    pub(super) key: EntityKey,
    pub(super) header: Arc<EntityHeader>,
    pub(super) placed: Option<Placed>,
}

impl Folder {
    /// Makes the folder and its log, and locks the log as long as the session is open.
    pub(super) fn create(
        shared: &Shared,
        id: &Arc<str>,
        path: &Path,
        commands: Commands,
        done: oneshot::Sender<()>,
    ) -> io::Result<Self> {
        shared.faults.check(Step::Create, path)?;
        fs::create_dir(path)?;
        let log = OpenOptions::new().append(true).create_new(true).open(path.join(LOG))?;
        // Where a file system has no locks, nothing is cleaned up after a crash.
        if let Err(error) = log.lock()
            && error.kind() != io::ErrorKind::Unsupported
        {
            return Err(error);
        }
        File::open(path)?.sync_all()?;
        File::open(&shared.dir)?.sync_all()?;
        Ok(Self {
            id: Arc::clone(id),
            path: path.to_owned(),
            log,
            commands,
            entries: HashMap::new(),
            header_octets: 0,
            scopes: HashSet::new(),
            touched: HashSet::new(),
            failed_lines: Vec::new(),
            incomplete: false,
            closed: None,
            _done: done,
        })
    }

    /// Takes what the driver has seen. Gives the entities that have something to be committed now.
    pub(super) fn apply(&mut self, event: SinkEvent) -> Option<EntityKey> {
        match event {
            SinkEvent::Admitted { key, header, dehydrated } => {
                self.admitted(key, header, dehydrated);
                None
            }
            SinkEvent::Gathered { key, outcome } => {
                self.entries.get_mut(&key)?.gathered = Some(outcome);
                Some(key)
            }
            SinkEvent::Resolved { key, status: Status::Complete, .. } => {
                self.forget(key);
                None
            }
            SinkEvent::Resolved { key, parent_id, status, reason, header } => {
                self.failed(key, parent_id, status, reason.as_ref(), header);
                None
            }
            SinkEvent::Closed(code) => {
                self.closed = Some(code);
                None
            }
        }
    }

    fn admitted(&mut self, key: EntityKey, header: Arc<EntityHeader>, dehydrated: bool) {
        if self.entries.contains_key(&key) {
            // Another chunk of it.
            return;
        }
        self.header_octets = self.header_octets.saturating_add(weight(&header));
        self.entries.insert(key, Entry { header, dehydrated, gathered: None, state: State::Receiving });
        if self.header_octets > MAX_HEADER_OCTETS {
            let message = format!("the headers of open entities exceed the sink's limit of {MAX_HEADER_OCTETS} octets");
            self.commands.urge(Urgent::Fail { key, reason: Reason { code: ErrorCode::InternalError, message } });
        }
    }

    fn forget(&mut self, key: EntityKey) -> Option<Entry> {
        let entry = self.entries.remove(&key)?;
        self.header_octets = self.header_octets.saturating_sub(weight(&entry.header));
        Some(entry)
    }

    /// The session says that it failed: nothing of it stays but a line. What failed only because a part of it did has
    /// arrived itself, and keeps its file.
    fn failed(
        &mut self,
        key: EntityKey,
        parent_id: u32,
        status: Status,
        reason: Option<&Reason>,
        header: Option<Arc<EntityHeader>>,
    ) {
        let entry = self.forget(key);
        let arrived =
            entry.as_ref().is_some_and(|entry| entry.gathered.is_some_and(|outcome| outcome != Status::Complete))
                && reason.is_some_and(|reason| reason.code == ErrorCode::NoError);
        let payload = entry.as_ref().and_then(|entry| match &entry.state {
            State::Receiving => None,
            State::Stored(stored) => Some(Placed { file: None, bytes: stored.bytes, sha256: stored.sha256 }),
            State::Placed(placed) | State::Delivered(placed) if arrived => Some(placed.clone()),
            State::Placed(placed) | State::Delivered(placed) => {
                self.remove(placed);
                Some(Placed { file: None, ..*placed })
            }
        });
        let header = entry.map(|entry| entry.header).or(header);
        self.failed_lines.extend(record::failed(key, parent_id, header.as_deref(), payload.as_ref(), status, reason));
        if self.failed_lines.len() > MAX_WAITING_LINES && !self.incomplete {
            self.incomplete = true;
            let message = format!("{LOG} cannot be written");
            self.commands.urge(Urgent::Abort(Reason { code: ErrorCode::InternalError, message }));
        }
        if self.incomplete {
            self.failed_lines.clear();
        }
    }

    fn remove(&self, placed: &Placed) {
        let path = placed.file.as_ref().and_then(|file| Some(self.path.parent()?.join(file)));
        if let Some(path) = path
            && let Err(error) = fs::remove_file(&path)
        {
            tracing::warn!(path = %path.display(), %error, "the file of a failed entity stays");
        }
    }

    /// A payload is in its temporary file. False: the entity has failed meanwhile, and the file goes.
    pub(super) fn stored(&mut self, key: EntityKey, stored: Stored) -> bool {
        match self.entries.get_mut(&key) {
            Some(entry) if matches!(entry.state, State::Receiving) => {
                entry.state = State::Stored(stored);
                true
            }
            Some(_) | None => false,
        }
    }

    /// The temporary file that has to be made durable before this entity can be placed.
    pub(super) fn unsynced(&self, key: EntityKey) -> Option<PathBuf> {
        match &self.entries.get(&key)?.state {
            State::Stored(Stored { temp: Some(temp), synced: false, .. }) => Some(temp.path().to_owned()),
            State::Stored(_) | State::Receiving | State::Placed(_) | State::Delivered(_) => None,
        }
    }

    /// Gives a stored payload its name.
    pub(super) fn place(&mut self, key: EntityKey, disk: &Disk) -> io::Result<()> {
        let Some(entry) = self.entries.get_mut(&key) else { return Ok(()) };
        if !matches!(entry.state, State::Stored(_)) {
            return Ok(());
        }
        let State::Stored(stored) = std::mem::replace(&mut entry.state, State::Receiving) else { return Ok(()) };
        let mut placed = Placed { file: None, bytes: stored.bytes, sha256: stored.sha256 };
        if let Some(temp) = stored.temp {
            let scope = reused(u32::from(key.scope), key.scope_use);
            let name = reused(key.entity, key.entity_use);
            let folder = self.path.join(&scope);
            if !self.scopes.contains(&key.scope_key()) {
                fs::create_dir_all(&folder)?;
                self.scopes.insert(key.scope_key());
                self.touched.insert(self.path.clone());
            }
            disk.rename(temp.path(), &folder.join(&name))?;
            temp.keep();
            self.touched.insert(folder);
            placed.file = Some(format!("{}/{scope}/{name}", self.id));
        }
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.state = State::Placed(placed);
        }
        Ok(())
    }

    /// Tells the session that an entity cannot be stored.
    pub(super) fn give_up(&self, key: EntityKey, error: &io::Error) {
        let message = format!("the sink cannot store it: {error}");
        self.commands.urge(Urgent::Fail { key, reason: Reason { code: ErrorCode::InternalError, message } });
    }

    /// The entity's line, if it is time for it, appended to `lines`. A container that did not succeed is handed back
    /// without one: the session will say FAILED.
    pub(super) fn deliver(&mut self, key: EntityKey, lines: &mut Vec<u8>) -> Option<Delivery> {
        let entry = self.entries.get_mut(&key)?;
        let State::Placed(placed) = &entry.state else { return None };
        let header = Arc::clone(&entry.header);
        match (entry.dehydrated, entry.gathered) {
            (true, None) => None,
            (false, _) | (true, Some(Status::Complete)) => {
                let placed = placed.clone();
                lines.extend(record::complete(key, &header, &placed));
                entry.state = State::Delivered(placed.clone());
                Some(Delivery { key, header, placed: Some(placed) })
            }
            (true, Some(_)) => Some(Delivery { key, header, placed: None }),
        }
    }

    /// Appends these lines and the FAILED ones, all or nothing.
    pub(super) fn append(&mut self, complete: &[u8], disk: &Disk) -> io::Result<()> {
        if self.failed_lines.is_empty() && complete.is_empty() {
            return Ok(());
        }
        let before = self.log.metadata()?.len();
        let path = self.path.join(LOG);
        let mut append = || {
            disk.faults().check(Step::Append, &path)?;
            self.log.write_all(&self.failed_lines)?;
            self.log.write_all(complete)
        };
        if let Err(error) = append() {
            self.take_back(before);
            return Err(error);
        }
        self.failed_lines.clear();
        self.touched.insert(path);
        Ok(())
    }

    /// Removes half a line.
    fn take_back(&mut self, length: u64) {
        if let Err(error) = self.log.set_len(length) {
            tracing::error!(session = %self.id, %error, "{LOG} cannot be mended");
            self.incomplete = true;
        }
    }

    /// What has to be made durable before anybody is told.
    pub(super) fn take_touched(&mut self) -> Vec<PathBuf> {
        self.touched.drain().collect()
    }

    /// Tells the session that entities are safely delivered.
    pub(super) fn complete(&self, keys: Vec<EntityKey>) {
        if !keys.is_empty() {
            self.commands.urge(Urgent::Complete(keys));
        }
    }

    /// The last line. `None`: the log must not be closed.
    pub(super) fn closing_line(&self) -> Option<Vec<u8>> {
        if self.incomplete { None } else { self.closed.map(record::closed) }
    }

    /// The log lacks what should be in it.
    pub(super) fn mark_incomplete(&mut self) {
        self.incomplete = true;
    }
}

/// An ID with the number of its earlier uses.
fn reused(id: u32, uses: u32) -> String {
    if uses == 0 { id.to_string() } else { format!("{id}.{uses}") }
}

/// About how much memory an entry takes.
fn weight(header: &EntityHeader) -> usize {
    let metadata: usize = header.metadata.iter().map(|(key, value)| key.len() + value.len() + 64).sum();
    header.content_type.len() + metadata + 256
}
