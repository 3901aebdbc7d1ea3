//! Rows of parts for Arrow: the columns that `interfaces.md` defines for parts in Spark.

use std::io;
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, Int32Builder, Int64Builder, ListBuilder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use penstock_io::hex;
use penstock_pipestream_sink::read::{OwnerColumnBuilder, owner_fields};

use crate::ledger::Ledger;
use crate::record::Record;
use crate::scope_note::ScopeNote;

/// The columns in rows of parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartColumns {
    /// The columns of a part.
    Parts,
    /// The columns of a part, and its claim check.
    Claims,
    /// The columns of a part, its claim check, and the columns for its document's receipt.
    Placed,
}

impl PartColumns {
    /// Return the columns: with everything that a receipt needs if `placed`, with claim checks if
    /// `claims`.
    pub fn of(placed: bool, claims: bool) -> Self {
        match (placed, claims) {
            (true, _) => Self::Placed,
            (false, true) => Self::Claims,
            (false, false) => Self::Parts,
        }
    }

    /// Return the schema of rows with these columns.
    pub fn schema(self) -> SchemaRef {
        let mut fields = fields();
        if self != Self::Parts {
            fields.push(Field::new("claim", DataType::Utf8, true));
        }
        if self == Self::Placed {
            fields.extend([
                Field::new("place", DataType::Int64, true),
                Field::new("step", DataType::Int64, true),
                Field::new("session", DataType::Utf8, true),
                Field::new("file", DataType::Utf8, true),
                Field::new("digest", DataType::Utf8, true),
            ]);
        }
        Arc::new(Schema::new(fields))
    }
}

fn fields() -> Vec<Field> {
    let field = |name: &str, data_type| Field::new(name, data_type, true);
    vec![
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
        field("doc_id", DataType::Utf8),
        field("owner", DataType::Struct(owner_fields())),
    ]
}

fn segment() -> Arc<Field> {
    // The name that Spark uses.
    Arc::new(Field::new("element", DataType::Utf8, true))
}

/// Return a batch of rows from number `start` on, and the number of the next row.
pub(crate) fn batch(
    ledger: &mut Ledger,
    key: &str,
    start: usize,
    max_rows: usize,
    max_bytes: usize,
    which: PartColumns,
) -> io::Result<(RecordBatch, Option<usize>)> {
    let mut columns = PartColumnBuilders::default();
    let mut places = (which == PartColumns::Placed).then(PlaceColumnBuilders::default);
    let mut at = start;
    let mut bytes = 0_usize;
    while at < ledger.records.len() && at - start < max_rows.max(1) {
        bytes = bytes.saturating_add(ledger.row_bytes(at));
        if at > start && bytes > max_bytes {
            break;
        }
        columns.push(ledger, key, at)?;
        if let Some(places) = &mut places {
            places.push(ledger, at)?;
        }
        at += 1;
    }
    let batch = columns.finish(which, places).map_err(io::Error::other)?;
    Ok((batch, (at < ledger.records.len()).then_some(at)))
}

struct PartColumnBuilders {
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
    doc_id: StringBuilder,
    owner: OwnerColumnBuilder,
    claim: StringBuilder,
}

impl Default for PartColumnBuilders {
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
            doc_id: StringBuilder::new(),
            owner: OwnerColumnBuilder::default(),
            claim: StringBuilder::new(),
        }
    }
}

impl PartColumnBuilders {
    fn push(&mut self, ledger: &mut Ledger, key: &str, index: usize) -> io::Result<()> {
        let (text, content) = (ledger.text(index)?, ledger.content(index)?);
        let Some(record) = ledger.records.get(index) else { return Ok(()) };
        self.document.append_value(&ledger.document);
        self.key.append_value(key);
        for name in ledger.path(index) {
            self.path.values().append_value(name);
        }
        self.path.append(true);
        self.text.append_option(text);
        // The content is null if only the sink has the bytes.
        self.content.append_option(content);
        self.doc_id.append_value(ledger.identity.doc_id(key));
        self.owner.push(ledger.identity.owner.as_ref());
        self.push_record(record);
        Ok(())
    }

    fn push_record(&mut self, record: &Record) {
        self.media_type.append_value(&record.media_type);
        self.bytes.append_option(record.bytes.and_then(|bytes| i64::try_from(bytes).ok()));
        self.sha256.append_option(record.sha256.map(hex::encode));
        self.status.append_value(record.status.name());
        self.reason.append_option(record.reason.as_deref());
        self.attempts.append_value(i32::try_from(record.attempts()).unwrap_or(i32::MAX));
        self.depth.append_value(i32::try_from(record.depth).unwrap_or(i32::MAX));
        self.scope.append_option(record.ids().map(|(scope, _)| i32::from(scope)));
        self.entity.append_option(record.ids().map(|(_, entity)| i64::from(entity)));
        self.claim.append_option(record.claim());
    }

    fn finish(
        mut self,
        which: PartColumns,
        places: Option<PlaceColumnBuilders>,
    ) -> Result<RecordBatch, arrow_schema::ArrowError> {
        let mut columns: Vec<ArrayRef> = vec![
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
            Arc::new(self.doc_id.finish()),
            self.owner.finish(),
        ];
        if which != PartColumns::Parts {
            columns.push(Arc::new(self.claim.finish()));
        }
        columns.extend(places.map(PlaceColumnBuilders::finish).into_iter().flatten());
        RecordBatch::try_new(which.schema(), columns)
    }
}

/// Builders of the columns that a receipt needs in addition to the columns of a part.
#[derive(Default)]
struct PlaceColumnBuilders {
    place: Int64Builder,
    step: Int64Builder,
    session: StringBuilder,
    file: StringBuilder,
    digest: StringBuilder,
}

impl PlaceColumnBuilders {
    fn push(&mut self, ledger: &Ledger, index: usize) -> io::Result<()> {
        let Some(record) = ledger.records.get(index) else { return Ok(()) };
        let digest = ScopeNote::new(record, &ledger.session);
        let digest = digest.map(|scope| serde_json::to_string(&scope)).transpose()?;
        self.place.append_option(i64::try_from(record.place).ok());
        self.step.append_option(i64::try_from(index).ok());
        self.session.append_value(record.session(&ledger.session));
        self.file.append_option(record.file(&ledger.session));
        self.digest.append_option(digest);
        Ok(())
    }

    fn finish(mut self) -> Vec<ArrayRef> {
        vec![
            Arc::new(self.place.finish()),
            Arc::new(self.step.finish()),
            Arc::new(self.session.finish()),
            Arc::new(self.file.finish()),
            Arc::new(self.digest.finish()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::Array as _;
    use arrow_array::cast::AsArray as _;
    use arrow_array::types::{Int32Type, Int64Type};
    use penstock_pipestream_net::Status;

    use super::*;
    use crate::testing::{SESSION, announced_zip, ledger, part, resolution};

    /// Return a ledger with five records whose texts have 10 bytes, except the third with 30.
    fn texts() -> Ledger {
        let mut ledger = ledger("a.zip");
        for index in 0..5 {
            let part = part(&[&format!("{index}.txt")], "text/plain", b"");
            ledger.add(&part, (index > 0).then_some(0), false);
            ledger.keep_text(index, &part, &"x".repeat(if index == 2 { 30 } else { 10 })).unwrap();
        }
        ledger
    }

    /// Return how many rows each batch has.
    fn batches(max_rows: usize, max_bytes: usize) -> Vec<usize> {
        let (mut ledger, mut sizes, mut next) = (texts(), Vec::new(), Some(0));
        while let Some(start) = next {
            let (rows, following) = batch(&mut ledger, "key", start, max_rows, max_bytes, PartColumns::Parts).unwrap();
            sizes.push(rows.num_rows());
            next = following;
        }
        sizes
    }

    #[test]
    fn batches_are_cut_at_the_number_of_rows() {
        assert_eq!(batches(100, 1000), [5]);
        assert_eq!(batches(5, 1000), [5]);
        assert_eq!(batches(2, 1000), [2, 2, 1]);
        assert_eq!(batches(0, 1000), [1, 1, 1, 1, 1], "a batch has a row at least");
    }

    #[test]
    fn batches_are_cut_at_the_number_of_bytes_and_a_row_that_has_more_goes_alone() {
        assert_eq!(batches(100, 70), [5]);
        assert_eq!(batches(100, 50), [3, 2]);
        assert_eq!(batches(100, 20), [2, 1, 2]);
        assert_eq!(batches(100, 0), [1, 1, 1, 1, 1]);
    }

    #[test]
    fn a_row_says_what_the_account_says() {
        let mut ledger = announced_zip();
        let mut content: penstock_documents::Payload = Box::new(io::Cursor::new(b"x.txt"));
        ledger.keep_content(1, &part(&["x.txt"], "text/plain", b"x.txt"), &mut content).unwrap();
        ledger.settle(0, resolution(Status::Complete));
        ledger.settle(1, resolution(Status::Complete));
        ledger.fail_unsent(2, "why");
        let (rows, next) = batch(&mut ledger, "key", 1, 10, 1000, PartColumns::Placed).unwrap();
        assert_eq!((rows.num_rows(), next), (2, None));
        assert_eq!(rows.schema(), PartColumns::Placed.schema());
        let text = |name: &str, row: usize| {
            let column = rows[name].as_string::<i32>();
            column.is_valid(row).then(|| column.value(row).to_owned())
        };
        let said = |name: &str| [text(name, 0), text(name, 1)];
        let some = |value: &str| Some(value.to_owned());
        assert_eq!(said("document"), [some("in/a.zip"), some("in/a.zip")]);
        assert_eq!((said("status"), said("reason")), ([some("COMPLETE"), some("FAILED")], [None, some("why")]));
        assert_eq!(said("file"), [Some(format!("{SESSION}/2/1")), None]);
        assert_eq!(rows["path"].as_list::<i32>().value(0).as_string::<i32>().value(0), "x.txt");
        assert_eq!(rows["content"].as_binary::<i32>().value(0), b"x.txt");
        assert!(rows["content"].is_null(1) && rows["text"].is_null(0) && rows["owner"].is_null(0));
        assert_eq!(rows["attempts"].as_primitive::<Int32Type>().values(), &[1, 1]);
        assert_eq!(rows["step"].as_primitive::<Int64Type>().values(), &[1, 2]);
    }

    #[test]
    fn claim_checks_and_places_are_columns_on_request() {
        let names = |columns: PartColumns| -> Vec<String> {
            columns.schema().fields().iter().skip(16).map(|field| field.name().clone()).collect()
        };
        assert_eq!(names(PartColumns::of(false, false)), [""; 0]);
        assert_eq!(names(PartColumns::of(false, true)), ["claim"]);
        let all = ["claim", "place", "step", "session", "file", "digest"];
        assert_eq!(
            (names(PartColumns::of(true, false)), names(PartColumns::of(true, true))),
            (all.map(str::to_owned).to_vec(), all.map(str::to_owned).to_vec())
        );
    }
}
