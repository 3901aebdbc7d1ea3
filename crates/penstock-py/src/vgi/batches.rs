//! The conversion of batches, schemas and metadata to Python and back. Columns pass through the
//! Arrow C data interface without copying.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, StructArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use penstock_vgi::{Batch, Metadata};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict};
use pyo3_arrow::{PyArray, PySchema};

use super::errors::IntoVgiErr;
use crate::columns::import;

/// `pa.RecordBatch._import_from_c_capsule`, looked up once.
static IMPORT_BATCH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Return a batch as a `pa.RecordBatch`, with the declared schema.
pub(crate) fn to_python<'py>(py: Python<'py>, batch: &Batch) -> PyResult<Bound<'py, PyAny>> {
    let array = StructArray::from(batch.to_record_batch().map_err(IntoVgiErr::into_vgi_err)?);
    let field =
        Field::new_struct("", batch.schema.fields().clone(), false).with_metadata(batch.schema.metadata().clone());
    import(py, &IMPORT_BATCH, "RecordBatch", field, &array)
}

/// A `pa.RecordBatch`, or any object that exports one. Nulls in fields that are declared as not null are accepted.
pub(crate) struct PyBatch(pub(crate) Batch);

impl<'py> FromPyObject<'_, 'py> for PyBatch {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let (array, field) = object.extract::<PyArray>()?.into_inner();
        let DataType::Struct(fields) = field.data_type() else {
            return Err(PyTypeError::new_err(format!(
                "expected a record batch, got an array of {}",
                field.data_type()
            )));
        };
        let schema = Schema::new_with_metadata(fields.clone(), field.metadata().clone());
        let rows = array.len();
        Ok(Self(Batch::new(Arc::new(schema), array.as_struct().columns().to_vec(), rows)))
    }
}

/// Read a `pa.Schema`.
pub(crate) fn schema(object: &Bound<'_, PyAny>) -> PyResult<SchemaRef> {
    object.extract::<PySchema>().map(PySchema::into_inner)
}

/// Return the bytes of `pa.Schema.serialize()`.
pub(crate) fn serialized(object: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let py = object.py();
    object.call_method0(intern!(py, "serialize"))?.call_method0(intern!(py, "to_pybytes"))?.extract()
}

/// Read metadata from a dict of bytes; `None` means no metadata.
pub(crate) fn metadata(object: Option<&Bound<'_, PyDict>>) -> PyResult<Metadata> {
    let mut metadata = Metadata::new();
    for (key, value) in object.into_iter().flatten() {
        metadata.push(key.extract::<Vec<u8>>()?, value.extract::<Vec<u8>>()?);
    }
    Ok(metadata)
}

/// Return metadata as a dict of bytes.
pub(crate) fn metadata_to_python<'py>(py: Python<'py>, metadata: &Metadata) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (key, value) in metadata.iter() {
        let key = PyBytes::new(py, key);
        if !dict.contains(&key)? {
            dict.set_item(key, PyBytes::new(py, value))?;
        }
    }
    Ok(dict)
}

/// A batch with its metadata; `None` means no metadata.
pub(crate) type BatchWithMetadata = (Py<PyAny>, Option<Py<PyDict>>);

/// Return a batch with its metadata.
pub(crate) fn annotated(py: Python<'_>, batch: &Batch) -> PyResult<BatchWithMetadata> {
    let metadata = (!batch.metadata.is_empty()).then(|| metadata_to_python(py, &batch.metadata)).transpose()?;
    Ok((to_python(py, batch)?.unbind(), metadata.map(Bound::unbind)))
}
