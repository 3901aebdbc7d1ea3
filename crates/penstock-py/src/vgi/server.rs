//! The server for Python: it takes calls and answers them.

use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;

use penstock_io::sync::lock;
use penstock_vgi::http::Service;
use penstock_vgi::{Batch, Call, Class, Description, Dialect, Event, Failure, Limits, Log, MethodKind, ServerConfig};
use penstock_vgi_net::{Channel, Counters, MetricsEndpoint, ServerConnection};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::batches::{BatchWithMetadata, PyBatch, annotated, metadata, metadata_to_python, schema};
use super::errors::{IntoVgiErr, busy, failure, misuse, unknown_method};
use super::external::{External, VgiExternal, given};
use super::files::{VgiTls, channel, waiting};
use super::http_server::{HttpOptions, VgiHttp};
use super::protocol::VgiProtocol;
use super::segment::VgiSegment;
use super::values;
use crate::error::IntoPyErr;
use crate::pipestream::address;

/// A service with an identity and a dialect.
#[pyclass(frozen, name = "VgiServer", module = "penstock._core")]
pub(crate) struct VgiServer {
    protocol: Arc<penstock_vgi::Protocol>,
    config: ServerConfig,
    dialect: Dialect,
    counters: Arc<Counters>,
    external: Option<Arc<External>>,
}

/// A connection from which Python takes calls.
#[pyclass(frozen, name = "VgiConnection", module = "penstock._core")]
pub(crate) struct VgiConnection {
    shared: Arc<Shared>,
}

struct Shared {
    protocol: Arc<penstock_vgi::Protocol>,
    connection: Mutex<ServerConnection>,
    counters: Arc<Counters>,
    external: Option<Arc<External>>,
}

/// A call that waits for its answer.
#[pyclass(frozen, name = "VgiCall", module = "penstock._core")]
pub(crate) struct VgiCall {
    shared: Arc<Shared>,
    call: Call,
    state: Mutex<CallState>,
}

#[derive(Default)]
struct CallState {
    /// Whether it was answered, or its stream has ended.
    done: bool,
    cancelled: bool,
}

#[pymethods]
impl VgiServer {
    #[new]
    #[pyo3(signature = (protocol, *, server_id, dialect, describe, max_message=None, external=None))]
    fn new(
        protocol: &Bound<'_, VgiProtocol>,
        server_id: String,
        dialect: &str,
        describe: bool,
        max_message: Option<u64>,
        external: Option<&Bound<'_, VgiExternal>>,
    ) -> PyResult<Self> {
        let dialect = Dialect::parse(dialect).map_err(IntoVgiErr::into_vgi_err)?;
        let protocol = Arc::clone(&protocol.get().protocol);
        let description = describe.then(|| Arc::new(Description::new(&protocol, dialect, &server_id)));
        let mut limits = Limits::default();
        limits.body = max_message.unwrap_or(limits.body);
        let config = ServerConfig { server_id, description, limits, seed: penstock_vgi_net::seed() };
        Ok(Self { protocol, config, dialect, counters: Arc::default(), external: given(external) })
    }

    /// Return the same service over HTTP.
    fn http(&self, options: HttpOptions) -> PyResult<VgiHttp> {
        let service = Service::new(Arc::clone(&self.protocol), options.config(&self.config, self.dialect));
        let service = service.map_err(IntoVgiErr::into_vgi_err)?;
        Ok(VgiHttp::new(service, Arc::clone(&self.counters), self.external.clone()))
    }

    /// Count a connection that was closed before it was served. A connection that fails before its first request is
    /// counted without this.
    fn refused(&self) {
        self.counters.refused();
    }

    /// Serve the server's counters for Prometheus.
    fn metrics(&self, address: &str) -> PyResult<VgiMetrics> {
        let (addresses, _) = address::resolve(address).map_err(IntoPyErr::into_py_err)?;
        let listen = *addresses.first().ok_or_else(|| misuse(&format!("{address} has no address")))?;
        let endpoint = MetricsEndpoint::bind(listen, Arc::clone(&self.counters));
        Ok(VgiMetrics { endpoint: Mutex::new(Some(endpoint.map_err(IntoPyErr::into_py_err)?)) })
    }

    /// Return a connection over two descriptors, which are not owned, or two binary files.
    #[pyo3(signature = (reader, writer=None, segment=None, tls=None, first_byte=None, idle=None))]
    fn connection(
        &self,
        reader: &Bound<'_, PyAny>,
        writer: Option<&Bound<'_, PyAny>>,
        segment: Option<&Bound<'_, VgiSegment>>,
        tls: Option<&Bound<'_, VgiTls>>,
        first_byte: Option<f64>,
        idle: Option<f64>,
    ) -> PyResult<VgiConnection> {
        let segment = segment.map(|segment| segment.get().segment()).transpose()?;
        let mut channel: Channel = channel(reader, writer, tls)?;
        let limit = |seconds| Duration::try_from_secs_f64(seconds).map_err(|error| misuse(&error.to_string()));
        if let Some(seconds) = first_byte {
            channel.set_first_byte(limit(seconds)?);
        }
        if let Some(seconds) = idle {
            channel.set_idle(limit(seconds)?);
        }
        let config = ServerConfig { seed: penstock_vgi_net::seed(), ..self.config.clone() };
        let counters = Arc::clone(&self.counters);
        let connection = ServerConnection::new(Arc::clone(&self.protocol), config, channel, segment, counters);
        let mut connection = connection.map_err(IntoVgiErr::into_vgi_err)?;
        if self.external.is_some() {
            connection.machine().follow_pointers();
        }
        self.counters.connection();
        let shared = Shared {
            protocol: Arc::clone(&self.protocol),
            connection: Mutex::new(connection),
            counters: Arc::clone(&self.counters),
            external: self.external.clone(),
        };
        Ok(VgiConnection { shared: Arc::new(shared) })
    }
}

impl VgiServer {
    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }
}

/// An endpoint with a server's metrics.
#[pyclass(frozen, name = "VgiMetrics", module = "penstock._core")]
pub(crate) struct VgiMetrics {
    endpoint: Mutex<Option<MetricsEndpoint>>,
}

#[pymethods]
impl VgiMetrics {
    /// Return the address on which it listens; `None` once it is closed.
    #[getter]
    fn address(&self) -> Option<String> {
        let endpoint = lock(&self.endpoint);
        endpoint.as_ref().map(|endpoint| endpoint.address().to_string())
    }

    /// Report the server as unhealthy from here on, because it was told to stop.
    fn stopping(&self) {
        let endpoint = lock(&self.endpoint);
        if let Some(endpoint) = endpoint.as_ref() {
            endpoint.stopping();
        }
    }

    /// End it.
    fn close(&self) {
        lock(&self.endpoint).take();
    }
}

impl Shared {
    /// Use the connection without the interpreter's lock.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut ServerConnection, penstock_vgi_net::Check<'_>) -> penstock_vgi_net::Result<T> + Send,
    ) -> PyResult<T> {
        let (result, raised) = waiting(py, |check| match self.connection.try_lock() {
            Ok(mut connection) => work(&mut connection, check),
            Err(TryLockError::Poisoned(poisoned)) => work(&mut poisoned.into_inner(), check),
            Err(TryLockError::WouldBlock) => Err(busy()),
        });
        result.map_err(|error| raised.unwrap_or_else(|| error.into_vgi_err()))
    }

    /// Return the batch behind a pointer, if pointers are resolved here.
    fn fetch(&self, py: Python<'_>, batch: Batch) -> PyResult<Result<Batch, Failure>> {
        self.external.as_ref().map_or_else(|| Ok(Ok(batch.clone())), |external| external.fetch(py, batch.clone()))
    }

    /// Return the batch, or a pointer to it and the log messages before it. Shared memory takes precedence.
    fn elsewhere(&self, py: Python<'_>, batch: Batch) -> PyResult<Batch> {
        let Some(external) = self.external.as_ref().filter(|external| external.takes(&batch)) else { return Ok(batch) };
        let logs = self.with(py, |connection, _| {
            Ok((!connection.shares()).then(|| connection.machine().waiting_logs(&batch.schema)))
        })?;
        let Some(mut cycle) = logs else { return Ok(batch) };
        let schema = Arc::clone(&batch.schema);
        cycle.push(batch);
        let pointer = external.store(py, &schema, &cycle)?;
        self.with(py, |connection, _| {
            connection.machine().forget_logs();
            Ok(())
        })?;
        Ok(pointer)
    }
}

#[pymethods]
impl VgiConnection {
    /// Return the next call; `None` once the client has closed its end. A call that was left without an answer fails.
    fn next(&self, py: Python<'_>) -> PyResult<Option<VgiCall>> {
        self.shared.with(py, |connection, check| connection.settle(check))?;
        loop {
            let event = self.shared.with(py, |connection, check| {
                loop {
                    match connection.next_event(check)? {
                        None => return Ok(None),
                        Some(event @ (Event::Call(_) | Event::Pointer(_))) => return Ok(Some(event)),
                        // These events belong to the rest of a stream whose call was dropped.
                        Some(Event::Input(_) | Event::InputEnd | Event::Cancelled | Event::Abandoned) => {}
                    }
                }
            })?;
            match event {
                Some(Event::Call(call)) => {
                    self.shared.counters.call(call.request.bytes);
                    return Ok(Some(VgiCall { shared: Arc::clone(&self.shared), call, state: Mutex::default() }));
                }
                Some(Event::Pointer(batch)) => {
                    let found = self.shared.fetch(py, batch)?;
                    self.shared.with(py, |connection, check| {
                        connection.machine().resolved(found)?;
                        connection.flush(check)
                    })?;
                }
                Some(Event::Input(_) | Event::InputEnd | Event::Cancelled | Event::Abandoned) | None => {
                    return Ok(None);
                }
            }
        }
    }
}

impl VgiCall {
    fn method(&self) -> PyResult<&penstock_vgi::Method> {
        self.shared.protocol.method(self.call.request.method).ok_or_else(unknown_method)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, CallState> {
        lock(&self.state)
    }

    /// Return the input behind a pointer, in its schema; `None` if the stream has failed because of it.
    fn follow(&self, py: Python<'_>, batch: Batch) -> PyResult<Option<Batch>> {
        let found = self.shared.fetch(py, batch)?;
        self.shared.with(py, |connection, check| {
            let batch = match found {
                Ok(batch) => connection.machine().conform(batch)?,
                Err(failure) => {
                    connection.machine().fail(&failure)?;
                    None
                }
            };
            if batch.is_none() {
                connection.flush(check)?;
            }
            Ok(batch)
        })
    }

    /// Answer the call, once.
    fn answer(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut ServerConnection) -> penstock_vgi_net::Result<()> + Send,
    ) -> PyResult<()> {
        if self.state().done {
            return Err(misuse("the call was answered, or its stream has ended"));
        }
        self.shared.with(py, |connection, check| {
            work(connection)?;
            connection.flush(check)
        })
    }
}

#[pymethods]
impl VgiCall {
    #[getter(method)]
    fn name(&self) -> PyResult<&str> {
        Ok(&self.method()?.name)
    }

    #[getter]
    fn index(&self) -> usize {
        self.call.request.method
    }

    #[getter]
    fn request_id(&self) -> &str {
        &self.call.request_id
    }

    #[getter]
    fn bytes_in(&self) -> u64 {
        self.call.request.bytes
    }

    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        metadata_to_python(py, &self.call.request.metadata)
    }

    /// Return the received parameters.
    #[getter]
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (field, value) in self.method()?.params.fields().iter().zip(&self.call.request.values) {
            if let Some(value) = value {
                dict.set_item(field.name(), values::to_python(py, value, field)?)?;
            }
        }
        Ok(dict)
    }

    /// Return whether the client has cancelled the stream.
    #[getter]
    fn cancelled(&self) -> bool {
        self.state().cancelled
    }

    /// Add a log message before the answer, or before the stream's next batch.
    fn log(&self, py: Python<'_>, level: String, message: String, extra_json: Option<String>) -> PyResult<()> {
        self.shared.with(py, |connection, _| {
            connection.machine().log(Log::new(level, message, extra_json));
            Ok(())
        })
    }

    /// Answer a unary call.
    fn reply(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let method = self.method()?;
        if method.kind != MethodKind::Unary {
            return Err(misuse("a stream is opened, not replied to"));
        }
        let batch = match method.result.fields().first() {
            None => Batch::empty(&method.result, penstock_vgi::Metadata::new()),
            Some(field) => {
                let array = values::from_python(value, field, "the result")?;
                Batch::new(Arc::clone(&method.result), vec![array], 1)
            }
        };
        let batch = self.shared.elsewhere(py, batch)?;
        self.answer(py, |connection| {
            let batch = connection.share(batch)?;
            Ok(connection.machine().reply(&batch)?)
        })?;
        self.state().done = true;
        Ok(())
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
        let (_, failure) = failure(kind, error_type, message, extra_json)?;
        self.shared.counters.failure();
        self.answer(py, |connection| Ok(connection.machine().fail(&failure)?))?;
        self.state().done = true;
        Ok(())
    }

    /// Open the stream of the call.
    fn open(
        &self,
        py: Python<'_>,
        output_schema: &Bound<'_, PyAny>,
        input_schema: &Bound<'_, PyAny>,
        header: Option<PyBatch>,
    ) -> PyResult<()> {
        let (output, input) = (schema(output_schema)?, schema(input_schema)?);
        let header = header.map(|PyBatch(batch)| self.shared.elsewhere(py, batch)).transpose()?;
        self.answer(py, |connection| Ok(connection.machine().open(&output, &input, header.as_ref())?))
    }

    /// Return the stream's next input; `None` at its end, or if the client has cancelled it.
    fn read(&self, py: Python<'_>) -> PyResult<Option<BatchWithMetadata>> {
        if self.state().done {
            return Ok(None);
        }
        let follows = self.shared.external.is_some();
        let event = self.shared.with(py, |connection, check| {
            loop {
                match connection.next_event(check)? {
                    Some(Event::Input(batch)) => {
                        if follows && batch.class() == Class::External {
                            return Ok(Some(Event::Pointer(batch)));
                        }
                        if let Some(batch) = connection.machine().conform(batch)? {
                            return Ok(Some(Event::Input(batch)));
                        }
                        connection.flush(check)?;
                        return Ok(None);
                    }
                    Some(event @ (Event::InputEnd | Event::Cancelled)) => return Ok(Some(event)),
                    Some(Event::Abandoned) | None => return Ok(None),
                    Some(Event::Call(_) | Event::Pointer(_)) => {}
                }
            }
        })?;
        let event = match event {
            Some(Event::Pointer(batch)) => self.follow(py, batch)?.map(Event::Input),
            event => event,
        };
        match event {
            Some(Event::Input(batch)) => annotated(py, &batch).map(Some),
            Some(Event::Cancelled) => {
                self.state().cancelled = true;
                Ok(None)
            }
            Some(Event::InputEnd) => Ok(None),
            Some(Event::Call(_) | Event::Pointer(_) | Event::Abandoned) | None => {
                self.state().done = true;
                Ok(None)
            }
        }
    }

    /// Answer the last input.
    fn emit(&self, py: Python<'_>, batch: PyBatch, metadata: Option<Bound<'_, PyDict>>) -> PyResult<()> {
        let batch = batch.0.with_metadata(self::metadata(metadata.as_ref())?);
        let batch = self.shared.elsewhere(py, batch)?;
        self.answer(py, |connection| {
            let batch = connection.share(batch)?;
            Ok(connection.machine().emit(&batch)?)
        })
    }

    /// End the output.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        if self.state().done {
            return Ok(());
        }
        self.answer(py, |connection| Ok(connection.machine().finish()?))?;
        self.state().done = true;
        Ok(())
    }
}
