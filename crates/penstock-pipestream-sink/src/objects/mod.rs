//! The object sink: the equivalent of the folder sink in an object store.
//!
//! ```text
//! PREFIX/SESSION/SCOPE/ENTITY            a verified payload; SESSION.1 ... if the session's ID was used before
//! PREFIX/SESSION/entities.jsonl          the session's whole list, put at its end, with {"closed": CODE}
//! PREFIX/.open/SESSION/FIRST-LAST.jsonl  its lines until then: those of the commits FIRST to LAST
//! ```
//!
//! A store can neither rename nor append, but an object appears whole or not at all. So the sink
//! verifies a payload during its upload: a small one before its put, a large one before its upload
//! is completed. It writes the lines of all entities that arrived while the store was busy as one
//! object, and reports COMPLETE once that object is stored.
//!
//! Nothing has to be repaired after a crash: the store has the payload and the line of everything
//! that was acknowledged, and readers skip the session, which has no list. Old leftovers are
//! removed (`sweep.rs`). A sink makes all its requests on a dedicated thread.

mod handle;
mod list;
mod listing;
mod session;
mod shared;
mod sweep;
#[cfg(test)]
mod tests;
mod transactions;
mod upload;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{fmt, io, thread};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use penstock_io::DriverError as _;
use penstock_io::metrics::Page;
use penstock_io::runtime::{self, PerProcess};
use penstock_io::storage::{ObjectPrefix, plain};
use penstock_pipestream_net::EventLog;
use penstock_pipestream_net::port::{
    Attempt, EntityBatch, EntitySink, NewSession, OpenSession, SinkEvent, SinkLimits, SinkSession, Spool,
};
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::counters::SinkCounters;
use crate::entries::Entries;
use crate::error::cannot_open;
use crate::objects::handle::ObjectSession;
use crate::objects::list::List;
use crate::objects::session::{Message, Session};
use crate::objects::shared::{IN_FLIGHT, REQUEST, Shared};
use crate::references::References;
use crate::{Error, Result};

/// Number of batches of events from one driver that may wait for their commit; beyond that the
/// driver waits.
const WAITING_BATCHES: usize = 64;
/// A sink that stores entities below a prefix in an object store; all sessions of a server share
/// it.
#[derive(Debug)]
pub struct ObjectSink {
    shared: PerProcess<Arc<Shared>>,
}

impl ObjectSink {
    /// Open a sink below a prefix. Query the store, so that a wrong address or credential is
    /// reported immediately.
    pub fn open(place: ObjectPrefix, events: Option<EventLog>) -> Result<Arc<Self>> {
        Self::open_with(place, events, References::keep())
    }

    /// Open a sink as [`open`](Self::open) does, for entities that may refer to objects.
    pub(crate) fn open_with(
        place: ObjectPrefix,
        events: Option<EventLog>,
        references: References,
    ) -> Result<Arc<Self>> {
        Self::touching(place, events, references, sweep::TOUCH_INTERVAL)
    }

    /// Open a sink as [`open_with`](Self::open_with) does, whose open sessions are touched at the
    /// interval `touch`.
    fn touching(
        place: ObjectPrefix,
        events: Option<EventLog>,
        references: References,
        touch: Duration,
    ) -> Result<Arc<Self>> {
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
        let starting = Arc::clone(&shared);
        let started = runtime::block_on(shared.runtime.spawn(async move { start(&starting.place).await }))?;
        match started {
            Ok(Ok(())) => {
                shared.runtime.spawn(sweep_periodically(shared.place.clone()));
                Ok(Arc::new(Self { shared: PerProcess::new(shared) }))
            }
            Ok(Err(error)) => Err(Error::io(format!("cannot use the sink {}", shared.place.uri()), plain(&error))),
            Err(error) => Err(Error::task(error)),
        }
    }

    /// Return the sessions of a committed transaction below a prefix: one list for each owner that
    /// has committed it.
    pub(crate) async fn committed(place: &ObjectPrefix, transaction: &str) -> object_store::Result<Vec<Vec<String>>> {
        transactions::committed(place, transaction).await
    }

    /// Return the sessions of a transaction that are prepared and not closed yet.
    pub(crate) async fn prepared(place: &ObjectPrefix, transaction: &str) -> object_store::Result<Vec<String>> {
        transactions::prepared(place, transaction).await
    }

    /// Read the stored lines of all sessions that had an ID, in order. Return true if all these
    /// sessions have ended, or if the sink has none of them.
    pub(crate) async fn lines(place: &ObjectPrefix, id: &str, each: impl FnMut(&[u8])) -> object_store::Result<bool> {
        list::lines(place, id, each).await
    }
}

/// Open a session's list in the store.
async fn open(shared: Arc<Shared>, session: NewSession) -> Result<OpenSession> {
    let NewSession { id, control, defer, certificate, .. } = session;
    let (inbox, messages) = mpsc::unbounded_channel();
    let (done, ended) = oneshot::channel();
    let batch_slots = Arc::new(Semaphore::new(WAITING_BATCHES));
    let list = List::new(shared.place.clone(), Arc::clone(&id));
    let entries = Entries::new(Arc::clone(&control), Arc::clone(&shared.counters), defer, certificate);
    let session = Session::new(Arc::clone(&shared), id, entries, list, Arc::clone(&batch_slots), done);
    let opened = shared.runtime.spawn(session.open()).await.map_err(Error::task)?;
    let session = opened.map_err(|error| cannot_open(&PathBuf::from(shared.place.uri()), error))?;
    let name = Arc::clone(session.name());
    shared.runtime.spawn(session.run(messages));
    let sink = Arc::new(ObjectSession { name, shared, inbox, batch_slots, control });
    Ok(OpenSession { sink, done: ended })
}

impl EntitySink for ObjectSink {
    fn open(&self, session: NewSession) -> BoxFuture<'static, Result<OpenSession>> {
        let shared = self.shared.get().map(Arc::clone);
        async move { open(shared?, session).await }.boxed()
    }

    fn limits_exceeded(&self) -> SinkLimits {
        self.shared.get().map_or_else(|_| SinkLimits::default(), |shared| shared.counters.limits())
    }

    fn write_metrics(&self, page: &mut Page<'_>) -> fmt::Result {
        // A forked child counts nothing.
        self.shared.get().map_or(Ok(()), |shared| shared.counters.write(page))
    }
}

impl SinkSession for ObjectSession {
    fn deliver(&self, entities: EntityBatch<'_>) {
        for entity in entities {
            self.shared.runtime.spawn(upload::receive(self.clone(), entity));
        }
    }

    fn observe(&self, events: Vec<SinkEvent>) -> Option<BoxFuture<'_, ()>> {
        if let Ok(permit) = self.batch_slots.try_acquire() {
            permit.forget();
            self.send(Message::Events(events));
            return None;
        }
        SinkCounters::add(&self.shared.counters.waits, 1);
        let waiting = async move {
            // The semaphore is never closed.
            if let Ok(permit) = self.batch_slots.acquire().await {
                permit.forget();
                self.send(Message::Events(events));
            }
        };
        Some(waiting.boxed())
    }

    fn spool(&self, _attempt: Attempt) -> io::Result<Spool> {
        tempfile::tempfile().map(Spool::anonymous)
    }
}

/// Finish the transactions of servers that crashed, and remove their leftovers.
async fn start(place: &ObjectPrefix) -> object_store::Result<()> {
    transactions::redo(place, SystemTime::now()).await?;
    sweep::sweep(place, SystemTime::now()).await
}

/// Clean up after other servers while this one runs. Ends with the sink's thread.
async fn sweep_periodically(place: ObjectPrefix) {
    loop {
        tokio::time::sleep(sweep::SWEEP_INTERVAL).await;
        if let Err(error) = start(&place).await {
            tracing::warn!(error = plain(&error), "cannot clean up after servers that crashed: retried later");
        }
    }
}
