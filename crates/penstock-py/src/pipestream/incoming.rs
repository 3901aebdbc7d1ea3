//! An entity received from the peer, for Python.

use bytes::Bytes;
use penstock_pipestream_net::{self as net, EntityGuard, Error, SharedEntity};
use pyo3::prelude::*;

use super::fields::{ClaimFields, HeaderFields};
use super::keys::{KeyTuple, ScopeTuple, key_tuple, reason, scope_tuple};
use super::waiting::{Timeout, wait};
use crate::error::IntoPyErr;

/// An entity of the peer whose payload has arrived or is arriving.
#[pyclass(frozen, name = "IncomingEntity", module = "penstock._core")]
pub(crate) struct IncomingEntity(SharedEntity);

impl From<net::IncomingEntity> for IncomingEntity {
    fn from(entity: net::IncomingEntity) -> Self {
        Self(entity.into())
    }
}

/// Return the reason for deferring an entity, and the life of its claim check.
pub(crate) fn deferring(message: String, life: Option<f64>) -> PyResult<(net::Reason, Option<std::time::Duration>)> {
    let life = life.map(net::claim_life).transpose().map_err(IntoPyErr::into_py_err)?;
    Ok((net::Reason { code: net::ErrorCode::NoError, message }, life))
}

pub(crate) fn yield_reason(code: u8) -> PyResult<net::YieldReason> {
    net::YieldReason::try_from(code).map_err(|error| Error::Protocol(error).into_py_err())
}

#[pymethods]
impl IncomingEntity {
    fn key(&self) -> KeyTuple {
        key_tuple(self.0.accepted().key)
    }

    fn header(&self) -> HeaderFields {
        self.0.header().clone().into()
    }

    fn depth(&self) -> u8 {
        self.0.accepted().depth
    }

    fn is_dehydrated(&self) -> bool {
        self.0.accepted().dehydrated
    }

    fn child_scope(&self) -> Option<ScopeTuple> {
        self.0.accepted().child_scope.map(scope_tuple)
    }

    fn parent(&self) -> Option<KeyTuple> {
        self.0.accepted().parent.map(key_tuple)
    }

    /// Return the next bytes of the payload; `None` once it is complete and its checksum is right.
    fn chunk(&self, py: Python<'_>, timeout: Timeout) -> PyResult<Option<Bytes>> {
        let mut entity = self.borrow()?;
        wait(py, timeout, entity.chunk())
    }

    /// Read the rest of the payload, then tell the peer COMPLETE.
    fn complete(&self, py: Python<'_>) -> PyResult<()> {
        wait(py, Timeout::NEVER, self.borrow()?.complete())
    }

    /// Tell the peer SKIPPED and the reason.
    fn skip(&self, py: Python<'_>, code: u64, message: String) -> PyResult<()> {
        wait(py, Timeout::NEVER, self.0.take_to_skip().map_err(IntoPyErr::into_py_err)?.skip(reason(code, message)))
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
        wait(py, Timeout::NEVER, self.0.take().map_err(IntoPyErr::into_py_err)?.fail(reason(code, message)))
    }
}

impl IncomingEntity {
    /// Take the entity out to read it.
    pub(crate) fn borrow(&self) -> PyResult<EntityGuard> {
        self.0.borrow().map_err(IntoPyErr::into_py_err)
    }

    /// Take the entity out to defer it under a claim check.
    pub(crate) fn take_to_defer(&self) -> PyResult<net::IncomingEntity> {
        self.0.take_to_defer().map_err(IntoPyErr::into_py_err)
    }
}
