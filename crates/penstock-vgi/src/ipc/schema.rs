//! Reading an untrusted schema message, because the stock conversion panics on unknown input.

use std::sync::Arc;

use arrow_ipc::{self as fb, DateUnit, Endianness, IntervalUnit as FbInterval, Precision, TimeUnit as FbTime};
use arrow_schema::{DataType, Field, Fields, IntervalUnit, Schema, SchemaRef, TimeUnit};

use crate::error::{Malformed, Result};
use crate::limits::DEEPEST;

/// A schema, with the columns by which its batches are read.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) schema: SchemaRef,
    pub(super) columns: Vec<Column>,
}

/// A field in the form in which batches are read. Every part of its type is nullable, because peers
/// send nulls in fields that they declare as not null; the receiver of the batch decides what that
/// means.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) data_type: DataType,
    pub(super) dictionary: Option<i64>,
    pub(super) children: Vec<Self>,
}

impl Layout {
    pub(super) fn read(schema: fb::Schema<'_>) -> Result<Self> {
        if schema.endianness() != Endianness::Little {
            return Err(Malformed::Endianness.into());
        }
        let mut fields = Vec::new();
        let mut columns = Vec::new();
        for field in schema.fields().into_iter().flatten() {
            let (field, column) = read_field(field, 0)?;
            fields.push(field);
            columns.push(column);
        }
        let metadata = pairs(schema.custom_metadata());
        Ok(Self { schema: Arc::new(Schema::new_with_metadata(fields, metadata)), columns })
    }

    /// Return the column whose values a dictionary batch holds.
    pub(super) fn dictionary(&self, id: i64) -> Option<&Column> {
        fn find(columns: &[Column], id: i64) -> Option<&Column> {
            columns.iter().find_map(|column| {
                if column.dictionary == Some(id) { Some(column) } else { find(&column.children, id) }
            })
        }
        find(&self.columns, id)
    }
}

type Pairs<'a> = flatbuffers::Vector<'a, flatbuffers::ForwardsUOffset<fb::KeyValue<'a>>>;

fn pairs(pairs: Option<Pairs<'_>>) -> std::collections::HashMap<String, String> {
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    pairs.into_iter().flatten().map(|pair| (text(pair.key()), text(pair.value()))).collect()
}

fn read_field(field: fb::Field<'_>, depth: usize) -> Result<(Field, Column)> {
    if depth > DEEPEST {
        return Err(Malformed::Nesting.into());
    }
    let name = field.name().unwrap_or_default().to_owned();
    let mut fields = Vec::new();
    let mut children = Vec::new();
    for child in field.children().into_iter().flatten() {
        let (child_field, child) = read_field(child, depth.saturating_add(1))?;
        fields.push(child_field);
        children.push(child);
    }
    let declared = data_type(field, &name, fields)?;
    if matches!(declared, DataType::Map(..)) {
        children.iter_mut().for_each(with_keys);
    }
    let relaxed = data_type(field, &name, children.iter().map(|child| nullable(child, &declared)).collect())?;
    let (declared, relaxed, id) = match field.dictionary() {
        None => (declared, relaxed, None),
        Some(dictionary) => {
            let key = index_type(dictionary.indexType(), &name)?;
            let of = |values| DataType::Dictionary(Box::new(key.clone()), Box::new(values));
            (of(declared), of(relaxed), Some(dictionary.id()))
        }
    };
    let read = Field::new(name.clone(), declared, field.nullable()).with_metadata(pairs(field.custom_metadata()));
    Ok((read, Column { name, data_type: relaxed, dictionary: id, children }))
}

/// Restore the keys of a map's entries to not null.
fn with_keys(entries: &mut Column) {
    if let DataType::Struct(fields) = &entries.data_type {
        let mut fields: Vec<Arc<Field>> = fields.iter().cloned().collect();
        if let Some(key) = fields.first_mut() {
            *key = Arc::new(key.as_ref().clone().with_nullable(false));
        }
        entries.data_type = DataType::Struct(fields.into());
    }
}

/// Return a child as the relaxed type declares it. The entries of a map keep the form that the type
/// requires.
fn nullable(child: &Column, parent: &DataType) -> Field {
    Field::new(child.name.clone(), child.data_type.clone(), !matches!(parent, DataType::Map(..)))
}

fn index_type(int: Option<fb::Int<'_>>, name: &str) -> Result<DataType> {
    // An omitted key type means a signed integer of 32 bits.
    let Some(int) = int else { return Ok(DataType::Int32) };
    let (bits, field) = (int.bitWidth(), || name.to_owned());
    integer(bits, int.is_signed()).ok_or_else(|| Malformed::KeyWidth { field: field(), bits }.into())
}

fn integer(width: i32, signed: bool) -> Option<DataType> {
    Some(match (width, signed) {
        (8, true) => DataType::Int8,
        (8, false) => DataType::UInt8,
        (16, true) => DataType::Int16,
        (16, false) => DataType::UInt16,
        (32, true) => DataType::Int32,
        (32, false) => DataType::UInt32,
        (64, true) => DataType::Int64,
        (64, false) => DataType::UInt64,
        _ => return None,
    })
}

fn data_type(field: fb::Field<'_>, name: &str, children: Vec<Field>) -> Result<DataType> {
    let unknown = || Malformed::FieldType { field: name.to_owned(), type_name: field.type_type() }.into();
    plain(field).or_else(|| numbers(field)).or_else(|| nested(field, children)).ok_or_else(unknown)
}

fn plain(field: fb::Field<'_>) -> Option<DataType> {
    Some(match field.type_type() {
        fb::Type::Null => DataType::Null,
        fb::Type::Bool => DataType::Boolean,
        fb::Type::Utf8 => DataType::Utf8,
        fb::Type::LargeUtf8 => DataType::LargeUtf8,
        fb::Type::Utf8View => DataType::Utf8View,
        fb::Type::Binary => DataType::Binary,
        fb::Type::LargeBinary => DataType::LargeBinary,
        fb::Type::BinaryView => DataType::BinaryView,
        fb::Type::FixedSizeBinary => {
            let width = field.type_as_fixed_size_binary()?.byteWidth();
            DataType::FixedSizeBinary((width >= 0).then_some(width)?)
        }
        _ => return None,
    })
}

fn numbers(field: fb::Field<'_>) -> Option<DataType> {
    Some(match field.type_type() {
        fb::Type::Int => {
            let int = field.type_as_int()?;
            integer(int.bitWidth(), int.is_signed())?
        }
        fb::Type::FloatingPoint => match field.type_as_floating_point()?.precision() {
            Precision::HALF => DataType::Float16,
            Precision::SINGLE => DataType::Float32,
            Precision::DOUBLE => DataType::Float64,
            _ => return None,
        },
        fb::Type::Decimal => decimal(field.type_as_decimal()?)?,
        fb::Type::Date => match field.type_as_date()?.unit() {
            DateUnit::DAY => DataType::Date32,
            DateUnit::MILLISECOND => DataType::Date64,
            _ => return None,
        },
        fb::Type::Time => {
            let time = field.type_as_time()?;
            let unit = time_unit(time.unit())?;
            match (time.bitWidth(), unit) {
                (32, TimeUnit::Second | TimeUnit::Millisecond) => DataType::Time32(unit),
                (64, TimeUnit::Microsecond | TimeUnit::Nanosecond) => DataType::Time64(unit),
                _ => return None,
            }
        }
        fb::Type::Timestamp => {
            let timestamp = field.type_as_timestamp()?;
            DataType::Timestamp(time_unit(timestamp.unit())?, timestamp.timezone().map(Into::into))
        }
        fb::Type::Duration => DataType::Duration(time_unit(field.type_as_duration()?.unit())?),
        fb::Type::Interval => DataType::Interval(match field.type_as_interval()?.unit() {
            FbInterval::YEAR_MONTH => IntervalUnit::YearMonth,
            FbInterval::DAY_TIME => IntervalUnit::DayTime,
            FbInterval::MONTH_DAY_NANO => IntervalUnit::MonthDayNano,
            _ => return None,
        }),
        _ => return None,
    })
}

fn decimal(decimal: fb::Decimal<'_>) -> Option<DataType> {
    let precision = u8::try_from(decimal.precision()).ok()?;
    let scale = i8::try_from(decimal.scale()).ok()?;
    let (most, made) = match decimal.bitWidth() {
        32 => (9, DataType::Decimal32(precision, scale)),
        64 => (18, DataType::Decimal64(precision, scale)),
        128 => (38, DataType::Decimal128(precision, scale)),
        256 => (76, DataType::Decimal256(precision, scale)),
        _ => return None,
    };
    (1..=most).contains(&precision).then_some(made)
}

const fn time_unit(unit: FbTime) -> Option<TimeUnit> {
    match unit {
        FbTime::SECOND => Some(TimeUnit::Second),
        FbTime::MILLISECOND => Some(TimeUnit::Millisecond),
        FbTime::MICROSECOND => Some(TimeUnit::Microsecond),
        FbTime::NANOSECOND => Some(TimeUnit::Nanosecond),
        _ => None,
    }
}

fn nested(field: fb::Field<'_>, children: Vec<Field>) -> Option<DataType> {
    if field.type_type() == fb::Type::Struct_ {
        return Some(DataType::Struct(Fields::from(children)));
    }
    let [child] = <[Field; 1]>::try_from(children).ok()?;
    Some(match field.type_type() {
        fb::Type::List => DataType::List(Arc::new(child)),
        fb::Type::LargeList => DataType::LargeList(Arc::new(child)),
        fb::Type::FixedSizeList => {
            let size = field.type_as_fixed_size_list()?.listSize();
            DataType::FixedSizeList(Arc::new(child), (size >= 0).then_some(size)?)
        }
        fb::Type::Map => {
            let sorted = field.type_as_map()?.keysSorted();
            let entries = matches!(child.data_type(), DataType::Struct(fields) if fields.len() == 2);
            entries.then(|| DataType::Map(Arc::new(child), sorted))?
        }
        _ => return None,
    })
}
