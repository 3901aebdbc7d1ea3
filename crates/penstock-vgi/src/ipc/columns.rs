//! The columns of a record batch in an untrusted body. Every offset and length is checked here,
//! before the body is sliced. Only a buffer that is misaligned for its type is copied.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use arrow_array::{ArrayRef, StructArray, make_array, new_empty_array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::{ArrayData, ArrayDataBuilder};
use arrow_ipc as fb;
use arrow_schema::DataType;
use flatbuffers::VectorIter;

use super::schema::Column;
use crate::error::{Error, Malformed, Result};
use crate::limits::Limits;

/// The dictionaries of a stream, by ID.
pub(super) type Dictionaries = HashMap<i64, ArrayRef>;

/// Read the columns of one batch.
pub(super) fn read(
    batch: fb::RecordBatch<'_>,
    columns: &[Column],
    body: &Buffer,
    dictionaries: &Dictionaries,
    limits: &Limits,
) -> Result<(Vec<ArrayRef>, usize)> {
    if batch.compression().is_some() {
        return Err(Malformed::CompressedBody.into());
    }
    let rows = count(batch.length(), limits)?;
    let mut reader = ColumnReader {
        body,
        nodes: batch.nodes().unwrap_or_default().iter(),
        buffers: batch.buffers().unwrap_or_default().iter(),
        views: batch.variadicBufferCounts().into_iter().flatten().collect(),
        dictionaries,
        limits,
    };
    let arrays = columns.iter().map(|column| reader.column(column)).collect::<Result<Vec<_>>>()?;
    for (column, array) in columns.iter().zip(&arrays) {
        if array.len() != rows {
            let length = array.len();
            return Err(Malformed::ColumnLength { column: column.name.clone(), length, rows }.into());
        }
    }
    Ok((arrays, rows))
}

fn count(count: i64, limits: &Limits) -> Result<usize> {
    let rows = u64::try_from(count).map_err(|_| Malformed::RowCount)?;
    limits.rows().check(rows)?;
    usize::try_from(rows).map_err(|_| Malformed::RowMemory.into())
}

struct ColumnReader<'a> {
    body: &'a Buffer,
    nodes: VectorIter<'a, fb::FieldNode>,
    buffers: VectorIter<'a, fb::Buffer>,
    views: VecDeque<i64>,
    dictionaries: &'a Dictionaries,
    limits: &'a Limits,
}

impl ColumnReader<'_> {
    /// Return the next buffer of the body.
    fn buffer(&mut self) -> Result<Buffer> {
        let place = self.buffers.next().ok_or(Malformed::FewBuffers)?;
        let outside = Malformed::BufferPlace;
        let offset = usize::try_from(place.offset()).map_err(|_| Malformed::BufferPlace)?;
        let length = usize::try_from(place.length()).map_err(|_| Malformed::BufferPlace)?;
        let end = offset.checked_add(length).ok_or(Malformed::BufferPlace)?;
        if end > self.body.len() {
            return Err(outside.into());
        }
        Ok(self.body.slice_with_length(offset, length))
    }

    /// Return the next node: an array's length and its null count.
    fn node(&mut self) -> Result<(usize, usize)> {
        let node = self.nodes.next().ok_or(Malformed::FewNodes)?;
        let length = count(node.length(), self.limits)?;
        let nulls = usize::try_from(node.null_count()).ok().filter(|nulls| *nulls <= length);
        Ok((length, nulls.ok_or(Malformed::NullCount)?))
    }

    /// Return a validity bitmap, or `None` if there are no nulls.
    fn validity(&mut self, length: usize, nulls: usize) -> Result<Option<Buffer>> {
        let bitmap = self.buffer()?;
        if nulls == 0 {
            return Ok(None);
        }
        if bitmap.len() < length.div_ceil(8) {
            return Err(Malformed::Validity.into());
        }
        Ok(Some(bitmap))
    }

    fn column(&mut self, column: &Column) -> Result<ArrayRef> {
        let named = |error| Error::Column { name: column.name.clone(), source: Box::new(error) };
        self.array(&column.data_type, column).map_err(named)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "most of Arrow's types need no case")]
    fn array(&mut self, data_type: &DataType, column: &Column) -> Result<ArrayRef> {
        let (length, nulls) = self.node()?;
        let builder = ArrayData::builder(data_type.clone()).len(length);
        match data_type {
            DataType::Null => build(builder),
            DataType::Struct(_) => self.structure(data_type, column, length, nulls),
            DataType::FixedSizeList(..) => {
                let validity = self.validity(length, nulls)?;
                let child = self.child(column)?;
                build(builder.null_bit_buffer(validity).add_child_data(child))
            }
            DataType::List(_) | DataType::LargeList(_) | DataType::Map(..) => {
                let validity = self.validity(length, nulls)?;
                let offsets = self.offsets(data_type, length)?;
                let child = self.child(column)?;
                build(builder.null_bit_buffer(validity).add_buffer(offsets).add_child_data(child))
            }
            DataType::Utf8 | DataType::Binary | DataType::LargeUtf8 | DataType::LargeBinary => {
                let validity = self.validity(length, nulls)?;
                let offsets = self.offsets(data_type, length)?;
                let values = self.buffer()?;
                build(builder.null_bit_buffer(validity).add_buffer(offsets).add_buffer(values))
            }
            DataType::Utf8View | DataType::BinaryView => {
                let more = self.views.pop_front().and_then(|count| usize::try_from(count).ok());
                let more = more.filter(|count| *count <= self.buffers.len());
                let more = more.ok_or(Malformed::NoViewCounts)?;
                let validity = self.validity(length, nulls)?;
                let mut buffers = vec![whole(&self.buffer()?, length, size_of::<u128>())?];
                for _ in 0..more {
                    buffers.push(self.buffer()?);
                }
                build(builder.null_bit_buffer(validity).buffers(buffers))
            }
            DataType::Dictionary(key, values) => {
                let validity = self.validity(length, nulls)?;
                let keys = whole(&self.buffer()?, length, key.primitive_width().unwrap_or(1))?;
                // A dictionary may be omitted if every value is null.
                let of = column.dictionary.and_then(|id| self.dictionaries.get(&id)).cloned();
                let of = of.unwrap_or_else(|| new_empty_array(values));
                build(builder.null_bit_buffer(validity).add_buffer(keys).add_child_data(of.to_data()))
            }
            // Every other type that `schema` accepts has one buffer of fixed-width values.
            _ => {
                let validity = self.validity(length, nulls)?;
                let mut values = self.buffer()?;
                if let Some(width) = data_type.primitive_width() {
                    values = whole(&values, length, width)?;
                }
                build(builder.null_bit_buffer(validity).add_buffer(values))
            }
        }
    }

    fn child(&mut self, column: &Column) -> Result<ArrayData> {
        let child = column.children.first().ok_or(Malformed::NoListType)?;
        Ok(self.column(child)?.to_data())
    }

    fn structure(&mut self, data_type: &DataType, column: &Column, length: usize, nulls: usize) -> Result<ArrayRef> {
        let validity = self.validity(length, nulls)?;
        let nulls = validity.map(|bitmap| NullBuffer::new(BooleanBuffer::new(bitmap, 0, length)));
        let children = column.children.iter().map(|child| self.column(child)).collect::<Result<Vec<_>>>()?;
        let DataType::Struct(fields) = data_type else { return Err(Malformed::NoStructure.into()) };
        let made = StructArray::try_new_with_length(fields.clone(), children, nulls, length);
        Ok(Arc::new(made.map_err(|error| Malformed::Array { reason: error.to_string() })?))
    }

    /// Return the offsets of a list. A writer may omit all offsets if there are no values.
    fn offsets(&mut self, data_type: &DataType, length: usize) -> Result<Buffer> {
        let large = matches!(data_type, DataType::LargeList(_) | DataType::LargeUtf8 | DataType::LargeBinary);
        let width = if large { size_of::<i64>() } else { size_of::<i32>() };
        let offsets = self.buffer()?;
        if length == 0 && offsets.len() < width {
            return Ok(Buffer::from(vec![0_u64]).slice_with_length(0, width));
        }
        whole(&offsets, length.saturating_add(1), width)
    }
}

/// Return a buffer cut to `count` values of one width, because Arrow panics at a trailing partial
/// value.
fn whole(buffer: &Buffer, count: usize, width: usize) -> Result<Buffer> {
    let bytes = count.checked_mul(width).filter(|bytes| *bytes <= buffer.len());
    let bytes = bytes.ok_or(Malformed::BufferLength)?;
    Ok(buffer.slice_with_length(0, bytes))
}

fn build(builder: ArrayDataBuilder) -> Result<ArrayRef> {
    let data = builder.align_buffers(true).build().map_err(|error| Malformed::Array { reason: error.to_string() })?;
    Ok(make_array(data))
}
