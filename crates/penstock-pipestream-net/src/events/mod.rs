//! `--events F`: the events of the sessions as JSON lines (interfaces of the command line). The
//! drivers hand over records; a dedicated thread turns them into text and appends it to the file.

mod record;

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use penstock_io::DriverError as _;
use penstock_io::runtime::PerProcess;
use tokio::sync::{mpsc, oneshot};

pub use self::record::LogEvent;
use crate::clock::now;
use crate::counters::LogCounters;
use crate::{Error, Result};

/// Number of batches that may wait for the disk; beyond it the drivers wait, so that no event is
/// lost.
const WAITING_BATCHES: usize = 256;
/// Number of collected bytes of text at which they are written, even if more events are queued.
const WRITE_SIZE: usize = 256 << 10;

/// A log of events that any number of sessions may share. Lines of one session are in order.
#[derive(Clone)]
pub struct EventLog {
    inbox: Arc<PerProcess<mpsc::Sender<Message>>>,
    path: Arc<PathBuf>,
    counters: Arc<LogCounters>,
}

enum Message {
    Batch { session: Arc<str>, unix_micros: u64, events: Vec<LogEvent> },
    Flush(oneshot::Sender<()>),
}

impl EventLog {
    /// Open a log that appends to a file; create the file if it does not exist.
    pub fn create(path: &Path) -> Result<Self> {
        let open = || OpenOptions::new().create(true).append(true).open(path);
        let file = open().map_err(|error| Error::file("cannot open the event log", path, error))?;
        let (inbox, messages) = mpsc::channel(WAITING_BATCHES);
        let path = Arc::new(path.to_owned());
        let counters = Arc::<LogCounters>::default();
        let writer =
            Writer { file, path: Arc::clone(&path), state: FileState::Writable, counters: Arc::clone(&counters) };
        thread::Builder::new()
            .name("penstock-events".into())
            .spawn(move || writer.run(messages))
            .map_err(|error| Error::io("cannot start the event log's thread", error))?;
        Ok(Self { inbox: Arc::new(PerProcess::new(inbox)), path, counters })
    }

    /// Hand events over. Wait only if the disk has fallen far behind.
    pub async fn write(&self, session: &Arc<str>, events: Vec<LogEvent>) {
        // A forked child has no thread that writes the log.
        let Ok(inbox) = self.inbox.get() else { return };
        // The thread ends only with the process or by a panic; then the events are dropped.
        if let Err(mpsc::error::TrySendError::Full(batch)) = inbox.try_send(batch(session, events)) {
            self.counters.waits.fetch_add(1, Ordering::Relaxed);
            let _ = inbox.send(batch).await;
        }
    }

    /// Hand events over as [`write`](Self::write) does, on a thread that may block.
    pub fn write_blocking(&self, session: &Arc<str>, events: Vec<LogEvent>) {
        let Ok(inbox) = self.inbox.get() else { return };
        let _ = inbox.blocking_send(batch(session, events));
    }

    /// Return the log's counters.
    pub(crate) fn counters(&self) -> &LogCounters {
        &self.counters
    }

    /// Wait until everything that was handed over is in the file.
    pub async fn flush(&self) {
        let Ok(inbox) = self.inbox.get() else { return };
        let (done, written) = oneshot::channel();
        if inbox.send(Message::Flush(done)).await.is_ok() {
            let _ = written.await;
        }
    }
}

fn batch(session: &Arc<str>, events: Vec<LogEvent>) -> Message {
    Message::Batch { session: Arc::clone(session), unix_micros: now().unix_micros, events }
}

impl fmt::Debug for EventLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EventLog").field(&self.path).finish()
    }
}

struct Writer {
    file: File,
    path: Arc<PathBuf>,
    state: FileState,
    counters: Arc<LogCounters>,
}

/// How the last write to the file ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileState {
    /// It succeeded, or there was no write yet: the next failure is logged.
    Writable,
    /// It failed, and that was logged once: a full disk must not fill the log of the process as
    /// well.
    Failing,
}

impl Writer {
    fn run(mut self, mut messages: mpsc::Receiver<Message>) {
        let mut text = Vec::new();
        let mut waiting: Vec<oneshot::Sender<()>> = Vec::new();
        while let Some(message) = messages.blocking_recv() {
            let mut next = Some(message);
            while let Some(message) = next {
                match message {
                    Message::Batch { session, unix_micros, events } => {
                        let time = record::rfc3339(unix_micros);
                        events.iter().for_each(|event| event.append(&session, &time, &mut text));
                    }
                    Message::Flush(done) => waiting.push(done),
                }
                // All available events are written together, without waiting for more.
                next = if text.len() < WRITE_SIZE { messages.try_recv().ok() } else { None };
            }
            self.write(&text);
            text.clear();
            for done in waiting.drain(..) {
                // The caller may have stopped waiting.
                let _ = done.send(());
            }
        }
    }

    fn write(&mut self, text: &[u8]) {
        let written = self.file.write_all(text);
        if written.is_err() {
            let lines = text.iter().filter(|byte| **byte == b'\n').count();
            self.counters.lost.fetch_add(u64::try_from(lines).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        match (written, self.state) {
            (Ok(()), FileState::Writable | FileState::Failing) => self.state = FileState::Writable,
            (Err(error), FileState::Writable) => {
                self.state = FileState::Failing;
                tracing::error!(path = %self.path.display(), %error, "cannot write events: they are lost");
            }
            (Err(_), FileState::Failing) => {}
        }
    }
}
