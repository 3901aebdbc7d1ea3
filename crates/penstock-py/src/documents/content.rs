//! The bytes of a part, shared with Python without copying them.

use std::io::{Read as _, SeekFrom};
use std::sync::Mutex;

use bytes::Bytes;
use penstock_documents::Payload;
use penstock_io::sync::lock;
use pyo3::prelude::*;

/// The bytes of one part: in memory if they are few, otherwise in a temporary file that is removed with this object.
#[pyclass(frozen, name = "Content", module = "penstock._core")]
pub(crate) struct Content(Mutex<Payload>);

impl Content {
    pub(crate) fn new(payload: Payload) -> Self {
        Self(Mutex::new(payload))
    }
}

#[pymethods]
impl Content {
    /// Read at most `size` bytes from `offset` on; fewer only at the end. Concurrent readers do not affect each other.
    fn read_at(&self, py: Python<'_>, offset: u64, size: usize) -> PyResult<Bytes> {
        let bytes = py.detach(|| -> std::io::Result<Vec<u8>> {
            let mut payload = lock(&self.0);
            payload.seek(SeekFrom::Start(offset))?;
            let mut bytes = Vec::new();
            payload.as_mut().take(size as u64).read_to_end(&mut bytes)?;
            Ok(bytes)
        })?;
        Ok(bytes.into())
    }

    /// Return how many bytes there are.
    fn size(&self) -> PyResult<u64> {
        Ok(lock(&self.0).seek(SeekFrom::End(0))?)
    }
}
