//! The sender of a job for Python; `penstock.pimp.Sender` wraps it.

use std::sync::Arc;

use bytes::Bytes;
use penstock_pimp_net::{Piece, Result, Sender};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};

use super::job::PimpJob;
use super::options::WriteOptions;
use super::{raised, wait};
use crate::pipestream::waiting::Timeout;

/// Bytes, or text.
#[derive(FromPyObject)]
pub(crate) enum PieceArgument {
    /// Bytes.
    Bytes(PyBackedBytes),
    /// Text.
    Text(PyBackedStr),
}

impl PieceArgument {
    pub(crate) fn piece(self) -> Piece {
        match self {
            Self::Bytes(bytes) => Piece::Bytes(Bytes::from_owner(bytes)),
            Self::Text(text) => Piece::Text(Bytes::from_owner(Text(text))),
        }
    }
}

struct Text(PyBackedStr);

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// The sender of a job.
#[pyclass(frozen, name = "PimpSender", module = "penstock._core")]
pub(crate) struct PimpSender {
    pub(crate) sender: Sender,
}

#[pymethods]
impl PimpSender {
    #[new]
    fn new(job: &PimpJob, key: String, options: WriteOptions) -> PyResult<Self> {
        Self::open(job, key, options).map_err(|error| raised(&error))
    }

    /// Return the highest index that the buffer has, and how many bytes of the payload.
    fn progress(&self) -> (Option<u32>, u64) {
        let progress = self.sender.progress();
        (progress.written, progress.bytes)
    }

    /// Set the payload's content type, if none was given and chunk 0 was not sent yet.
    fn describe(&self, py: Python<'_>, content_type: String, timeout: Timeout) -> PyResult<()> {
        wait(py, timeout, self.sender.describe(content_type))
    }

    fn send(&self, py: Python<'_>, piece: PieceArgument, timeout: Timeout) -> PyResult<()> {
        wait(py, timeout, self.sender.send(piece.piece()))
    }

    fn flush(&self, py: Python<'_>, timeout: Timeout) -> PyResult<()> {
        wait(py, timeout, self.sender.flush())
    }

    fn finish(&self, py: Python<'_>, timeout: Timeout) -> PyResult<()> {
        wait(py, timeout, self.sender.finish())
    }

    fn fail(&self, py: Python<'_>, why: String, timeout: Timeout) -> PyResult<()> {
        wait(py, timeout, self.sender.fail(why))
    }
}

/// Reject invalid options before a job is created.
#[pyfunction]
pub(crate) fn pimp_check_sender(options: WriteOptions) -> PyResult<()> {
    let checked = options.net().and_then(|mut config| {
        if let Some(content_type) = options.content_type {
            config.content_type = content_type;
        }
        Ok(config.check()?)
    });
    checked.map_err(|error| raised(&error))
}

impl PimpSender {
    pub(crate) fn open(job: &PimpJob, key: String, options: WriteOptions) -> Result<Self> {
        let config = options.net()?;
        Ok(Self { sender: Sender::start(Arc::clone(&job.client), key, options.content_type, config)? })
    }
}
