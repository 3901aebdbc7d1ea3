//! The calls of one connection, for the threads that run methods.
//!
//! ```text
//!  ServerConnection ── next_call ─▶ ServerCall ── read ─▶ an input, or the end of the inputs
//!        ▲                              │
//!        └── reply, open, emit, fail ◀──┘
//! ```
//!
//! A call keeps its connection alive, and locks it for one step at a time. The application's ports
//! for external batches run between two steps.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use arrow_schema::SchemaRef;
use penstock_io::sync::lock;
use penstock_vgi::{Batch, Call, Event, Failure, Log, Method, MethodKind, Protocol};

use crate::counters::Counters;
use crate::error::unknown_method;
use crate::external::External;
use crate::server::ServerConnection;
use crate::turn::turn;
use crate::{Check, Misuse, Result};

/// The calls of one connection.
pub struct ServerCalls {
    protocol: Arc<Protocol>,
    connection: Mutex<ServerConnection>,
    counters: Arc<Counters>,
    external: Option<Arc<External>>,
}

impl fmt::Debug for ServerCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerCalls").field("connection", &self.connection).finish_non_exhaustive()
    }
}

/// The stage of a call.
///
/// ```text
///  Open ── cancelled by the client ─▶ Cancelled ── fail, finish, the connection's end ─▶ Withdrawn
///    └───── reply, fail, finish, the connection's end ─▶ Over
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The call waits for its answer, or its stream continues.
    Open,
    /// The client has cancelled the stream, but its output must still be ended.
    Cancelled,
    /// The call was answered, or its stream has ended.
    Over,
    /// The call's stream was cancelled, and has ended.
    Withdrawn,
}

impl Stage {
    const fn is_over(self) -> bool {
        match self {
            Self::Open | Self::Cancelled => false,
            Self::Over | Self::Withdrawn => true,
        }
    }

    const fn is_cancelled(self) -> bool {
        match self {
            Self::Open | Self::Over => false,
            Self::Cancelled | Self::Withdrawn => true,
        }
    }

    const fn ended(self) -> Self {
        match self {
            Self::Open | Self::Over => Self::Over,
            Self::Cancelled | Self::Withdrawn => Self::Withdrawn,
        }
    }
}

/// A call that waits for its answer.
#[derive(Debug)]
pub struct ServerCall {
    calls: Arc<ServerCalls>,
    call: Call,
    stage: Mutex<Stage>,
}

impl ServerCalls {
    /// Take the calls of a connection on which nothing was read yet. With a policy about external
    /// batches, follow pointers and store large batches.
    pub fn new(mut connection: ServerConnection, external: Option<Arc<External>>) -> Self {
        if external.is_some() {
            connection.machine().follow_pointers();
        }
        let (protocol, counters) = (Arc::clone(connection.machine().protocol()), Arc::clone(connection.counters()));
        counters.connection();
        Self { protocol, connection: Mutex::new(connection), counters, external }
    }

    fn with<T>(&self, step: impl FnOnce(&mut ServerConnection) -> Result<T>) -> Result<T> {
        step(&mut *turn(&self.connection)?)
    }

    /// Return the next call, or `None` once the client has closed its end. Fail a call that was
    /// left without an answer.
    pub fn next_call(self: &Arc<Self>, check: Check<'_>) -> Result<Option<ServerCall>> {
        self.with(|connection| connection.settle(check))?;
        loop {
            match self.with(|connection| connection.next_event(check))? {
                None => return Ok(None),
                Some(Event::Call(call)) => {
                    self.counters.call(call.request.bytes);
                    return Ok(Some(ServerCall { calls: Arc::clone(self), call, stage: Mutex::new(Stage::Open) }));
                }
                Some(Event::Pointer(batch)) => {
                    let found = self.fetch(batch, check)?;
                    self.with(|connection| {
                        connection.machine().resolved(found)?;
                        connection.flush(check)
                    })?;
                }
                // These events belong to the rest of a stream whose call was dropped.
                Some(Event::Input(_) | Event::InputEnd | Event::Cancelled | Event::Abandoned) => {}
            }
        }
    }

    /// Return a batch, or, if pointers are followed here, the one behind a pointer.
    fn fetch(&self, batch: Batch, check: Check<'_>) -> Result<Result<Batch, Failure>> {
        match &self.external {
            Some(external) => external.fetch(batch, check),
            None => Ok(Ok(batch)),
        }
    }

    /// Return the batch, or a pointer to it and the log messages before it. Prefer shared memory.
    fn store(&self, batch: Batch) -> Result<Batch> {
        let Some(external) = self.external.as_ref().filter(|external| external.stores(&batch)) else {
            return Ok(batch);
        };
        let logs = self
            .with(|connection| Ok((!connection.shares()).then(|| connection.machine().waiting_logs(&batch.schema))))?;
        let Some(logs) = logs else { return Ok(batch) };
        let pointer = external.store(logs, batch)?;
        self.with(|connection| {
            connection.machine().forget_logs();
            Ok(pointer)
        })
    }
}

impl ServerCall {
    /// Return the method and its arguments.
    pub const fn call(&self) -> &Call {
        &self.call
    }

    /// Return the method that is called.
    pub fn method(&self) -> Result<&Method> {
        let method = self.calls.protocol.method(self.call.request.method);
        method.ok_or_else(unknown_method)
    }

    /// Return the schema of the answer of a unary call.
    pub fn result(&self) -> Result<&SchemaRef> {
        let method = self.method()?;
        match method.kind {
            MethodKind::Unary => Ok(&method.result),
            MethodKind::Stream => Err(Misuse::NotUnary.into()),
        }
    }

    /// Return whether the client has cancelled the stream.
    pub fn is_cancelled(&self) -> bool {
        self.stage().is_cancelled()
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        lock(&self.stage)
    }

    fn end(&self) {
        let mut stage = self.stage();
        *stage = stage.ended();
    }

    /// Write an answer; fail if the call is over.
    fn answer(&self, check: Check<'_>, write: impl FnOnce(&mut ServerConnection) -> Result<()>) -> Result<()> {
        if self.stage().is_over() {
            return Err(Misuse::CallOver.into());
        }
        self.calls.with(|connection| {
            write(connection)?;
            connection.flush(check)
        })
    }

    /// Add a log message before the answer, or before the stream's next batch.
    pub fn log(&self, log: Log) -> Result<()> {
        self.calls.with(|connection| {
            connection.machine().log(log);
            Ok(())
        })
    }

    /// Answer a unary call.
    pub fn reply(&self, batch: Batch, check: Check<'_>) -> Result<()> {
        let batch = self.calls.store(batch)?;
        self.answer(check, |connection| {
            let batch = connection.share(batch)?;
            Ok(connection.machine().reply(&batch)?)
        })?;
        self.end();
        Ok(())
    }

    /// Answer with an error.
    pub fn fail(&self, failure: &Failure, check: Check<'_>) -> Result<()> {
        self.calls.counters.failure();
        self.answer(check, |connection| Ok(connection.machine().fail(failure)?))?;
        self.end();
        Ok(())
    }

    /// Open the stream of the call, and write its header.
    pub fn open(&self, output: &SchemaRef, input: &SchemaRef, header: Option<Batch>, check: Check<'_>) -> Result<()> {
        let header = header.map(|header| self.calls.store(header)).transpose()?;
        self.answer(check, |connection| Ok(connection.machine().open(output, input, header.as_ref())?))
    }

    /// Return the stream's next input, in its schema, or `None` at the end, if the client has
    /// cancelled the stream, or if it has failed because of this input.
    pub fn read(&self, check: Check<'_>) -> Result<Option<Batch>> {
        if self.stage().is_over() {
            return Ok(None);
        }
        loop {
            match self.calls.with(|connection| connection.next_event(check))? {
                Some(Event::Input(batch)) => {
                    let conformed = self.conform(batch, check)?;
                    if conformed.is_none() {
                        self.end();
                    }
                    return Ok(conformed);
                }
                Some(Event::InputEnd) => return Ok(None),
                Some(Event::Cancelled) => {
                    *self.stage() = Stage::Cancelled;
                    return Ok(None);
                }
                Some(Event::Abandoned) | None => {
                    self.end();
                    return Ok(None);
                }
                Some(Event::Call(_) | Event::Pointer(_)) => {}
            }
        }
    }

    /// Return an input in the schema of the stream, or `None` if the stream has failed because of
    /// it.
    fn conform(&self, batch: Batch, check: Check<'_>) -> Result<Option<Batch>> {
        let found = self.calls.fetch(batch, check)?;
        self.calls.with(|connection| {
            let conformed = match found {
                Ok(batch) => connection.machine().conform(batch)?,
                Err(failure) => {
                    connection.machine().fail(&failure)?;
                    None
                }
            };
            if conformed.is_none() {
                connection.flush(check)?;
            }
            Ok(conformed)
        })
    }

    /// Answer the last input.
    pub fn emit(&self, batch: Batch, check: Check<'_>) -> Result<()> {
        let batch = self.calls.store(batch)?;
        self.answer(check, |connection| {
            let batch = connection.share(batch)?;
            Ok(connection.machine().emit(&batch)?)
        })
    }

    /// End the output.
    pub fn finish(&self, check: Check<'_>) -> Result<()> {
        if self.stage().is_over() {
            return Ok(());
        }
        self.answer(check, |connection| Ok(connection.machine().finish()?))?;
        self.end();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
