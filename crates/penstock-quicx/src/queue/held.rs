//! The layout in memory of answers that wait for the disk.
//!
//! ```text
//! an answer after a deferred one    a frame: version 0x01 first
//! everything else                   kind (1)  number (4)  number (4)  LSN (8)
//! ```

use penstock_wire::{Reader, Writer};

use crate::{HEADER, Lsn, TaskId};

/// Bytes of an item that is not a frame.
pub(super) const LENGTH: usize = 1 + 4 + 4 + 8;

/// The dead tasks that a client requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeadList {
    /// DEAD_LIST.
    Oldest,
    /// DEAD_AFTER.
    After(TaskId),
}

/// One or several deferred answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeferredAnswer {
    /// OK for tasks with consecutive IDs, sent once this LSN is durable; refused if their records cannot be written.
    Submits { first: TaskId, count: u32, lsn: Lsn },
    /// ERROR for submits whose records could not be written.
    Refused { count: u32 },
    /// OK for a record that is retried until it is written.
    Control { id: TaskId, lsn: Lsn },
    /// DEAD_TASKS, which is made when it can be sent.
    Dead(DeadList),
}

impl DeferredAnswer {
    pub(super) fn encode(self) -> [u8; LENGTH] {
        let (kind, one, two, lsn) = match self {
            Self::Submits { first, count, lsn } => (0xF0, first.0, count, lsn.0),
            Self::Refused { count } => (0xF1, 0, count, 0),
            Self::Control { id, lsn } => (0xF2, id.0, 0, lsn.0),
            Self::Dead(DeadList::Oldest) => (0xF3, 0, 0, 0),
            Self::Dead(DeadList::After(id)) => (0xF4, id.0, 0, 0),
        };
        let mut item = [0; LENGTH];
        let mut writer = Writer::new(item.as_mut_slice());
        writer.u8(kind);
        writer.u32(one);
        writer.u32(two);
        writer.u64(lsn);
        item
    }

    /// Decode an item; `None` if the bytes are the start of a frame.
    pub(super) fn decode(item: &[u8; LENGTH]) -> Option<Self> {
        let mut reader = Reader::new(item);
        let (kind, one, two) = (reader.u8().ok()?, reader.u32().ok()?, reader.u32().ok()?);
        let lsn = Lsn(reader.u64().ok()?);
        match kind {
            0xF0 => Some(Self::Submits { first: TaskId(one), count: two, lsn }),
            0xF1 => Some(Self::Refused { count: two }),
            0xF2 => Some(Self::Control { id: TaskId(one), lsn }),
            0xF3 => Some(Self::Dead(DeadList::Oldest)),
            0xF4 => Some(Self::Dead(DeadList::After(TaskId(one)))),
            _ => None,
        }
    }
}

/// Return the frame at the start of these bytes.
pub(super) fn frame(bytes: &[u8]) -> &[u8] {
    let length = bytes.first_chunk::<HEADER>().map_or(0, |[.., a, b, c, d]| u32::from_be_bytes([*a, *b, *c, *d]));
    bytes.get(..HEADER + length as usize).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VERSION;

    #[test]
    fn every_item_reads_as_it_was_written_and_a_frame_is_none() {
        let (id, lsn) = (TaskId(7), Lsn(1 << 40));
        for item in [
            DeferredAnswer::Submits { first: id, count: 3, lsn },
            DeferredAnswer::Refused { count: 3 },
            DeferredAnswer::Control { id, lsn },
            DeferredAnswer::Dead(DeadList::Oldest),
            DeferredAnswer::Dead(DeadList::After(id)),
        ] {
            assert_eq!(DeferredAnswer::decode(&item.encode()), Some(item));
        }
        let mut pong = [0; LENGTH];
        pong[0] = VERSION;
        assert_eq!((DeferredAnswer::decode(&pong), frame(&pong).len()), (None, HEADER));
    }
}
