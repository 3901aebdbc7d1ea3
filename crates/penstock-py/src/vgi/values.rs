//! The conversion of one value of a column to Python and back. A value becomes a native Python type
//! if there is one, otherwise a `pa.Array` of length 1.

use std::sync::Arc;

use arrow_array::builder::BooleanBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowDictionaryKeyType, ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, LargeBinaryArray, LargeStringArray, PrimitiveArray, StringArray, new_null_array,
};
use arrow_schema::{DataType, FieldRef, SchemaRef};
use penstock_vgi::{Batch, Metadata};
use pyo3::BoundObject;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyString};
use pyo3_arrow::PyArray;

use crate::columns::array_to_python;

/// Return the value of an array of length 1.
#[expect(clippy::wildcard_enum_match_arm, reason = "most of Arrow's types need no case")]
pub(crate) fn to_python<'py>(py: Python<'py>, array: &ArrayRef, field: &FieldRef) -> PyResult<Bound<'py, PyAny>> {
    if array.is_empty() || array.is_null(0) {
        return Ok(py.None().into_bound(py));
    }
    fn number<'py, T>(py: Python<'py>, array: &ArrayRef) -> PyResult<Bound<'py, PyAny>>
    where
        T: ArrowPrimitiveType,
        T::Native: IntoPyObject<'py>,
    {
        let value = array.as_primitive::<T>().value(0);
        value.into_pyobject(py).map(|value| value.into_any().into_bound()).map_err(Into::into)
    }
    match array.data_type() {
        DataType::Boolean => Ok(PyBool::new(py, array.as_boolean().value(0)).to_owned().into_any()),
        DataType::Int64 => number::<Int64Type>(py, array),
        DataType::Float64 => number::<Float64Type>(py, array),
        DataType::Utf8 => Ok(PyString::new(py, array.as_string::<i32>().value(0)).into_any()),
        DataType::Binary => Ok(PyBytes::new(py, array.as_binary::<i32>().value(0)).into_any()),
        DataType::LargeUtf8 => Ok(PyString::new(py, array.as_string::<i64>().value(0)).into_any()),
        DataType::LargeBinary => Ok(PyBytes::new(py, array.as_binary::<i64>().value(0)).into_any()),
        DataType::Int32 => number::<Int32Type>(py, array),
        DataType::Int16 => number::<Int16Type>(py, array),
        DataType::Int8 => number::<Int8Type>(py, array),
        DataType::UInt64 => number::<UInt64Type>(py, array),
        DataType::UInt32 => number::<UInt32Type>(py, array),
        DataType::UInt16 => number::<UInt16Type>(py, array),
        DataType::UInt8 => number::<UInt8Type>(py, array),
        DataType::Float32 => number::<Float32Type>(py, array),
        DataType::Dictionary(_, values) if **values == DataType::Utf8 => {
            let dictionary = array.as_any_dictionary();
            let key = dictionary.normalized_keys().first().copied().unwrap_or_default();
            Ok(PyString::new(py, dictionary.values().as_string::<i32>().value(key)).into_any())
        }
        _ => array_to_python(py, array, field),
    }
}

/// Return the parameters that a request has, by name.
pub(crate) fn to_dict<'py>(
    py: Python<'py>,
    params: &SchemaRef,
    values: &[Option<ArrayRef>],
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (field, value) in params.fields().iter().zip(values) {
        if let Some(value) = value {
            dict.set_item(field.name(), to_python(py, value, field)?)?;
        }
    }
    Ok(dict)
}

/// Return an array of length 1 with a value, in the type of its field.
pub(crate) fn from_python(value: &Bound<'_, PyAny>, field: &FieldRef, what: &str) -> PyResult<ArrayRef> {
    if value.is_none() {
        return Ok(new_null_array(field.data_type(), 1));
    }
    convert(value, field).map_err(|_| {
        let name = value.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
        let wanted = field.data_type();
        PyTypeError::new_err(format!("{what} '{}' must be {wanted}, got {name}", field.name()))
    })
}

/// Return the batch of a result: one column for the value, or none for a method that returns
/// nothing.
pub(crate) fn result_batch(schema: &SchemaRef, value: &Bound<'_, PyAny>) -> PyResult<Batch> {
    match schema.fields().first() {
        None => Ok(Batch::empty(schema, Metadata::new())),
        Some(field) => {
            let array = from_python(value, field, "the result")?;
            Ok(Batch::new(Arc::clone(schema), vec![array], 1))
        }
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "most of Arrow's types need no case")]
fn convert(value: &Bound<'_, PyAny>, field: &FieldRef) -> PyResult<ArrayRef> {
    fn number<T: ArrowPrimitiveType>(value: T::Native) -> ArrayRef {
        Arc::new(PrimitiveArray::<T>::from_value(value, 1))
    }
    // A bool is an int in Python, but not on the wire.
    let integer = || if value.is_instance_of::<PyBool>() { Err(PyTypeError::new_err("a bool")) } else { Ok(value) };
    Ok(match field.data_type() {
        DataType::Boolean => {
            let mut builder = BooleanBuilder::with_capacity(1);
            builder.append_value(value.extract()?);
            Arc::new(builder.finish())
        }
        DataType::Int64 => number::<Int64Type>(integer()?.extract()?),
        DataType::Float64 => number::<Float64Type>(integer()?.extract()?),
        DataType::Utf8 => Arc::new(StringArray::from(vec![value.extract::<&str>()?])),
        DataType::LargeUtf8 => Arc::new(LargeStringArray::from(vec![value.extract::<&str>()?])),
        DataType::Binary if value.is_instance_of::<PyBytes>() => {
            Arc::new(BinaryArray::from_vec(vec![value.extract::<&[u8]>()?]))
        }
        DataType::LargeBinary if value.is_instance_of::<PyBytes>() => {
            Arc::new(LargeBinaryArray::from_vec(vec![value.extract::<&[u8]>()?]))
        }
        DataType::Int32 => number::<Int32Type>(integer()?.extract()?),
        DataType::Int16 => number::<Int16Type>(integer()?.extract()?),
        DataType::Int8 => number::<Int8Type>(integer()?.extract()?),
        DataType::UInt64 => number::<UInt64Type>(integer()?.extract()?),
        DataType::UInt32 => number::<UInt32Type>(integer()?.extract()?),
        DataType::UInt16 => number::<UInt16Type>(integer()?.extract()?),
        DataType::UInt8 => number::<UInt8Type>(integer()?.extract()?),
        DataType::Float32 => number::<Float32Type>(integer()?.extract()?),
        DataType::Dictionary(key, values) if **values == DataType::Utf8 && value.is_instance_of::<PyString>() => {
            member(key, value.extract()?)?
        }
        wanted => {
            let (array, _) = value.extract::<PyArray>()?.into_inner();
            if array.len() != 1 || !array.data_type().equals_datatype(wanted) {
                return Err(PyTypeError::new_err("an array of another type"));
            }
            array
        }
    })
}

/// Return a dictionary array whose only value is this name.
#[expect(clippy::wildcard_enum_match_arm, reason = "most of Arrow's types need no case")]
fn member(key: &DataType, name: &str) -> PyResult<ArrayRef> {
    fn of<K: ArrowDictionaryKeyType>(name: &str) -> ArrayRef {
        Arc::new([name].into_iter().collect::<arrow_array::DictionaryArray<K>>())
    }
    Ok(match key {
        DataType::Int8 => of::<Int8Type>(name),
        DataType::Int16 => of::<Int16Type>(name),
        DataType::Int32 => of::<Int32Type>(name),
        DataType::Int64 => of::<Int64Type>(name),
        _ => return Err(PyTypeError::new_err("a dictionary with another key type")),
    })
}
