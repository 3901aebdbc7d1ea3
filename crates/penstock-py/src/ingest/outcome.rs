//! The outcome of a document: its receipt and its rows.

use std::sync::Arc;

use penstock_ingest::PartColumns;
use pyo3::prelude::*;

use crate::error::IntoPyErr;

/// How a document ended, and how each of its parts did.
#[pyclass(frozen, name = "DocumentOutcome", module = "penstock._core")]
pub(crate) struct DocumentOutcome(Arc<penstock_ingest::DocumentOutcome>);

impl DocumentOutcome {
    pub(super) fn new(outcome: Arc<penstock_ingest::DocumentOutcome>) -> Self {
        Self(outcome)
    }
}

#[pymethods]
impl DocumentOutcome {
    #[getter]
    fn key(&self) -> &str {
        self.0.key()
    }

    #[getter]
    fn content_root(&self) -> &str {
        self.0.content_root()
    }

    /// Return the receipt as JSON; unless `whole`, without scopes and parts.
    fn receipt(&self, py: Python<'_>, whole: bool) -> PyResult<String> {
        py.detach(|| self.0.receipt(whole)).map_err(IntoPyErr::into_py_err)
    }

    /// Return, as JSON, the facts about these parts that are needed to combine the document's groups.
    fn group(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| self.0.group()).map_err(IntoPyErr::into_py_err)
    }

    /// Return rows from number `start` on (the document itself is 0): at most `max_rows`, with at most `max_bytes` of
    /// text unless a single row has more; and the number of the next row, if there is one. `claims` adds the column of
    /// claim checks, `placed` all columns that a receipt needs.
    fn rows(
        &self,
        py: Python<'_>,
        start: usize,
        max_rows: usize,
        max_bytes: usize,
        placed: bool,
        claims: bool,
    ) -> PyResult<(Py<PyAny>, Option<usize>)> {
        let columns = PartColumns::of(placed, claims);
        let made = py.detach(|| self.0.rows(start, max_rows, max_bytes, columns));
        let (batch, next) = made.map_err(IntoPyErr::into_py_err)?;
        Ok((pyo3_arrow::PyRecordBatch::new(batch).into_pyarrow(py)?.unbind(), next))
    }

    /// Return how many parts there are in total, and how many of them are COMPLETE.
    fn counts(&self) -> (u64, u64) {
        self.0.counts()
    }
}

/// Return the schema of rows; with the column of claim checks, or all columns that a receipt needs.
#[pyfunction]
#[pyo3(signature = (*, placed = false, claims = false))]
pub(crate) fn part_schema(py: Python<'_>, placed: bool, claims: bool) -> PyResult<Py<PyAny>> {
    let schema = PartColumns::of(placed, claims).schema();
    Ok(pyo3_arrow::PySchema::new(schema).into_pyarrow(py)?.unbind())
}
