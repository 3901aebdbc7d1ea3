//! The object sink: what the folder sink does, in an object store.
//!
//! ```text
//! PREFIX/SESSION/SCOPE/ENTITY            an entity's payload, once its checksum holds; SESSION.1 ... where its ID was used before
//! PREFIX/SESSION/entities.jsonl          the session's list, put at its end, whole, with {"closed": CODE}
//! PREFIX/.open/SESSION/FIRST-LAST.jsonl  its lines until then: what the commits FIRST to LAST have written
//! ```
//!
//! A store has neither renames nor appending, but an object appears whole or not at all. So a payload is verified on
//! its way: a small one before it is put, the last part of a large one before its upload is completed. Its line is an
//! object of its own together with those of the entities that came meanwhile; once that is there, COMPLETE is said.
//!
//! Nothing has to be mended after a crash: whatever was acknowledged is in the store, payload and line, and readers pass
//! over the session, which has no list. What is left behind is swept up when it is old ([`sweep`]). All of a sink's
//! requests are made on a thread of their own.

mod list;
mod records;
mod session;
mod sweep;
#[cfg(test)]
mod tests;
mod upload;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use penstock_io::DriverError as _;
use penstock_io::runtime::{self, PerProcess};
use penstock_io::storage::{Place, plain};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use self::list::List;
use self::session::{Message, Session};
use super::super::claims::DeferTypes;
use super::super::command::Commands;
use super::super::counters::Counters;
use super::super::events::EventLog;
use super::super::incoming::{IncomingEntity, Spool};
use super::super::references::References;
use super::counters::SinkCounters;
use super::entries::Entries;
use super::{SinkEvent, cannot_open};
use crate::{Error, Result};

/// Batches of events from a driver that may wait for their commit; beyond it the driver waits.
const WAITING_BATCHES: usize = 64;
/// How much may be on its way to the store at once, for all sessions.
const IN_FLIGHT: usize = 128 << 20;
/// What one request counts at least, so that there are never more than 128.
const REQUEST: usize = 1 << 20;

/// A prefix in an object store that takes entities; shared by all sessions of a server.
#[derive(Debug)]
pub struct ObjectSink {
    shared: PerProcess<Arc<Shared>>,
}

/// What the sessions have in common.
struct Shared {
    place: Place,
    events: Option<EventLog>,
    touch: Duration,
    counters: Arc<SinkCounters>,
    requests: Arc<Semaphore>,
    runtime: Handle,
    references: References,
    /// The thread lives as long as this, so as long as the sink and its sessions.
    _alive: mpsc::Sender<()>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shared").field(&self.place).finish()
    }
}

impl ObjectSink {
    /// Takes a prefix, and asks the store for what is there, so that a wrong address or credential shows at once.
    pub fn open(place: Place, events: Option<EventLog>) -> Result<Arc<Self>> {
        Self::open_with(place, events, References::keep())
    }

    /// The same, for entities that refer to objects.
    pub fn open_with(place: Place, events: Option<EventLog>, references: References) -> Result<Arc<Self>> {
        Self::touching(place, events, references, sweep::TOUCH)
    }

    /// The same; sessions that are open show so every `touch`.
    fn touching(place: Place, events: Option<EventLog>, references: References, touch: Duration) -> Result<Arc<Self>> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .thread_name("penstock-store-work")
            .build()
            .map_err(|error| Error::io("cannot start the sink's thread", error))?;
        let handle = runtime.handle().clone();
        let (alive, mut gone) = mpsc::channel(1);
        thread::Builder::new()
            .name("penstock-store".into())
            .spawn(move || runtime.block_on(async move { while gone.recv().await.is_some() {} }))
            .map_err(|error| Error::io("cannot start the sink's thread", error))?;
        let requests = Arc::new(Semaphore::new(IN_FLIGHT / REQUEST));
        let counters = Arc::default();
        let shared =
            Arc::new(Shared { place, events, touch, counters, requests, runtime: handle, references, _alive: alive });
        let asked = Arc::clone(&shared);
        let answer = runtime::block_on(shared.runtime.spawn(async move { start(&asked.place).await }))?;
        match answer {
            Ok(Ok(())) => {
                shared.runtime.spawn(look_now_and_then(shared.place.clone()));
                Ok(Arc::new(Self { shared: PerProcess::new(shared) }))
            }
            Ok(Err(error)) => Err(Error::io(format!("cannot use the sink {}", shared.place.uri()), plain(&error))),
            Err(died) => Err(Error::task(&died)),
        }
    }

    /// The sessions that a transaction of a prefix was committed with, by each owner that has committed it.
    pub(crate) async fn committed(place: &Place, transaction: &str) -> object_store::Result<Vec<Vec<String>>> {
        records::committed(place, transaction).await
    }

    /// Those that are prepared and not closed yet.
    pub(crate) async fn prepared(place: &Place, transaction: &str) -> object_store::Result<Vec<String>> {
        records::prepared(place, transaction).await
    }

    /// Reads the lines of the lists of all sessions that had an ID as far as they are there, in order, and says whether all
    /// are over: no server has one open any more, or the sink has nothing of the ID.
    pub(crate) async fn lines(place: &Place, id: &str, each: impl FnMut(&[u8])) -> object_store::Result<bool> {
        list::lines(place, id, each).await
    }

    /// What all sessions have counted; `None` in a forked child.
    pub(crate) fn counters(&self) -> Option<&SinkCounters> {
        self.shared.get().ok().map(|shared| &*shared.counters)
    }

    /// A session's list in the store. The receiver fires when it is closed.
    pub(crate) async fn session(
        &self,
        id: &Arc<str>,
        commands: Commands,
        counters: Arc<Counters>,
        defer: Option<Arc<DeferTypes>>,
        certificate: Option<[u8; 32]>,
    ) -> Result<(ObjectSession, oneshot::Receiver<()>)> {
        let shared = Arc::clone(self.shared.get()?);
        let (inbox, messages) = mpsc::unbounded_channel();
        let (done, ended) = oneshot::channel();
        let room = Arc::new(Semaphore::new(WAITING_BATCHES));
        let list = List::new(shared.place.clone(), Arc::clone(id));
        let entries = Entries::new(commands.clone(), Arc::clone(&shared.counters), defer, certificate);
        let session = Session::new(Arc::clone(&shared), Arc::clone(id), entries, list, Arc::clone(&room), done);
        let opened = shared.runtime.spawn(session.open()).await.map_err(|died| Error::task(&died))?;
        let session = opened.map_err(|error| cannot_open(&PathBuf::from(shared.place.uri()), error))?;
        let name = Arc::clone(session.name());
        shared.runtime.spawn(session.run(messages));
        Ok((ObjectSession { name, shared, inbox, room, commands, counters }, ended))
    }
}

/// Brings to their ends what servers that were killed had begun to end.
async fn start(place: &Place) -> object_store::Result<()> {
    records::redo(place, SystemTime::now()).await?;
    sweep::sweep(place, SystemTime::now()).await
}

/// What others leave behind while this server runs. It ends with the sink's thread.
async fn look_now_and_then(place: Place) {
    loop {
        tokio::time::sleep(sweep::EVERY).await;
        if let Err(error) = start(&place).await {
            tracing::warn!(error = plain(&error), "what killed servers have left in the sink stays for now");
        }
    }
}

impl Shared {
    /// Waits until a request of so many bytes may be on its way.
    async fn admit(&self, bytes: usize) -> OwnedSemaphorePermit {
        let units = bytes.div_ceil(REQUEST).clamp(1, IN_FLIGHT / REQUEST);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        match Arc::clone(&self.requests).acquire_many_owned(units).await {
            Ok(permit) => permit,
            // Nobody closes it.
            Err(_) => std::future::pending().await,
        }
    }
}

/// A session's way into the sink, for its driver and for every upload. When the last one goes, the session ends.
#[derive(Debug, Clone)]
pub(crate) struct ObjectSession {
    /// What it is called in the store.
    name: Arc<str>,
    shared: Arc<Shared>,
    inbox: mpsc::UnboundedSender<Message>,
    room: Arc<Semaphore>,
    commands: Commands,
    counters: Arc<Counters>,
}

impl ObjectSession {
    /// Takes an entity that may be received; verifies it and puts it into the store.
    pub(crate) fn take(&self, entity: IncomingEntity) {
        let runtime = self.shared.runtime.clone();
        runtime.spawn(upload::receive(self.clone(), entity));
    }

    /// What the driver has seen. Waits when the store is far behind, and so holds the peer back.
    pub(crate) async fn observe(&self, events: Vec<SinkEvent>) {
        if self.room.available_permits() == 0 {
            SinkCounters::add(&self.shared.counters.waits, 1);
        }
        if let Ok(room) = self.room.acquire().await {
            room.forget();
            self.tell(Message::Events(events));
        }
    }

    /// Where the chunks of an entity are put together. Blocks on the disk.
    pub(crate) fn spool(&self) -> std::io::Result<Spool> {
        tempfile::tempfile().map(Spool::anonymous)
    }

    fn tell(&self, message: Message) {
        // The session's task ends by a panic only; what it has not confirmed is not complete.
        let _ = self.inbox.send(message);
    }
}
