//! Payloads from Python: bytes, a named file, or a binary Python file.

use std::io::{self, Read};

use bytes::Bytes;
use penstock_pipestream_net::Payload;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::waiting::attached;
use crate::documents::SourceArgument;
use crate::error::IntoPyErr;

/// Make a payload by reading and hashing the source, without the interpreter's lock unless Python
/// code is called.
///
/// Python's `bytes` are copied: the IO thread would have to release them through a lock of pyo3
/// that a fork could leave locked in the child forever. A copy costs a tenth of the hash.
pub(crate) fn make_payload(py: Python<'_>, source: SourceArgument) -> PyResult<Payload> {
    match source {
        SourceArgument::Bytes(data) => Ok(py.detach(|| Payload::bytes(Bytes::copy_from_slice(&data)))),
        SourceArgument::Path(path) => py.detach(|| Payload::path(&path)).map_err(IntoPyErr::into_py_err),
        SourceArgument::File(file) => {
            let mut reader = PythonFile { file, raised: None };
            let made = py.detach(|| Payload::reader(&mut reader));
            reader.raised.map_or_else(|| made.map_err(IntoPyErr::into_py_err), Err)
        }
    }
}

/// A Python file, read from its position to its end.
struct PythonFile {
    file: Py<PyAny>,
    raised: Option<PyErr>,
}

impl Read for PythonFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = attached(|py| {
            py.check_signals()?;
            let piece = self.file.bind(py).call_method1("read", (buffer.len(),))?;
            let bytes = piece.cast::<PyBytes>()?.as_bytes();
            match buffer.get_mut(..bytes.len()) {
                Some(room) => {
                    room.copy_from_slice(bytes);
                    Ok(bytes.len())
                }
                None => Err(pyo3::exceptions::PyValueError::new_err("read(size) returned more than size bytes")),
            }
        });
        read.map_err(|error| {
            self.raised = Some(error);
            io::Error::other("the Python file failed")
        })
    }
}
