//! The consumer of a job for Python; `penstock.pimp.Consumer` wraps it.

use std::sync::Arc;

use penstock_pimp_net::{Compression, ContentEncoding, Metadata, Result, SharedConsumer};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::job::PimpJob;
use super::options::ReadOptions;
use super::{raised, wait};
use crate::pipestream::waiting::Timeout;

/// The content type, the content encoding, the compression, the length, and the application's JSON
/// object.
pub(crate) type MetadataTuple = (String, &'static str, &'static str, Option<u64>, Option<String>);

fn tuple(metadata: Metadata) -> MetadataTuple {
    let encoding = match metadata.content_encoding {
        ContentEncoding::Identity => "identity",
        ContentEncoding::Base64 => "base64",
    };
    let compression = match metadata.compression {
        Compression::None => "none",
        Compression::Gzip => "gzip",
    };
    let meta = metadata.meta.as_ref().map(|meta| meta.get().to_owned());
    (metadata.content_type, encoding, compression, metadata.content_length, meta)
}

/// The consumer of a job.
#[pyclass(frozen, name = "PimpConsumer", module = "penstock._core")]
pub(crate) struct PimpConsumer(SharedConsumer);

#[pymethods]
impl PimpConsumer {
    #[new]
    #[pyo3(signature = (job, key, options, position))]
    fn new(job: &PimpJob, key: Option<String>, options: ReadOptions, position: Option<&str>) -> PyResult<Self> {
        let open = || SharedConsumer::new(Arc::clone(&job.client), key, options.net()?, position);
        open().map(Self).map_err(|error| raised(&error))
    }

    /// Return the position after what was returned, as text.
    fn position(&self) -> String {
        self.0.position()
    }

    /// Return the next index that the payload needs.
    fn next_index(&self) -> u32 {
        self.0.next_index()
    }

    /// Wait for chunk 0.
    fn metadata(&self, py: Python<'_>, timeout: Timeout) -> PyResult<MetadataTuple> {
        wait(py, timeout, self.described())
    }

    /// Return the next bytes; `None` once the payload is complete.
    fn next_data<'py>(&self, py: Python<'py>, timeout: Timeout) -> PyResult<Option<Bound<'py, PyBytes>>> {
        Ok(wait(py, timeout, self.received())?.map(|data| PyBytes::new(py, &data)))
    }
}

impl PimpConsumer {
    pub(crate) async fn described(&self) -> Result<MetadataTuple> {
        self.0.metadata().await.map(tuple)
    }

    pub(crate) async fn received(&self) -> Result<Option<Vec<u8>>> {
        self.0.data().await
    }
}
