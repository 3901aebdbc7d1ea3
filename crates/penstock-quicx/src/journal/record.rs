//! The records of the journal: each one is a change in a task's life.

use penstock_wire::{Reader, Truncated, Writer};

use crate::TaskId;

/// The fixed-size part of a record, which a log keeps in the record's head.
pub type Label = [u8; 16];

/// A change in a task's life. Every field except text is in the label, so a record with a damaged
/// body still tells what is lost.
///
/// ```text
/// label  kind (1)  0 (1)  attempts (2)  task ID (4)  order (8); a field that a kind does not have is 0
///   1 SUBMIT     order, attempts    body: type_len, type, payload
///   2 DELIVERED  attempts
///   3 GONE
///   4 DEAD       attempts           body: reason
///   5 REQUEUED   order
///   6 SUBMIT_ONCE  as SUBMIT, with the key (16) at the end of the body
///   7 FAILED     as DEAD, but the reason comes from a worker
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record<'a> {
    /// The task was submitted, or is written again so that its old segment can be removed.
    Submit {
        /// The task's ID.
        id: TaskId,
        /// Its number in the order of submission.
        order: u64,
        /// Deliveries so far.
        attempts: u16,
        /// The type and the payload as in SUBMIT, and then the key if the task has one.
        content: &'a [u8],
        /// Whether the task has a key.
        once: bool,
    },
    /// The task was delivered to a worker.
    Delivered {
        /// The task's ID.
        id: TaskId,
        /// Deliveries, including this one.
        attempts: u16,
    },
    /// The task is done, has failed or was dropped. In segments of earlier formats, it may also
    /// mean that the task was never accepted.
    Gone {
        /// The task's ID.
        id: TaskId,
    },
    /// The task went to the dead list.
    Dead {
        /// The task's ID.
        id: TaskId,
        /// Deliveries.
        attempts: u16,
        /// Why the last delivery failed.
        reason: &'a [u8],
        /// Whether the reason comes from a worker.
        verdict: bool,
    },
    /// The task went from the dead list to the end of the queue.
    Requeued {
        /// The task's ID.
        id: TaskId,
        /// Its new number in the order of submission.
        order: u64,
    },
}

impl<'a> Record<'a> {
    /// The bytes that a log adds to a body.
    pub(crate) const AROUND: usize = 40;

    /// Return the ID of the record's task.
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

    /// Decode a label and a body; `None` if another version wrote them.
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
        // Reject a label or a body with data that this kind of record does not have.
        (record.label() == *label && record.body().len() == body.len()).then_some(record)
    }

    /// Decode a record of the earlier formats, which have everything in the body: kind (1), task ID
    /// (4), then the fields of the kind.
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
