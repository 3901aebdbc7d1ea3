//! Listening sockets for Python's threads.

use std::io;
use std::os::fd::IntoRawFd as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use penstock_io::admission::{FIRST_BYTE_TIMEOUT, IDLE_TIMEOUT};
use penstock_io::sync::lock;
use penstock_io::{Addresses, Error};
use penstock_vgi_net::{AdmittedConnection, GRACE, ListeningOptions, RpcListener};
use pyo3::exceptions::{PyFileExistsError, PyOSError, PyValueError};
use pyo3::prelude::*;

use super::errors::misuse;
use super::files::VgiTls;
use super::server::VgiServer;
use crate::pipestream::waiting::{Timeout, wait_or_not};

/// A listening socket.
#[pyclass(frozen, name = "VgiListener", module = "penstock._core")]
pub(crate) struct VgiListener {
    listening: RpcListener,
    port: u16,
}

/// An admitted connection. Its place is free again once this is closed.
#[pyclass(frozen, name = "VgiAccepted", module = "penstock._core")]
pub(crate) struct VgiAccepted(Mutex<Option<AdmittedConnection>>);

fn options(max_connections: Option<u64>, first_byte: f64) -> PyResult<ListeningOptions> {
    let first_byte =
        Duration::try_from_secs_f64(first_byte).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let default = ListeningOptions::default();
    Ok(ListeningOptions { connections: max_connections.unwrap_or(default.connections), first_byte })
}

/// Return the exception for a socket that cannot be bound: an `OSError`, as for a Python socket.
fn cannot_listen(error: &Error) -> PyErr {
    let Error::Io { source, .. } = error else { return PyOSError::new_err(error.to_string()) };
    match source.downcast_ref::<io::Error>() {
        Some(source) => io::Error::new(source.kind(), error.to_string()).into(),
        None => PyOSError::new_err(error.to_string()),
    }
}

#[pymethods]
impl VgiListener {
    /// The default number of seconds from accept to the end of a TLS handshake and the first byte of a request.
    #[classattr]
    const FIRST_BYTE: f64 = FIRST_BYTE_TIMEOUT.as_secs_f64();

    /// The default number of seconds for which a client may be silent.
    #[classattr]
    const IDLE: f64 = IDLE_TIMEOUT.as_secs_f64();

    /// How many seconds running calls have once the server stops.
    #[classattr]
    const GRACE: f64 = GRACE.as_secs_f64();

    /// Listen on `HOST:PORT`; a changed certificate of `tls` is reloaded.
    #[staticmethod]
    #[pyo3(signature = (server, address, *, first_byte, max_connections=None, tls=None))]
    fn tcp(
        py: Python<'_>,
        server: &Bound<'_, VgiServer>,
        address: &str,
        first_byte: f64,
        max_connections: Option<u64>,
        tls: Option<&Bound<'_, VgiTls>>,
    ) -> PyResult<Self> {
        let (options, counters) = (options(max_connections, first_byte)?, server.get().counters());
        let tls = tls.map(|tls| tls.get().tls());
        let bound = py.detach(|| RpcListener::tcp(Addresses::resolve(address)?, tls, options, counters));
        let (listening, address) = bound.map_err(|error| cannot_listen(&error))?;
        Ok(Self { listening, port: address.port() })
    }

    /// Listen on a Unix socket to which only this user may connect; `FileExistsError` if another server listens there,
    /// or another file exists there.
    #[staticmethod]
    #[pyo3(signature = (server, path, *, first_byte, max_connections=None))]
    fn unix(
        py: Python<'_>,
        server: &Bound<'_, VgiServer>,
        path: PathBuf,
        first_byte: f64,
        max_connections: Option<u64>,
    ) -> PyResult<Self> {
        let (options, counters) = (options(max_connections, first_byte)?, server.get().counters());
        let bound = py.detach(|| RpcListener::unix(&path, options, counters));
        let listening = bound.map_err(|error| match error {
            Error::Busy(_) | Error::Misuse(_) => PyFileExistsError::new_err(error.to_string()),
            Error::Io { .. }
            | Error::Content { .. }
            | Error::Limit { .. }
            | Error::Tls { .. }
            | Error::Task(_)
            | Error::Stopped(_)
            | Error::Internal { .. }
            | Error::Deadline(_)
            | Error::Forked => cannot_listen(&error),
        })?;
        Ok(Self { listening, port: 0 })
    }

    /// Return the TCP port; 0 for a Unix socket.
    #[getter]
    fn port(&self) -> u16 {
        self.port
    }

    /// Wait for the next connection; `None` once this is closed.
    fn accept(&self, py: Python<'_>) -> PyResult<Option<VgiAccepted>> {
        let accepted = wait_or_not(py, Timeout::NEVER, async { Ok(self.listening.accept().await?) })?;
        Ok(accepted.flatten().map(|accepted| VgiAccepted(Mutex::new(Some(accepted)))))
    }

    /// Stop accepting connections, and end the open ones once their calls are answered. Return how many were cut off,
    /// because their calls took longer than the grace.
    fn drain(&self, py: Python<'_>) -> PyResult<usize> {
        let cut_off = wait_or_not(py, Timeout::NEVER, async { Ok(self.listening.drain(GRACE).await) })?;
        Ok(cut_off.unwrap_or_default())
    }

    /// Pause after a connection that no thread can serve. Return whether the log should say so.
    fn back_off(&self, py: Python<'_>) -> PyResult<bool> {
        let told = wait_or_not(py, Timeout::NEVER, async { Ok(self.listening.back_off().await?) })?;
        Ok(told.unwrap_or_default())
    }

    /// Stop accepting connections.
    fn close(&self) {
        self.listening.close();
    }
}

#[pymethods]
impl VgiAccepted {
    /// Return the descriptor of its socket, which the caller must close.
    fn detach(&self) -> PyResult<i32> {
        let mut accepted = lock(&self.0);
        let socket = accepted.as_mut().and_then(AdmittedConnection::take_socket);
        socket.map(|socket| socket.into_raw_fd()).ok_or_else(|| misuse("the socket was taken"))
    }

    /// Return how many seconds are left for the first byte.
    #[getter]
    fn time_left(&self) -> f64 {
        let accepted = lock(&self.0);
        accepted.as_ref().map_or(0.0, |accepted| accepted.time_left().as_secs_f64())
    }

    /// Make its place free for another connection.
    fn close(&self) {
        drop(lock(&self.0).take());
    }
}
