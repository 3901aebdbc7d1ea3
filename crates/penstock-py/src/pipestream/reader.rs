//! Reading a sink for Python; `penstock.pipestream.SinkReader` wraps it.

use std::collections::HashSet;

use penstock_io::{Addresses, DriverError as _};
use penstock_pipestream_net::{Error, Result};
use penstock_pipestream_sink::SinkPlace;
use penstock_pipestream_sink::read::{self, ClosedSession, PieceReader, PlanLimits, RemoteSink, Selection};
use pyo3::prelude::*;
use pyo3_arrow::{PyRecordBatch, PySchema};

use super::fields::ClaimRowFields;
use super::options::ReaderOptions;
use super::waiting::{Timeout, wait};
use crate::error::IntoPyErr;

/// The start, end, rows and bytes of a piece.
type PieceTuple = (u64, u64, u64, u64);
/// The ID, rows and bytes of a session.
type SessionTuple = (String, u64, u64);

/// A sink that is being read.
#[pyclass(frozen, module = "penstock._core")]
pub(crate) struct SinkReader(read::SinkReader);

#[pymethods]
impl SinkReader {
    #[new]
    fn new(py: Python<'_>, options: ReaderOptions) -> PyResult<Self> {
        let place = SinkPlace::of(options.folder.as_deref(), &options.storage).map_err(IntoPyErr::into_py_err)?;
        match (place, &options.address) {
            (Some(place), _) => py.detach(|| read::SinkReader::open(place)).map(Self).map_err(IntoPyErr::into_py_err),
            (None, Some(address)) => connect(py, address, &options).map(|server| Self(server.into())),
            (None, None) => Err(Error::misuse("a folder or an address must be given".into()).into_py_err()),
        }
    }

    /// Return the closed sessions, in the order of their ends. Nothing is written.
    fn sessions(&self, py: Python<'_>) -> PyResult<Vec<SessionTuple>> {
        let sessions = wait(py, Timeout::NEVER, self.0.sessions())?;
        Ok(sessions.into_iter().map(session_tuple).collect())
    }

    /// Return the journal's name and length, and its sessions from a position on.
    fn follow(&self, py: Python<'_>, after: u64, max: usize) -> PyResult<(String, u64, Vec<SessionTuple>)> {
        let page = wait(py, Timeout::NEVER, self.0.follow(after, max))?;
        Ok((page.journal, page.length, page.sessions.into_iter().map(session_tuple).collect()))
    }

    /// Divide a session, from a position in its list on, into at most this many pieces; the rest starts at the second
    /// result.
    #[pyo3(signature = (session, start, max_bytes, rows, pieces, documents=None, names=None))]
    #[allow(clippy::too_many_arguments)]
    fn plan(
        &self,
        py: Python<'_>,
        session: &str,
        start: u64,
        max_bytes: u64,
        rows: u64,
        pieces: usize,
        documents: Option<HashSet<String>>,
        names: Option<HashSet<String>>,
    ) -> PyResult<(Vec<PieceTuple>, Option<u64>)> {
        let limits = PlanLimits { bytes: max_bytes, rows, pieces };
        let plan = wait(py, Timeout::NEVER, self.0.plan(session, start, limits, Selection { documents, names }))?;
        let tuples = plan.pieces.into_iter().map(|piece| (piece.start, piece.end, piece.rows, piece.bytes));
        Ok((tuples.collect(), plan.next))
    }

    /// Return the rows of a piece. Without `max_content` no content is read.
    #[pyo3(signature = (session, start, end, max_content, batch_bytes))]
    fn rows(&self, session: &str, start: u64, end: u64, max_content: Option<u64>, batch_bytes: u64) -> SinkRows {
        SinkRows(self.0.rows(session, start, end, max_content, batch_bytes))
    }

    /// Return the claim checks of the server that has the sink, ordered by expiry.
    fn claims(&self, py: Python<'_>) -> PyResult<Vec<ClaimRowFields>> {
        let rows = wait(py, Timeout::NEVER, self.0.claims())?;
        Ok(rows.into_iter().map(Into::into).collect())
    }

    /// Remove a session of a folder.
    fn remove(&self, py: Python<'_>, session: &str) -> PyResult<()> {
        py.detach(|| self.0.remove(session)).map_err(IntoPyErr::into_py_err)
    }
}

/// The rows of a piece, batch by batch.
#[pyclass(frozen, module = "penstock._core")]
pub(crate) struct SinkRows(PieceReader);

#[pymethods]
impl SinkRows {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let batch = wait(py, Timeout::NEVER, self.0.next())?;
        batch.map(|batch| Ok(PyRecordBatch::new(batch).into_pyarrow(py)?.unbind())).transpose()
    }
}

fn connect(py: Python<'_>, address: &str, options: &ReaderOptions) -> PyResult<RemoteSink> {
    let timeout: Timeout = Timeout::seconds(options.timeout)?;
    let prepare = || -> Result<_> {
        let addresses = Addresses::resolve(address)?;
        let missing = || Error::misuse("read_key is missing: a server lets nobody read its sink without it".into());
        let key = options.read_key.clone().ok_or_else(missing)?;
        let name = addresses.server_name(options.server_name.as_deref()).to_owned();
        Ok((addresses, name, options.tls()?, key))
    };
    let (addresses, name, tls, key) = py.detach(prepare).map_err(IntoPyErr::into_py_err)?;
    wait(py, timeout, async move {
        let connect = |address| {
            let (tls, name, key) = (tls.clone(), name.clone(), key.clone());
            async move { RemoteSink::connect(&tls, address, &name, &key).await }
        };
        addresses.connect(connect).await
    })
}

fn session_tuple(session: ClosedSession) -> SessionTuple {
    (session.id, session.rows, session.bytes)
}

/// Return the columns of a sink's rows, as a pyarrow schema.
#[pyfunction]
pub(crate) fn row_schema(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    PySchema::new(read::row_schema()).into_pyarrow(py)
}
