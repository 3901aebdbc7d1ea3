//! Segments of the earlier formats 1 to 3, which are read until they hold nothing live.
//!
//! ```text
//! segment  "QUICXJ"  format (2)  number (8)  records
//! record   length of the body (4)  CRC-32 of length and body (4)  body
//! ```
//!
//! The header has no checksum, so it is compared with the expected header for the file's number. A
//! record's head has none either, so the whole segment is read before its records are known, and
//! the log gets the checksum as the first bytes of a body. The end of a segment is not marked: a
//! record that is cut off there was being written when the process died or the power failed.

use penstock_log::{EarlierSegment, Framing, Head, Length};
use penstock_quicx::Record;

const MAGIC: [u8; 6] = *b"QUICXJ";
/// Format 1 had no SUBMIT_ONCE, format 2 no FAILED.
const FORMAT: u16 = 3;
const HEADER: usize = 16;
/// Bytes of a record's length, and of its checksum.
const LENGTH: usize = 4;
const SUM: usize = 4;
/// The longest body: a block of the largest possible size class, and the fields around it.
const LONGEST: usize = (1 << 20) + 64;
/// The shortest body: a kind and a task ID.
const SHORTEST: usize = 5;
/// For each byte of a segment, the bytes that may be hashed in search of whole records.
const SEARCH: usize = 64;

fn header(format: u16, number: u64) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    let fields = MAGIC.into_iter().chain(format.to_be_bytes()).chain(number.to_be_bytes());
    bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
    bytes
}

/// Return how many bits of a header, or of its first bytes, differ from the most similar header of
/// an earlier format and this number.
fn wrong_bits(start: &[u8], number: u64) -> u32 {
    let wrong = |format| {
        let bytes = start.iter().zip(header(format, number));
        bytes.map(|(found, right)| (found ^ right).count_ones()).sum()
    };
    (1..=FORMAT).map(wrong).min().unwrap_or(u32::MAX)
}

/// Return whether these bytes may be the part of a header that a crash has left.
pub(super) fn is_begun(start: &[u8]) -> bool {
    // Only the magic and the format are compared, not the number.
    start.len() < HEADER && wrong_bits(start.get(..8).unwrap_or(start), 0) <= 1
}

/// Return how to read the segment of this number that begins with these bytes, if its format is an
/// earlier one. One flipped bit is damage. If more bits differ, the bytes must be the exact header
/// of a segment of another number.
pub(super) fn earlier(number: u64, start: &[u8]) -> Option<EarlierSegment> {
    let start = start.first_chunk::<HEADER>()?;
    let (found, before) = match wrong_bits(start, number) {
        0 => (number, Some(0)),
        1 => (number, None),
        _ => {
            let found = u64::from_be_bytes(*start.last_chunk()?);
            (found, (1..=FORMAT).any(|format| header(format, found) == *start).then_some(Some(0))?)
        }
    };
    Some(EarlierSegment { framing: Box::new(Frame::default()), number: found, before })
}

/// Return how to read the segment of this number whose header is lost, if it contains a valid
/// record or only zeros. Zeros remain if the power fails before a file's bytes are on the disk.
pub(super) fn headless(number: u64, segment: &[u8]) -> Option<EarlierSegment> {
    let is_one = segment.iter().all(|byte| *byte == 0) || Records::new(segment).next().is_some();
    // A segment that begins with the magic has a header, of another format.
    (is_one && !segment.starts_with(&MAGIC)).then(|| EarlierSegment {
        framing: Box::new(Frame::default()),
        number,
        before: None,
    })
}

/// Decode a body that the log has read, which begins with the checksum.
pub(super) fn record(body: &[u8]) -> Option<Record<'_>> {
    Record::read_earlier(body.get(SUM..)?)
}

/// The starts and the ends of a segment's records, once `end` has read the segment.
#[derive(Default)]
struct Frame {
    length: usize,
    records: Vec<(usize, usize)>,
}

impl Framing for Frame {
    fn header(&self) -> usize {
        HEADER
    }

    fn end(&mut self, segment: &[u8]) -> Option<usize> {
        let mut records = Records::new(segment);
        self.records = records.by_ref().collect();
        self.length = records.acknowledged();
        Some(self.length)
    }

    fn around(&self, _length: Length) -> (usize, usize) {
        (LENGTH, 0)
    }

    fn head(&self, bytes: &[u8]) -> Option<Head> {
        let place = self.length.checked_sub(bytes.len())?;
        let found = self.records.binary_search_by_key(&place, |(start, _)| *start).ok()?;
        let (start, end) = self.records.get(found)?;
        let length = u32::try_from(end.checked_sub(start + LENGTH)?).ok()?;
        Some(Head { length: Length::Body(length), synced: 0, label: [0; 16] })
    }

    fn is_whole(&self, body: &[u8], _tail: &[u8]) -> bool {
        body.split_first_chunk::<SUM>().is_some_and(|(sum, body)| checksum(body) == *sum)
    }
}

/// Return the checksum of a body and its length.
fn checksum(body: &[u8]) -> [u8; SUM] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes());
    hasher.update(body);
    hasher.finalize().to_be_bytes()
}

/// An iterator over the starts and the ends of a segment's records, in order. It skips damage: the
/// next record is at the next valid checksum.
struct Records<'a> {
    segment: &'a [u8],
    offset: usize,
    /// The bytes that may still be hashed in search of a record, so that data which looks like
    /// thousands of records does not cost unlimited time.
    budget: usize,
    /// The same budget, for the search for a length with one wrong bit.
    bits: usize,
}

impl<'a> Records<'a> {
    const fn new(segment: &'a [u8]) -> Self {
        let budget = segment.len().saturating_mul(SEARCH);
        Self { segment, offset: HEADER, budget, bits: budget }
    }

    /// Return where the segment ends, excluding a record that was cut off. Call this once the
    /// iterator has ended.
    fn acknowledged(&mut self) -> usize {
        let length = self.segment.len();
        let rest = length.saturating_sub(self.offset);
        let is_cut = rest < LENGTH || end_of(self.segment, self.offset).is_some_and(|end| end > length);
        if is_cut && self.end_but_for_a_bit().is_none() { self.offset.min(length) } else { length }
    }

    /// Return the end of a record whose length has one wrong bit. This is tried first, because a
    /// wrong length may lead to another record by chance.
    fn end_but_for_a_bit(&mut self) -> Option<usize> {
        let (length, rest) = self.segment.get(self.offset..)?.split_first_chunk::<LENGTH>()?;
        let (sum, bodies) = rest.split_first_chunk::<SUM>()?;
        (0..32).find_map(|bit| {
            let right = u32::from_be_bytes(*length) ^ (1 << bit);
            let bytes = usize::try_from(right).ok().filter(|bytes| (SHORTEST..=LONGEST).contains(bytes))?;
            let body = bodies.get(..bytes)?;
            self.bits = self.bits.checked_sub(bytes)?;
            (checksum(body) == *sum).then_some(self.offset + LENGTH + SUM + bytes)
        })
    }

    /// Return the start of the next whole record after damage.
    fn search(&mut self) -> Option<usize> {
        if let Some(end) = self.end_but_for_a_bit() {
            return (end < self.segment.len()).then_some(end);
        }
        if let Some(end) = end_of(self.segment, self.offset)
            && (end == self.segment.len() || record_at(self.segment, end).is_some())
        {
            // The length is right, so the damage is inside the record, and nothing inside is taken
            // for a record.
            return (end < self.segment.len()).then_some(end);
        }
        for place in self.offset + 1..self.segment.len() {
            let Some(body) = body_at(self.segment, place) else { continue };
            self.budget = self.budget.checked_sub(body.len())?;
            if record_at(self.segment, place).is_some() {
                return Some(place);
            }
        }
        None
    }
}

impl Iterator for Records<'_> {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        let (place, end) = match record_at(self.segment, self.offset) {
            Some(end) => (self.offset, end),
            None => {
                let place = self.search()?;
                (place, record_at(self.segment, place)?)
            }
        };
        self.offset = end;
        Some((place, end))
    }
}

/// Return where a record ends by its length; `None` if the length is cut off or out of range.
fn end_of(segment: &[u8], place: usize) -> Option<usize> {
    let length = segment.get(place..)?.first_chunk::<LENGTH>()?;
    let bytes = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    (SHORTEST..=LONGEST).contains(&bytes).then_some(place + LENGTH + SUM + bytes)
}

/// Return the body at a place, if it is complete and begins with a known kind.
fn body_at(segment: &[u8], place: usize) -> Option<&[u8]> {
    let body = segment.get(place + LENGTH + SUM..end_of(segment, place)?)?;
    body.first().is_some_and(|kind| (1..=7).contains(kind)).then_some(body)
}

/// Return the end of the record at a place, if it is whole.
fn record_at(segment: &[u8], place: usize) -> Option<usize> {
    let body = body_at(segment, place)?;
    let sum = segment.get(place + LENGTH..)?.first_chunk::<SUM>()?;
    (checksum(body) == *sum && Record::read_earlier(body).is_some()).then_some(place + LENGTH + SUM + body.len())
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used)]
mod tests {
    use super::*;

    fn encode(bodies: &[&[u8]]) -> Vec<u8> {
        let mut segment = header(FORMAT, 3).to_vec();
        for body in bodies {
            segment.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
            segment.extend(checksum(body));
            segment.extend(*body);
        }
        segment
    }

    const GONE: &[u8] = b"\x03\0\0\0\x01";

    #[test]
    fn a_header_is_read_whatever_bit_of_it_has_flipped() {
        for (format, number) in [(1, 1), (2, 2), (3, 3), (3, 1 << 40)] {
            for bit in 0..HEADER * 8 {
                let mut flipped = header(format, number);
                assert_eq!(earlier(number, &flipped).unwrap().before, Some(0));
                flipped[bit / 8] ^= 1 << (bit % 8);
                let is_known = (1..=FORMAT).any(|format| flipped == header(format, number));
                let found = earlier(number, &flipped).unwrap();
                let expected = is_known.then_some(0);
                assert_eq!((found.number, found.before), (number, expected), "format {format}, bit {bit}");
            }
        }
    }

    #[test]
    fn a_header_that_is_cut_off_is_one_whatever_bit_of_it_has_flipped() {
        for length in 0..HEADER {
            for bit in 0..length * 8 {
                let mut flipped = header(3, 7);
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(is_begun(&flipped[..length]), "{length} bytes, bit {bit}");
            }
        }
        assert!(!is_begun(&header(3, 7)) && !is_begun(b"#!/bin/sh"));
    }

    #[test]
    fn another_file_format_or_number_is_not_taken_for_damage() {
        assert!(earlier(1, b"#!/bin/sh\necho and so on").is_none());
        assert!([4, 8, 16].into_iter().all(|format| earlier(1, &header(format, 1)).is_none()));
        assert_eq!(earlier(6, &header(3, 1)).unwrap().number, 1);
    }

    #[test]
    fn a_segment_whose_header_is_lost_is_known_by_its_records() {
        let mut segment = encode(&[GONE]);
        segment[..HEADER].fill(0xA5);
        assert!(headless(1, &segment[..HEADER]).is_none());
        assert!(headless(1, &segment).is_some() && headless(1, &[0; 5_000]).is_some());
    }

    #[test]
    fn what_a_damaged_record_holds_is_no_record_and_garbage_is_passed_over() {
        let forged = encode(&[GONE]);
        let content = [b"\x01\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\x01a", &forged[HEADER..]].concat();
        let mut segment = encode(&[&content]);
        assert_eq!(Records::new(&segment).count(), 1);
        segment[HEADER + 4] ^= 1;
        assert_eq!(Records::new(&segment).count(), 0);
        segment.extend_from_slice(&[0; 5_000]);
        segment.extend_from_slice(&[0, 0, 1].repeat(5_000));
        let behind = segment.len();
        segment.extend_from_slice(&forged[HEADER..]);
        segment[HEADER + 4] ^= 1;
        assert_eq!(Records::new(&segment).last(), Some((behind, segment.len())));
    }

    #[test]
    fn what_looks_like_records_everywhere_does_not_cost_for_ever() {
        let mut segment = header(FORMAT, 3).to_vec();
        // Every fourth byte could begin a record of 256 KiB.
        segment.extend(std::iter::repeat_n([0, 4, 3, 1], 1 << 17).flatten());
        let length = segment.len();
        let mut frame = Frame::default();
        assert_eq!((frame.end(&segment), frame.records.len()), (Some(length), 0));
    }
}
