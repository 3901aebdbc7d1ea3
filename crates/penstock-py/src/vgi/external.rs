//! Batches in object stores for Python: storages, fetching, and the policy of a connection.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow_schema::SchemaRef;
use penstock_vgi::Limits;
use penstock_vgi::external::Parcel;
use penstock_vgi_net::PortError;
use penstock_vgi_net::external::{
    BatchStorage, External, FetchOptions, Fetcher, LocationValidator, ObjectStorage, Resolver,
};
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use pyo3_arrow::PySchema;

use super::errors::{external_error, raised};
use super::files::waiting;
use crate::pipestream::waiting::attached;

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
        let (bytes, raised) = waiting(py, |check| self.fetcher.fetch_inflated(url, check));
        let bytes = bytes.map_err(|error| raised.unwrap_or_else(|| external_error(&error.to_string())))?;
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
        Ok(Self { storage: storage.map_err(|error| external_error(&error.to_string()))? })
    }

    /// Upload an object, and return the URL for fetching it.
    fn upload(&self, py: Python<'_>, name: &str, data: Vec<u8>, coding: Option<&str>) -> PyResult<String> {
        let (url, raised) = waiting(py, |check| self.storage.upload(name, data, coding, check));
        url.map_err(|error| raised.unwrap_or_else(|| external_error(&error.to_string())))
    }

    /// Return a URL for uploading an object, and one for fetching it.
    fn upload_url(&self, py: Python<'_>, name: &str) -> PyResult<(String, String)> {
        let (urls, raised) = waiting(py, |check| self.storage.upload_url(name, check));
        urls.map_err(|error| raised.unwrap_or_else(|| external_error(&error.to_string())))
    }
}

/// How an end of a connection handles external batches.
#[pyclass(frozen, name = "VgiExternal", module = "penstock._core")]
pub(crate) struct VgiExternal {
    external: Arc<External>,
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
        let retry_delay = seconds("retry_delay_seconds", retry_delay)?;
        let mut external = External::new(Resolver { fetcher, max_retries, retry_delay, limits: Limits::default() });
        if let Some(validator) = validator {
            external = external.with_validator(Box::new(PythonValidator(validator)));
        }
        if let Some(storage) = storage {
            external = external.with_storage(Box::new(PythonStorage(storage)), compression_level);
        }
        if let Some(threshold) = threshold {
            external = external.with_threshold(threshold);
        }
        Ok(Self { external: Arc::new(external) })
    }
}

/// Return the policy passed from Python.
pub(crate) fn given(object: Option<&Bound<'_, VgiExternal>>) -> Option<Arc<External>> {
    object.map(|object| Arc::clone(&object.get().external))
}

/// Convert an exception of a port. One that is not an `Exception`, such as an interrupt, ends the
/// wait.
fn port_error(py: Python<'_>, exception: PyErr, message: String) -> PortError {
    if exception.is_instance_of::<PyException>(py) {
        PortError::Failed(raised(exception, message))
    } else {
        PortError::Raised(raised(exception, message))
    }
}

/// A Python object with a method `upload`.
struct PythonStorage(Py<PyAny>);

impl BatchStorage for PythonStorage {
    fn upload(&self, parcel: &Parcel, schema: &SchemaRef) -> Result<String, PortError> {
        attached(|py| {
            let stored = (|| {
                let bytes = PyBytes::new(py, &parcel.bytes);
                let about = PySchema::new(Arc::clone(schema)).into_pyarrow(py)?;
                let coding = PyDict::new(py);
                coding.set_item("content_encoding", parcel.coding)?;
                self.0.bind(py).call_method("upload", (bytes, about), Some(&coding))?.extract::<String>()
            })();
            stored.map_err(|error: PyErr| {
                let message = error.to_string();
                port_error(py, error, message)
            })
        })
    }
}

/// A Python function that raises an exception for a URL that may not be used.
struct PythonValidator(Py<PyAny>);

impl LocationValidator for PythonValidator {
    fn validate(&self, url: &str) -> Result<(), PortError> {
        attached(|py| {
            self.0.call1(py, (url,)).map(drop).map_err(|error| {
                let message = error.value(py).to_string();
                port_error(py, error, message)
            })
        })
    }
}
