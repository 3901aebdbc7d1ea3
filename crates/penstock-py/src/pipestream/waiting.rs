//! Waiting for the IO thread without the interpreter's lock, with Ctrl-C and a timeout.

use std::time::{Duration, Instant};

use penstock_io::DriverError as _;
use penstock_io::runtime::{self, Interrupted, WaitError};
use penstock_pipestream_net::Error;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::IntoPyErr;

/// The limit of a wait in seconds; `None` means no limit, and 0 or less means a single check.
#[derive(Clone, Copy)]
pub(crate) struct Timeout(Option<Instant>);

impl Timeout {
    /// No timeout.
    pub(crate) const NEVER: Self = Self(None);

    /// Return the deadline, if there is one.
    pub(crate) fn deadline(self) -> Option<Instant> {
        self.0
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Timeout {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        Self::seconds(object.extract::<Option<f64>>()?)
    }
}

impl Timeout {
    /// Make a timeout of this many seconds from now; `None` means no limit.
    pub(crate) fn seconds(seconds: Option<f64>) -> PyResult<Self> {
        match seconds {
            None => Ok(Self::NEVER),
            Some(seconds) if seconds.is_nan() => {
                Err(PyValueError::new_err("a time-out is a number of seconds, not NaN"))
            }
            // A time beyond the clock's range is no limit.
            Some(seconds) => Ok(Duration::try_from_secs_f64(seconds.max(0.0))
                .ok()
                .and_then(|duration| Instant::now().checked_add(duration))
                .map_or(Self::NEVER, |deadline| Self(Some(deadline)))),
        }
    }
}

/// Run work with the interpreter in the midst of a wait or of a long run without it. While the
/// interpreter shuts down, no thread may return to it: this thread waits for the end of the
/// process.
pub(crate) fn attached<T>(work: impl FnOnce(Python<'_>) -> T) -> T {
    if let Some(done) = Python::try_attach(work) {
        return done;
    }
    loop {
        std::thread::park();
    }
}

/// Wait for a result. A timeout is an error of kind "deadline".
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    timeout: Timeout,
    future: impl Future<Output = Result<T, Error>> + Send,
) -> PyResult<T> {
    let late = || Error::deadline("it has taken longer than the time-out".into()).into_py_err();
    wait_or_not(py, timeout, future)?.ok_or_else(late)
}

/// Wait for a result; return `None` after the timeout.
pub(crate) fn wait_or_not<T: Send>(
    py: Python<'_>,
    timeout: Timeout,
    future: impl Future<Output = Result<T, Error>> + Send,
) -> PyResult<Option<T>> {
    let mut raised = None;
    let waited = py.detach(|| {
        runtime::wait(future, timeout.0, &mut || {
            attached(|py| py.check_signals()).map_err(|error| {
                raised = Some(error);
                Interrupted
            })
        })
    });
    match waited {
        Ok(result) => result.map(Some).map_err(IntoPyErr::into_py_err),
        Err(WaitError::Deadline) => Ok(None),
        Err(WaitError::Runtime(error)) => Err(error.into_py_err()),
        Err(WaitError::Interrupted) => {
            Err(raised.unwrap_or_else(|| Error::deadline("the wait was interrupted".into()).into_py_err()))
        }
    }
}
