//! The raw layout.

use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, BinaryBuilder, Int64Builder, ListBuilder, MapBuilder, MapFieldNames, StringBuilder,
};
use arrow_array::{ArrayRef, TimestampMicrosecondArray, new_null_array};
use arrow_schema::{DataType, Field, FieldRef};
use penstock_lumberjack::Pairs;

use super::text::{escape, object};
use super::{CHARSET_FAILURE, JSON_FAILURE, wrong};
use crate::Result;
use crate::lumberjack::Origin;

/// What Spark calls the elements of an array.
pub(super) fn element() -> FieldRef {
    Arc::new(Field::new("element", DataType::Utf8, true))
}

pub(super) fn pairs_type() -> DataType {
    let (key, value) = (Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Utf8, true));
    let entries = Field::new("entries", DataType::Struct(vec![key, value].into()), false);
    DataType::Map(Arc::new(entries), false)
}

pub(super) fn pairs_builder() -> MapBuilder<StringBuilder, StringBuilder> {
    let names = MapFieldNames { entry: "entries".into(), key: "key".into(), value: "value".into() };
    MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new())
}

pub(super) fn tags_builder() -> ListBuilder<StringBuilder> {
    ListBuilder::new(StringBuilder::new()).with_field(element())
}

/// A column that most batches have no value in: it begins with the first one.
#[derive(Debug)]
pub(super) struct Sparse<B>(Option<B>);

impl<B: ArrayBuilder> Sparse<B> {
    pub(super) const EMPTY: Self = Self(None);

    /// The builder, with as many rows as there are.
    pub(super) fn at(&mut self, row: usize, make: fn() -> B, null: fn(&mut B)) -> &mut B {
        let builder = self.0.get_or_insert_with(make);
        while builder.len() < row {
            null(builder);
        }
        builder
    }

    /// The column, with so many rows.
    pub(super) fn finish(&mut self, rows: usize, null: fn(&mut B), data_type: &DataType) -> ArrayRef {
        let Some(mut builder) = self.0.take() else { return new_null_array(data_type, rows) };
        while builder.len() < rows {
            null(&mut builder);
        }
        builder.finish()
    }
}

/// Appends the pairs of an event, and says whether all of them were UTF-8.
pub(super) fn append_pairs(
    fields: &mut MapBuilder<StringBuilder, StringBuilder>,
    pairs: Pairs<'_>,
    scratch: &mut String,
) -> bool {
    let mut clean = true;
    for (key, value) in pairs {
        clean &= append_text(fields.keys(), key, scratch);
        clean &= append_text(fields.values(), value, scratch);
    }
    // Keys and values have the same length, which is all that it asks.
    let _ = fields.append(true);
    clean
}

fn append_text(into: &mut StringBuilder, octets: &[u8], scratch: &mut String) -> bool {
    if let Ok(text) = std::str::from_utf8(octets) {
        into.append_value(text);
        return true;
    }
    scratch.clear();
    escape(octets, scratch);
    into.append_value(scratch.as_str());
    false
}

type Fields = MapBuilder<StringBuilder, StringBuilder>;
type Tags = ListBuilder<StringBuilder>;

pub(super) fn null_fields(fields: &mut Fields) {
    let _ = fields.append(false);
}

pub(super) fn null_tags(tags: &mut Tags) {
    tags.append_null();
}

/// The rows of a batch.
#[derive(Debug)]
pub(super) struct RawBuilder {
    sequence: Int64Builder,
    event: StringBuilder,
    fields: Sparse<Fields>,
    raw: Sparse<BinaryBuilder>,
    tags: Sparse<Tags>,
    scratch: String,
}

impl Default for RawBuilder {
    fn default() -> Self {
        Self {
            sequence: Int64Builder::new(),
            event: StringBuilder::new(),
            fields: Sparse::EMPTY,
            raw: Sparse::EMPTY,
            tags: Sparse::EMPTY,
            scratch: String::new(),
        }
    }
}

impl RawBuilder {
    pub(super) fn len(&self) -> usize {
        self.sequence.len()
    }

    pub(super) fn push_json(&mut self, sequence: u32, octets: &[u8]) {
        if let Some(text) = object(octets) {
            self.event.append_value(text);
        } else {
            self.event.append_null();
            let row = self.len();
            self.raw.at(row, BinaryBuilder::new, BinaryBuilder::append_null).append_value(octets);
            self.tag(JSON_FAILURE);
        }
        self.sequence.append_value(sequence.into());
    }

    pub(super) fn push_map(&mut self, sequence: u32, pairs: Pairs<'_>) {
        self.event.append_null();
        let row = self.len();
        let fields = self.fields.at(row, pairs_builder, null_fields);
        if !append_pairs(fields, pairs, &mut self.scratch) {
            self.tag(CHARSET_FAILURE);
        }
        self.sequence.append_value(sequence.into());
    }

    fn tag(&mut self, tag: &str) {
        let row = self.len();
        let tags = self.tags.at(row, tags_builder, null_tags);
        tags.values().append_value(tag);
        tags.append(true);
    }

    /// The columns in the layout's order. The next batch is likely to be as large as this one.
    pub(super) fn finish(&mut self, origin: &Origin) -> Result<Vec<ArrayRef>> {
        let rows = self.len();
        let sequence = self.sequence.finish();
        self.sequence = Int64Builder::with_capacity(rows);
        let octets = self.event.values_slice().len();
        let event = self.event.finish();
        self.event = StringBuilder::with_capacity(rows, octets);
        Ok(vec![
            received(origin.received, rows),
            repeated(Some(&origin.peer), rows)?,
            repeated(origin.identity.as_deref(), rows)?,
            Arc::new(sequence),
            Arc::new(event),
            self.fields.finish(rows, null_fields, &pairs_type()),
            self.raw.finish(rows, BinaryBuilder::append_null, &DataType::Binary),
            self.tags.finish(rows, null_tags, &DataType::List(element())),
        ])
    }
}

/// The same time in every row.
pub(super) fn received(micros: i64, rows: usize) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from_value(micros, rows).with_timezone("UTC"))
}

/// The same text in every row.
pub(super) fn repeated(text: Option<&str>, rows: usize) -> Result<ArrayRef> {
    let Some(text) = text else { return Ok(new_null_array(&DataType::Utf8, rows)) };
    let octets = rows.saturating_mul(text.len());
    if i32::try_from(octets).is_err() {
        return Err(wrong(&arrow_schema::ArrowError::OffsetOverflowError(octets)));
    }
    let mut column = StringBuilder::with_capacity(rows, octets);
    column.append_value_n(text, rows);
    Ok(Arc::new(column.finish()))
}
