use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, Schema, SchemaRef};

use crate::Metadata;
use crate::error::{Misuse, Result};

/// A record batch with its custom metadata.
///
/// It is not a [`RecordBatch`], because peers send nulls in fields that their schema declares as
/// not null. Here the schema is the declared one, and the columns are the received ones.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The schema of the batch's stream.
    pub schema: SchemaRef,
    /// One array per field.
    pub columns: Vec<ArrayRef>,
    /// The number of rows, which counts even without columns.
    pub rows: usize,
    /// The custom metadata.
    pub metadata: Metadata,
    /// The number of bytes of the body on the wire, if the batch was received.
    pub bytes: u64,
}

impl Batch {
    /// Make a batch to send.
    pub fn new(schema: SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Self {
        Self { schema, columns, rows, metadata: Metadata::new(), bytes: 0 }
    }

    /// Make a batch without rows, for logs, errors, pointers or tokens.
    pub fn empty(schema: &SchemaRef, metadata: Metadata) -> Self {
        let columns = schema.fields().iter().map(|field| arrow_array::new_empty_array(field.data_type())).collect();
        Self { metadata, ..Self::new(Arc::clone(schema), columns, 0) }
    }

    /// Return the batch with other metadata.
    #[must_use]
    pub fn with_metadata(self, metadata: Metadata) -> Self {
        Self { metadata, ..self }
    }

    /// Return the column with this name.
    pub fn column(&self, name: &str) -> Option<&ArrayRef> {
        self.schema.fields().iter().zip(&self.columns).find(|(field, _)| field.name() == name).map(|(_, column)| column)
    }

    /// Return the bytes that its columns need. Of buffers shared with other rows, count only this
    /// batch's part.
    pub fn memory(&self) -> usize {
        let needed = |column: &ArrayRef| column.to_data().get_slice_memory_size().unwrap_or_default();
        self.columns.iter().map(needed).sum()
    }

    /// Convert the batch for Arrow. Fields that are declared as not null but contain nulls become
    /// nullable.
    pub fn to_record_batch(&self) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        if let Ok(batch) = RecordBatch::try_new_with_options(Arc::clone(&self.schema), self.columns.clone(), &options) {
            return Ok(batch);
        }
        let relaxed = self.schema.fields().iter().zip(&self.columns).map(|(field, column)| {
            Field::new(field.name(), column.data_type().clone(), true).with_metadata(field.metadata().clone())
        });
        let schema = Schema::new_with_metadata(relaxed.collect::<Vec<_>>(), self.schema.metadata().clone());
        RecordBatch::try_new_with_options(Arc::new(schema), self.columns.clone(), &options)
            .map_err(|error| Misuse::BatchSchema { reason: error.to_string() }.into())
    }
}

impl From<RecordBatch> for Batch {
    fn from(batch: RecordBatch) -> Self {
        let rows = batch.num_rows();
        let (schema, columns, _) = batch.into_parts();
        Self::new(schema, columns, rows)
    }
}
