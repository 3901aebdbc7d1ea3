//! Quicx for Python: daemons, producers, workers and pools, which `penstock.quicx` wraps in typed classes.

pub(crate) mod aio;
pub(crate) mod daemon;
pub(crate) mod options;
pub(crate) mod pool;
pub(crate) mod producer;
pub(crate) mod worker;

use penstock_io::DriverError as _;
use penstock_quicx_net::{Error, ErrorCode, StatsResponse};
use pyo3::PyErr;
use pyo3::prelude::*;

use crate::pipestream::waiting::{Timeout, wait_or_not};

mod python {
    pyo3::import_exception!(penstock.errors, QuicxError);
}

/// queue_depth, workers_total, workers_idle, pmad_bytes_used, pmad_bytes_total.
pub(crate) type StatsTuple = (u32, u32, u32, u64, u64);

pub(crate) const fn stats_tuple(stats: StatsResponse) -> StatsTuple {
    let StatsResponse { queue_depth, workers_total, workers_idle, pmad_bytes_used, pmad_bytes_total } = stats;
    (queue_depth, workers_total, workers_idle, pmad_bytes_used, pmad_bytes_total)
}

/// Return the exception for an error, with the protocol's code if the daemon has refused a request.
pub(crate) fn raised(error: &Error) -> PyErr {
    python::QuicxError::new_err((error.message(), error.kind().name(), error.code().map(ErrorCode::byte)))
}

/// Return the exception for a limit of this end that was exceeded.
pub(crate) fn too_much(message: String) -> PyErr {
    python::QuicxError::new_err((message, "limit", None::<u8>))
}

/// Wait for a result without the interpreter's lock; return `None` after the timeout.
pub(crate) fn wait_at_most<T: Send>(
    py: Python<'_>,
    timeout: Timeout,
    future: impl Future<Output = Result<T, Error>> + Send,
) -> PyResult<Option<T>> {
    wait_or_not(py, timeout, async { Ok(future.await) })?.transpose().map_err(|error| raised(&error))
}

/// Wait for a result without the interpreter's lock. A timeout is an error of kind "deadline".
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    timeout: Timeout,
    future: impl Future<Output = Result<T, Error>> + Send,
) -> PyResult<T> {
    let late = || raised(&Error::deadline("it has taken longer than the time-out".into()));
    wait_at_most(py, timeout, future)?.ok_or_else(late)
}
