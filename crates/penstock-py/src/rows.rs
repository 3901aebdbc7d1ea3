//! Sending Arrow rows as entities for Python. `penstock_ingest` does the work, and no row passes
//! through Python.

use std::collections::BTreeMap;

use penstock_ingest::{RowFailure, RowOptions, RowTotals};
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatch;

use crate::documents::Interrupts;
use crate::error::IntoPyErr;
use crate::pipestream::session::Session;

type FailureTuple = (Option<String>, Option<String>, u64, String, String);

/// Sends rows into one session, into which nothing else is sent.
#[pyclass(frozen, name = "RowSender", module = "penstock._core")]
pub(crate) struct RowSender(penstock_ingest::RowSender);

/// The outcome of the rows.
#[derive(IntoPyObject)]
pub(crate) struct Totals {
    rows: u64,
    bytes: u64,
    scopes: u64,
    failed: u64,
    /// The number of rows that are not COMPLETE, under a policy.
    left_out: u64,
    /// The document, the path as JSON, the code, its name and the message of the first rows that
    /// failed.
    failures: Vec<FailureTuple>,
    /// The Merkle root over the root scope; `None` at layer 0, and before `finish`.
    merkle_root: Option<String>,
}

#[pymethods]
impl RowSender {
    /// `metadata` is added to every entity. With `scopes`, each run of rows of one document is a scope. `tolerant`: the
    /// session's policy decides which rows may be skipped, and only documents fail.
    #[new]
    #[pyo3(signature = (session, metadata, scopes, tolerant = false))]
    fn new(session: &Session, metadata: BTreeMap<String, String>, scopes: bool, tolerant: bool) -> PyResult<Self> {
        let options = RowOptions { metadata, scopes, tolerant };
        penstock_ingest::RowSender::new(session.handle.clone(), options).map(Self).map_err(IntoPyErr::into_py_err)
    }

    /// Send a batch; return when all of it was handed over. Waits while too much is in flight.
    fn send(&self, py: Python<'_>, batch: PyRecordBatch) -> PyResult<()> {
        let batch = batch.into_inner();
        let interrupts = Interrupts::default();
        let sent = py.detach(|| self.0.send(&batch, &interrupts));
        interrupts.result()?;
        sent.map_err(IntoPyErr::into_py_err)
    }

    /// Wait until every row has ended and the digests of all scopes have matched.
    fn finish(&self, py: Python<'_>) -> PyResult<Totals> {
        let interrupts = Interrupts::default();
        let finished = py.detach(|| self.0.finish(&interrupts));
        interrupts.result()?;
        let merkle_root = finished.map_err(IntoPyErr::into_py_err)?;
        Ok(Totals { merkle_root, ..self.totals() })
    }

    /// Return how the rows ended, as far as it is known.
    fn totals(&self) -> Totals {
        let RowTotals { rows, bytes, scopes, failed, left_out } = self.0.totals();
        let failures = self.0.failures().into_iter().map(failure_tuple).collect();
        Totals { rows, bytes, scopes, failed, left_out, failures, merkle_root: None }
    }
}

fn failure_tuple(failure: RowFailure) -> FailureTuple {
    let RowFailure { document, path, code, message } = failure;
    (document, path, code.code(), code.name().to_owned(), message)
}
