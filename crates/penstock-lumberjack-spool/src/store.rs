//! The port to the storage of segments, and positions in them.

use std::fmt;
use std::ops::Range;

use penstock_io::DriverError as _;
use serde::{Deserialize, Serialize};

use crate::format::Entry;
use crate::names::segment_name;
use crate::{Error, Result};

/// A place that a reader asks for and that the spool does not have. It is the `source()` of the
/// error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// A segment was removed.
    #[error("segment {segment} of the spool is gone: all its named readers had read it")]
    Segment {
        /// Its number.
        segment: u64,
    },
    /// The spool ends before a row.
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

/// Why a segment, or a part of it, cannot be read. It is the `source()` of the error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// An earlier build wrote it, and no receiver of this build has opened the spool since.
    #[error(
        "it was written by an earlier build (format 1): a receiver of this one writes it again when it opens the spool"
    )]
    EarlierFormat,
    /// Its header is damaged, but the records after it show what the header was.
    #[error("the segment's header is damaged; a receiver writes it again when it opens the spool")]
    Header,
    /// Its header is damaged, and nothing shows that the segment belongs to the spool.
    #[error(
        "the segment's header is damaged, and no record of this spool was found behind it: put a copy of the file back"
    )]
    Headless,
    /// A record is damaged, and its rows are lost.
    #[error(
        "rows {first} to {last} are lost: bytes {} to {} of {} are not what was written{}",
        .bytes.start, .bytes.end, segment_name(*.segment), CopyNote(.copy)
    )]
    Rows {
        /// The number of the first row in the segment.
        first: u64,
        /// The number of the last one.
        last: u64,
        /// The bytes of the record in the segment.
        bytes: Range<u64>,
        /// The number of the segment.
        segment: u64,
        /// The name of the copy that a receiver made of the file as it was found.
        copy: Option<String>,
    },
    /// A record is damaged, and the index does not have its rows.
    #[error("the record at byte {byte} is not what was written")]
    Record {
        /// A byte of the record.
        byte: u64,
    },
}

/// The part of the message that names the copy of the damaged file, if there is one.
struct CopyNote<'a>(&'a Option<String>);

impl fmt::Display for CopyNote<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |copy| write!(f, "; the file as it was found is {copy}"))
    }
}

/// A position between two rows, named by the next row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The number of the segment.
    pub segment: u64,
    /// The number of the next row in the segment.
    pub row: u64,
}

/// The storage of a spool's segments. Every call blocks.
pub trait Store: fmt::Debug + Send + Sync {
    /// Return the spool's ID, in hex.
    fn spool(&self) -> Result<String>;

    /// Return at most `max` segments from a number on, in ascending order, as far as they are
    /// durable.
    fn segments(&self, from: u64, max: usize) -> Result<Vec<SegmentInfo>>;

    /// Read bytes of a segment; fails if there are fewer.
    fn read(&self, segment: u64, range: Range<u64>) -> Result<Vec<u8>>;

    /// Record that a reader has committed everything before a position.
    fn commit(&self, reader: &str, position: Position) -> Result<()>;
}

/// The place of a segment's records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentInfo {
    pub(super) number: u64,
    pub(super) header: u64,
    #[serde(with = "pairs")]
    pub(super) entries: Vec<Entry>,
}

impl SegmentInfo {
    /// Return whether the segment reaches to a row. Where the last record is lost, the number of
    /// its rows may not be known.
    pub(super) fn reaches(&self, row: u64) -> bool {
        row <= self.rows() || self.entries.last().is_some_and(|entry| entry.lost)
    }

    pub(super) fn rows(&self) -> u64 {
        self.entries.iter().map(|entry| u64::from(entry.rows)).sum()
    }
}

/// Encoding of entries as pairs of numbers.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_rows_are_told_with_their_bytes_and_the_copy_of_their_file() {
        let rows = |copy| Unreadable::Rows { first: 2, last: 4, bytes: 80..160, segment: 7, copy };
        let told = "rows 2 to 4 are lost: bytes 80 to 160 of 00000000000000000007.segment are not what was written";
        assert_eq!(rows(None).to_string(), told);
        let copied = rows(Some("a.damaged".to_owned())).to_string();
        assert_eq!(copied, format!("{told}; the file as it was found is a.damaged"));
    }
}
