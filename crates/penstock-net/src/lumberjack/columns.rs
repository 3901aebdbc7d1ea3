//! Events in columns.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, Int64Builder};
use arrow_array::{ArrayRef, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use penstock_lumberjack::Pairs;

use super::delivery::Origin;
use crate::{Error, Result};

/// Which columns a batch has.
#[derive(Debug, Clone)]
pub struct Layout {
    schema: SchemaRef,
}

impl Layout {
    /// Each event as it came.
    pub fn raw() -> Self {
        let fields = vec![
            Field::new("received", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), false),
            Field::new("peer", DataType::Utf8, false),
            Field::new("identity", DataType::Utf8, true),
            Field::new("sequence", DataType::Int64, false),
            Field::new("event", DataType::Binary, false),
        ];
        Self { schema: Arc::new(Schema::new(fields)) }
    }

    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// Takes events one after another and makes a batch of them.
#[derive(Debug)]
pub struct Builder {
    layout: Layout,
    sequence: Int64Builder,
    event: BinaryBuilder,
    octets: usize,
}

impl Builder {
    /// An empty one.
    pub fn new(layout: &Layout) -> Self {
        Self { layout: layout.clone(), sequence: Int64Builder::new(), event: BinaryBuilder::new(), octets: 0 }
    }

    /// Takes an event of JSON.
    pub fn push_json(&mut self, sequence: u32, raw: &[u8]) {
        self.sequence.append_value(sequence.into());
        self.event.append_value(raw);
        self.octets += raw.len();
    }

    /// Takes an event of pairs.
    pub fn push_map(&mut self, sequence: u32, pairs: Pairs<'_>) {
        let text = format!("{:?}", pairs.collect::<Vec<_>>());
        self.push_json(sequence, text.as_bytes());
    }

    /// How many it has.
    pub fn len(&self) -> usize {
        self.sequence.values_slice().len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Octets that it holds.
    pub fn octets(&self) -> usize {
        self.octets
    }

    /// The batch; the builder is empty afterwards.
    pub fn finish(&mut self, origin: &Origin) -> Result<RecordBatch> {
        let rows = self.len();
        self.octets = 0;
        let received = TimestampMicrosecondArray::from(vec![origin.received; rows]).with_timezone("UTC");
        let peer = StringArray::from_iter_values(std::iter::repeat_n(origin.peer.as_ref(), rows));
        let identity: StringArray = std::iter::repeat_n(origin.identity.as_deref(), rows).collect();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(received),
            Arc::new(peer),
            Arc::new(identity),
            Arc::new(self.sequence.finish()),
            Arc::new(self.event.finish()),
        ];
        RecordBatch::try_new(self.layout.schema(), columns).map_err(|error| Error::Misuse(error.to_string()))
    }
}
