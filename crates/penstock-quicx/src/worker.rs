//! The machine of workers.

use std::collections::VecDeque;

use crate::{Accepts, Decoder, Error, Failed, Frame, Prefetch, Refused, Result, TaskId, Types};

/// What a worker learns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerEvent {
    /// A task, to be answered by [`Worker::done`] or [`Worker::failed`].
    Task {
        /// Its ID.
        id: TaskId,
        /// Its type.
        kind: String,
        /// What it is.
        payload: Vec<u8>,
    },
    /// There is no work: it comes by itself.
    Wait,
    /// The daemon has answered a heartbeat, and has read all that was sent before it.
    Alive,
    /// The daemon has refused something: a task that was answered for too late, most of all.
    Refused(Refused),
}

/// A worker's end of a connection.
#[derive(Debug)]
pub struct Worker {
    decoder: Decoder,
    out: Vec<u8>,
    events: VecDeque<WorkerEvent>,
}

impl Default for Worker {
    fn default() -> Self {
        Self::new()
    }
}

impl Worker {
    /// A connection on which nothing was sent yet.
    pub const fn new() -> Self {
        Self { decoder: Decoder::new(Accepts::ToClient), out: Vec::new(), events: VecDeque::new() }
    }

    /// Takes tasks of these types, or of all, so many at once, and begins.
    ///
    /// Fails as a misuse where a type is not one, or it would take none.
    pub fn begin(&mut self, types: &[&[u8]], prefetch: u16) -> Result<()> {
        if prefetch == 0 {
            return Err(Error::misuse("a worker holds 1 task or more"));
        }
        let mut octets = Vec::new();
        let types = Types::collect(types, &mut octets)?;
        Frame::Subscribe(types).encode(&mut self.out)?;
        Frame::Prefetch(Prefetch(prefetch)).encode(&mut self.out)?;
        Frame::Ready.encode(&mut self.out)
    }

    /// Takes no more tasks: subscribes to a type that nobody submits. What is held can still be answered for.
    pub fn rest(&mut self) -> Result<()> {
        let mut octets = Vec::new();
        Frame::Subscribe(Types::collect(&[b"\0"], &mut octets)?).encode(&mut self.out)
    }

    /// A task is done.
    pub fn done(&mut self, id: TaskId) -> Result<()> {
        Frame::Done(id).encode(&mut self.out)
    }

    /// A task has failed. The daemon keeps 64 KiB of the reason.
    pub fn failed(&mut self, id: TaskId, reason: &[u8]) -> Result<()> {
        let reason = reason.get(..crate::REASON).unwrap_or(reason);
        Frame::Failed(Failed { id, reason }).encode(&mut self.out)
    }

    /// Says that it is at work on what it holds.
    pub fn heartbeat(&mut self) -> Result<()> {
        Frame::Heartbeat.encode(&mut self.out)
    }

    /// What is to be written; it is taken.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        (!self.out.is_empty()).then(|| std::mem::take(&mut self.out))
    }

    /// What was learnt.
    pub fn poll_event(&mut self) -> Option<WorkerEvent> {
        self.events.pop_front()
    }

    /// Octets have come. Fails, and the connection is over, where the daemon breaks a rule.
    pub fn handle_input(&mut self, octets: &[u8]) -> Result<()> {
        let mut decoder = std::mem::replace(&mut self.decoder, Decoder::new(Accepts::ToClient));
        let result = decoder.each_frame(octets, |frame| self.handle_frame(frame));
        self.decoder = decoder;
        result
    }

    fn handle_frame(&mut self, frame: Frame<'_>) -> Result<()> {
        match frame {
            Frame::Task(task) => {
                let kind = String::from_utf8_lossy(task.submit.kind).into_owned();
                self.events.push_back(WorkerEvent::Task { id: task.id, kind, payload: task.submit.payload.to_vec() });
            }
            Frame::Wait => self.events.push_back(WorkerEvent::Wait),
            Frame::Error(failure) => {
                let message = failure.message.get(..1_024).unwrap_or(failure.message);
                let message = String::from_utf8_lossy(message).into_owned();
                self.events.push_back(WorkerEvent::Refused(Refused { code: failure.code, message }));
            }
            Frame::Heartbeat => Frame::Pong.encode(&mut self.out)?,
            Frame::Pong => self.events.push_back(WorkerEvent::Alive),
            Frame::Submit(_)
            | Frame::SubmitOnce(_)
            | Frame::Ok(_)
            | Frame::Ready
            | Frame::Done(_)
            | Frame::Failed(_)
            | Frame::Stats
            | Frame::StatsResponse(_)
            | Frame::Observe(_)
            | Frame::Prefetch(_)
            | Frame::Subscribe(_)
            | Frame::DeadList
            | Frame::DeadTasks(_)
            | Frame::DeadRequeue(_)
            | Frame::DeadDrop(_)
            | Frame::DeadAfter(_)
            | Frame::Stop => return Err(Error::violation(format!("{} is not for workers", frame.opcode()))),
        }
        Ok(())
    }
}
