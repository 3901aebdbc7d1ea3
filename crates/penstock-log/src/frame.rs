//! The heads and bodies of records.

use std::hash::Hasher as _;

use twox_hash::XxHash3_64;
use twox_hash::xxhash3_64::{DEFAULT_SECRET_LENGTH, RawHasher, SecretBuffer};

/// The engine's label of a record, which is in its head.
pub type Label = [u8; 16];

/// The number of bytes before a body.
pub(crate) const HEAD: usize = 32;
/// The number of bytes after a body.
pub(crate) const TAIL: usize = 8;
/// The number of bytes of a head that its hash covers.
const HASHED: usize = HEAD - 8;
/// The longest body, in bytes.
pub const LONGEST: usize = 1 << 31;
/// The length that makes a head a seal.
const SEAL: u32 = u32::MAX;

/// What follows a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// The body of a record, of this many bytes.
    Body(u32),
    /// Nothing: the head is not that of a record, and only says how many bytes are synced.
    Seal,
}

/// The head of a record or of a seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// What follows it.
    pub length: Length,
    /// The number of bytes of the segment that were synced when the head was written.
    pub synced: u64,
    /// The engine's label.
    pub label: Label,
}

/// The layout of records in a segment. An engine that reads segments of an earlier format implements it for them.
pub trait Framing {
    /// Return the length of a segment's header.
    fn header(&self) -> usize;

    /// Take the whole segment, before any other call. Return its end, if that is known without a
    /// later segment: bytes after the end were never acknowledged, and all bytes before it were
    /// synced.
    fn end(&mut self, _segment: &[u8]) -> Option<usize> {
        None
    }

    /// Return the number of bytes before and after a body of this length.
    fn around(&self, length: Length) -> (usize, usize);

    /// Return the head that these bytes begin with, if it is whole.
    fn head(&self, bytes: &[u8]) -> Option<Head>;

    /// Return whether the tail's hash fits the body.
    fn is_whole(&self, body: &[u8], tail: &[u8]) -> bool;

    /// Return the head at the beginning of these bytes if exactly one of its bits is wrong.
    fn repair(&self, _bytes: &[u8]) -> Option<Head> {
        None
    }

    /// Return the head at the beginning of these bytes, during a search for one: a payload must
    /// never look like one.
    fn search(&self, bytes: &[u8]) -> Option<Head> {
        self.head(bytes)
    }
}

/// The framing of this version, with the key of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) key: u64,
}

impl Frame {
    /// Return the framing of a log's segment.
    pub(crate) fn of(log: u64, number: u64) -> Self {
        Self { key: XxHash3_64::oneshot_with_seed(log, &number.to_be_bytes()) }
    }

    /// Return the framing for which these bytes begin with a valid head.
    pub(crate) fn by_head(bytes: &[u8]) -> Option<Self> {
        let (fields, hash) = bytes.first_chunk::<HEAD>()?.split_last_chunk::<8>()?;
        Some(Self { key: XxHash3_64::oneshot(fields) ^ u64::from_be_bytes(*hash) })
    }

    /// Return the bytes of a head.
    pub(crate) fn encode(self, head: &Head) -> [u8; HEAD] {
        let length = match head.length {
            Length::Body(length) => length,
            Length::Seal => SEAL,
        };
        // It fits: a group begins at most 4 GiB after the segment's beginning.
        let synced = u32::try_from(head.synced).unwrap_or(u32::MAX);
        let mut bytes = [0; HEAD];
        let fields = length.to_be_bytes().into_iter().chain(synced.to_be_bytes()).chain(head.label);
        bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        let hash = XxHash3_64::oneshot(bytes.first_chunk::<HASHED>().unwrap_or(&[0; HASHED])) ^ self.key;
        bytes.iter_mut().skip(HASHED).zip(hash.to_be_bytes()).for_each(|(to, from)| *to = from);
        bytes
    }
}

impl Framing for Frame {
    fn header(&self) -> usize {
        crate::header::HEADER
    }

    fn around(&self, length: Length) -> (usize, usize) {
        match length {
            Length::Seal | Length::Body(0) => (HEAD, 0),
            Length::Body(_) => (HEAD, TAIL),
        }
    }

    fn head(&self, bytes: &[u8]) -> Option<Head> {
        let (fields, hash) = bytes.first_chunk::<HEAD>()?.split_last_chunk::<8>()?;
        if XxHash3_64::oneshot(fields) ^ self.key != u64::from_be_bytes(*hash) {
            return None;
        }
        let (length, fields) = fields.split_first_chunk::<4>()?;
        let (synced, label) = fields.split_first_chunk::<4>()?;
        let length = match u32::from_be_bytes(*length) {
            SEAL => Length::Seal,
            length => Length::Body(length),
        };
        Some(Head { length, synced: u32::from_be_bytes(*synced).into(), label: *label.first_chunk()? })
    }

    fn is_whole(&self, body: &[u8], tail: &[u8]) -> bool {
        if body.is_empty() { tail.is_empty() } else { hash([body]).to_be_bytes() == *tail }
    }

    fn repair(&self, bytes: &[u8]) -> Option<Head> {
        crate::header::repair_bit::<HEAD, _>(bytes, |bytes| self.head(bytes))
    }
}

/// Return the hash of a body that is given in parts.
pub(crate) fn hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut parts = parts.into_iter();
    let first = parts.next().unwrap_or_default();
    let Some(second) = parts.next() else { return XxHash3_64::oneshot(first) };
    // The secret is on the stack. Its length is always valid.
    let Ok(secret) = SecretBuffer::with_seed(0, [0; DEFAULT_SECRET_LENGTH]) else { return 0 };
    let mut hasher = RawHasher::new(secret);
    [first, second].into_iter().chain(parts).for_each(|part| hasher.write(part));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Frame = Frame { key: 0x0123_4567_89ab_cdef };
    const HEADS: [Head; 3] = [
        Head { length: Length::Body(7), synced: 48, label: [9; 16] },
        Head { length: Length::Body(0), synced: 0, label: [0; 16] },
        Head { length: Length::Seal, synced: 1_000, label: [0xff; 16] },
    ];

    #[test]
    fn a_head_reads_as_it_was_written_and_by_no_other_key() {
        for head in HEADS {
            let bytes = FRAME.encode(&head);
            assert_eq!(FRAME.head(&bytes), Some(head));
            assert_eq!(Frame { key: FRAME.key ^ 1 }.head(&bytes), None);
            assert_eq!(Frame::by_head(&bytes), Some(FRAME));
        }
    }

    #[test]
    fn a_head_with_one_wrong_bit_is_repaired_and_one_with_two_is_none() {
        let bytes = FRAME.encode(&HEADS[0]);
        for bit in 0..HEAD * 8 {
            let mut broken = bytes;
            broken[bit / 8] ^= 1 << (bit % 8);
            assert_eq!((FRAME.head(&broken), FRAME.repair(&broken)), (None, Some(HEADS[0])), "bit {bit}");
            broken[(bit / 8 + 1) % HEAD] ^= 1;
            assert_eq!(FRAME.repair(&broken), None, "bit {bit}");
        }
    }

    #[test]
    fn a_body_has_the_same_hash_in_one_part_and_in_many() {
        let body: Vec<u8> = (0..2_000_u32).map(|number| (number % 251) as u8).collect();
        for cut in [0, 1, 100, 1_024, 1_999, 2_000] {
            let (first, second) = body.split_at(cut);
            assert_eq!(hash([first, &[], second]), hash([body.as_slice()]), "cut at {cut}");
        }
    }
}
