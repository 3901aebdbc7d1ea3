//! A worker: tasks come by themselves, and are answered for.

use std::fmt;
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes, BytesMut};
use penstock_io::DriverError as _;
use penstock_io::runtime::{self, PerProcess};
use penstock_quicx::{TaskId, Worker as Machine, WorkerEvent};
use tokio::io::{AsyncReadExt as _, ReadHalf, WriteHalf, split};
use tokio::sync::{Mutex, mpsc, oneshot};

use super::transport::{ConnectOptions, Over, Peer, Stream, connect, until, write};
use crate::{Error, Result};

const READ: usize = 64 << 10;

/// What a worker takes.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// The daemon.
    pub connect: ConnectOptions,
    /// Only these types. Default: all.
    pub types: Vec<String>,
    /// Tasks held at once. Default: 1.
    pub prefetch: u16,
    /// How often the daemon hears that we are at work, so that it does not give our tasks to others: 15 s. It answers: where
    /// three are left without an answer, the connection is over.
    pub heartbeat: Duration,
}

impl WorkerOptions {
    /// The defaults.
    pub const fn new(connect: ConnectOptions) -> Self {
        Self { connect, types: Vec::new(), prefetch: 1, heartbeat: Duration::from_secs(15) }
    }
}

/// A task that this worker holds until it says what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its ID.
    pub id: TaskId,
    /// Its type.
    pub kind: String,
    /// What it is.
    pub payload: Vec<u8>,
}

/// A connection that takes tasks. What it holds when it is dropped goes to others.
pub struct Worker(PerProcess<Handle>);

struct Handle {
    tasks: Mutex<mpsc::UnboundedReceiver<Result<Task>>>,
    answers: mpsc::UnboundedSender<Command>,
    over: Over,
}

enum Command {
    /// What became of a task: why it failed, or none, and who waits until that is written.
    Verdict(TaskId, Option<Vec<u8>>, oneshot::Sender<Result<()>>),
    /// These are done, and who waits until that is written. What is not held any more is passed over.
    Done(Vec<TaskId>, oneshot::Sender<Result<()>>),
    /// No more tasks, and who waits until none can come.
    Rest(oneshot::Sender<Result<()>>),
    /// Who waits until all has come that the daemon has for us now.
    Settle(oneshot::Sender<Result<()>>),
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}

impl Worker {
    /// Connects and begins to take tasks.
    pub async fn connect(options: WorkerOptions) -> Result<Self> {
        let mut machine = Machine::new(Instant::now(), options.heartbeat);
        let types: Vec<&[u8]> = options.types.iter().map(String::as_bytes).collect();
        machine.begin(&types, options.prefetch)?;
        let (tasks, taken) = mpsc::unbounded_channel();
        let (answers, given) = mpsc::unbounded_channel();
        let (connected, result) = oneshot::channel();
        let over = Over::default();
        let end = over.clone();
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
                        resting: Vec::new(),
                        input: BytesMut::new(),
                        output: Bytes::new(),
                    };
                    driver.run(given, end).await;
                }
                Err(error) => drop(connected.send(Err(error))),
            }
        })?;
        result.await.map_err(|_| over.error())??;
        Ok(Self(PerProcess::new(Handle { tasks: Mutex::new(taken), answers, over })))
    }

    /// The next task. Fails when the connection is over. Several may wait, each gets another task.
    pub async fn next(&self) -> Result<Task> {
        let handle = self.0.get()?;
        handle.tasks.lock().await.recv().await.unwrap_or_else(|| Err(handle.over.error()))
    }

    /// Says that a task is done. Returns when that is written.
    pub async fn done(&self, id: TaskId) -> Result<()> {
        self.answer(id, None).await
    }

    /// Says that tasks are done, all together. Returns when that is written.
    pub async fn done_all(&self, ids: Vec<TaskId>) -> Result<()> {
        self.command(|written| Command::Done(ids, written)).await
    }

    /// Says that a task has failed, and why. Returns when that is written.
    pub async fn failed(&self, id: TaskId, reason: Vec<u8>) -> Result<()> {
        self.answer(id, Some(reason)).await
    }

    async fn answer(&self, id: TaskId, failure: Option<Vec<u8>>) -> Result<()> {
        self.command(|written| Command::Verdict(id, failure, written)).await
    }

    /// Takes no more tasks. Returns when none can come any more: those that came before are still given by
    /// [`next`](Self::next), and are still held.
    pub async fn rest(&self) -> Result<()> {
        self.command(Command::Rest).await
    }

    /// Returns when the daemon has read all that was said before, and all has come that it had for us then.
    pub async fn settle(&self) -> Result<()> {
        self.command(Command::Settle).await
    }

    async fn command(&self, command: impl FnOnce(oneshot::Sender<Result<()>>) -> Command) -> Result<()> {
        let (done, result) = oneshot::channel();
        let handle = self.0.get()?;
        handle.answers.send(command(done)).map_err(|_| handle.over.error())?;
        result.await.map_err(|_| handle.over.error())?
    }
}

/// The connection.
struct Driver {
    reading: ReadHalf<Box<dyn Stream>>,
    writing: WriteHalf<Box<dyn Stream>>,
    peer: Peer,
    machine: Machine,
    tasks: mpsc::UnboundedSender<Result<Task>>,
    /// Who waits for what is being written.
    waiting: Vec<oneshot::Sender<Result<()>>>,
    /// Who waits for the answer to which heartbeat.
    resting: Vec<(u64, oneshot::Sender<Result<()>>)>,
    input: BytesMut,
    output: Bytes,
}

impl Driver {
    async fn run(mut self, mut answers: mpsc::UnboundedReceiver<Command>, over: Over) {
        let error = loop {
            match self.step(&mut answers).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => break error,
            }
        };
        over.because(&error);
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
        for waiting in self.waiting.into_iter().chain(self.resting.into_iter().map(|(_, waiting)| waiting)) {
            let _ = waiting.send(Err(error.clone()));
        }
    }

    async fn step(&mut self, answers: &mut mpsc::UnboundedReceiver<Command>) -> Result<bool> {
        if self.output.is_empty() {
            // All of it is written.
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
                self.learn_all()?;
                handled.map_err(|error| self.peer.wrong(error, &self.input))?;
            }
            () = until(self.machine.poll_timeout()) => {
                self.machine.handle_timeout(Instant::now())?;
                self.learn_all()?;
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
            Command::Rest(resting) => {
                self.machine.rest()?;
                return self.fence(resting);
            }
            Command::Settle(settled) => {
                self.machine.ask()?;
                return self.fence(settled);
            }
        };
        if !self.machine.holds(id) {
            let _ = written.send(Err(Error::misuse(format!("task {id} is not held by this worker"))));
            return Ok(());
        }
        match failure {
            None => self.machine.done(Instant::now(), id)?,
            Some(reason) => self.machine.failed(Instant::now(), id, &reason)?,
        }
        self.waiting.push(written);
        Ok(())
    }

    /// Has somebody wait until the daemon has read all that was sent.
    fn fence(&mut self, waiting: oneshot::Sender<Result<()>>) -> Result<()> {
        let beat = self.machine.heartbeat()?;
        self.resting.push((beat, waiting));
        Ok(())
    }

    fn learn_all(&mut self) -> Result<()> {
        while let Some(event) = self.machine.poll_event() {
            self.learn(event)?;
        }
        Ok(())
    }

    fn learn(&mut self, event: WorkerEvent) -> Result<()> {
        match event {
            WorkerEvent::Task { id, kind, payload } => {
                // An error means that nobody takes tasks any more: this ends with the next command.
                let _ = self.tasks.send(Ok(Task { id, kind, payload }));
            }
            WorkerEvent::Alive(answered) => {
                for (_, resting) in self.resting.extract_if(.., |(beat, _)| *beat <= answered) {
                    let _ = resting.send(Ok(()));
                }
            }
            WorkerEvent::Silent => return Err(self.peer.silent()),
            WorkerEvent::OneByOne => tracing::info!(
                "the daemon does not know PREFETCH and SUBSCRIBE: it gives one task at a time, of any type"
            ),
            WorkerEvent::Refused(refused) => tracing::warn!(%refused, "the daemon refused a worker's frame"),
        }
        Ok(())
    }
}
