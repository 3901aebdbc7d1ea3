//! The opening of folders of sessions at startup.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use penstock_io::{DriverError as _, Problem, tls};
use penstock_log::{Disk, FolderLock, Format, PrivateDisk, make_folder, replace};
use penstock_pipestream::yield_token::TokenKey;
use penstock_pipestream::{EntityKey, ErrorCode, Layer2Config, Restored, Role, Session, SessionConfig, SessionId};

use crate::clock::now;
use crate::counters::JournalCounters;
use crate::journal::labels::decode_released;
use crate::journal::record::{CLIENT, Entry, SERVER, StoredSession};
use crate::journal::writer::{JournalWriter, Store};
use crate::journal::{Journal, earlier};
use crate::port::{Owner, SessionJournal, SessionJournals, SessionRecovery, Waiting};
use crate::transport::ResetKey;
use crate::{Error, Result};

const KEY: &str = "key";
/// Suffix of the folder of a session that cannot be restored.
const DAMAGED: &str = ".damaged";

/// The folder in which a server stores its sessions.
#[derive(Debug)]
pub(crate) struct ServerState {
    folder: PathBuf,
    reset_key: ResetKey,
    pub(crate) keeper: Arc<JournalWriter>,
}

/// The folder in which a client stores its session.
#[derive(Debug)]
pub(crate) struct ClientState {
    keeper: Arc<JournalWriter>,
}

impl ServerState {
    /// Open a folder, which is created if it does not exist, and configure sessions to be stored.
    pub(crate) fn open(folder: &Path, config: &mut SessionConfig) -> Result<Self> {
        let (lock, key) = take(folder, config)?;
        let mut store = open_store(folder, SERVER, false)?;
        let refused = take_earlier(&mut store, folder)?;
        let keeper = JournalWriter::start(store, Some(lock))?;
        keeper.counters.in_vain.fetch_add(refused, Ordering::Relaxed);
        Ok(Self { folder: folder.to_owned(), reset_key: ResetKey::of(key), keeper })
    }

    /// Return the key with which the next server on this folder resets the connections of this one
    /// after a crash.
    pub(crate) fn reset_key(&self) -> ResetKey {
        self.reset_key.clone()
    }

    /// Restore the sessions that were open when the last server ended. Put aside those that cannot
    /// be restored.
    pub(crate) fn restore(&self, config: &SessionConfig, sink: &dyn SessionRecovery) -> Vec<Waiting> {
        let mut waiting = Vec::new();
        let sessions = self.keeper.book().sessions();
        for name in sessions {
            match self.restore_one(name, config, sink) {
                Ok(session) => {
                    tracing::info!(session = %name, "a session of an earlier process waits for its client");
                    waiting.push(session);
                }
                Err(error) => {
                    self.keeper.counters.in_vain.fetch_add(1, Ordering::Relaxed);
                    self.put_aside(name, &error);
                }
            }
        }
        self.keeper.counters.restored.fetch_add(waiting.len() as u64, Ordering::Relaxed);
        waiting
    }

    /// Copy the remains of a session to a log in a folder of its own. If an operator renames that
    /// folder to the session's name, the next start tries it again.
    fn put_aside(&self, session: SessionId, error: &Error) {
        let aside = self.folder.join(format!("{session}{DAMAGED}"));
        let copy = || {
            let copy = self.keeper.book().copy(session);
            let mut entry = copy.entry().map_err(|error| Error::file("cannot read", &aside, error))?;
            make_folder(&PrivateDisk, &aside).map_err(|error| Error::file("cannot make", &aside, error))?;
            let mut store = open_store(&aside, SERVER, true)?;
            // An earlier start that crashed may have left the same log.
            let entry = std::slice::from_mut(&mut entry);
            let written = store.clear().and_then(|()| store.append(entry)).and_then(|()| store.seal());
            written.map_err(|error| Error::file("cannot write to", &aside, error))
        };
        match copy() {
            Ok(()) => {
                self.keeper.forget(session);
                tell(error, &aside);
            }
            Err(failed) => {
                tracing::warn!(%session, error = %failed, "what is left of a session cannot be put aside");
                tell(error, &self.folder);
            }
        }
    }

    fn restore_one(&self, name: SessionId, config: &SessionConfig, sink: &dyn SessionRecovery) -> Result<Waiting> {
        let found = find(&self.keeper, name).map_err(|error| Error::file("cannot read", &self.folder, error))?;
        let owner = found.owner;
        let id = owner.session.to_string();
        let end = found.end.map(ErrorCode::from_code);
        let in_sink = |keys: &HashSet<EntityKey>| {
            sink.find(&id, found.sink_folder.as_deref(), keys)
                .map_err(|error| Error::io(format!("cannot read what the sink has of {id}"), error))
        };
        // Restore twice: the sink is searched only for entities whose end the records do not show.
        let session = restore(Role::Server, config, &found, |_| false)?;
        let open: HashSet<EntityKey> = session.received_open().into_iter().collect();
        let mut in_sink = in_sink(&open)?;
        let session = restore(Role::Server, config, &found, |key| in_sink.has(key))?;
        // The session is complete: close its list now, so that readers need not wait until it
        // expires.
        if session.received_all().is_some()
            && let Err(error) = in_sink.close_list()
        {
            tracing::warn!(session = %id, %error, "its list cannot be closed yet; that is tried again at its end");
        }
        let journal = Box::new(Journal::restored(&self.keeper, &found));
        Ok(Waiting { session, owner, journal, found: in_sink, end })
    }
}

impl SessionJournals for ServerState {
    fn begin(&self, owner: Owner) -> Box<dyn SessionJournal> {
        Box::new(Journal::new(&self.keeper, owner))
    }

    fn counters(&self) -> &JournalCounters {
        &self.keeper.counters
    }
}

fn tell(error: &Error, kept: &Path) {
    tracing::error!(
        %error, kept = %kept.display(),
        "a session cannot be restored: its client will be refused and has to begin a new one. What the sink has of it \
         stays. Check the disk; remove the folder that is kept when it is not needed"
    );
}

fn open_store(folder: &Path, format: Format, keeps_one: bool) -> Result<Store> {
    Store::open(Arc::new(PrivateDisk), folder, format, keeps_one)
}

/// Read a session from the log.
fn find(keeper: &JournalWriter, session: SessionId) -> io::Result<StoredSession> {
    let records = {
        let book = keeper.book();
        book.check(Some(session))?;
        book.records(session)
    };
    StoredSession::read(&records.parts()?)
}

/// Move sessions from folders of their own to a server's log. Return the number of damaged ones.
pub(super) fn take_earlier(store: &mut Store, folder: &Path) -> Result<u64> {
    let failed = |error: io::Error| Error::file("cannot read", folder, error);
    let mut refused = 0;
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().and_then(|name| SessionId::parse(name.to_str()?).ok());
        let Some(name) = name.filter(|_| path.is_dir()) else { continue };
        // The folder's session replaces one that the log has lost or damaged.
        let is_whole = store.book().knows(name) && store.book().check(Some(name)).is_ok();
        let taken = if is_whole { Ok(None) } else { read_folder(&path, name) };
        match taken {
            Ok(mut taken) => {
                let failed = |error| Error::file("cannot take the session of", &path, error);
                store.append(taken.as_mut_slice()).and_then(|()| store.seal()).map_err(failed)?;
                fs::remove_dir_all(&path).map_err(failed)?;
            }
            Err(error) => {
                refused += 1;
                let aside = PathBuf::from(format!("{}{DAMAGED}", path.display()));
                let moved = fs::rename(&path, &aside);
                tell(&error, if moved.is_ok() { &aside } else { &path });
            }
        }
    }
    // Sync: a removed folder that a crash brings back could revive a session that has ended.
    PrivateDisk.sync_folder(folder).map_err(failed)?;
    Ok(refused)
}

/// Read the session of a folder. Return `None` if it had not begun.
fn read_folder(folder: &Path, session: SessionId) -> Result<Option<Entry>> {
    let failed = |error: io::Error| Error::file("cannot read", folder, error);
    let is_its_own = |entry: &Entry| entry.session == session;
    if let Some(entry) = earlier::read(folder).map_err(failed)? {
        return Some(entry).filter(is_its_own).map(Some).ok_or_else(|| another(folder));
    }
    let store = open_store(folder, SERVER, true)?;
    let book = store.book();
    if book.is_empty() {
        return book.check(None).map(|()| None).map_err(failed);
    }
    if !book.knows(session) {
        return Err(another(folder));
    }
    book.check(Some(session)).and_then(|()| book.copy(session).entry()).map(Some).map_err(failed)
}

fn another(folder: &Path) -> Error {
    Error::content(folder.display(), Problem::Foreign("session"))
}

fn restore(
    role: Role,
    config: &SessionConfig,
    found: &StoredSession,
    whole: impl Fn(EntityKey) -> bool,
) -> Result<Session> {
    let records = found.core.iter().map(Vec::as_slice);
    let Restored { session, resolved: _ } = Session::restore(role, config.clone(), records, now(), whole)?;
    Ok(session)
}

impl ClientState {
    /// Open a folder, which is created if it does not exist, and configure the session to be stored
    /// in it. Return its unfinished session, if any.
    pub(crate) fn open(folder: &Path, config: &mut SessionConfig) -> Result<(Self, Option<(Session, Journal)>)> {
        let failed = |error: io::Error| Error::file("cannot go on with the session in", folder, error);
        let (lock, _) = take(folder, config)?;
        let mut store = open_store(folder, CLIENT, true)?;
        if store.book().is_empty() {
            store.book().check(None).map_err(failed)?;
            let mut taken = earlier::read(folder).map_err(failed)?;
            store.append(taken.as_mut_slice()).and_then(|()| store.seal()).map_err(failed)?;
        }
        let session = store.book().sessions().pop();
        // Check before the removal: the earlier files may still have what the log has lost.
        store.book().check(session).map_err(failed)?;
        earlier::remove(folder).and_then(|()| PrivateDisk.sync_folder(folder)).map_err(failed)?;
        let keeper = JournalWriter::start(store, Some(lock))?;
        let found = session.map(|session| find(&keeper, session)).transpose().map_err(failed)?;
        let session = match found {
            Some(found) if found.end.is_none() => Some(go_on(&keeper, &found, config)?),
            // If a crash undoes this, the next start finds the same session.
            Some(found) => {
                keeper.forget(found.owner.session);
                None
            }
            None => None,
        };
        Ok((Self { keeper }, session))
    }
}

impl SessionJournals for ClientState {
    fn begin(&self, owner: Owner) -> Box<dyn SessionJournal> {
        Box::new(Journal::new(&self.keeper, owner))
    }

    fn counters(&self) -> &JournalCounters {
        &self.keeper.counters
    }
}

/// Restore a client's session.
fn go_on(keeper: &Arc<JournalWriter>, found: &StoredSession, config: &mut SessionConfig) -> Result<(Session, Journal)> {
    if let Some(layer2) = &mut config.layer2 {
        layer2.session = Some(found.owner.session);
    }
    let session = restore(Role::Client, config, found, |_| false)?;
    let mut journal = Journal::restored(keeper, found);
    for open in session.sent_open() {
        if let Some(label) = open.label {
            journal.announced(label, open.ticket);
        }
    }
    for (parent, digest) in found.released.iter().filter_map(|record| decode_released(record)) {
        if parent.entity == 0 {
            journal.root = Some((parent, digest));
        } else if journal.labels.contains_key(&parent) {
            journal.released.insert(parent, digest);
        }
    }
    keeper.counters.restored.fetch_add(1, Ordering::Relaxed);
    Ok((session, journal))
}

/// Lock a folder. Return the lock and the key of its yield tokens.
fn take(folder: &Path, config: &mut SessionConfig) -> Result<(FolderLock, [u8; 32])> {
    make_folder(&PrivateDisk, folder).map_err(|error| Error::file("cannot use", folder, error))?;
    let lock = FolderLock::take(folder, ".lock", "another process goes on with what is in there");
    let lock = lock.map_err(penstock_io::Error::from)?;
    let key = key(folder)?;
    if config.layer2.is_none() {
        config.layer2 = Some(Layer2Config::new(None, TokenKey::new(key)));
    }
    if let Some(layer2) = &mut config.layer2 {
        (layer2.survives, layer2.journal) = (true, true);
    }
    Ok((lock, key))
}

fn key(folder: &Path) -> Result<[u8; 32]> {
    let path = folder.join(KEY);
    let failed = |error: io::Error| Error::file("cannot use", &path, error);
    match fs::read(&path) {
        Ok(bytes) => {
            let wrong = |_| Error::content(path.display(), Problem::Not("a key of 32 bytes"));
            return <[u8; 32]>::try_from(bytes).map_err(wrong);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let key: [u8; 32] = tls::random()?;
    replace(&PrivateDisk, &path, &key).map_err(failed)?;
    Ok(key)
}
