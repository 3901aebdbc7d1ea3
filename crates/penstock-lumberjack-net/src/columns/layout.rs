//! The columns of batches. The raw layout stores each event as it was received:
//!
//! ```text
//! received  timestamp(µs, UTC)    when the event arrived
//! peer      string                the writer's address, IP:PORT
//! identity  string                the writer's name, from its certificate; null without one
//! sequence  long                  the event's number in the window
//! event     string                a JSON object, as it was sent; null for other events
//! fields    map<string, string>   the pairs of a D frame; null for J frames
//! raw       binary                the bytes of a J frame that is not a JSON object, else null
//! tags      array<string>         the event's defects: _jsonparsefailure, _charsetfailure; null if it has none
//! ```
//!
//! A typed layout has the columns of a user's schema, filled from the fields of the same names, as
//! `typed.rs` describes. Every column is nullable and has a type that Spark supports.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};

use super::cell;
use crate::{Error, Misuse, Result};

/// The tag of an event that is not a JSON object (decision 9).
pub(super) const JSON_FAILURE: &str = "_jsonparsefailure";
/// The tag of an event with a key or a value that is not UTF-8, which is kept escaped (decision 9).
pub(super) const CHARSET_FAILURE: &str = "_charsetfailure";

/// Columns of a schema that are not fields of events.
const METADATA: [&str; 7] = ["_received", "_peer", "_identity", "_sequence", "_raw", "_tags", "_rescue"];

/// The columns of a batch. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Layout {
    schema: SchemaRef,
    typed: bool,
}

impl Layout {
    /// Return the layout that stores each event as it was received.
    pub fn raw() -> Self {
        let field = |name: &str, data_type| Field::new(name, data_type, true);
        let fields = vec![
            field("received", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
            field("peer", DataType::Utf8),
            field("identity", DataType::Utf8),
            field("sequence", DataType::Int64),
            field("event", DataType::Utf8),
            field("fields", pairs_type()),
            field("raw", DataType::Binary),
            field("tags", DataType::List(element())),
        ];
        Self { schema: Arc::new(Schema::new(fields)), typed: false }
    }

    /// Make the layout of a schema, whose columns are filled from the fields of each event.
    ///
    /// Fails as a misuse where events cannot be converted into the type of a column; the error names it.
    pub fn typed(schema: SchemaRef) -> Result<Self> {
        check(&schema)?;
        Ok(Self { schema, typed: true })
    }

    /// Return the columns.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Return whether this is the raw layout.
    pub(super) fn is_raw(&self) -> bool {
        !self.typed
    }
}

/// Return the element of an array, under the name that Spark uses.
pub(super) fn element() -> FieldRef {
    Arc::new(Field::new("element", DataType::Utf8, true))
}

pub(super) fn pairs_type() -> DataType {
    let (key, value) = (Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Utf8, true));
    let entries = Field::new("entries", DataType::Struct(vec![key, value].into()), false);
    DataType::Map(Arc::new(entries), false)
}

/// Reject a schema that cannot be filled.
fn check(schema: &SchemaRef) -> Result<()> {
    let raw = Layout::raw().schema();
    for field in schema.fields() {
        let name = field.name().as_str();
        if !METADATA.contains(&name) {
            cell::check(name, field.data_type(), 0)?;
            continue;
        }
        let same = raw.field_with_name(name.trim_start_matches('_')).map(|field| field.data_type().clone());
        let wanted = same.unwrap_or(DataType::Utf8);
        if !field.data_type().equals_datatype(&wanted) {
            let found = field.data_type().clone();
            return Err(Misuse::MetadataColumn { column: name.to_owned(), found, wanted }.into());
        }
    }
    Ok(())
}

pub(super) fn wrong(error: &arrow_schema::ArrowError) -> Error {
    Misuse::Batch { reason: error.to_string() }.into()
}
