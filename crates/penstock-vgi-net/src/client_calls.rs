//! The calls of one client over a connection, one at a time, and its streams.
//!
//! ```text
//!  ClientCalls ── call ─▶ log messages ─▶ LogSink, then the result
//!      └── open ─▶ ClientStream ── exchange, tick ─▶ log messages ─▶ LogSink, then a batch or the end
//! ```

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use penstock_io::sync::lock;
use penstock_vgi::external::StoredBatch;
use penstock_vgi::{Answer, Batch, Log, Metadata};

use crate::client::ClientConnection;
use crate::external::External;
use crate::port::ApplicationError;
use crate::turn::turn;
use crate::{Check, Error, Misuse, Result};

/// The application's receiver of a server's log messages.
pub trait LogSink: Send + Sync {
    /// Take a message. An error ends the call.
    fn log(&self, log: &Log) -> Result<(), ApplicationError>;
}

/// A caller's handling of answers: it passes log messages on, and follows pointers if there is a
/// policy.
pub struct Receiver {
    /// The receiver of log messages.
    pub logs: Box<dyn LogSink>,
    /// The policy about external batches.
    pub external: Option<Arc<External>>,
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("external", &self.external).finish_non_exhaustive()
    }
}

impl Receiver {
    /// Pass on a log message.
    pub(crate) fn log(&self, log: &Log) -> Result<()> {
        self.logs.log(log).map_err(Error::Raised)
    }

    /// Return a batch, or, if pointers are followed, the one behind a pointer, after passing on its
    /// log messages.
    pub(crate) fn receive(&self, batch: Batch, check: Check<'_>) -> Result<Batch> {
        let Some(external) = &self.external else { return Ok(batch) };
        let StoredBatch { logs, batch } = external.receive(batch, check)?;
        logs.iter().try_for_each(|log| self.log(log))?;
        batch.map_err(|failure| Error::Failed(Box::new(failure)))
    }
}

/// Return the batch of an answer, or fail if the answer is not a batch.
pub(crate) fn expect_batch(answer: Answer) -> Result<Batch> {
    match answer {
        Answer::Batch(batch) => Ok(batch),
        Answer::Failed(failure) => Err(Error::Failed(Box::new(failure))),
        Answer::Log(_) | Answer::End => Err(Error::Unanswered),
    }
}

/// The calls over one connection.
#[derive(Debug)]
pub struct ClientCalls {
    connection: Mutex<ClientConnection>,
    receiver: Receiver,
    /// The number of streams opened so far; every stream but the latest has ended.
    streams: AtomicU64,
}

/// The state of a stream at its client.
///
/// ```text
///  Open ── the server's end or error, an error of this end, cancel, close ─▶ Over
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamState {
    Open,
    Over,
}

/// A stream of a [`ClientCalls`].
#[derive(Debug)]
pub struct ClientStream {
    calls: Arc<ClientCalls>,
    number: u64,
    header: Option<Batch>,
    state: Mutex<StreamState>,
}

impl ClientCalls {
    /// Make calls over a connection on which nothing was sent yet.
    pub const fn new(connection: ClientConnection, receiver: Receiver) -> Self {
        Self { connection: Mutex::new(connection), receiver, streams: AtomicU64::new(0) }
    }

    fn with<T>(&self, step: impl FnOnce(&mut ClientConnection) -> Result<T>) -> Result<T> {
        step(&mut *turn(&self.connection)?)
    }

    /// Set how long the server may take for one answer; `None` means no limit.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> Result<()> {
        self.with(|connection| {
            connection.set_timeout(timeout);
            Ok(())
        })
    }

    /// Send a request or an input, and pass on log messages until there is an answer.
    fn ask(
        &self,
        check: Check<'_>,
        send: impl FnOnce(&mut ClientConnection, Check<'_>) -> Result<()>,
    ) -> Result<Answer> {
        let mut answer = self.with(|connection| {
            send(connection, &mut *check)?;
            connection.next_answer(&mut *check)
        })?;
        while let Answer::Log(log) = answer {
            self.receiver.log(&log)?;
            answer = self.with(|connection| connection.next_answer(&mut *check))?;
        }
        match answer {
            Answer::Batch(batch) => self.receiver.receive(batch, check).map(Answer::Batch),
            answer @ (Answer::Log(_) | Answer::End | Answer::Failed(_)) => Ok(answer),
        }
    }

    /// Call a unary method.
    pub fn call(&self, method: &str, params: Batch, metadata: Metadata, check: Check<'_>) -> Result<Batch> {
        expect_batch(self.ask(check, |connection, check| connection.call(method, params, metadata, check))?)
    }

    /// Open a stream, and wait for its header if it has one.
    pub fn open(
        self: &Arc<Self>,
        method: &str,
        params: Batch,
        metadata: Metadata,
        header: bool,
        check: Check<'_>,
    ) -> Result<ClientStream> {
        let header = if header {
            let answer = self.ask(check, |connection, check| connection.open(method, params, metadata, true, check))?;
            Some(expect_batch(answer)?)
        } else {
            self.with(|connection| connection.open(method, params, metadata, false, check))?;
            None
        };
        let number = self.streams.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        Ok(ClientStream { calls: Arc::clone(self), number, header, state: Mutex::new(StreamState::Open) })
    }
}

impl ClientStream {
    /// Return the header, if the stream has one.
    pub const fn header(&self) -> Option<&Batch> {
        self.header.as_ref()
    }

    fn is_latest(&self) -> bool {
        self.calls.streams.load(Ordering::Relaxed) == self.number
    }

    /// Send an input or a tick, and wait for the answer; return `None` once the server has ended
    /// the stream.
    pub fn next(&self, input: Option<&Batch>, check: Check<'_>) -> Result<Option<Batch>> {
        if *lock(&self.state) == StreamState::Over || !self.is_latest() {
            return Err(Misuse::StreamOver.into());
        }
        match self.calls.ask(&mut *check, |connection, check| connection.send(input, check)) {
            Ok(Answer::Batch(batch)) => Ok(Some(batch)),
            Ok(Answer::End) => {
                *lock(&self.state) = StreamState::Over;
                Ok(None)
            }
            Ok(answer @ (Answer::Failed(_) | Answer::Log(_))) => {
                *lock(&self.state) = StreamState::Over;
                expect_batch(answer).map(Some)
            }
            Err(error) => {
                // The connection may be fine, for example if an external batch could not be
                // fetched; only the stream ends.
                drop(self.end(false, check));
                Err(error)
            }
        }
    }

    /// Cancel the stream, so that the server stops working on the rest.
    pub fn cancel(&self, check: Check<'_>) -> Result<()> {
        self.end(true, check)
    }

    /// End the stream.
    pub fn close(&self, check: Check<'_>) -> Result<()> {
        self.end(false, check)
    }

    fn end(&self, cancel: bool, check: Check<'_>) -> Result<()> {
        let state = std::mem::replace(&mut *lock(&self.state), StreamState::Over);
        if state == StreamState::Over || !self.is_latest() {
            return Ok(());
        }
        let mut logs = Vec::new();
        self.calls.with(|connection| {
            connection.close(cancel, check, &mut |answer| {
                if let Answer::Log(log) = answer {
                    logs.push(log);
                }
            })
        })?;
        logs.iter().try_for_each(|log| self.calls.receiver.log(log))
    }
}
