//! The digests of a receipt.

use std::sync::Mutex;

use penstock_io::sync::lock;
use penstock_pipestream::Status;
use pyo3::prelude::*;

use crate::error::IntoPyErr;

/// The content root, computed part by part in the receipt's order.
#[pyclass(frozen, name = "ContentTree", module = "penstock._core")]
#[derive(Default)]
pub(crate) struct ContentTree(Mutex<penstock_pipestream::ContentTree>);

#[pymethods]
impl ContentTree {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Add a part: its path, the digest of its bytes unless they were never read, and its status.
    fn push(&self, path: Vec<String>, sha256: Option<[u8; 32]>, status: u8) -> PyResult<()> {
        let status = Status::try_from(status).map_err(IntoPyErr::into_py_err)?;
        let mut tree = lock(&self.0);
        tree.push(path, sha256.as_ref(), status).map_err(IntoPyErr::into_py_err)
    }

    /// Return the root over all parts so far.
    fn root(&self) -> [u8; 32] {
        lock(&self.0).root()
    }
}

/// Return the key of a document, which names its receipt.
#[pyfunction]
pub(crate) fn document_key(document: &str, sha256: [u8; 32]) -> String {
    penstock_pipestream::document_key(document, &sha256)
}
