//! A large binary Python file as a source, read in place in blocks.

use std::collections::VecDeque;
use std::io::{self, Read, Seek, SeekFrom};

use bytes::Bytes;
use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::interrupts::Interrupts;

/// The size of the first block. Each read takes the interpreter's lock and, for a file in an object store, a request.
/// So blocks grow during sequential reads, and are small after a seek.
const FIRST_BLOCK: u64 = 256 << 10;
const GROWTH: u64 = 8;
const MAX_BLOCK: u64 = 8 << 20;
/// How many blocks are kept, because readers of archives alternate between a directory and its members.
const BLOCKS: usize = 6;

/// A seekable Python file, from its position at the start to its end.
pub(super) struct PythonFile {
    file: Py<PyAny>,
    interrupts: Interrupts,
    start: u64,
    length: u64,
    position: u64,
    /// Blocks and their positions, the one used last in front.
    blocks: VecDeque<(u64, Bytes)>,
}

impl PythonFile {
    /// Open a Python file; `None` if it is not seekable.
    pub(super) fn new(file: &Py<PyAny>, interrupts: &Interrupts) -> io::Result<Option<Self>> {
        Python::attach(|py| {
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
                Ok(Some((start, length))) => Ok(Some(Self {
                    file: file.clone_ref(py),
                    interrupts: interrupts.clone(),
                    start,
                    length,
                    position: 0,
                    blocks: VecDeque::with_capacity(BLOCKS),
                })),
                Ok(None) => Ok(None),
                Err(error) => Err(failed(py, error, interrupts)),
            }
        })
    }

    /// Return the same file at its first position, without any blocks.
    pub(super) fn again(&self) -> Self {
        Self {
            file: Python::attach(|py| self.file.clone_ref(py)),
            interrupts: self.interrupts.clone(),
            start: self.start,
            length: self.length,
            position: 0,
            blocks: VecDeque::with_capacity(BLOCKS),
        }
    }

    /// Return the number of bytes from its first position on.
    pub(super) fn len(&self) -> u64 {
        self.length
    }

    /// Return the bytes at a position: at least one byte, except at the file's end.
    fn at(&mut self, position: u64) -> io::Result<Bytes> {
        let end = |block: &(u64, Bytes)| block.0.saturating_add(block.1.len() as u64);
        let found = self.blocks.iter().position(|block| (block.0..end(block)).contains(&position));
        if let Some(place) = found
            && let Some((start, bytes)) = self.blocks.remove(place)
        {
            self.blocks.push_front((start, bytes.clone()));
            let offset = usize::try_from(position.saturating_sub(start)).map_err(io::Error::other)?;
            return Ok(bytes.slice(offset.min(bytes.len())..));
        }
        let before = self.blocks.iter().find(|block| end(block) == position);
        let size = before.map_or(FIRST_BLOCK, |(_, bytes)| MAX_BLOCK.min(GROWTH * bytes.len() as u64));
        let bytes = self.fetch(position, size)?;
        self.blocks.truncate(BLOCKS - 1);
        self.blocks.push_front((position, bytes.clone()));
        Ok(bytes)
    }

    fn fetch(&self, from: u64, size: u64) -> io::Result<Bytes> {
        let size = size.min(self.length.saturating_sub(from));
        let size = usize::try_from(size).map_err(io::Error::other)?;
        Python::attach(|py| {
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

impl Read for PythonFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.position >= self.length || buffer.is_empty() {
            return Ok(0);
        }
        let count = self.at(self.position)?.as_ref().read(buffer)?;
        self.position = self.position.saturating_add(count as u64);
        Ok(count)
    }
}

impl Seek for PythonFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(offset) => self.length.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

/// Read at most `size` bytes of a Python file.
pub(super) fn read(file: &Py<PyAny>, size: usize, interrupts: &Interrupts) -> io::Result<Bytes> {
    interrupts.poll()?;
    Python::attach(|py| {
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

/// Convert an exception of the file, which counts as damage of the file. One that is not an `Exception`
/// (KeyboardInterrupt) is kept.
fn failed(py: Python<'_>, error: PyErr, interrupts: &Interrupts) -> io::Error {
    let text = error.to_string();
    if !error.is_instance_of::<PyException>(py) {
        interrupts.keep(error);
    }
    io::Error::other(text)
}
