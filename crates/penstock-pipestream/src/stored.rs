//! Bytes that a process writes for its own next life: what a session knows, field after field.
//!
//! Nothing of it is on the wire. Integers are in base 128, the lowest seven bits first; a list begins with its length,
//! which is checked before memory is taken; a map is in the order of its keys; a moment is how long after the session's
//! beginning it is. A type says by [`stored!`] or [`stored_enum!`] which fields it has, and the compiler that none is
//! missing. Checksums are the store's.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, Hash};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use penstock_wire::Reader;
use prost::Message;

use crate::error::{Error, ErrorCode, Result};
use crate::messages::{ClaimCheck, CompletionPolicy, StoppingPointValidation, decode_message};
use crate::session_id::SessionId;
use crate::status::Status;
use crate::{EntityHeader, Frame, YieldReason};

/// Where fields are written.
#[derive(Debug, Clone)]
pub(crate) struct Out {
    pub(crate) bytes: Vec<u8>,
    /// The session's beginning.
    pub(crate) epoch: Instant,
}

/// Where they are read.
pub(crate) struct In<'a> {
    pub(crate) reader: Reader<'a>,
    pub(crate) epoch: Instant,
}

/// A value that is stored. Every value takes a byte at least.
pub(crate) trait Stored: Sized {
    fn put(&self, out: &mut Out);
    fn take(from: &mut In<'_>) -> Result<Self>;
}

pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::malformed(ErrorCode::InternalError, format!("a stored session: {}", message.into()))
}

impl In<'_> {
    fn bytes(&mut self) -> Result<&[u8]> {
        let length = usize::take(self)?;
        Ok(self.reader.take(length)?)
    }

    /// The length of a list, no longer than what is there.
    fn length(&mut self) -> Result<usize> {
        let length = usize::take(self)?;
        match length <= self.reader.remaining() {
            true => Ok(length),
            false => Err(invalid(format!("a list of {length} in {} bytes", self.reader.remaining()))),
        }
    }
}

impl Out {
    fn bytes(&mut self, bytes: &[u8]) {
        bytes.len().put(self);
        self.bytes.extend_from_slice(bytes);
    }
}

/// The fields of a struct, in their order.
macro_rules! stored {
    ($name:ident $(<$generic:ident>)? { $($field:ident),* $(,)? }) => {
        impl $(<$generic: $crate::stored::Stored>)? $crate::stored::Stored for $name $(<$generic>)? {
            fn put(&self, out: &mut $crate::stored::Out) {
                let Self { $($field),* } = self;
                $($crate::stored::Stored::put($field, out);)*
            }

            fn take(from: &mut $crate::stored::In<'_>) -> $crate::error::Result<Self> {
                Ok(Self { $($field: $crate::stored::Stored::take(from)?),* })
            }
        }
    };
}
pub(crate) use stored;

/// The variants of an enum by number, and their fields.
macro_rules! stored_enum {
    ($name:ident {
        $($tag:literal => $variant:ident $(($($place:ident),*))? $({ $($field:ident),* $(,)? })?),* $(,)?
    }) => {
        impl $crate::stored::Stored for $name {
            fn put(&self, out: &mut $crate::stored::Out) {
                match self {
                    $(Self::$variant $(($($place),*))? $({ $($field),* })? => {
                        out.bytes.push($tag);
                        $($($crate::stored::Stored::put($place, out);)*)?
                        $($($crate::stored::Stored::put($field, out);)*)?
                    })*
                }
            }

            fn take(from: &mut $crate::stored::In<'_>) -> $crate::error::Result<Self> {
                match from.reader.u8()? {
                    $($tag => {
                        $($(let $place = $crate::stored::Stored::take(from)?;)*)?
                        $($(let $field = $crate::stored::Stored::take(from)?;)*)?
                        Ok(Self::$variant $(($($place),*))? $({ $($field),* })?)
                    })*
                    other => Err($crate::stored::invalid(format!("{other} is no {}", stringify!($name)))),
                }
            }
        }
    };
}
pub(crate) use stored_enum;

impl Stored for u64 {
    fn put(&self, out: &mut Out) {
        let mut rest = *self;
        while rest >= 0x80 {
            out.bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.bytes.push(rest as u8);
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = from.reader.u8()?;
            let bits = u64::from(byte & 0x7F);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(invalid("a number above 64 bits"))
    }
}

macro_rules! stored_number {
    ($($number:ty),*) => {
        $(impl Stored for $number {
            fn put(&self, out: &mut Out) {
                (*self as u64).put(out);
            }

            fn take(from: &mut In<'_>) -> Result<Self> {
                let value = u64::take(from)?;
                Self::try_from(value).map_err(|_| invalid(format!("{value} is no {}", stringify!($number))))
            }
        })*
    };
}
stored_number!(u8, u16, u32, usize);

impl Stored for bool {
    fn put(&self, out: &mut Out) {
        u8::from(*self).put(out);
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        Ok(u8::take(from)? != 0)
    }
}

impl Stored for Bytes {
    fn put(&self, out: &mut Out) {
        out.bytes(self);
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        from.bytes().map(Self::copy_from_slice)
    }
}

impl Stored for BytesMut {
    fn put(&self, out: &mut Out) {
        out.bytes(self);
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        from.bytes().map(Self::from)
    }
}

impl Stored for String {
    fn put(&self, out: &mut Out) {
        out.bytes(self.as_bytes());
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        Self::from_utf8(from.bytes()?.to_vec()).map_err(|_| invalid("a text that is not UTF-8"))
    }
}

impl<const N: usize> Stored for [u8; N] {
    fn put(&self, out: &mut Out) {
        out.bytes.extend_from_slice(self);
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        Ok(from.reader.array()?)
    }
}

impl Stored for Duration {
    fn put(&self, out: &mut Out) {
        u64::try_from(self.as_nanos()).unwrap_or(u64::MAX).put(out);
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        u64::take(from).map(Self::from_nanos)
    }
}

impl Stored for Instant {
    fn put(&self, out: &mut Out) {
        self.saturating_duration_since(out.epoch).put(out);
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        let after = Duration::take(from)?;
        from.epoch.checked_add(after).ok_or_else(|| invalid("a moment that is too far away"))
    }
}

impl Stored for f32 {
    fn put(&self, out: &mut Out) {
        self.to_bits().put(out);
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        u32::take(from).map(Self::from_bits)
    }
}

impl<T: Stored> Stored for Option<T> {
    fn put(&self, out: &mut Out) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        match bool::take(from)? {
            true => T::take(from).map(Some),
            false => Ok(None),
        }
    }
}

impl<T: Stored, E: Stored> Stored for std::result::Result<T, E> {
    fn put(&self, out: &mut Out) {
        self.is_ok().put(out);
        match self {
            Ok(value) => value.put(out),
            Err(error) => error.put(out),
        }
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        match bool::take(from)? {
            true => T::take(from).map(Ok),
            false => E::take(from).map(Err),
        }
    }
}

impl<T: Stored> Stored for Box<T> {
    fn put(&self, out: &mut Out) {
        (**self).put(out);
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        T::take(from).map(Self::new)
    }
}

impl<A: Stored, B: Stored> Stored for (A, B) {
    fn put(&self, out: &mut Out) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        Ok((A::take(from)?, B::take(from)?))
    }
}

impl<A: Stored, B: Stored, C: Stored> Stored for (A, B, C) {
    fn put(&self, out: &mut Out) {
        self.0.put(out);
        self.1.put(out);
        self.2.put(out);
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        Ok((A::take(from)?, B::take(from)?, C::take(from)?))
    }
}

macro_rules! stored_list {
    ($($list:ident),*) => {
        $(impl<T: Stored> Stored for $list<T> {
            fn put(&self, out: &mut Out) {
                self.len().put(out);
                self.iter().for_each(|value| value.put(out));
            }

            fn take(from: &mut In<'_>) -> Result<Self> {
                (0..from.length()?).map(|_| T::take(from)).collect()
            }
        })*
    };
}
stored_list!(Vec, VecDeque);

impl<T: Stored + Ord> Stored for BTreeSet<T> {
    fn put(&self, out: &mut Out) {
        self.len().put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        (0..from.length()?).map(|_| T::take(from)).collect()
    }
}

impl<K: Stored + Ord, V: Stored> Stored for BTreeMap<K, V> {
    fn put(&self, out: &mut Out) {
        self.len().put(out);
        for (key, value) in self {
            key.put(out);
            value.put(out);
        }
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        (0..from.length()?).map(|_| Stored::take(from)).collect()
    }
}

impl<K: Stored + Ord + Hash, V: Stored, S: BuildHasher + Default> Stored for HashMap<K, V, S> {
    fn put(&self, out: &mut Out) {
        let mut entries: Vec<(&K, &V)> = self.iter().collect();
        entries.sort_unstable_by_key(|(key, _)| *key);
        entries.len().put(out);
        for (key, value) in entries {
            key.put(out);
            value.put(out);
        }
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        (0..from.length()?).map(|_| Stored::take(from)).collect()
    }
}

macro_rules! stored_message {
    ($($message:ty),*) => {
        $(impl Stored for $message {
            fn put(&self, out: &mut Out) {
                out.bytes(&self.encode_to_vec());
            }

            fn take(from: &mut In<'_>) -> Result<Self> {
                decode_message(from.bytes()?)
            }
        })*
    };
}
stored_message!(ClaimCheck, CompletionPolicy, StoppingPointValidation);

impl Stored for Frame {
    fn put(&self, out: &mut Out) {
        out.bytes(&self.encode_to_vec());
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        let bytes = from.bytes()?;
        let whole = Self::decode_layer2(bytes)?.filter(|(_, length)| *length == bytes.len());
        whole.map(|(frame, _)| frame).ok_or_else(|| invalid("a frame that is not whole"))
    }
}

impl Stored for EntityHeader {
    fn put(&self, out: &mut Out) {
        out.bytes(self.encode().get(Self::LENGTH_FIELD..).unwrap_or_default());
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        Self::parse(from.bytes()?)
    }
}

impl Stored for Status {
    fn put(&self, out: &mut Out) {
        out.bytes.push(self.code());
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        Self::try_from(from.reader.u8()?)
    }
}

impl Stored for YieldReason {
    fn put(&self, out: &mut Out) {
        out.bytes.push(self.code());
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        Self::try_from(from.reader.u8()?)
    }
}

impl Stored for ErrorCode {
    fn put(&self, out: &mut Out) {
        self.code().put(out);
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        u64::take(from).map(Self::from_code)
    }
}

impl Stored for SessionId {
    fn put(&self, out: &mut Out) {
        self.bytes().put(out);
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        Stored::take(from).map(Self::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back<T: Stored + PartialEq + std::fmt::Debug>(value: T) -> usize {
        let mut out = Out { bytes: Vec::new(), epoch: Instant::now() };
        value.put(&mut out);
        let mut from = In { reader: Reader::new(&out.bytes), epoch: out.epoch };
        assert_eq!(T::take(&mut from).expect("stored"), value);
        assert!(from.reader.is_empty());
        for length in 0..out.bytes.len() {
            let cut = out.bytes.get(..length).expect("shorter");
            assert!(T::take(&mut In { reader: Reader::new(cut), epoch: out.epoch }).is_err(), "{length} of {value:?}");
        }
        out.bytes.len()
    }

    #[test]
    fn values_come_back_and_are_missed_when_cut_off() {
        for value in [0, 1, 0x7F, 0x80, 0x3FFF, 0x4000, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            there_and_back(value);
        }
        assert_eq!((there_and_back(127_u32), there_and_back(128_u16), there_and_back(u64::MAX)), (1, 2, 10));
        there_and_back(Some(vec![(1_u8, true), (2, false)]));
        there_and_back(HashMap::<u32, String>::from([(7, "seven".to_owned()), (1, String::new())]));
        there_and_back(BTreeSet::from([[1_u8, 2], [3, 4]]));
        there_and_back(Err::<u8, f32>(0.75));
        there_and_back(Instant::now() + Duration::from_secs(9));
        there_and_back(Frame::Private(0xE0));
    }

    #[test]
    fn a_list_takes_no_more_memory_than_there_are_bytes() {
        let bytes = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F];
        let mut from = In { reader: Reader::new(&bytes), epoch: Instant::now() };
        assert!(Vec::<u8>::take(&mut from).is_err());
        let above = [0xFF; 11];
        assert!(u64::take(&mut In { reader: Reader::new(&above), epoch: Instant::now() }).is_err());
    }
}
