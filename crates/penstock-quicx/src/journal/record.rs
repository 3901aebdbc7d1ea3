//! What happened to a task, as a log has it.

use penstock_wire::{Reader, Truncated, Writer};

use crate::TaskId;

/// What the head of a log's record says.
pub type Label = [u8; 16];

/// What happened to a task. All of it but text is in the record's label, so that a record whose body is damaged says
/// what is lost.
///
/// ```text
/// label  kind (1)  0 (1)  attempts (2)  task ID (4)  order (8); a field that a kind has not is 0
///   1 SUBMIT     order, attempts    body: type_len, type, payload
///   2 DELIVERED  attempts
///   3 GONE
///   4 DEAD       attempts           body: reason
///   5 REQUEUED   order
///   6 SUBMIT_ONCE  as SUBMIT, and the key (16) at the end of the body
///   7 FAILED     as DEAD, and the reason is a worker's
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record<'a> {
    /// It was submitted, or is written again because its segment goes.
    Submit {
        /// Which.
        id: TaskId,
        /// Its number in the order of submission.
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
    /// It was done, failed or dropped; in segments of the format before this one, or never accepted.
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
    /// Bytes that a log puts around a body.
    pub(crate) const AROUND: usize = 40;

    /// Return the task of the record.
    pub const fn id(&self) -> TaskId {
        match self {
            Self::Submit { id, .. }
            | Self::Delivered { id, .. }
            | Self::Gone { id }
            | Self::Dead { id, .. }
            | Self::Requeued { id, .. } => *id,
        }
    }

    /// Return its label.
    pub fn label(&self) -> Label {
        let (kind, attempts, order) = match self {
            Self::Submit { order, attempts, once, .. } => (if *once { 6 } else { 1 }, *attempts, *order),
            Self::Delivered { attempts, .. } => (2, *attempts, 0),
            Self::Gone { .. } => (3, 0, 0),
            Self::Dead { attempts, verdict, .. } => (if *verdict { 7 } else { 4 }, *attempts, 0),
            Self::Requeued { order, .. } => (5, 0, *order),
        };
        let mut label = Label::default();
        let mut writer = Writer::new(label.as_mut_slice());
        writer.u16(kind << 8);
        writer.u16(attempts);
        writer.u32(self.id().0);
        writer.u64(order);
        label
    }

    /// Return its body.
    pub const fn body(&self) -> &'a [u8] {
        match self {
            Self::Submit { content, .. } => content,
            Self::Dead { reason, .. } => reason,
            Self::Delivered { .. } | Self::Gone { .. } | Self::Requeued { .. } => &[],
        }
    }

    /// Return whether a label is that of a SUBMIT.
    pub(crate) const fn is_submit(label: &Label) -> bool {
        matches!(label, [1 | 6, ..])
    }

    /// Return what a label and a body say; `None` where another version has written them.
    pub fn read(label: &Label, body: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(label);
        let (kind, attempts) = (reader.u16().ok()?, reader.u16().ok()?);
        let (id, order) = (TaskId(reader.u32().ok()?), reader.u64().ok()?);
        let record = match kind.to_be_bytes() {
            [kind @ (1 | 6), 0] => Self::Submit { id, order, attempts, content: body, once: kind == 6 },
            [2, 0] => Self::Delivered { id, attempts },
            [3, 0] => Self::Gone { id },
            [kind @ (4 | 7), 0] => Self::Dead { id, attempts, reason: body, verdict: kind == 7 },
            [5, 0] => Self::Requeued { id, order },
            _ => return None,
        };
        // What it does not say is neither in the label nor behind it.
        (record.label() == *label && record.body().len() == body.len()).then_some(record)
    }

    /// Return what a record of the format before this one says, which had all in its body: kind (1), task ID (4), then
    /// the fields of the kind.
    pub fn read_earlier(body: &'a [u8]) -> Option<Self> {
        Self::decode_earlier(body).ok().flatten()
    }

    fn decode_earlier(body: &'a [u8]) -> Result<Option<Self>, Truncated> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> [Record<'static>; 7] {
        let id = TaskId(7);
        [
            Record::Submit { id, order: 9, attempts: 1, content: b"\x01ahello", once: false },
            Record::Submit { id, order: 9, attempts: 0, content: b"\x01ahello0123456789abcdef", once: true },
            Record::Delivered { id, attempts: 2 },
            Record::Dead { id, attempts: 2, reason: b"why", verdict: false },
            Record::Dead { id, attempts: 2, reason: b"", verdict: true },
            Record::Requeued { id, order: 10 },
            Record::Gone { id },
        ]
    }

    #[test]
    fn a_record_reads_as_it_was_written_and_nothing_else_does() {
        for record in records() {
            let (label, body) = (record.label(), record.body());
            assert_eq!(Record::read(&label, body), Some(record));
            assert_eq!(Record::is_submit(&label), matches!(record, Record::Submit { .. }));
            for bit in 0..128 {
                let mut other = label;
                other[bit / 8] ^= 1 << (bit % 8);
                let read = Record::read(&other, body);
                assert!(read.is_none_or(|read| read != record && read.label() == other), "{record:?}, bit {bit}");
            }
            if body.is_empty() && !matches!(record, Record::Dead { .. }) {
                assert_eq!(Record::read(&label, b"more"), None);
            }
        }
    }

    #[test]
    fn the_kinds_of_the_format_before_are_read_and_what_is_cut_or_unknown_is_not() {
        for (body, record) in [
            (&b"\x01\0\0\0\x07\0\0\0\0\0\0\0\x09\0\x01\x01ahello"[..], records()[0]),
            (b"\x06\0\0\0\x07\0\0\0\0\0\0\0\x09\0\0\x01ahello0123456789abcdef", records()[1]),
            (b"\x02\0\0\0\x07\0\x02", records()[2]),
            (b"\x04\0\0\0\x07\0\x02why", records()[3]),
            (b"\x07\0\0\0\x07\0\x02", records()[4]),
            (b"\x05\0\0\0\x07\0\0\0\0\0\0\0\x0a", records()[5]),
            (b"\x03\0\0\0\x07", records()[6]),
        ] {
            assert_eq!(Record::read_earlier(body), Some(record));
            assert_eq!(Record::read_earlier(&body[..4]), None);
            let other = [&[8], &body[1..]].concat();
            assert_eq!(Record::read_earlier(&other), None);
        }
        assert_eq!(Record::read_earlier(b"\x03\0\0\0\x07more"), None);
    }
}
