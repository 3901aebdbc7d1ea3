use bytes::BufMut;
use penstock_wire::{Reader, Writer};

use super::code::{JSON, Version};
use crate::error::{Misuse, Result};
use crate::limits::Limits;

/// An event that is a JSON document, which was not parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Json<'a> {
    /// The frame's version.
    pub version: Version,
    /// Its sequence number.
    pub sequence: u32,
    /// The document.
    pub payload: &'a [u8],
}

impl<'a> Json<'a> {
    /// Bytes before the document.
    pub(crate) const HEAD: usize = 10;

    /// Reject a document that is too long for an event.
    pub fn check(payload: &[u8], limits: &Limits) -> Result<()> {
        Ok(limits.json().check(payload.len() as u64)?)
    }

    /// Append the frame.
    ///
    /// Fails as a misuse if the document's length does not fit into its field.
    pub fn encode(&self, out: &mut impl BufMut) -> Result<()> {
        let length = u32::try_from(self.payload.len()).map_err(|_| Misuse::DocumentLength)?;
        let mut writer = Writer::new(out);
        writer.u8(self.version.byte());
        writer.u8(JSON);
        writer.u32(self.sequence);
        writer.u32(length);
        writer.bytes(self.payload);
        Ok(())
    }

    #[inline]
    pub(super) fn decode(version: Version, reader: &mut Reader<'a>) -> Result<Self> {
        let sequence = reader.u32()?;
        let _length = reader.u32()?;
        let payload = reader.take(reader.remaining())?;
        Ok(Self { version, sequence, payload })
    }

    /// Return the length of the frame at the front of `bytes`, if it is a complete JSON frame within the limit.
    #[inline]
    pub(crate) fn whole(bytes: &[u8], limits: &Limits) -> Option<usize> {
        let [version, JSON, _, _, _, _, a, b, c, d, ..] = *bytes else { return None };
        let length = u32::from_be_bytes([a, b, c, d]);
        let known = Version::from_byte(version).is_some() && u64::from(length) <= limits.value;
        let whole = usize::try_from(length).ok()?.checked_add(Self::HEAD)?;
        (known && whole <= bytes.len()).then_some(whole)
    }

    /// Return the length of the whole frame, once its first ten bytes have arrived.
    pub(super) fn scan(bytes: &[u8], limits: &Limits) -> Result<Option<usize>> {
        let mut reader = Reader::new(bytes.get(6..).unwrap_or_default());
        let Ok(length) = reader.u32() else { return Ok(None) };
        limits.json().check(length.into())?;
        Ok(usize::try_from(length).ok().and_then(|length| length.checked_add(Self::HEAD)))
    }
}
