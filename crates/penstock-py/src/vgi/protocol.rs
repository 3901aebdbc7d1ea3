//! The methods of a service, from Python.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use penstock_vgi::{
    Description, Dialect, Method, MethodKind, Protocol, REQUEST_VERSION, Serialized, description_hash, key,
    protocol_hash,
};
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::batches::{BatchWithMetadata, PyBatch, annotated, schema, serialized};
use super::errors::IntoVgiErr;

/// A service and its methods.
#[pyclass(frozen, name = "VgiProtocol", module = "penstock._core")]
pub(crate) struct VgiProtocol {
    pub(crate) protocol: Arc<Protocol>,
}

#[pymethods]
impl VgiProtocol {
    /// The version of the wire protocol.
    #[classattr]
    const REQUEST_VERSION: &'static [u8] = REQUEST_VERSION;

    /// The version of descriptions of dialect 0.10.
    #[classattr]
    const DESCRIBE_VERSION: &'static str = Dialect::V0_10.describe_version();

    #[new]
    fn new(name: String, methods: Vec<Bound<'_, PyDict>>) -> PyResult<Self> {
        let methods = methods.iter().map(method).collect::<PyResult<Vec<_>>>()?;
        Ok(Self { protocol: Arc::new(Protocol::new(name, methods).map_err(IntoVgiErr::into_vgi_err)?) })
    }

    /// Return the answer to `__describe__`, with its metadata.
    fn describe(&self, py: Python<'_>, dialect: &str, server_id: &str) -> PyResult<BatchWithMetadata> {
        let dialect = Dialect::parse(dialect).map_err(IntoVgiErr::into_vgi_err)?;
        annotated(py, Description::new(&self.protocol, dialect, server_id).batch())
    }

    /// Return the SHA-256, in hex, over the parts that all implementations of the same service share.
    #[getter]
    fn hash(&self) -> String {
        protocol_hash(&self.protocol)
    }
}

/// Return the hash over a description of dialect 0.10.
#[pyfunction]
pub(crate) fn vgi_description_hash(protocol_name: &str, batch: PyBatch) -> PyResult<String> {
    description_hash(protocol_name, &batch.0).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Return the reserved keys of metadata, by their names in the core.
#[pyfunction]
pub(crate) fn vgi_keys(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let keys = PyDict::new(py);
    for (name, key) in key::ALL {
        keys.set_item(name, PyBytes::new(py, key))?;
    }
    Ok(keys)
}

fn method(dict: &Bound<'_, PyDict>) -> PyResult<Method> {
    let maybe = |key: &str| Ok::<_, PyErr>(dict.get_item(key)?.filter(|value| !value.is_none()));
    let get = |key: &str| maybe(key)?.ok_or_else(|| PyKeyError::new_err(key.to_owned()));
    let with_bytes =
        |object: Bound<'_, PyAny>| Ok::<(SchemaRef, Vec<u8>), PyErr>((schema(&object)?, serialized(&object)?));
    let (params, params_bytes) = with_bytes(get("params")?)?;
    let (result, result_bytes) = with_bytes(get("result")?)?;
    let (header, header_bytes) = maybe("header")?.map(with_bytes).transpose()?.unzip();
    let kind: String = get("kind")?.extract()?;
    Ok(Method {
        name: get("name")?.extract()?,
        kind: match kind.as_str() {
            "unary" => MethodKind::Unary,
            "stream" => MethodKind::Stream,
            _ => return Err(PyValueError::new_err(format!("a method is unary or a stream, not {kind:?}"))),
        },
        params,
        result,
        optional: maybe("optional")?.map(|names| names.extract()).transpose()?.unwrap_or_default(),
        nulls: maybe("nulls")?.map(|names| names.extract()).transpose()?.unwrap_or_default(),
        header,
        is_exchange: maybe("is_exchange")?.map(|flag| flag.extract()).transpose()?,
        has_return: get("has_return")?.extract()?,
        doc: maybe("doc")?.map(|text| text.extract()).transpose()?,
        serialized: Serialized { params: params_bytes, result: result_bytes, header: header_bytes },
        param_types: maybe("param_types")?.map(|text| text.extract()).transpose()?,
        param_defaults: maybe("param_defaults")?.map(|text| text.extract()).transpose()?,
    })
}
