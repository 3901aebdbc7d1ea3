//! The folder sink: every whole entity becomes a file, every session a list of its entities.
//!
//! ```text
//! DIR/SESSION/SCOPE/ENTITY       an entity's payload, once its checksum holds; ".1", ".2" ... when an ID is used again
//! DIR/SESSION.1/...              a session whose ID was used before; ".2" ... when it is used again
//! DIR/SESSION/.tmp-...           being received; gone when the session is over
//! DIR/SESSION/entities.jsonl     a line for each entity, then {"closed": CODE}
//! DIR/SESSION/settled.jsonl      what was set aside there and a worker has done since, if anything
//! ```
//!
//! Payloads are verified and written by worker threads. One thread commits: it collects what the workers have
//! written meanwhile, makes it durable together, gives the files their names, appends the lines, makes those durable,
//! and only then says COMPLETE. FAILED lines follow the session's word.
//!
//! A session whose entities name a transaction is not closed at its end but prepared: its list has no last line, so nobody
//! reads it, until the transaction is committed ([`transaction`], [`records`]).
//!
//! An entity has one line, with one exception: when the owner's FAILED, or the end of the connection, comes between
//! the line COMPLETE and the session's COMPLETE, its file is removed and a second line, FAILED, takes the first one's
//! place. So does the line of another attempt, where the parent's policy has retries. So the last line of an entity counts. A log that could not be kept whole is never closed.

mod committer;
mod counters;
mod disk;
mod entries;
mod folder;
mod found;
mod job;
mod objects;
mod owner;
mod record;
mod records;
mod recover;
mod referring;
mod settled;
#[cfg(test)]
mod tests;
mod transaction;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::{fs, io, thread};

use penstock_io::DriverError as _;
use penstock_io::runtime::PerProcess;
use penstock_pipestream::{self as core, EntityHeader, EntityKey, ErrorCode, Reason, Status};
use tokio::sync::{Semaphore, mpsc, oneshot};

use self::committer::Committer;
pub(crate) use self::counters::SinkCounters;
use self::disk::{Faults, Step};
use self::entries::Entries;
pub(crate) use self::entries::{LOG, weight};
use self::folder::Folder;
pub(crate) use self::folder::uses;
pub(crate) use self::found::Found;
pub(crate) use self::objects::ObjectSession;
pub use self::objects::ObjectSink;
pub(crate) use self::owner::conceal;
pub(crate) use self::record::in_words;
use self::records::Records;
pub(crate) use self::transaction::KEY as TRANSACTION;
use super::claims::DeferTypes;
use super::command::{Attempt, Commands};
use super::counters::Counters;
use super::events::EventLog;
use super::incoming::{IncomingEntity, Spool, TempFile};
use super::references::{References, Referred};
use crate::{Error, Result};

/// Batches of events from drivers that may wait for the committing thread; beyond it the drivers wait.
const WAITING_BATCHES: usize = 64;

/// A folder that takes entities; shared by all sessions of a server.
#[derive(Debug)]
pub struct FolderSink {
    shared: PerProcess<Arc<Shared>>,
}

/// What sessions, workers and the committing thread have in common.
#[derive(Debug)]
struct Shared {
    dir: PathBuf,
    inbox: mpsc::UnboundedSender<Message>,
    room: Arc<Semaphore>,
    events: Option<EventLog>,
    faults: Faults,
    sessions: AtomicU64,
    counters: Arc<SinkCounters>,
    references: References,
    /// Whoever writes what was settled without a session.
    settling: Mutex<()>,
}

/// What the committing thread is told.
#[derive(Debug)]
enum Message {
    /// A session's folder is there.
    Opened { session: u64, folder: Box<Folder> },
    /// What its driver has seen, in order.
    Events { session: u64, events: Vec<SinkEvent> },
    /// A payload is whole, right, and in its temporary file.
    Stored { session: u64, attempt: Attempt, stored: Stored },
    /// Nothing more can come of the session: its last line need not wait for its end.
    Whole { session: u64 },
    /// Driver and workers of the session are done.
    Ended { session: u64 },
    /// Fires once what was told before was to be made durable: whether all lines of the session are.
    Flush { session: u64, done: oneshot::Sender<bool> },
}

/// What a driver tells.
#[derive(Debug)]
pub(crate) enum SinkEvent {
    /// An attempt to bring an entity, which has failed so often before, may be received.
    /// `redeems`: it is what the session has redeemed a claim check for.
    Admitted { attempt: Attempt, failures: u32, header: Arc<EntityHeader>, dehydrated: bool, redeems: bool },
    /// What has come of an entity is void; it may come again.
    AttemptFailed { key: EntityKey },
    /// All descendants of a dehydrated entity are terminal; without a key, all of the peer's root scope, which it has
    /// ended.
    Gathered { key: Option<EntityKey>, outcome: Status },
    /// An entity of the peer is terminal.
    Resolved {
        key: EntityKey,
        parent_id: u32,
        status: Status,
        reason: Option<Reason>,
        /// How many attempts have failed before.
        failures: u32,
        /// The claim check under which it was set aside.
        claim: Option<u64>,
        /// Its header, where it was not admitted.
        header: Option<Arc<EntityHeader>>,
    },
    /// The session is over.
    Closed(ErrorCode),
}

/// A verified payload.
#[derive(Debug)]
struct Stored {
    /// Its file; none for a container without bytes of its own.
    temp: Option<TempFile>,
    bytes: u64,
    sha256: [u8; 32],
    /// Whether the file's bytes are on disk for good.
    synced: bool,
    /// What it refers to, if it does.
    reference: Option<Arc<Referred>>,
}

impl FolderSink {
    /// Takes a folder, which is made if it is not there. What a server that crashed has left half-done in it is
    /// removed first; sessions of other servers that run now are left alone.
    pub fn open(dir: &Path, events: Option<EventLog>) -> Result<Arc<Self>> {
        Self::open_with(dir, events, References::keep())
    }

    /// The same, for entities that refer to objects.
    pub fn open_with(dir: &Path, events: Option<EventLog>, references: References) -> Result<Arc<Self>> {
        Self::with_faults(dir, events, references, Faults::default())
    }

    fn with_faults(dir: &Path, events: Option<EventLog>, references: References, faults: Faults) -> Result<Arc<Self>> {
        fs::create_dir_all(dir).map_err(|error| Error::file("cannot make the sink's folder", dir, error))?;
        recover::clean(dir).map_err(|error| Error::file("cannot clean the sink's folder", dir, error))?;
        Records::new(dir, faults.clone())
            .redo()
            .map_err(|error| Error::file("cannot finish the transactions of", dir, error))?;
        let (inbox, messages) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            dir: dir.to_owned(),
            inbox,
            room: Arc::new(Semaphore::new(WAITING_BATCHES)),
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

    /// The sessions that a transaction of a folder was committed with, by each owner that has committed it.
    pub(crate) fn committed(dir: &Path, transaction: &str) -> io::Result<Vec<Vec<String>>> {
        Records::new(dir, Faults::default()).committed(transaction)
    }

    /// Those that are prepared and not closed yet.
    pub(crate) fn prepared(dir: &Path, transaction: &str) -> io::Result<Vec<String>> {
        Records::new(dir, Faults::default()).prepared(transaction)
    }

    /// What it has counted. `None` in a forked child.
    pub(crate) fn counters(&self) -> Option<&SinkCounters> {
        self.shared.get().ok().map(|shared| &*shared.counters)
    }

    /// What is there of a session, as far as it is about these entities. Without the name of its folder it is the last one
    /// that had its ID. Blocks on the disk.
    pub(crate) fn find(&self, id: &str, folder: Option<&str>, keys: &HashSet<EntityKey>) -> io::Result<Found> {
        let shared = self.shared.get().map_err(io::Error::other)?;
        let folder = match folder {
            Some(folder) => folder.to_owned(),
            None => folder::uses(&shared.dir, id)?.pop().unwrap_or_else(|| id.to_owned()),
        };
        Found::read(&shared.dir, folder, keys)
    }

    /// Closes the list of a session of an earlier process of which nothing more can come. Blocks on the disk.
    pub(crate) fn close_list(&self, found: &mut Found) -> io::Result<()> {
        let shared = self.shared.get().map_err(io::Error::other)?;
        found.close(&shared.dir)
    }

    /// A folder for a session, the one of an earlier process where something was `found`. Blocks on the disk. The receiver
    /// fires when its last line is written; it hears that its sender has gone where the disk has refused that line.
    pub(crate) fn session(
        &self,
        id: &Arc<str>,
        commands: Commands,
        counters: Arc<Counters>,
        defer: Option<Arc<DeferTypes>>,
        certificate: Option<[u8; 32]>,
        found: Option<Found>,
    ) -> Result<(SinkSession, oneshot::Receiver<()>)> {
        let shared = self.shared.get()?;
        let (done, ended) = oneshot::channel();
        let entries = Entries::new(commands.clone(), Arc::clone(&shared.counters), defer, certificate);
        let folder = match found {
            None => Folder::create(shared, id, entries, done),
            Some(found) => Folder::reopen(shared, id, found, entries, done),
        };
        let folder = folder.map_err(|error| cannot_open(&shared.dir.join(&**id), error))?;
        let path = shared.dir.join(&folder.name);
        let session = shared.sessions.fetch_add(1, Ordering::Relaxed);
        shared.tell(Message::Opened { session, folder: Box::new(folder) });
        let guard = Arc::new(Guard { session, shared: Arc::clone(shared) });
        Ok((SinkSession { guard, path: path.into(), commands, counters }, ended))
    }
}

/// Why a sink has no place for a session.
fn cannot_open(place: &Path, error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::AlreadyExists {
        return Error::Protocol(core::LimitError::SessionFolder { reason: error.to_string() }.into());
    }
    Error::file("cannot make the session's folder", place, error)
}

impl Shared {
    fn tell(&self, message: Message) {
        // The thread ends by a panic only; what it has not confirmed is not complete.
        let _ = self.inbox.send(message);
    }
}

/// Says when nobody works for a session any more.
#[derive(Debug)]
struct Guard {
    session: u64,
    shared: Arc<Shared>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.shared.tell(Message::Ended { session: self.session });
    }
}

/// A session's way into the sink, for its driver and for every job.
#[derive(Debug, Clone)]
pub(crate) struct SinkSession {
    guard: Arc<Guard>,
    path: Arc<Path>,
    commands: Commands,
    counters: Arc<Counters>,
}

impl SinkSession {
    /// Takes an entity that may be received; verifies and writes it on worker threads.
    pub(crate) fn take(&self, entity: IncomingEntity) {
        job::start(self.clone(), entity);
    }

    /// What the driver has seen. Waits when the disk is far behind, and so holds the peer back.
    pub(crate) async fn observe(&self, events: Vec<SinkEvent>) {
        let shared = &self.guard.shared;
        let room = match shared.room.try_acquire() {
            Ok(room) => Ok(room),
            Err(_) => {
                SinkCounters::add(&shared.counters.waits, 1);
                shared.room.acquire().await
            }
        };
        if let Ok(room) = room {
            room.forget();
            shared.tell(Message::Events { session: self.guard.session, events });
        }
    }

    /// Waits until the lines of what the driver has told are durable. False: the disk has refused some.
    pub(crate) async fn flush(&self) -> bool {
        let (done, flushed) = oneshot::channel();
        self.guard.shared.tell(Message::Flush { session: self.guard.session, done });
        // The thread ends by a panic only.
        flushed.await.unwrap_or(false)
    }

    /// The list gets its last line now, and is durable when this returns: the client has ended its root scope, everything
    /// in it is terminal, and the session's records say so.
    pub(crate) async fn close_list(&self) {
        self.guard.shared.tell(Message::Whole { session: self.guard.session });
        // Where the disk refuses it, it is tried again at the session's end.
        let _ = self.flush().await;
    }

    /// What the session's folder is called.
    pub(crate) fn folder(&self) -> Option<&str> {
        self.path.file_name()?.to_str()
    }

    /// What becomes of entities that refer to objects.
    fn references(&self) -> References {
        self.guard.shared.references.clone()
    }

    /// A temporary file for an entity that comes in chunks. Blocks on the disk.
    pub(crate) fn spool(&self, attempt: Attempt) -> io::Result<Spool> {
        let (file, temp) = self.create(attempt)?;
        Ok(Spool::named(file, temp))
    }

    /// A temporary file for an entity's payload. Blocks on the disk.
    fn create(&self, attempt: Attempt) -> io::Result<(fs::File, TempFile)> {
        let Attempt { key: EntityKey { scope, scope_use, entity, entity_use }, number } = attempt;
        // What an earlier attempt has written may still be there.
        let again = if number == 0 { String::new() } else { format!("-{number}") };
        let path = self.path.join(format!(".tmp-{scope}.{scope_use}-{entity}.{entity_use}{again}"));
        self.guard.shared.faults.check(Step::Create, &path)?;
        let file = fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        Ok((file, TempFile::new(path)))
    }

    fn stored(&self, attempt: Attempt, stored: Stored) {
        Counters::add(&self.counters.entities, 1);
        Counters::add(&self.counters.bytes, stored.bytes);
        self.guard.shared.tell(Message::Stored { session: self.guard.session, attempt, stored });
    }
}
