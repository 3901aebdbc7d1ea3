//! PIMP for Python: buffers, jobs, senders and consumers, which `penstock.pimp` wraps in typed classes.

pub(crate) mod aio;
pub(crate) mod buffer;
pub(crate) mod consumer;
pub(crate) mod job;
pub(crate) mod options;
pub(crate) mod sender;
pub(crate) mod trigger;

use std::time::Duration;

use penstock_io::{DriverError as _, duration, runtime};
use penstock_pimp_net::Error;
use pyo3::PyErr;
use pyo3::prelude::*;

use crate::error::joined;
use crate::pipestream::waiting::{Timeout, wait_or_not};

mod python {
    pyo3::import_exception!(penstock.errors, PimpError);
}

/// Return the exception for an error, with the name of its code, or of its kind if it has no code.
pub(crate) fn raised(error: &Error) -> PyErr {
    python::PimpError::new_err((error.to_string(), error.kind().name(), error.code_name()))
}

/// Close a server, and cut off requests that still run after `grace` seconds. Closing blocks, so it
/// runs on a thread of the pool.
pub(crate) async fn closed(
    grace: f64,
    close: impl FnOnce(Duration) -> Result<(), Error> + Send + 'static,
) -> Result<(), Error> {
    let grace = duration::grace(grace);
    joined(runtime::spawn_blocking(move || close(grace))?).await
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
