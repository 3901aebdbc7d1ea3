//! Folders of sessions, at a start.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use penstock_io::records::sync_folder;
use penstock_io::{DriverError as _, tls};
use penstock_pipestream::yield_token::TokenKey;
use penstock_pipestream::{EntityKey, ErrorCode, Layer2Config, Restored, Role, Session, SessionConfig, SessionId};

use crate::clock::now;
use crate::journal::Journal;
use crate::journal::keeper::{Files, Keeper};
use crate::journal::labels::{Labels, decode_released};
use crate::journal::log::{self, Log, Owner, make_folder, options};
use crate::port::{RecoveredSession, SessionRecovery};
use crate::transport::ResetKey;
use crate::{Error, Result};

const KEY: &str = "key";
/// Behind the name of what cannot be restored.
const DAMAGED: &str = ".damaged";

/// The sessions of a server.
#[derive(Debug)]
pub(crate) struct ServerState {
    folder: PathBuf,
    reset_key: ResetKey,
    pub(crate) keeper: Arc<Keeper>,
}

/// A session of a server that waits for its client.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) session: Session,
    pub(crate) owner: Owner,
    pub(crate) journal: Journal,
    /// What the sink has of its open entities.
    pub(crate) found: Box<dyn RecoveredSession>,
    /// It had ended, and its list may not say so.
    pub(crate) end: Option<ErrorCode>,
}

/// A client's folder.
#[derive(Debug)]
pub(crate) struct ClientState {
    folder: PathBuf,
    keeper: Arc<Keeper>,
}

impl ServerState {
    /// Takes a folder, which is made if it is not there, and has the configuration store sessions.
    pub(crate) fn open(folder: &Path, config: &mut SessionConfig) -> Result<Self> {
        let (keeper, key) = take(folder, config)?;
        Ok(Self { folder: folder.to_owned(), reset_key: ResetKey::of(key), keeper })
    }

    /// With it the next server on this folder ends the connections of this one, should it die.
    pub(crate) fn reset_key(&self) -> ResetKey {
        self.reset_key.clone()
    }

    /// The journal of a new session.
    pub(crate) fn begin(&self, owner: Owner) -> Journal {
        let folder = self.folder.join(owner.session.to_string());
        let files = Files { labels: Labels::new(&folder), log: Log::new(folder, owner) };
        Journal::new(&self.keeper, files, false)
    }

    /// The sessions that were open when the last server died. What cannot be restored is put aside.
    pub(crate) fn restore(&self, config: &SessionConfig, sink: &dyn SessionRecovery) -> Result<Vec<Waiting>> {
        let failed = |error: io::Error| Error::file("cannot read", &self.folder, error);
        let mut waiting = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_str().and_then(|name| SessionId::parse(name).ok());
            let Some(name) = name.filter(|_| entry.path().is_dir()) else { continue };
            match self.restore_one(&entry.path(), config, sink) {
                Ok(Some(session)) => {
                    tracing::info!(session = %name, "a session of an earlier process waits for its client");
                    waiting.push(session);
                }
                // It had not begun, or nothing is left of it.
                Ok(None) => drop(fs::remove_dir_all(entry.path())),
                Err(error) => {
                    self.keeper.counters.in_vain.fetch_add(1, Ordering::Relaxed);
                    self.put_aside(&entry.path(), &error);
                }
            }
        }
        self.keeper.counters.restored.fetch_add(waiting.len() as u64, Ordering::Relaxed);
        Ok(waiting)
    }

    fn put_aside(&self, folder: &Path, error: &Error) {
        let aside = PathBuf::from(format!("{}{DAMAGED}", folder.display()));
        let moved = fs::rename(folder, &aside).and_then(|()| sync_folder(&aside));
        let kept = if moved.is_ok() { aside } else { folder.to_owned() };
        tracing::error!(
            %error, kept = %kept.display(),
            "a session cannot be restored: its client will be refused and has to begin a new one. What the sink has of it \
             stays. Check the disk; remove the folder that is kept when nobody needs it"
        );
    }

    fn restore_one(
        &self,
        folder: &Path,
        config: &SessionConfig,
        sink: &dyn SessionRecovery,
    ) -> Result<Option<Waiting>> {
        let Some((log, found)) = Log::read(folder).map_err(|error| Error::file("cannot read", folder, error))? else {
            return Ok(None);
        };
        let owner = found.owner;
        let id = owner.session.to_string();
        let end = found.end.map(ErrorCode::from_code);
        let in_sink = |keys: &HashSet<EntityKey>| {
            sink.find(&id, found.sink_folder.as_deref(), keys)
                .map_err(|error| Error::io(format!("cannot read what the sink has of {id}"), error))
        };
        // Twice: what the sink has is looked for only where that is not known.
        let session = restore(Role::Server, config, &found, |_| false)?;
        let open: HashSet<EntityKey> = session.received_open().into_iter().collect();
        let mut in_sink = in_sink(&open)?;
        let session = restore(Role::Server, config, &found, |key| in_sink.has(key))?;
        // Nothing more can come of it, and readers need not wait until nobody comes back to it.
        if session.received_all().is_some()
            && let Err(error) = in_sink.close_list()
        {
            tracing::warn!(session = %id, %error, "its list cannot be closed yet; that is tried again at its end");
        }
        let files = Files { log, labels: Labels::new(folder) };
        let journal = Journal::new(&self.keeper, files, true);
        Ok(Some(Waiting { session, owner, journal, found: in_sink, end }))
    }
}

fn restore(
    role: Role,
    config: &SessionConfig,
    found: &log::Found,
    whole: impl Fn(EntityKey) -> bool,
) -> Result<Session> {
    let records = found.core.iter().map(Vec::as_slice);
    let Restored { session, resolved: _ } = Session::restore(role, config.clone(), records, now(), whole)?;
    Ok(session)
}

impl ClientState {
    /// Takes a folder, which is made if it is not there, and has the configuration store the session; gives the unfinished
    /// one that is in there.
    pub(crate) fn open(folder: &Path, config: &mut SessionConfig) -> Result<(Self, Option<(Session, Journal)>)> {
        let (keeper, _) = take(folder, config)?;
        let state = Self { folder: folder.to_owned(), keeper };
        let session = state.restore(config)?;
        Ok((state, session))
    }

    /// The journal of a new session.
    pub(crate) fn begin(&self, session: SessionId) -> Journal {
        let owner = Owner { session, certificate: None };
        let log = Log::new(self.folder.clone(), owner);
        Journal::new(&self.keeper, Files { log, labels: Labels::new(&self.folder) }, false)
    }

    fn restore(&self, config: &mut SessionConfig) -> Result<Option<(Session, Journal)>> {
        let failed = |error: io::Error| Error::file("cannot go on with the session in", &self.folder, error);
        let Some((mut log, found)) = Log::read(&self.folder).map_err(failed)? else { return Ok(None) };
        let mut labels = Labels::read(&self.folder, &found.labels).map_err(failed)?;
        if found.end.is_some() {
            labels.remove().and_then(|()| log.remove()).map_err(failed)?;
            return Ok(None);
        }
        if let Some(layer2) = &mut config.layer2 {
            layer2.session = Some(found.owner.session);
        }
        let session = restore(Role::Client, config, &found, |_| false)?;
        let mut journal = Journal::new(&self.keeper, Files { log, labels }, true);
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
        self.keeper.counters.restored.fetch_add(1, Ordering::Relaxed);
        Ok(Some((session, journal)))
    }
}

/// Takes a folder, with the key of its yield tokens.
fn take(folder: &Path, config: &mut SessionConfig) -> Result<(Arc<Keeper>, [u8; 32])> {
    let failed = |error: io::Error| Error::file("cannot use", folder, error);
    make_folder(folder).map_err(failed)?;
    let keeper = Keeper::new(folder)?;
    let key = key(folder)?;
    if config.layer2.is_none() {
        config.layer2 = Some(Layer2Config::new(None, TokenKey::new(key)));
    }
    if let Some(layer2) = &mut config.layer2 {
        (layer2.survives, layer2.journal) = (true, true);
    }
    Ok((keeper, key))
}

fn key(folder: &Path) -> Result<[u8; 32]> {
    let path = folder.join(KEY);
    let failed = |error: io::Error| Error::file("cannot use", &path, error);
    match fs::read(&path) {
        Ok(bytes) => {
            let wrong = |_| Error::content(format!("{} is no key: it has 32 bytes", path.display()));
            return <[u8; 32]>::try_from(bytes).map_err(wrong);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let key: [u8; 32] = tls::random()?;
    let new = path.with_extension("tmp");
    let written = options().truncate(true).open(&new).and_then(|mut file| {
        file.write_all(&key)?;
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&new, &path)).and_then(|()| sync_folder(&path)).map_err(failed)?;
    Ok(key)
}
