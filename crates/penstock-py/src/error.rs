//! The conversion of errors to Python exceptions.
//!
//! The exception classes are defined in `python/penstock/errors.py`, so that they are typed,
//! documented and pickled like any Python class; this module only raises them. Each takes its
//! fields as positional arguments, so that it can be pickled and sent back from a Spark worker.

use penstock_io::DriverError;
use penstock_pipestream::ErrorCode;
use penstock_wire::ErrorKind;
use pyo3::PyErr;
use pyo3::exceptions::{PyOSError, PyValueError};
use tokio::task::JoinHandle;

mod python {
    pyo3::import_exception!(penstock.errors, PipeStreamError);
}

/// Return the result of a task, or an error if the task panicked.
pub(crate) async fn joined<T, E: DriverError>(task: JoinHandle<Result<T, E>>) -> Result<T, E> {
    task.await.unwrap_or_else(|died| Err(E::task(died)))
}

/// The conversion of a core's error for Python.
pub(crate) trait IntoPyErr {
    /// Return the Python exception with all fields of the error.
    fn into_py_err(self) -> PyErr;
}

impl IntoPyErr for penstock_pipestream::Error {
    fn into_py_err(self) -> PyErr {
        python::PipeStreamError::new_err((
            self.message(),
            self.kind().name(),
            self.code().code(),
            self.code().name(),
            self.scope(),
            self.entity(),
        ))
    }
}

impl IntoPyErr for penstock_pipestream_net::Error {
    fn into_py_err(self) -> PyErr {
        match self {
            Self::Protocol(error) => error.into_py_err(),
            Self::Local(_)
            | Self::Misuse(_)
            | Self::Refused(_)
            | Self::Negotiating
            | Self::Ended(_)
            | Self::Closed(_) => pipestream_error(self.message(), self.nearest_code(), self.kind()),
        }
    }
}

impl IntoPyErr for penstock_io::Error {
    fn into_py_err(self) -> PyErr {
        penstock_pipestream_net::Error::Local(self).into_py_err()
    }
}

impl IntoPyErr for penstock_ingest::Error {
    fn into_py_err(self) -> PyErr {
        use penstock_ingest::Error;

        match self {
            Error::Value(_) | Error::PreviousReceipt(_) | Error::Receipt(_) => PyValueError::new_err(self.to_string()),
            Error::Rows(_) => PyOSError::new_err(self.to_string()),
            Error::Session(error) => error.into_py_err(),
            // The interruption has raised a Python exception, which takes precedence over this one.
            Error::Interrupted(text) => penstock_io::Error::Deadline(text.to_owned()).into_py_err(),
        }
    }
}

pub(crate) fn pipestream_error(message: String, code: ErrorCode, kind: ErrorKind) -> PyErr {
    python::PipeStreamError::new_err((message, kind.name(), code.code(), code.name(), None::<u32>, None::<u32>))
}
