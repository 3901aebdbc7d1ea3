use std::fmt;

use bytes::BufMut;
use penstock_wire::{Reader, Truncated, Writer};

/// A task's ID: from 1, unique among live tasks, wrapping past 0 (decision 11). STOP is answered with 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(pub u32);

impl TaskId {
    /// Bytes on the wire.
    pub const LENGTH: usize = 4;

    /// Return the ID after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        match self.0.checked_add(1) {
            Some(id) => Self(id),
            None => Self(1),
        }
    }

    pub(super) fn encode(self, writer: &mut Writer<impl BufMut>) {
        writer.u32(self.0);
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, Truncated> {
        reader.u32().map(Self)
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_wrap_past_0() {
        assert_eq!((TaskId(1).next(), TaskId(u32::MAX).next()), (TaskId(2), TaskId(1)));
    }
}
