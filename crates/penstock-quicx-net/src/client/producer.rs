//! Producers and monitors: clients that send requests.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes, BytesMut};
use penstock_io::runtime::{self, PerProcess};
use penstock_io::sync::lock;
use penstock_quicx::{
    Answer, Batch, Client, ClientEvent, DeadEntry, ErrorCode, Refused, StatsResponse, TaskId, Ticket, Violation,
};
use tokio::io::{AsyncReadExt as _, ReadHalf, WriteHalf, split};
use tokio::sync::{Mutex as Turn, Notify, mpsc, oneshot};

use super::transport::{ClosedReason, ConnectOptions, Peer, Stream, connect, until, write};
use crate::{Error, Misuse, Result};

const READ: usize = 64 << 10;
/// The most tasks observed at once over a connection: the daemon accepts 65,536. Further observers
/// wait here.
const OBSERVED: usize = 60_000;
/// The most requests without an answer; beyond that no more commands are accepted.
const OUTSTANDING: usize = 65_536;

/// The outcome of a task: done, or the reason of its failure.
pub type Outcome = std::result::Result<(), Vec<u8>>;
/// The answer to a submit.
pub type Submitted = std::result::Result<TaskId, Refused>;

/// The result of a request: an answer, or the daemon's refusal.
type AskResult = Result<std::result::Result<Answer, Refused>>;
/// A caller that waits for an outcome.
type Observer = oneshot::Sender<Result<Outcome>>;

/// The options of a producer.
#[derive(Debug, Clone)]
pub struct ProducerOptions {
    /// The daemon.
    pub connect: ConnectOptions,
    /// The interval of heartbeats while no request is outstanding; `None` disables them. If three
    /// stay unanswered, the connection ends. Default: 15 s.
    pub heartbeat: Option<Duration>,
}

impl ProducerOptions {
    /// Return the defaults.
    pub const fn new(connect: ConnectOptions) -> Self {
        Self { connect, heartbeat: Some(Duration::from_secs(15)) }
    }
}

/// A connection to a daemon for submits, outcomes, statistics and the dead list. Any number of threads may share it. If
/// it ends, all waiting callers get the error, and the next request reconnects.
pub struct Producer(PerProcess<Line>);

struct Line {
    options: ProducerOptions,
    current: Mutex<Arc<Handle>>,
    /// Held while reconnecting, so that one caller does it for all.
    connecting: Turn<()>,
    checking: Mutex<Option<Checking>>,
    closed: AtomicBool,
}

/// A connection of [`Producer::done_before`] alone: the protocol cannot end an observation, so
/// those of unfinished tasks would take places from [`Producer::observe`].
struct Checking {
    handle: Arc<Handle>,
    /// How many tasks were asked about, which may all still be observed.
    asked: usize,
}

impl Line {
    fn current(&self) -> MutexGuard<'_, Arc<Handle>> {
        lock(&self.current)
    }

    /// Return the connection; reconnect if it has ended.
    async fn handle(&self) -> Result<Arc<Handle>> {
        let is_over = |handle: &Handle| handle.commands.is_closed() && !self.closed.load(Ordering::Relaxed);
        let found = Arc::clone(&self.current());
        if !is_over(&found) {
            return Ok(found);
        }
        let _turn = self.connecting.lock().await;
        let found = Arc::clone(&self.current());
        if !is_over(&found) {
            return Ok(found);
        }
        let fresh = Arc::new(Handle::connect(self.options.clone()).await?);
        *self.current() = Arc::clone(&fresh);
        tracing::info!("a producer has reconnected");
        Ok(fresh)
    }

    /// Return a connection on which this many more tasks can be observed, at most [`OBSERVED`].
    async fn checking(&self, tasks: usize) -> Result<Arc<Handle>> {
        self.check_open()?;
        if let Some(Checking { handle, asked }) = &mut *lock(&self.checking)
            && !handle.commands.is_closed()
            && *asked + tasks <= OBSERVED
        {
            *asked += tasks;
            return Ok(Arc::clone(handle));
        }
        let handle = Arc::new(Handle::connect(self.options.clone()).await?);
        let mut checking = lock(&self.checking);
        // Checked under the lock, so that `close` either was before this or finds the connection.
        self.check_open()?;
        *checking = Some(Checking { handle: Arc::clone(&handle), asked: tasks });
        Ok(handle)
    }

    fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Relaxed) { Err(Misuse::ProducerClosed.into()) } else { Ok(()) }
    }
}

struct Handle {
    commands: mpsc::Sender<Command>,
    closing: Arc<Notify>,
    closed_reason: ClosedReason,
}

enum Command {
    Submit(Batch, oneshot::Sender<Result<Vec<Submitted>>>),
    Ask(Ask, oneshot::Sender<AskResult>),
    Observe(TaskId, Observer),
}

/// Requests with a single answer.
enum Ask {
    Stats,
    DeadList,
    DeadAfter(TaskId),
    DeadRequeue(TaskId),
    DeadDrop(TaskId),
    Stop,
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").finish_non_exhaustive()
    }
}

impl Handle {
    async fn connect(options: ProducerOptions) -> Result<Self> {
        let (commands, taken) = mpsc::channel(256);
        let (connected, result) = oneshot::channel();
        let closing = Arc::new(Notify::new());
        let close = Arc::clone(&closing);
        let closed_reason = ClosedReason::default();
        let end = closed_reason.clone();
        runtime::spawn(async move {
            match connect(options.connect).await {
                Ok((stream, peer)) => {
                    // An error means that the caller stopped waiting; then there are no commands either.
                    let _ = connected.send(Ok(()));
                    Driver::new(stream, peer, close, options.heartbeat).run(taken, end).await;
                }
                Err(error) => drop(connected.send(Err(error))),
            }
        })?;
        result.await.map_err(|_| closed_reason.error())??;
        Ok(Self { commands, closing, closed_reason })
    }

    async fn command(&self, command: Command) -> Result<()> {
        self.commands.send(command).await.map_err(|_| self.closed_reason.error())
    }

    async fn send<T>(&self, command: Command, answer: oneshot::Receiver<Result<T>>) -> Result<T> {
        self.command(command).await?;
        answer.await.map_err(|_| self.closed_reason.error())?
    }

    async fn ask(&self, ask: Ask) -> Result<Answer> {
        let (answer, answered) = oneshot::channel();
        self.send(Command::Ask(ask, answer), answered).await?.map_err(Error::Refused)
    }
}

impl Producer {
    /// Connect to a daemon.
    pub async fn connect(options: ProducerOptions) -> Result<Self> {
        let current = Mutex::new(Arc::new(Handle::connect(options.clone()).await?));
        let (connecting, checking, closed) = (Turn::new(()), Mutex::new(None), AtomicBool::new(false));
        Ok(Self(PerProcess::new(Line { options, current, connecting, checking, closed })))
    }

    async fn handle(&self) -> Result<Arc<Handle>> {
        self.0.get()?.handle().await
    }

    /// End the connection; waiting callers get an error.
    pub fn close(&self) {
        // In a forked child, the connection belongs to the parent.
        if let Ok(line) = self.0.get() {
            line.closed.store(true, Ordering::Relaxed);
            line.current().closing.notify_one();
            if let Some(checking) = &*lock(&line.checking) {
                checking.handle.closing.notify_one();
            }
        }
    }

    /// Submit tasks together; return an answer for each, in order.
    pub async fn submit(&self, batch: Batch) -> Result<Vec<Submitted>> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let (answer, answered) = oneshot::channel();
        self.handle().await?.send(Command::Submit(batch, answer), answered).await
    }

    /// Wait for a task's outcome. Fails as refused if the daemon does not know the task, or no longer does.
    ///
    /// At most 60,000 unfinished tasks are observed at once; calls for further ones wait longer.
    /// The protocol cannot end an observation: if a call is dropped, its task keeps its place until
    /// it ends.
    pub async fn observe(&self, id: TaskId) -> Result<Outcome> {
        let (answer, answered) = oneshot::channel();
        self.handle().await?.send(Command::Observe(id, answer), answered).await
    }

    async fn ask(&self, ask: Ask) -> Result<Answer> {
        self.handle().await?.ask(ask).await
    }

    /// Return the daemon's statistics.
    pub async fn stats(&self) -> Result<StatsResponse> {
        match self.ask(Ask::Stats).await? {
            Answer::Stats(stats) => Ok(stats),
            answer @ (Answer::Accepted(_) | Answer::Observed | Answer::Dead(_) | Answer::Alive) => {
                Err(unexpected(&answer))
            }
        }
    }

    /// Return whether each of these tasks is done, or ended so long ago that the daemon has forgotten it. For a task
    /// that has failed or is dead, the answer is false.
    pub async fn done_before(&self, ids: &[TaskId]) -> Result<Vec<bool>> {
        let line = self.0.get()?;
        let mut done = Vec::with_capacity(ids.len());
        for ids in ids.chunks(OBSERVED) {
            let handle = line.checking(ids.len()).await?;
            let mut asked = Vec::with_capacity(ids.len());
            for id in ids {
                let (answer, answered) = oneshot::channel();
                handle.command(Command::Observe(*id, answer)).await?;
                asked.push(answered);
            }
            // The outcomes arrive before the answer to this request.
            handle.ask(Ask::Stats).await?;
            done.extend(asked.iter_mut().map(|one| matches!(one.try_recv(), Ok(Ok(Ok(())) | Err(Error::Refused(_))))));
        }
        Ok(done)
    }

    /// Return the dead list in the order of the IDs: all tasks that stay on it from the first
    /// answer to the last.
    pub async fn dead_list(&self) -> Result<Vec<DeadEntry>> {
        let (mut found, mut after) = (Vec::new(), TaskId(0));
        loop {
            let page = match self.dead_page(Ask::DeadAfter(after)).await {
                // A daemon without this extension sends at most one answer of 512 KiB.
                Err(Error::Refused(refused)) if found.is_empty() && refused.code == ErrorCode::Invalid => {
                    return self.dead_page(Ask::DeadList).await;
                }
                page => page?,
            };
            let Some(last) = page.last().map(|task| task.id).filter(|last| *last > after) else { return Ok(found) };
            after = last;
            found.extend(page);
        }
    }

    async fn dead_page(&self, ask: Ask) -> Result<Vec<DeadEntry>> {
        match self.ask(ask).await? {
            Answer::Dead(tasks) => Ok(tasks),
            answer @ (Answer::Accepted(_) | Answer::Observed | Answer::Stats(_) | Answer::Alive) => {
                Err(unexpected(&answer))
            }
        }
    }

    /// Queue a dead task again.
    pub async fn dead_requeue(&self, id: TaskId) -> Result<()> {
        self.ask(Ask::DeadRequeue(id)).await.map(drop)
    }

    /// Drop a dead task.
    pub async fn dead_drop(&self, id: TaskId) -> Result<()> {
        self.ask(Ask::DeadDrop(id)).await.map(drop)
    }

    /// Stop the daemon.
    pub async fn stop(&self) -> Result<()> {
        self.ask(Ask::Stop).await.map(drop)
    }
}

fn unexpected(answer: &Answer) -> Error {
    penstock_quicx::Error::from(Violation::Answer(Box::new(answer.clone()))).into()
}

/// A caller that waits for the answers to one or more consecutive requests.
enum Waiter {
    Submit { remaining: usize, answers: Vec<Submitted>, answer: oneshot::Sender<Result<Vec<Submitted>>> },
    Ask(oneshot::Sender<AskResult>),
    Observe(TaskId),
}

/// The async task that owns the connection.
struct Driver {
    reading: ReadHalf<Box<dyn Stream>>,
    writing: WriteHalf<Box<dyn Stream>>,
    peer: Peer,
    machine: Client,
    waiters: VecDeque<Waiter>,
    /// The observers of each task, with the tickets of their requests.
    observers: HashMap<u32, Vec<(Ticket, Observer)>>,
    /// Observers that wait until fewer tasks are observed.
    pending_observers: VecDeque<(TaskId, Observer)>,
    input: BytesMut,
    output: Bytes,
    closing: Arc<Notify>,
}

impl Driver {
    fn new(stream: Box<dyn Stream>, peer: Peer, closing: Arc<Notify>, heartbeat: Option<Duration>) -> Self {
        let (reading, writing) = split(stream);
        let mut machine = Client::new();
        if let Some(interval) = heartbeat {
            machine.beat_every(Instant::now(), interval);
        }
        Self {
            reading,
            writing,
            peer,
            machine,
            waiters: VecDeque::new(),
            observers: HashMap::new(),
            pending_observers: VecDeque::new(),
            input: BytesMut::new(),
            output: Bytes::new(),
            closing,
        }
    }

    async fn run(mut self, mut commands: mpsc::Receiver<Command>, closed_reason: ClosedReason) {
        let error = loop {
            match self.step(&mut commands).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => break error,
            }
        };
        closed_reason.set(&error);
        // Close the channel first, so that callers that get the error and retry reconnect.
        commands.close();
        self.fail(&error);
        while let Some(command) = commands.recv().await {
            refuse(command, &error);
        }
    }

    /// Wait for the next event and handle it. Return false once all handles are dropped.
    async fn step(&mut self, commands: &mut mpsc::Receiver<Command>) -> Result<bool> {
        if self.output.is_empty()
            && let Some(bytes) = self.machine.poll_transmit()
        {
            self.output = bytes.into();
        }
        self.input.clear();
        self.input.reserve(READ);
        let busy = self.machine.outstanding() >= OUTSTANDING;
        tokio::select! {
            command = commands.recv(), if !busy => match command {
                Some(command) => {
                    self.take(command);
                    // Queued commands are sent together with it.
                    while let Ok(command) = commands.try_recv() {
                        self.take(command);
                    }
                }
                None => return Ok(false),
            },
            read = self.reading.read_buf(&mut self.input) => {
                if read.map_err(|error| self.peer.broken(error))? == 0 {
                    return Err(self.peer.ended());
                }
                let handled = self.machine.handle_input(&self.input);
                self.handle_events()?;
                handled.map_err(|error| self.peer.wrong(error, &self.input))?;
            }
            () = self.closing.notified() => return Ok(false),
            () = until(self.machine.poll_timeout()) => {
                self.machine.handle_timeout(Instant::now())?;
                self.handle_events()?;
            }
            written = write(&mut self.writing, &self.output) => {
                let written = written.map_err(|error| self.peer.broken(error))?;
                self.output.advance(written);
            }
        }
        Ok(true)
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Submit(batch, answer) => {
                self.machine.submit_batch(&batch);
                let answers = Vec::with_capacity(batch.len());
                self.waiters.push_back(Waiter::Submit { remaining: batch.len(), answers, answer });
            }
            Command::Ask(ask, answer) => {
                let asked = match ask {
                    Ask::Stats => self.machine.stats(),
                    Ask::DeadList => self.machine.dead_list(),
                    Ask::DeadAfter(id) => self.machine.dead_after(id),
                    Ask::DeadRequeue(id) => self.machine.dead_requeue(id),
                    Ask::DeadDrop(id) => self.machine.dead_drop(id),
                    Ask::Stop => self.machine.stop(),
                };
                match asked {
                    Ok(_) => self.waiters.push_back(Waiter::Ask(answer)),
                    Err(error) => drop(answer.send(Err(error.into()))),
                }
            }
            Command::Observe(id, answer) if self.is_full() => self.pending_observers.push_back((id, answer)),
            Command::Observe(id, answer) => self.observe(id, answer),
        }
    }

    /// Return whether no more tasks can be observed. A task counts once, however many observers it
    /// has, as it does at the daemon.
    fn is_full(&self) -> bool {
        self.observers.len() >= OBSERVED
    }

    fn observe(&mut self, id: TaskId, answer: Observer) {
        if answer.is_closed() {
            // The caller stopped waiting.
            return;
        }
        match self.machine.observe(id) {
            Ok(ticket) => {
                self.waiters.push_back(Waiter::Observe(id));
                let observers = self.observers.entry(id.0).or_default();
                if observers.len() == observers.capacity() {
                    // A task may be asked about again and again by callers that stop waiting.
                    observers.retain(|(_, observer)| !observer.is_closed());
                }
                observers.push((ticket, answer));
            }
            Err(error) => drop(answer.send(Err(error.into()))),
        }
    }

    fn handle_events(&mut self) -> Result<()> {
        while let Some(event) = self.machine.poll_event() {
            self.handle_event(event)?;
        }
        Ok(())
    }

    fn handle_event(&mut self, event: ClientEvent) -> Result<()> {
        match event {
            ClientEvent::Answered { ticket, answer } => self.answered(ticket, answer),
            ClientEvent::Outcome { id, failure } => {
                for (_, observer) in self.observers.remove(&id.0).unwrap_or_default() {
                    let outcome = failure.clone().map_or(Ok(()), Err);
                    // An error means that the caller stopped waiting.
                    let _ = observer.send(Ok(outcome));
                }
                self.observe_more();
            }
            ClientEvent::Silent => return Err(self.peer.silent()),
        }
        Ok(())
    }

    fn answered(&mut self, ticket: Ticket, answer: std::result::Result<Answer, Refused>) {
        let Some(waiter) = self.waiters.front_mut() else { return };
        if let Waiter::Submit { remaining, answers, .. } = waiter {
            answers.push(answer.map(|answer| match answer {
                Answer::Accepted(id) => id,
                Answer::Observed | Answer::Stats(_) | Answer::Dead(_) | Answer::Alive => TaskId(0),
            }));
            *remaining -= 1;
            if *remaining > 0 {
                return;
            }
            if let Some(Waiter::Submit { answers, answer, .. }) = self.waiters.pop_front() {
                let _ = answer.send(Ok(answers));
            }
            return;
        }
        match self.waiters.pop_front() {
            Some(Waiter::Ask(asked)) => drop(asked.send(Ok(answer))),
            Some(Waiter::Observe(id)) => {
                if let Err(refused) = answer {
                    self.unknown(ticket, id, &refused);
                }
            }
            Some(Waiter::Submit { .. }) | None => {}
        }
    }

    /// Handle the refusal to observe a task that the daemon does not know.
    fn unknown(&mut self, ticket: Ticket, id: TaskId, refused: &Refused) {
        let Some(observers) = self.observers.get_mut(&id.0) else { return };
        if let Some(at) = observers.iter().position(|(of, _)| *of == ticket) {
            let (_, observer) = observers.swap_remove(at);
            let _ = observer.send(Err(Error::Refused(refused.clone())));
        }
        if observers.is_empty() {
            self.observers.remove(&id.0);
        }
        self.observe_more();
    }

    fn observe_more(&mut self) {
        while !self.is_full()
            && let Some((id, answer)) = self.pending_observers.pop_front()
        {
            self.observe(id, answer);
        }
    }

    /// Report the end of the connection to all waiting callers.
    fn fail(&mut self, error: &Error) {
        for waiter in self.waiters.drain(..) {
            match waiter {
                Waiter::Submit { answer, .. } => drop(answer.send(Err(error.clone()))),
                Waiter::Ask(answer) => drop(answer.send(Err(error.clone()))),
                Waiter::Observe(_) => {}
            }
        }
        let observers =
            self.observers.drain().flat_map(|(_, observers)| observers.into_iter().map(|(_, answer)| answer));
        for answer in observers.chain(self.pending_observers.drain(..).map(|(_, answer)| answer)) {
            let _ = answer.send(Err(error.clone()));
        }
    }
}

fn refuse(command: Command, error: &Error) {
    match command {
        Command::Submit(_, answer) => drop(answer.send(Err(error.clone()))),
        Command::Ask(_, answer) => drop(answer.send(Err(error.clone()))),
        Command::Observe(_, answer) => drop(answer.send(Err(error.clone()))),
    }
}

#[cfg(test)]
mod tests;
