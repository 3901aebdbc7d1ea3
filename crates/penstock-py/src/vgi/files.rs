//! Making channels from Python objects: descriptors as numbers, or binary files.

use std::io::{self, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;

use penstock_io::tls::{ClientTlsOptions, Identity, ServerTls};
use penstock_vgi_net::{Channel, Interrupted, Peer, Sink, Source, Tls, duplicate};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::errors::IntoVgiErr as _;
use super::stop;
use crate::error::IntoPyErr;
use crate::pipestream::waiting::attached;

/// The TLS configuration of connections over TCP.
#[pyclass(frozen, name = "VgiTls", module = "penstock._core")]
pub(crate) struct VgiTls {
    tls: Tls,
}

#[pymethods]
impl VgiTls {
    /// Make the configuration of the accepting end: its certificate, and the CA of allowed clients.
    #[staticmethod]
    #[pyo3(signature = (cert, key, client_ca=None))]
    fn server(cert: PathBuf, key: PathBuf, client_ca: Option<PathBuf>) -> PyResult<Self> {
        let tls = ServerTls { identity: Identity::Files { cert, key }, client_ca };
        Ok(Self { tls: Tls::server(&tls).map_err(IntoPyErr::into_py_err)? })
    }

    /// Make the configuration of the connecting end: the servers it trusts, and its certificate.
    #[staticmethod]
    #[pyo3(signature = (server_name, *, fingerprint=None, ca=None, system_ca=false, cert=None, key=None))]
    fn client(
        server_name: &str,
        fingerprint: Option<&str>,
        ca: Option<PathBuf>,
        system_ca: bool,
        cert: Option<PathBuf>,
        key: Option<PathBuf>,
    ) -> PyResult<Self> {
        let made = (|| {
            let fingerprint = fingerprint.map(str::to_owned);
            let options = ClientTlsOptions { fingerprint, ca, system_ca, cert, key };
            Tls::client(&options.required()?, server_name)
        })();
        Ok(Self { tls: made.map_err(IntoPyErr::into_py_err)? })
    }

    /// Return the fingerprint that clients may pin now; `None` at the connecting end.
    #[getter]
    fn fingerprint(&self) -> Option<String> {
        match &self.tls {
            Tls::Server(acceptor) => Some(acceptor.fingerprint().to_string()),
            Tls::Client(..) => None,
        }
    }
}

impl VgiTls {
    pub(super) const fn tls(&self) -> &Tls {
        &self.tls
    }
}

/// Return a channel over two descriptors or two files. `writer` is `None` for a socket, which is
/// both.
pub(crate) fn channel(
    reader: &Bound<'_, PyAny>,
    writer: Option<&Bound<'_, PyAny>>,
    tls: Option<&Bound<'_, VgiTls>>,
) -> PyResult<Channel> {
    let writer = writer.unwrap_or(reader);
    if let Some(tls) = tls {
        let socket = duplicate(reader.extract::<i32>()?)?;
        return tls.get().tls.channel(socket).map_err(IntoPyErr::into_py_err);
    }
    if let (Ok(read), Ok(write)) = (reader.extract::<i32>(), writer.extract::<i32>()) {
        return Ok(Channel::descriptors(duplicate(read)?, duplicate(write)?));
    }
    let file = |object: &Bound<'_, PyAny>| PythonFile { object: object.clone().unbind() };
    // An object without a descriptor may lead anywhere, so its peer counts as remote.
    let descriptor = |object: &Bound<'_, PyAny>| -> Option<OwnedFd> {
        duplicate(object.call_method0(intern!(object.py(), "fileno")).ok()?.extract().ok()?).ok()
    };
    let peer = descriptor(reader).zip(descriptor(writer)).map_or(Peer::Remote, |(read, write)| Peer::of(&read, &write));
    Ok(Channel::new(Box::new(file(reader)), Box::new(file(writer)), true, peer))
}

/// A binary Python file. Its exceptions become IO errors with their text.
struct PythonFile {
    object: Py<PyAny>,
}

impl PythonFile {
    fn call<T>(&mut self, call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> io::Result<T> {
        attached(|py| call(self.object.bind(py)).map_err(|error| io::Error::other(error.to_string())))
    }
}

impl Read for PythonFile {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        self.call(|file| {
            let bytes = file.call_method1(intern!(file.py(), "read"), (space.len(),))?;
            if bytes.is_none() {
                return Ok(0);
            }
            let bytes = bytes.extract::<&[u8]>()?;
            let count = bytes.len().min(space.len());
            space.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            Ok(count)
        })
    }
}

impl Write for PythonFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.call(|file| {
            let written = file.call_method1(intern!(file.py(), "write"), (PyBytes::new(file.py(), bytes),))?;
            Ok(written.extract::<usize>().unwrap_or(bytes.len()))
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.call(|file| file.call_method0(intern!(file.py(), "flush")).map(drop))
    }
}

impl Source for PythonFile {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Sink for PythonFile {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Run a wait without the interpreter's lock. An exception of a signal handler stops the wait and
/// is returned, as does a [`VgiStop`] that this thread watches.
pub(crate) fn waiting<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(penstock_vgi_net::Check<'_>) -> T + Send,
) -> (T, Option<PyErr>) {
    let mut raised = None;
    let result = py.detach(|| {
        work(&mut || {
            let checked = attached(|py| py.check_signals()).and_then(|()| stop::check());
            checked.map_err(|error| {
                raised = Some(error);
                Interrupted
            })
        })
    });
    (result, raised)
}

/// Run a step of the driver without the interpreter's lock, as [`waiting`] does.
pub(crate) fn driven<T: Send>(
    py: Python<'_>,
    step: impl FnOnce(penstock_vgi_net::Check<'_>) -> penstock_vgi_net::Result<T> + Send,
) -> PyResult<T> {
    let (result, raised) = waiting(py, step);
    result.map_err(|error| raised.unwrap_or_else(|| error.into_vgi_err()))
}
