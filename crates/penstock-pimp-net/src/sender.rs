//! The sender's driver: an async task that owns the state machine, and a handle that passes pieces to it.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use penstock_io::runtime::{self, PerProcess};
use penstock_pimp::{
    Encoding, Error as PimpError, Misuse, Sender as Machine, SenderConfig, SenderEvent, Transmit, is_textual,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep_until;

use super::client::{Answered, JobClient};
use super::clock::now;
use crate::{Error, Result};

/// Bytes that may wait in the machine before the caller has to wait.
const WAITING: usize = 4 << 20;
/// The most bytes that the machine takes in one step, so that compressing them does not delay other tasks.
const PIECE: usize = 64 << 10;
/// Pieces that may be queued for the machine.
const PIECES: usize = 16;
/// How long chunk 0 waits for the command that decides whether the payload is text: the first piece, if it is sent
/// right after the start. Section 8 allows it to wait for nothing else.
const DECISION: Duration = Duration::from_millis(100);
/// The type of a text payload if the caller has given none.
const TEXT: &str = "text/plain; charset=utf-8";

/// A piece to send.
#[derive(Debug, Clone)]
pub enum Piece {
    /// Bytes.
    Bytes(Bytes),
    /// Text: a payload that begins with it is sent as text, if the encoding is [`Encoding::Auto`].
    Text(Bytes),
}

impl Piece {
    const fn bytes(&self) -> &Bytes {
        match self {
            Self::Bytes(bytes) | Self::Text(bytes) => bytes,
        }
    }

    fn part(&self, from: usize, to: usize) -> Self {
        match self {
            Self::Bytes(bytes) => Self::Bytes(bytes.slice(from..to)),
            Self::Text(bytes) => Self::Text(bytes.slice(from..to)),
        }
    }
}

/// The progress of a sender.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// The highest index that the buffer has.
    pub written: Option<u32>,
    /// Bytes of the payload that have arrived at the buffer, before compression.
    pub bytes: u64,
    /// Whether more can be sent.
    pub state: SenderState,
}

/// The state of a sender:
///
/// ```text
///           an error, or the consumer cancels            the consumer can read that
///  Sending ───────────────────────────────────▶ Failing ────────────────────────────▶ Ended
///     │     the job is finished, the handle is dropped, or the buffer cannot be reached   ▲
///     └───────────────────────────────────────────────────────────────────────────────────┘
/// ```
#[derive(Debug, Clone, Default)]
pub enum SenderState {
    /// Pieces are accepted, unless the job was ended.
    #[default]
    Sending,
    /// Nothing more can be sent, for this reason; the final chunk is on its way.
    Failing(Error),
    /// The driver has ended.
    Ended(Result<()>),
}

impl SenderState {
    /// Fails with the reason why nothing more can be sent, if the job has failed.
    fn check(&self) -> Result<()> {
        match self {
            Self::Sending => Ok(()),
            Self::Failing(error) => Err(error.clone()),
            Self::Ended(result) => result.clone(),
        }
    }

    const fn is_ended(&self) -> bool {
        match self {
            Self::Sending | Self::Failing(_) => false,
            Self::Ended(_) => true,
        }
    }
}

type Acknowledgement = oneshot::Sender<Result<()>>;

enum Command {
    Type(String),
    Send(Piece),
    Flush(Acknowledgement),
    Finish,
    Fail(String),
}

/// A writer of a job. If it is dropped before [`finish`](Self::finish) or [`fail`](Self::fail), the
/// job stays as it is.
pub struct Sender {
    commands: PerProcess<mpsc::Sender<Command>>,
    progress: watch::Receiver<Progress>,
    /// Whether this handle has ended the job, even if the driver has not received that yet.
    ending: AtomicBool,
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("progress", &*self.progress.borrow()).finish_non_exhaustive()
    }
}

impl Sender {
    /// Begin to write a job, with chunk 0 (section 8).
    ///
    /// With [`Encoding::Auto`] the first piece decides whether the payload is text (decision 4). If
    /// the type does not decide that, or no type is given, chunk 0 waits 100 ms for the first
    /// piece. If nothing arrives in that time, chunk 0 is sent, and a payload without a textual
    /// type is bytes, in Base64 (section 8).
    pub fn start(
        client: Arc<JobClient>,
        key: String,
        content_type: Option<String>,
        mut config: SenderConfig,
    ) -> Result<Self> {
        let open = content_type.is_none();
        if let Some(content_type) = content_type {
            config.content_type = content_type;
        }
        let undecided =
            open || (config.encoding == Encoding::Auto && !config.gzip && !is_textual(&config.content_type));
        let until = Instant::now() + DECISION;
        // An invalid configuration is reported here, not later.
        let machine = Machine::new(client.id(), config.clone())?;
        let write_timeout = config.stall_timeout;
        let (commands, receiver) = mpsc::channel(PIECES);
        let (progress_sender, progress) = watch::channel(Progress::default());
        let driver = Driver {
            client,
            key,
            machine,
            phase: Phase::Sending,
            write_timeout,
            commands: receiver,
            progress: progress_sender,
            request: None,
            flushing: Vec::new(),
            unconfirmed: None,
            submitted_bytes: 0,
        };
        runtime::spawn(driver.run(undecided.then_some(Undecided { config, typeless: open, until })))?;
        Ok(Self { commands: PerProcess::new(commands), progress, ending: AtomicBool::new(false) })
    }

    /// Return the progress.
    pub fn progress(&self) -> Progress {
        self.progress.borrow().clone()
    }

    /// Send a piece; returns once there was room for it.
    ///
    /// Fails with the reason why the job failed before:
    /// [`Cancelled`](penstock_pimp::Code::Cancelled), the buffer's rejection, or a stall.
    pub async fn send(&self, piece: Piece) -> Result<()> {
        self.check_open()?;
        let commands = self.commands.get()?;
        let length = piece.bytes().len();
        for from in (0..length).step_by(PIECE) {
            self.check()?;
            let part = piece.part(from, length.min(from + PIECE));
            if commands.send(Command::Send(part)).await.is_err() {
                return self.check().and(Err(ended()));
            }
        }
        self.check()
    }

    fn check(&self) -> Result<()> {
        self.progress.borrow().state.check()
    }

    /// Check that the job was not ended through this handle.
    fn check_open(&self) -> Result<()> {
        self.check()?;
        if self.ending.load(Ordering::Acquire) { Err(ended()) } else { Ok(()) }
    }

    /// Set the content type before the first piece. It counts if no type was given at the start and
    /// chunk 0 was not sent yet.
    pub async fn describe(&self, content_type: String) -> Result<()> {
        self.check_open()?;
        if self.commands.get()?.send(Command::Type(content_type)).await.is_err() {
            return self.check().and(Err(ended()));
        }
        Ok(())
    }

    /// Wait until the buffer has everything that was sent; in Base64 up to two bytes wait for the bytes that complete
    /// their group.
    pub async fn flush(&self) -> Result<()> {
        self.check_open()?;
        let (told, flushed) = oneshot::channel();
        if self.commands.get()?.send(Command::Flush(told)).await.is_err() {
            return self.check().and(Err(ended()));
        }
        flushed.await.unwrap_or_else(|_| self.check().and(Err(ended())))
    }

    /// Write the remaining bytes and the final chunk, and wait until the buffer has them.
    pub async fn finish(&self) -> Result<()> {
        self.end(Command::Finish).await
    }

    /// End the job with an error, which the consumer receives (section 11).
    pub async fn fail(&self, why: String) -> Result<()> {
        self.end(Command::Fail(why)).await
    }

    async fn end(&self, command: Command) -> Result<()> {
        self.ending.store(true, Ordering::Release);
        // A driver that has ended reports the reason in its progress; after a successful end, ending again is allowed.
        let _ = self.commands.get()?.send(command).await;
        let mut progress = self.progress.clone();
        let last = progress.wait_for(|progress| progress.state.is_ended()).await;
        last.map_or_else(|_| Err(ended()), |progress| progress.state.check())
    }
}

fn ended() -> Error {
    PimpError::from(Misuse::Ended).into()
}

/// A driver that waits before its [`Phase`]s begin, because chunk 0 must state the payload's encoding and nothing has
/// decided it yet.
struct Undecided {
    config: SenderConfig,
    /// Whether the caller has not given a type either.
    typeless: bool,
    /// When chunk 0 stops waiting.
    until: Instant,
}

impl Undecided {
    /// Wait for the command that decides the encoding. Return the configuration and that command; no command if the
    /// time ran out, and `None` if the handle was dropped.
    async fn decide(mut self, commands: &mut mpsc::Receiver<Command>) -> Option<(SenderConfig, Option<Command>)> {
        loop {
            let command = tokio::select! {
                // A command that was sent takes precedence over the timeout.
                biased;
                command = commands.recv() => command?,
                () = sleep_until(self.until.into()) => return Some((self.config, None)),
            };
            if self.decides(&command) {
                return Some((self.config, Some(command)));
            }
        }
    }

    /// Learn the type from a command. Return whether the encoding is decided.
    fn decides(&mut self, command: &Command) -> bool {
        match command {
            Command::Type(content_type) if self.typeless => {
                content_type.clone_into(&mut self.config.content_type);
                // The first piece may still decide whether the payload is text.
                self.typeless = false;
                return false;
            }
            Command::Send(Piece::Text(_)) => {
                if self.config.encoding == Encoding::Auto && !self.config.gzip {
                    self.config.encoding = Encoding::Identity;
                }
                if self.typeless {
                    TEXT.clone_into(&mut self.config.content_type);
                }
            }
            Command::Type(_)
            | Command::Send(Piece::Bytes(_))
            | Command::Flush(_)
            | Command::Finish
            | Command::Fail(_) => {}
        }
        true
    }
}

/// Whether a driver accepts commands.
///
/// ```text
///  start ─▶ Undecided ─ the first piece, flush or end, or 100 ms ─▶ Sending ─ finish, fail ─▶ Ending ─▶ over
///    │                                                                 ▲
///    └─ the type says whether the payload is text ─────────────────────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It accepts commands, while there is room in the machine.
    Sending,
    /// The job was ended: no more commands are accepted, and the driver continues without its handle.
    Ending,
}

struct Driver {
    client: Arc<JobClient>,
    key: String,
    machine: Machine,
    phase: Phase,
    /// The timeout of a request: one that is not answered in time is a stall.
    write_timeout: Duration,
    commands: mpsc::Receiver<Command>,
    progress: watch::Sender<Progress>,
    request: Option<BoxFuture<'static, Result<Answered>>>,
    flushing: Vec<Acknowledgement>,
    /// The number of bytes that had left the machine with the request that is not confirmed yet.
    unconfirmed: Option<u64>,
    submitted_bytes: u64,
}

impl Driver {
    async fn run(mut self, undecided: Option<Undecided>) {
        let result = self.drive(undecided).await;
        let told = result.clone();
        self.progress.send_modify(|progress| {
            let before = progress.state.check();
            progress.state = SenderState::Ended(result.and(before));
        });
        for flushing in self.flushing.drain(..) {
            let _ = flushing.send(told.clone());
        }
    }

    async fn drive(&mut self, undecided: Option<Undecided>) -> Result<()> {
        if let Some(undecided) = undecided {
            let Some((config, command)) = undecided.decide(&mut self.commands).await else { return Ok(()) };
            self.machine = Machine::new(self.client.id(), config)?;
            if let Some(command) = command {
                self.execute(command);
            }
        }
        loop {
            if self.learn() {
                return Ok(());
            }
            if self.request.is_none() {
                self.ask()?;
            }
            let due = self.machine.poll_timeout();
            let takes = match self.phase {
                Phase::Sending => self.machine.waiting() < WAITING,
                Phase::Ending => false,
            };
            tokio::select! {
                biased;
                answered = on_its_way(&mut self.request) => {
                    self.request = None;
                    self.answered(answered)?;
                }
                command = self.commands.recv(), if takes => match command {
                    Some(command) => self.execute(command),
                    // The handle was dropped, and its owner has not ended the payload.
                    None => return Ok(()),
                },
                () = async { match due { Some(due) => sleep_until(due.into()).await, None => pending().await } } => {
                    self.machine.handle_timeout(now())?;
                }
            }
        }
    }

    /// Take the machine's events; return `true` once the job is finished.
    fn learn(&mut self) -> bool {
        let mut finished = false;
        while let Some(event) = self.machine.poll_event() {
            match event {
                SenderEvent::Written(index) => {
                    // Only a part of a request that was split is written.
                    let bytes = if self.machine.is_split() { None } else { self.unconfirmed.take() };
                    self.progress.send_modify(|progress| {
                        progress.written = Some(index);
                        progress.bytes = bytes.unwrap_or(progress.bytes);
                    });
                }
                SenderEvent::Cancelled => {
                    self.progress.send_modify(|progress| {
                        progress.state = SenderState::Failing(PimpError::Cancelled.into());
                    });
                }
                SenderEvent::Finished => finished = true,
            }
        }
        finished
    }

    /// Send the next request, if there is one. If there is none, complete the flushes.
    fn ask(&mut self) -> Result<()> {
        let Some(request) = self.machine.poll_transmit(now())? else {
            // A request that waits for a retry is not written yet.
            if !self.machine.is_asking() {
                self.flushing.drain(..).for_each(|flushing| drop(flushing.send(Ok(()))));
            }
            return Ok(());
        };
        // A retry is the same request, whose bytes are counted already.
        let left = self.submitted_bytes.saturating_sub(self.machine.waiting() as u64);
        self.unconfirmed.get_or_insert(left);
        self.request = Some(match request {
            Transmit::Write(body) => Box::pin(self.client.write(&self.key, body, self.write_timeout)?),
            Transmit::Probe(poll) => Box::pin(self.client.poll(&poll.query(), Some(&self.key), poll.wait)?),
        });
        Ok(())
    }

    fn answered(&mut self, answered: Result<Answered>) -> Result<()> {
        match answered {
            Ok(answered) => Ok(self.machine.handle_response(now(), answered.status, &answered.body)?),
            Err(error @ Error::Local(penstock_io::Error::Io { .. })) => {
                self.machine.handle_failure(now(), &error.to_string());
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn execute(&mut self, command: Command) {
        let result = match command {
            Command::Type(_) => Ok(()),
            Command::Send(piece) => {
                self.submitted_bytes += piece.bytes().len() as u64;
                // Text may be cut anywhere: a payload is text if its first piece is.
                self.machine.send(now(), piece.bytes())
            }
            Command::Flush(told) => {
                self.machine.flush();
                self.flushing.push(told);
                Ok(())
            }
            Command::Finish => {
                self.phase = Phase::Ending;
                self.machine.finish()
            }
            Command::Fail(why) => {
                self.phase = Phase::Ending;
                self.machine.fail(&why)
            }
        };
        // The job ends with this error, which the caller gets now; the driver continues until the consumer can read it
        // too.
        if let Err(error) = result {
            self.progress.send_modify(|progress| match progress.state {
                SenderState::Sending => progress.state = SenderState::Failing(error.into()),
                SenderState::Failing(_) | SenderState::Ended(_) => {}
            });
        }
    }
}

async fn on_its_way(request: &mut Option<BoxFuture<'static, Result<Answered>>>) -> Result<Answered> {
    match request {
        Some(request) => request.await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use penstock_io::runtime::block_on;

    use super::*;

    fn undecided(typeless: bool, wait: Duration) -> Undecided {
        Undecided { config: SenderConfig::default(), typeless, until: Instant::now() + wait }
    }

    /// Run the decision with these commands while the handle is held.
    fn decide(undecided: Undecided, said: Vec<Command>) -> Option<(SenderConfig, Option<Command>)> {
        block_on(async {
            let (commands, mut taken) = mpsc::channel(PIECES);
            for command in said {
                commands.send(command).await.unwrap();
            }
            undecided.decide(&mut taken).await
        })
        .unwrap()
    }

    fn text() -> Command {
        Command::Send(Piece::Text(Bytes::from_static(b"a")))
    }

    const LONG: Duration = Duration::from_secs(3_600);

    #[test]
    fn the_first_piece_or_the_end_decides_what_a_payload_is() {
        let csv = || Command::Type("text/csv".to_owned());
        let cases = [
            (vec![text()], Encoding::Identity, TEXT),
            (vec![csv(), text()], Encoding::Identity, "text/csv"),
            (vec![Command::Send(Piece::Bytes(Bytes::from_static(b"a")))], Encoding::Auto, "application/octet-stream"),
            (vec![csv(), Command::Finish], Encoding::Auto, "text/csv"),
            // The first type counts, and the second one decides without waiting.
            (vec![csv(), Command::Type("a/b".to_owned())], Encoding::Auto, "text/csv"),
        ];
        for (said, encoding, content_type) in cases {
            let (config, command) = decide(undecided(true, LONG), said).unwrap();
            assert_eq!((config.encoding, &*config.content_type), (encoding, content_type));
            assert!(command.is_some(), "the driver obeys the command that has decided");
        }
    }

    #[test]
    fn a_type_that_the_caller_gave_at_the_start_stands() {
        let (config, _) = decide(undecided(false, LONG), vec![Command::Type("text/csv".to_owned())]).unwrap();
        assert_eq!(config.content_type, "application/octet-stream");
    }

    #[test]
    fn time_decides_for_the_type_that_was_said() {
        let (config, command) = decide(undecided(true, Duration::ZERO), vec![Command::Type("a/b".to_owned())]).unwrap();
        assert_eq!((&*config.content_type, command.is_none()), ("a/b", true));
    }

    #[test]
    fn a_handle_that_is_gone_decides_nothing() {
        let decided = block_on(async {
            let (commands, mut taken) = mpsc::channel(PIECES);
            drop(commands);
            undecided(true, LONG).decide(&mut taken).await
        });
        assert!(decided.unwrap().is_none());
    }
}
