//! Events in columns.
//!
//! A [`Layout`] says which columns there are. The raw one keeps each event as it came:
//!
//! ```text
//! received  timestamp(µs, UTC)    when it arrived
//! peer      string                the writer's address, IP:PORT
//! identity  string                who that is by its certificate; null without one
//! sequence  long                  its number in the window
//! event     string                a JSON object as it was sent; null for other events
//! fields    map<string, string>   the pairs of a D frame; null for J frames
//! raw       binary                the bytes of a J frame that is no JSON object, else null
//! tags      array<string>         what is wrong with it: _jsonparsefailure, _charsetfailure; null if nothing is
//! ```
//!
//! A typed one has the columns of a schema that the user wrote, filled with the fields of those names; see [`typed`].
//! Every column is nullable and of a type that Spark takes.

mod cell;
mod look;
mod raw;
mod text;
mod typed;

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use penstock_io::DriverError as _;
use penstock_lumberjack::Pairs;

use self::raw::RawBuilder;
pub(super) use self::text::is_object;
use self::typed::TypedBuilder;
pub use self::typed::{METADATA, reshape};
use super::delivery::Origin;
use crate::{Error, Result};

/// The event is no JSON object (decision 9).
pub const JSON_FAILURE: &str = "_jsonparsefailure";
/// A key or a value is not UTF-8; it is kept escaped (decision 9).
pub const CHARSET_FAILURE: &str = "_charsetfailure";

/// Which columns a batch has. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Layout {
    schema: SchemaRef,
    typed: bool,
}

impl Layout {
    /// Each event as it came.
    pub fn raw() -> Self {
        let field = |name: &str, data_type| Field::new(name, data_type, true);
        let fields = vec![
            field("received", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
            field("peer", DataType::Utf8),
            field("identity", DataType::Utf8),
            field("sequence", DataType::Int64),
            field("event", DataType::Utf8),
            field("fields", raw::pairs_type()),
            field("raw", DataType::Binary),
            field("tags", DataType::List(raw::element())),
        ];
        Self { schema: Arc::new(Schema::new(fields)), typed: false }
    }

    /// The columns of a schema, filled from the fields of each event.
    ///
    /// Fails as a misuse where a column has a type that events cannot be made into; the error names it.
    pub fn typed(schema: SchemaRef) -> Result<Self> {
        TypedBuilder::check(&schema)?;
        Ok(Self { schema, typed: true })
    }

    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Whether it is the raw one.
    pub fn is_raw(&self) -> bool {
        !self.typed
    }
}

/// Takes events one after another and makes a batch of them. Nothing is allocated for an event alone.
#[derive(Debug)]
pub struct Builder {
    layout: Layout,
    rows: Rows,
    bytes: usize,
}

#[derive(Debug)]
enum Rows {
    Raw(Box<RawBuilder>),
    Typed(Box<TypedBuilder>),
}

impl Builder {
    /// An empty one.
    pub fn new(layout: &Layout) -> Self {
        let rows = if layout.typed {
            Rows::Typed(Box::new(TypedBuilder::new(&layout.schema)))
        } else {
            Rows::Raw(Box::default())
        };
        Self { layout: layout.clone(), rows, bytes: 0 }
    }

    /// Takes an event of JSON.
    pub fn push_json(&mut self, sequence: u32, raw: &[u8]) {
        self.bytes = self.bytes.saturating_add(raw.len());
        match &mut self.rows {
            Rows::Raw(rows) => rows.push_json(sequence, raw),
            Rows::Typed(rows) => rows.push_json(sequence.into(), raw),
        }
    }

    /// Takes an event of pairs.
    pub fn push_map(&mut self, sequence: u32, pairs: Pairs<'_>) {
        self.bytes = self.bytes.saturating_add(pairs.bytes());
        match &mut self.rows {
            Rows::Raw(rows) => rows.push_map(sequence, pairs),
            Rows::Typed(rows) => rows.push_map(sequence.into(), pairs),
        }
    }

    /// How many it has.
    pub fn len(&self) -> usize {
        match &self.rows {
            Rows::Raw(rows) => rows.len(),
            Rows::Typed(rows) => rows.len(),
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the events that it holds, as they came.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The batch; the builder is empty afterwards.
    pub fn finish(&mut self, origin: &Origin) -> Result<RecordBatch> {
        self.bytes = 0;
        let columns = match &mut self.rows {
            Rows::Raw(rows) => rows.finish(origin),
            Rows::Typed(rows) => rows.finish(&typed::Envelope::of(origin)),
        };
        RecordBatch::try_new(self.layout.schema(), columns?).map_err(|error| wrong(&error))
    }
}

fn wrong(error: &arrow_schema::ArrowError) -> Error {
    Error::misuse(error.to_string())
}

#[cfg(test)]
mod tests;
