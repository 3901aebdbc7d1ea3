//! A call over HTTP for Python: first the caller is authenticated, then a method answers.

use std::sync::{Arc, Mutex, MutexGuard};

use penstock_io::sync::lock;
use penstock_vgi::http::{Call, Headers, Kind, Pending, Request, Response, Resumed, UploadUrl};
use penstock_vgi::{Batch, Identity, Log, Metadata};
use penstock_vgi_net::Counters;
use penstock_vgi_net::http::{Verdict, now};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use pyo3_arrow::PySchema;

use crate::vgi::batches::{BatchWithMetadata, PyBatch, annotated, metadata, metadata_to_python, schema};
use crate::vgi::errors::{IntoVgiErr, failure, misuse, unknown_method};
use crate::vgi::external::External;
use crate::vgi::values;

/// The parts of a request that `authenticate` reads.
pub(super) struct RequestHead {
    pub(super) method: String,
    path: String,
    query: String,
    headers: Headers,
    remote: String,
}

impl RequestHead {
    pub(super) fn new(request: &Request, query: String, remote: String) -> Self {
        let Request { method, path, headers, .. } = request;
        Self { method: method.clone(), path: path.clone(), query, headers: headers.clone(), remote }
    }
}

/// The stage of a call.
///
/// ```text
///  Pending ── authenticated ─▶ Call ── reply, fail, finish ─▶ Done
///     └── unauthorized, error ─────────────────────────────────▲
/// ```
pub(super) enum Stage {
    Pending(Box<Pending>),
    Call(Box<Call>),
    /// The response, until it is taken.
    Done(Option<Response>),
}

/// The status, the headers and the body.
type Answered<'py> = (u16, Vec<(String, String)>, Bound<'py, PyBytes>);
pub(super) type VerdictSender = Box<dyn FnOnce(Verdict) + Send>;

/// A request: first its caller is authenticated, then a method answers.
#[pyclass(frozen, name = "VgiHttpCall", module = "penstock._core")]
pub(crate) struct VgiHttpCall {
    request_head: RequestHead,
    stage: Mutex<Stage>,
    /// Receives the verdict, for a call of our own server.
    verdict: Mutex<Option<VerdictSender>>,
    /// Whether the body was not read yet.
    head: bool,
    /// What Python returned about the caller when it saw the head.
    auth: Option<Py<PyAny>>,
    counters: Arc<Counters>,
    external: Option<Arc<External>>,
}

impl VgiHttpCall {
    /// Make a call whose body is received later, and whose response is taken by the caller.
    pub(super) fn new(
        request_head: RequestHead,
        stage: Stage,
        counters: Arc<Counters>,
        external: Option<Arc<External>>,
    ) -> Self {
        let (stage, verdict) = (Mutex::new(stage), Mutex::default());
        Self { request_head, stage, verdict, head: true, auth: None, counters, external }
    }

    /// Make a call of our own server, which acts on the verdict.
    pub(super) fn with_verdict(self, verdict_sender: VerdictSender, head: bool, auth: Option<Py<PyAny>>) -> Self {
        Self { verdict: Mutex::new(Some(verdict_sender)), head, auth, ..self }
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        lock(&self.stage)
    }

    fn verdict_sender(&self) -> Option<VerdictSender> {
        lock(&self.verdict).take()
    }

    fn answered(&self, stage: &mut Stage, response: Response) {
        match self.verdict_sender() {
            Some(verdict_sender) => {
                // The call is dropped first, with its body, because sending the verdict frees the memory that they use.
                *stage = Stage::Done(None);
                verdict_sender(Verdict::Answered(response));
            }
            None => *stage = Stage::Done(Some(response)),
        }
    }

    fn pending(&self, work: impl FnOnce(Box<Pending>) -> Response) -> PyResult<()> {
        let mut stage = self.stage();
        match std::mem::replace(&mut *stage, Stage::Done(None)) {
            Stage::Pending(pending) => {
                let response = work(pending);
                if response.status >= 400 {
                    self.counters.refused();
                }
                self.answered(&mut stage, response);
                Ok(())
            }
            other @ (Stage::Call(_) | Stage::Done(_)) => {
                *stage = other;
                Err(misuse("the caller is already authenticated"))
            }
        }
    }

    /// Use the call, or its answer.
    fn call<T>(&self, work: impl FnOnce(&mut Call) -> PyResult<T>) -> PyResult<T> {
        match &mut *self.stage() {
            Stage::Call(call) => work(call),
            Stage::Pending(_) => Err(misuse("the caller is not authenticated yet")),
            Stage::Done(_) => Err(misuse("the call was answered")),
        }
    }

    /// End the call with a response.
    fn end(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Call) -> penstock_vgi::Result<Response> + Send,
    ) -> PyResult<()> {
        let mut stage = self.stage();
        let Stage::Call(call) = &mut *stage else { return Err(misuse("the call was answered")) };
        let response = py.detach(|| work(call)).map_err(IntoVgiErr::into_vgi_err)?;
        self.answered(&mut stage, response);
        Ok(())
    }

    /// Return the batch, or a pointer to it and the log messages before it.
    fn elsewhere(&self, py: Python<'_>, batch: Batch) -> PyResult<Batch> {
        let Some(external) = self.external.as_ref().filter(|external| external.takes(&batch)) else { return Ok(batch) };
        let mut cycle = self.call(|call| Ok(call.waiting_logs(&batch.schema)))?;
        let schema = Arc::clone(&batch.schema);
        cycle.push(batch);
        let pointer = external.store(py, &schema, &cycle)?;
        self.call(|call| {
            call.forget_logs();
            Ok(pointer)
        })
    }

    fn resumed<T>(&self, look: impl FnOnce(&Resumed) -> PyResult<T>) -> PyResult<T> {
        self.call(|call| look(call.resumed.as_ref().ok_or_else(|| misuse("the call does not continue a stream"))?))
    }
}

#[pymethods]
impl VgiHttpCall {
    /// Return whether the call was answered.
    #[getter]
    fn done(&self) -> bool {
        matches!(*self.stage(), Stage::Done(_))
    }

    #[getter]
    fn http_method(&self) -> &str {
        &self.request_head.method
    }

    #[getter]
    fn path(&self) -> &str {
        &self.request_head.path
    }

    #[getter]
    fn query(&self) -> &str {
        &self.request_head.query
    }

    #[getter]
    fn headers(&self) -> Vec<(&str, &str)> {
        self.request_head.headers.iter().collect()
    }

    #[getter]
    fn remote(&self) -> &str {
        &self.request_head.remote
    }

    /// Return the value that was passed to `admit`, for a call that has returned with its body.
    #[getter]
    fn auth(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.auth.as_ref().map(|auth| auth.clone_ref(py))
    }

    /// Admit a caller whose body was not read yet: our own server reads it, and the call returns with the body and
    /// `auth`. Returns `False` if the body is present already, or is passed to `receive`.
    fn admit(&self, auth: Py<PyAny>) -> bool {
        let mut stage = self.stage();
        if !self.head || lock(&self.verdict).is_none() {
            return false;
        }
        match std::mem::replace(&mut *stage, Stage::Done(None)) {
            Stage::Pending(pending) if !pending.wants_page() => {
                if let Some(verdict_sender) = self.verdict_sender() {
                    verdict_sender(Verdict::Admitted(pending, Box::new(auth)));
                }
                true
            }
            other @ (Stage::Pending(_) | Stage::Call(_) | Stage::Done(_)) => {
                *stage = other;
                false
            }
        }
    }

    /// Take the body of a web server's request. If it is too large, the call is answered.
    fn receive(&self, body: Vec<u8>) -> PyResult<()> {
        let mut stage = self.stage();
        match std::mem::replace(&mut *stage, Stage::Done(None)) {
            Stage::Pending(pending) => match pending.receive(body) {
                Ok(pending) => *stage = Stage::Pending(pending),
                Err(response) => {
                    self.counters.refused();
                    self.answered(&mut stage, response);
                }
            },
            other @ (Stage::Call(_) | Stage::Done(_)) => {
                *stage = other;
                return Err(misuse("the call has its body"));
            }
        }
        Ok(())
    }

    /// Return whether the request is for a page instead of a method; `"own"` if Python makes the page.
    #[getter]
    fn page(&self) -> Option<&'static str> {
        match &*self.stage() {
            Stage::Pending(pending) if pending.wants_own_page() => Some("own"),
            Stage::Pending(pending) if pending.wants_page() => Some("made"),
            Stage::Pending(_) | Stage::Call(_) | Stage::Done(_) => None,
        }
    }

    /// Answer with a page.
    fn respond(&self, status: u16, headers: Vec<(String, String)>, body: Vec<u8>) -> PyResult<()> {
        let headers = headers.into_iter().collect();
        self.pending(|pending| pending.respond(Response { status, headers, body: vec![body.into()] }))
    }

    /// Set the caller: anonymous, or a principal that a domain authenticated. An invalid request is answered then.
    #[pyo3(signature = (identity=None))]
    fn authenticated(&self, py: Python<'_>, identity: Option<(String, String)>) -> PyResult<()> {
        let identity =
            identity.map_or(Identity::Anonymous, |(domain, principal)| Identity::Principal { domain, principal });
        let mut stage = self.stage();
        match std::mem::replace(&mut *stage, Stage::Done(None)) {
            Stage::Pending(mut pending) => {
                if let Some(external) = &self.external
                    && let Some(pointer) = py.detach(|| pending.pointer(&identity, now()).cloned())
                {
                    match external.fetch(py, pointer) {
                        Ok(Ok(batch)) => pending.resolved(batch),
                        Ok(Err(failure)) => {
                            self.counters.refused();
                            self.answered(&mut stage, pending.unresolved(&failure));
                            return Ok(());
                        }
                        Err(raised) => {
                            self.answered(&mut stage, pending.error(500, "the server was interrupted"));
                            return Err(raised);
                        }
                    }
                }
                match py.detach(|| pending.accept(identity, now())) {
                    Ok(call) => {
                        self.counters.call(call.request.bytes);
                        *stage = Stage::Call(call);
                    }
                    Err(response) => {
                        // The description is answered without a method, which does not count as a refusal.
                        if response.status >= 400 {
                            self.counters.refused();
                        }
                        self.answered(&mut stage, response);
                    }
                }
                Ok(())
            }
            other @ (Stage::Call(_) | Stage::Done(_)) => {
                *stage = other;
                Err(misuse("the caller is already authenticated"))
            }
        }
    }

    /// Answer that the caller is not authorized.
    #[pyo3(signature = (message, challenge=None))]
    fn unauthorized(&self, message: &str, challenge: Option<&str>) -> PyResult<()> {
        self.pending(|pending| pending.unauthorized(message, challenge))
    }

    /// Answer with an error that does not come from a method.
    fn error(&self, status: u16, message: &str) -> PyResult<()> {
        self.pending(|pending| pending.error(status, message))
    }

    #[getter]
    fn kind(&self) -> PyResult<&'static str> {
        self.call(|call| {
            Ok(match call.kind {
                Kind::Unary => "unary",
                Kind::Init => "init",
                Kind::Exchange => "exchange",
                Kind::UploadUrls => "upload_url",
            })
        })
    }

    #[getter]
    fn method(&self) -> PyResult<String> {
        self.call(|call| call.method().map(|method| method.name.clone()).ok_or_else(unknown_method))
    }

    #[getter]
    fn request_id(&self) -> PyResult<String> {
        self.call(|call| Ok(call.request_id.clone()))
    }

    #[getter]
    fn bytes_in(&self) -> PyResult<u64> {
        self.call(|call| Ok(call.request.bytes))
    }

    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.call(|call| metadata_to_python(py, &call.request.metadata))
    }

    /// Return the received parameters.
    #[getter]
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.call(|call| {
            let dict = PyDict::new(py);
            let params = call.method().map(|method| method.params.fields().clone()).unwrap_or_default();
            for (field, value) in params.iter().zip(&call.request.values) {
                if let Some(value) = value {
                    dict.set_item(field.name(), values::to_python(py, value, field)?)?;
                }
            }
            Ok(dict)
        })
    }

    /// Add a header to the response.
    fn add_header(&self, name: &str, value: &str) -> PyResult<()> {
        self.call(|call| {
            call.add_header(name, value);
            Ok(())
        })
    }

    /// Add a log message before the answer, or before the stream's next batch.
    fn log(&self, level: String, message: String, extra_json: Option<String>) -> PyResult<()> {
        self.call(|call| {
            call.log(Log::new(level, message, extra_json));
            Ok(())
        })
    }

    /// Answer a unary call.
    fn reply(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let batch = self.call(|call| {
            let Some(method) = call.method().filter(|_| call.kind == Kind::Unary) else {
                return Err(misuse("a stream is opened, not replied to"));
            };
            match method.result.fields().first() {
                None => Ok(Batch::empty(&method.result, Metadata::new())),
                Some(field) => {
                    let array = values::from_python(value, field, "the result")?;
                    Ok(Batch::new(Arc::clone(&method.result), vec![array], 1))
                }
            }
        })?;
        let batch = self.elsewhere(py, batch)?;
        self.end(py, |call| call.reply(&batch))
    }

    /// Return how many URLs are requested.
    #[getter]
    fn urls(&self) -> PyResult<usize> {
        self.call(|call| Ok(call.urls))
    }

    /// Answer with URLs: for uploading, for fetching, and their expiry in microseconds since 1970.
    fn reply_urls(&self, py: Python<'_>, urls: Vec<(String, String, i64)>) -> PyResult<()> {
        let url = |(upload, download, expires_at)| UploadUrl { upload, download, expires_at };
        let urls: Vec<_> = urls.into_iter().map(url).collect();
        self.end(py, |call| call.reply_urls(&urls))
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
        self.counters.failure();
        self.end(py, |call| call.fail(of_parameters, &failure))
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
        let header = header.map(|PyBatch(batch)| self.elsewhere(py, batch)).transpose()?;
        self.call(|call| call.open(&output, &input, header.as_ref(), producer).map_err(IntoVgiErr::into_vgi_err))
    }

    /// Add the next batch to the answer.
    fn emit(&self, py: Python<'_>, batch: PyBatch, metadata: Option<Bound<'_, PyDict>>) -> PyResult<()> {
        let mut batch = batch.0.with_metadata(self::metadata(metadata.as_ref())?);
        if self.call(|call| Ok(call.produces()))? {
            batch = self.elsewhere(py, batch)?;
        }
        self.call(|call| call.emit(batch).map_err(IntoVgiErr::into_vgi_err))
    }

    /// Return whether a producer may add more to this answer.
    fn room(&self) -> PyResult<bool> {
        self.call(|call| Ok(call.has_capacity()))
    }

    /// End the answer; with a state the stream can continue.
    #[pyo3(signature = (state=None))]
    fn finish(&self, py: Python<'_>, state: Option<Vec<u8>>) -> PyResult<()> {
        if let Some(state) = state {
            self.call(|call| call.seal(state, now()).map_err(IntoVgiErr::into_vgi_err))?;
        }
        // The token is part of the answer to an input, so a client that fetches an external answer finds the token
        // there.
        let held = self
            .external
            .as_ref()
            .map(|external| self.call(|call| Ok(call.pending().filter(|pending| external.takes(pending)).cloned())));
        if let Some(held) = held.transpose()?.flatten() {
            let pointer = self.elsewhere(py, held)?;
            self.call(|call| {
                call.replace_pending(pointer);
                Ok(())
            })?;
        }
        self.end(py, Call::close)
    }

    /// Return the response to the caller of `begin`: status, headers, body.
    fn response<'py>(&self, py: Python<'py>) -> PyResult<Answered<'py>> {
        let response = match &mut *self.stage() {
            Stage::Done(response) => response.take(),
            Stage::Pending(_) | Stage::Call(_) => return Err(misuse("the call was not answered yet")),
        };
        let response = response.ok_or_else(|| misuse("the answer was sent"))?;
        let headers = response.headers.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Ok((response.status, headers, PyBytes::new(py, &response.concat())))
    }
}
