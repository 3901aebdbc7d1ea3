//! The client's end of a pipe, a socket or any other bidirectional byte stream (sections 5, 6 and 9).

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};

use crate::classify::Class;
use crate::error::{Malformed, Misuse, Result, Violation};
use crate::failure::{Failure, Log};
use crate::ipc::{Batch, Decoder, Encoder, Item, Output};
use crate::limits::Limits;
use crate::metadata::{Metadata, key};
use crate::request;

/// An answer of the server.
#[derive(Debug)]
pub enum Answer {
    /// A log message of the server.
    Log(Log),
    /// The result of a unary call, the header of a stream, or its next batch.
    Batch(Batch),
    /// The stream has ended.
    End,
    /// The call or the stream has failed.
    Failed(Failure),
}

/// ```text
///  Idle ── call ─▶ Result ── end ─▶ Idle
///   │ open, with a header ─▶ Header ── end ─▶ Open
///   └ open ─▶ Open ── send ─▶ Open … ── end of the output, or close ─▶ Idle
/// ```
enum State {
    Idle,
    /// A unary call is open, with its result or failure once that has arrived.
    Result(Option<Answer>),
    /// The header of a stream is expected, and kept here once it has arrived.
    Header(Option<Answer>),
    Open(Box<Open>),
}

struct Open {
    /// The encoder of the input and its schema, from the first input on.
    input: Option<(Encoder, SchemaRef)>,
    /// Whether the input was ended.
    ended: bool,
    /// The failure that ends the stream.
    failed: Option<Failure>,
    /// Whether the answer to the last input is outstanding.
    waiting: bool,
}

/// The client's state machine.
pub struct Client {
    decoder: Decoder,
    state: State,
    answers: VecDeque<Answer>,
    out: Output,
    empty: SchemaRef,
}

impl Client {
    /// Make a client for a connection on which nothing was sent yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            decoder: Decoder::new(limits),
            state: State::Idle,
            answers: VecDeque::new(),
            out: Output::new(),
            empty: Arc::new(Schema::empty()),
        }
    }

    /// Return the decoder. Read bytes from the server into its [`space`](Decoder::space), then call
    /// [`handle_input`](Self::handle_input).
    pub const fn input(&mut self) -> &mut Decoder {
        &mut self.decoder
    }

    /// Return the bytes to write.
    pub const fn output(&mut self) -> &mut Output {
        &mut self.out
    }

    /// Return whether a stream is open, so that no other method can be called.
    pub const fn is_streaming(&self) -> bool {
        matches!(self.state, State::Open(_) | State::Header(_))
    }

    /// Return the next answer of the server.
    pub fn poll_answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    /// Handle the end of the server's bytes.
    pub fn handle_end(&self) -> Result<()> {
        self.decoder.handle_end()?;
        match self.state {
            State::Idle => Ok(()),
            State::Result(_) | State::Header(_) | State::Open(_) => Err(Malformed::NoAnswer.into()),
        }
    }

    /// Decode the bytes read, up to the next answer. After an error the connection must be closed.
    pub fn handle_input(&mut self) -> Result<()> {
        while self.answers.is_empty() {
            let Some(item) = self.decoder.poll_item()? else { return Ok(()) };
            self.handle_item(item)?;
        }
        Ok(())
    }

    fn handle_item(&mut self, item: Item) -> Result<()> {
        match item {
            Item::Schema(_) => Ok(()),
            Item::Batch(batch) => self.handle_batch(batch),
            Item::End => self.handle_stream_end(),
        }
    }

    fn handle_batch(&mut self, batch: Batch) -> Result<()> {
        let class = batch.class();
        if let Class::Log(log) = class {
            self.answers.push_back(Answer::Log(log));
            return Ok(());
        }
        let answer = if let Class::Error(failure) = class { Answer::Failed(failure) } else { Answer::Batch(batch) };
        match &mut self.state {
            State::Idle => Err(Violation::UnexpectedBatch.into()),
            // The IPC stream is read to its end first, so that the next answer starts in the right
            // place.
            State::Result(kept) | State::Header(kept) => {
                kept.get_or_insert(answer);
                Ok(())
            }
            State::Open(open) => match answer {
                Answer::Failed(failure) => {
                    open.failed.get_or_insert(failure);
                    Ok(())
                }
                // Answers that arrive after the end of the input are dropped.
                _ if open.ended => Ok(()),
                answer @ (Answer::Batch(_) | Answer::Log(_) | Answer::End) => {
                    if !std::mem::take(&mut open.waiting) {
                        return Err(Violation::TwoBatches.into());
                    }
                    self.answers.push_back(answer);
                    Ok(())
                }
            },
        }
    }

    fn handle_stream_end(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Idle => Err(Violation::UnexpectedEnd.into()),
            State::Result(kept) => {
                let answer = kept.ok_or(Violation::NoResult)?;
                self.answers.push_back(answer);
                Ok(())
            }
            State::Header(kept) => {
                let answer = kept.ok_or(Violation::NoHeader)?;
                if matches!(answer, Answer::Batch(_)) {
                    self.state = State::Open(Box::new(Open::new()));
                }
                self.answers.push_back(answer);
                Ok(())
            }
            State::Open(open) => {
                let Open { input, ended, failed, .. } = *open;
                if !ended {
                    self.end_input(input)?;
                }
                self.answers.push_back(failed.map_or(Answer::End, Answer::Failed));
                Ok(())
            }
        }
    }

    /// Call a unary method.
    pub fn call(&mut self, method: &str, params: Batch, metadata: Metadata) -> Result<()> {
        self.idle()?;
        request::write(method, params, metadata, &mut self.out)?;
        self.state = State::Result(None);
        Ok(())
    }

    /// Open a stream.
    pub fn open(&mut self, method: &str, params: Batch, metadata: Metadata, header: bool) -> Result<()> {
        self.idle()?;
        request::write(method, params, metadata, &mut self.out)?;
        self.state = if header { State::Header(None) } else { State::Open(Box::new(Open::new())) };
        Ok(())
    }

    /// Send the stream's next input.
    pub fn send(&mut self, batch: &Batch) -> Result<()> {
        let State::Open(open) = &mut self.state else { return Err(Misuse::NoStream.into()) };
        if open.ended || open.waiting {
            return Err(Misuse::EarlyInput.into());
        }
        if open.input.is_none() {
            open.input = Some((Encoder::new(&batch.schema)?, Arc::clone(&batch.schema)));
        }
        let Some((encoder, schema)) = &mut open.input else { return Ok(()) };
        if schema.fields() != batch.schema.fields() {
            return Err(Misuse::InputSchema.into());
        }
        encoder.batch(batch, &mut self.out)?;
        open.waiting = true;
        Ok(())
    }

    /// Ask a producer for its next batch.
    pub fn tick(&mut self) -> Result<()> {
        self.send(&Batch::empty(&Arc::clone(&self.empty), Metadata::new()))
    }

    /// End the stream's input; with `cancel`, the server stops working on the rest. Read the output
    /// up to [`Answer::End`] or [`Answer::Failed`].
    pub fn close(&mut self, cancel: bool) -> Result<()> {
        let State::Open(open) = &mut self.state else { return Ok(()) };
        if std::mem::replace(&mut open.ended, true) {
            return Ok(());
        }
        let mut input = open.input.take();
        if cancel {
            if input.is_none() {
                input = Some((Encoder::new(&self.empty)?, Arc::clone(&self.empty)));
            }
            if let Some((encoder, schema)) = &mut input {
                let cancel = std::iter::once((key::CANCEL, b"1".as_slice())).collect();
                encoder.batch(&Batch::empty(schema, cancel), &mut self.out)?;
            }
        }
        self.end_input(input)
    }

    fn end_input(&mut self, input: Option<(Encoder, SchemaRef)>) -> Result<()> {
        match input {
            Some((encoder, _)) => encoder.finish(&mut self.out),
            None => Encoder::new(&self.empty)?.finish(&mut self.out),
        }
    }

    fn idle(&self) -> Result<()> {
        if matches!(self.state, State::Idle) {
            return Ok(());
        }
        Err(Misuse::CallOpen.into())
    }
}

impl Open {
    const fn new() -> Self {
        Self { input: None, ended: false, failed: None, waiting: false }
    }
}
