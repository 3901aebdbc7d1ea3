//! Events from a column of an Arrow batch.

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, RecordBatch};

use super::Chunk;
use crate::{Misuse, Result};

impl Chunk {
    /// Append the rows of a column of strings or bytes, each as an unchanged event of JSON; nulls are skipped.
    pub fn push_column(&mut self, batch: &RecordBatch, column: &str) -> Result<()> {
        let missing = || Misuse::NoColumn { column: column.to_owned() };
        let array = batch.column_by_name(column).ok_or_else(missing)?;
        if let Some(texts) = array.as_string_opt::<i32>() {
            texts.iter().flatten().for_each(|row| self.push_json(row.as_bytes()));
        } else if let Some(texts) = array.as_string_opt::<i64>() {
            texts.iter().flatten().for_each(|row| self.push_json(row.as_bytes()));
        } else if let Some(texts) = array.as_string_view_opt() {
            texts.iter().flatten().for_each(|row| self.push_json(row.as_bytes()));
        } else if let Some(bytes) = array.as_binary_opt::<i32>() {
            bytes.iter().flatten().for_each(|row| self.push_json(row));
        } else if let Some(bytes) = array.as_binary_opt::<i64>() {
            bytes.iter().flatten().for_each(|row| self.push_json(row));
        } else {
            let found = array.data_type().clone();
            return Err(Misuse::EventColumn { column: column.to_owned(), found }.into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{
        ArrayRef, BinaryArray, Int64Array, LargeBinaryArray, LargeStringArray, StringArray, StringViewArray,
    };
    use arrow_schema::DataType;

    use super::*;
    use crate::Error;

    fn pushed(array: ArrayRef, column: &str) -> Result<Chunk> {
        let batch = RecordBatch::try_from_iter([("event", array)]).unwrap();
        let mut chunk = Chunk::default();
        chunk.push_column(&batch, column).map(|()| chunk)
    }

    #[test]
    fn the_rows_of_a_column_of_strings_or_bytes_are_events_and_nulls_are_skipped() {
        let texts = [Some("{}"), None, Some("{\"a\":1}")];
        let bytes: Vec<Option<&[u8]>> = texts.iter().map(|text| text.map(str::as_bytes)).collect();
        let arrays: [ArrayRef; 5] = [
            Arc::new(StringArray::from_iter(texts)),
            Arc::new(LargeStringArray::from_iter(texts)),
            Arc::new(StringViewArray::from_iter(texts)),
            Arc::new(BinaryArray::from_iter(bytes.clone())),
            Arc::new(LargeBinaryArray::from_iter(bytes)),
        ];
        for array in arrays {
            let chunk = pushed(Arc::clone(&array), "event").unwrap();
            assert_eq!((chunk.len(), chunk.bytes()), (2, 9), "{}", array.data_type());
        }
    }

    #[test]
    fn another_column_is_named() {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter([1]));
        for (column, expected) in [
            ("event", Misuse::EventColumn { column: "event".to_owned(), found: DataType::Int64 }),
            ("events", Misuse::NoColumn { column: "events".to_owned() }),
        ] {
            let error = pushed(Arc::clone(&numbers), column).unwrap_err();
            assert!(matches!(&error, Error::Misuse(misuse) if *misuse == expected), "{error:?}");
        }
    }
}
