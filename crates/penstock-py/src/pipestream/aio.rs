//! Futures for asyncio, which `penstock.aio` wraps.
//!
//! Only the event loop's own thread polls a future, when a task awaits it. So the task has a result
//! as soon as the result exists, and cancelling a task loses nothing: its future is dropped in its
//! current state. The IO thread only signals that a poll is worthwhile, through a pipe that the
//! loop watches, with one byte for all futures that became ready together. It never takes the
//! interpreter's lock, and no call needs a thread.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use penstock_io::sync::lock;
use penstock_io::{Addresses, DriverError as _, runtime};
use penstock_pipestream_net::{Client, Error, PendingPayload};
use pyo3::IntoPyObjectExt as _;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::events::EventFields;
use super::fields::{CheckpointFields, ClaimFields, ClaimRowFields, DigestFields};
use super::incoming::{IncomingEntity, deferring, yield_reason};
use super::keys::{KeyTuple, ReasonFields, ScopeTuple, TicketFields, entity_key, reason, scope_key};
use super::options::{ConnectOptions, ServeOptions};
use super::payload::make_payload;
use super::server::{Server, status_of};
use super::session::{DraftFields, Session, outcome, session_id};
use crate::documents::SourceArgument;
use crate::error::{IntoPyErr, joined};

/// A function that makes the result of an operation, on the loop's thread.
type Done = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;
type Work = Pin<Box<dyn Future<Output = Done> + Send>>;

/// The operations that are worth polling, and the pipe that signals them.
struct ReadyQueue {
    ready: Mutex<Vec<u64>>,
    sender: UnixStream,
}

impl ReadyQueue {
    fn push(&self, operation: u64) {
        let first = {
            let mut ready = lock(&self.ready);
            ready.push(operation);
            ready.len() == 1
        };
        if first {
            // A full pipe already signals, and a pipe without a reader means that its loop is
            // closed.
            let _ = (&self.sender).write(&[1]);
        }
    }
}

/// The waker of one operation.
struct QueueWaker {
    queue: Arc<ReadyQueue>,
    operation: u64,
}

impl Wake for QueueWaker {
    fn wake(self: Arc<Self>) {
        self.queue.push(self.operation);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.queue.push(self.operation);
    }
}

/// The futures of one event loop.
#[pyclass(frozen, name = "Futures", module = "penstock._core")]
pub(crate) struct Futures {
    queue: Arc<ReadyQueue>,
    receiver: UnixStream,
    next: AtomicU64,
}

/// An operation in progress. Poll it until it returns a result.
#[pyclass(frozen, name = "Operation", module = "penstock._core")]
pub(crate) struct Operation {
    id: u64,
    process: u32,
    waker: Waker,
    work: Mutex<Option<Work>>,
}

#[pymethods]
impl Operation {
    /// Return its ID in the results of `Futures.ready`.
    #[getter]
    fn id(&self) -> u64 {
        self.id
    }

    /// Return the result in a tuple of one; `None` if it is not ready, and then `Futures.ready` will report it.
    fn poll(&self, py: Python<'_>) -> PyResult<Option<(Py<PyAny>,)>> {
        if self.process != std::process::id() {
            return Err(penstock_io::Error::Forked.into_py_err());
        }
        let mut slot = lock(&self.work);
        let over = || Error::misuse("the operation is over".into()).into_py_err();
        let work = slot.as_mut().ok_or_else(over)?;
        let polled = runtime::poll(work.as_mut(), &mut Context::from_waker(&self.waker));
        match polled.map_err(IntoPyErr::into_py_err)? {
            Poll::Pending => Ok(None),
            Poll::Ready(done) => {
                *slot = None;
                drop(slot);
                done(py).map(|value| Some((value,)))
            }
        }
    }

    /// Cancel the operation and undo what it has begun.
    fn cancel(&self) {
        if self.process == std::process::id() {
            drop(lock(&self.work).take());
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // In a forked child the future's locks may be held forever, so it is leaked.
            std::mem::forget(lock(&self.work).take());
        }
    }
}

#[pymethods]
impl Futures {
    #[new]
    fn new() -> io::Result<Self> {
        let (receiver, sender) = UnixStream::pair()?;
        receiver.set_nonblocking(true)?;
        sender.set_nonblocking(true)?;
        let queue = ReadyQueue { ready: Mutex::default(), sender };
        Ok(Self { queue: Arc::new(queue), receiver, next: AtomicU64::new(0) })
    }

    /// Return the descriptor that is readable when an operation is ready.
    fn fileno(&self) -> i32 {
        self.receiver.as_raw_fd()
    }

    /// Return the IDs of the operations that are worth polling.
    fn ready(&self) -> Vec<u64> {
        while matches!((&self.receiver).read(&mut [0; 64]), Ok(read) if read > 0) {}
        std::mem::take(&mut *lock(&self.queue.ready))
    }

    fn connect(&self, address: String, options: ConnectOptions) -> PyResult<Operation> {
        let on_disk = options.state.is_some();
        let prepared = runtime::spawn_blocking(move || {
            let client = Client::new(&options.tls()?)?;
            let host = Addresses::resolve(&address)?;
            Ok::<_, Error>((client, host, options.session()?, options.server_name))
        });
        let prepared = prepared.map_err(IntoPyErr::into_py_err)?;
        Ok(self.start(async move {
            let (client, host, session, name) = joined(prepared).await.map_err(IntoPyErr::into_py_err)?;
            let connected = client.connect_host(&host, name.as_deref(), &session).await;
            connected.map(|handle| Session { handle, on_disk }).map_err(IntoPyErr::into_py_err)
        }))
    }

    fn send(&self, session: &Session, draft: DraftFields, payload: SourceArgument) -> PyResult<Operation> {
        let (handle, payload) = (session.handle.clone(), prepare(payload)?);
        Ok(self.start(async move {
            let payload = payload.get().await.map_err(IntoPyErr::into_py_err)??;
            handle.send(draft.into(), payload).await.map(TicketFields::from).map_err(IntoPyErr::into_py_err)
        }))
    }

    /// Send many entities. Either all are announced, or the first error is raised and the announced ones are given up.
    fn send_many(&self, session: &Session, items: Vec<(DraftFields, SourceArgument)>) -> PyResult<Operation> {
        let handle = session.handle.clone();
        let prepared = items.into_iter().map(|(draft, payload)| Ok((draft.into(), prepare(payload)?)));
        let prepared = prepared.collect::<PyResult<Vec<_>>>()?;
        Ok(self.start(async move {
            let mut items = Vec::with_capacity(prepared.len());
            for (draft, payload) in prepared {
                items.push((draft, payload.get().await.map_err(IntoPyErr::into_py_err)??));
            }
            let tickets = handle.send_all(items).await.map_err(IntoPyErr::into_py_err)?;
            Ok(tickets.into_iter().map(TicketFields::from).collect::<Vec<_>>())
        }))
    }

    fn announce_failed(&self, session: &Session, draft: DraftFields, code: u64, message: String) -> Operation {
        let handle = session.handle.clone();
        self.start(async move {
            let announced = handle.announce_failed(draft.into(), reason(code, message)).await;
            announced.map(TicketFields::from).map_err(IntoPyErr::into_py_err)
        })
    }

    fn fail(&self, session: &Session, key: KeyTuple, code: u64, message: String) -> Operation {
        let handle = session.handle.clone();
        self.start(
            async move { handle.fail(entity_key(key), reason(code, message)).await.map_err(IntoPyErr::into_py_err) },
        )
    }

    fn skip(&self, session: &Session, key: KeyTuple, code: u64, message: String) -> Operation {
        let handle = session.handle.clone();
        self.start(
            async move { handle.skip(entity_key(key), reason(code, message)).await.map_err(IntoPyErr::into_py_err) },
        )
    }

    /// Return a yield token to the receiver.
    fn resume(&self, session: &Session, key: KeyTuple, token: Bytes) -> Operation {
        let handle = session.handle.clone();
        self.start(async move {
            let refused = handle.resume(entity_key(key), token).await.map_err(IntoPyErr::into_py_err)?;
            Ok(refused.map(ReasonFields::from))
        })
    }

    fn claim(&self, session: &Session, id: u64) -> Operation {
        let handle = session.handle.clone();
        self.start(async move { handle.claim(id).await.map(ClaimFields::from).map_err(IntoPyErr::into_py_err) })
    }

    fn redeem(&self, session: &Session, id: u64, of: &str) -> PyResult<Operation> {
        let (handle, of) = (session.handle.clone(), session_id(of)?);
        Ok(self
            .start(async move { handle.redeem(id, of).await.map(ClaimFields::from).map_err(IntoPyErr::into_py_err) }))
    }

    fn end_children(&self, session: &Session, parent: KeyTuple) -> Operation {
        let handle = session.handle.clone();
        self.start(async move { handle.end_children(entity_key(parent)).await.map_err(IntoPyErr::into_py_err) })
    }

    fn end_root(&self, session: &Session) -> Operation {
        let handle = session.handle.clone();
        self.start(async move { handle.end_root().await.map_err(IntoPyErr::into_py_err) })
    }

    /// Take the outcome of one of our entities.
    fn wait_resolved(&self, session: &Session, key: KeyTuple) -> Operation {
        let handle = session.handle.clone();
        self.start(
            async move { handle.wait_resolved(entity_key(key)).await.map(outcome).map_err(IntoPyErr::into_py_err) },
        )
    }

    /// Take the digest of one of our scopes.
    fn wait_released(&self, session: &Session, scope: ScopeTuple) -> Operation {
        let handle = session.handle.clone();
        self.start(async move {
            let released = handle.wait_released(scope_key(scope)).await.map_err(IntoPyErr::into_py_err)?;
            Ok(DigestFields::from(released.digest))
        })
    }

    fn checkpoint(&self, session: &Session, scope: u32, entity: u32, timeout: Option<f64>) -> PyResult<Operation> {
        let timeout = timeout.map(Duration::try_from_secs_f64).transpose();
        let timeout = timeout.map_err(|error| PyValueError::new_err(format!("timeout: {error}")))?;
        let handle = session.handle.clone();
        Ok(self.start(async move {
            let answer = handle.checkpoint(scope, entity, timeout).await.map_err(IntoPyErr::into_py_err)?;
            Ok(CheckpointFields::from(answer.checkpoint))
        }))
    }

    /// Return the next events, empty once the session has ended, and how many before them were dropped.
    fn events(&self, session: &Session, max: usize) -> Operation {
        let handle = session.handle.clone();
        self.start(async move {
            let batch = handle.events(max).await.map_err(IntoPyErr::into_py_err)?;
            Ok((batch.events.into_iter().map(EventFields::from).collect::<Vec<_>>(), batch.lost))
        })
    }

    /// Return the peer's next entity; `None` once the session has ended.
    fn receive(&self, session: &Session) -> Operation {
        let handle = session.handle.clone();
        self.start(async move {
            let entity = handle.next_entity().await.map_err(IntoPyErr::into_py_err)?;
            Ok(entity.map(IncomingEntity::from))
        })
    }

    fn close(&self, session: &Session) -> Operation {
        let handle = session.handle.clone();
        self.start(async move { handle.close().await.map(ReasonFields::from).map_err(IntoPyErr::into_py_err) })
    }

    /// Wait for the end of the session.
    fn closed(&self, session: &Session) -> Operation {
        let handle = session.handle.clone();
        self.start(async move { handle.closed().await.map(ReasonFields::from).map_err(IntoPyErr::into_py_err) })
    }

    /// Return the next bytes of a payload; `None` once it is complete and its checksum is right.
    fn chunk(&self, entity: &IncomingEntity) -> PyResult<Operation> {
        let mut entity = entity.borrow()?;
        Ok(self.start(async move { entity.chunk().await.map_err(IntoPyErr::into_py_err) }))
    }

    /// Read the rest of the payload, then tell the peer COMPLETE.
    fn complete(&self, entity: &IncomingEntity) -> PyResult<Operation> {
        let entity = entity.borrow()?;
        Ok(self.start(async move { entity.complete().await.map_err(IntoPyErr::into_py_err) }))
    }

    /// Tell the owner that the entity waits, and return the state when it resumes; `None`: it starts over.
    fn wait(&self, entity: &IncomingEntity, reason: u8, state: Bytes) -> PyResult<Operation> {
        let (mut entity, reason) = (entity.borrow()?, yield_reason(reason)?);
        Ok(self.start(async move {
            entity.wait(reason, state).await.map_err(IntoPyErr::into_py_err)?;
            entity.resumed().await.map_err(IntoPyErr::into_py_err)
        }))
    }

    /// Resume waiting after a `wait` that was cancelled.
    fn wait_resumed(&self, entity: &IncomingEntity) -> PyResult<Operation> {
        let mut entity = entity.borrow()?;
        Ok(self.start(async move { entity.resumed().await.map_err(IntoPyErr::into_py_err) }))
    }

    /// Defer the entity under a claim check.
    fn defer(&self, entity: &IncomingEntity, message: String, life: Option<f64>) -> PyResult<Operation> {
        let ((why, life), entity) = (deferring(message, life)?, entity.take_to_defer()?);
        Ok(self
            .start(async move { entity.defer(why, life).await.map(ClaimFields::from).map_err(IntoPyErr::into_py_err) }))
    }

    /// Wait for open claim checks that were not returned before; `None`: the server is closed.
    fn wait_claims(&self, server: Py<Server>) -> Operation {
        self.start(async move {
            let rows = server.get().fresh_claims().await.map_err(IntoPyErr::into_py_err)?;
            Ok(rows.map(|rows| rows.into_iter().map(ClaimRowFields::from).collect::<Vec<_>>()))
        })
    }

    /// Conclude the work of a claim check that was not redeemed.
    fn settle(&self, server: Py<Server>, id: u64, status: u8) -> PyResult<Operation> {
        let status = status_of(status)?;
        Ok(self.start(async move { server.get().net().settle(id, status).await.map_err(IntoPyErr::into_py_err) }))
    }

    fn listen(&self, listen: String, options: ServeOptions) -> PyResult<Operation> {
        let bound = runtime::spawn_blocking(move || Server::bind(&listen, &options));
        let bound = bound.map_err(IntoPyErr::into_py_err)?;
        Ok(self.start(async move { joined(bound).await.map_err(IntoPyErr::into_py_err) }))
    }

    /// Return the next session; `None` once the server is closed.
    fn accept(&self, server: Py<Server>) -> Operation {
        self.start(async move { Ok(server.get().next().await?.map(|handle| Session { handle, on_disk: false })) })
    }

    /// Stop accepting connections, let the sessions end for up to `grace` seconds, then close.
    fn shutdown(&self, server: Py<Server>, grace: f64) -> Operation {
        self.start(async move { server.get().shutdown(grace).await.map_err(IntoPyErr::into_py_err) })
    }
}

impl Futures {
    pub(crate) fn start<T>(&self, future: impl Future<Output = PyResult<T>> + Send + 'static) -> Operation
    where
        T: for<'py> IntoPyObject<'py> + Send + 'static,
    {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let work = async move {
            let result = future.await;
            let done: Done = Box::new(move |py| result?.into_py_any(py));
            done
        };
        let waker = Waker::from(Arc::new(QueueWaker { queue: Arc::clone(&self.queue), operation: id }));
        Operation { id, process: std::process::id(), waker, work: Mutex::new(Some(Box::pin(work))) }
    }
}

/// Read and hash a payload: a small one here, any other on a thread of the pool.
fn prepare(source: SourceArgument) -> PyResult<PendingPayload<PyErr>> {
    let length = match &source {
        SourceArgument::Bytes(bytes) => Some(bytes.len()),
        SourceArgument::Path(_) | SourceArgument::File(_) => None,
    };
    PendingPayload::new(length, move || Python::attach(|py| make_payload(py, source))).map_err(IntoPyErr::into_py_err)
}
