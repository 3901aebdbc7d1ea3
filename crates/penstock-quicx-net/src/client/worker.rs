//! A worker: it receives tasks and reports their outcomes.

use std::fmt;
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes, BytesMut};
use penstock_io::runtime::{self, PerProcess};
use penstock_quicx::{Misuse, TaskId, Worker as Machine, WorkerEvent};
use tokio::io::{AsyncReadExt as _, ReadHalf, WriteHalf, split};
use tokio::sync::{Mutex, mpsc, oneshot};

use super::transport::{ClosedReason, ConnectOptions, Peer, Stream, connect, until, write};
use crate::{Error, Result};

const READ: usize = 64 << 10;

/// The options of a worker.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// The daemon.
    pub connect: ConnectOptions,
    /// The accepted types. Default: all.
    pub types: Vec<String>,
    /// The most tasks held at once. Default: 1.
    pub prefetch: u16,
    /// The interval of heartbeats, without which the daemon would give the tasks to other workers.
    /// If three stay unanswered, the connection ends. Default: 15 s.
    pub heartbeat: Duration,
}

impl WorkerOptions {
    /// Return the defaults.
    pub const fn new(connect: ConnectOptions) -> Self {
        Self { connect, types: Vec::new(), prefetch: 1, heartbeat: Duration::from_secs(15) }
    }
}

/// A task that this worker holds until it reports the outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its ID.
    pub id: TaskId,
    /// Its type.
    pub kind: String,
    /// Its payload.
    pub payload: Vec<u8>,
}

/// A connection that receives tasks. Tasks held when it is dropped go to other workers.
pub struct Worker(PerProcess<Handle>);

struct Handle {
    tasks: Mutex<mpsc::UnboundedReceiver<Result<Task>>>,
    answers: mpsc::UnboundedSender<Command>,
    closed_reason: ClosedReason,
}

enum Command {
    /// The outcome of a task, with the reason if it failed, and the caller that waits until it is written.
    Verdict(TaskId, Option<Vec<u8>>, oneshot::Sender<Result<()>>),
    /// Tasks that are done, and the caller that waits until that is written. Tasks no longer held are skipped.
    Done(Vec<TaskId>, oneshot::Sender<Result<()>>),
    /// A request to receive no more tasks, and the caller that waits until none can arrive.
    Rest(oneshot::Sender<Result<()>>),
    /// The caller that waits until all tasks that the daemon now has for this worker have arrived.
    Settle(oneshot::Sender<Result<()>>),
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}

impl Worker {
    /// Connect and start to receive tasks.
    pub async fn connect(options: WorkerOptions) -> Result<Self> {
        let mut machine = Machine::new(Instant::now(), options.heartbeat);
        let types: Vec<&[u8]> = options.types.iter().map(String::as_bytes).collect();
        machine.begin(&types, options.prefetch)?;
        let (tasks, taken) = mpsc::unbounded_channel();
        let (answers, given) = mpsc::unbounded_channel();
        let (connected, result) = oneshot::channel();
        let closed_reason = ClosedReason::default();
        let end = closed_reason.clone();
        runtime::spawn(async move {
            match connect(options.connect).await {
                Ok((stream, peer)) => {
                    let _ = connected.send(Ok(()));
                    let (reading, writing) = split(stream);
                    let driver = Driver {
                        reading,
                        writing,
                        peer,
                        machine,
                        tasks,
                        waiting: Vec::new(),
                        fences: Vec::new(),
                        input: BytesMut::new(),
                        output: Bytes::new(),
                    };
                    driver.run(given, end).await;
                }
                Err(error) => drop(connected.send(Err(error))),
            }
        })?;
        result.await.map_err(|_| closed_reason.error())??;
        Ok(Self(PerProcess::new(Handle { tasks: Mutex::new(taken), answers, closed_reason })))
    }

    /// Return the next task. Fails once the connection has ended. Several callers may wait; each task goes to one of
    /// them.
    pub async fn next(&self) -> Result<Task> {
        let handle = self.0.get()?;
        handle.tasks.lock().await.recv().await.unwrap_or_else(|| Err(handle.closed_reason.error()))
    }

    /// Report that a task is done. Returns once that is written.
    pub async fn done(&self, id: TaskId) -> Result<()> {
        self.answer(id, None).await
    }

    /// Report that tasks are done, all together. Returns once that is written.
    pub async fn done_all(&self, ids: Vec<TaskId>) -> Result<()> {
        self.command(|written| Command::Done(ids, written)).await
    }

    /// Report that a task has failed, with the reason. Returns once that is written.
    pub async fn failed(&self, id: TaskId, reason: Vec<u8>) -> Result<()> {
        self.answer(id, Some(reason)).await
    }

    async fn answer(&self, id: TaskId, failure: Option<Vec<u8>>) -> Result<()> {
        self.command(|written| Command::Verdict(id, failure, written)).await
    }

    /// Receive no more tasks. Returns once none can arrive any more; tasks that arrived before are still returned by
    /// [`next`](Self::next), and are still held.
    pub async fn rest(&self) -> Result<()> {
        self.command(Command::Rest).await
    }

    /// Wait until the daemon has read everything sent before, and all tasks that it then had for
    /// this worker have arrived.
    pub async fn settle(&self) -> Result<()> {
        self.command(Command::Settle).await
    }

    async fn command(&self, command: impl FnOnce(oneshot::Sender<Result<()>>) -> Command) -> Result<()> {
        let (done, result) = oneshot::channel();
        let handle = self.0.get()?;
        handle.answers.send(command(done)).map_err(|_| handle.closed_reason.error())?;
        result.await.map_err(|_| handle.closed_reason.error())?
    }
}

/// The async task that owns the connection.
struct Driver {
    reading: ReadHalf<Box<dyn Stream>>,
    writing: WriteHalf<Box<dyn Stream>>,
    peer: Peer,
    machine: Machine,
    tasks: mpsc::UnboundedSender<Result<Task>>,
    /// Callers that wait for the current write.
    waiting: Vec<oneshot::Sender<Result<()>>>,
    /// Callers that wait for the answer to a heartbeat, by its number.
    fences: Vec<(u64, oneshot::Sender<Result<()>>)>,
    input: BytesMut,
    output: Bytes,
}

impl Driver {
    async fn run(mut self, mut answers: mpsc::UnboundedReceiver<Command>, closed_reason: ClosedReason) {
        let error = loop {
            match self.step(&mut answers).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => break error,
            }
        };
        closed_reason.set(&error);
        let _ = self.tasks.send(Err(error.clone()));
        answers.close();
        while let Ok(
            Command::Verdict(_, _, waiting)
            | Command::Done(_, waiting)
            | Command::Rest(waiting)
            | Command::Settle(waiting),
        ) = answers.try_recv()
        {
            self.waiting.push(waiting);
        }
        for waiting in self.waiting.into_iter().chain(self.fences.into_iter().map(|(_, waiting)| waiting)) {
            let _ = waiting.send(Err(error.clone()));
        }
    }

    async fn step(&mut self, answers: &mut mpsc::UnboundedReceiver<Command>) -> Result<bool> {
        if self.output.is_empty() {
            // All output is written, so the callers that wait for it return.
            for waiting in self.waiting.drain(..) {
                let _ = waiting.send(Ok(()));
            }
            while let Ok(command) = answers.try_recv() {
                self.take(command)?;
            }
            self.output = self.machine.poll_transmit().unwrap_or_default().into();
        }
        self.input.clear();
        self.input.reserve(READ);
        tokio::select! {
            biased;
            command = answers.recv(), if self.output.is_empty() => match command {
                Some(command) => self.take(command)?,
                None => return Ok(false),
            },
            written = write(&mut self.writing, &self.output) => {
                let written = written.map_err(|error| self.peer.broken(error))?;
                self.output.advance(written);
            }
            read = self.reading.read_buf(&mut self.input) => {
                if read.map_err(|error| self.peer.broken(error))? == 0 {
                    return Err(self.peer.ended());
                }
                let handled = self.machine.handle_input(Instant::now(), &self.input);
                self.handle_events()?;
                handled.map_err(|error| self.peer.wrong(error, &self.input))?;
            }
            () = until(self.machine.poll_timeout()) => {
                self.machine.handle_timeout(Instant::now())?;
                self.handle_events()?;
            }
        }
        Ok(true)
    }

    fn take(&mut self, command: Command) -> Result<()> {
        let (id, failure, written) = match command {
            Command::Verdict(id, failure, written) => (id, failure, written),
            Command::Done(ids, written) => {
                for id in ids {
                    if self.machine.holds(id) {
                        self.machine.done(Instant::now(), id)?;
                    }
                }
                self.waiting.push(written);
                return Ok(());
            }
            Command::Rest(waiting) => {
                self.machine.rest()?;
                return self.fence(waiting);
            }
            Command::Settle(settled) => {
                self.machine.ask()?;
                return self.fence(settled);
            }
        };
        if !self.machine.holds(id) {
            let _ = written.send(Err(Error::Protocol(Misuse::NotHeld(id).into())));
            return Ok(());
        }
        match failure {
            None => self.machine.done(Instant::now(), id)?,
            Some(reason) => self.machine.failed(Instant::now(), id, &reason)?,
        }
        self.waiting.push(written);
        Ok(())
    }

    /// Let a caller wait until the daemon has read everything sent.
    fn fence(&mut self, waiting: oneshot::Sender<Result<()>>) -> Result<()> {
        let beat = self.machine.heartbeat()?;
        self.fences.push((beat, waiting));
        Ok(())
    }

    fn handle_events(&mut self) -> Result<()> {
        while let Some(event) = self.machine.poll_event() {
            self.handle_event(event)?;
        }
        Ok(())
    }

    fn handle_event(&mut self, event: WorkerEvent) -> Result<()> {
        match event {
            WorkerEvent::Task { id, kind, payload } => {
                // An error means that the handle was dropped: the driver ends at its next step.
                let _ = self.tasks.send(Ok(Task { id, kind, payload }));
            }
            WorkerEvent::Alive(answered) => {
                for (_, fence) in self.fences.extract_if(.., |(beat, _)| *beat <= answered) {
                    let _ = fence.send(Ok(()));
                }
            }
            WorkerEvent::Silent => return Err(self.peer.silent()),
            WorkerEvent::OneByOne => tracing::info!(
                "the daemon does not support PREFETCH and SUBSCRIBE: it sends one task at a time, of any type"
            ),
            WorkerEvent::Refused(refused) => tracing::warn!(%refused, "the daemon refused a worker's frame"),
        }
        Ok(())
    }
}
