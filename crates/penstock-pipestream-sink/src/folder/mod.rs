//! The folder sink: every complete entity becomes a file, every session a list of its entities.
//!
//! ```text
//! DIR/SESSION/SCOPE/ENTITY       an entity's payload, once its checksum holds; ".1", ".2" ... when an ID is used again
//! DIR/SESSION.1/...              a session whose ID was used before; ".2" ... when it is used again
//! DIR/SESSION/.tmp-...           being received; gone when the session is over
//! DIR/SESSION/entities.jsonl     a line for each entity, then {"closed": CODE}
//! DIR/SESSION/settled.jsonl      deferred work that a worker has done since, if any
//! ```
//!
//! Worker threads verify and write payloads. One thread commits: it takes all payloads that are
//! written by then, makes them durable together, names the files, appends the lines, makes those
//! durable, and only then reports COMPLETE. FAILED lines are written after the session has reported
//! FAILED.
//!
//! A session whose entities name a transaction is not closed at its end but prepared: its list has
//! no last line, so it is not read until the transaction is committed ([`transactions`]).
//!
//! An entity has one line, with two exceptions. If the owner's FAILED, or the end of the
//! connection, arrives between the line COMPLETE and the session's COMPLETE, the file is removed
//! and a second line, FAILED, replaces the first one. The line of another attempt does so too, if
//! the parent's policy has retries. So the last line of an entity counts. An incomplete list is
//! never closed.

mod committer;
mod disk;
mod job;
mod lists;
mod recover;
mod referring;
mod restored_session;
mod session;
mod session_folder;
mod settled;
mod shared;
mod stored;
#[cfg(test)]
pub(crate) mod tests;
mod transactions;

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::{fmt, io, thread};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use penstock_io::DriverError as _;
use penstock_io::metrics::Page;
use penstock_io::runtime::PerProcess;
use penstock_log::{SystemDisk, make_folder};
use penstock_pipestream::{EntityHeader, EntityKey};
use penstock_pipestream_net::port::{
    Attempt, EntityBatch, EntitySink, NewSession, OpenSession, RecoveredSession, SessionRecovery, SinkEvent,
    SinkLimits, SinkSession, Spool,
};
use penstock_pipestream_net::{ClaimRow, EventLog};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::spawn_blocking;

use crate::counters::SinkCounters;
use crate::entries::Entries;
use crate::error::cannot_open;
use crate::folder::committer::Committer;
use crate::folder::disk::Faults;
pub(crate) use crate::folder::lists::sessions_of;
use crate::folder::restored_session::RestoredSession;
use crate::folder::session::{FolderSession, Guard};
use crate::folder::session_folder::SessionFolder;
use crate::folder::shared::{Message, Shared};
use crate::folder::transactions::TransactionLog;
use crate::references::References;
use crate::{Error, Result};

/// Number of batches of events from drivers that may wait for the committing thread. Beyond it the
/// drivers wait.
const WAITING_BATCHES: usize = 64;

/// A folder that stores entities, shared by all sessions of a server.
#[derive(Debug)]
pub struct FolderSink {
    shared: PerProcess<Arc<Shared>>,
}

impl FolderSink {
    /// Open a folder, which is created if it does not exist. First remove the unfinished files of
    /// servers that crashed; sessions of running servers are not touched.
    pub fn open(dir: &Path, events: Option<EventLog>) -> Result<Arc<Self>> {
        Self::open_with(dir, events, References::keep())
    }

    /// [`open`](Self::open), with the handling of entities that refer to objects.
    pub(crate) fn open_with(dir: &Path, events: Option<EventLog>, references: References) -> Result<Arc<Self>> {
        Self::with_faults(dir, events, references, Faults::default())
    }

    fn with_faults(dir: &Path, events: Option<EventLog>, references: References, faults: Faults) -> Result<Arc<Self>> {
        // Folders above it are made durable too: complete entities must not be lost with a folder
        // whose name was not durable.
        make_folder(&SystemDisk, dir).map_err(|error| Error::file("cannot make the sink's folder", dir, error))?;
        recover::clean(dir).map_err(|error| Error::file("cannot clean the sink's folder", dir, error))?;
        TransactionLog::new(dir, faults.clone())
            .redo()
            .map_err(|error| Error::file("cannot finish the transactions of", dir, error))?;
        let (inbox, messages) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            dir: dir.to_owned(),
            inbox,
            batch_slots: Arc::new(Semaphore::new(WAITING_BATCHES)),
            events,
            faults,
            sessions: AtomicU64::new(0),
            counters: Arc::default(),
            references,
            settling: Mutex::default(),
        });
        let committer = Committer::new(&shared)?;
        thread::Builder::new()
            .name("penstock-sink".into())
            .spawn(move || committer.run(messages))
            .map_err(|error| Error::io("cannot start the sink's thread", error))?;
        Ok(Arc::new(Self { shared: PerProcess::new(shared) }))
    }

    /// Return the sessions with which a transaction was committed, for each owner that has
    /// committed it.
    pub(crate) fn committed(dir: &Path, transaction: &str) -> io::Result<Vec<Vec<String>>> {
        TransactionLog::new(dir, Faults::default()).committed(transaction)
    }

    /// Return the sessions of a transaction that are prepared and not closed yet.
    pub(crate) fn prepared(dir: &Path, transaction: &str) -> io::Result<Vec<String>> {
        TransactionLog::new(dir, Faults::default()).prepared(transaction)
    }
}

/// Open a session's folder: a new one, or the one that was `found` from an earlier process. Blocks
/// on the disk.
fn open(
    shared: &Arc<Shared>,
    session: NewSession,
    found: Option<RestoredSession>,
) -> Result<(FolderSession, oneshot::Receiver<()>)> {
    let NewSession { id, control, defer, certificate, .. } = session;
    let (done, ended) = oneshot::channel();
    let entries = Entries::new(Arc::clone(&control), Arc::clone(&shared.counters), defer, certificate);
    let folder = match found {
        None => SessionFolder::create(&shared.dir, &shared.faults, &id, entries, done),
        Some(found) => SessionFolder::reopen(&shared.dir, &shared.faults, &id, found, entries, done),
    };
    let folder = folder.map_err(|error| cannot_open(&shared.dir.join(&*id), error))?;
    let path = shared.dir.join(&folder.name);
    let session = shared.sessions.fetch_add(1, Ordering::Relaxed);
    shared.send(Message::Opened { session, folder: Box::new(folder) });
    let guard = Arc::new(Guard { session, shared: Arc::clone(shared) });
    Ok((FolderSession { guard, path: path.into(), control }, ended))
}

/// [`open`], off the IO thread.
fn open_blocking(
    shared: Result<Arc<Shared>>,
    session: NewSession,
    found: Option<RestoredSession>,
) -> BoxFuture<'static, Result<OpenSession>> {
    async move {
        let shared = shared?;
        let opened = spawn_blocking(move || open(&shared, session, found)).await;
        let (session, done) = opened.map_err(Error::task)??;
        Ok(OpenSession { sink: Arc::new(session), done })
    }
    .boxed()
}

impl FolderSink {
    fn shared(&self) -> Result<Arc<Shared>> {
        Ok(Arc::clone(self.shared.get()?))
    }
}

impl EntitySink for FolderSink {
    fn open(&self, session: NewSession) -> BoxFuture<'static, Result<OpenSession>> {
        open_blocking(self.shared(), session, None)
    }

    fn recovery(&self) -> Option<&dyn SessionRecovery> {
        Some(self)
    }

    fn keeps_settled(&self) -> bool {
        true
    }

    fn note_settled(&self, rows: &[ClaimRow]) -> io::Result<()> {
        let shared = self.shared.get().map_err(io::Error::other)?;
        settled::note_all(shared, rows)
    }

    fn limits_exceeded(&self) -> SinkLimits {
        self.shared.get().map_or_else(|_| SinkLimits::default(), |shared| shared.counters.limits())
    }

    fn write_metrics(&self, page: &mut Page<'_>) -> fmt::Result {
        // A forked child counts nothing.
        self.shared.get().map_or(Ok(()), |shared| shared.counters.write(page))
    }
}

impl SessionRecovery for FolderSink {
    fn find(&self, id: &str, folder: Option<&str>, keys: &HashSet<EntityKey>) -> io::Result<Box<dyn RecoveredSession>> {
        let shared = Arc::clone(self.shared.get().map_err(io::Error::other)?);
        let folder = match folder {
            Some(folder) => folder.to_owned(),
            None => sessions_of(&shared.dir, id)?.pop().unwrap_or_else(|| id.to_owned()),
        };
        let found = RestoredSession::read(&shared.dir, folder, keys)?;
        Ok(Box::new(RecoveredFolder { shared, found }))
    }
}

/// The stored part of a session of an earlier process.
#[derive(Debug)]
struct RecoveredFolder {
    shared: Arc<Shared>,
    found: RestoredSession,
}

impl RecoveredSession for RecoveredFolder {
    fn has(&self, key: EntityKey) -> bool {
        self.found.has(key)
    }

    fn entities(&self) -> Vec<(EntityKey, Arc<EntityHeader>)> {
        self.found.entities().map(|entity| (entity.key, Arc::clone(&entity.header))).collect()
    }

    fn is_closed(&self) -> bool {
        self.found.is_closed()
    }

    fn close_list(&mut self) -> io::Result<()> {
        self.found.close(&self.shared.dir)
    }

    fn open(self: Box<Self>, session: NewSession) -> BoxFuture<'static, Result<OpenSession>> {
        let Self { shared, found } = *self;
        open_blocking(Ok(shared), session, Some(found))
    }
}

impl SinkSession for FolderSession {
    fn deliver(&self, entities: EntityBatch<'_>) {
        for entity in entities {
            job::start(self.clone(), entity);
        }
    }

    fn observe(&self, events: Vec<SinkEvent>) -> Option<BoxFuture<'_, ()>> {
        let shared = &self.guard.shared;
        let session = self.guard.session;
        if let Ok(permit) = shared.batch_slots.try_acquire() {
            permit.forget();
            shared.send(Message::Events { session, events });
            return None;
        }
        SinkCounters::add(&shared.counters.waits, 1);
        let waiting = async move {
            // The semaphore is never closed.
            if let Ok(permit) = shared.batch_slots.acquire().await {
                permit.forget();
                shared.send(Message::Events { session, events });
            }
        };
        Some(waiting.boxed())
    }

    fn spool(&self, attempt: Attempt) -> io::Result<Spool> {
        let (file, temp) = self.create(attempt)?;
        Ok(Spool::named(file, temp))
    }

    fn folder(&self) -> Option<&str> {
        self.path.file_name()?.to_str()
    }

    fn flush(&self) -> BoxFuture<'_, bool> {
        let (done, flushed) = oneshot::channel();
        self.guard.shared.send(Message::Flush { session: self.guard.session, done });
        // The thread can have ended only by a panic.
        async move { flushed.await.unwrap_or(false) }.boxed()
    }

    fn close_list(&self) -> BoxFuture<'_, ()> {
        self.guard.shared.send(Message::CloseList { session: self.guard.session });
        // If the disk refuses the line, it is retried at the session's end.
        self.flush().map(drop).boxed()
    }
}
