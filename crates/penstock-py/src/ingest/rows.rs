//! Rows of parts for Arrow: the columns that `interfaces.md` gives a part wherever Spark shows one.

use std::io;
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, Int32Builder, Int64Builder, ListBuilder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use super::ledger::{Ledger, Record};
use crate::documents::hex;

/// The columns of a part.
pub(super) fn schema() -> SchemaRef {
    let field = |name: &str, data_type| Field::new(name, data_type, true);
    Arc::new(Schema::new(vec![
        field("document", DataType::Utf8),
        field("key", DataType::Utf8),
        field("path", DataType::List(segment())),
        field("type", DataType::Utf8),
        field("bytes", DataType::Int64),
        field("sha256", DataType::Utf8),
        field("status", DataType::Utf8),
        field("reason", DataType::Utf8),
        field("attempts", DataType::Int32),
        field("depth", DataType::Int32),
        field("scope", DataType::Int32),
        field("entity", DataType::Int64),
        field("text", DataType::Utf8),
        field("content", DataType::Binary),
    ]))
}

fn segment() -> Arc<Field> {
    // Spark calls it so.
    Arc::new(Field::new("element", DataType::Utf8, true))
}

/// Rows from `start` on, and where the next ones start.
pub(super) fn batch(
    ledger: &mut Ledger,
    key: &str,
    start: usize,
    max_rows: usize,
    max_bytes: usize,
) -> io::Result<(RecordBatch, Option<usize>)> {
    let mut columns = Columns::default();
    let mut at = start;
    let mut bytes = 0_usize;
    while at < ledger.records.len() && at - start < max_rows.max(1) {
        bytes = bytes.saturating_add(ledger.text_length(at));
        if at > start && bytes > max_bytes {
            break;
        }
        columns.push(ledger, key, at)?;
        at += 1;
    }
    let batch = columns.finish().map_err(io::Error::other)?;
    Ok((batch, (at < ledger.records.len()).then_some(at)))
}

struct Columns {
    document: StringBuilder,
    key: StringBuilder,
    path: ListBuilder<StringBuilder>,
    media_type: StringBuilder,
    bytes: Int64Builder,
    sha256: StringBuilder,
    status: StringBuilder,
    reason: StringBuilder,
    attempts: Int32Builder,
    depth: Int32Builder,
    scope: Int32Builder,
    entity: Int64Builder,
    text: StringBuilder,
    content: BinaryBuilder,
}

impl Default for Columns {
    fn default() -> Self {
        Self {
            document: StringBuilder::new(),
            key: StringBuilder::new(),
            path: ListBuilder::new(StringBuilder::new()).with_field(segment()),
            media_type: StringBuilder::new(),
            bytes: Int64Builder::new(),
            sha256: StringBuilder::new(),
            status: StringBuilder::new(),
            reason: StringBuilder::new(),
            attempts: Int32Builder::new(),
            depth: Int32Builder::new(),
            scope: Int32Builder::new(),
            entity: Int64Builder::new(),
            text: StringBuilder::new(),
            content: BinaryBuilder::new(),
        }
    }
}

impl Columns {
    fn push(&mut self, ledger: &mut Ledger, key: &str, index: usize) -> io::Result<()> {
        let text = ledger.text(index)?;
        let Some(record) = ledger.records.get(index) else { return Ok(()) };
        self.document.append_value(&ledger.document);
        self.key.append_value(key);
        for name in ledger.path(index) {
            self.path.values().append_value(name);
        }
        self.path.append(true);
        self.text.append_option(text);
        // By reference: the octets are in the sink.
        self.content.append_null();
        self.push_record(record);
        Ok(())
    }

    fn push_record(&mut self, record: &Record) {
        self.media_type.append_value(&record.media_type);
        self.bytes.append_option(record.bytes.and_then(|bytes| i64::try_from(bytes).ok()));
        self.sha256.append_option(record.sha256.as_ref().map(hex));
        self.status.append_value(record.status.name());
        self.reason.append_option(record.reason.as_deref());
        self.attempts.append_value(i32::try_from(record.attempts()).unwrap_or(i32::MAX));
        self.depth.append_value(i32::try_from(record.depth).unwrap_or(i32::MAX));
        self.scope.append_option(record.key.map(|key| i32::from(key.scope)));
        self.entity.append_option(record.key.map(|key| i64::from(key.entity)));
    }

    fn finish(mut self) -> Result<RecordBatch, arrow_schema::ArrowError> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.document.finish()),
            Arc::new(self.key.finish()),
            Arc::new(self.path.finish()),
            Arc::new(self.media_type.finish()),
            Arc::new(self.bytes.finish()),
            Arc::new(self.sha256.finish()),
            Arc::new(self.status.finish()),
            Arc::new(self.reason.finish()),
            Arc::new(self.attempts.finish()),
            Arc::new(self.depth.finish()),
            Arc::new(self.scope.finish()),
            Arc::new(self.entity.finish()),
            Arc::new(self.text.finish()),
            Arc::new(self.content.finish()),
        ];
        RecordBatch::try_new(schema(), columns)
    }
}
