//! The client over HTTP for Python.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use penstock_io::DriverError as _;
use penstock_io::sync::lock;
use penstock_io::tls::ClientTlsOptions;
use penstock_vgi::http::{Headers, Response};
use penstock_vgi::{Batch, Limits, MethodKind};
use penstock_vgi_net::http::{ClientOptions, HttpCalls, HttpClient, HttpSender, HttpStream, Retry};
use penstock_vgi_net::{Check, Error, Receiver};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::batches::{BatchWithMetadata, PyBatch, annotated, metadata, to_python};
use super::client::{method_of, params, result_of, timeout};
use super::errors::IntoVgiErr;
use super::external::{VgiExternal, given};
use super::files::driven;
use super::logger::Logger;
use super::protocol::VgiProtocol;
use crate::error::IntoPyErr;
use crate::pipestream::waiting::attached;

/// The attributes of `penstock.vgi.http.HttpRetryConfig`.
#[derive(FromPyObject)]
pub(crate) struct RetryFields {
    max_retries: u32,
    backoff_base: f64,
    backoff_max: f64,
    retryable_status_codes: HashSet<u16>,
    retry_on_connection_error: bool,
    respect_retry_after: bool,
}

impl RetryFields {
    fn retry(self) -> PyResult<Retry> {
        let seconds = |name: &str, value: f64| {
            let made = Duration::try_from_secs_f64(value);
            made.map_err(|error| PyValueError::new_err(format!("{name}={value}: {error}")))
        };
        Ok(Retry {
            max_retries: self.max_retries,
            backoff_base: seconds("backoff_base", self.backoff_base)?,
            backoff_max: seconds("backoff_max", self.backoff_max)?,
            status_codes: self.retryable_status_codes.into_iter().collect(),
            connection_errors: self.retry_on_connection_error,
            retry_after: self.respect_retry_after,
        })
    }
}

/// A sender that uses an HTTP client of the user.
struct PythonSender {
    send: Py<PyAny>,
}

impl HttpSender for PythonSender {
    fn send(
        &self,
        method: &str,
        path: &str,
        headers: &Headers,
        body: Vec<u8>,
        _deadline: Option<Instant>,
        _check: Check<'_>,
    ) -> penstock_vgi_net::Result<Response> {
        attached(|py| {
            let fields: Vec<(&str, &str)> = headers.iter().collect();
            let answer = self.send.call1(py, (method, path, fields, PyBytes::new(py, &body)))?;
            let (status, fields, body) = answer.extract::<(u16, Vec<(String, String)>, Vec<u8>)>(py)?;
            Ok(Response { status, headers: fields.into_iter().collect(), body: vec![body.into()] })
        })
        .map_err(|error: PyErr| Error::io("the request was not sent", error))
    }
}

/// Calls the methods of a service at a URL.
#[pyclass(frozen, name = "VgiHttpClient", module = "penstock._core")]
pub(crate) struct VgiHttpClient {
    shared: Arc<Shared>,
}

/// The most bytes of a request, whether there are upload URLs, the most bytes of an upload, and the
/// cache time in seconds.
type CapabilityFields = (Option<u64>, bool, Option<u64>, Option<u64>);

struct Shared {
    protocol: Arc<penstock_vgi::Protocol>,
    calls: HttpCalls,
    timeout: Mutex<Option<f64>>,
}

/// A stream of a [`VgiHttpClient`].
#[pyclass(frozen, name = "VgiHttpClientStream", module = "penstock._core")]
pub(crate) struct VgiHttpClientStream {
    shared: Arc<Shared>,
    stream: Mutex<HttpStream>,
}

#[pymethods]
impl VgiHttpClient {
    #[new]
    #[pyo3(signature = (
        protocol, base_url, *, prefix=None, on_log=None, compression_level=None, retry=None, headers=Vec::new(),
        fingerprint=None, ca=None, system_ca=false, cert=None, key=None, send=None, max_message=None,
        external=None, uploads=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword of Python's")]
    fn new(
        protocol: &Bound<'_, VgiProtocol>,
        base_url: &str,
        prefix: Option<String>,
        on_log: Option<Py<PyAny>>,
        compression_level: Option<i32>,
        retry: Option<RetryFields>,
        headers: Vec<(String, String)>,
        fingerprint: Option<&str>,
        ca: Option<PathBuf>,
        system_ca: bool,
        cert: Option<PathBuf>,
        key: Option<PathBuf>,
        send: Option<Py<PyAny>>,
        max_message: Option<u64>,
        external: Option<&Bound<'_, VgiExternal>>,
        uploads: Option<&Bound<'_, VgiExternal>>,
    ) -> PyResult<Self> {
        let mut limits = Limits::default();
        limits.body = max_message.unwrap_or(limits.body);
        let retry = retry.map(RetryFields::retry).transpose()?;
        let options =
            ClientOptions { prefix, compression_level, retry, limits, headers: headers.into_iter().collect() };
        let client = match send {
            Some(send) => HttpClient::new(Box::new(PythonSender { send }), options),
            None => {
                let fingerprint = fingerprint.map(str::to_owned);
                let tls = ClientTlsOptions { fingerprint, ca, system_ca, cert, key };
                let tls = tls.for_url(base_url).map_err(IntoPyErr::into_py_err)?;
                HttpClient::connect(base_url, tls.as_ref(), options).map_err(IntoVgiErr::into_vgi_err)?
            }
        };
        let client = match given(uploads) {
            Some(uploads) => client.with_uploads(uploads),
            None => client,
        };
        let protocol = Arc::clone(&protocol.get().protocol);
        let receiver = Receiver { logs: Box::new(Logger::new(on_log)), external: given(external) };
        let shared = Shared { protocol, calls: HttpCalls::new(client, receiver), timeout: Mutex::default() };
        Ok(Self { shared: Arc::new(shared) })
    }

    #[getter]
    fn timeout(&self) -> Option<f64> {
        *lock(&self.shared.timeout)
    }

    /// Set how many seconds the server may take for the response to one request, to its last byte and including
    /// retries; `None` means no limit.
    #[setter]
    fn set_timeout(&self, seconds: Option<f64>) -> PyResult<()> {
        self.shared.calls.client().set_timeout(timeout(seconds)?);
        *lock(&self.shared.timeout) = seconds;
        Ok(())
    }

    /// Call a unary method.
    #[pyo3(signature = (method, values, metadata=None))]
    fn call<'py>(
        &self,
        py: Python<'py>,
        method: &str,
        values: &Bound<'py, PyDict>,
        metadata: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let called = method_of(&self.shared.protocol, method, MethodKind::Unary)?;
        let (batch, metadata) = (params(called, values)?, self::metadata(metadata)?);
        let answer = driven(py, |check| self.shared.calls.call(method, batch, metadata, check))?;
        result_of(py, called, &answer)
    }

    /// Open a stream.
    #[pyo3(signature = (method, values, metadata=None))]
    fn open(
        &self,
        py: Python<'_>,
        method: &str,
        values: &Bound<'_, PyDict>,
        metadata: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<VgiHttpClientStream> {
        let called = method_of(&self.shared.protocol, method, MethodKind::Stream)?;
        let (batch, metadata) = (params(called, values)?, self::metadata(metadata)?);
        let header = called.header.is_some();
        let stream = driven(py, |check| self.shared.calls.open(method, batch, metadata, header, check))?;
        Ok(VgiHttpClientStream { shared: Arc::clone(&self.shared), stream: Mutex::new(stream) })
    }

    /// Ask for the description of the service.
    fn describe(&self, py: Python<'_>) -> PyResult<BatchWithMetadata> {
        let empty = Batch::new(Arc::clone(self.shared.protocol.empty_schema()), Vec::new(), 1);
        let metadata = penstock_vgi::Metadata::new();
        annotated(py, &driven(py, |check| self.shared.calls.call(penstock_vgi::DESCRIBE, empty, metadata, check))?)
    }

    /// Return URLs for uploading requests, those for fetching them, and their expiry in microseconds since 1970.
    fn upload_urls(&self, py: Python<'_>, count: i64) -> PyResult<Vec<(String, String, i64)>> {
        let urls = driven(py, |check| self.shared.calls.upload_urls(count, check))?;
        Ok(urls.into_iter().map(|each| (each.upload, each.download, each.expires_at)).collect())
    }

    /// Return the server's capabilities: the most bytes of a request, whether it issues upload URLs, the most bytes of an
    /// upload, and for how many seconds this may be kept.
    fn capabilities(&self, py: Python<'_>) -> PyResult<CapabilityFields> {
        let read = driven(py, |check| self.shared.calls.client().capabilities(check))?;
        Ok((read.max_request_bytes, read.upload_urls, read.max_upload_bytes, read.max_age))
    }
}

impl VgiHttpClientStream {
    fn next(&self, py: Python<'_>, input: Option<Batch>) -> PyResult<Option<BatchWithMetadata>> {
        let batch = driven(py, |check| self.shared.calls.next(&self.stream, input, check))?;
        batch.map(|batch| annotated(py, &batch)).transpose()
    }
}

#[pymethods]
impl VgiHttpClientStream {
    /// Return the header, if the stream has one.
    fn header(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let stream = lock(&self.stream);
        stream.header.as_ref().map(|header| to_python(py, header).map(Bound::unbind)).transpose()
    }

    /// Send an input and wait for its answer; `None` once the server has ended the stream.
    #[pyo3(signature = (batch, metadata=None))]
    fn exchange(
        &self,
        py: Python<'_>,
        batch: PyBatch,
        metadata: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Option<BatchWithMetadata>> {
        let batch = batch.0.with_metadata(self::metadata(metadata)?);
        self.next(py, Some(batch))
    }

    /// Return the next batch of a producer; `None` once it has finished.
    fn tick(&self, py: Python<'_>) -> PyResult<Option<BatchWithMetadata>> {
        self.next(py, None)
    }

    /// Tell the server that the stream is cancelled.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        driven(py, |check| self.shared.calls.client().cancel(&mut lock(&self.stream), check))
    }

    /// Discard the stream: the server keeps no state of it.
    fn close(&self) {
        lock(&self.stream).forget();
    }
}
