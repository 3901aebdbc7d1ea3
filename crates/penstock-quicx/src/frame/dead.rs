use bytes::BufMut;
use penstock_wire::{Reader, Truncated, Writer};

use super::TaskId;
use crate::error::{Malformed, Result};

/// A task on the dead list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadTask<'a> {
    /// Its ID.
    pub id: TaskId,
    /// How often it was delivered.
    pub attempts: u16,
    /// Its type.
    pub kind: &'a [u8],
    /// Why its last delivery failed, as far as the dead list kept it.
    pub reason: &'a [u8],
}

impl<'a> DeadTask<'a> {
    /// Append the task to a payload of DEAD_TASKS.
    pub(crate) fn encode(&self, out: &mut impl BufMut) {
        let mut writer = Writer::new(out);
        self.id.encode(&mut writer);
        writer.u16(self.attempts);
        writer.u8(u8::try_from(self.kind.len()).unwrap_or(u8::MAX));
        writer.bytes(self.kind);
        // A reason may be one byte longer than its length field can express.
        let reason = self.reason.get(..usize::from(u16::MAX)).unwrap_or(self.reason);
        writer.u16(reason.len() as u16);
        writer.bytes(reason);
    }

    fn decode(reader: &mut Reader<'a>) -> std::result::Result<Self, Truncated> {
        let (id, attempts, length) = (TaskId::decode(reader)?, reader.u16()?, reader.u8()?);
        let kind = reader.take(usize::from(length))?;
        let length = reader.u16()?;
        Ok(Self { id, attempts, kind, reason: reader.take(usize::from(length))? })
    }
}

/// The payload of DEAD_TASKS, an iterator over the tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadTasks<'a> {
    rest: &'a [u8],
}

impl<'a> DeadTasks<'a> {
    /// Collect tasks into a payload.
    pub fn collect(tasks: &[DeadTask<'_>], out: &'a mut Vec<u8>) -> Self {
        tasks.iter().for_each(|task| task.encode(out));
        Self { rest: out }
    }

    /// Make a payload of tasks that are encoded one after the other.
    pub(crate) const fn of(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) const fn bytes(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn decode(reader: &mut Reader<'a>) -> std::result::Result<Self, Truncated> {
        Ok(Self { rest: reader.take(reader.remaining())? })
    }

    pub(super) fn check(&self) -> Result<(), Malformed> {
        let mut tasks = *self;
        while !tasks.rest.is_empty() {
            tasks.next().ok_or(Malformed::DeadTasksEnd)?;
        }
        Ok(())
    }
}

impl<'a> Iterator for DeadTasks<'a> {
    type Item = DeadTask<'a>;

    fn next(&mut self) -> Option<DeadTask<'a>> {
        let mut reader = Reader::new(self.rest);
        let task = DeadTask::decode(&mut reader).ok()?;
        self.rest = reader.take(reader.remaining()).ok()?;
        Some(task)
    }
}
