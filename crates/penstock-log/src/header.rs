//! The header of a segment.

use twox_hash::XxHash3_64;

/// The first bytes of a segment of this version.
const MAGIC: &[u8; 8] = b"PENSLOG1";
/// The number of bytes of a segment's header.
pub const HEADER: usize = 48;
const HASHED: usize = HEADER - 8;

/// The header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// The engine's kind.
    pub(crate) kind: [u8; 8],
    /// The log's random number.
    pub(crate) log: u64,
    pub(crate) number: u64,
    /// The length of the segment before it; 0 if there is none.
    pub(crate) before: u64,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let numbers = [self.log, self.number, self.before].map(u64::to_be_bytes);
        let fields = MAGIC.iter().chain(&self.kind).chain(numbers.iter().flatten());
        bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = *from);
        let hash = XxHash3_64::oneshot(bytes.first_chunk::<HASHED>().unwrap_or(&[0; HASHED]));
        bytes.iter_mut().skip(HASHED).zip(hash.to_be_bytes()).for_each(|(to, from)| *to = from);
        bytes
    }

    /// Return the header that these bytes begin with, if it is whole.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (fields, hash) = bytes.first_chunk::<HEADER>()?.split_last_chunk::<8>()?;
        if XxHash3_64::oneshot(fields).to_be_bytes() != *hash {
            return None;
        }
        let (magic, fields) = fields.split_first_chunk::<8>()?;
        let (kind, fields) = fields.split_first_chunk::<8>()?;
        let (log, fields) = fields.split_first_chunk::<8>()?;
        let (number, before) = fields.split_first_chunk::<8>()?;
        let [log, number, before] = [*log, *number, *before.first_chunk()?].map(u64::from_be_bytes);
        (magic == MAGIC).then_some(Self { kind: *kind, log, number, before })
    }

    /// Return the header at the beginning of these bytes if exactly one of its bits is wrong.
    pub(crate) fn repair(bytes: &[u8]) -> Option<Self> {
        repair_bit::<HEADER, _>(bytes, Self::read)
    }
}

/// Call `read` with each bit of the first bytes flipped in turn; return its first result. `read`
/// must check a hash.
pub fn repair_bit<const LENGTH: usize, T>(bytes: &[u8], read: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
    let first = bytes.first_chunk::<LENGTH>()?;
    (0..LENGTH * 8).find_map(|bit| {
        let mut repaired = *first;
        *repaired.get_mut(bit / 8)? ^= 1 << (bit % 8);
        read(&repaired)
    })
}

/// Return whether a crash during the write of a header may have left these bytes.
pub(crate) fn is_begun(bytes: &[u8]) -> bool {
    let zeros = bytes.iter().all(|byte| *byte == 0);
    zeros || (bytes.len() < HEADER && bytes.iter().zip(MAGIC).all(|(byte, expected)| byte == expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_whatever_bit_of_it_has_flipped() {
        let header = Header { kind: *b"test   1", log: 77, number: 3, before: 1 << 40 };
        let bytes = header.encode();
        assert_eq!(Header::read(&bytes), Some(header));
        for bit in 0..HEADER * 8 {
            let mut broken = bytes;
            broken[bit / 8] ^= 1 << (bit % 8);
            assert_eq!((Header::read(&broken), Header::repair(&broken)), (None, Some(header)), "bit {bit}");
        }
    }

    #[test]
    fn the_beginning_of_a_header_and_zeros_are_one_that_was_being_written() {
        let bytes = Header { kind: *b"test   1", log: 77, number: 3, before: 0 }.encode();
        assert!((0..HEADER).all(|length| is_begun(&bytes[..length])));
        assert!(is_begun(&[0; HEADER]) && !is_begun(&bytes));
        assert!(!is_begun(b"#!/bin/sh") && !is_begun(b"PENSLOG2"));
    }
}
