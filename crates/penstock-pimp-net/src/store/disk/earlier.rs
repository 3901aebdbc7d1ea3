//! Segments of the previous format, which are read until they hold nothing live.
//!
//! ```text
//! segment  "PIMPLOG2"  number (8)  bytes of the segment before it (8)  CRC-32 of these (4)  records
//! record   length of the body (4)  synced (8)  job ID (16)  CRC-32 of these (4)  body  CRC-32 of the body (4)
//! ```
//!
//! A record without a body was a seal. No payload can look like a record: a body was shorter than 2^29 bytes, so its
//! length begins with a byte below 32, and JSON, which job records and envelopes are, contains no such byte.

use penstock_log::{EarlierSegment, Framing, Head, Length};

use super::record::checksum;

const MAGIC: &[u8; 8] = b"PIMPLOG2";
const HEADER: usize = 28;
const HEAD: usize = 32;
const TAIL: usize = 4;

/// Return whether a segment may begin with these bytes.
pub(super) fn is_begun(start: &[u8]) -> bool {
    start.len() < HEADER && start.iter().zip(MAGIC).all(|(byte, expected)| byte == expected)
}

/// Return how to read the segment with this number that begins with these bytes, if it has the previous format.
pub(super) fn earlier(number: u64, start: &[u8]) -> Option<EarlierSegment> {
    let (fields, sum) = start.first_chunk::<HEADER>()?.split_last_chunk::<4>()?;
    let (magic, numbers) = fields.split_first_chunk::<8>()?;
    // If only the magic is damaged, the checksum still matches the correct one.
    let is_right = sum_of(&[MAGIC, numbers]) == *sum;
    let (found, before) = numbers.split_first_chunk::<8>()?;
    let (found, before) = match (magic == MAGIC, is_right) {
        (true, true) => (u64::from_be_bytes(*found), Some(u64::from_be_bytes(*before.first_chunk()?))),
        (true, false) | (false, true) => (number, None),
        (false, false) => return None,
    };
    Some(EarlierSegment { framing: Box::new(Frame), number: found, before })
}

fn sum_of(parts: &[&[u8]]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize().to_be_bytes()
}

struct Frame;

impl Framing for Frame {
    fn header(&self) -> usize {
        HEADER
    }

    fn around(&self, _length: Length) -> (usize, usize) {
        (HEAD, TAIL)
    }

    fn head(&self, bytes: &[u8]) -> Option<Head> {
        let (fields, sum) = bytes.first_chunk::<HEAD>()?.split_last_chunk::<4>()?;
        if sum_of(&[fields]) != *sum {
            return None;
        }
        let (length, fields) = fields.split_first_chunk::<4>()?;
        let (synced, label) = fields.split_first_chunk::<8>()?;
        let length = match u32::from_be_bytes(*length) {
            0 => Length::Seal,
            length => Length::Body(length),
        };
        Some(Head { length, synced: u64::from_be_bytes(*synced), label: *label.first_chunk()? })
    }

    fn is_whole(&self, body: &[u8], tail: &[u8]) -> bool {
        checksum(body).to_be_bytes() == *tail
    }

    fn search(&self, bytes: &[u8]) -> Option<Head> {
        let head = self.head(bytes)?;
        let length = match head.length {
            Length::Body(length) => usize::try_from(length).ok()?,
            Length::Seal => 0,
        };
        let (body, rest) = bytes.get(HEAD..)?.split_at_checked(length)?;
        self.is_whole(body, rest.get(..TAIL)?).then_some(head)
    }
}
