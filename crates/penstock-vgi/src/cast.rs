//! Lossless casts, for peers whose types differ from the declared ones.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, SchemaRef};

use crate::ipc::Batch;

/// Return the values in another type, or `None` if a value would change.
pub(crate) fn cast(array: &ArrayRef, to: &DataType) -> Option<ArrayRef> {
    let checked = CastOptions { safe: false, ..CastOptions::default() };
    let made = cast_with_options(array, to, &checked).ok()?;
    // Arrow silently drops fractions and rounds large integers, so cast back and compare.
    if array.data_type().is_floating() != to.is_floating() && array.data_type().is_numeric() && to.is_numeric() {
        let back = cast_with_options(&made, array.data_type(), &checked).ok()?;
        if back.to_data() != array.to_data() {
            return None;
        }
    }
    Some(made)
}

/// Return a batch in the declared schema, with its column order and types, or `None` if a value
/// would change or a column is missing.
pub(crate) fn conform(batch: Batch, schema: &SchemaRef) -> Option<Batch> {
    if batch.schema.fields() == schema.fields() {
        return Some(Batch { schema: Arc::clone(schema), ..batch });
    }
    if batch.columns.len() != schema.fields().len() {
        return None;
    }
    let columns = schema.fields().iter().map(|field| {
        let column = batch.column(field.name())?;
        if column.data_type().equals_datatype(field.data_type()) {
            return Some(Arc::clone(column));
        }
        cast(column, field.data_type())
    });
    let columns = columns.collect::<Option<Vec<_>>>()?;
    Some(Batch { schema: Arc::clone(schema), columns, ..batch })
}
