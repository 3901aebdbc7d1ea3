//! What a segment begins with. The header has no checksum: it is compared with what it should be for the file's number.

use penstock_wire::Reader;

use super::Records;

/// So that neither another file nor another format is taken for a segment.
const MAGIC: [u8; 6] = *b"QUICXJ";
/// Format 1 had no SUBMIT_ONCE, format 2 no FAILED. The next ones are 4, 8 and 16: two bits or more from all before them, so that
/// a flipped bit in an older header cannot be taken for a newer format, nor a newer format for a flipped bit.
const FORMAT: u16 = 3;
/// Bytes of a segment's header: magic, format, number.
pub(crate) const SEGMENT_HEADER: usize = 16;

/// Appends what a segment begins with.
pub(crate) fn encode_segment_header(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&header(FORMAT, number));
}

fn header(format: u16, number: u64) -> [u8; SEGMENT_HEADER] {
    let mut bytes = [0; SEGMENT_HEADER];
    let fields = MAGIC.into_iter().chain(format.to_be_bytes()).chain(number.to_be_bytes());
    bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
    bytes
}

/// A header of a segment that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Header {
    /// It is as it was written.
    Whole,
    /// It is not, and the file's name says what was in it.
    Damaged,
}

/// Why a file is not a segment that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadSegment {
    /// It is shorter than a header: the process died while it was made.
    Short,
    /// It is something else.
    Foreign,
    /// It has another format.
    Format(u16),
    /// It is the segment of this number, and has the name of another.
    Number(u64),
}

/// Reads the header of the segment that has this number by its name.
///
/// A flipped bit is damage. Where more is wrong, the file is another format's or another number's if it says so without a
/// mistake; and else a segment if a checksum in it holds, or if it is blank, as when the power goes before a file's bytes are
/// on the disk.
pub(crate) fn read_segment_header(segment: &[u8], number: u64) -> Result<Header, BadSegment> {
    let wrong = wrong_bits(segment, number);
    let blank = segment.iter().all(|byte| *byte == 0);
    if segment.len() < SEGMENT_HEADER {
        return Err(if wrong <= 1 || blank { BadSegment::Short } else { BadSegment::Foreign });
    }
    let mut reader = Reader::new(segment);
    match (wrong, reader.array(), reader.u16(), reader.u64()) {
        (0, ..) => Ok(Header::Whole),
        (1, ..) => Ok(Header::Damaged),
        (_, Ok(MAGIC), Ok(1..=FORMAT), Ok(found)) => Err(BadSegment::Number(found)),
        (_, Ok(MAGIC), Ok(format), _) => Err(BadSegment::Format(format)),
        _ if blank || Records::new(segment).next().is_some() => Ok(Header::Damaged),
        _ => Err(BadSegment::Foreign),
    }
}

/// Bits of a header, or of what there is of it, that differ from that of the nearest format for this number.
fn wrong_bits(segment: &[u8], number: u64) -> u32 {
    let wrong = |format| {
        let bytes = segment.iter().zip(header(format, number));
        bytes.map(|(found, right)| (found ^ right).count_ones()).sum()
    };
    (1..=FORMAT).map(wrong).min().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Record, TaskId};

    fn of(format: u16, number: u64) -> Vec<u8> {
        header(format, number).to_vec()
    }

    #[test]
    fn a_header_is_read_whatever_bit_of_it_has_flipped() {
        for (format, number) in [(1, 1), (2, 2), (3, 3), (3, 1 << 40)] {
            for bit in 0..SEGMENT_HEADER * 8 {
                let mut flipped = of(format, number);
                assert_eq!(read_segment_header(&flipped, number), Ok(Header::Whole));
                flipped[bit / 8] ^= 1 << (bit % 8);
                let known = (1..=FORMAT).any(|format| flipped == header(format, number));
                let expected = if known { Header::Whole } else { Header::Damaged };
                assert_eq!(read_segment_header(&flipped, number), Ok(expected), "format {format}, bit {bit}");
            }
        }
    }

    #[test]
    fn a_header_that_is_cut_off_is_one_whatever_bit_of_it_has_flipped() {
        for length in 0..SEGMENT_HEADER {
            for bit in 0..length * 8 {
                let mut flipped = of(3, 7);
                flipped.truncate(length);
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(read_segment_header(&flipped, 7), Err(BadSegment::Short), "{length} bytes, bit {bit}");
            }
            assert_eq!(read_segment_header(&vec![0; length], 7), Err(BadSegment::Short));
        }
        assert_eq!(read_segment_header(b"#!/bin/sh", 7), Err(BadSegment::Foreign));
    }

    #[test]
    fn another_file_format_or_number_is_not_taken_for_damage() {
        assert_eq!(read_segment_header(b"#!/bin/sh\necho and so on", 1), Err(BadSegment::Foreign));
        for format in [4, 8, 16] {
            assert_eq!(read_segment_header(&of(format, 1), 1), Err(BadSegment::Format(format)));
        }
        assert_eq!(read_segment_header(&of(3, 1), 6), Err(BadSegment::Number(1)));
    }

    #[test]
    fn a_segment_whose_header_is_lost_is_known_by_its_records() {
        let mut segment = vec![0xA5; SEGMENT_HEADER];
        assert_eq!(read_segment_header(&segment, 1), Err(BadSegment::Foreign));
        Record::Gone { id: TaskId(1) }.encode(&mut segment);
        assert_eq!(read_segment_header(&segment, 1), Ok(Header::Damaged));
        assert_eq!(read_segment_header(&[0; 5_000], 1), Ok(Header::Damaged));
    }
}
