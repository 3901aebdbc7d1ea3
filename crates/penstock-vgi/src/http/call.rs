//! One call over HTTP, and its answer.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::config::Config;
use super::route::Kind;
use super::service::Service;
use super::uploads::{self, UploadUrl};
use super::{Request, Response};
use crate::error::{Misuse, Result};
use crate::failure::{Failure, Log};
use crate::ipc::{self, Batch, Encoder, Output};
use crate::metadata::{Metadata, key};
use crate::protocol::{Dialect, Method};
use crate::request;
use crate::token::{Identity, Token};

/// The state from which a stream continues.
#[derive(Debug)]
pub struct Resumed {
    /// The state, as it was passed to [`Call::finish`].
    pub state: Vec<u8>,
    /// The ID of the stream, which only dialect 0.10 has.
    pub stream_id: String,
    /// The output schema.
    pub output: SchemaRef,
    /// The input schema.
    pub input: SchemaRef,
    /// The input in its schema; for a cancelled stream, as received.
    pub batch: Batch,
    /// Whether the client has cancelled the stream.
    pub cancelled: bool,
}

/// ```text
///  Called ── reply, fail ─▶ (answer)
///    └─ open ─▶ Open ── emit … finish, fail ─▶ (answer)
/// ```
enum State {
    Called,
    Open(Box<Open>),
    Done,
}

struct Open {
    encoder: Encoder,
    output: SchemaRef,
    input: SchemaRef,
    /// The batch of an exchange, which waits for the token to be sent with it.
    pending: Option<Batch>,
    /// The token, once it is known.
    token: Option<(&'static [u8], Vec<u8>)>,
    producer: bool,
}

/// A call that waits for its answer.
pub struct Call {
    service: Arc<Service>,
    http_request: Request,
    /// The endpoint of the call.
    pub kind: Kind,
    /// The call's ID.
    pub request_id: String,
    /// The method and its arguments.
    pub request: request::Request,
    /// The state of the stream, if the call continues one.
    pub resumed: Option<Resumed>,
    /// The number of requested URLs.
    pub urls: usize,
    identity: Identity,
    stream_id: String,
    state: State,
    logs: Vec<Log>,
    out: Output,
    fields: Vec<(String, String)>,
}

impl Call {
    pub(super) fn new(
        service: Arc<Service>,
        http_request: Request,
        kind: Kind,
        request_id: String,
        identity: Identity,
        (request, resumed): (request::Request, Option<Resumed>),
    ) -> Self {
        let stream_id = match &resumed {
            Some(resumed) => resumed.stream_id.clone(),
            None => format!("{}{}", service.next_id(), service.next_id()),
        };
        let (logs, out, fields) = (Vec::new(), Output::new(), Vec::new());
        Self {
            service,
            http_request,
            kind,
            request_id,
            request,
            resumed,
            urls: 0,
            identity,
            stream_id,
            state: State::Called,
            logs,
            out,
            fields,
        }
    }

    /// Return the method.
    pub fn method(&self) -> Option<&Method> {
        self.service.protocol.method(self.request.method)
    }

    /// Add a header to the answer.
    pub fn add_header(&mut self, name: &str, value: &str) {
        self.fields.push((name.to_owned(), value.to_owned()));
    }

    /// Add a log message before the next batch.
    pub fn log(&mut self, log: Log) {
        self.logs.push(log);
    }

    /// Return the log messages that wait for the next batch, as batches of its schema. If you store
    /// that batch elsewhere, store them with it, and then call [`forget_logs`](Self::forget_logs).
    pub fn waiting_logs(&self, schema: &SchemaRef) -> Vec<Batch> {
        let metadata = self.logs.iter().map(|log| log.metadata(&self.service.config.server_id, &self.request_id));
        metadata.map(|metadata| Batch::empty(schema, metadata)).collect()
    }

    /// Discard the waiting log messages, because they were stored elsewhere.
    pub fn forget_logs(&mut self) {
        self.logs.clear();
    }

    fn write_logs(&mut self, encoder: &mut Encoder, schema: &SchemaRef) -> Result<()> {
        for log in std::mem::take(&mut self.logs) {
            let metadata = log.metadata(&self.service.config.server_id, &self.request_id);
            encoder.batch(&Batch::empty(schema, metadata), &mut self.out)?;
        }
        Ok(())
    }

    fn respond(&mut self, status: u16) -> Response {
        self.state = State::Done;
        let mut response = self.service.arrow(status, std::mem::take(&mut self.out));
        self.fields.drain(..).for_each(|(name, value)| response.headers.push(name, value));
        self.service.finish_response(response, &self.http_request, Some(self.request_id.clone()))
    }

    /// Answer a unary call.
    pub fn reply(&mut self, result: &Batch) -> Result<Response> {
        let State::Called = self.state else { return Err(Misuse::Answered.into()) };
        let mut encoder = Encoder::new(&result.schema)?;
        self.write_logs(&mut encoder, &result.schema)?;
        encoder.batch(result, &mut self.out)?;
        encoder.finish(&mut self.out)?;
        Ok(self.respond(200))
    }

    /// Answer with URLs for uploads.
    pub fn reply_urls(&mut self, urls: &[UploadUrl]) -> Result<Response> {
        if self.kind != Kind::UploadUrls {
            return Err(Misuse::NoUrlCall.into());
        }
        self.reply(&uploads::answer(urls))
    }

    /// Answer with an error. `params` means that the client's input is at fault, not the method.
    pub fn fail(&mut self, params: bool, failure: &Failure) -> Result<Response> {
        let status = self.status(params, failure);
        match std::mem::replace(&mut self.state, State::Done) {
            State::Done => Err(Misuse::Answered.into()),
            State::Called => {
                let schema = match (self.kind, self.method(), &self.resumed) {
                    (Kind::Unary, Some(method), _) => Arc::clone(&method.result),
                    (_, _, Some(resumed)) => Arc::clone(&resumed.output),
                    (Kind::UploadUrls, ..) => Arc::clone(uploads::schema()),
                    (Kind::Unary | Kind::Init | Kind::Exchange, ..) => Arc::clone(self.service.protocol.empty_schema()),
                };
                let encoder = Encoder::new(&schema)?;
                self.end_with(encoder, &schema, failure)?;
                Ok(self.respond(status))
            }
            State::Open(open) => {
                let Open { encoder, output, producer, .. } = *open;
                // The reference package answers 200 if a producer fails after its first batch,
                // because its batches are valid.
                let inline = producer && self.service.config.dialect == Dialect::V0_10;
                self.end_with(encoder, &output, failure)?;
                Ok(self.respond(if inline { 200 } else { status }))
            }
        }
    }

    fn end_with(&mut self, mut encoder: Encoder, schema: &SchemaRef, failure: &Failure) -> Result<()> {
        self.write_logs(&mut encoder, schema)?;
        let metadata = failure.metadata(&self.service.config.server_id, &self.request_id);
        encoder.batch(&Batch::empty(schema, metadata), &mut self.out)?;
        encoder.finish(&mut self.out)
    }

    fn status(&self, params: bool, failure: &Failure) -> u16 {
        let kind = failure.error_type.as_str();
        let is_client_error = match (self.service.config.dialect, self.kind) {
            (Dialect::Spec, _) => kind == "TypeError",
            (Dialect::V0_10, Kind::Unary | Kind::Init) => kind == "TypeError" || kind == "ArrowInvalid",
            (Dialect::V0_10, Kind::Exchange | Kind::UploadUrls) => false,
        };
        if params || is_client_error { 400 } else { 500 }
    }

    /// Open the answer of a stream, and write its header. Batches of a `producer` are written
    /// immediately; an exchange's batch is sent with the token.
    pub fn open(
        &mut self,
        output: &SchemaRef,
        input: &SchemaRef,
        header: Option<&Batch>,
        producer: bool,
    ) -> Result<()> {
        let State::Called = self.state else { return Err(Misuse::Answered.into()) };
        if let Some(header) = header {
            let mut encoder = Encoder::new(&header.schema)?;
            self.write_logs(&mut encoder, &header.schema)?;
            encoder.batch(header, &mut self.out)?;
            encoder.finish(&mut self.out)?;
        }
        let encoder = Encoder::new(output)?;
        let (output, input) = (Arc::clone(output), Arc::clone(input));
        self.state = State::Open(Box::new(Open { encoder, output, input, pending: None, token: None, producer }));
        Ok(())
    }

    /// Add the next batch to the answer.
    pub fn emit(&mut self, batch: Batch) -> Result<()> {
        let State::Open(open) = &mut self.state else { return Err(Misuse::NoStream.into()) };
        if !open.producer {
            if open.pending.is_some() {
                return Err(Misuse::TwoBatches.into());
            }
            open.pending = Some(batch);
            return Ok(());
        }
        for log in self.logs.drain(..) {
            let metadata = log.metadata(&self.service.config.server_id, &self.request_id);
            open.encoder.batch(&Batch::empty(&open.output, metadata), &mut self.out)?;
        }
        open.encoder.batch(&batch, &mut self.out)
    }

    /// Return whether a producer may add more to this answer.
    pub fn has_capacity(&self) -> bool {
        let Config { dialect, fills, max_stream_response_bytes, .. } = &self.service.config;
        if *dialect == Dialect::V0_10 && !fills && max_stream_response_bytes.is_none() {
            return false;
        }
        (self.out.len() as u64) < max_stream_response_bytes.unwrap_or(Config::ANSWER)
    }

    /// End the answer; with a state, the client may continue the stream. `now` is in seconds since
    /// the Unix epoch.
    pub fn finish(&mut self, state: Option<Vec<u8>>, now: u64) -> Result<Response> {
        if let Some(state) = state {
            self.seal(state, now)?;
        }
        self.close()
    }

    /// Make the token with which the client may continue the stream, and add it to the batch of an
    /// exchange.
    pub fn seal(&mut self, state: Vec<u8>, now: u64) -> Result<()> {
        let State::Open(open) = &self.state else { return Err(Misuse::NoStream.into()) };
        let (name, value) = self.token(state, &open.output, &open.input, now)?;
        let State::Open(open) = &mut self.state else { return Ok(()) };
        if let Some(pending) = &mut open.pending {
            pending.metadata.set(name, value.clone());
        }
        open.token = Some((name, value));
        Ok(())
    }

    /// Return whether batches are written immediately.
    pub fn produces(&self) -> bool {
        matches!(&self.state, State::Open(open) if open.producer)
    }

    /// Return the batch of an exchange, which is sent at the end of the answer.
    pub fn pending(&self) -> Option<&Batch> {
        match &self.state {
            State::Open(open) => open.pending.as_ref(),
            State::Called | State::Done => None,
        }
    }

    /// Replace the batch of an exchange, which is stored elsewhere, with a pointer that also has
    /// the token.
    pub fn replace_pending(&mut self, pointer: Batch) {
        if let State::Open(open) = &mut self.state {
            open.pending = Some(pointer);
        }
    }

    /// End the answer.
    pub fn close(&mut self) -> Result<Response> {
        let State::Open(open) = std::mem::replace(&mut self.state, State::Done) else {
            return Err(Misuse::NoStream.into());
        };
        let Open { mut encoder, output, pending, token, .. } = *open;
        self.write_logs(&mut encoder, &output)?;
        let last = match (pending, token) {
            (Some(mut batch), Some((name, value))) => {
                batch.metadata.set(name, value);
                Some(batch)
            }
            (Some(batch), None) => Some(batch),
            (None, Some(token)) => Some(Batch::empty(&output, std::iter::once(token).collect::<Metadata>())),
            (None, None) => None,
        };
        if let Some(last) = last {
            encoder.batch(&last, &mut self.out)?;
        }
        encoder.finish(&mut self.out)?;
        Ok(self.respond(200))
    }

    /// Return the key and the value of a token, in the form of the dialect.
    fn token(
        &self,
        state: Vec<u8>,
        output: &SchemaRef,
        input: &SchemaRef,
        now: u64,
    ) -> Result<(&'static [u8], Vec<u8>)> {
        let token = Token {
            created_at: now,
            state,
            schema: ipc::write_schema(output)?,
            input_schema: ipc::write_schema(input)?,
            stream_id: self.stream_id.clone(),
        };
        let bytes = self.service.signer.seal(&token, &self.identity);
        Ok(match self.service.config.dialect {
            Dialect::Spec => (key::STREAM_STATE, bytes),
            Dialect::V0_10 => (key::STREAM_STATE_B64, STANDARD.encode(bytes).into_bytes()),
        })
    }
}
