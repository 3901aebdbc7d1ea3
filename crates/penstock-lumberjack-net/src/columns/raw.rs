//! The raw layout.

use std::sync::{Arc, LazyLock};

use arrow_array::builder::{ArrayBuilder, BinaryBuilder, ListBuilder, MapBuilder, MapFieldNames, StringBuilder};
use arrow_array::{Array as _, ArrayRef, Int64Array, StringArray, TimestampMicrosecondArray, new_null_array};
use arrow_buffer::{Buffer, NullBufferBuilder, OffsetBuffer};
use arrow_schema::DataType;
use penstock_lumberjack::Pairs;

use super::layout::{CHARSET_FAILURE, JSON_FAILURE, element, pairs_type, wrong};
use super::text::{escape, is_object};
use crate::Origin;
use crate::Result;

pub(super) fn pairs_builder() -> MapBuilder<StringBuilder, StringBuilder> {
    let names = MapFieldNames { entry: "entries".into(), key: "key".into(), value: "value".into() };
    MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new())
}

pub(super) fn tags_builder() -> ListBuilder<StringBuilder> {
    ListBuilder::new(StringBuilder::new()).with_field(element())
}

/// A column that has no values in most batches: its builder is made for the first value.
#[derive(Debug)]
pub(super) struct Sparse<B>(Option<B>);

impl<B: ArrayBuilder> Sparse<B> {
    pub(super) const EMPTY: Self = Self(None);

    /// Return the builder, filled with nulls up to `row`.
    pub(super) fn at(&mut self, row: usize, make: fn() -> B, null: fn(&mut B)) -> &mut B {
        let builder = self.0.get_or_insert_with(make);
        while builder.len() < row {
            null(builder);
        }
        builder
    }

    /// Return the column with `rows` rows.
    pub(super) fn finish(&mut self, rows: usize, null: fn(&mut B), nulls: &Nulls) -> ArrayRef {
        let Some(mut builder) = self.0.take() else { return nulls.column(rows) };
        while builder.len() < rows {
            null(&mut builder);
        }
        builder.finish()
    }
}

/// Append the pairs of an event; return whether all of them were UTF-8.
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
    // This fails only if keys and values differ in number, and they do not.
    let _ = fields.append(true);
    clean
}

fn append_text(into: &mut StringBuilder, bytes: &[u8], scratch: &mut String) -> bool {
    if let Ok(text) = std::str::from_utf8(bytes) {
        into.append_value(text);
        return true;
    }
    scratch.clear();
    escape(bytes, scratch);
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

/// Texts in one buffer, appended as bytes that are known to be UTF-8; Arrow verifies them once per
/// batch.
#[derive(Debug)]
struct Texts {
    bytes: Vec<u8>,
    offsets: Vec<i32>,
    nulls: NullBufferBuilder,
}

impl Texts {
    fn new() -> Self {
        Self::with_capacity(0, 0)
    }

    fn with_capacity(rows: usize, bytes: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Self { bytes: Vec::with_capacity(bytes), offsets, nulls: NullBufferBuilder::new(rows) }
    }

    #[inline]
    fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.nulls.append_non_null();
        self.end();
    }

    fn append_null(&mut self) {
        self.nulls.append_null();
        self.end();
    }

    #[inline]
    fn end(&mut self) {
        // `finish` rejects a buffer that is too long.
        self.offsets.push(i32::try_from(self.bytes.len()).unwrap_or(i32::MAX));
    }

    fn finish(&mut self) -> Result<ArrayRef> {
        let bytes = self.bytes.len();
        if i32::try_from(bytes).is_err() {
            return Err(wrong(&arrow_schema::ArrowError::OffsetOverflowError(bytes)));
        }
        // The next batch is likely to be as large as this one.
        let done = std::mem::replace(self, Self::with_capacity(self.offsets.len(), bytes));
        let (offsets, mut nulls) = (OffsetBuffer::new(done.offsets.into()), done.nulls);
        let column = StringArray::try_new(offsets, Buffer::from_vec(done.bytes), nulls.finish());
        Ok(Arc::new(column.map_err(|error| wrong(&error))?))
    }
}

/// The rows of a batch.
#[derive(Debug)]
pub(super) struct RawBuilder {
    sequence: Vec<i64>,
    event: Texts,
    fields: Sparse<Fields>,
    raw: Sparse<BinaryBuilder>,
    tags: Sparse<Tags>,
    scratch: String,
    peer: RepeatedText,
    identity: RepeatedText,
}

impl Default for RawBuilder {
    fn default() -> Self {
        Self {
            sequence: Vec::new(),
            event: Texts::new(),
            fields: Sparse::EMPTY,
            raw: Sparse::EMPTY,
            tags: Sparse::EMPTY,
            scratch: String::new(),
            peer: RepeatedText::default(),
            identity: RepeatedText::default(),
        }
    }
}

impl RawBuilder {
    pub(super) fn len(&self) -> usize {
        self.sequence.len()
    }

    #[inline]
    pub(super) fn push_json(&mut self, sequence: u32, bytes: &[u8]) {
        if is_object(bytes) {
            self.event.append(bytes);
        } else {
            self.event.append_null();
            let row = self.len();
            self.raw.at(row, BinaryBuilder::new, BinaryBuilder::append_null).append_value(bytes);
            self.tag(JSON_FAILURE);
        }
        self.sequence.push(sequence.into());
    }

    pub(super) fn push_map(&mut self, sequence: u32, pairs: Pairs<'_>) {
        self.event.append_null();
        let row = self.len();
        let fields = self.fields.at(row, pairs_builder, null_fields);
        if !append_pairs(fields, pairs, &mut self.scratch) {
            self.tag(CHARSET_FAILURE);
        }
        self.sequence.push(sequence.into());
    }

    fn tag(&mut self, tag: &str) {
        let row = self.len();
        let tags = self.tags.at(row, tags_builder, null_tags);
        tags.values().append_value(tag);
        tags.append(true);
    }

    /// Return the columns in the layout's order. The next batch is likely to be as large as this one.
    pub(super) fn finish(&mut self, origin: &Origin) -> Result<Vec<ArrayRef>> {
        let rows = self.len();
        let sequence = std::mem::replace(&mut self.sequence, Vec::with_capacity(rows));
        Ok(vec![
            received(origin.received, rows),
            self.peer.column(Some(&origin.peer), rows)?,
            self.identity.column(origin.identity.as_ref(), rows)?,
            Arc::new(Int64Array::from(sequence)),
            self.event.finish()?,
            self.fields.finish(rows, null_fields, &NULLS.fields),
            self.raw.finish(rows, BinaryBuilder::append_null, &NULLS.raw),
            self.tags.finish(rows, null_tags, &NULLS.tags),
        ])
    }
}

/// Return a column with the same time in every row.
pub(super) fn received(micros: i64, rows: usize) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from_value(micros, rows).with_timezone("UTC"))
}

/// Return a column with the same text in every row.
pub(super) fn repeated(text: Option<&str>, rows: usize) -> Result<ArrayRef> {
    let Some(text) = text else { return Ok(NULLS.text.column(rows)) };
    let bytes = rows.saturating_mul(text.len());
    if i32::try_from(bytes).is_err() {
        return Err(wrong(&arrow_schema::ArrowError::OffsetOverflowError(bytes)));
    }
    let mut column = StringBuilder::with_capacity(rows, bytes);
    column.append_value_n(text, rows);
    Ok(Arc::new(column.finish()))
}

/// A column of the same text for consecutive batches: each column is a slice of the longest one, up
/// to a few thousand rows.
#[derive(Debug, Default)]
struct RepeatedText(Option<(Arc<str>, ArrayRef)>);

impl RepeatedText {
    const ROWS: usize = 4_096;

    fn column(&mut self, text: Option<&Arc<str>>, rows: usize) -> Result<ArrayRef> {
        let Some(text) = text.filter(|_| rows <= Self::ROWS) else {
            return repeated(text.map(AsRef::as_ref), rows);
        };
        if let Some((_, column)) = self.0.as_ref().filter(|(known, column)| known == text && column.len() >= rows) {
            return Ok(column.slice(0, rows));
        }
        let column = repeated(Some(text), rows)?;
        self.0 = Some((Arc::clone(text), Arc::clone(&column)));
        Ok(column)
    }
}

/// Columns of nulls; most batches have four, each a slice of a shared array.
pub(super) static NULLS: LazyLock<NullColumns> = LazyLock::new(|| NullColumns {
    text: Nulls::new(DataType::Utf8),
    fields: Nulls::new(pairs_type()),
    raw: Nulls::new(DataType::Binary),
    tags: Nulls::new(DataType::List(element())),
});

pub(super) struct NullColumns {
    text: Nulls,
    fields: Nulls,
    pub(super) raw: Nulls,
    pub(super) tags: Nulls,
}

pub(super) struct Nulls {
    data_type: DataType,
    longest: ArrayRef,
}

impl Nulls {
    const ROWS: usize = 4_096;

    fn new(data_type: DataType) -> Self {
        let longest = new_null_array(&data_type, Self::ROWS);
        Self { data_type, longest }
    }

    fn column(&self, rows: usize) -> ArrayRef {
        if rows <= Self::ROWS { self.longest.slice(0, rows) } else { new_null_array(&self.data_type, rows) }
    }
}
