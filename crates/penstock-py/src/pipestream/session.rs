//! A session for Python; `penstock.pipestream.Session` wraps it.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use penstock_io::{Addresses, DriverError as _};
use penstock_pipestream::PipeDoc;
use penstock_pipestream_net::{Client, EntityDraft, Error, Resolution, Role, SessionHandle, SessionId};
use pyo3::prelude::*;

use super::events::EventFields;
use super::fields::{AgreementFields, CheckpointFields, ClaimFields, DigestFields, PolicyFields};
use super::incoming::IncomingEntity;
use super::keys::{KeyTuple, ReasonFields, ScopeTuple, TicketFields, entity_key, reason, scope_key};
use super::options::ConnectOptions;
use super::payload::make_payload;
use super::pipe_doc::OwnerFields;
use super::waiting::{Timeout, wait, wait_or_not};
use crate::documents::SourceArgument;
use crate::error::IntoPyErr;

/// One end of a PipeStream session. Rust code that sends for Python clones the handle.
#[pyclass(frozen, name = "Session", module = "penstock._core")]
pub(crate) struct Session {
    pub(crate) handle: SessionHandle,
    /// Whether its state is on disk, so that another process may resume it.
    pub(crate) on_disk: bool,
}

/// The attributes of an entity to announce.
#[derive(FromPyObject)]
pub(crate) struct DraftFields {
    parent: Option<KeyTuple>,
    dehydrate: bool,
    layer: u32,
    content_type: String,
    metadata: BTreeMap<String, String>,
    chunk_size: Option<u64>,
    #[pyo3(default)]
    policy: Option<PolicyFields>,
    #[pyo3(default)]
    label: Bytes,
    /// The document's identity and its owner.
    #[pyo3(default)]
    doc_id: Option<String>,
    #[pyo3(default)]
    owner: Option<OwnerFields>,
}

impl From<DraftFields> for EntityDraft {
    fn from(fields: DraftFields) -> Self {
        let DraftFields { parent, dehydrate, layer, content_type, metadata, chunk_size, policy, label, doc_id, owner } =
            fields;
        let (parent, policy) = (parent.map(entity_key), policy.map(Into::into));
        let document = doc_id.map(|doc_id| PipeDoc { doc_id, entity_id: 0, ownership: owner.map(Into::into) });
        Self { parent, dehydrate, layer, content_type, metadata, chunk_size, policy, document, label }
    }
}

/// The outcome of an entity that we sent: its status, the reason, the number of attempts, and its
/// claim check.
pub(crate) type Outcome = (u8, Option<ReasonFields>, u32, Option<u64>);

pub(crate) fn outcome(resolution: Resolution) -> Outcome {
    let Resolution { status, reason, attempts, claim } = resolution;
    (status.code(), reason.map(Into::into), attempts, claim)
}

/// Parse a session ID of 32 hex digits.
pub(crate) fn session_id(text: &str) -> PyResult<SessionId> {
    SessionId::parse(text).map_err(|error| Error::Protocol(error).into_py_err())
}

#[pymethods]
impl Session {
    /// Connect and agree on capabilities.
    #[staticmethod]
    fn connect(py: Python<'_>, address: &str, options: ConnectOptions) -> PyResult<Self> {
        let prepared = py.detach(|| {
            let session = options.session()?;
            let client = Client::new(&options.tls()?)?;
            Ok((client, Addresses::resolve(address)?, session))
        });
        let on_disk = options.state.is_some();
        let (client, host, session) = prepared.map_err(|error: penstock_pipestream_net::Error| error.into_py_err())?;
        let late = || Error::deadline(format!("{address} did not answer in time")).into_py_err();
        let connecting = client.connect_host(&host, options.server_name.as_deref(), &session);
        let connected = wait_or_not(py, options.timeout, connecting)?;
        connected.map(|handle| Self { handle, on_disk }).ok_or_else(late)
    }

    fn id(&self) -> PyResult<String> {
        self.handle.id().map(|id| id.to_string()).map_err(IntoPyErr::into_py_err)
    }

    /// Return whether an earlier process began the session.
    fn resumed(&self) -> PyResult<bool> {
        self.handle.resumed().map_err(IntoPyErr::into_py_err)
    }

    /// Return whether that process had begun to close it.
    fn closing(&self) -> PyResult<bool> {
        self.handle.closing().map_err(IntoPyErr::into_py_err)
    }

    fn is_client(&self) -> PyResult<bool> {
        self.handle.role().map(|role| role == Role::Client).map_err(IntoPyErr::into_py_err)
    }

    fn peer_address(&self) -> PyResult<String> {
        self.handle.peer_address().map(|address| address.to_string()).map_err(IntoPyErr::into_py_err)
    }

    fn agreement(&self) -> PyResult<AgreementFields> {
        self.handle.agreement().map(Into::into).map_err(IntoPyErr::into_py_err)
    }

    /// Return why the session has ended, if it has.
    fn is_closed(&self) -> PyResult<Option<ReasonFields>> {
        self.handle.is_closed().map(|reason| reason.map(Into::into)).map_err(IntoPyErr::into_py_err)
    }

    fn send(&self, py: Python<'_>, draft: DraftFields, payload: SourceArgument) -> PyResult<TicketFields> {
        let payload = make_payload(py, payload)?;
        wait(py, Timeout::NEVER, self.handle.send(draft.into(), payload)).map(Into::into)
    }

    /// Announce an entity that cannot be delivered.
    fn announce_failed(
        &self,
        py: Python<'_>,
        draft: DraftFields,
        code: u64,
        message: String,
    ) -> PyResult<TicketFields> {
        let failed = self.handle.announce_failed(draft.into(), reason(code, message));
        wait(py, Timeout::NEVER, failed).map(Into::into)
    }

    fn fail(&self, py: Python<'_>, key: KeyTuple, code: u64, message: String) -> PyResult<()> {
        wait(py, Timeout::NEVER, self.handle.fail(entity_key(key), reason(code, message)))
    }

    /// Skip one of our entities.
    fn skip(&self, py: Python<'_>, key: KeyTuple, code: u64, message: String) -> PyResult<()> {
        wait(py, Timeout::NEVER, self.handle.skip(entity_key(key), reason(code, message)))
    }

    /// Return a yield token to the receiver. Returns the receiver's reason if the entity does not resume from its
    /// state.
    fn resume(&self, py: Python<'_>, key: KeyTuple, token: Bytes, timeout: Timeout) -> PyResult<Option<ReasonFields>> {
        Ok(wait(py, timeout, self.handle.resume(entity_key(key), token))?.map(Into::into))
    }

    /// Return the status of one of the peer's claim checks.
    fn claim(&self, py: Python<'_>, id: u64, timeout: Timeout) -> PyResult<ClaimFields> {
        wait(py, timeout, self.handle.claim(id)).map(Into::into)
    }

    /// Redeem an entity that the peer has deferred in another session.
    fn redeem(&self, py: Python<'_>, id: u64, session: &str, timeout: Timeout) -> PyResult<ClaimFields> {
        wait(py, timeout, self.handle.redeem(id, session_id(session)?)).map(Into::into)
    }

    fn end_children(&self, py: Python<'_>, parent: KeyTuple) -> PyResult<()> {
        wait(py, Timeout::NEVER, self.handle.end_children(entity_key(parent)))
    }

    fn end_root(&self, py: Python<'_>) -> PyResult<()> {
        wait(py, Timeout::NEVER, self.handle.end_root())
    }

    /// Take the outcome of one of our entities.
    fn wait_resolved(&self, py: Python<'_>, key: KeyTuple, timeout: Timeout) -> PyResult<Option<Outcome>> {
        Ok(wait_or_not(py, timeout, self.handle.wait_resolved(entity_key(key)))?.map(outcome))
    }

    /// Take the digest of one of our scopes.
    fn wait_released(&self, py: Python<'_>, scope: ScopeTuple, timeout: Timeout) -> PyResult<Option<DigestFields>> {
        let released = wait_or_not(py, timeout, self.handle.wait_released(scope_key(scope)))?;
        Ok(released.map(|released| released.digest.into()))
    }

    /// Return the answer to a CHECKPOINT.
    fn checkpoint(&self, py: Python<'_>, scope: u32, entity: u32, timeout: Option<f64>) -> PyResult<CheckpointFields> {
        let timeout = timeout.map(Duration::try_from_secs_f64).transpose();
        let timeout = timeout.map_err(|error| pyo3::exceptions::PyValueError::new_err(format!("timeout: {error}")))?;
        wait(py, Timeout::NEVER, self.handle.checkpoint(scope, entity, timeout)).map(|answer| answer.checkpoint.into())
    }

    /// Return the next events, empty once the session has ended, and how many before them were dropped; `None`: none
    /// yet.
    fn events(&self, py: Python<'_>, max: usize, timeout: Timeout) -> PyResult<Option<(Vec<EventFields>, u64)>> {
        let batch = wait_or_not(py, timeout, self.handle.events(max))?;
        Ok(batch.map(|batch| (batch.events.into_iter().map(EventFields::from).collect(), batch.lost)))
    }

    /// Return the peer's next entity; `None` once the session has ended.
    fn next_entity(&self, py: Python<'_>, timeout: Timeout) -> PyResult<Option<IncomingEntity>> {
        Ok(wait(py, timeout, self.handle.next_entity())?.map(IncomingEntity::from))
    }

    /// End the session and return why it ended.
    fn close(&self, py: Python<'_>, timeout: Timeout) -> PyResult<ReasonFields> {
        wait(py, timeout, self.handle.close()).map(Into::into)
    }

    /// Give up one of our entities and everything below it, without waiting.
    fn give_up(&self, key: KeyTuple, code: u64, message: String) -> PyResult<()> {
        self.handle.give_up(entity_key(key), reason(code, message)).map_err(IntoPyErr::into_py_err)
    }

    /// Leave the session in this process: if its state is on disk, the next process resumes it.
    fn leave(&self, code: u64, message: String) -> PyResult<()> {
        self.handle.leave(reason(code, message)).map_err(IntoPyErr::into_py_err)
    }

    fn abort(&self, code: u64, message: String) -> PyResult<()> {
        self.handle.abort(reason(code, message)).map_err(IntoPyErr::into_py_err)
    }

    /// Wait for the end of the session; `None`: it has not ended yet.
    fn closed(&self, py: Python<'_>, timeout: Timeout) -> PyResult<Option<ReasonFields>> {
        Ok(wait_or_not(py, timeout, self.handle.closed())?.map(Into::into))
    }
}
