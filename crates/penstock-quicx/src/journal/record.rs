use penstock_wire::{Reader, Truncated, Writer};

use super::header::SEGMENT_HEADER;
use crate::TaskId;

/// Bytes before a record's body: its length and the CRC-32 of length and body.
pub(crate) const HEAD: usize = 8;
/// No record is longer: a block of the largest class there may be, and what is around it.
const LONGEST: usize = (1 << 20) + 64;

/// None is shorter: its kind and a task's ID.
const SHORTEST: usize = 1 + TaskId::LENGTH;
/// What may be looked at in search of the next whole record, for each byte of a segment.
const SEARCH: usize = 64;

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
///   7 FAILED     as DEAD, and the reason is a worker's
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
        /// Whether a worker has said so.
        verdict: bool,
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
    /// Bytes of a SUBMIT around its content: what is before a body, kind, ID, order, attempts.
    pub(crate) const AROUND: usize = HEAD + 1 + TaskId::LENGTH + 8 + 2;

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

    /// Appends the record; gives its bytes.
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
            Self::Dead { id, attempts, reason, verdict } => {
                writer.u8(if *verdict { 7 } else { 4 });
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
        let bytes = out.len() - start;
        let length = u32::try_from(bytes - HEAD).unwrap_or(u32::MAX).to_be_bytes();
        let body = out.get(start + HEAD..).unwrap_or_default();
        let sum = checksum(length, body).to_be_bytes();
        let head = length.into_iter().chain(sum);
        out.iter_mut().skip(start).zip(head).for_each(|(to, from)| *to = from);
        bytes
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
            4 | 7 => {
                let attempts = reader.u16()?;
                Self::Dead { id, attempts, reason: reader.take(reader.remaining())?, verdict: kind == 7 }
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

/// What could not be read of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// The segment's number.
    pub segment: u64,
    /// Where it begins.
    pub offset: usize,
    /// Bytes that were not read.
    pub bytes: u64,
    /// Whole records that were found behind that place.
    pub behind: u64,
    /// It is the segment's end that is missing, as when the process or the power went while it was written. Nothing else is wrong.
    pub cut: bool,
}

impl Damage {
    /// The header of a segment, with the records behind it.
    pub(crate) const fn header(segment: u64, behind: u64) -> Self {
        Self { segment, offset: 0, bytes: SEGMENT_HEADER as u64, behind, cut: false }
    }

    /// Whether it is the segment's header, which costs no task: the file's name says what was in it.
    pub const fn is_header(&self) -> bool {
        self.offset < SEGMENT_HEADER
    }
}

/// The records of a segment, in their order. What is damaged is passed over: the next one is wherever a checksum holds.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    segment: &'a [u8],
    /// Where the last one begins, and ends.
    at: usize,
    offset: usize,
    /// Where the first damage is, what was passed over there and later, and the records behind it.
    damaged: Option<usize>,
    passed: u64,
    behind: u64,
    /// Bytes whose checksum may still be taken in search of a record: what looks like thousands must not cost for ever.
    budget: usize,
    /// The same, in search of a length with one wrong bit.
    bits: usize,
}

impl<'a> Records<'a> {
    /// Those behind a segment's header.
    pub(crate) fn new(segment: &'a [u8]) -> Self {
        let budget = segment.len().saturating_mul(SEARCH);
        Self {
            segment,
            at: SEGMENT_HEADER,
            offset: SEGMENT_HEADER,
            damaged: None,
            passed: 0,
            behind: 0,
            budget,
            bits: budget,
        }
    }

    /// Where the record begins that was given last.
    pub const fn at(&self) -> usize {
        self.at
    }

    /// What could not be read, once there are no more records.
    pub(crate) fn damage(&self, segment: u64) -> Option<Damage> {
        let rest = self.segment.len().saturating_sub(self.offset);
        let offset = self.damaged.or((rest > 0).then_some(self.offset))?;
        let cut = self.damaged.is_none()
            && (rest < 4 || end_of(self.segment, self.offset).is_some_and(|end| end > self.segment.len()));
        Some(Damage { segment, offset, bytes: self.passed + rest as u64, behind: self.behind, cut })
    }

    /// Where a record ends whose length has one wrong bit: a wrong length may lead to another record by chance.
    fn end_but_for_a_bit(&mut self) -> Option<usize> {
        let (length, rest) = self.segment.get(self.offset..)?.split_first_chunk::<4>()?;
        let (sum, bodies) = rest.split_first_chunk::<4>()?;
        (0..32).find_map(|bit| {
            let right = u32::from_be_bytes(*length) ^ (1 << bit);
            let bytes = usize::try_from(right).ok().filter(|bytes| (SHORTEST..=LONGEST).contains(bytes))?;
            let body = bodies.get(..bytes)?;
            self.bits = self.bits.checked_sub(bytes)?;
            (checksum(right.to_be_bytes(), body) == u32::from_be_bytes(*sum)).then_some(self.offset + HEAD + bytes)
        })
    }

    /// Where the next whole record begins behind something that is none.
    fn search(&mut self) -> Option<usize> {
        if let Some(end) = self.end_but_for_a_bit() {
            return (end < self.segment.len()).then_some(end);
        }
        if let Some(end) = end_of(self.segment, self.offset)
            && (end == self.segment.len() || record_at(self.segment, end).is_some())
        {
            // The length is right, and what is wrong is within: nothing in there is taken for a record.
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

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let (place, (record, end)) = match record_at(self.segment, self.offset) {
            Some(found) => (self.offset, found),
            None => {
                let place = self.search()?;
                self.damaged.get_or_insert(self.offset);
                self.passed += (place - self.offset) as u64;
                (place, record_at(self.segment, place)?)
            }
        };
        self.behind += u64::from(self.damaged.is_some());
        (self.at, self.offset) = (place, end);
        Some(record)
    }
}

/// Where a record ends, by its length; none where that is no length of a record, or not there.
fn end_of(segment: &[u8], place: usize) -> Option<usize> {
    let length = segment.get(place..)?.first_chunk::<4>()?;
    let bytes = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    (SHORTEST..=LONGEST).contains(&bytes).then_some(place + HEAD + bytes)
}

/// A body that is there, and begins like one.
fn body_at(segment: &[u8], place: usize) -> Option<&[u8]> {
    let body = segment.get(place + HEAD..end_of(segment, place)?)?;
    body.first().is_some_and(|kind| (1..=7).contains(kind)).then_some(body)
}

/// A whole record, and where it ends.
fn record_at(segment: &[u8], place: usize) -> Option<(Record<'_>, usize)> {
    let mut reader = Reader::new(segment.get(place..)?);
    let (length, sum): ([u8; 4], u32) = (reader.array().ok()?, reader.u32().ok()?);
    let body = body_at(segment, place)?;
    let record = Record::decode(body).ok()?.filter(|_| checksum(length, body) == sum)?;
    Some((record, place + HEAD + body.len()))
}

#[cfg(test)]
mod tests {
    use super::super::header::{BadSegment, Header, encode_segment_header, read_segment_header};
    use super::*;

    fn records() -> [Record<'static>; 7] {
        let id = TaskId(7);
        [
            Record::Submit { id, order: 9, attempts: 1, content: b"\x01ahello", once: false },
            Record::Submit { id, order: 9, attempts: 0, content: b"\x01ahello0123456789abcdef", once: true },
            Record::Delivered { id, attempts: 2 },
            Record::Dead { id, attempts: 2, reason: b"why", verdict: false },
            Record::Dead { id, attempts: 2, reason: b"no such address", verdict: true },
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
            let header = read_segment_header(piece, 3);
            assert_eq!(header, if cut < SEGMENT_HEADER { Err(BadSegment::Short) } else { Ok(Header::Whole) });
            let whole = ends.iter().filter(|end| SEGMENT_HEADER + **end <= cut).count().saturating_sub(1);
            let read: Vec<_> = Records::new(piece).collect();
            assert_eq!(read, records()[..whole], "{cut}");
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_costs_its_record_alone() {
        let mut segment = Vec::new();
        encode_segment_header(3, &mut segment);
        let mut starts = Vec::new();
        for record in records() {
            starts.push(segment.len());
            record.encode(&mut segment);
        }
        for bit in SEGMENT_HEADER * 8..segment.len() * 8 {
            let mut broken = segment.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            let which = starts.iter().rposition(|start| *start <= bit / 8).expect("behind the header");
            let mut left = records().to_vec();
            left.remove(which);
            let mut read = Records::new(&broken);
            assert_eq!(read.by_ref().collect::<Vec<_>>(), left, "{bit}");
            let end = starts.get(which + 1).copied().unwrap_or(segment.len());
            let damage = read.damage(3).expect("damaged");
            let behind = (left.len() - which) as u64;
            let expected = (starts[which], (end - starts[which]) as u64, behind);
            assert_eq!((damage.offset, damage.bytes, damage.behind), expected, "{bit}");
            // The last one's length may say that there should be more.
            assert!(!damage.cut || which + 1 == records().len(), "{bit}");
        }
    }

    #[test]
    fn what_a_damaged_record_holds_is_no_record_and_garbage_is_passed_over() {
        let mut forged = Vec::new();
        Record::Gone { id: TaskId(1) }.encode(&mut forged);
        let mut segment = Vec::new();
        encode_segment_header(3, &mut segment);
        let content = [b"\x01a", forged.as_slice()].concat();
        Record::Submit { id: TaskId(2), order: 1, attempts: 0, content: &content, once: false }.encode(&mut segment);
        let last = segment.len();
        assert_eq!(Records::new(&segment).count(), 1);
        segment[SEGMENT_HEADER + 4] ^= 1;
        assert_eq!(Records::new(&segment).count(), 0);
        segment.extend_from_slice(&[0; 5_000]);
        segment.extend_from_slice(&[0, 0, 1].repeat(5_000));
        let behind = Record::Requeued { id: TaskId(9), order: 10 };
        behind.encode(&mut segment);
        segment[SEGMENT_HEADER + 4] ^= 1;
        let mut read = Records::new(&segment);
        assert_eq!(read.by_ref().last(), Some(behind));
        let damage = Damage { segment: 3, offset: last, bytes: 20_000, behind: 1, cut: false };
        assert_eq!(read.damage(3), Some(damage));
    }

    #[test]
    fn what_looks_like_records_everywhere_does_not_cost_for_ever() {
        let mut segment = Vec::new();
        encode_segment_header(3, &mut segment);
        // Each fourth byte begins what may be a record of 256 KiB.
        segment.extend(std::iter::repeat_n([0, 4, 3, 1], 1 << 17).flatten());
        let mut read = Records::new(&segment);
        assert_eq!(read.by_ref().count(), 0);
        assert_eq!(read.damage(3).map(|damage| (damage.offset, damage.cut)), Some((SEGMENT_HEADER, false)));
    }
}
