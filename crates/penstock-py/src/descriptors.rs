//! Descriptors for servers whose sockets are Python's; those of the drivers see to it themselves.

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// Descriptors that a server was promised, until this goes.
#[pyclass(module = "penstock._core", frozen)]
#[derive(Debug)]
pub(crate) struct Descriptors(penstock_io::Descriptors);

#[pymethods]
impl Descriptors {
    /// Raises the limit of descriptors to what so many connections need, each of which needs so many.
    #[new]
    fn new(what: &str, connections: u64, each: u64) -> PyResult<Self> {
        let promised = penstock_io::provide_descriptors(what, connections, each);
        promised.map(Self).map_err(|error| PyOSError::new_err(error.to_string()))
    }

    /// Connections that there are descriptors for.
    #[getter]
    fn connections(&self) -> u64 {
        self.0.connections()
    }
}
