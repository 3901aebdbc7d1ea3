//! An entity that the peer sends, for Python.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use penstock_net::{Error, pipestream as net};
use pyo3::prelude::*;

use super::fields::HeaderFields;
use super::keys::{KeyTuple, ScopeTuple, key_tuple, reason, scope_tuple};
use super::waiting::{Timeout, wait};
use crate::error::IntoPyErr;

/// An entity of the peer whose payload is there or coming.
#[pyclass(frozen, name = "IncomingEntity", module = "penstock._core")]
pub(crate) struct IncomingEntity {
    accepted: net::Accepted,
    header: net::EntityHeader,
    /// Empty while a thread reads it, and after the end. It is taken out to be read, so that nobody waits for the lock
    /// with the interpreter's lock in hand.
    entity: Home,
}

type Home = Arc<Mutex<Option<net::IncomingEntity>>>;

/// An entity while somebody reads it. Dropping it, whenever that is, puts the entity back as it is.
pub(crate) struct Borrowed {
    entity: Option<net::IncomingEntity>,
    home: Home,
}

impl Borrowed {
    /// The next octets of the payload.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        match &mut self.entity {
            Some(entity) => entity.chunk().await,
            None => Err(taken()),
        }
    }

    /// Takes it away for good.
    pub(crate) fn keep(mut self) -> PyResult<net::IncomingEntity> {
        self.entity.take().ok_or_else(|| taken().into_py_err())
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(entity) = self.entity.take() {
            *self.home.lock().unwrap_or_else(PoisonError::into_inner) = Some(entity);
        }
    }
}

fn taken() -> Error {
    Error::Misuse("the entity is completed, has failed, or is being read by somebody else".into())
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

    /// The next octets of the payload; `None` once it is whole and its checksum holds.
    fn chunk(&self, py: Python<'_>, timeout: Timeout) -> PyResult<Option<Bytes>> {
        let mut entity = self.borrow()?;
        wait(py, timeout, entity.chunk())
    }

    /// Reads what is left, then tells the peer COMPLETE.
    fn complete(&self, py: Python<'_>) -> PyResult<()> {
        // Piece by piece, so that Ctrl-C leaves the entity as it is.
        while self.chunk(py, Timeout::NEVER)?.is_some() {}
        wait(py, Timeout::NEVER, self.take()?.complete())
    }

    /// Tells the peer FAILED and why.
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

    /// Takes it out to be read.
    pub(crate) fn borrow(&self) -> PyResult<Borrowed> {
        Ok(Borrowed { entity: Some(self.take()?), home: Arc::clone(&self.entity) })
    }

    fn take(&self) -> PyResult<net::IncomingEntity> {
        self.entity().take().ok_or_else(|| taken().into_py_err())
    }

    fn entity(&self) -> MutexGuard<'_, Option<net::IncomingEntity>> {
        self.entity.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
