//! Errors on their way to Python.
//!
//! The exception classes live in `python/penstock/errors.py`, so that they are typed, documented and pickled as any
//! Python class; here they are only raised. Each takes its fields as positional arguments, which is what makes it
//! survive a pickle, and so the way back from a Spark worker.

use pyo3::PyErr;
use tokio::task::JoinHandle;

mod python {
    pyo3::import_exception!(penstock.errors, PipeStreamError);
}

/// What a task has given; an error where it died.
pub(crate) async fn joined<T>(task: JoinHandle<penstock_net::Result<T>>) -> penstock_net::Result<T> {
    task.await.unwrap_or_else(|died| Err(penstock_net::Error::task(&died)))
}

/// What an error of a core is in Python.
pub(crate) trait IntoPyErr {
    /// The Python exception with every field of the error.
    fn into_py_err(self) -> PyErr;
}

impl IntoPyErr for penstock_pipestream::Error {
    fn into_py_err(self) -> PyErr {
        python::PipeStreamError::new_err((
            self.message().to_owned(),
            self.code().code(),
            self.code().name(),
            self.kind().name(),
            self.scope(),
            self.entity(),
        ))
    }
}

impl IntoPyErr for penstock_net::Error {
    fn into_py_err(self) -> PyErr {
        use penstock_net::Error;
        use penstock_pipestream::ErrorCode;

        // What happened at this end only has no code of its own in the registry.
        let code = match &self {
            Error::Protocol(error) => return error.clone().into_py_err(),
            Error::Closed(reason) => reason.code,
            Error::Deadline(_) => ErrorCode::IdleTimeout,
            Error::Io { .. }
            | Error::Tls(_)
            | Error::Lumberjack(_)
            | Error::Quicx(_)
            | Error::Refused(_)
            | Error::Pimp(_)
            | Error::Misuse(_)
            | Error::Task(_)
            | Error::Forked => ErrorCode::InternalError,
        };
        let message = if let Error::Closed(reason) = &self {
            format!("the session is closed: {}", reason.message)
        } else {
            self.to_string()
        };
        python::PipeStreamError::new_err((
            message,
            code.code(),
            code.name(),
            self.kind().name(),
            None::<u32>,
            None::<u32>,
        ))
    }
}
