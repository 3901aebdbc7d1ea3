//! The port of what keeps segments, and the places in them.

use std::fmt;
use std::ops::Range;

use penstock_io::DriverError as _;
use serde::{Deserialize, Serialize};

use crate::format::Entry;
use crate::{Error, Result};

/// What a reader asks for and the spool does not have. It is the `source()` of the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// A segment was removed.
    #[error("segment {segment} of the spool is gone: all its named readers had read it")]
    Segment {
        /// Its number.
        segment: u64,
    },
    /// The spool ends in front of a row.
    #[error("the spool does not reach to row {row} of segment {segment}: is it the spool that was read?")]
    Row {
        /// The number of the segment.
        segment: u64,
        /// The number of the row in the segment.
        row: u64,
    },
}

impl From<Missing> for Error {
    fn from(missing: Missing) -> Self {
        Self::io("cannot read", missing)
    }
}

/// A place between two rows: the next row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The number of the segment.
    pub segment: u64,
    /// The row in it.
    pub row: u64,
}

/// Where the segments of a spool lie. Every call blocks.
pub trait Store: fmt::Debug + Send + Sync {
    /// The spool's ID, in hex.
    fn spool(&self) -> Result<String>;

    /// Segments from a number on, in their order, as far as they are durable.
    fn segments(&self, from: u64, max: usize) -> Result<Vec<SegmentInfo>>;

    /// Bytes of a segment; an error if there are fewer.
    fn read(&self, segment: u64, range: Range<u64>) -> Result<Vec<u8>>;

    /// A reader has made everything before a position its own.
    fn commit(&self, reader: &str, position: Position) -> Result<()>;
}

/// What is known of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentInfo {
    pub(super) number: u64,
    pub(super) header: u64,
    #[serde(with = "pairs")]
    pub(super) entries: Vec<Entry>,
}

impl SegmentInfo {
    /// Whether a row was in it. Where the last record is lost, nobody may know how many rows it had.
    pub(super) fn reaches(&self, row: u64) -> bool {
        row <= self.rows() || self.entries.last().is_some_and(|entry| entry.lost)
    }

    pub(super) fn rows(&self) -> u64 {
        self.entries.iter().map(|entry| u64::from(entry.rows)).sum()
    }
}

/// Entries as pairs of numbers.
mod pairs {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use crate::format::Entry;

    pub(super) fn serialize<S: Serializer>(entries: &[Entry], serializer: S) -> Result<S::Ok, S::Error> {
        entries.iter().map(|entry| entry.pair()).collect::<Vec<_>>().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Entry>, D::Error> {
        let pairs = Vec::<(u32, u32)>::deserialize(deserializer)?;
        Ok(pairs.into_iter().map(Entry::of_pair).collect())
    }
}
