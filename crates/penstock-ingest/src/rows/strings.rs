//! Columns of strings, and of lists of them.

use std::ops::Range;

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, ArrayRef, LargeListArray, LargeStringArray, ListArray, OffsetSizeTrait, StringArray};

use crate::{Result, Value};

/// Strings, with offsets of either width.
pub(super) enum StringColumn {
    Small(StringArray),
    Large(LargeStringArray),
}

/// Lists of strings, with offsets of either width.
pub(super) enum PathColumn {
    Small(ListArray),
    Large(LargeListArray),
}
impl StringColumn {
    pub(super) fn new(name: &str, column: &ArrayRef) -> Result<Self> {
        let small = column.as_string_opt::<i32>().cloned().map(Self::Small);
        let texts = small.or_else(|| column.as_string_opt::<i64>().cloned().map(Self::Large));
        texts.ok_or_else(|| Value::column_type(name, "a string", column.data_type()).into())
    }

    pub(super) fn get(&self, row: usize) -> Option<&str> {
        match self {
            Self::Small(texts) => (row < texts.len() && texts.is_valid(row)).then(|| texts.value(row)),
            Self::Large(texts) => (row < texts.len() && texts.is_valid(row)).then(|| texts.value(row)),
        }
    }
}

impl PathColumn {
    pub(super) fn new(column: &ArrayRef) -> Result<Self> {
        let small = column.as_list_opt::<i32>().cloned().map(Self::Small);
        let paths = small.or_else(|| column.as_list_opt::<i64>().cloned().map(Self::Large));
        let wrong = || Value::column_type("path", "an array of strings", column.data_type());
        let paths = paths.ok_or_else(wrong)?;
        StringColumn::new("path", paths.segments())?;
        Ok(paths)
    }

    fn segments(&self) -> &ArrayRef {
        match self {
            Self::Small(lists) => lists.values(),
            Self::Large(lists) => lists.values(),
        }
    }

    /// Return a row's list as JSON, in the form of receipts and sinks.
    pub(super) fn get(&self, row: usize) -> Option<String> {
        serde_json::to_string(&self.segments_of(row)?).ok()
    }

    fn segments_of(&self, row: usize) -> Option<Vec<String>> {
        let range_of_row = match self {
            Self::Small(lists) if row < lists.len() && lists.is_valid(row) => range(lists.value_offsets(), row),
            Self::Large(lists) if row < lists.len() && lists.is_valid(row) => range(lists.value_offsets(), row),
            Self::Small(_) | Self::Large(_) => None,
        }?;
        let texts = StringColumn::new("path", self.segments()).ok()?;
        Some(range_of_row.map(|index| texts.get(index).unwrap_or_default().to_owned()).collect())
    }
}
/// Return the strings of a row's list; `None` if it is null.
pub(super) fn list_of(name: &str, column: &ArrayRef, row: usize) -> Result<Option<Vec<String>>> {
    let wrong = |_| Value::column_type(name, "an array of strings", column.data_type());
    Ok(PathColumn::new(column).map_err(wrong)?.segments_of(row))
}
/// Return the range of a row's values by the offsets of its column.
pub(super) fn range<O: OffsetSizeTrait>(offsets: &[O], row: usize) -> Option<Range<usize>> {
    Some(offsets.get(row)?.to_usize()?..offsets.get(row.checked_add(1)?)?.to_usize()?)
}
