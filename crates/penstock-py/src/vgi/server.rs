//! The server for Python: it takes calls and answers them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use penstock_io::Addresses;
use penstock_io::sync::lock;
use penstock_vgi::http::Service;
use penstock_vgi::{Description, Dialect, Limits, Log, ServerConfig};
use penstock_vgi_net::external::External;
use penstock_vgi_net::{Channel, Check, Counters, MetricsEndpoint, ServerCall, ServerCalls, ServerConnection};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::batches::{BatchWithMetadata, PyBatch, annotated, metadata, metadata_to_python, schema};
use super::errors::{IntoVgiErr, failure, misuse};
use super::external::{VgiExternal, given};
use super::files::{VgiTls, channel, driven};
use super::http_server::{HttpOptions, VgiHttp};
use super::protocol::VgiProtocol;
use super::segment::VgiSegment;
use super::values;
use crate::error::IntoPyErr;

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
    calls: Arc<ServerCalls>,
}

/// A call that waits for its answer.
#[pyclass(frozen, name = "VgiCall", module = "penstock._core")]
pub(crate) struct VgiCall {
    call: ServerCall,
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
        let listen = Addresses::resolve(address).map_err(IntoPyErr::into_py_err)?;
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
        let connection = connection.map_err(IntoVgiErr::into_vgi_err)?;
        Ok(VgiConnection { calls: Arc::new(ServerCalls::new(connection, self.external.clone())) })
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

#[pymethods]
impl VgiConnection {
    /// Return the next call; `None` once the client has closed its end. A call that was left without an answer fails.
    fn next(&self, py: Python<'_>) -> PyResult<Option<VgiCall>> {
        Ok(driven(py, |check| self.calls.next_call(check))?.map(|call| VgiCall { call }))
    }
}

impl VgiCall {
    /// Run a step of the call without the interpreter's lock.
    fn step<T: Send>(
        &self,
        py: Python<'_>,
        step: impl FnOnce(&ServerCall, Check<'_>) -> penstock_vgi_net::Result<T> + Send,
    ) -> PyResult<T> {
        driven(py, |check| step(&self.call, check))
    }
}

#[pymethods]
impl VgiCall {
    #[getter(method)]
    fn name(&self) -> PyResult<&str> {
        Ok(&self.call.method().map_err(IntoVgiErr::into_vgi_err)?.name)
    }

    #[getter]
    fn index(&self) -> usize {
        self.call.call().request.method
    }

    #[getter]
    fn request_id(&self) -> &str {
        &self.call.call().request_id
    }

    #[getter]
    fn bytes_in(&self) -> u64 {
        self.call.call().request.bytes
    }

    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        metadata_to_python(py, &self.call.call().request.metadata)
    }

    /// Return the received parameters.
    #[getter]
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let method = self.call.method().map_err(IntoVgiErr::into_vgi_err)?;
        values::to_dict(py, &method.params, &self.call.call().request.values)
    }

    /// Return whether the client has cancelled the stream.
    #[getter]
    fn cancelled(&self) -> bool {
        self.call.is_cancelled()
    }

    /// Add a log message before the answer, or before the stream's next batch.
    fn log(&self, py: Python<'_>, level: String, message: String, extra_json: Option<String>) -> PyResult<()> {
        self.step(py, |call, _| call.log(Log::new(level, message, extra_json)))
    }

    /// Answer a unary call.
    fn reply(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let batch = values::result_batch(self.call.result().map_err(IntoVgiErr::into_vgi_err)?, value)?;
        self.step(py, |call, check| call.reply(batch, check))
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
        self.step(py, |call, check| call.fail(&failure, check))
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
        let header = header.map(|PyBatch(batch)| batch);
        self.step(py, |call, check| call.open(&output, &input, header, check))
    }

    /// Return the stream's next input; `None` at its end, or if the client has cancelled it.
    fn read(&self, py: Python<'_>) -> PyResult<Option<BatchWithMetadata>> {
        let batch = self.step(py, ServerCall::read)?;
        batch.map(|batch| annotated(py, &batch)).transpose()
    }

    /// Answer the last input.
    fn emit(&self, py: Python<'_>, batch: PyBatch, metadata: Option<Bound<'_, PyDict>>) -> PyResult<()> {
        let batch = batch.0.with_metadata(self::metadata(metadata.as_ref())?);
        self.step(py, |call, check| call.emit(batch, check))
    }

    /// End the output.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.step(py, ServerCall::finish)
    }
}
