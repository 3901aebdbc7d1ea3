use bytes::BufMut;
use penstock_wire::{Reader, Writer};

use super::code::{DATA, Version};
use crate::error::{Malformed, Misuse, Result};
use crate::limits::Limits;

/// An event of pairs of strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Data<'a> {
    /// The frame's version.
    pub version: Version,
    /// Its sequence number.
    pub sequence: u32,
    /// Its content.
    pub pairs: Pairs<'a>,
}

/// A key and its value. They should be UTF-8, but that was not checked (decision 9).
pub type Pair<'a> = (&'a [u8], &'a [u8]);

/// The pairs of an event, in the order in which they were sent; keys may occur twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pairs<'a> {
    count: u32,
    rest: &'a [u8],
}

impl Pairs<'_> {
    /// Return the number of bytes of all keys, values and lengths.
    pub const fn bytes(&self) -> usize {
        self.rest.len()
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = Pair<'a>;

    fn next(&mut self) -> Option<Pair<'a>> {
        self.count = self.count.checked_sub(1)?;
        let mut reader = Reader::new(self.rest);
        let pair = (string(&mut reader)?, string(&mut reader)?);
        self.rest = reader.take(reader.remaining()).ok()?;
        Some(pair)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = usize::try_from(self.count).unwrap_or(usize::MAX);
        (count, Some(count))
    }
}

impl ExactSizeIterator for Pairs<'_> {}

fn string<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    let length = reader.u32().ok()?;
    reader.take(usize::try_from(length).ok()?).ok()
}

impl<'a> Data<'a> {
    /// Bytes before the first pair.
    pub(crate) const HEAD: usize = 10;

    /// Reject pairs that are too many, or too long, for an event.
    pub fn check<'p>(pairs: impl ExactSizeIterator<Item = Pair<'p>>, limits: &Limits) -> Result<()> {
        limits.pairs().check(pairs.len() as u64)?;
        let mut bytes = Self::HEAD as u64;
        for (key, value) in pairs {
            limits.key().check(key.len() as u64)?;
            limits.value().check(value.len() as u64)?;
            bytes += (8 + key.len() + value.len()) as u64;
        }
        Ok(limits.data().check(bytes)?)
    }

    /// Append a frame with these pairs.
    ///
    /// Fails as a misuse, appending nothing, if the number of pairs or the length of a string does not fit into its
    /// field.
    pub fn encode<'p, I>(version: Version, sequence: u32, pairs: I, out: &mut impl BufMut) -> Result<()>
    where
        I: IntoIterator<Item = Pair<'p>>,
        I::IntoIter: ExactSizeIterator + Clone,
    {
        let pairs = pairs.into_iter();
        let count = u32::try_from(pairs.len()).map_err(|_| Misuse::PairCount)?;
        if pairs.clone().any(|(key, value)| u32::try_from(key.len().max(value.len())).is_err()) {
            return Err(Misuse::StringLength.into());
        }
        let mut writer = Writer::new(out);
        writer.u8(version.byte());
        writer.u8(DATA);
        writer.u32(sequence);
        writer.u32(count);
        for text in pairs.flat_map(|(key, value)| [key, value]) {
            writer.u32(u32::try_from(text.len()).unwrap_or(u32::MAX));
            writer.bytes(text);
        }
        Ok(())
    }

    pub(super) fn decode(version: Version, reader: &mut Reader<'a>) -> Result<Self> {
        let sequence = reader.u32()?;
        let count = reader.u32()?;
        let rest = reader.take(reader.remaining())?;
        Ok(Self { version, sequence, pairs: Pairs { count, rest } })
    }
}

/// The progress of a scan of an event's pairs, so that an event that arrives byte by byte is scanned only once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PairScan {
    /// The offset after the strings and lengths scanned so far.
    end: usize,
    /// How many strings are not scanned yet, two for each pair.
    strings: u64,
}

impl PairScan {
    /// Begin a scan; `None` until the pair count has arrived.
    pub(super) fn begin(bytes: &[u8], limits: &Limits) -> Result<Option<Self>> {
        let mut reader = Reader::new(bytes.get(6..).unwrap_or_default());
        let Ok(pairs) = reader.u32() else { return Ok(None) };
        limits.pairs().check(pairs.into())?;
        Ok(Some(Self { end: Data::HEAD, strings: u64::from(pairs) * 2 }))
    }

    /// Continue the scan; return the length of the frame once it is complete.
    pub(super) fn scan(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<usize>> {
        while self.strings > 0 {
            let mut reader = Reader::new(bytes.get(self.end..).unwrap_or_default());
            let Ok(length) = reader.u32() else { return Ok(None) };
            let limit = if self.strings.is_multiple_of(2) { limits.key() } else { limits.value() };
            limit.check(length.into())?;
            let end = usize::try_from(length).ok().and_then(|length| self.end.checked_add(4)?.checked_add(length));
            let end = end.ok_or(Malformed::DataLength)?;
            limits.data().check(u64::try_from(end).unwrap_or(u64::MAX))?;
            if bytes.len() < end {
                return Ok(None);
            }
            (self.end, self.strings) = (end, self.strings - 1);
        }
        Ok(Some(self.end))
    }
}
