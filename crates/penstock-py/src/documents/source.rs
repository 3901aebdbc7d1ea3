//! The source of a document: bytes, a path, or a binary Python file.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

use bytes::Bytes;
use penstock_documents::{Payload, Source};
use penstock_ingest::{BlockReader, BlockSource as _};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::interrupts::Interrupts;
use super::python_file::{self, PythonFile};
use super::workspace::spool;

/// The number of bytes read in one step when a Python file is copied.
const PIECE: usize = 8 << 20;
/// The size up to which Python files are copied.
const COPIED: u64 = 64 << 20;

/// A document's source, as passed from Python.
pub(crate) enum SourceArgument {
    Bytes(Bytes),
    Path(PathBuf),
    File(Py<PyAny>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for SourceArgument {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyString>() || object.hasattr("__fspath__")? {
            return object.extract().map(Self::Path);
        }
        if object.hasattr("read")? {
            return Ok(Self::File(object.to_owned().unbind()));
        }
        object.extract().map(Self::Bytes).map_err(|_| {
            let kind = object.get_type().name().map_or_else(|_| "it".to_owned(), |name| name.to_string());
            PyTypeError::new_err(format!("a document is bytes, a path or a binary file, not {kind}"))
        })
    }
}

impl SourceArgument {
    /// Open the source. If that fails, return a source that fails when it is read: then the
    /// document is a FAILED part with that reason, and other documents are unaffected.
    pub(crate) fn open(self, interrupts: &Interrupts) -> Payload {
        let opened: io::Result<Payload> = match self {
            Self::Bytes(bytes) => Ok(Box::new(Cursor::new(bytes))),
            Self::Path(path) => open_file(&path).map(|file| watched(Box::new(file), interrupts)),
            Self::File(file) => take(&file, interrupts).map(|source| watched(source, interrupts)),
        };
        opened.unwrap_or_else(|error| Box::new(Unreadable(Some(error))))
    }
}

/// A function that opens a source again from its beginning.
type Reopen = Box<dyn Fn() -> io::Result<Payload> + Send>;

impl SourceArgument {
    /// Open a file for random access without copying it, so that reading a small part of an object
    /// does not fetch all of it.
    pub(crate) fn open_in_place(self, interrupts: &Interrupts) -> Payload {
        match self.reopen(interrupts) {
            Ok(Some(open)) => open().unwrap_or_else(|error| Box::new(Unreadable(Some(error)))),
            Ok(None) => Box::new(Unreadable(Some(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file")))),
            Err(error) => Box::new(Unreadable(Some(error))),
        }
    }

    /// Return a function that opens the source repeatedly, or `None` if it is not a seekable file.
    pub(crate) fn reopen(self, interrupts: &Interrupts) -> io::Result<Option<Reopen>> {
        let interrupts = interrupts.clone();
        Ok(match self {
            Self::Bytes(_) => None,
            Self::Path(path) => {
                Some(Box::new(move || open_file(&path).map(|file| watched(Box::new(file), &interrupts))))
            }
            Self::File(file) => PythonFile::new(&file, &interrupts)?.map(|first| -> Reopen {
                Box::new(move || Ok(watched(Box::new(BlockReader::new(first.again())), &interrupts)))
            }),
        })
    }
}

fn open_file(path: &std::path::Path) -> io::Result<File> {
    // A FIFO would block in open, and a device has no end.
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
    }
    File::open(path)
}

/// Read a Python file from its position to its end. A large one is read in place, so that no copy
/// of its size exists; any other is copied, because it is read twice: for its digest and for its
/// parts.
fn take(file: &Py<PyAny>, interrupts: &Interrupts) -> io::Result<Payload> {
    if let Some(seekable) = PythonFile::new(file, interrupts)?
        && seekable.length() > COPIED
    {
        return Ok(Box::new(BlockReader::new(seekable)));
    }
    let mut spool = spool(interrupts);
    loop {
        let piece = python_file::read(file, PIECE, interrupts)?;
        if piece.is_empty() {
            spool.seek(SeekFrom::Start(0))?;
            return Ok(Box::new(spool));
        }
        spool.write_all(&piece)?;
    }
}

fn watched(inner: Payload, interrupts: &Interrupts) -> Payload {
    Box::new(InterruptibleSource { inner, interrupts: interrupts.clone() })
}

/// A source that Ctrl-C can interrupt.
struct InterruptibleSource {
    inner: Box<dyn Source>,
    interrupts: Interrupts,
}

impl Read for InterruptibleSource {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.interrupts.poll()?;
        self.inner.read(buffer)
    }
}

impl Seek for InterruptibleSource {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.inner.seek(position)
    }
}

/// A source that could not be opened.
struct Unreadable(Option<io::Error>);

impl Unreadable {
    fn error(&mut self) -> io::Error {
        self.0.take().unwrap_or_else(|| io::Error::other("it could not be opened"))
    }
}

impl Read for Unreadable {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(self.error())
    }
}

impl Seek for Unreadable {
    fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
        Err(self.error())
    }
}
