//! Arrow rows of a sink: one row for each entity of a session.

use std::sync::Arc;

use arrow_array::builder::{
    Int32Builder, Int64Builder, ListBuilder, MapBuilder, MapFieldNames, NullBufferBuilder, StringBuilder,
};
use arrow_array::{ArrayRef, BinaryArray, RecordBatch};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use penstock_io::DriverError as _;
use penstock_pipestream::OwnershipContext;

use crate::format::line::Line;
use crate::read::batch::Batch;
use crate::read::owner_column::{OwnerColumnBuilder, owner_fields};
use crate::{Error, Result};

/// Return the schema of a sink's rows.
pub fn row_schema() -> SchemaRef {
    let field = |name: &str, data_type| Field::new(name, data_type, true);
    Arc::new(Schema::new(vec![
        field("session", DataType::Utf8),
        field("scope", DataType::Int32),
        field("entity", DataType::Int64),
        field("parent", DataType::Int64),
        field("layer", DataType::Int32),
        field("type", DataType::Utf8),
        field("bytes", DataType::Int64),
        field("sha256", DataType::Utf8),
        field("status", DataType::Utf8),
        field("reason", DataType::Utf8),
        field("document", DataType::Utf8),
        field("path", DataType::List(segment())),
        field("metadata", pairs()),
        field("file", DataType::Utf8),
        field("content", DataType::Binary),
        field("attempts", DataType::Int32),
        field("claim", DataType::Utf8),
        field("doc_id", DataType::Utf8),
        field("owner", DataType::Struct(owner_fields())),
    ]))
}

fn segment() -> Arc<Field> {
    // The name that Spark uses.
    Arc::new(Field::new("element", DataType::Utf8, true))
}

fn pairs() -> DataType {
    let (key, value) = (Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Utf8, true));
    let entries = Field::new("entries", DataType::Struct(vec![key, value].into()), false);
    DataType::Map(Arc::new(entries), false)
}

/// Convert a batch to Arrow rows without copying contents. `max_content` is the size beyond which
/// contents were left out; `None` if none were requested.
pub(super) fn record_batch(session: &str, batch: Batch, max_content: Option<u64>) -> Result<RecordBatch> {
    let mut columns = RowColumns::default();
    batch.rows(session, |line, size| columns.push(session, &line, size, max_content))?;
    columns.finish(batch.content)
}

/// Builders of the columns, to which rows are added one by one.
pub(super) struct RowColumns {
    session: StringBuilder,
    scope: Int32Builder,
    entity: Int64Builder,
    parent: Int64Builder,
    layer: Int32Builder,
    media_type: StringBuilder,
    bytes: Int64Builder,
    sha256: StringBuilder,
    status: StringBuilder,
    reason: StringBuilder,
    document: StringBuilder,
    path: ListBuilder<StringBuilder>,
    metadata: MapBuilder<StringBuilder, StringBuilder>,
    file: StringBuilder,
    /// 0, and the end of each row's content in the concatenated bytes; `content` states which rows
    /// have one.
    ends: Vec<i32>,
    content: NullBufferBuilder,
    attempts: Int32Builder,
    claim: StringBuilder,
    doc_id: StringBuilder,
    owner: OwnerColumnBuilder,
}

impl Default for RowColumns {
    fn default() -> Self {
        let names = MapFieldNames { entry: "entries".into(), key: "key".into(), value: "value".into() };
        Self {
            session: StringBuilder::new(),
            scope: Int32Builder::new(),
            entity: Int64Builder::new(),
            parent: Int64Builder::new(),
            layer: Int32Builder::new(),
            media_type: StringBuilder::new(),
            bytes: Int64Builder::new(),
            sha256: StringBuilder::new(),
            status: StringBuilder::new(),
            reason: StringBuilder::new(),
            document: StringBuilder::new(),
            path: ListBuilder::new(StringBuilder::new()).with_field(segment()),
            metadata: MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new()),
            file: StringBuilder::new(),
            ends: vec![0],
            content: NullBufferBuilder::new(0),
            attempts: Int32Builder::new(),
            claim: StringBuilder::new(),
            doc_id: StringBuilder::new(),
            owner: OwnerColumnBuilder::default(),
        }
    }
}

impl RowColumns {
    pub(super) fn push(
        &mut self,
        session: &str,
        line: &Line<'_>,
        size: Option<u64>,
        max_content: Option<u64>,
    ) -> Result<()> {
        self.session.append_value(session);
        self.scope.append_option(i32::try_from(line.scope).ok());
        self.entity.append_value(i64::from(line.entity));
        self.parent.append_option(line.parent.map(i64::from));
        self.layer.append_option(line.layer.and_then(|layer| i32::try_from(layer).ok()));
        self.media_type.append_option(line.content_type.as_ref());
        self.bytes.append_option(line.bytes.and_then(|bytes| i64::try_from(bytes).ok()));
        self.sha256.append_option(line.sha256.as_ref());
        self.status.append_value(&line.status);
        match (&line.reason, too_large(line, max_content)) {
            (Some(reason), _) => self.reason.append_value(reason),
            (None, left_out) => self.reason.append_option(left_out),
        }
        self.document.append_option(line.metadata.get("penstock.document"));
        self.push_path(line.metadata.get("penstock.path"));
        for (key, value) in line.metadata.iter() {
            self.metadata.keys().append_value(key);
            self.metadata.values().append_value(value);
        }
        self.metadata.append(true).map_err(|error| Error::internal("a batch of the sink", error))?;
        self.file.append_option(line.file.as_ref());
        let end = i64::from(self.ends.last().copied().unwrap_or(0)).saturating_add_unsigned(size.unwrap_or(0));
        self.ends.push(i32::try_from(end).map_err(|_| too_long(end))?);
        self.content.append(size.is_some());
        self.attempts.append_value(i32::try_from(line.attempts.unwrap_or(1)).unwrap_or(i32::MAX));
        self.claim.append_option(line.claim.as_ref());
        self.doc_id.append_option(line.doc_id.as_ref());
        self.owner.push(line.owner.as_ref().map(OwnershipContext::from).as_ref());
        Ok(())
    }

    /// Add a path, which is a JSON array of strings; add null for any other text.
    fn push_path(&mut self, path: Option<&str>) {
        let segments = path.and_then(|path| serde_json::from_str::<Vec<String>>(path).ok());
        for segment in segments.iter().flatten() {
            self.path.values().append_value(segment);
        }
        self.path.append(segments.is_some());
    }

    /// Return the rows; `content` is the concatenation of their contents.
    pub(super) fn finish(self, content: Vec<u8>) -> Result<RecordBatch> {
        self.batch(content).map_err(|error| Error::internal("a batch of the sink", error))
    }

    fn batch(mut self, content: Vec<u8>) -> std::result::Result<RecordBatch, ArrowError> {
        let ends = OffsetBuffer::new(ScalarBuffer::from(self.ends));
        let content = BinaryArray::try_new(ends, Buffer::from_vec(content), self.content.finish())?;
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.session.finish()),
            Arc::new(self.scope.finish()),
            Arc::new(self.entity.finish()),
            Arc::new(self.parent.finish()),
            Arc::new(self.layer.finish()),
            Arc::new(self.media_type.finish()),
            Arc::new(self.bytes.finish()),
            Arc::new(self.sha256.finish()),
            Arc::new(self.status.finish()),
            Arc::new(self.reason.finish()),
            Arc::new(self.document.finish()),
            Arc::new(self.path.finish()),
            Arc::new(self.metadata.finish()),
            Arc::new(self.file.finish()),
            Arc::new(content),
            Arc::new(self.attempts.finish()),
            Arc::new(self.claim.finish()),
            Arc::new(self.doc_id.finish()),
            self.owner.finish(),
        ];
        RecordBatch::try_new(row_schema(), columns)
    }
}

/// Return the reason if a row's content was left out because it exceeds `max_content`.
fn too_large(line: &Line<'_>, max_content: Option<u64>) -> Option<String> {
    let (file, bytes, most) = (line.file.as_ref()?.as_ref(), line.bytes?, max_content?);
    (bytes > most)
        .then(|| format!("its {bytes} bytes are more than the {most} that a row may have; they are in {file}"))
}

/// Return the error for contents that exceed the 32-bit offsets of a column.
fn too_long(end: i64) -> Error {
    penstock_io::Error::Limit { what: "a batch", bytes: end.unsigned_abs(), limit: i32::MAX.unsigned_abs().into() }
        .into()
}

#[cfg(test)]
mod tests {
    use arrow_array::Array as _;
    use arrow_array::cast::AsArray as _;
    use arrow_array::types::{Int32Type, Int64Type};

    use super::*;

    /// Return a line with the usual fields; `fields` replaces some of them or adds others.
    fn line(fields: &[(&str, serde_json::Value)]) -> String {
        let mut line = serde_json::json!({
            "scope": 7, "entity": 4_000_000_000_u32, "parent": 1, "layer": 2, "content_type": "text/plain", "bytes": 5,
            "sha256": "ab", "metadata": {}, "status": "COMPLETE", "reason": null, "file": "s/7/4000000000",
        });
        for (name, value) in fields {
            line[*name] = value.clone();
        }
        format!("{line}\n")
    }

    fn rows(lines: &[String], sizes: &[Option<u64>], content: &[u8], max_content: Option<u64>) -> RecordBatch {
        let batch =
            Batch { lines: lines.concat().into(), sizes: sizes.to_vec(), content: content.to_vec(), next: None };
        record_batch("s", batch, max_content).unwrap()
    }

    fn texts(batch: &RecordBatch, column: &str) -> Vec<Option<String>> {
        batch.column_by_name(column).unwrap().as_string::<i32>().iter().map(|text| text.map(Into::into)).collect()
    }

    #[test]
    fn a_row_says_what_its_line_says() {
        let owner = serde_json::json!({"owner_id": "o", "group_id": null, "scopes": ["read"]});
        let metadata = serde_json::json!({"penstock.document": "a.zip", "penstock.path": "[\"b\",\"c.txt\"]"});
        let fields = [
            ("metadata", metadata),
            ("attempts", 3.into()),
            ("claim", "0f".into()),
            ("doc_id", "d".into()),
            ("owner", owner),
        ];
        let batch = rows(&[line(&fields), line(&[])], &[Some(5), Some(2)], b"hellohi", Some(9));
        assert_eq!(batch.schema(), row_schema());
        let first = |column| texts(&batch, column).remove(0).unwrap_or_default();
        let found = ["session", "type", "sha256", "status", "document", "file", "claim", "doc_id"].map(first);
        assert_eq!(found, ["s", "text/plain", "ab", "COMPLETE", "a.zip", "s/7/4000000000", "0f", "d"]);
        let small = |column| batch.column_by_name(column).unwrap().as_primitive::<Int32Type>().value(0);
        assert_eq!(["scope", "layer", "attempts"].map(small), [7, 2, 3]);
        let large = |column| batch.column_by_name(column).unwrap().as_primitive::<Int64Type>().value(0);
        assert_eq!(["entity", "parent", "bytes"].map(large), [4_000_000_000, 1, 5]);
        let content = batch.column_by_name("content").unwrap().as_binary::<i32>();
        assert_eq!(content.iter().collect::<Vec<_>>(), [Some(&b"hello"[..]), Some(&b"hi"[..])]);
        let path = batch.column_by_name("path").unwrap().as_list::<i32>();
        assert_eq!(path.value(0).as_string::<i32>().iter().collect::<Vec<_>>(), [Some("b"), Some("c.txt")]);
        let metadata = batch.column_by_name("metadata").unwrap().as_map();
        assert_eq!([metadata.value_length(0), metadata.value_length(1)], [2, 0]);
        let owner = batch.column_by_name("owner").unwrap().as_struct();
        assert_eq!((owner.column(0).as_string::<i32>().value(0), owner.is_null(1)), ("o", true));
        // The second line states none of these.
        for column in ["document", "claim", "doc_id", "reason"] {
            assert_eq!(texts(&batch, column)[1], None, "{column}");
        }
        assert_eq!(batch.column_by_name("attempts").unwrap().as_primitive::<Int32Type>().value(1), 1);
    }

    #[test]
    fn a_payload_beyond_the_limit_is_null_and_the_reason_names_its_file() {
        let lines = [line(&[]), line(&[("reason", "its own".into())])];
        let batch = rows(&lines, &[None, None], b"", Some(4));
        let left_out = "its 5 bytes are more than the 4 that a row may have; they are in s/7/4000000000";
        assert_eq!(texts(&batch, "reason"), [Some(left_out.to_owned()), Some("its own".to_owned())]);
        assert_eq!(batch.column_by_name("content").unwrap().null_count(), 2);
        // Content that was not requested needs no reason.
        assert_eq!(texts(&rows(&lines[..1], &[None], b"", None), "reason"), [None]);
    }

    #[test]
    fn a_path_that_is_no_list_of_texts_is_no_path() {
        let paths =
            ["[1]", "a/b", "{}", ""].map(|path| line(&[("metadata", serde_json::json!({"penstock.path": path}))]));
        let batch = rows(&paths, &[None; 4], b"", None);
        assert_eq!(batch.column_by_name("path").unwrap().null_count(), 4);
    }

    #[test]
    fn a_batch_without_rows_has_the_columns() {
        assert_eq!(rows(&[], &[], b"", None), RecordBatch::new_empty(row_schema()));
    }
}
