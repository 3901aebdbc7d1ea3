//! IPC streams with custom metadata, as octets.

use std::sync::Arc;

use penstock_vgi::ipc::{Decoder, Item, Output, stream};
use penstock_vgi::{Batch, Error, ErrorKind, Limits};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use pyo3_arrow::PySchema;

use super::batches::{Annotated, PyBatch, annotated, metadata, schema as read_schema};
use super::client::IntoVgiErr;

/// A whole IPC stream.
#[pyfunction]
pub(crate) fn vgi_encode<'py>(
    py: Python<'py>,
    schema: &Bound<'py, PyAny>,
    batches: Vec<(PyBatch, Option<Bound<'py, PyDict>>)>,
) -> PyResult<Bound<'py, PyBytes>> {
    let schema = read_schema(schema)?;
    let batches = batches.into_iter().map(|(batch, pairs)| {
        let metadata = metadata(pairs.as_ref())?;
        Ok(Batch { schema: Arc::clone(&schema), ..batch.0.with_metadata(metadata) })
    });
    let batches = batches.collect::<PyResult<Vec<_>>>()?;
    let mut out = Output::new();
    py.detach(|| stream(&schema, &batches, &mut out)).map_err(IntoVgiErr::into_vgi_err)?;
    Ok(PyBytes::new(py, &out.concat()))
}

/// The first IPC stream of some octets: its schema and its batches.
#[pyfunction]
#[pyo3(signature = (octets, max_message=None))]
pub(crate) fn vgi_decode(
    py: Python<'_>,
    octets: &[u8],
    max_message: Option<u64>,
) -> PyResult<(Py<PyAny>, Vec<Annotated>)> {
    let mut limits = Limits::default();
    limits.body = max_message.unwrap_or(limits.body);
    let mut decoder = Decoder::new(limits);
    let mut items = Vec::new();
    py.detach(|| decoder.push(octets, &mut items)).map_err(IntoVgiErr::into_vgi_err)?;
    let mut schema = None;
    let mut batches = Vec::new();
    for item in items {
        match item {
            Item::Schema(read) => schema = Some(read),
            Item::Batch(batch) => batches.push(annotated(py, &batch)?),
            Item::End => break,
        }
    }
    let missing = || Error::new(ErrorKind::Malformed, "the octets end before an IPC stream does").into_vgi_err();
    let schema = schema.ok_or_else(missing)?;
    Ok((PySchema::new(schema).into_pyarrow(py)?.unbind(), batches))
}
