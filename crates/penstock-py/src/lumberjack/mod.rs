//! Lumberjack for Python: receivers and senders, which `penstock.lumberjack` wraps in typed classes.

pub(crate) mod aio;
pub(crate) mod options;
pub(crate) mod receiver;
pub(crate) mod sender;

use penstock_io::DriverError as _;
use penstock_lumberjack_net::Error;
use pyo3::PyErr;
use pyo3::prelude::*;

use crate::pipestream::waiting::{Timeout, wait_or_not};

mod python {
    pyo3::import_exception!(penstock.errors, LumberjackError);
}

/// Return the exception for an error. The protocol has no error codes, so the kind is the code.
pub(crate) fn raised(error: &Error) -> PyErr {
    python::LumberjackError::new_err((error.to_string(), error.kind().name()))
}

/// Wait for a result without the interpreter's lock. A timeout is an error of kind "deadline".
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    timeout: Timeout,
    future: impl Future<Output = Result<T, Error>> + Send,
) -> PyResult<T> {
    let late = || raised(&Error::deadline("it has taken longer than the time-out".into()));
    wait_or_not(py, timeout, async { Ok(future.await) })?.ok_or_else(late)?.map_err(|error| raised(&error))
}
