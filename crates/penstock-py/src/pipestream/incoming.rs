//! An entity that the peer sends, for Python.

use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use penstock_io::DriverError as _;
use penstock_io::sync::lock;
use penstock_pipestream_net as net;
use penstock_pipestream_net::Error;
use pyo3::prelude::*;

use super::fields::{ClaimFields, HeaderFields};
use super::keys::{KeyTuple, ScopeTuple, key_tuple, reason, scope_tuple};
use super::waiting::{Timeout, wait};
use crate::error::IntoPyErr;

/// An entity of the peer whose payload has arrived or is arriving.
#[pyclass(frozen, name = "IncomingEntity", module = "penstock._core")]
pub(crate) struct IncomingEntity {
    accepted: net::Accepted,
    header: net::EntityHeader,
    /// Empty while a thread reads the entity, and after its end. The entity is taken out to be read, so that no thread
    /// waits for this lock while it holds the interpreter's lock.
    entity: Home,
}

type Home = Arc<Mutex<Option<net::IncomingEntity>>>;

/// An entity that is being read. Dropping this at any time puts the entity back in its current state.
pub(crate) struct EntityGuard {
    entity: Option<net::IncomingEntity>,
    home: Home,
}

impl EntityGuard {
    /// Return the next bytes of the payload.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        match &mut self.entity {
            Some(entity) => entity.chunk().await,
            None => Err(taken()),
        }
    }

    fn unread(&mut self, bytes: Bytes) -> Result<(), Error> {
        match &mut self.entity {
            Some(entity) => entity.unread(bytes),
            None => Err(taken()),
        }
    }

    /// Tell the owner that the entity waits.
    pub(crate) async fn wait(&mut self, reason: net::YieldReason, state: Bytes) -> Result<(), Error> {
        match &mut self.entity {
            Some(entity) => entity.wait(reason, state).await,
            None => Err(taken()),
        }
    }

    /// Return the state from which the entity resumes, once the owner resumes it.
    pub(crate) async fn resumed(&mut self) -> Result<Option<Bytes>, Error> {
        match &mut self.entity {
            Some(entity) => entity.resumed().await,
            None => Err(taken()),
        }
    }

    /// Take the entity for good.
    pub(crate) fn keep(mut self) -> PyResult<net::IncomingEntity> {
        self.entity.take().ok_or_else(|| taken().into_py_err())
    }
}

impl Drop for EntityGuard {
    fn drop(&mut self) {
        if let Some(entity) = self.entity.take() {
            *lock(&self.home) = Some(entity);
        }
    }
}

/// Return why an entity is deferred, and for how long.
pub(crate) fn deferring(message: String, life: Option<f64>) -> PyResult<(net::Reason, Option<std::time::Duration>)> {
    let life = life.map(net::claim_life).transpose().map_err(IntoPyErr::into_py_err)?;
    Ok((net::Reason { code: net::ErrorCode::NoError, message }, life))
}

pub(crate) fn yield_reason(code: u8) -> PyResult<net::YieldReason> {
    net::YieldReason::try_from(code).map_err(|error| Error::Protocol(error).into_py_err())
}

fn taken() -> Error {
    Error::misuse("the entity is completed, has failed, or is being read by another caller".into())
}

#[pymethods]
impl IncomingEntity {
    fn key(&self) -> KeyTuple {
        key_tuple(self.accepted.key)
    }

    fn header(&self) -> HeaderFields {
        self.header.clone().into()
    }

    fn depth(&self) -> u8 {
        self.accepted.depth
    }

    fn is_dehydrated(&self) -> bool {
        self.accepted.dehydrated
    }

    fn child_scope(&self) -> Option<ScopeTuple> {
        self.accepted.child_scope.map(scope_tuple)
    }

    fn parent(&self) -> Option<KeyTuple> {
        self.accepted.parent.map(key_tuple)
    }

    /// Return the next bytes of the payload; `None` once it is complete and its checksum is right.
    fn chunk(&self, py: Python<'_>, timeout: Timeout) -> PyResult<Option<Bytes>> {
        let mut entity = self.borrow()?;
        wait(py, timeout, entity.chunk())
    }

    /// Read the rest of the payload, then tell the peer COMPLETE.
    fn complete(&self, py: Python<'_>) -> PyResult<()> {
        // Piece by piece, so that Ctrl-C leaves the entity in its current state.
        while self.chunk(py, Timeout::NEVER)?.is_some() {}
        wait(py, Timeout::NEVER, self.take()?.complete())
    }

    /// Tell the peer SKIPPED and the reason.
    fn skip(&self, py: Python<'_>, code: u64, message: String) -> PyResult<()> {
        wait(py, Timeout::NEVER, self.take_aside()?.skip(reason(code, message)))
    }

    /// Defer the entity under a claim check that is valid for this many seconds, or as long as the server allows.
    fn defer(&self, py: Python<'_>, message: String, life: Option<f64>) -> PyResult<ClaimFields> {
        let (why, life) = deferring(message, life)?;
        wait(py, Timeout::NEVER, self.take_to_defer()?.defer(why, life)).map(Into::into)
    }

    /// Put back bytes that were not used; they are returned next.
    fn unread(&self, data: Bytes) -> PyResult<()> {
        self.borrow()?.unread(data).map_err(IntoPyErr::into_py_err)
    }

    /// Tell the owner that the entity waits, and return the state when the owner resumes it; `None`: it starts over.
    fn wait(&self, py: Python<'_>, reason: u8, state: Bytes, timeout: Timeout) -> PyResult<Option<Bytes>> {
        let reason = yield_reason(reason)?;
        let mut entity = self.borrow()?;
        wait(py, Timeout::NEVER, entity.wait(reason, state))?;
        wait(py, timeout, entity.resumed())
    }

    /// Resume waiting for the owner, after a `wait` that timed out.
    fn wait_resumed(&self, py: Python<'_>, timeout: Timeout) -> PyResult<Option<Bytes>> {
        let mut entity = self.borrow()?;
        wait(py, timeout, entity.resumed())
    }

    /// Tell the peer FAILED and the reason.
    fn fail(&self, py: Python<'_>, code: u64, message: String) -> PyResult<()> {
        wait(py, Timeout::NEVER, self.take()?.fail(reason(code, message)))
    }
}

impl IncomingEntity {
    pub(crate) fn new(entity: net::IncomingEntity) -> Self {
        Self {
            accepted: *entity.accepted(),
            header: entity.header().clone(),
            entity: Arc::new(Mutex::new(Some(entity))),
        }
    }

    /// Take the entity out to be read.
    pub(crate) fn borrow(&self) -> PyResult<EntityGuard> {
        Ok(EntityGuard { entity: Some(self.take()?), home: Arc::clone(&self.entity) })
    }

    /// Take the entity out to be skipped or deferred; if neither is possible, it stays.
    pub(crate) fn take_aside(&self) -> PyResult<net::IncomingEntity> {
        let mut entity = self.entity();
        let found = entity.as_ref().ok_or_else(|| taken().into_py_err())?;
        found.check_layer2().map_err(IntoPyErr::into_py_err)?;
        entity.take().ok_or_else(|| taken().into_py_err())
    }

    /// Take the entity out to be deferred under a claim check.
    pub(crate) fn take_to_defer(&self) -> PyResult<net::IncomingEntity> {
        let mut entity = self.entity();
        let found = entity.as_ref().ok_or_else(|| taken().into_py_err())?;
        found.check_defer().map_err(IntoPyErr::into_py_err)?;
        entity.take().ok_or_else(|| taken().into_py_err())
    }

    fn take(&self) -> PyResult<net::IncomingEntity> {
        self.entity().take().ok_or_else(|| taken().into_py_err())
    }

    fn entity(&self) -> MutexGuard<'_, Option<net::IncomingEntity>> {
        lock(&self.entity)
    }
}
