//! Errors of vgi-rpc for Python.

use std::fmt::{self, Display};

use penstock_vgi::{ErrorKind, Failure};
use penstock_vgi_net::{ApplicationError, Error};
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;

mod python {
    pyo3::import_exception!(penstock.errors, VgiError);
    pyo3::import_exception!(penstock.vgi.external, ExternalLocationError);
}

/// An exception of the application on its way through the driver, with its text for the peer.
#[derive(Debug)]
struct Raised {
    exception: PyErr,
    message: String,
}

impl Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Raised {}

/// Return an exception as an error of the application.
pub(super) fn raised(exception: PyErr, message: String) -> ApplicationError {
    ApplicationError::new(Raised { exception, message })
}

/// Return the exception that an error of the application wraps.
fn exception(error: &ApplicationError) -> Option<PyErr> {
    let raised = error.downcast_ref::<Raised>()?;
    Some(Python::attach(|py| raised.exception.clone_ref(py)))
}

/// Return the exception for a batch that could not be stored or fetched.
pub(super) fn external_error(message: &str) -> PyErr {
    python::ExternalLocationError::new_err(("ExternalLocationError", message.to_owned(), ""))
}

/// The conversion of this protocol's errors for Python.
pub(crate) trait IntoVgiErr {
    /// Return the exception.
    fn into_vgi_err(self) -> PyErr;
}

impl IntoVgiErr for Error {
    fn into_vgi_err(self) -> PyErr {
        if let Self::Raised(error) = &self
            && let Some(exception) = exception(error)
        {
            return exception;
        }
        if let Self::Failed(failure) = &self {
            return Python::attach(|py| rpc_error(py, failure));
        }
        if let Self::Unfetched(_) = &self {
            return external_error(&self.to_string());
        }
        if let Self::Storage(error) = &self {
            let raised = external_error(&self.to_string());
            Python::attach(|py| raised.set_cause(py, exception(error)));
            return raised;
        }
        vgi_error(self.to_string(), self.kind())
    }
}

impl IntoVgiErr for penstock_vgi::Error {
    fn into_vgi_err(self) -> PyErr {
        vgi_error(self.to_string(), self.kind())
    }
}

pub(super) fn vgi_error(message: String, kind: ErrorKind) -> PyErr {
    python::VgiError::new_err((message, kind.name()))
}

/// Return the exception for a mistake of the caller.
pub(crate) fn misuse(message: &str) -> PyErr {
    vgi_error(message.to_owned(), ErrorKind::Misuse)
}

/// Return the server's error as an `RpcError`.
fn rpc_error(py: Python<'_>, failure: &Failure) -> PyErr {
    let raise = || {
        if failure.error_type == "HttpTransientError" {
            // This end made the failure from an HTTP status.
            return py
                .import("penstock.vgi.http")?
                .getattr("HttpTransientError")?
                .call_method1("of", (&failure.extra,));
        }
        let class = py.import("penstock.vgi.rpc")?.getattr("RpcError")?;
        let fields = (&failure.error_type, &failure.message, &failure.traceback);
        class.call(fields, Some(&[("request_id", &failure.request_id)].into_py_dict(py)?))
    };
    raise().map_or_else(|error| error, PyErr::from_value)
}

/// Return a failure from its fields in Python, and whether the parameters are at fault.
pub(super) fn failure(kind: &str, error_type: String, message: String, extra: String) -> PyResult<(bool, Failure)> {
    if !matches!(kind, "params" | "method") {
        return Err(misuse("a failure is one of \"params\" or of the \"method\""));
    }
    let (traceback, request_id) = (String::new(), String::new());
    Ok((kind == "params", Failure { error_type, message, extra, traceback, request_id }))
}
