//! The client over HTTP for Python.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use penstock_io::DriverError as _;
use penstock_io::sync::lock;
use penstock_io::tls::ClientTlsOptions;
use penstock_vgi::http::{Headers, Response, ResponseContent, read_upload_urls};
use penstock_vgi::{Answer, Batch, Limits, MethodKind};
use penstock_vgi_net::http::{ClientOptions, HttpClient, HttpSender, HttpStream, Retry};
use penstock_vgi_net::{Check, Error};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::batches::{BatchWithMetadata, PyBatch, annotated, metadata, to_python};
use super::client::{expect_batch, method_of, params, result_of, timeout};
use super::errors::{IntoVgiErr, misuse, rpc_error};
use super::external::{External, VgiExternal, given, receive};
use super::files::waiting;
use super::logger::Logger;
use super::protocol::VgiProtocol;
use crate::error::IntoPyErr;

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

/// Sends requests by an HTTP client of the user.
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
        Python::attach(|py| {
            let fields: Vec<(&str, &str)> = headers.iter().collect();
            let answer = self.send.call1(py, (method, path, fields, PyBytes::new(py, &body)))?;
            let (status, fields, body) = answer.extract::<(u16, Vec<(String, String)>, Vec<u8>)>(py)?;
            Ok(Response { status, headers: fields.into_iter().collect(), body: vec![body.into()] })
        })
        .map_err(|error: PyErr| Error::task(&error))
    }
}

/// Calls the methods of a service at a URL.
#[pyclass(frozen, name = "VgiHttpClient", module = "penstock._core")]
pub(crate) struct VgiHttpClient {
    shared: Arc<Shared>,
}

struct Shared {
    protocol: Arc<penstock_vgi::Protocol>,
    client: HttpClient,
    logger: Logger,
    timeout: Mutex<Option<f64>>,
    external: Option<Arc<External>>,
}

/// A stream of a [`VgiHttpClient`].
#[pyclass(frozen, name = "VgiHttpClientStream", module = "penstock._core")]
pub(crate) struct VgiHttpClientStream {
    shared: Arc<Shared>,
    stream: Mutex<HttpStream>,
}

impl Shared {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&HttpClient, Check<'_>) -> penstock_vgi_net::Result<T> + Send,
    ) -> PyResult<T> {
        let (result, raised) = waiting(py, |check| work(&self.client, check));
        result.map_err(|error| raised.unwrap_or_else(|| error.into_vgi_err()))
    }

    /// Return the answer after the log messages.
    fn answer(&self, py: Python<'_>, answered: ResponseContent) -> PyResult<Batch> {
        for answer in answered.answers {
            match answer {
                Answer::Log(log) => self.logger.log(py, &log)?,
                answer @ (Answer::Batch(_) | Answer::Failed(_) | Answer::End) => {
                    return receive(py, self.external.as_ref(), expect_batch(py, answer)?, &self.logger);
                }
            }
        }
        expect_batch(py, Answer::End)
    }
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
                if tls.is_some() && base_url.starts_with("http://") {
                    return Err(misuse("TLS options (trust, certificate) are for https:// only"));
                }
                HttpClient::connect(base_url, tls.as_ref(), options).map_err(IntoVgiErr::into_vgi_err)?
            }
        };
        let client = match given(uploads) {
            Some(uploads) => client.with_uploads(uploads.uploads()),
            None => client,
        };
        let protocol = Arc::clone(&protocol.get().protocol);
        let (logger, external) = (Logger::new(on_log), given(external));
        let shared = Shared { protocol, client, logger, timeout: Mutex::default(), external };
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
        self.shared.client.set_timeout(timeout(seconds)?);
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
        let answered = self.shared.with(py, |client, check| client.call(method, batch, metadata, check))?;
        result_of(py, called, &self.shared.answer(py, answered)?)
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
        let mut stream = self.shared.with(py, |client, check| client.open(method, batch, metadata, header, check))?;
        stream.take_logs().iter().try_for_each(|log| self.shared.logger.log(py, log))?;
        // The failure is known already, so it is raised without reading the stream.
        if let Some(failure) = stream.failure() {
            return Err(rpc_error(py, failure));
        }
        if let Some(header) = stream.header.take() {
            stream.header = Some(receive(py, self.shared.external.as_ref(), header, &self.shared.logger)?);
        }
        Ok(VgiHttpClientStream { shared: Arc::clone(&self.shared), stream: Mutex::new(stream) })
    }

    /// Ask for the description of the service.
    fn describe(&self, py: Python<'_>) -> PyResult<BatchWithMetadata> {
        let empty = Batch::new(Arc::clone(self.shared.protocol.empty_schema()), Vec::new(), 1);
        let metadata = penstock_vgi::Metadata::new();
        let answered =
            self.shared.with(py, |client, check| client.call(penstock_vgi::DESCRIBE, empty, metadata, check))?;
        annotated(py, &self.shared.answer(py, answered)?)
    }

    /// Return URLs for uploading requests, those for fetching them, and their expiry in microseconds since 1970.
    fn upload_urls(&self, py: Python<'_>, count: i64) -> PyResult<Vec<(String, String, i64)>> {
        let answered = self.shared.with(py, |client, check| client.upload_urls(count, check))?;
        let urls = read_upload_urls(&self.shared.answer(py, answered)?).map_err(IntoVgiErr::into_vgi_err)?;
        Ok(urls.into_iter().map(|each| (each.upload, each.download, each.expires_at)).collect())
    }

    /// Return the server's capabilities: the headers of its response.
    fn capabilities(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        let headers = self.shared.with(py, HttpClient::capabilities)?;
        Ok(headers.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}

impl VgiHttpClientStream {
    fn next(&self, py: Python<'_>, mut input: Option<Batch>) -> PyResult<Option<BatchWithMetadata>> {
        loop {
            let now = input.take();
            let (shared, stream) = (&self.shared, &self.stream);
            let answer = shared.with(py, |client, check| client.next(&mut lock(stream), now, check))?;
            match answer {
                Answer::Log(log) => shared.logger.log(py, &log)?,
                Answer::End => return Ok(None),
                Answer::Batch(batch) => {
                    let mut batch = receive(py, shared.external.as_ref(), batch, &shared.logger)?;
                    lock(stream).found_token(&mut batch);
                    return annotated(py, &batch).map(Some);
                }
                answer @ Answer::Failed(_) => return expect_batch(py, answer).map(|_| None),
            }
        }
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
        self.shared.with(py, |client, check| client.cancel(&mut lock(&self.stream), check))
    }

    /// Discard the stream: the server keeps no state of it.
    fn close(&self) {
        lock(&self.stream).forget();
    }
}
