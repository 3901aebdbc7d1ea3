//! The columns of a typed layout. Each appends a JSON value or a text if it fits.

use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float32Builder, Float64Builder, Int8Builder,
    Int16Builder, Int32Builder, Int64Builder, NullBufferBuilder, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow_array::{ArrayRef, ListArray, MapArray, StructArray};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, TimeUnit};
use chrono::{DateTime, NaiveDate};
use jiter::{Jiter, JiterResult, Peek};

use crate::{Misuse, Result};

/// The deepest nesting of a schema.
const MAX_DEPTH: usize = 32;

/// A column, or the values inside a nested one.
#[derive(Debug)]
pub(super) enum Cell {
    Text(StringBuilder),
    Bool(BooleanBuilder),
    I8(Int8Builder),
    I16(Int16Builder),
    I32(Int32Builder),
    I64(Int64Builder),
    F32(Float32Builder),
    F64(Float64Builder),
    Time(TimestampMicrosecondBuilder),
    Date(Date32Builder),
    Decimal(Box<Decimal>),
    List(Box<List>),
    Struct(Box<Struct>),
    Map(Box<Map>),
}

#[derive(Debug)]
pub(super) struct Decimal {
    values: Decimal128Builder,
    precision: u8,
    scale: u8,
}

#[derive(Debug)]
pub(super) struct List {
    field: FieldRef,
    offsets: Vec<i32>,
    nulls: NullBufferBuilder,
    values: Cell,
}

#[derive(Debug)]
pub(super) struct Struct {
    fields: Fields,
    nulls: NullBufferBuilder,
    rows: usize,
    children: Vec<Cell>,
}

#[derive(Debug)]
pub(super) struct Map {
    entries: FieldRef,
    offsets: Vec<i32>,
    nulls: NullBufferBuilder,
    keys: StringBuilder,
    values: Cell,
}

/// Check that JSON values can be converted into a column of this type; the error names it.
#[allow(clippy::wildcard_enum_match_arm)] // Arrow has many more types.
pub(super) fn check(name: &str, data_type: &DataType, depth: usize) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(Misuse::NestedColumn { column: name.to_owned(), limit: MAX_DEPTH }.into());
    }
    let inner = |field: &Field| check(&format!("{name}.{}", field.name()), field.data_type(), depth + 1);
    match data_type {
        DataType::List(field) => inner(field),
        DataType::Struct(fields) => fields.iter().try_for_each(|field| inner(field)),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(pair) if pair.first().is_some_and(|key| *key.data_type() == DataType::Utf8) => {
                pair.iter().skip(1).try_for_each(|field| inner(field))
            }
            other => Err(Misuse::MapColumn { column: name.to_owned(), found: other.clone() }.into()),
        },
        simple => match Cell::simple(simple) {
            Some(_) => Ok(()),
            None => Err(Misuse::ColumnType { column: name.to_owned(), found: simple.clone() }.into()),
        },
    }
}

impl Cell {
    #[allow(clippy::wildcard_enum_match_arm)] // Arrow has many more types.
    pub(super) fn new(data_type: &DataType) -> Self {
        match data_type {
            DataType::List(field) => Self::List(Box::new(List {
                field: Arc::clone(field),
                offsets: vec![0],
                nulls: NullBufferBuilder::new(0),
                values: Self::new(field.data_type()),
            })),
            DataType::Struct(fields) => Self::Struct(Box::new(Struct {
                fields: fields.clone(),
                nulls: NullBufferBuilder::new(0),
                rows: 0,
                children: fields.iter().map(|field| Self::new(field.data_type())).collect(),
            })),
            DataType::Map(entries, _) => {
                let value = match entries.data_type() {
                    DataType::Struct(pair) => pair.get(1).map_or(DataType::Utf8, |value| value.data_type().clone()),
                    // `check` has rejected this.
                    _ => DataType::Utf8,
                };
                Self::Map(Box::new(Map {
                    entries: Arc::clone(entries),
                    offsets: vec![0],
                    nulls: NullBufferBuilder::new(0),
                    keys: StringBuilder::new(),
                    values: Self::new(&value),
                }))
            }
            simple => Self::simple(simple).unwrap_or_else(|| Self::Text(StringBuilder::new())),
        }
    }

    #[allow(clippy::wildcard_enum_match_arm)] // Arrow has many more types.
    fn simple(data_type: &DataType) -> Option<Self> {
        Some(match data_type {
            DataType::Utf8 => Self::Text(StringBuilder::new()),
            DataType::Boolean => Self::Bool(BooleanBuilder::new()),
            DataType::Int8 => Self::I8(Int8Builder::new()),
            DataType::Int16 => Self::I16(Int16Builder::new()),
            DataType::Int32 => Self::I32(Int32Builder::new()),
            DataType::Int64 => Self::I64(Int64Builder::new()),
            DataType::Float32 => Self::F32(Float32Builder::new()),
            DataType::Float64 => Self::F64(Float64Builder::new()),
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                Self::Time(TimestampMicrosecondBuilder::new().with_data_type(data_type.clone()))
            }
            DataType::Date32 => Self::Date(Date32Builder::new()),
            DataType::Decimal128(precision, scale) => Self::Decimal(Box::new(Decimal {
                values: Decimal128Builder::new().with_precision_and_scale(*precision, *scale).ok()?,
                precision: *precision,
                scale: u8::try_from(*scale).ok()?,
            })),
            _ => return None,
        })
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Text(column) => column.len(),
            Self::Bool(column) => column.len(),
            Self::I8(column) => column.len(),
            Self::I16(column) => column.len(),
            Self::I32(column) => column.len(),
            Self::I64(column) => column.len(),
            Self::F32(column) => column.len(),
            Self::F64(column) => column.len(),
            Self::Time(column) => column.len(),
            Self::Date(column) => column.len(),
            Self::Decimal(decimal) => decimal.values.len(),
            Self::List(list) => list.offsets.len() - 1,
            Self::Struct(row) => row.rows,
            Self::Map(map) => map.offsets.len() - 1,
        }
    }

    pub(super) fn null(&mut self) {
        match self {
            Self::Text(column) => column.append_null(),
            Self::Bool(column) => column.append_null(),
            Self::I8(column) => column.append_null(),
            Self::I16(column) => column.append_null(),
            Self::I32(column) => column.append_null(),
            Self::I64(column) => column.append_null(),
            Self::F32(column) => column.append_null(),
            Self::F64(column) => column.append_null(),
            Self::Time(column) => column.append_null(),
            Self::Date(column) => column.append_null(),
            Self::Decimal(decimal) => decimal.values.append_null(),
            Self::List(list) => list.end(false),
            Self::Struct(row) => row.end(false),
            Self::Map(map) => map.end(false),
        }
    }

    /// Append a value, or null if it does not fit. The row is appended even after an error.
    pub(super) fn put(&mut self, json: &mut Jiter<'_>, peek: Peek) -> JiterResult<bool> {
        let row = self.len();
        let result = self.try_put(json, peek);
        if self.len() == row {
            self.null();
        }
        result
    }

    fn try_put(&mut self, json: &mut Jiter<'_>, peek: Peek) -> JiterResult<bool> {
        if peek == Peek::Null {
            json.known_null()?;
            return Ok(true);
        }
        match self {
            Self::List(list) if peek == Peek::Array => return list.put(json),
            Self::Struct(row) if peek == Peek::Object => return row.put(json),
            Self::Map(map) if peek == Peek::Object => return map.put(json),
            Self::Text(column) => {
                if peek == Peek::String {
                    column.append_value(json.known_str()?);
                } else {
                    let start = json.current_index();
                    json.known_skip(peek)?;
                    // The whole document was checked to be UTF-8.
                    column.append_option(std::str::from_utf8(json.slice_to_current(start)).ok());
                }
                return Ok(true);
            }
            Self::Bool(column) if peek == Peek::True || peek == Peek::False => {
                column.append_value(json.known_bool(peek)?);
                return Ok(true);
            }
            Self::F32(_) | Self::F64(_) if peek.is_num() => {
                let value = json.known_float(peek)?;
                return Ok(self.float(value));
            }
            Self::I8(_) | Self::I16(_) | Self::I32(_) | Self::I64(_) if peek.is_num() => {
                let digits = std::str::from_utf8(json.known_number_bytes(peek)?).ok();
                // A number beyond 64 bits, or with a decimal point, does not fit.
                return Ok(digits.and_then(|digits| digits.parse().ok()).is_some_and(|value| self.integer(value)));
            }
            Self::Time(_) | Self::Date(_) if peek == Peek::String => {
                let text = json.known_str()?;
                return Ok(self.moment(text));
            }
            // A string is accepted too: amounts of money are sent that way to avoid floats.
            Self::Decimal(decimal) if peek == Peek::String => return Ok(decimal.put(json.known_str()?)),
            Self::Decimal(decimal) if peek.is_num() => {
                let digits = std::str::from_utf8(json.known_number_bytes(peek)?).ok();
                return Ok(digits.is_some_and(|digits| decimal.put(digits)));
            }
            Self::Bool(_)
            | Self::I8(_)
            | Self::I16(_)
            | Self::I32(_)
            | Self::I64(_)
            | Self::F32(_)
            | Self::F64(_)
            | Self::Time(_)
            | Self::Date(_)
            | Self::Decimal(_)
            | Self::List(_)
            | Self::Struct(_)
            | Self::Map(_) => {}
        }
        json.known_skip(peek)?;
        Ok(false)
    }

    /// Append the text value of a pair.
    pub(super) fn put_text(&mut self, text: &str) -> bool {
        let fits = match self {
            Self::Text(column) => {
                column.append_value(text);
                true
            }
            Self::Bool(column) => text.parse().is_ok_and(|value| {
                column.append_value(value);
                true
            }),
            Self::I8(_) | Self::I16(_) | Self::I32(_) | Self::I64(_) => {
                text.parse().is_ok_and(|value| self.integer(value))
            }
            Self::F32(_) | Self::F64(_) => text.parse().is_ok_and(|value| self.float(value)),
            Self::Time(_) | Self::Date(_) => self.moment(text),
            Self::Decimal(decimal) => decimal.put(text),
            Self::List(_) | Self::Struct(_) | Self::Map(_) => false,
        };
        if !fits {
            self.null();
        }
        fits
    }

    fn integer(&mut self, value: i64) -> bool {
        match self {
            Self::I8(column) => i8::try_from(value).map(|value| column.append_value(value)).is_ok(),
            Self::I16(column) => i16::try_from(value).map(|value| column.append_value(value)).is_ok(),
            Self::I32(column) => i32::try_from(value).map(|value| column.append_value(value)).is_ok(),
            Self::I64(column) => {
                column.append_value(value);
                true
            }
            Self::Text(_)
            | Self::Bool(_)
            | Self::F32(_)
            | Self::F64(_)
            | Self::Time(_)
            | Self::Date(_)
            | Self::Decimal(_)
            | Self::List(_)
            | Self::Struct(_)
            | Self::Map(_) => false,
        }
    }

    fn float(&mut self, value: f64) -> bool {
        #[allow(clippy::cast_possible_truncation)]
        let narrow = value as f32;
        match self {
            Self::F64(column) if value.is_finite() => column.append_value(value),
            Self::F32(column) if narrow.is_finite() => column.append_value(narrow),
            Self::F32(_)
            | Self::F64(_)
            | Self::Text(_)
            | Self::Bool(_)
            | Self::I8(_)
            | Self::I16(_)
            | Self::I32(_)
            | Self::I64(_)
            | Self::Time(_)
            | Self::Date(_)
            | Self::Decimal(_)
            | Self::List(_)
            | Self::Struct(_)
            | Self::Map(_) => return false,
        }
        true
    }

    /// Parse a time of RFC 3339, or a date.
    fn moment(&mut self, text: &str) -> bool {
        match self {
            Self::Time(column) => DateTime::parse_from_rfc3339(text).is_ok_and(|time| {
                column.append_value(time.timestamp_micros());
                true
            }),
            Self::Date(column) => NaiveDate::parse_from_str(text, "%Y-%m-%d").is_ok_and(|day| {
                column.append_value(day.to_epoch_days());
                true
            }),
            Self::Text(_)
            | Self::Bool(_)
            | Self::I8(_)
            | Self::I16(_)
            | Self::I32(_)
            | Self::I64(_)
            | Self::F32(_)
            | Self::F64(_)
            | Self::Decimal(_)
            | Self::List(_)
            | Self::Struct(_)
            | Self::Map(_) => false,
        }
    }

    pub(super) fn finish(&mut self) -> std::result::Result<ArrayRef, ArrowError> {
        Ok(match self {
            Self::Text(column) => Arc::new(column.finish()),
            Self::Bool(column) => Arc::new(column.finish()),
            Self::I8(column) => Arc::new(column.finish()),
            Self::I16(column) => Arc::new(column.finish()),
            Self::I32(column) => Arc::new(column.finish()),
            Self::I64(column) => Arc::new(column.finish()),
            Self::F32(column) => Arc::new(column.finish()),
            Self::F64(column) => Arc::new(column.finish()),
            Self::Time(column) => Arc::new(column.finish()),
            Self::Date(column) => Arc::new(column.finish()),
            Self::Decimal(decimal) => Arc::new(decimal.values.finish()),
            Self::List(list) => {
                let values = list.values.finish()?;
                let offsets = offsets(&mut list.offsets);
                Arc::new(ListArray::try_new(Arc::clone(&list.field), offsets, values, list.nulls.finish())?)
            }
            Self::Struct(row) => {
                let children = row.children.iter_mut().map(Self::finish).collect::<std::result::Result<Vec<_>, _>>()?;
                let rows = std::mem::take(&mut row.rows);
                let nulls = row.nulls.finish();
                Arc::new(StructArray::try_new_with_length(row.fields.clone(), children, nulls, rows)?)
            }
            Self::Map(map) => {
                let columns: Vec<ArrayRef> = vec![Arc::new(map.keys.finish()), map.values.finish()?];
                // `check` has rejected every other type.
                let DataType::Struct(fields) = map.entries.data_type() else {
                    return Err(ArrowError::SchemaError("a map without entries".into()));
                };
                let entries = StructArray::try_new(fields.clone(), columns, None)?;
                let offsets = offsets(&mut map.offsets);
                Arc::new(MapArray::try_new(Arc::clone(&map.entries), offsets, entries, map.nulls.finish(), false)?)
            }
        })
    }
}

impl Decimal {
    /// Append a number in decimal notation. A number with more digits, before or after the point,
    /// does not fit: it is not rounded.
    fn put(&mut self, text: &str) -> bool {
        match scaled(text, self.precision, self.scale) {
            Some(value) => {
                self.values.append_value(value);
                true
            }
            None => false,
        }
    }
}

/// Return the number times ten to the power of the scale, if that is an integer within the precision.
fn scaled(text: &str, precision: u8, scale: u8) -> Option<i128> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (negative, digits) = match mantissa.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, mantissa),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty()
        || digits.ends_with('.')
        || !whole.bytes().chain(part.bytes()).all(|digit| digit.is_ascii_digit())
    {
        return None;
    }
    // Leading and trailing zeros do not count as digits.
    let part = part.trim_end_matches('0');
    let all = [whole, part].concat();
    let all = all.trim_start_matches('0');
    if all.is_empty() {
        return Some(0);
    }
    let significant = all.trim_end_matches('0');
    let zeros = i64::try_from(all.len() - significant.len()).ok()?;
    // The exponent of ten for the significant digits.
    let power = i64::from(exponent) - i64::try_from(part.len()).ok()? + zeros + i64::from(scale);
    let power = usize::try_from(power).ok()?;
    if significant.len().checked_add(power)? > usize::from(precision) {
        return None;
    }
    let value = significant.parse::<i128>().ok()?.checked_mul(10_i128.checked_pow(u32::try_from(power).ok()?)?)?;
    Some(if negative { -value } else { value })
}

fn offsets(offsets: &mut Vec<i32>) -> OffsetBuffer<i32> {
    OffsetBuffer::new(ScalarBuffer::from(std::mem::replace(offsets, vec![0])))
}

fn end_of(length: usize) -> i32 {
    // A batch ends long before 2^31 values.
    i32::try_from(length).unwrap_or(i32::MAX)
}

impl List {
    fn put(&mut self, json: &mut Jiter<'_>) -> JiterResult<bool> {
        let result = self.elements(json);
        self.end(true);
        result
    }

    fn elements(&mut self, json: &mut Jiter<'_>) -> JiterResult<bool> {
        let mut fits = true;
        let mut next = json.known_array()?;
        while let Some(peek) = next {
            fits &= self.values.put(json, peek)?;
            next = json.array_step()?;
        }
        Ok(fits)
    }

    fn end(&mut self, valid: bool) {
        self.offsets.push(end_of(self.values.len()));
        self.nulls.append(valid);
    }
}

impl Struct {
    fn put(&mut self, json: &mut Jiter<'_>) -> JiterResult<bool> {
        let result = self.members(json);
        self.end(true);
        result
    }

    fn members(&mut self, json: &mut Jiter<'_>) -> JiterResult<bool> {
        let (row, mut fits, mut guess) = (self.rows, true, 0);
        let mut key = json.known_object()?;
        while let Some(name) = key {
            let found = find(&self.fields, name, guess);
            let peek = json.peek()?;
            // The second value of a repeated field is not stored.
            match found.and_then(|index| self.children.get_mut(index)).filter(|child| child.len() == row) {
                Some(child) => fits &= child.put(json, peek)?,
                None => {
                    json.known_skip(peek)?;
                    fits = false;
                }
            }
            guess = found.map_or(guess, |index| index + 1);
            key = json.next_key()?;
        }
        Ok(fits)
    }

    fn end(&mut self, valid: bool) {
        self.rows += 1;
        for child in self.children.iter_mut().filter(|child| child.len() < self.rows) {
            child.null();
        }
        self.nulls.append(valid);
    }
}

/// Return the index of a field by its name. Most writers use the order of the schema, so `guess` is
/// tried first.
fn find(fields: &Fields, name: &str, guess: usize) -> Option<usize> {
    if fields.get(guess).is_some_and(|field| field.name() == name) {
        return Some(guess);
    }
    fields.iter().position(|field| field.name() == name)
}

impl Map {
    fn put(&mut self, json: &mut Jiter<'_>) -> JiterResult<bool> {
        let result = self.entries(json);
        self.end(true);
        result
    }

    fn entries(&mut self, json: &mut Jiter<'_>) -> JiterResult<bool> {
        let mut fits = true;
        let mut key = json.known_object()?;
        while let Some(name) = key {
            self.keys.append_value(name);
            let value = json.peek().and_then(|peek| self.values.put(json, peek));
            if self.values.len() < self.keys.len() {
                self.values.null();
            }
            fits &= value?;
            key = json.next_key()?;
        }
        Ok(fits)
    }

    fn end(&mut self, valid: bool) {
        self.offsets.push(end_of(self.keys.len()));
        self.nulls.append(valid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_takes_what_it_can_keep_to_the_last_digit() {
        for (text, value) in [
            ("12.34", Some(1234)),
            ("-0.5", Some(-50)),
            ("7", Some(700)),
            ("1e2", Some(10_000)),
            ("1.5E-1", Some(15)),
            ("100e-4", Some(1)),
            ("0.000", Some(0)),
            ("-0", Some(0)),
            ("999.99", Some(99_999)),
            ("0012.340", Some(1234)),
            ("1000", None),
            ("0.001", None),
            ("1e999999999", None),
            ("1e-999999999", None),
            ("1e99999999999", None),
            ("", None),
            (".5", None),
            ("5.", None),
            ("1 ", None),
            ("+1", None),
            ("١", None),
            ("NaN", None),
        ] {
            assert_eq!(scaled(text, 5, 2), value, "{text}");
        }
        let nines = "9".repeat(38);
        assert_eq!(scaled(&nines, 38, 0), nines.parse().ok());
        assert_eq!(scaled(&format!("{nines}9"), 38, 0), None);
    }
}
