//! Events in columns: a [`Builder`] makes batches with the columns of a [`Layout`].

mod cell;
mod json_prescan;
mod layout;
mod raw;
mod text;
mod typed;

use arrow_array::RecordBatch;
use penstock_lumberjack::Pairs;

pub use self::layout::Layout;
use self::layout::wrong;
use self::raw::RawBuilder;
pub(super) use self::text::is_object;
pub use self::typed::reshape;
use self::typed::{Envelope, TypedBuilder};
use super::delivery::Origin;
use crate::Result;

/// Collects events into a batch, without an allocation per event.
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
    /// Make an empty builder.
    pub fn new(layout: &Layout) -> Self {
        let rows = if layout.is_raw() {
            Rows::Raw(Box::default())
        } else {
            Rows::Typed(Box::new(TypedBuilder::new(&layout.schema())))
        };
        Self { layout: layout.clone(), rows, bytes: 0 }
    }

    /// Append an event of JSON.
    pub fn push_json(&mut self, sequence: u32, raw: &[u8]) {
        self.bytes = self.bytes.saturating_add(raw.len());
        match &mut self.rows {
            Rows::Raw(rows) => rows.push_json(sequence, raw),
            Rows::Typed(rows) => rows.push_json(sequence.into(), raw),
        }
    }

    /// Append an event of pairs.
    pub fn push_map(&mut self, sequence: u32, pairs: Pairs<'_>) {
        self.bytes = self.bytes.saturating_add(pairs.bytes());
        match &mut self.rows {
            Rows::Raw(rows) => rows.push_map(sequence, pairs),
            Rows::Typed(rows) => rows.push_map(sequence.into(), pairs),
        }
    }

    /// Return the number of events.
    pub fn len(&self) -> usize {
        match &self.rows {
            Rows::Raw(rows) => rows.len(),
            Rows::Typed(rows) => rows.len(),
        }
    }

    /// Return whether there are no events.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Return the size of the events as they arrived, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Return the batch, and empty the builder.
    pub fn finish(&mut self, origin: &Origin) -> Result<RecordBatch> {
        self.bytes = 0;
        let columns = match &mut self.rows {
            Rows::Raw(rows) => rows.finish(origin),
            Rows::Typed(rows) => rows.finish(&Envelope::of(origin)),
        };
        RecordBatch::try_new(self.layout.schema(), columns?).map_err(|error| wrong(&error))
    }
}

#[cfg(test)]
mod tests;
