//! The server's end of a pipe, a socket or any other bidirectional byte stream (sections 5, 6, 9 and 13).

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_schema::SchemaRef;

use crate::cast::conform;
use crate::classify::Class;
use crate::describe::Description;
use crate::error::{Error, Misuse, Result, Violation};
use crate::failure::{Failure, Log};
use crate::ids::id;
use crate::ipc::{self, Batch, Decoder, Encoder, Item, Output};
use crate::limits::Limits;
use crate::metadata::key;
use crate::protocol::{MethodKind, Protocol};
use crate::request::{self, Parsed, Request};

/// The configuration of a server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The ID of this server in answers: 12 hex digits.
    pub server_id: String,
    /// The answer to `__describe__`, if the server has one.
    pub description: Option<Arc<Description>>,
    /// The limits on a client's input.
    pub limits: Limits,
    /// The random seed for the IDs of requests without one.
    pub seed: u64,
}

/// An event from a client.
#[derive(Debug)]
pub enum Event {
    /// A method is called. Until it is answered, the only other events are those of a stream's
    /// input.
    Call(Call),
    /// The stream's next input; answer it with one batch, or with the end.
    Input(Batch),
    /// The stream's input has ended; end the output as well.
    InputEnd,
    /// The client has cancelled the stream.
    Cancelled,
    /// The client has left the stream without ending it, and calls another method: nothing can be
    /// written to the stream.
    Abandoned,
    /// The values of a request are behind a URL (section 12): pass the fetched batch to
    /// [`Server::resolved`].
    Pointer(Batch),
}

/// A call.
#[derive(Debug)]
pub struct Call {
    /// The method and its arguments.
    pub request: Request,
    /// The call's ID, generated here if the client sent none.
    pub request_id: String,
}

/// ```text
///                       ┌───────────── reply, fail ──────────────┐
///                       │                                        │
///  Idle ── schema ─▶ Request ── end ─▶ Called ── open ─▶ Streaming ── input end, finish ─▶ Idle
///   ▲                   ▲  │              │                 │
///   │                   │  └─ rejected ─▶ Idle              └── finish, fail ─▶ Draining ── end ─▶ Idle
///   │                   └──────────── schema: the stream was abandoned ────────────┘
/// ```
enum State {
    /// Before a request.
    Idle,
    /// The stream of a request is being read; its first batch, once it has arrived.
    Request(Option<Batch>),
    /// The values of a request with this ID are being fetched.
    Fetching(Option<String>),
    /// The application is handling a call.
    Called(MethodCall),
    /// A stream is open.
    Streaming(Box<Streaming>),
    /// The answer is complete; the rest of the client's input is dropped.
    Draining,
}

struct MethodCall {
    method: usize,
    request_id: String,
}

struct Streaming {
    request_id: String,
    input: SchemaRef,
    output: SchemaRef,
    encoder: Encoder,
    /// Whether the client has begun its input.
    begun: bool,
    /// Whether the application owes an answer to the last input.
    owes: bool,
    /// Whether the client has ended its input.
    ended: bool,
}

/// The server's state machine.
pub struct Server {
    protocol: Arc<Protocol>,
    config: ServerConfig,
    decoder: Decoder,
    state: State,
    /// The log messages that wait for the next batch.
    logs: Vec<Log>,
    events: VecDeque<Event>,
    out: Output,
    /// Whether a call or stream ended before its client could know, so that input may follow that
    /// is not a request.
    leftover: bool,
    /// Whether the application fetches batches behind URLs.
    follows: bool,
    requests: u64,
    /// Whether any request has arrived, valid or not.
    requested: bool,
    /// The number of requests that were answered with an error instead of a method, since
    /// [`take_refused`](Self::take_refused) was last called.
    refused: u64,
}

impl Server {
    /// Make a server for a connection on which nothing was read yet.
    pub fn new(protocol: Arc<Protocol>, config: ServerConfig) -> Self {
        Self {
            decoder: Decoder::new(config.limits.clone()),
            protocol,
            config,
            state: State::Idle,
            logs: Vec::new(),
            events: VecDeque::new(),
            out: Output::new(),
            leftover: false,
            follows: false,
            requests: 0,
            requested: false,
            refused: 0,
        }
    }

    /// Report requests whose values are behind a URL as [`Event::Pointer`].
    pub const fn follow_pointers(&mut self) {
        self.follows = true;
    }

    /// Return whether any request has arrived, valid or not.
    pub const fn was_requested(&self) -> bool {
        self.requested
    }

    /// Return the number of requests that were answered with an error instead of a method since the
    /// last call.
    pub const fn take_refused(&mut self) -> u64 {
        std::mem::replace(&mut self.refused, 0)
    }

    /// Return the protocol of the server.
    pub const fn protocol(&self) -> &Arc<Protocol> {
        &self.protocol
    }

    /// Return the decoder. Read bytes from the client into its [`space`](Decoder::space), then call
    /// [`handle_input`](Self::handle_input).
    pub const fn input(&mut self) -> &mut Decoder {
        &mut self.decoder
    }

    /// Decode the bytes read, up to the next event. After an error the connection must be closed;
    /// the output still tells a waiting client why.
    pub fn handle_input(&mut self) -> Result<()> {
        while self.events.is_empty() {
            match self.handle_next() {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => {
                    self.refuse(&error);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Handle the next item. Return false if its bytes have not arrived.
    fn handle_next(&mut self) -> Result<bool> {
        let Some(item) = self.decoder.poll_item()? else { return Ok(false) };
        self.handle_item(item)?;
        Ok(true)
    }

    /// Handle the end of the client's bytes.
    pub fn handle_end(&self) -> Result<()> {
        self.decoder.handle_end()
    }

    /// Return the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Return the bytes to write.
    pub const fn output(&mut self) -> &mut Output {
        &mut self.out
    }

    fn handle_item(&mut self, item: Item) -> Result<()> {
        match (&mut self.state, item) {
            // A request that was begun before is discarded: its client has left it.
            (State::Idle | State::Request(_) | State::Draining, Item::Schema(_)) => self.state = State::Request(None),
            (State::Draining, Item::End) => self.state = State::Idle,
            (State::Draining, Item::Batch(_)) => {}
            (State::Request(first), Item::Batch(batch)) => {
                // Further batches of a request are tolerated and discarded.
                first.get_or_insert(batch);
            }
            (State::Request(first), Item::End) => {
                let first = first.take();
                self.state = State::Idle;
                self.handle_request(first)?;
            }
            (State::Streaming(stream), Item::Schema(_)) if !stream.begun => stream.begun = true,
            (State::Streaming(_), Item::Schema(_)) => {
                self.abandon();
                self.state = State::Request(None);
            }
            (State::Streaming(_), Item::Batch(batch)) => self.handle_stream_batch(batch)?,
            (State::Streaming(stream), Item::End) => {
                stream.ended = true;
                self.events.push_back(Event::InputEnd);
            }
            (State::Idle, Item::Batch(_) | Item::End) | (State::Called(_) | State::Fetching(_), _) => {
                return Err(Violation::Request.into());
            }
        }
        Ok(())
    }

    fn handle_request(&mut self, first: Option<Batch>) -> Result<()> {
        let leftover = std::mem::take(&mut self.leftover);
        let Some(batch) = first.filter(|batch| !leftover || is_request(batch)) else {
            if !leftover {
                self.requested = true;
                self.refused += 1;
                let failure = Failure::new("ProtocolError", "A request without a batch");
                self.write_failure(&Arc::clone(self.protocol.empty_schema()), &failure, "")?;
            }
            return Ok(());
        };
        self.requested = true;
        let named = batch.metadata.contains(key::METHOD);
        if self.follows && named && batch.class() == Class::External {
            self.state = State::Fetching(batch.metadata.text(key::REQUEST_ID).map(str::to_owned));
            self.events.push_back(Event::Pointer(batch));
            return Ok(());
        }
        let request_id = batch.metadata.text(key::REQUEST_ID).map_or_else(|| self.next_id(), str::to_owned);
        match request::parse(&self.protocol, batch, self.config.description.is_some()) {
            Parsed::Call(request) => {
                self.state = State::Called(MethodCall { method: request.method, request_id: request_id.clone() });
                self.events.push_back(Event::Call(Call { request, request_id }));
                Ok(())
            }
            Parsed::Describe => {
                let Some(description) = self.config.description.clone() else { return Ok(()) };
                let batch = description.batch();
                ipc::stream(&batch.schema, [batch], &mut self.out)
            }
            Parsed::Rejected(_, schema, failure) => {
                // The client of a stream may send input before it sees the error.
                self.leftover = named;
                self.refused += 1;
                self.write_failure(&schema, &failure, &request_id)
            }
        }
    }

    /// Set the batch behind the pointer of a request, with the pointer's metadata, or the reason
    /// why it cannot be fetched.
    pub fn resolved(&mut self, batch: Result<Batch, Failure>) -> Result<()> {
        let State::Fetching(request_id) = &mut self.state else { return Err(Misuse::NoPointer.into()) };
        let request_id = request_id.take().unwrap_or_default();
        self.state = State::Idle;
        match batch {
            Ok(batch) => self.handle_request(Some(batch)),
            Err(failure) => {
                self.leftover = true;
                self.refused += 1;
                self.write_failure(&Arc::clone(self.protocol.empty_schema()), &failure, &request_id)
            }
        }
    }

    fn handle_stream_batch(&mut self, batch: Batch) -> Result<()> {
        let State::Streaming(stream) = &mut self.state else { return Ok(()) };
        if batch.metadata.contains(key::METHOD) {
            self.abandon();
            self.state = State::Request(Some(batch));
            return Ok(());
        }
        if stream.owes {
            return Err(Violation::EarlyInput.into());
        }
        if batch.rows == 0 && batch.metadata.contains(key::CANCEL) {
            self.events.push_back(Event::Cancelled);
            return Ok(());
        }
        stream.owes = true;
        self.events.push_back(Event::Input(batch));
        Ok(())
    }

    /// Return the batch in the schema of the open stream. If it does not fit, or is an unresolved
    /// pointer, fail the stream and return `None`.
    pub fn conform(&mut self, batch: Batch) -> Result<Option<Batch>> {
        let State::Streaming(stream) = &self.state else { return Err(not_open()) };
        if let Some(why) = batch.unresolved() {
            self.fail(&Failure::new("ProtocolError", why))?;
            return Ok(None);
        }
        let wanted = Arc::clone(&stream.input);
        let came = Arc::clone(&batch.schema);
        if let Some(batch) = conform(batch, &wanted) {
            return Ok(Some(batch));
        }
        self.fail(&Failure::new("TypeError", &request::mismatch(&wanted, &came)))?;
        Ok(None)
    }

    /// Add a log message before the next batch.
    pub fn log(&mut self, log: Log) {
        self.logs.push(log);
    }

    /// Return the log messages that wait for the next batch, as batches of its schema. If you store
    /// that batch elsewhere, store them with it, and then call [`forget_logs`](Self::forget_logs).
    pub fn waiting_logs(&self, schema: &SchemaRef) -> Vec<Batch> {
        let request_id = match &self.state {
            State::Called(call) => call.request_id.as_str(),
            State::Streaming(stream) => stream.request_id.as_str(),
            State::Idle | State::Request(_) | State::Fetching(_) | State::Draining => "",
        };
        let metadata = self.logs.iter().map(|log| log.metadata(&self.config.server_id, request_id));
        metadata.map(|metadata| Batch::empty(schema, metadata)).collect()
    }

    /// Discard the waiting log messages, because they were stored elsewhere.
    pub fn forget_logs(&mut self) {
        self.logs.clear();
    }

    /// Answer a unary call. A method that returns nothing has a result without columns.
    pub fn reply(&mut self, result: &Batch) -> Result<()> {
        let State::Called(call) = &self.state else { return Err(Misuse::NoReply.into()) };
        let request_id = call.request_id.clone();
        let mut encoder = Encoder::new(&result.schema)?;
        self.write_logs(&mut encoder, &Arc::clone(&result.schema), &request_id)?;
        encoder.batch(result, &mut self.out)?;
        encoder.finish(&mut self.out)?;
        self.state = State::Idle;
        Ok(())
    }

    /// Answer a call or an open stream with an error. This ends the stream.
    pub fn fail(&mut self, failure: &Failure) -> Result<()> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Called(call) => {
                let method = self.protocol.method(call.method);
                let unary = method.filter(|method| method.kind == MethodKind::Unary);
                // A header's schema is unknown before the method has returned (section 9, phase
                // 1.5).
                self.leftover = unary.is_none() && method.is_some_and(|method| method.header.is_none());
                let schema = Arc::clone(unary.map_or(self.protocol.empty_schema(), |method| &method.result));
                self.write_failure(&schema, failure, &call.request_id)
            }
            State::Streaming(stream) => {
                let mut stream = *stream;
                let logs = std::mem::take(&mut self.logs);
                stream.write_logs(&logs, &self.config.server_id, &mut self.out)?;
                let metadata = failure.metadata(&self.config.server_id, &stream.request_id);
                stream.encoder.batch(&Batch::empty(&stream.output, metadata), &mut self.out)?;
                stream.encoder.finish(&mut self.out)?;
                self.after_stream(stream.begun, stream.ended);
                Ok(())
            }
            state @ (State::Idle | State::Request(_) | State::Fetching(_) | State::Draining) => {
                self.state = state;
                Err(Misuse::NoAnswer.into())
            }
        }
    }

    /// Open the stream of a call, and write its header.
    pub fn open(&mut self, output: &SchemaRef, input: &SchemaRef, header: Option<&Batch>) -> Result<()> {
        let State::Called(call) = &self.state else { return Err(Misuse::NoStreamCall.into()) };
        let request_id = call.request_id.clone();
        if let Some(header) = header {
            let mut encoder = Encoder::new(&header.schema)?;
            self.write_logs(&mut encoder, &Arc::clone(&header.schema), &request_id)?;
            encoder.batch(header, &mut self.out)?;
            encoder.finish(&mut self.out)?;
        }
        self.state = State::Streaming(Box::new(Streaming {
            request_id,
            input: Arc::clone(input),
            output: Arc::clone(output),
            encoder: Encoder::new(output)?,
            begun: false,
            owes: false,
            ended: false,
        }));
        Ok(())
    }

    /// Answer the last input.
    pub fn emit(&mut self, batch: &Batch) -> Result<()> {
        let State::Streaming(stream) = &mut self.state else { return Err(not_open()) };
        if !std::mem::take(&mut stream.owes) {
            return Err(Misuse::TwoBatches.into());
        }
        let logs = std::mem::take(&mut self.logs);
        stream.write_logs(&logs, &self.config.server_id, &mut self.out)?;
        stream.encoder.batch(batch, &mut self.out)
    }

    /// End the output.
    pub fn finish(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Streaming(stream) => {
                let mut stream = *stream;
                let logs = std::mem::take(&mut self.logs);
                stream.write_logs(&logs, &self.config.server_id, &mut self.out)?;
                stream.encoder.finish(&mut self.out)?;
                self.after_stream(stream.begun, stream.ended);
                Ok(())
            }
            state @ (State::Idle | State::Request(_) | State::Fetching(_) | State::Called(_) | State::Draining) => {
                self.state = state;
                Err(not_open())
            }
        }
    }

    /// End the call or stream that the application has left open: fail a call or an input without
    /// an answer, and end a stream that owes none.
    pub fn settle(&mut self) -> Result<()> {
        match &self.state {
            State::Streaming(stream) if !stream.owes => self.finish(),
            State::Called(_) | State::Streaming(_) => {
                self.fail(&Failure::new("RuntimeError", "the call was left without an answer"))
            }
            State::Fetching(_) => {
                self.resolved(Err(Failure::new("RuntimeError", "the values of the call were not fetched")))
            }
            State::Idle | State::Request(_) | State::Draining => Ok(()),
        }
    }

    fn after_stream(&mut self, begun: bool, ended: bool) {
        self.state = if begun && !ended { State::Draining } else { State::Idle };
        // If a stream ends before its first input has arrived, that input will still come.
        self.leftover = !begun;
    }

    fn abandon(&mut self) {
        self.logs.clear();
        self.events.push_back(Event::Abandoned);
    }

    fn write_logs(&mut self, encoder: &mut Encoder, schema: &SchemaRef, request_id: &str) -> Result<()> {
        for log in std::mem::take(&mut self.logs) {
            let metadata = log.metadata(&self.config.server_id, request_id);
            encoder.batch(&Batch::empty(schema, metadata), &mut self.out)?;
        }
        Ok(())
    }

    fn write_failure(&mut self, schema: &SchemaRef, failure: &Failure, request_id: &str) -> Result<()> {
        let mut encoder = Encoder::new(schema)?;
        self.write_logs(&mut encoder, schema, request_id)?;
        let metadata = failure.metadata(&self.config.server_id, request_id);
        encoder.batch(&Batch::empty(schema, metadata), &mut self.out)?;
        encoder.finish(&mut self.out)
    }

    /// Tell the client why the connection ends, if the client waits for an answer.
    fn refuse(&mut self, error: &Error) {
        let failure = Failure::new("ProtocolError", &error.to_string());
        let written = match &self.state {
            State::Called(_) | State::Streaming(_) => self.fail(&failure),
            State::Fetching(_) => self.resolved(Err(failure)),
            State::Idle | State::Request(_) => {
                self.requested = true;
                self.refused += 1;
                self.write_failure(&Arc::clone(self.protocol.empty_schema()), &failure, "")
            }
            State::Draining => Ok(()),
        };
        // The connection ends in any case.
        drop(written);
    }

    /// Return 16 hex digits that no other request of this server has.
    fn next_id(&mut self) -> String {
        self.requests = self.requests.wrapping_add(1);
        id(self.config.seed, self.requests)
    }
}

impl Streaming {
    fn write_logs(&mut self, logs: &[Log], server_id: &str, out: &mut Output) -> Result<()> {
        for log in logs {
            let metadata = log.metadata(server_id, &self.request_id);
            self.encoder.batch(&Batch::empty(&self.output, metadata), out)?;
        }
        Ok(())
    }
}

/// Return whether a batch has the metadata of a request, valid or not.
fn is_request(batch: &Batch) -> bool {
    batch.metadata.contains(key::METHOD) || batch.metadata.contains(key::REQUEST_VERSION)
}

fn not_open() -> Error {
    Misuse::NoStream.into()
}
