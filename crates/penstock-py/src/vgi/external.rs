//! Batches in object stores for Python: storages, fetching, and their use by a connection.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow_schema::SchemaRef;
use penstock_vgi::external::{Parcel, Pointer, StoredBatch, pointer};
use penstock_vgi::http::inflate;
use penstock_vgi::{Batch, Failure, Limits};
use penstock_vgi_net::external::{FetchOptions, Fetcher, ObjectStorage, Resolver};
use penstock_vgi_net::http::Uploads;
use penstock_vgi_net::{Error, LocationFault};
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use pyo3_arrow::PySchema;

use super::errors::{IntoVgiErr, rpc_error};
use super::files::waiting;
use super::logger::Logger;

mod python {
    pyo3::import_exception!(penstock.vgi.external, ExternalLocationError);
}

const KIND: &str = "ExternalLocationError";

fn refused(message: &str) -> PyErr {
    python::ExternalLocationError::new_err((KIND, message.to_owned(), ""))
}

fn seconds(name: &str, value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value).map_err(|error| PyValueError::new_err(format!("{name}={value}: {error}")))
}

/// The attributes of `penstock.vgi.external.FetchConfig`.
#[derive(FromPyObject)]
pub(crate) struct FetchFields {
    parallel_threshold_bytes: u64,
    chunk_size_bytes: u64,
    max_parallel_requests: usize,
    timeout_seconds: f64,
    max_fetch_bytes: u64,
    speculative_retry_multiplier: f64,
    max_speculative_hedges: usize,
}

/// Fetches the objects at URLs.
#[pyclass(frozen, name = "VgiFetcher", module = "penstock._core")]
pub(crate) struct VgiFetcher {
    fetcher: Arc<Fetcher>,
}

#[pymethods]
impl VgiFetcher {
    #[new]
    fn new(config: FetchFields, allow_private: bool, root: Option<PathBuf>) -> PyResult<Self> {
        let options = FetchOptions {
            parallel_threshold: config.parallel_threshold_bytes,
            chunk_size: config.chunk_size_bytes,
            max_parallel: config.max_parallel_requests,
            timeout: seconds("timeout_seconds", config.timeout_seconds)?,
            max_bytes: config.max_fetch_bytes,
            hedge_multiplier: config.speculative_retry_multiplier,
            max_hedges: config.max_speculative_hedges,
            allow_private,
            root,
        };
        Ok(Self { fetcher: Arc::new(Fetcher::new(options)) })
    }

    /// Fetch the object at a URL, inflated.
    fn fetch<'py>(&self, py: Python<'py>, url: &str) -> PyResult<Bound<'py, PyBytes>> {
        let (bytes, raised) = waiting(py, |check| {
            let fetched = self.fetcher.fetch(url, check)?;
            if !fetched.zstd {
                return Ok(fetched.bytes);
            }
            Ok(inflate(&fetched.bytes, self.fetcher.options().max_bytes)?)
        });
        let bytes = bytes.map_err(|error: Error| raised.unwrap_or_else(|| refused(&error.to_string())))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Close its connections.
    fn close(&self) {
        self.fetcher.close();
    }
}

/// A bucket or a container.
#[pyclass(frozen, name = "VgiStore", module = "penstock._core")]
pub(crate) struct VgiStore {
    storage: ObjectStorage,
}

#[pymethods]
impl VgiStore {
    #[new]
    fn new(uri: &str, options: BTreeMap<String, String>, expiry_seconds: u64) -> PyResult<Self> {
        let storage = ObjectStorage::open(uri, &options, Duration::from_secs(expiry_seconds));
        Ok(Self { storage: storage.map_err(|error| refused(&error.to_string()))? })
    }

    /// Upload an object, and return the URL for fetching it.
    fn upload(&self, py: Python<'_>, name: &str, data: Vec<u8>, coding: Option<&str>) -> PyResult<String> {
        let (url, raised) = waiting(py, |check| self.storage.upload(name, data, coding, check));
        url.map_err(|error| raised.unwrap_or_else(|| refused(&error.to_string())))
    }

    /// Return a URL for uploading an object, and one for fetching it.
    fn upload_url(&self, py: Python<'_>, name: &str) -> PyResult<(String, String)> {
        let (urls, raised) = waiting(py, |check| self.storage.upload_url(name, check));
        urls.map_err(|error| raised.unwrap_or_else(|| refused(&error.to_string())))
    }
}

/// How an end of a connection handles external batches.
#[pyclass(frozen, name = "VgiExternal", module = "penstock._core")]
pub(crate) struct VgiExternal {
    pub(crate) external: Arc<External>,
}

pub(crate) struct External {
    resolver: Resolver,
    /// `None`: every URL that the fetcher accepts is allowed.
    validator: Option<Py<PyAny>>,
    /// Whether files are allowed, because their folder was named.
    files: bool,
    storage: Option<Py<PyAny>>,
    threshold: Option<u64>,
    level: Option<i32>,
}

#[pymethods]
impl VgiExternal {
    #[new]
    #[pyo3(signature = (
        fetcher, *, max_retries, retry_delay, validator=None, storage=None, threshold=None, compression_level=None
    ))]
    fn new(
        fetcher: &Bound<'_, VgiFetcher>,
        max_retries: u32,
        retry_delay: f64,
        validator: Option<Py<PyAny>>,
        storage: Option<Py<PyAny>>,
        threshold: Option<u64>,
        compression_level: Option<i32>,
    ) -> PyResult<Self> {
        let fetcher = Arc::clone(&fetcher.get().fetcher);
        let files = fetcher.options().root.is_some();
        let retry_delay = seconds("retry_delay_seconds", retry_delay)?;
        let resolver = Resolver { fetcher, max_retries, retry_delay, limits: Limits::default() };
        let external = External { resolver, validator, files, storage, threshold, level: compression_level };
        Ok(Self { external: Arc::new(external) })
    }
}

/// Why an external batch is not available.
pub(crate) enum Fault {
    /// A Python exception that must be raised, such as an interrupt.
    Raised(PyErr),
    /// The reason for the peer.
    Refused(String),
}

impl Fault {
    fn of(py: Python<'_>, error: PyErr) -> Self {
        if error.is_instance_of::<PyException>(py) {
            Self::Refused(error.value(py).to_string())
        } else {
            Self::Raised(error)
        }
    }

    fn into_py_err(self) -> PyErr {
        match self {
            Self::Raised(error) => error,
            Self::Refused(message) => refused(&message),
        }
    }
}

impl External {
    /// Return whether a batch is large enough to be stored.
    pub(crate) fn takes(&self, batch: &Batch) -> bool {
        let large = |threshold| batch.rows > 0 && batch.memory() as u64 >= threshold;
        self.storage.is_some() && self.threshold.is_some_and(large)
    }

    /// Store a cycle, and return the pointer to it.
    pub(crate) fn store(&self, py: Python<'_>, schema: &SchemaRef, cycle: &[Batch]) -> PyResult<Batch> {
        let Some(storage) = &self.storage else { return Err(refused("there is no storage")) };
        let parcel = py.detach(|| Parcel::pack(schema, cycle, self.level)).map_err(IntoVgiErr::into_vgi_err)?;
        let stored = (|| {
            let bytes = PyBytes::new(py, &parcel.bytes);
            let about = PySchema::new(Arc::clone(schema)).into_pyarrow(py)?;
            let coding = PyDict::new(py);
            coding.set_item("content_encoding", parcel.coding)?;
            storage.bind(py).call_method("upload", (bytes, about), Some(&coding))?.extract::<String>()
        })();
        match stored {
            Ok(url) => Ok(pointer(schema, &url, Some(&parcel.sha256))),
            Err(error) if error.is_instance_of::<PyException>(py) => {
                let raised = refused(&format!("a batch could not be stored: {error}"));
                raised.set_cause(py, Some(error));
                Err(raised)
            }
            Err(error) => Err(error),
        }
    }

    /// Check that a peer's URL may be used; naming a folder allows its files.
    fn allowed(&self, py: Python<'_>, url: &str) -> PyResult<()> {
        match &self.validator {
            Some(validator) if !(self.files && url.starts_with("file:")) => validator.call1(py, (url,)).map(drop),
            Some(_) | None => Ok(()),
        }
    }

    /// Fetch the batch behind a pointer; `None` if the batch is not a pointer.
    fn resolve(&self, py: Python<'_>, batch: &Batch) -> Result<Option<StoredBatch>, Fault> {
        let Some(pointer) = Pointer::of(batch) else { return Ok(None) };
        let pointer = pointer.map_err(|error| Fault::Refused(error.to_string()))?;
        self.allowed(py, &pointer.url).map_err(|error| Fault::of(py, error))?;
        let (opened, raised) = waiting(py, |check| self.resolver.resolve(&pointer, check));
        opened.map(Some).map_err(|error| match raised {
            Some(raised) => Fault::Raised(raised),
            None => Fault::Refused(error.to_string()),
        })
    }

    /// Return a batch for a method; the sender's log messages are dropped.
    pub(crate) fn fetch(&self, py: Python<'_>, batch: Batch) -> PyResult<Result<Batch, Failure>> {
        match self.resolve(py, &batch) {
            Ok(None) => Ok(Ok(batch)),
            Ok(Some(opened)) => Ok(opened.batch),
            Err(Fault::Refused(message)) => Ok(Err(Failure::new(KIND, &message))),
            Err(Fault::Raised(error)) => Err(error),
        }
    }

    /// Return a batch for a caller, after passing on its log messages.
    fn receive(&self, py: Python<'_>, batch: Batch, logger: &Logger) -> PyResult<Batch> {
        let Some(opened) = self.resolve(py, &batch).map_err(Fault::into_py_err)? else { return Ok(batch) };
        opened.logs.iter().try_for_each(|log| logger.log(py, log))?;
        opened.batch.map_err(|failure| rpc_error(py, &failure))
    }

    /// Return how a client over HTTP uploads requests.
    pub(crate) fn uploads(self: &Arc<Self>) -> Uploads {
        let external = Arc::clone(self);
        let allowed = Box::new(move |url: &str| {
            Python::attach(|py| external.allowed(py, url).map_err(|error| error.value(py).to_string()))
                .map_err(|reason| Error::Location(LocationFault::Refused(reason)))
        });
        Uploads { fetcher: Arc::clone(&self.resolver.fetcher), allowed, threshold: self.threshold }
    }
}

/// Return a batch for a caller: the batch behind a pointer, if pointers are resolved here.
pub(crate) fn receive(
    py: Python<'_>,
    external: Option<&Arc<External>>,
    batch: Batch,
    logger: &Logger,
) -> PyResult<Batch> {
    match external {
        Some(external) => external.receive(py, batch, logger),
        None => Ok(batch),
    }
}

/// Return the object passed from Python.
pub(crate) fn given(object: Option<&Bound<'_, VgiExternal>>) -> Option<Arc<External>> {
    object.map(|object| Arc::clone(&object.get().external))
}
