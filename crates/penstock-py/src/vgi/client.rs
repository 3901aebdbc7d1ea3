//! The client's end for Python.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_schema::SchemaRef;
use penstock_io::sync::lock;
use penstock_vgi::{Batch, ErrorKind, Limits, Method, MethodKind};
use penstock_vgi_net::{ClientCalls, ClientConnection, ClientStream, Receiver};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::batches::{BatchWithMetadata, PyBatch, annotated, metadata, to_python};
use super::errors::{IntoVgiErr, misuse, vgi_error};
use super::external::{VgiExternal, given};
use super::files::{VgiTls, channel, driven};
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
    protocol: Arc<penstock_vgi::Protocol>,
    calls: Arc<ClientCalls>,
    timeout: Mutex<Option<f64>>,
}

/// A stream of a [`VgiClient`].
#[pyclass(frozen, name = "VgiClientStream", module = "penstock._core")]
pub(crate) struct VgiClientStream {
    stream: ClientStream,
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

/// Return the batch of a request, with one column per given parameter.
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
        let receiver = Receiver { logs: Box::new(Logger::new(on_log)), external: given(external) };
        let protocol = Arc::clone(&protocol.get().protocol);
        Ok(Self { protocol, calls: Arc::new(ClientCalls::new(connection, receiver)), timeout: Mutex::default() })
    }

    #[getter]
    fn timeout(&self) -> Option<f64> {
        *lock(&self.timeout)
    }

    /// Set how many seconds the server may take for one answer, from the request to its last byte; `None` means no
    /// limit.
    #[setter]
    fn set_timeout(&self, seconds: Option<f64>) -> PyResult<()> {
        let timeout = self::timeout(seconds)?;
        self.calls.set_timeout(timeout).map_err(IntoVgiErr::into_vgi_err)?;
        *lock(&self.timeout) = seconds;
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
        let called = method_of(&self.protocol, method, MethodKind::Unary)?;
        let (batch, metadata) = (params(called, values)?, self::metadata(metadata)?);
        let answer = driven(py, |check| self.calls.call(method, batch, metadata, check))?;
        result_of(py, called, &answer)
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
        let called = method_of(&self.protocol, method, MethodKind::Stream)?;
        let (batch, metadata) = (params(called, values)?, self::metadata(metadata)?);
        let header = called.header.is_some();
        let stream = driven(py, |check| self.calls.open(method, batch, metadata, header, check))?;
        Ok(VgiClientStream { stream })
    }

    /// Ask for the description of the service.
    fn describe(&self, py: Python<'_>) -> PyResult<BatchWithMetadata> {
        let empty = Batch::new(Arc::clone(self.protocol.empty_schema()), Vec::new(), 1);
        let metadata = penstock_vgi::Metadata::new();
        annotated(py, &driven(py, |check| self.calls.call(penstock_vgi::DESCRIBE, empty, metadata, check))?)
    }
}

impl VgiClientStream {
    /// Return the next batch, or `None` at the end.
    fn next(&self, py: Python<'_>, input: Option<&Batch>) -> PyResult<Option<BatchWithMetadata>> {
        let batch = driven(py, |check| self.stream.next(input, check))?;
        batch.map(|batch| annotated(py, &batch)).transpose()
    }
}

#[pymethods]
impl VgiClientStream {
    /// Return the header, if the stream has one.
    fn header(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.stream.header().map(|batch| to_python(py, batch).map(Bound::unbind)).transpose()
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
        driven(py, |check| self.stream.cancel(check))
    }

    /// End the stream.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        driven(py, |check| self.stream.close(check))
    }
}
