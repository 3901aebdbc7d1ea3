//! The client's end for Python.

use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;

use arrow_schema::SchemaRef;
use penstock_io::sync::lock;
use penstock_vgi::{Answer, Batch, ErrorKind, Limits, Method, MethodKind};
use penstock_vgi_net::{Check, ClientConnection};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::batches::{BatchWithMetadata, PyBatch, annotated, metadata, to_python};
use super::errors::{IntoVgiErr, busy, misuse, rpc_error, vgi_error};
use super::external::{External, VgiExternal, given, receive};
use super::files::{VgiTls, channel, waiting};
use super::logger::Logger;
use super::protocol::VgiProtocol;
use super::segment::VgiSegment;
use super::values;

/// Read a timeout in seconds from Python.
pub(super) fn timeout(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    let parsed = seconds.map(Duration::try_from_secs_f64).transpose();
    parsed.map_err(|error| PyValueError::new_err(format!("timeout: {error}")))
}

/// A connection on which methods are called, one at a time.
#[pyclass(frozen, name = "VgiClient", module = "penstock._core")]
pub(crate) struct VgiClient {
    shared: Arc<Shared>,
}

struct Shared {
    protocol: Arc<penstock_vgi::Protocol>,
    connection: Mutex<ClientConnection>,
    logger: Logger,
    timeout: Mutex<Option<f64>>,
    external: Option<Arc<External>>,
    /// Counts the streams: every stream but the latest has ended.
    streams: Mutex<u64>,
}

/// A stream of a [`VgiClient`].
#[pyclass(frozen, name = "VgiClientStream", module = "penstock._core")]
pub(crate) struct VgiClientStream {
    shared: Arc<Shared>,
    number: u64,
    header: Option<Batch>,
    done: Mutex<bool>,
}

impl Shared {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut ClientConnection, Check<'_>) -> penstock_vgi_net::Result<T> + Send,
    ) -> PyResult<T> {
        let (result, raised) = waiting(py, |check| match self.connection.try_lock() {
            Ok(mut connection) => work(&mut connection, check),
            Err(TryLockError::Poisoned(poisoned)) => work(&mut poisoned.into_inner(), check),
            Err(TryLockError::WouldBlock) => Err(busy()),
        });
        result.map_err(|error| raised.unwrap_or_else(|| error.into_vgi_err()))
    }

    /// Send something, and pass on log messages until there is an answer. Sending and the first wait are one step, so
    /// that a call releases the interpreter's lock only once.
    fn ask(
        &self,
        py: Python<'_>,
        send: impl FnOnce(&mut ClientConnection, Check<'_>) -> penstock_vgi_net::Result<()> + Send,
    ) -> PyResult<Answer> {
        let mut answer = self.with(py, |connection, check| {
            send(connection, check)?;
            connection.next_answer(check)
        })?;
        while let Answer::Log(log) = answer {
            self.logger.log(py, &log)?;
            answer = self.with(py, |connection, check| connection.next_answer(check))?;
        }
        match answer {
            Answer::Batch(batch) => receive(py, self.external.as_ref(), batch, &self.logger).map(Answer::Batch),
            answer @ (Answer::Log(_) | Answer::End | Answer::Failed(_)) => Ok(answer),
        }
    }
}

/// Return the method with this name and kind.
pub(crate) fn method_of<'p>(
    protocol: &'p penstock_vgi::Protocol,
    name: &str,
    kind: MethodKind,
) -> PyResult<&'p Method> {
    let method = protocol.find(name).and_then(|index| protocol.method(index));
    let method = method.ok_or_else(|| misuse(&format!("{} has no method {name:?}", protocol.name())))?;
    if method.kind != kind {
        return Err(misuse(&format!("{name} is {}, not {}", method.kind.name(), kind.name())));
    }
    Ok(method)
}

/// Return the value of a unary answer.
pub(crate) fn result_of<'py>(py: Python<'py>, method: &Method, batch: &Batch) -> PyResult<Bound<'py, PyAny>> {
    let Some(field) = method.result.fields().first() else { return Ok(py.None().into_bound(py)) };
    match batch.columns.first() {
        Some(column) if batch.rows == 1 => values::to_python(py, column, field),
        _ => {
            let message = format!("the result of {} is not one row", method.name);
            Err(vgi_error(message, ErrorKind::Violation))
        }
    }
}

/// Return the batch of a request: a column for each given parameter.
pub(crate) fn params(method: &Method, given: &Bound<'_, PyDict>) -> PyResult<Batch> {
    let mut fields = Vec::with_capacity(given.len());
    let mut columns = Vec::with_capacity(given.len());
    let what = format!("{}() parameter", method.name);
    for field in method.params.fields() {
        if let Some(value) = given.get_item(field.name())? {
            fields.push(Arc::clone(field));
            columns.push(values::from_python(&value, field, &what)?);
        } else if !method.optional.contains(field.name()) {
            return Err(PyTypeError::new_err(format!("{}() is missing the parameter '{}'", method.name, field.name())));
        }
    }
    if columns.len() != given.len() {
        let unknown = given
            .keys()
            .iter()
            .find(|key| key.extract::<&str>().map_or(true, |key| method.params.field_with_name(key).is_err()));
        let unknown = unknown.map(|key| key.to_string()).unwrap_or_default();
        return Err(PyTypeError::new_err(format!("{}() got an unexpected parameter '{unknown}'", method.name)));
    }
    let schema: SchemaRef = if fields.len() == method.params.fields().len() {
        Arc::clone(&method.params)
    } else {
        Arc::new(arrow_schema::Schema::new(fields))
    };
    Ok(Batch::new(schema, columns, 1))
}

#[pymethods]
impl VgiClient {
    #[new]
    #[pyo3(signature = (protocol, reader, writer=None, *, segment=None, tls=None, on_log=None, max_message=None,
        external=None))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword of Python's")]
    fn new(
        protocol: &Bound<'_, VgiProtocol>,
        reader: &Bound<'_, PyAny>,
        writer: Option<&Bound<'_, PyAny>>,
        segment: Option<&Bound<'_, VgiSegment>>,
        tls: Option<&Bound<'_, VgiTls>>,
        on_log: Option<Py<PyAny>>,
        max_message: Option<u64>,
        external: Option<&Bound<'_, VgiExternal>>,
    ) -> PyResult<Self> {
        let segment = segment.map(|segment| segment.get().segment()).transpose()?;
        let mut limits = Limits::default();
        limits.body = max_message.unwrap_or(limits.body);
        let connection =
            ClientConnection::new(limits, channel(reader, writer, tls)?, segment).map_err(IntoVgiErr::into_vgi_err)?;
        let shared = Shared {
            protocol: Arc::clone(&protocol.get().protocol),
            connection: Mutex::new(connection),
            logger: Logger::new(on_log),
            timeout: Mutex::default(),
            external: given(external),
            streams: Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    #[getter]
    fn timeout(&self) -> Option<f64> {
        *lock(&self.shared.timeout)
    }

    /// Set how many seconds the server may take for one answer, from the request to its last byte; `None` means no
    /// limit.
    #[setter]
    fn set_timeout(&self, py: Python<'_>, seconds: Option<f64>) -> PyResult<()> {
        let timeout = self::timeout(seconds)?;
        self.shared.with(py, |connection, _| {
            connection.set_timeout(timeout);
            Ok(())
        })?;
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
        let answer = self.shared.ask(py, |connection, check| connection.call(method, batch, metadata, check))?;
        result_of(py, called, &expect_batch(py, answer)?)
    }

    /// Open a stream; if it has a header, wait for that.
    #[pyo3(signature = (method, values, metadata=None))]
    fn open(
        &self,
        py: Python<'_>,
        method: &str,
        values: &Bound<'_, PyDict>,
        metadata: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<VgiClientStream> {
        let called = method_of(&self.shared.protocol, method, MethodKind::Stream)?;
        let (batch, metadata) = (params(called, values)?, self::metadata(metadata)?);
        let has_header = called.header.is_some();
        let header = if has_header {
            let answer =
                self.shared.ask(py, |connection, check| connection.open(method, batch, metadata, true, check))?;
            Some(expect_batch(py, answer)?)
        } else {
            self.shared.with(py, |connection, check| connection.open(method, batch, metadata, false, check))?;
            None
        };
        let mut streams = lock(&self.shared.streams);
        *streams = streams.wrapping_add(1);
        let number = *streams;
        Ok(VgiClientStream { shared: Arc::clone(&self.shared), number, header, done: Mutex::new(false) })
    }

    /// Ask for the description of the service.
    fn describe(&self, py: Python<'_>) -> PyResult<BatchWithMetadata> {
        let empty = Batch::new(Arc::clone(self.shared.protocol.empty_schema()), Vec::new(), 1);
        let metadata = penstock_vgi::Metadata::new();
        let answer =
            self.shared.ask(py, |connection, check| connection.call(penstock_vgi::DESCRIBE, empty, metadata, check))?;
        annotated(py, &expect_batch(py, answer)?)
    }
}

pub(crate) fn expect_batch(py: Python<'_>, answer: Answer) -> PyResult<Batch> {
    match answer {
        Answer::Batch(batch) => Ok(batch),
        Answer::Failed(failure) => Err(rpc_error(py, &failure)),
        Answer::Log(_) | Answer::End => {
            Err(vgi_error("the server has not answered the call".to_owned(), ErrorKind::Violation))
        }
    }
}

impl VgiClientStream {
    /// Return the next batch; `None` at the end.
    fn next(&self, py: Python<'_>, batch: Option<&Batch>) -> PyResult<Option<BatchWithMetadata>> {
        if *lock(&self.done) || *lock(&self.shared.streams) != self.number {
            return Err(misuse("the stream was closed, or has ended"));
        }
        match self.shared.ask(py, |connection, check| connection.send(batch, check)) {
            Ok(Answer::Batch(batch)) => annotated(py, &batch).map(Some),
            Ok(Answer::End) => {
                *lock(&self.done) = true;
                Ok(None)
            }
            Ok(answer) => {
                *lock(&self.done) = true;
                expect_batch(py, answer).map(|_| None)
            }
            Err(error) => {
                // The connection may be fine, for example if an external batch could not be fetched; only the stream
                // ends.
                drop(self.end(py, false));
                Err(error)
            }
        }
    }

    fn end(&self, py: Python<'_>, cancel: bool) -> PyResult<()> {
        if std::mem::replace(&mut *lock(&self.done), true) || *lock(&self.shared.streams) != self.number {
            return Ok(());
        }
        let mut logs = Vec::new();
        self.shared.with(py, |connection, check| {
            connection.close(cancel, check, &mut |answer| {
                if let Answer::Log(log) = answer {
                    logs.push(log);
                }
            })
        })?;
        logs.iter().try_for_each(|log| self.shared.logger.log(py, log))
    }
}

#[pymethods]
impl VgiClientStream {
    /// Return the header, if the stream has one.
    fn header(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.header.as_ref().map(|batch| to_python(py, batch).map(Bound::unbind)).transpose()
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
        self.next(py, Some(&batch))
    }

    /// Ask a producer for its next batch; `None` once it has finished.
    fn tick(&self, py: Python<'_>) -> PyResult<Option<BatchWithMetadata>> {
        self.next(py, None)
    }

    /// Cancel the stream; the server stops working on the rest.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py, true)
    }

    /// End the stream.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py, false)
    }
}
