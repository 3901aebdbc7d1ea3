//! The frames. Each kind of payload has a file, with its encoder next to its decoder.
//!
//! ```text
//! frame   version 0x01 (1)  opcode (1)  length (4)  payload (length)
//! ```

mod dead;
mod failure;
mod id;
mod opcode;
mod prefetch;
mod stats;
mod subscribe;
mod task;

use bytes::BufMut;
pub use dead::{DeadTask, DeadTasks};
pub use failure::{ErrorCode, Failed, Failure};
pub use id::TaskId;
pub use opcode::Opcode;
use penstock_wire::{Reader, Truncated, Writer};
pub use prefetch::Prefetch;
pub use stats::StatsResponse;
pub use subscribe::Types;
pub use task::{Submit, SubmitOnce, Task};

use crate::error::{Malformed, Misuse, Result};

/// The byte that every frame begins with.
pub const VERSION: u8 = 1;
/// Bytes before the payload.
pub const HEADER: usize = 6;

/// A whole frame; it borrows its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A producer's task.
    Submit(Submit<'a>),
    /// The daemon has accepted a task or fulfilled a request.
    Ok(TaskId),
    /// The daemon has refused a frame.
    Error(Failure<'a>),
    /// A worker asks for tasks.
    Ready,
    /// A task for a worker.
    Task(Task<'a>),
    /// A worker has done a task, or the daemon reports that an observed task is done.
    Done(TaskId),
    /// A worker has failed at a task, or the daemon reports that an observed or submitted task has failed.
    Failed(Failed<'a>),
    /// There is no work.
    Wait,
    /// A check that the peer is alive.
    Heartbeat,
    /// The answer to HEARTBEAT.
    Pong,
    /// A request for statistics.
    Stats,
    /// The statistics.
    StatsResponse(StatsResponse),
    /// A producer asks for a task's outcome (decision 9).
    Observe(TaskId),
    /// A worker holds up to this many tasks (decision 6).
    Prefetch(Prefetch),
    /// A worker takes only these types (decision 6).
    Subscribe(Types<'a>),
    /// A request for the dead list.
    DeadList,
    /// The dead list.
    DeadTasks(DeadTasks<'a>),
    /// A request to queue a dead task again.
    DeadRequeue(TaskId),
    /// A request to drop a dead task.
    DeadDrop(TaskId),
    /// A request to stop the daemon.
    Stop,
    /// A producer's task with a key. Submitting it again makes no second task (Spark reruns tasks).
    SubmitOnce(SubmitOnce<'a>),
    /// A request for the dead tasks with higher IDs than this one, in the order of their IDs.
    DeadAfter(TaskId),
}

impl<'a> Frame<'a> {
    /// Return the frame's opcode.
    pub const fn opcode(&self) -> Opcode {
        match self {
            Self::Submit(_) => Opcode::Submit,
            Self::Ok(_) => Opcode::Ok,
            Self::Error(_) => Opcode::Error,
            Self::Ready => Opcode::Ready,
            Self::Task(_) => Opcode::Task,
            Self::Done(_) => Opcode::Done,
            Self::Failed(_) => Opcode::Failed,
            Self::Wait => Opcode::Wait,
            Self::Heartbeat => Opcode::Heartbeat,
            Self::Pong => Opcode::Pong,
            Self::Stats => Opcode::Stats,
            Self::StatsResponse(_) => Opcode::StatsResponse,
            Self::Observe(_) => Opcode::Observe,
            Self::Prefetch(_) => Opcode::Prefetch,
            Self::Subscribe(_) => Opcode::Subscribe,
            Self::DeadList => Opcode::DeadList,
            Self::DeadTasks(_) => Opcode::DeadTasks,
            Self::DeadRequeue(_) => Opcode::DeadRequeue,
            Self::DeadDrop(_) => Opcode::DeadDrop,
            Self::Stop => Opcode::Stop,
            Self::SubmitOnce(_) => Opcode::SubmitOnce,
            Self::DeadAfter(_) => Opcode::DeadAfter,
        }
    }

    /// Append the frame.
    ///
    /// Fails as a misuse, without appending anything, if a task's type is empty or a field is too long.
    pub fn encode(&self, out: &mut impl BufMut) -> Result<()> {
        self.check()?;
        let length = u32::try_from(self.payload()).map_err(|_| Misuse::FrameLength)?;
        let mut writer = Writer::new(out);
        header(self.opcode(), length, &mut writer);
        match self {
            Self::Submit(submit) => submit.encode(&mut writer),
            Self::SubmitOnce(once) => once.encode(&mut writer),
            Self::Ok(id)
            | Self::Done(id)
            | Self::Observe(id)
            | Self::DeadRequeue(id)
            | Self::DeadDrop(id)
            | Self::DeadAfter(id) => id.encode(&mut writer),
            Self::Error(failure) => failure.encode(&mut writer),
            Self::Task(task) => task.encode(&mut writer),
            Self::Failed(failed) => failed.encode(&mut writer),
            Self::StatsResponse(stats) => stats.encode(&mut writer),
            Self::Prefetch(prefetch) => prefetch.encode(&mut writer),
            Self::Subscribe(types) => writer.bytes(types.bytes()),
            Self::DeadTasks(tasks) => writer.bytes(tasks.bytes()),
            Self::Ready | Self::Wait | Self::Heartbeat | Self::Pong | Self::Stats | Self::DeadList | Self::Stop => {}
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        match self {
            Self::Submit(submit) => submit.check(),
            Self::SubmitOnce(once) => once.submit.check(),
            Self::Task(task) => task.submit.check(),
            Self::Ok(_)
            | Self::Error(_)
            | Self::Ready
            | Self::Done(_)
            | Self::Failed(_)
            | Self::Wait
            | Self::Heartbeat
            | Self::Pong
            | Self::Stats
            | Self::StatsResponse(_)
            | Self::Observe(_)
            | Self::Prefetch(_)
            | Self::Subscribe(_)
            | Self::DeadList
            | Self::DeadTasks(_)
            | Self::DeadRequeue(_)
            | Self::DeadDrop(_)
            | Self::DeadAfter(_)
            | Self::Stop => Ok(()),
        }
    }

    /// Return the bytes of the whole frame.
    pub(crate) fn length(&self) -> usize {
        HEADER + self.payload()
    }

    /// Return the bytes of the payload.
    fn payload(&self) -> usize {
        match self {
            Self::Submit(submit) => submit.bytes(),
            Self::SubmitOnce(once) => once.bytes(),
            Self::Ok(_)
            | Self::Done(_)
            | Self::Observe(_)
            | Self::DeadRequeue(_)
            | Self::DeadDrop(_)
            | Self::DeadAfter(_) => TaskId::LENGTH,
            Self::Error(failure) => 1 + failure.message.len(),
            Self::Task(task) => TaskId::LENGTH + task.submit.bytes(),
            Self::Failed(failed) => TaskId::LENGTH + failed.reason.len(),
            Self::StatsResponse(_) => StatsResponse::LENGTH,
            Self::Prefetch(_) => Prefetch::LENGTH,
            Self::Subscribe(types) => types.bytes().len(),
            Self::DeadTasks(tasks) => tasks.bytes().len(),
            Self::Ready | Self::Wait | Self::Heartbeat | Self::Pong | Self::Stats | Self::DeadList | Self::Stop => 0,
        }
    }

    /// Decode the payload of a frame.
    ///
    /// Fails as malformed if the payload does not fit its layout (decision 3).
    pub fn decode(opcode: Opcode, payload: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        let frame = Self::read(opcode, &mut reader).map_err(|truncated| Malformed::Payload { opcode, truncated })?;
        if !reader.is_empty() {
            let (length, trailing) = (payload.len(), reader.remaining());
            return Err(Malformed::Trailing { opcode, length, trailing });
        }
        match &frame {
            Self::Submit(submit) => submit.check_type()?,
            Self::SubmitOnce(once) => once.submit.check_type()?,
            Self::Task(task) => task.submit.check_type()?,
            Self::Prefetch(Prefetch(0)) => return Err(Malformed::EmptyPrefetch),
            Self::Subscribe(types) => types.check()?,
            Self::DeadTasks(tasks) => tasks.check()?,
            Self::Ok(_)
            | Self::Error(_)
            | Self::Ready
            | Self::Done(_)
            | Self::Failed(_)
            | Self::Wait
            | Self::Heartbeat
            | Self::Pong
            | Self::Stats
            | Self::StatsResponse(_)
            | Self::Observe(_)
            | Self::Prefetch(_)
            | Self::DeadList
            | Self::DeadRequeue(_)
            | Self::DeadDrop(_)
            | Self::DeadAfter(_)
            | Self::Stop => {}
        }
        Ok(frame)
    }

    fn read(opcode: Opcode, reader: &mut Reader<'a>) -> Result<Self, Truncated> {
        Ok(match opcode {
            Opcode::Submit => Self::Submit(Submit::decode(reader)?),
            Opcode::Ok => Self::Ok(TaskId::decode(reader)?),
            Opcode::Error => Self::Error(Failure::decode(reader)?),
            Opcode::Ready => Self::Ready,
            Opcode::Task => Self::Task(Task::decode(reader)?),
            Opcode::Done => Self::Done(TaskId::decode(reader)?),
            Opcode::Failed => Self::Failed(Failed::decode(reader)?),
            Opcode::Wait => Self::Wait,
            Opcode::Heartbeat => Self::Heartbeat,
            Opcode::Pong => Self::Pong,
            Opcode::Stats => Self::Stats,
            Opcode::StatsResponse => Self::StatsResponse(StatsResponse::decode(reader)?),
            Opcode::Observe => Self::Observe(TaskId::decode(reader)?),
            Opcode::Prefetch => Self::Prefetch(Prefetch::decode(reader)?),
            Opcode::Subscribe => Self::Subscribe(Types::decode(reader)?),
            Opcode::DeadList => Self::DeadList,
            Opcode::DeadTasks => Self::DeadTasks(DeadTasks::decode(reader)?),
            Opcode::DeadRequeue => Self::DeadRequeue(TaskId::decode(reader)?),
            Opcode::DeadDrop => Self::DeadDrop(TaskId::decode(reader)?),
            Opcode::Stop => Self::Stop,
            Opcode::SubmitOnce => Self::SubmitOnce(SubmitOnce::decode(reader)?),
            Opcode::DeadAfter => Self::DeadAfter(TaskId::decode(reader)?),
        })
    }
}

/// Append the six bytes before a payload.
pub(crate) fn header(opcode: Opcode, length: u32, writer: &mut Writer<impl BufMut>) {
    writer.u8(VERSION);
    writer.u8(opcode.byte());
    writer.u32(length);
}

/// Append a TASK with the content of a block.
pub(crate) fn write_task(id: TaskId, content: &[u8], out: &mut Vec<u8>) {
    let mut writer = Writer::new(out);
    header(Opcode::Task, (TaskId::LENGTH + content.len()) as u32, &mut writer);
    id.encode(&mut writer);
    writer.bytes(content);
}

/// Decode the type and the payload in a block or in a record of the journal.
pub(crate) fn submit_of(content: &[u8]) -> Result<Submit<'_>, Malformed> {
    let truncated = |truncated| Malformed::Payload { opcode: Opcode::Submit, truncated };
    let submit = Submit::decode(&mut Reader::new(content)).map_err(truncated)?;
    submit.check_type()?;
    Ok(submit)
}
