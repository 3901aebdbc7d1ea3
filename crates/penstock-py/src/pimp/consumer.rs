//! The consumer of a job for Python; `penstock.pimp.Consumer` wraps it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use penstock_io::sync::lock;
use penstock_pimp_net::{Compression, Consumer, ContentEncoding, Metadata, Received, Result};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::job::PimpJob;
use super::options::{ReadOptions, Shared};
use super::{raised, wait};
use crate::pipestream::waiting::Timeout;

/// The content type, the content encoding, the compression, the length, and the application's object in JSON.
pub(crate) type MetadataTuple = (String, &'static str, &'static str, Option<u64>, Option<String>);

fn tuple(metadata: &Metadata) -> MetadataTuple {
    let encoding = match metadata.content_encoding {
        ContentEncoding::Identity => "identity",
        ContentEncoding::Base64 => "base64",
    };
    let compression = match metadata.compression {
        Compression::None => "none",
        Compression::Gzip => "gzip",
    };
    let meta = metadata.meta.as_ref().map(|meta| meta.get().to_owned());
    (metadata.content_type.clone(), encoding, compression, metadata.content_length, meta)
}

/// The consumer of a job.
#[pyclass(frozen, name = "PimpConsumer", module = "penstock._core")]
pub(crate) struct PimpConsumer {
    consumer: Shared<Consumer>,
    next: AtomicU32,
    // Copies of the consumer's state, because another thread may be waiting with the consumer locked.
    position: Mutex<String>,
}

#[pymethods]
impl PimpConsumer {
    #[new]
    #[pyo3(signature = (job, key, options, position))]
    fn new(job: &PimpJob, key: Option<String>, options: ReadOptions, position: Option<&str>) -> PyResult<Self> {
        let config = options.net().map_err(|error| raised(&error))?;
        let client = Arc::clone(&job.client);
        let consumer = match position {
            Some(position) => Consumer::resume(client, key, config, position).map_err(|error| raised(&error))?,
            None => Consumer::new(client, key, config),
        };
        let (next, position) = (AtomicU32::new(consumer.next_index()), Mutex::new(consumer.position()));
        Ok(Self { consumer: Arc::new(tokio::sync::Mutex::new(consumer)), next, position })
    }

    /// Return the position after what was returned, as text.
    fn position(&self) -> String {
        lock(&self.position).clone()
    }

    /// Return the next index that the payload needs.
    fn next_index(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
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
    fn note(&self, consumer: &Consumer) {
        self.next.store(consumer.next_index(), Ordering::Relaxed);
        *lock(&self.position) = consumer.position();
    }

    pub(crate) async fn described(&self) -> Result<MetadataTuple> {
        let mut consumer = self.consumer.lock().await;
        loop {
            if let Some(metadata) = consumer.metadata() {
                return Ok(tuple(metadata));
            }
            // The metadata comes before all data.
            let received = consumer.next().await;
            self.note(&consumer);
            received?;
        }
    }

    pub(crate) async fn received(&self) -> Result<Option<Vec<u8>>> {
        let mut consumer = self.consumer.lock().await;
        loop {
            let received = consumer.next().await;
            self.note(&consumer);
            match received? {
                Some(Received::Metadata(_)) => {}
                Some(Received::Data(data)) => return Ok(Some(data)),
                None => return Ok(None),
            }
        }
    }
}
