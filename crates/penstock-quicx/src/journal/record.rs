use penstock_wire::{Reader, Truncated, Writer};

use crate::TaskId;

/// Octets before a record's body: its length and the CRC-32 of length and body.
pub(crate) const HEAD: usize = 8;
/// No record is longer: a block of the largest class there may be, and what is around it.
const LONGEST: usize = (1 << 20) + 64;

/// What a segment begins with: so that neither another file nor another format is taken for one.
const MAGIC: [u8; 6] = *b"QUICXJ";
/// Format 1 had no SUBMIT_ONCE.
const FORMAT: u16 = 2;
/// Octets of a segment's header: magic, format, number.
pub(crate) const SEGMENT_HEADER: usize = 16;

/// What happened to a task.
///
/// ```text
/// record  length of the body (4)  CRC-32 of length and body (4)  body: kind (1)  task ID (4)  ...
///   1 SUBMIT     order (8)  attempts (2)  content: type_len, type, payload
///   2 DELIVERED  attempts (2)
///   3 GONE
///   4 DEAD       attempts (2)  reason
///   5 REQUEUED   order (8)
///   6 SUBMIT_ONCE  as SUBMIT, and the key (16) at the end of the content
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record<'a> {
    /// It was submitted, or is written again because its segment goes.
    Submit {
        /// Which.
        id: TaskId,
        /// Its place in the order of submission.
        order: u64,
        /// Deliveries so far.
        attempts: u16,
        /// Its type and payload, as in SUBMIT, and its key behind them if it has one.
        content: &'a [u8],
        /// Whether it has one.
        once: bool,
    },
    /// A worker got it.
    Delivered {
        /// Which.
        id: TaskId,
        /// Deliveries, this one included.
        attempts: u16,
    },
    /// It was done, failed, dropped or never accepted.
    Gone {
        /// Which.
        id: TaskId,
    },
    /// It is on the dead list.
    Dead {
        /// Which.
        id: TaskId,
        /// Deliveries.
        attempts: u16,
        /// Why.
        reason: &'a [u8],
    },
    /// It has left the dead list for the end of the queue.
    Requeued {
        /// Which.
        id: TaskId,
        /// Its new place.
        order: u64,
    },
}

impl<'a> Record<'a> {
    /// Whose record it is.
    pub const fn id(&self) -> TaskId {
        match self {
            Self::Submit { id, .. }
            | Self::Delivered { id, .. }
            | Self::Gone { id }
            | Self::Dead { id, .. }
            | Self::Requeued { id, .. } => *id,
        }
    }

    /// Appends the record; gives its octets.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        let mut writer = Writer::new(&mut *out);
        writer.u64(0);
        match self {
            Self::Submit { id, order, attempts, content, once } => {
                writer.u8(if *once { 6 } else { 1 });
                writer.u32(id.0);
                writer.u64(*order);
                writer.u16(*attempts);
                writer.bytes(content);
            }
            Self::Delivered { id, attempts } => {
                writer.u8(2);
                writer.u32(id.0);
                writer.u16(*attempts);
            }
            Self::Gone { id } => {
                writer.u8(3);
                writer.u32(id.0);
            }
            Self::Dead { id, attempts, reason } => {
                writer.u8(4);
                writer.u32(id.0);
                writer.u16(*attempts);
                writer.bytes(reason);
            }
            Self::Requeued { id, order } => {
                writer.u8(5);
                writer.u32(id.0);
                writer.u64(*order);
            }
        }
        let octets = out.len() - start;
        let length = u32::try_from(octets - HEAD).unwrap_or(u32::MAX).to_be_bytes();
        let body = out.get(start + HEAD..).unwrap_or_default();
        let sum = checksum(length, body).to_be_bytes();
        let head = length.into_iter().chain(sum);
        out.iter_mut().skip(start).zip(head).for_each(|(to, from)| *to = from);
        octets
    }

    fn decode(body: &'a [u8]) -> Result<Option<Self>, Truncated> {
        let mut reader = Reader::new(body);
        let (kind, id) = (reader.u8()?, TaskId(reader.u32()?));
        let record = match kind {
            1 | 6 => {
                let (order, attempts) = (reader.u64()?, reader.u16()?);
                Self::Submit { id, order, attempts, content: reader.take(reader.remaining())?, once: kind == 6 }
            }
            2 => Self::Delivered { id, attempts: reader.u16()? },
            3 => Self::Gone { id },
            4 => {
                let attempts = reader.u16()?;
                Self::Dead { id, attempts, reason: reader.take(reader.remaining())? }
            }
            5 => Self::Requeued { id, order: reader.u64()? },
            _ => return Ok(None),
        };
        Ok(Some(record).filter(|_| reader.is_empty()))
    }
}

fn checksum(length: [u8; 4], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length);
    hasher.update(body);
    hasher.finalize()
}

/// Appends what a segment begins with.
pub(crate) fn encode_segment_header(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&FORMAT.to_be_bytes());
    out.extend_from_slice(&number.to_be_bytes());
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
}

pub(crate) fn decode_segment_header(octets: &[u8]) -> Result<u64, BadSegment> {
    let mut reader = Reader::new(octets);
    let (magic, format, number) = (reader.array(), reader.u16(), reader.u64());
    let begun = octets.iter().zip(MAGIC).all(|(octet, magic)| *octet == magic);
    match (magic, format, number) {
        (Ok(MAGIC), Ok(1..=FORMAT), Ok(number)) => Ok(number),
        (Ok(MAGIC), Ok(format), _) if !(1..=FORMAT).contains(&format) => Err(BadSegment::Format(format)),
        _ if begun => Err(BadSegment::Short),
        _ => Err(BadSegment::Foreign),
    }
}

/// The records of a segment, in their order. It ends before the first that is cut off or whose checksum does not hold.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Records<'a> {
    /// Those behind a segment's header.
    pub(crate) fn new(segment: &'a [u8]) -> Self {
        Self { rest: segment.get(SEGMENT_HEADER..).unwrap_or_default(), offset: SEGMENT_HEADER }
    }

    /// Octets of the segment that were read.
    pub const fn offset(&self) -> usize {
        self.offset
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let mut reader = Reader::new(self.rest);
        let (length, sum): ([u8; 4], u32) = (reader.array().ok()?, reader.u32().ok()?);
        let octets = usize::try_from(u32::from_be_bytes(length)).ok().filter(|octets| *octets <= LONGEST)?;
        let body = reader.take(octets).ok()?;
        if checksum(length, body) != sum {
            return None;
        }
        let record = Record::decode(body).ok()??;
        self.rest = reader.take(reader.remaining()).ok()?;
        self.offset += HEAD + octets;
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> [Record<'static>; 6] {
        let id = TaskId(7);
        [
            Record::Submit { id, order: 9, attempts: 1, content: b"\x01ahello", once: false },
            Record::Submit { id, order: 9, attempts: 0, content: b"\x01ahello0123456789abcdef", once: true },
            Record::Delivered { id, attempts: 2 },
            Record::Dead { id, attempts: 2, reason: b"why" },
            Record::Requeued { id, order: 10 },
            Record::Gone { id },
        ]
    }

    #[test]
    fn records_read_as_they_were_written_up_to_wherever_they_are_cut() {
        let mut segment = Vec::new();
        encode_segment_header(3, &mut segment);
        let ends: Vec<usize> = std::iter::once(0)
            .chain(records().iter().scan(0, |end, record| {
                *end += record.encode(&mut segment);
                Some(*end)
            }))
            .collect();
        for cut in 0..=segment.len() {
            let piece = &segment[..cut];
            let header = decode_segment_header(piece);
            assert_eq!(header, if cut < SEGMENT_HEADER { Err(BadSegment::Short) } else { Ok(3) });
            let whole = ends.iter().filter(|end| SEGMENT_HEADER + **end <= cut).count().saturating_sub(1);
            let read: Vec<_> = Records::new(piece).collect();
            assert_eq!(read, records()[..whole], "{cut}");
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_ends_what_is_read_before_its_record() {
        let mut segment = Vec::new();
        encode_segment_header(3, &mut segment);
        let first = records()[0].encode(&mut segment);
        records()[1].encode(&mut segment);
        for bit in SEGMENT_HEADER * 8..segment.len() * 8 {
            let mut broken = segment.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            let whole = usize::from(bit / 8 >= SEGMENT_HEADER + first);
            assert_eq!(Records::new(&broken).collect::<Vec<_>>(), records()[..whole], "{bit}");
        }
    }

    #[test]
    fn another_file_or_format_is_not_a_segment() {
        assert_eq!(decode_segment_header(b"QUICXJ\x00\x01\0\0\0\0\0\0\0\x01"), Ok(1));
        assert_eq!(decode_segment_header(b"#!/bin/sh"), Err(BadSegment::Foreign));
        assert_eq!(decode_segment_header(b"QUICXJ\x00\x03\0\0\0\0\0\0\0\x01"), Err(BadSegment::Format(3)));
    }
}
