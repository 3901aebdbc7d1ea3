//! A large binary Python file as a source, read in place.

use std::io;

use bytes::Bytes;
use penstock_ingest::BlockSource;
use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::interrupts::Interrupts;
use crate::pipestream::waiting::attached;

/// A seekable Python file, from its initial position to its end.
pub(super) struct PythonFile {
    file: Py<PyAny>,
    interrupts: Interrupts,
    start: u64,
    length: u64,
}

impl PythonFile {
    /// Open a Python file; return `None` if it is not seekable.
    pub(super) fn new(file: &Py<PyAny>, interrupts: &Interrupts) -> io::Result<Option<Self>> {
        attached(|py| {
            let bound = file.bind(py);
            let measured = (|| -> PyResult<Option<(u64, u64)>> {
                if !bound.hasattr("seekable")? || !bound.call_method0("seekable")?.is_truthy()? {
                    return Ok(None);
                }
                let start: u64 = bound.call_method0("tell")?.extract()?;
                bound.call_method1("seek", (0, 2))?;
                let end: u64 = bound.call_method0("tell")?.extract()?;
                bound.call_method1("seek", (start,))?;
                Ok(Some((start, end.saturating_sub(start))))
            })();
            match measured {
                Ok(Some((start, length))) => {
                    Ok(Some(Self { file: file.clone_ref(py), interrupts: interrupts.clone(), start, length }))
                }
                Ok(None) => Ok(None),
                Err(error) => Err(failed(py, error, interrupts)),
            }
        })
    }

    /// Return another reader of the same file.
    pub(super) fn again(&self) -> Self {
        let file = attached(|py| self.file.clone_ref(py));
        Self { file, interrupts: self.interrupts.clone(), start: self.start, length: self.length }
    }
}

impl BlockSource for PythonFile {
    fn length(&self) -> u64 {
        self.length
    }

    fn fetch(&self, from: u64, size: usize) -> io::Result<Bytes> {
        attached(|py| {
            let sought = self.file.bind(py).call_method1("seek", (self.start.saturating_add(from),));
            sought.map_err(|error| failed(py, error, &self.interrupts)).map(drop)
        })?;
        let mut bytes = Vec::with_capacity(size);
        while bytes.len() < size {
            let piece = read(&self.file, size - bytes.len(), &self.interrupts)?;
            if piece.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if bytes.is_empty() && piece.len() == size {
                return Ok(piece);
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes.into())
    }
}

/// Read at most `size` bytes of a Python file.
pub(super) fn read(file: &Py<PyAny>, size: usize, interrupts: &Interrupts) -> io::Result<Bytes> {
    interrupts.poll()?;
    attached(|py| {
        let piece = file.bind(py).call_method1("read", (size,)).map_err(|error| failed(py, error, interrupts))?;
        match piece.cast::<PyBytes>() {
            Ok(bytes) => Ok(Bytes::copy_from_slice(bytes.as_bytes())),
            Err(_) => {
                // This is the caller's error, not damage of the file.
                let text = "the document's file gives no bytes: open it in binary mode";
                interrupts.keep(PyTypeError::new_err(text));
                Err(io::Error::other(text))
            }
        }
    })
}

/// Convert an exception of the file, which counts as damage of the file. Keep one that is not an
/// `Exception`, such as KeyboardInterrupt.
fn failed(py: Python<'_>, error: PyErr, interrupts: &Interrupts) -> io::Error {
    let text = error.to_string();
    if !error.is_instance_of::<PyException>(py) {
        interrupts.keep(error);
    }
    io::Error::other(text)
}
