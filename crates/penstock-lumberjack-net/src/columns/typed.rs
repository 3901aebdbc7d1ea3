//! A typed layout: the columns of a schema, filled with the fields of the same names.
//!
//! A field fits where its JSON value has the column's type. A string column also accepts other values, as their JSON
//! text; timestamps and dates accept strings of RFC 3339, decimals also strings of digits; null fits everywhere. Pairs
//! have string values, which are parsed as numbers and booleans. A value that does not fit leaves its column null and
//! is stored, whole, in the column `_rescue`, a JSON object; so are fields without a column, and a field's second
//! value.
//!
//! Where a schema has them, these columns are not fields: `_received`, `_peer`, `_identity`, `_sequence`, `_raw`,
//! `_tags`, as in the raw layout without the underscore, and `_rescue`.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{ArrayBuilder as _, BinaryBuilder, Int64Builder, ListBuilder, StringBuilder};
use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;
use jiter::{Jiter, JiterResult};
use penstock_lumberjack::Pairs;

use super::cell::Cell;
use super::layout::{CHARSET_FAILURE, JSON_FAILURE, Layout, wrong};
use super::raw::{NULLS, Sparse, null_tags, received, repeated, tags_builder};
use super::text::escape;
use crate::Origin;
use crate::{Error, Misuse, Result};

/// The source of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Received,
    Peer,
    Identity,
    Sequence,
    Raw,
    Tags,
    Rescue,
    /// A field, by its index.
    Field(usize),
}

/// The source of the columns that are the same for all events of a batch, or that exist already.
pub(super) enum Envelope<'a> {
    Origin(&'a Origin),
    Batch(&'a RecordBatch),
}

impl<'a> Envelope<'a> {
    pub(super) fn of(origin: &'a Origin) -> Self {
        Self::Origin(origin)
    }

    fn column(&self, name: &str, rows: usize) -> Result<ArrayRef> {
        match self {
            Self::Origin(origin) => match name {
                "received" => Ok(received(origin.received, rows)),
                "peer" => repeated(Some(&origin.peer), rows),
                _ => repeated(origin.identity.as_deref(), rows),
            },
            Self::Batch(batch) => batch.column_by_name(name).map(Arc::clone).ok_or_else(|| not_raw(name)),
        }
    }
}

fn not_raw(name: &str) -> Error {
    Misuse::RawColumn { column: name.to_owned() }.into()
}

#[derive(Debug)]
pub(super) struct TypedBuilder {
    plan: Vec<Part>,
    fields: Vec<(Box<str>, Cell)>,
    by_name: HashMap<Box<str>, usize>,
    sequence: Int64Builder,
    raw: Sparse<BinaryBuilder>,
    tags: Sparse<ListBuilder<StringBuilder>>,
    /// The column `_rescue`; `None` if the schema has no such column.
    rescue: Option<StringBuilder>,
    /// Buffers reused for every event: its rescued fields, a key, a text, and the parser's buffer for unescaped
    /// strings.
    rescued: Vec<u8>,
    key: String,
    text: String,
    tape: Vec<u8>,
}

impl TypedBuilder {
    pub(super) fn new(schema: &SchemaRef) -> Self {
        let mut fields: Vec<(Box<str>, Cell)> = Vec::new();
        let plan: Vec<Part> = schema
            .fields()
            .iter()
            .map(|field| match field.name().as_str() {
                "_received" => Part::Received,
                "_peer" => Part::Peer,
                "_identity" => Part::Identity,
                "_sequence" => Part::Sequence,
                "_raw" => Part::Raw,
                "_tags" => Part::Tags,
                "_rescue" => Part::Rescue,
                name => {
                    fields.push((name.into(), Cell::new(field.data_type())));
                    Part::Field(fields.len() - 1)
                }
            })
            .collect();
        let by_name = fields.iter().enumerate().map(|(index, (name, _))| (name.clone(), index)).collect();
        Self {
            rescue: plan.contains(&Part::Rescue).then(StringBuilder::new),
            plan,
            fields,
            by_name,
            sequence: Int64Builder::new(),
            raw: Sparse::EMPTY,
            tags: Sparse::EMPTY,
            rescued: Vec::new(),
            key: String::new(),
            text: String::new(),
            tape: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.sequence.len()
    }

    pub(super) fn push_json(&mut self, sequence: i64, bytes: &[u8]) {
        self.rescued.clear();
        if std::str::from_utf8(bytes).is_ok() {
            let mut json = Jiter::with_tape(bytes, std::mem::take(&mut self.tape));
            let parsed = self.object(&mut json, bytes);
            self.tape = json.into_tape();
            if parsed.is_ok() {
                self.end(sequence);
                return;
            }
        }
        self.fail(sequence, bytes);
    }

    /// Append bytes that are not a JSON object.
    fn fail(&mut self, sequence: i64, bytes: &[u8]) {
        let row = self.len();
        self.raw.at(row, BinaryBuilder::new, BinaryBuilder::append_null).append_value(bytes);
        self.tag(JSON_FAILURE);
        // The fields before the error keep their values, and `_raw` has all bytes.
        self.rescued.clear();
        self.end(sequence);
    }

    fn object(&mut self, json: &mut Jiter<'_>, bytes: &[u8]) -> JiterResult<()> {
        let (row, mut guess) = (self.len(), 0);
        let mut key = json.next_object()?;
        while let Some(name) = key {
            let found = self.find(name, guess);
            if self.rescue.is_some() {
                self.key.clear();
                self.key.push_str(name);
            }
            let peek = json.peek()?;
            let start = json.current_index();
            let column = found.and_then(|index| self.fields.get_mut(index));
            let fits = match column.filter(|(_, cell)| cell.len() == row) {
                Some((_, cell)) => cell.put(json, peek)?,
                None => {
                    json.known_skip(peek)?;
                    false
                }
            };
            if !fits && self.rescue.is_some() {
                let value = bytes.get(start..json.current_index()).unwrap_or(b"null");
                begin_rescue(&mut self.rescued, &self.key);
                self.rescued.extend_from_slice(value);
            }
            guess = found.map_or(guess, |index| index + 1);
            key = json.next_key()?;
        }
        json.finish()
    }

    fn find(&self, name: &str, guess: usize) -> Option<usize> {
        if self.fields.get(guess).is_some_and(|(field, _)| **field == *name) {
            return Some(guess);
        }
        self.by_name.get(name).copied()
    }

    pub(super) fn push_map(&mut self, sequence: i64, pairs: Pairs<'_>) {
        self.rescued.clear();
        let mut clean = true;
        let mut text = std::mem::take(&mut self.text);
        let mut name = std::mem::take(&mut self.key);
        for (key, value) in pairs {
            clean &= read(key, &mut name) & read(value, &mut text);
            self.pair(&name, &text);
        }
        (self.text, self.key) = (text, name);
        if !clean {
            self.tag(CHARSET_FAILURE);
        }
        self.end(sequence);
    }

    fn pair(&mut self, name: &str, value: &str) {
        let row = self.len();
        let column = self.by_name.get(name).and_then(|index| self.fields.get_mut(*index));
        let fits = column.filter(|(_, cell)| cell.len() == row).is_some_and(|(_, cell)| cell.put_text(value));
        if !fits && self.rescue.is_some() {
            begin_rescue(&mut self.rescued, name);
            write_string(&mut self.rescued, value);
        }
    }

    fn tag(&mut self, tag: &str) {
        let row = self.len();
        let tags = self.tags.at(row, tags_builder, null_tags);
        tags.values().append_value(tag);
        tags.append(true);
    }

    fn end(&mut self, sequence: i64) {
        let row = self.len();
        for (_, cell) in self.fields.iter_mut().filter(|(_, cell)| cell.len() == row) {
            cell.null();
        }
        if let Some(rescue) = &mut self.rescue {
            if self.rescued.is_empty() {
                rescue.append_null();
            } else {
                self.rescued.push(b'}');
                rescue.append_option(std::str::from_utf8(&self.rescued).ok());
            }
        }
        self.sequence.append_value(sequence);
    }

    pub(super) fn finish(&mut self, envelope: &Envelope<'_>) -> Result<Vec<ArrayRef>> {
        let rows = self.len();
        let mut fields =
            self.fields.iter_mut().map(|(_, cell)| cell.finish()).collect::<std::result::Result<Vec<_>, _>>();
        let fields = fields.as_mut().map_err(|error| wrong(error))?;
        let sequence: ArrayRef = Arc::new(self.sequence.finish());
        let raw = self.raw.finish(rows, BinaryBuilder::append_null, &NULLS.raw);
        let tags = self.tags.finish(rows, null_tags, &NULLS.tags);
        let rescue = self.rescue.as_mut().map(StringBuilder::finish);
        let column = |from: &Part| match from {
            Part::Received => envelope.column("received", rows),
            Part::Peer => envelope.column("peer", rows),
            Part::Identity => envelope.column("identity", rows),
            Part::Sequence => Ok(Arc::clone(&sequence)),
            Part::Raw => Ok(Arc::clone(&raw)),
            Part::Tags => Ok(Arc::clone(&tags)),
            Part::Rescue => rescue.clone().map(|rescue| Arc::new(rescue) as ArrayRef).ok_or_else(|| not_raw("rescue")),
            Part::Field(index) => fields.get(*index).map(Arc::clone).ok_or_else(|| not_raw("field")),
        };
        self.plan.iter().map(column).collect()
    }
}

/// Append bytes as text; escape them and return false if they are not UTF-8.
fn read(bytes: &[u8], into: &mut String) -> bool {
    into.clear();
    match std::str::from_utf8(bytes) {
        Ok(text) => into.push_str(text),
        Err(_) => escape(bytes, into),
    }
    std::str::from_utf8(bytes).is_ok()
}

fn begin_rescue(rescued: &mut Vec<u8>, key: &str) {
    rescued.push(if rescued.is_empty() { b'{' } else { b',' });
    write_string(rescued, key);
    rescued.push(b':');
}

fn write_string(into: &mut Vec<u8>, text: &str) {
    // Writing a string into a vector cannot fail.
    let _ = serde_json::to_writer(into, text);
}

/// Convert a batch of the raw layout into a typed layout, with the same events in the same order.
///
/// Fails as a misuse where the batch is not of the raw layout.
pub fn reshape(layout: &Layout, batch: &RecordBatch) -> Result<RecordBatch> {
    if layout.is_raw() {
        return Ok(batch.clone());
    }
    let column = |name: &str| batch.column_by_name(name).ok_or_else(|| not_raw(name));
    let (event, raw) = (column("event")?, column("raw")?);
    let event = event.as_string_opt::<i32>().ok_or_else(|| not_raw("event"))?;
    let raw = raw.as_binary_opt::<i32>().ok_or_else(|| not_raw("raw"))?;
    let fields = column("fields")?.as_map_opt().ok_or_else(|| not_raw("fields"))?;
    let keys = fields.keys().as_string_opt::<i32>().ok_or_else(|| not_raw("fields"))?;
    let values = fields.values().as_string_opt::<i32>().ok_or_else(|| not_raw("fields"))?;
    let tags = column("tags")?;
    let sequence = column("sequence")?;
    let sequence = sequence.as_primitive_opt::<arrow_array::types::Int64Type>().ok_or_else(|| not_raw("sequence"))?;
    let mut rows = TypedBuilder::new(&layout.schema());
    for row in 0..batch.num_rows() {
        let number = sequence.value(row);
        if event.is_valid(row) {
            rows.push_json(number, event.value(row).as_bytes());
        } else if fields.is_valid(row) {
            rows.rescued.clear();
            let offsets = fields.value_offsets();
            let at = |row: usize| offsets.get(row).and_then(|at| usize::try_from(*at).ok()).unwrap_or(0);
            for index in at(row)..at(row + 1) {
                rows.pair(keys.value(index), values.value(index));
            }
            if tags.is_valid(row) {
                rows.tag(CHARSET_FAILURE);
            }
            rows.end(number);
        } else {
            rows.fail(number, if raw.is_valid(row) { raw.value(row) } else { b"" });
        }
    }
    let columns = rows.finish(&Envelope::Batch(batch))?;
    RecordBatch::try_new(layout.schema(), columns).map_err(|error| wrong(&error))
}
