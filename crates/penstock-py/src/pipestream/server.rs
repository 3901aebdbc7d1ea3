//! A server for Python; `penstock.pipestream.Server` wraps it.

use penstock_io::sync::Latch;
use penstock_io::{Addresses, DriverError as _, duration, tls};
use penstock_pipestream_net::{self as net, Error, IncomingSessions, Result, ServerOptions, SessionHandle};
use pyo3::prelude::*;

use super::fields::ClaimRowFields;
use super::options::ServeOptions;
use super::session::Session;
use super::waiting::{Timeout, wait, wait_or_not};
use crate::error::IntoPyErr;

/// A listening server.
#[pyclass(frozen, name = "Server", module = "penstock._core")]
pub(crate) struct Server {
    server: net::Server,
    /// The source of sessions, unless a sink takes their entities.
    sessions: Option<IncomingSessions>,
    /// The latch that ends the waits for another session.
    closed: Latch,
}

/// A server's counters, in the fields of the dataclass.
#[derive(IntoPyObject)]
pub(crate) struct CounterFields {
    connections_total: u64,
    connections_open: u64,
    refused: u64,
    entities: u64,
    completed: u64,
    failed: u64,
    abandoned: u64,
    skipped: u64,
    deferred: u64,
    retries: u64,
    yields: u64,
    reconnects: u64,
    claims: u64,
    bytes: u64,
    failures: Vec<(u64, u64)>,
    events_lost: u64,
    limits: Vec<(&'static str, u64)>,
}

#[pymethods]
impl Server {
    #[new]
    fn new(py: Python<'_>, listen: &str, options: ServeOptions) -> PyResult<Self> {
        py.detach(|| Self::bind(listen, &options)).map_err(IntoPyErr::into_py_err)
    }

    fn address(&self) -> PyResult<String> {
        self.server.local_addr().map(|address| address.to_string()).map_err(IntoPyErr::into_py_err)
    }

    fn fingerprint(&self) -> PyResult<String> {
        self.server.fingerprint().map(|fingerprint| fingerprint.to_string()).map_err(IntoPyErr::into_py_err)
    }

    fn metrics_address(&self) -> PyResult<Option<String>> {
        let address = self.server.metrics_addr().map_err(IntoPyErr::into_py_err)?;
        Ok(address.map(|address| address.to_string()))
    }

    fn counters(&self) -> PyResult<CounterFields> {
        let counters = self.server.counters().map_err(IntoPyErr::into_py_err)?;
        Ok(CounterFields {
            connections_total: counters.connections_total,
            connections_open: counters.connections_open,
            refused: counters.refused,
            entities: counters.entities,
            completed: counters.completed,
            failed: counters.failed,
            abandoned: counters.abandoned,
            skipped: counters.skipped,
            deferred: counters.deferred,
            retries: counters.retries,
            yields: counters.yields,
            reconnects: counters.reconnects,
            claims: counters.claims,
            bytes: counters.bytes,
            failures: counters.failures.into_iter().map(|(code, count)| (code.code(), count)).collect(),
            events_lost: counters.events_lost,
            limits: counters.limits,
        })
    }

    /// Return the next session; `None` once the server is closed.
    fn next_session(&self, py: Python<'_>, timeout: Timeout) -> PyResult<Option<Session>> {
        let next = wait_or_not(py, timeout, async { Ok(self.next().await) })?;
        let late = || Error::deadline("it has taken longer than the time-out".into()).into_py_err();
        Ok(next.ok_or_else(late)??.map(|handle| Session { handle, on_disk: false }))
    }

    /// Return the known claim checks, ordered by expiry.
    fn claims(&self, py: Python<'_>) -> PyResult<Vec<ClaimRowFields>> {
        let rows = py.detach(|| self.server.claims()).map_err(IntoPyErr::into_py_err)?;
        Ok(rows.into_iter().map(Into::into).collect())
    }

    /// Return the claim checks that may be redeemed, in the order in which they were issued.
    fn open_claims(&self, py: Python<'_>) -> PyResult<Vec<ClaimRowFields>> {
        let rows = py.detach(|| self.server.open_claims()).map_err(IntoPyErr::into_py_err)?;
        Ok(rows.into_iter().map(Into::into).collect())
    }

    /// Wait for open claim checks that were not returned before; empty after the timeout; `None` once the server is
    /// closed.
    fn wait_claims(&self, py: Python<'_>, timeout: Timeout) -> PyResult<Option<Vec<ClaimRowFields>>> {
        let fresh = wait_or_not(py, timeout, async { Ok(self.fresh_claims().await) })?;
        let Some(fresh) = fresh else { return Ok(Some(Vec::new())) };
        let rows = fresh.map_err(IntoPyErr::into_py_err)?;
        Ok(rows.map(|rows| rows.into_iter().map(Into::into).collect()))
    }

    /// Conclude the work of a claim check that was not redeemed.
    fn settle(&self, py: Python<'_>, id: u64, status: u8) -> PyResult<()> {
        let status = status_of(status)?;
        wait(py, Timeout::NEVER, self.server.settle(id, status))
    }

    /// Stop accepting connections, let the sessions end for up to `grace` seconds, then close.
    fn close(&self, py: Python<'_>, grace: f64) -> PyResult<()> {
        wait(py, Timeout::NEVER, self.shutdown(grace))
    }
}

impl Server {
    /// Return the next session, or `None` once the server is closed.
    pub(crate) async fn next(&self) -> PyResult<Option<SessionHandle>> {
        let Some(sessions) = &self.sessions else {
            return Err(Error::misuse("the sink takes this server's sessions".into()).into_py_err());
        };
        Ok(self.closed.unless_set(sessions.next()).await.flatten())
    }

    /// Return the open claim checks that were not returned before, or `None` once the server is
    /// closed.
    pub(crate) async fn fresh_claims(&self) -> Result<Option<Vec<net::ClaimRow>>> {
        self.closed.unless_set(self.server.fresh_claims()).await.transpose()
    }

    pub(crate) fn net(&self) -> &net::Server {
        &self.server
    }

    pub(crate) async fn shutdown(&self, grace: f64) -> Result<()> {
        self.closed.set();
        self.server.shutdown(duration::grace(grace)).await
    }

    pub(crate) fn bind(listen: &str, options: &ServeOptions) -> Result<Self> {
        let mut listening = ServerOptions::new(Addresses::resolve(listen)?, options.tls()?);
        listening.metrics = options.metrics()?;
        let (server, sessions) = options.settings(listening)?.bind()?;
        Ok(Self { server, sessions, closed: Latch::default() })
    }
}

/// Return a status by its number.
pub(crate) fn status_of(code: u8) -> PyResult<net::Status> {
    net::Status::try_from(code).map_err(|error| Error::Protocol(error).into_py_err())
}

/// Write ca.pem, cert.pem and key.pem for localhost, and return the certificate's fingerprint.
#[pyfunction]
pub(crate) fn write_certificates(py: Python<'_>, directory: std::path::PathBuf) -> PyResult<String> {
    let written = py.detach(|| tls::write_certificates(&directory));
    written.map(|fingerprint| fingerprint.to_string()).map_err(IntoPyErr::into_py_err)
}
