use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_pipestream::{EntityKey, ErrorCode, Reason, ScopeKey};
use tokio::sync::oneshot;

use super::disk::{Disk, Step};
use super::entries::{Entries, LOG, Verified, names as names_of};
use super::found::Found;
use super::record::{self, Placed};
use super::recover::remove_hidden;
use super::transaction::{MAX_ORDER, Order};
use super::{Shared, SinkEvent, Stored};

/// A session's folder, and what is not committed in it yet.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) id: Arc<str>,
    /// What the folder is called: the session's ID, and behind it, where the ID was used before, how often.
    pub(super) name: String,
    pub(super) entries: Entries<Stored>,
    path: PathBuf,
    log: File,
    /// Folders of scopes that are there.
    scopes: HashSet<ScopeKey>,
    /// Folders whose names changed since the last sync.
    touched: HashSet<PathBuf>,
    done: oneshot::Sender<()>,
}

/// What was appended to a list and is not durable.
pub(super) struct Unsynced {
    /// The list's length without it.
    length: u64,
    /// The FAILED lines.
    lines: Vec<u8>,
}

impl Verified for Stored {
    fn unnamed(&self) -> Placed {
        Placed { file: None, bytes: self.bytes, sha256: self.sha256, reference: self.reference.clone() }
    }

    fn name(&self) -> Option<&str> {
        None
    }
}

impl Folder {
    /// Makes the folder and its log, and locks the log as long as the session is open.
    pub(super) fn create(
        shared: &Shared,
        id: &Arc<str>,
        entries: Entries<Stored>,
        done: oneshot::Sender<()>,
    ) -> io::Result<Self> {
        let (name, path) = make_session(shared, id)?;
        let path = path.as_path();
        let log = OpenOptions::new().append(true).create_new(true).open(path.join(LOG))?;
        lock(&log)?;
        File::open(path)?.sync_all()?;
        File::open(&shared.dir)?.sync_all()?;
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

    /// The folder of a session that an earlier process had open. What it was receiving comes again.
    pub(super) fn reopen(
        shared: &Shared,
        id: &Arc<str>,
        mut found: Found,
        mut entries: Entries<Stored>,
        done: oneshot::Sender<()>,
    ) -> io::Result<Self> {
        let name = found.folder.clone();
        let path = shared.dir.join(&name);
        if !path.is_dir() {
            return Self::create(shared, id, entries, done);
        }
        let log = OpenOptions::new().read(true).append(true).create(true).open(path.join(LOG))?;
        lock(&log)?;
        remove_hidden(&path)?;
        let log = found.mend(&shared.dir, log)?;
        entries.restore(found);
        Ok(Self { id: Arc::clone(id), name, entries, path, log, scopes: HashSet::new(), touched: HashSet::new(), done })
    }

    /// Takes what the driver has seen. Gives the entities that have something to be committed now.
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
            tracing::warn!(path = %path.display(), %error, "the file of a failed entity stays");
        }
    }

    /// The temporary file that has to be made durable before this entity can be placed.
    pub(super) fn unsynced(&self, key: EntityKey) -> Option<PathBuf> {
        match self.entries.waiting(key)? {
            Stored { temp: Some(temp), synced: false, .. } => Some(temp.path().to_owned()),
            Stored { .. } => None,
        }
    }

    /// The order that an entity is, if it is one.
    pub(super) fn order(&self, key: EntityKey) -> Option<Result<Order, Reason>> {
        let header = self.entries.order(key)?;
        let Stored { temp, bytes, .. } = self.entries.waiting(key)?;
        if *bytes > MAX_ORDER {
            let message = format!("an order of {bytes} bytes is more than the limit of {MAX_ORDER}");
            return Some(Err(Reason { code: ErrorCode::EntityTooLarge, message }));
        }
        let payload = temp.as_ref().map_or_else(|| Ok(Vec::new()), |temp| fs::read(temp.path()));
        Some(match payload {
            Ok(payload) => Order::parse(&header, &payload, self.entries.certificate()),
            Err(error) => {
                let message = format!("the sink cannot read the order: {error}");
                Err(Reason { code: ErrorCode::InternalError, message })
            }
        })
    }

    /// Gives a stored payload its name.
    pub(super) fn place(&mut self, key: EntityKey, disk: &Disk) -> io::Result<()> {
        let Some(stored) = self.entries.take_waiting(key) else { return Ok(()) };
        let mut placed = stored.unnamed();
        if let Some(temp) = stored.temp {
            let (scope, name) = names_of(key);
            let folder = self.path.join(&scope);
            if !self.scopes.contains(&key.scope_key()) {
                fs::create_dir_all(&folder)?;
                self.scopes.insert(key.scope_key());
                self.touched.insert(self.path.clone());
            }
            if let Some((beside, message)) = placed.reference.as_ref().and_then(|referred| referred.beside(&name)) {
                let path = folder.join(beside);
                fs::write(&path, message)?;
                self.touched.insert(path);
            }
            disk.rename(temp.path(), &folder.join(&name))?;
            temp.keep();
            self.touched.insert(folder);
            placed.file = Some(format!("{}/{scope}/{name}", self.name));
        }
        self.entries.placed(key, placed);
        Ok(())
    }

    /// Appends these lines and the FAILED ones, all or nothing.
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
            self.take_back(before);
            return Err(error);
        }
        self.entries.clear_failed_lines();
        self.touched.insert(path);
        Ok(())
    }

    /// FAILED lines that wait and the last line of a session of which nothing more can come. Gives what is to be written again
    /// where they cannot be made durable.
    pub(super) fn close_list(&mut self, disk: &Disk) -> io::Result<Unsynced> {
        let unsynced = Unsynced { length: self.log.metadata()?.len(), lines: self.entries.failed_lines().to_vec() };
        self.append(&record::closed(ErrorCode::NoError), disk)?;
        Ok(unsynced)
    }

    /// The last line and those before it may be lost, and no later sync would tell: they are written anew.
    pub(super) fn open_list_again(&mut self, unsynced: Unsynced) {
        self.take_back(unsynced.length);
        self.entries.put_back(unsynced.lines);
    }

    /// Removes half a line.
    fn take_back(&mut self, length: u64) {
        if let Err(error) = self.log.set_len(length) {
            tracing::error!(session = %self.id, %error, "{LOG} cannot be mended");
            self.entries.mark_incomplete(format!("{LOG} ends in half a line that cannot be cut off: {error}"));
        }
    }

    /// All is written that the list gets from this process; tells the driver.
    pub(super) fn finish(self) {
        let Self { done, log, entries, .. } = self;
        // Whoever hears of it may take the session over: its temporary files and its lock go first.
        drop((entries, log));
        // Whoever waited may have given up.
        let _ = done.send(());
    }

    /// What has to be made durable before anybody is told.
    pub(super) fn take_touched(&mut self) -> Vec<PathBuf> {
        self.touched.drain().collect()
    }
}

/// Shows that a server has a session open. Where a file system has no locks, nothing is cleaned up after a crash.
pub(super) fn lock(log: &File) -> io::Result<()> {
    match log.lock() {
        Err(error) if error.kind() != io::ErrorKind::Unsupported => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// How often a session's ID may be used: each use looks for the one before.
const MOST_USES: u32 = 1_000;

/// The folders of the sessions that had an ID, by their numbers. An operator may have removed any of them, so all names of
/// the sink are looked at.
pub(crate) fn uses(sink: &Path, id: &str) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(sink)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(id)).and_then(number_of);
        if let Some(number) = number.filter(|_| entry.path().is_dir()) {
            found.push((number, name.to_string_lossy().into_owned()));
        }
    }
    found.sort_unstable();
    Ok(found.into_iter().map(|(_, name)| name).collect())
}

/// How often an ID was used before, by what stands behind it in a folder's name.
fn number_of(rest: &str) -> Option<u32> {
    if rest.is_empty() { Some(0) } else { rest.strip_prefix('.')?.parse().ok() }
}

/// What the folders of the sessions of an ID are called: `ID`, `ID.1`, `ID.2` ...
pub(super) fn names(id: &str) -> impl Iterator<Item = String> {
    (0..MOST_USES).map(move |before| if before == 0 { id.to_owned() } else { format!("{id}.{before}") })
}

/// Makes a folder for a session: the next one of its ID, where that was used before.
fn make_session(shared: &Shared, id: &str) -> io::Result<(String, PathBuf)> {
    for name in names(id) {
        let path = shared.dir.join(&name);
        shared.faults.check(Step::Create, &path)?;
        match fs::create_dir(&path) {
            Ok(()) => return Ok((name, path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(used_up(id))
}

/// An ID that was used too often.
pub(super) fn used_up(id: &str) -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, format!("the session ID {id} was used {MOST_USES} times"))
}
