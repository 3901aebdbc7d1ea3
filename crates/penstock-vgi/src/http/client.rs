//! Request bodies of a client, and the content of responses.

use std::collections::VecDeque;

use arrow_buffer::Buffer;

use super::{Response, body};
use crate::classify::Class;
use crate::client::Answer;
use crate::error::{Result, Violation};
use crate::failure::Failure;
use crate::ipc::{self, Batch, Item, Output};
use crate::limits::Limits;
use crate::metadata::{Metadata, key};
use crate::request;

/// The number of bytes that an error message shows of a response that is not Arrow.
const SHOWN: usize = 200;

/// The opaque token of a stream, which is sent back under the key with which it was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamToken {
    name: &'static [u8],
    value: Vec<u8>,
}

impl StreamToken {
    /// Take the token out of a batch's metadata, if there is one.
    pub fn take(metadata: &mut Metadata) -> Option<Self> {
        [key::STREAM_STATE, key::STREAM_STATE_B64]
            .into_iter()
            .find_map(|name| metadata.remove(name).map(|value| Self { name, value }))
    }
}

/// Return the body of a request that calls a method.
pub fn request_body(method: &str, params: Batch, metadata: Metadata) -> Result<Output> {
    let mut out = Output::new();
    request::write(method, params, metadata, &mut out)?;
    Ok(out)
}

/// Return the body of a request that continues a stream, with an input or with the empty batch of a
/// producer's tick; `cancel` ends the stream.
pub fn exchange_body(mut batch: Batch, token: &StreamToken, cancel: bool) -> Result<Output> {
    batch.metadata.set(token.name, token.value.clone());
    if cancel {
        batch.metadata.set(key::CANCEL, b"1".as_slice());
    }
    let mut out = Output::new();
    let schema = batch.schema.clone();
    ipc::stream(&schema, [&batch], &mut out)?;
    Ok(out)
}

/// The request that a response answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    /// A unary call, the start of a stream, or the tick of a producer.
    Call,
    /// The start of a stream that begins with a header.
    Header,
    /// An input. The batch with the token is its answer, even without rows.
    Input,
}

/// The content of a response.
#[derive(Debug, Default)]
pub struct ResponseContent {
    /// The header of a stream that was opened.
    pub header: Option<Batch>,
    /// Log messages, batches, and at most one failure, which comes last.
    pub answers: VecDeque<Answer>,
    /// The token with which the stream continues.
    pub token: Option<StreamToken>,
}

impl ResponseContent {
    /// Return a failure as the content of a response.
    fn failed(kind: &str, message: &str) -> Self {
        // A failure that no server has written has no class name before its text.
        let failure = Failure { message: message.to_owned(), traceback: String::new(), ..Failure::new(kind, message) };
        Self { answers: VecDeque::from([Answer::Failed(failure)]), ..Self::default() }
    }

    fn push(&mut self, mut batch: Batch, kind: RequestKind) -> bool {
        match batch.class() {
            Class::Log(log) => self.answers.push_back(Answer::Log(log)),
            Class::Error(failure) => {
                self.answers.push_back(Answer::Failed(failure));
                return false;
            }
            Class::State if kind != RequestKind::Input => self.token = StreamToken::take(&mut batch.metadata),
            Class::State | Class::Data | Class::External | Class::Shared => {
                self.token = StreamToken::take(&mut batch.metadata);
                self.answers.push_back(Answer::Batch(batch));
            }
        }
        true
    }
}

/// Read a response.
pub fn read_answer(response: &Response, kind: RequestKind, limits: &Limits) -> Result<ResponseContent> {
    let status = response.status;
    if status == 401 {
        return Ok(ResponseContent::failed("AuthenticationError", String::from_utf8_lossy(&response.concat()).trim()));
    }
    let bytes = plain(response, limits)?;
    let Ok(items) = ipc::read_streams(&bytes, limits) else {
        let shown = String::from_utf8_lossy(bytes.get(..bytes.len().min(SHOWN)).unwrap_or_default()).into_owned();
        let message =
            format!("HTTP {status}: response is not a valid Arrow IPC stream (first {SHOWN} bytes: {shown:?})");
        return Ok(ResponseContent::failed(if status == 413 { "RequestTooLarge" } else { "HttpError" }, &message));
    };
    let mut answered = ResponseContent::default();
    let mut in_header = kind == RequestKind::Header;
    for item in items {
        match item {
            Item::Schema(_) => {}
            Item::End => in_header = false,
            Item::Batch(batch) if in_header && matches!(batch.class(), Class::Data | Class::External) => {
                answered.header = Some(batch);
            }
            Item::Batch(batch) if batch.class() == Class::Shared => {
                return Err(Violation::HttpPointer.into());
            }
            Item::Batch(batch) => {
                if !answered.push(batch, kind) {
                    return Ok(answered);
                }
            }
        }
    }
    if kind == RequestKind::Header && answered.header.is_none() {
        return Err(Violation::NoHttpHeader.into());
    }
    Ok(answered)
}

/// Return the decompressed body; a body in one piece is not copied.
fn plain(response: &Response, limits: &Limits) -> Result<Buffer> {
    let bytes = match response.body.as_slice() {
        [whole] => whole.clone(),
        _ => response.concat().into(),
    };
    let headers = &response.headers;
    let coding = headers.get("X-VGI-Content-Encoding").or_else(|| headers.get("Content-Encoding"));
    match coding.map(str::trim) {
        None | Some("" | "identity") => Ok(bytes),
        Some("zstd") => Ok(body::inflate(&bytes, limits.body)?.into()),
        Some(other) => Err(Violation::Coding(other.to_owned()).into()),
    }
}
