//! A call over HTTP for Python: first the caller is authenticated, then a method answers.

use std::sync::Arc;

use penstock_vgi::http::{Call, Kind, Pending, Response, Resumed, UploadUrl};
use penstock_vgi::{Identity, Log};
use penstock_vgi_net::http::HttpCall;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use pyo3_arrow::PySchema;

use crate::vgi::batches::{BatchWithMetadata, PyBatch, annotated, metadata, metadata_to_python, schema};
use crate::vgi::errors::{IntoVgiErr, failure, misuse};
use crate::vgi::files::driven;
use crate::vgi::values;

/// The status, the headers and the body.
type Answered<'py> = (u16, Vec<(String, String)>, Bound<'py, PyBytes>);

/// A request: first its caller is authenticated, then a method answers.
#[pyclass(frozen, name = "VgiHttpCall", module = "penstock._core")]
pub(crate) struct VgiHttpCall {
    call: HttpCall,
    /// The value that Python returned for the caller when it saw the head.
    auth: Option<Py<PyAny>>,
}

impl VgiHttpCall {
    pub(super) const fn new(call: HttpCall, auth: Option<Py<PyAny>>) -> Self {
        Self { call, auth }
    }

    /// Run `work` on the call that a method must answer.
    fn with<T>(&self, work: impl FnOnce(&mut Call) -> T) -> PyResult<T> {
        self.call.with(work).map_err(IntoVgiErr::into_vgi_err)
    }

    fn resumed<T>(&self, look: impl FnOnce(&Resumed) -> PyResult<T>) -> PyResult<T> {
        let missing = || misuse("the call does not continue a stream");
        self.with(|call| look(call.resumed.as_ref().ok_or_else(missing)?))?
    }

    /// Run a step of the driver without the interpreter's lock.
    fn step(
        &self,
        py: Python<'_>,
        step: impl FnOnce(&HttpCall) -> penstock_vgi_net::Result<()> + Send,
    ) -> PyResult<()> {
        driven(py, |_| step(&self.call))
    }

    fn answer(&self, make: impl FnOnce(Box<Pending>) -> Response) -> PyResult<()> {
        self.call.answer(make).map_err(IntoVgiErr::into_vgi_err)
    }
}

#[pymethods]
impl VgiHttpCall {
    /// Return whether the call was answered.
    #[getter]
    fn done(&self) -> bool {
        self.call.is_done()
    }

    #[getter]
    fn http_method(&self) -> &str {
        &self.call.head().method
    }

    #[getter]
    fn path(&self) -> &str {
        &self.call.head().path
    }

    #[getter]
    fn query(&self) -> &str {
        &self.call.head().query
    }

    #[getter]
    fn headers(&self) -> Vec<(&str, &str)> {
        self.call.head().headers.iter().collect()
    }

    #[getter]
    fn remote(&self) -> &str {
        &self.call.head().remote
    }

    /// Return the value that was passed to `admit`, for a call that has returned with its body.
    #[getter]
    fn auth(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.auth.as_ref().map(|auth| auth.clone_ref(py))
    }

    /// Admit a caller whose body was not read yet: our own server reads it, and the call returns with the body and
    /// `auth`. Returns `False` if the body is present already, or is passed to `receive`.
    fn admit(&self, auth: Py<PyAny>) -> bool {
        self.call.admit(Box::new(auth))
    }

    /// Take the body of a web server's request. If it is too large, the call is answered.
    fn receive(&self, body: Vec<u8>) -> PyResult<()> {
        self.call.receive(body).map_err(IntoVgiErr::into_vgi_err)
    }

    /// Return whether the request is for a page instead of a method; `"own"` if Python makes the page.
    #[getter]
    fn page(&self) -> Option<&'static str> {
        let page = |pending: &Pending| match (pending.wants_page(), pending.wants_own_page()) {
            (_, true) => Some("own"),
            (true, false) => Some("made"),
            (false, false) => None,
        };
        self.call.pending(page).flatten()
    }

    /// Answer with a page.
    fn respond(&self, status: u16, headers: Vec<(String, String)>, body: Vec<u8>) -> PyResult<()> {
        let headers = headers.into_iter().collect();
        self.answer(|pending| pending.respond(Response { status, headers, body: vec![body.into()] }))
    }

    /// Set the caller: anonymous, or a principal that a domain authenticated. An invalid request is answered then.
    #[pyo3(signature = (identity=None))]
    fn authenticated(&self, py: Python<'_>, identity: Option<(String, String)>) -> PyResult<()> {
        let identity =
            identity.map_or(Identity::Anonymous, |(domain, principal)| Identity::Principal { domain, principal });
        driven(py, |check| self.call.authenticated(identity, check))
    }

    /// Answer that the caller is not authorized.
    #[pyo3(signature = (message, challenge=None))]
    fn unauthorized(&self, message: &str, challenge: Option<&str>) -> PyResult<()> {
        self.answer(|pending| pending.unauthorized(message, challenge))
    }

    /// Answer with an error that does not come from a method.
    fn error(&self, status: u16, message: &str) -> PyResult<()> {
        self.answer(|pending| pending.error(status, message))
    }

    #[getter]
    fn kind(&self) -> PyResult<&'static str> {
        self.with(|call| match call.kind {
            Kind::Unary => "unary",
            Kind::Init => "init",
            Kind::Exchange => "exchange",
            Kind::UploadUrls => "upload_url",
        })
    }

    #[getter]
    fn method(&self) -> PyResult<String> {
        self.call.method_name().map_err(IntoVgiErr::into_vgi_err)
    }

    #[getter]
    fn request_id(&self) -> PyResult<String> {
        self.with(|call| call.request_id.clone())
    }

    #[getter]
    fn bytes_in(&self) -> PyResult<u64> {
        self.with(|call| call.request.bytes)
    }

    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.with(|call| metadata_to_python(py, &call.request.metadata))?
    }

    /// Return the received parameters.
    #[getter]
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.with(|call| match call.method() {
            Some(method) => values::to_dict(py, &method.params, &call.request.values),
            None => Ok(PyDict::new(py)),
        })?
    }

    /// Add a header to the response.
    fn add_header(&self, name: &str, value: &str) -> PyResult<()> {
        self.with(|call| call.add_header(name, value))
    }

    /// Add a log message before the answer, or before the stream's next batch.
    fn log(&self, level: String, message: String, extra_json: Option<String>) -> PyResult<()> {
        self.with(|call| call.log(Log::new(level, message, extra_json)))
    }

    /// Answer a unary call.
    fn reply(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let schema = self.call.result().map_err(IntoVgiErr::into_vgi_err)?;
        let batch = values::result_batch(&schema, value)?;
        self.step(py, |call| call.reply(batch))
    }

    /// Return how many URLs are requested.
    #[getter]
    fn urls(&self) -> PyResult<usize> {
        self.with(|call| call.urls)
    }

    /// Answer with URLs: for uploading, for fetching, and their expiry in microseconds since 1970.
    fn reply_urls(&self, py: Python<'_>, urls: Vec<(String, String, i64)>) -> PyResult<()> {
        let url = |(upload, download, expires_at)| UploadUrl { upload, download, expires_at };
        let urls: Vec<_> = urls.into_iter().map(url).collect();
        self.step(py, |call| call.reply_urls(&urls))
    }

    /// Answer with an error.
    fn fail(
        &self,
        py: Python<'_>,
        kind: &str,
        error_type: String,
        message: String,
        extra_json: String,
    ) -> PyResult<()> {
        let (of_parameters, failure) = failure(kind, error_type, message, extra_json)?;
        self.step(py, |call| call.fail(of_parameters, &failure))
    }

    /// Return the state of the resumed stream.
    #[getter]
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.resumed(|resumed| Ok(PyBytes::new(py, &resumed.state)))
    }

    #[getter]
    fn output_schema(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let schema = self.resumed(|resumed| Ok(Arc::clone(&resumed.output)))?;
        Ok(PySchema::new(schema).into_pyarrow(py)?.unbind())
    }

    #[getter]
    fn input_schema(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let schema = self.resumed(|resumed| Ok(Arc::clone(&resumed.input)))?;
        Ok(PySchema::new(schema).into_pyarrow(py)?.unbind())
    }

    /// Return whether the client has cancelled the stream.
    #[getter]
    fn cancelled(&self) -> PyResult<bool> {
        self.resumed(|resumed| Ok(resumed.cancelled))
    }

    /// Return the stream's input.
    fn input(&self, py: Python<'_>) -> PyResult<BatchWithMetadata> {
        self.resumed(|resumed| annotated(py, &resumed.batch))
    }

    /// Open the answer of a stream. A `producer` may emit any number of batches, an exchange one.
    fn open(
        &self,
        py: Python<'_>,
        output_schema: &Bound<'_, PyAny>,
        input_schema: &Bound<'_, PyAny>,
        header: Option<PyBatch>,
        producer: bool,
    ) -> PyResult<()> {
        let (output, input) = (schema(output_schema)?, schema(input_schema)?);
        let header = header.map(|PyBatch(batch)| batch);
        self.step(py, |call| call.open(&output, &input, header, producer))
    }

    /// Add the next batch to the answer.
    fn emit(&self, py: Python<'_>, batch: PyBatch, metadata: Option<Bound<'_, PyDict>>) -> PyResult<()> {
        let batch = batch.0.with_metadata(self::metadata(metadata.as_ref())?);
        self.step(py, |call| call.emit(batch))
    }

    /// Return whether a producer may add more to this answer.
    fn room(&self) -> PyResult<bool> {
        self.with(|call| call.has_capacity())
    }

    /// End the answer; with a state the stream can continue.
    #[pyo3(signature = (state=None))]
    fn finish(&self, py: Python<'_>, state: Option<Vec<u8>>) -> PyResult<()> {
        self.step(py, |call| call.finish(state))
    }

    /// Return the response to the caller of `begin`: status, headers, body.
    fn response<'py>(&self, py: Python<'py>) -> PyResult<Answered<'py>> {
        let response = self.call.response().map_err(IntoVgiErr::into_vgi_err)?;
        let headers = response.headers.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Ok((response.status, headers, PyBytes::new(py, &response.concat())))
    }
}
