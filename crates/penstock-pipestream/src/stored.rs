//! The encoding of a session's records, which the next process reads: postcard's format.
//!
//! The wire does not use it. A type derives serde's traits, and its fields are written in their
//! order: a changed order requires a new version of the records. This file has the reader and the
//! writer of a record, and `forms.rs` the types that need a custom form. The store adds checksums.

mod forms;

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};

pub(crate) use self::forms::{answer, deadlines, expiries, optional_answer, optional_token};
use crate::error::{Result, StoredError};

thread_local! {
    /// The beginning of the session whose record this thread writes or reads, because serde's traits take no argument
    /// for it.
    static EPOCH: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// A record that is being written.
#[derive(Debug, Clone)]
pub(crate) struct RecordWriter {
    pub(crate) bytes: Vec<u8>,
    /// The session's beginning.
    pub(crate) epoch: Instant,
}

/// The unread rest of a record.
pub(crate) struct RecordReader<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) epoch: Instant,
}

impl RecordWriter {
    pub(crate) fn put(&mut self, value: &impl Serialize) {
        EPOCH.set(Some(self.epoch));
        // This fails only for a list of unknown length, which no record contains. Otherwise the
        // record would lose the bytes written before and be rejected when it is read.
        match postcard::to_extend(value, std::mem::take(&mut self.bytes)) {
            Ok(bytes) => self.bytes = bytes,
            Err(error) => debug_assert!(false, "{error}"),
        }
    }
}

impl<'a> RecordReader<'a> {
    pub(crate) fn take<T: Deserialize<'a>>(&mut self) -> Result<T> {
        EPOCH.set(Some(self.epoch));
        let (value, rest) = postcard::take_from_bytes(self.bytes).map_err(StoredError::Encoding)?;
        self.bytes = rest;
        Ok(value)
    }
}

/// Implement serde's traits for types that are stored as another type.
macro_rules! written_as {
    ($($type:ty as $form:ty: $to:expr, $from:expr;)*) => {
        $(impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serde::Serialize::serialize(&$to(self), serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let form = <$form as serde::Deserialize>::deserialize(deserializer)?;
                $from(form).map_err(serde::de::Error::custom)
            }
        })*
    };
}
pub(crate) use written_as;

/// Bytes, which serde would otherwise write as a list of numbers.
pub(crate) struct AsBytes<T>(pub(crate) T);

impl<T: AsRef<[u8]>> Serialize for AsBytes<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0.as_ref())
    }
}

/// A moment, written as the nanoseconds from the session's beginning.
pub(crate) struct Moment(pub(crate) Instant);

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let epoch = EPOCH.get().ok_or_else(|| ser::Error::custom("a moment outside of a record"))?;
        duration_nanos(&self.0.saturating_duration_since(epoch)).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let after = Duration::from_nanos(u64::deserialize(deserializer)?);
        let moment = EPOCH.get().and_then(|epoch| epoch.checked_add(after));
        moment.map(Self).ok_or_else(|| D::Error::custom("a moment that is too far away"))
    }
}

/// Return the nanoseconds of a duration, at most `u64::MAX`.
pub(crate) fn duration_nanos(duration: &Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Make a module for `#[serde(with)]` for each type of fields that are stored as another type.
macro_rules! fields_as {
    ($($name:ident: $type:ty as $form:ty, $to:expr, $from:expr;)*) => {
        $(pub(crate) mod $name {
            use super::*;

            pub(crate) fn serialize<S: Serializer>(value: &$type, serializer: S) -> Result<S::Ok, S::Error> {
                $to(value).serialize(serializer)
            }

            pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                <$form>::deserialize(deserializer).map($from)
            }
        })*
    };
}

pub(crate) use fields_as;

fields_as! {
    moment: Instant as Moment, |moment: &Instant| Moment(*moment), |moment| moment.0;
    optional_moment: Option<Instant> as Option<Moment>,
        |moment: &Option<Instant>| moment.map(Moment), |moment| moment.map(|moment| moment.0);
    nanos: Duration as u64, duration_nanos, Duration::from_nanos;
    optional_nanos: Option<Duration> as Option<u64>,
        |duration: &Option<Duration>| duration.as_ref().map(duration_nanos), |nanos| nanos.map(Duration::from_nanos);
    bits: f32 as u32, |number: &f32| number.to_bits(), f32::from_bits;
    byte_string: Bytes as &[u8], AsBytes, Bytes::copy_from_slice;
    optional_bytes: Option<Bytes> as Option<&[u8]>,
        |bytes: &Option<Bytes>| bytes.clone().map(AsBytes), |bytes| bytes.map(Bytes::copy_from_slice);
    buffer: BytesMut as &[u8], AsBytes, BytesMut::from;
}

/// Return the entries of an unordered map, ordered by key.
pub(crate) fn by_key<K: Ord, V, H>(map: &HashMap<K, V, H>) -> BTreeMap<&K, &V> {
    map.iter().collect()
}

/// Write the entries of an unordered map, ordered by key.
pub(crate) fn in_order<K: Ord + Serialize, V: Serialize, H, S: Serializer>(
    map: &HashMap<K, V, H>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    by_key(map).serialize(serializer)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, VecDeque};
    use std::fmt::Debug;

    use serde::de::DeserializeOwned;

    use super::forms::{Claimed, resolution_state};
    use super::*;
    use crate::error::ErrorCode;
    use crate::{Frame, Reason, Status};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Fields {
        #[serde(with = "moment")]
        moment: Instant,
        #[serde(with = "optional_nanos")]
        nanos: Option<Duration>,
        #[serde(with = "bits")]
        bits: f32,
        #[serde(with = "byte_string")]
        bytes: Bytes,
        #[serde(with = "answer")]
        answer: Claimed,
        #[serde(serialize_with = "in_order")]
        map: HashMap<u32, String>,
    }

    fn there_and_back<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: T) -> Vec<u8> {
        let mut record = RecordWriter { bytes: Vec::new(), epoch: Instant::now() };
        record.put(&value);
        let mut from = RecordReader { bytes: &record.bytes, epoch: record.epoch };
        assert_eq!(from.take::<T>(), Ok(value));
        assert!(from.bytes.is_empty());
        for length in 0..record.bytes.len() {
            let cut = record.bytes.get(..length).expect("shorter");
            assert!(RecordReader { bytes: cut, epoch: record.epoch }.take::<T>().is_err(), "{length}");
        }
        record.bytes
    }

    #[test]
    fn values_come_back_and_are_missed_when_cut_off() {
        let lengths = [0, 1, 0x7F, 0x80, 0x3FFF, 0x4000, u64::MAX - 1, u64::MAX].map(|n| there_and_back(n).len());
        assert_eq!(lengths, [1, 1, 1, 2, 2, 3, 10, 10]);
        there_and_back(Some(vec![(Status::Pending, true), (Status::Abandoned, false)]));
        there_and_back(BTreeSet::from([[1_u8, 2], [3, 0xFF]]));
        there_and_back(Frame::Private(0xE0));
        for code in 1..5 {
            assert_eq!(there_and_back(resolution_state(code).expect("a state")), [code]);
        }
        assert_eq!(there_and_back(ErrorCode::Other(0x1_00)), [0x80, 2]);
        there_and_back(Fields {
            moment: Instant::now() + Duration::from_secs(9),
            nanos: Some(Duration::from_nanos(300)),
            bits: 0.75,
            bytes: Bytes::from_static(&[0x80, 0xFF]),
            answer: Err(Reason { code: ErrorCode::NoError, message: "no".to_owned() }),
            map: HashMap::from([(7, "seven".to_owned()), (1, String::new())]),
        });
    }

    /// The length of a list is checked: no memory is allocated for more than the bytes allow.
    #[test]
    fn a_list_takes_no_more_memory_than_there_are_bytes() {
        let long = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F];
        let mut from = RecordReader { bytes: &long, epoch: Instant::now() };
        assert!(from.take::<Vec<[u8; 32]>>().is_err() && from.take::<&[u8]>().is_err());
        assert!(from.take::<HashMap<u64, Vec<u64>>>().is_err() && from.take::<VecDeque<u64>>().is_err());
        assert!(RecordReader { bytes: &[0xFF; 11], epoch: Instant::now() }.take::<u64>().is_err());
    }
}
