//! Building Arrow columns from Python values. `pa.array` would import pandas wherever it is
//! installed, which costs each Python process of a Spark executor more than half a second of CPU.

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Int32Array, Int64Array, LargeBinaryArray, LargeStringArray, ListArray,
    StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, TimeUnit};
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;
use pyo3_arrow::PyDataType;
use pyo3_arrow::ffi::to_array_pycapsules;

/// `pa.Array._import_from_c_capsule`, looked up once.
static IMPORT_ARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Return an array as an object of a pyarrow class, through the Arrow C data interface, without
/// copying.
pub(crate) fn import<'py>(
    py: Python<'py>,
    cell: &'static PyOnceLock<Py<PyAny>>,
    class: &str,
    field: Field,
    array: &dyn Array,
) -> PyResult<Bound<'py, PyAny>> {
    let import = cell.get_or_try_init(py, || {
        let class = py.import("pyarrow")?.getattr(class)?;
        class.getattr("_import_from_c_capsule").map(Bound::unbind)
    })?;
    import.bind(py).call1(to_array_pycapsules(py, Arc::new(field), array, None)?)
}

/// Return an array as a `pa.Array`.
pub(crate) fn array_to_python<'py>(py: Python<'py>, array: &ArrayRef, field: &FieldRef) -> PyResult<Bound<'py, PyAny>> {
    let field = Field::new(field.name(), field.data_type().clone(), true);
    import(py, &IMPORT_ARRAY, "Array", field, array)
}

/// Return a column of these values, `None` as null. A timestamp is given in microseconds since 1970.
#[pyfunction]
pub(crate) fn column<'py>(
    py: Python<'py>,
    values: Vec<Bound<'py, PyAny>>,
    data_type: PyDataType,
) -> PyResult<Bound<'py, PyAny>> {
    let data_type = data_type.into_inner();
    let array = array(&values, &data_type)?;
    import(py, &IMPORT_ARRAY, "Array", Field::new("", data_type, true), &array)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the columns of our rows have none of Arrow's other types")]
fn array(values: &[Bound<'_, PyAny>], data_type: &DataType) -> PyResult<ArrayRef> {
    Ok(match data_type {
        DataType::Utf8 => Arc::new(StringArray::from_iter(short(collect::<PyBackedStr>(values)?)?)),
        DataType::LargeUtf8 => Arc::new(LargeStringArray::from_iter(collect::<PyBackedStr>(values)?)),
        DataType::Binary => Arc::new(BinaryArray::from_iter(short(collect::<PyBackedBytes>(values)?)?)),
        DataType::LargeBinary => Arc::new(LargeBinaryArray::from_iter(collect::<PyBackedBytes>(values)?)),
        DataType::Boolean => Arc::new(BooleanArray::from_iter(collect::<bool>(values)?)),
        DataType::Int32 => Arc::new(Int32Array::from_iter(collect::<i32>(values)?)),
        DataType::Int64 => Arc::new(Int64Array::from_iter(collect::<i64>(values)?)),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            Arc::new(TimestampMicrosecondArray::from_iter(collect::<i64>(values)?).with_timezone_opt(zone.clone()))
        }
        DataType::List(item) => Arc::new(list(values, item)?),
        DataType::Struct(fields) => Arc::new(structs(values, fields)?),
        other => return Err(PyTypeError::new_err(format!("a column of {other} cannot be made from Python values"))),
    })
}

fn collect<'py, V: FromPyObjectOwned<'py>>(values: &[Bound<'py, PyAny>]) -> PyResult<Vec<Option<V>>> {
    values.iter().map(|value| value.extract::<Option<V>>().map_err(Into::into)).collect()
}

/// Refuse values that exceed 32-bit offsets, because Arrow panics on them.
fn short<V: AsRef<[u8]>>(values: Vec<Option<V>>) -> PyResult<Vec<Option<V>>> {
    offset(values.iter().flatten().map(|value| value.as_ref().len()).sum())?;
    Ok(values)
}

fn offset(last: usize) -> PyResult<()> {
    i32::try_from(last).map(drop).map_err(|_| PyValueError::new_err("a column has an offset above 2^31 - 1"))
}

fn list(values: &[Bound<'_, PyAny>], item: &FieldRef) -> PyResult<ListArray> {
    let (mut items, mut lengths) = (Vec::new(), Vec::with_capacity(values.len()));
    for value in values {
        let before = items.len();
        if !value.is_none() {
            for item in value.try_iter()? {
                items.push(item?);
            }
        }
        lengths.push(items.len() - before);
    }
    offset(items.len())?;
    let items = array(&items, item.data_type())?;
    ListArray::try_new(Arc::clone(item), OffsetBuffer::from_lengths(lengths), items, nulls(values)).map_err(refused)
}

fn structs(values: &[Bound<'_, PyAny>], fields: &Fields) -> PyResult<StructArray> {
    let mut columns = Vec::with_capacity(fields.len());
    for field in fields {
        let (mut members, mut name) = (Vec::with_capacity(values.len()), None);
        for value in values {
            let name = name.get_or_insert_with(|| PyString::new(value.py(), field.name()));
            let member = if value.is_none() { value.clone() } else { value.get_item(&*name)? };
            members.push(member);
        }
        columns.push(array(&members, field.data_type())?);
    }
    StructArray::try_new_with_length(fields.clone(), columns, nulls(values), values.len()).map_err(refused)
}

fn nulls(values: &[Bound<'_, PyAny>]) -> Option<NullBuffer> {
    let nulls: NullBuffer = values.iter().map(|value| !value.is_none()).collect();
    (nulls.null_count() > 0).then_some(nulls)
}

fn refused(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}
