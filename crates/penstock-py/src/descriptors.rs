//! Descriptors for servers whose sockets are Python's; those of the drivers see to it themselves.

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// Raises the limit of descriptors to what so many connections need; gives how many there can be.
#[pyfunction]
pub(crate) fn provide_descriptors(what: &str, connections: u64) -> PyResult<u64> {
    penstock_net::provide_descriptors(what, connections).map_err(|error| PyOSError::new_err(error.to_string()))
}
