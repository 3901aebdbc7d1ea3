use penstock_wire::{Reader, Truncated};

use super::task::check_type;
use crate::error::{Malformed, Misuse, Result};

/// The payload of SUBSCRIBE: types, each after its length. It is an iterator over the types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Types<'a> {
    rest: &'a [u8],
}

impl<'a> Types<'a> {
    /// Collect types into a payload.
    ///
    /// Fails as a misuse if a type is empty or longer than 255 bytes.
    pub fn collect(types: &[&[u8]], out: &'a mut Vec<u8>) -> Result<Self> {
        for kind in types {
            let length = u8::try_from(kind.len()).ok().filter(|length| *length > 0);
            out.push(length.ok_or(Misuse::TypeLength(kind.len()))?);
            out.extend_from_slice(kind);
        }
        Ok(Self { rest: out })
    }

    pub(super) const fn bytes(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn decode(reader: &mut Reader<'a>) -> std::result::Result<Self, Truncated> {
        Ok(Self { rest: reader.take(reader.remaining())? })
    }

    pub(super) fn check(&self) -> Result<(), Malformed> {
        let mut types = *self;
        while !types.rest.is_empty() {
            check_type(types.next().ok_or(Malformed::SubscribeEnd)?)?;
        }
        Ok(())
    }
}

impl<'a> Iterator for Types<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.rest.split_first()?;
        let (kind, rest) = rest.split_at_checked(usize::from(*length))?;
        self.rest = rest;
        Some(kind)
    }
}
