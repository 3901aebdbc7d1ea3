//! Errors of vgi-rpc for Python.

use penstock_io::DriverError as _;
use penstock_vgi::{ErrorKind, Failure};
use penstock_vgi_net::Error;
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;

mod python {
    pyo3::import_exception!(penstock.errors, VgiError);
}

/// Converts an error of this protocol for Python.
pub(crate) trait IntoVgiErr {
    /// Return the exception.
    fn into_vgi_err(self) -> PyErr;
}

impl IntoVgiErr for Error {
    fn into_vgi_err(self) -> PyErr {
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

/// Return the exception for a call whose method is not in the protocol: the core passes none on.
pub(crate) fn unknown_method() -> PyErr {
    Error::internal("the method of the call", "the protocol has none").into_vgi_err()
}

/// Return the error for a second thread on one connection.
pub(crate) fn busy() -> Error {
    Error::misuse("another thread is using this connection; each thread needs its own".to_owned())
}

/// Return the server's error as an `RpcError`.
pub(crate) fn rpc_error(py: Python<'_>, failure: &Failure) -> PyErr {
    let raise = || {
        if failure.error_type == "HttpTransientError" {
            // The failure was made at this end, from an HTTP status.
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

/// Return a failure from its fields in Python, and whether the parameters are to blame.
pub(super) fn failure(kind: &str, error_type: String, message: String, extra: String) -> PyResult<(bool, Failure)> {
    if !matches!(kind, "params" | "method") {
        return Err(misuse("a failure is one of \"params\" or of the \"method\""));
    }
    let (traceback, request_id) = (String::new(), String::new());
    Ok((kind == "params", Failure { error_type, message, extra, traceback, request_id }))
}
