//! Decoding the bytes of IPC streams into schemas and batches (section 2).

use std::sync::Arc;

use arrow_array::{Array, make_array};
use arrow_buffer::Buffer;
use arrow_data::transform::MutableArrayData;
use arrow_ipc::{self as fb, MessageHeader, root_as_message};
use arrow_schema::{DataType, SchemaRef};

use super::batch::Batch;
use super::columns::{self, Dictionaries};
use super::flat::take_custom_metadata;
use super::pool::{Body, Pool};
use super::schema::{Column, Layout};
use crate::Metadata;
use crate::error::{Error, Malformed, Result};
use crate::limits::Limits;

/// The prefix of a message: four bytes 0xFF, and four with the length of the head.
const PREFIX: usize = 8;
const CONTINUATION: [u8; 4] = [0xFF; 4];
/// The size of the buffer for heads and small bodies; a larger body is read into separate memory.
const BUFFER: usize = 64 << 10;

/// An item of a stream.
#[derive(Debug, Clone)]
pub enum Item {
    /// A stream begins.
    Schema(SchemaRef),
    /// A batch of the stream.
    Batch(Batch),
    /// The stream has ended.
    End,
}

/// A decoder of consecutive IPC streams on one connection.
///
/// The caller reads bytes into [`space`](Self::space), and passes their number to
/// [`advance`](Self::advance). The body of a large batch is received in the memory that its arrays
/// will use; a later body reuses that memory once the arrays are dropped. Memory is allocated only
/// after a length has passed its limit.
///
/// ```text
/// ── prefix ──▶ head ──▶ body ──▶ (item) ── prefix ──▶ …
///       └─ length 0: the stream has ended
/// ```
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    state: State,
    stream: Option<Stream>,
    pool: Pool,
}

#[derive(Debug)]
enum State {
    /// Between two messages.
    Prefix,
    /// The next message has a head of this many bytes.
    Head(usize),
    /// The head was read, and the body is being received.
    Body(Box<Message>),
    /// An error was returned, and no more messages can be read.
    Failed(Error),
}

/// A message whose body is being read.
#[derive(Debug)]
struct Message {
    head: Vec<u8>,
    metadata: Metadata,
    body: Body,
    filled: usize,
}

#[derive(Debug)]
struct Stream {
    layout: Layout,
    dictionaries: Dictionaries,
    dictionary_bytes: u64,
}

impl Decoder {
    /// Make a decoder before the first stream.
    pub fn new(limits: Limits) -> Self {
        Self { limits, buffer: Vec::new(), start: 0, end: 0, state: State::Prefix, stream: None, pool: Pool::default() }
    }

    /// Return whether no stream is open and no bytes are buffered.
    fn is_between_streams(&self) -> bool {
        self.stream.is_none() && matches!(self.state, State::Prefix) && self.start == self.end
    }

    /// Return the space for the next bytes, which is never empty: the rest of a body, or space for
    /// more than one message.
    pub fn space(&mut self) -> &mut [u8] {
        let wanted = self.wanted();
        if let State::Body(message) = &mut self.state {
            return message.body.rest(message.filled);
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 && self.buffer.len() < self.end.saturating_add(wanted) {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end.saturating_sub(self.start));
        }
        // The length was checked when it was read.
        let needed = self.end.saturating_add(wanted).max(BUFFER);
        if self.buffer.len() < needed {
            self.buffer.resize(needed, 0);
        }
        self.buffer.get_mut(self.end..).unwrap_or_default()
    }

    /// Return the number of bytes missing until the next item, at least 1. A caller that reads no
    /// more than this never reads beyond the end of a stream.
    pub fn wanted(&self) -> usize {
        let have = self.end.saturating_sub(self.start);
        match &self.state {
            State::Prefix => PREFIX.saturating_sub(have),
            State::Head(length) => length.saturating_sub(have),
            State::Body(message) => message.body.len().saturating_sub(message.filled),
            State::Failed(_) => 1,
        }
        .max(1)
    }

    /// Record that this many bytes were written to [`space`](Self::space).
    pub fn advance(&mut self, count: usize) {
        if let State::Body(message) = &mut self.state {
            message.filled = message.filled.saturating_add(count).min(message.body.len());
        } else {
            self.end = self.end.saturating_add(count).min(self.buffer.len());
        }
    }

    /// Decode bytes that the caller already has.
    pub fn push(&mut self, mut bytes: &[u8], items: &mut Vec<Item>) -> Result<()> {
        loop {
            while let Some(item) = self.poll_item()? {
                items.push(item);
            }
            if bytes.is_empty() {
                return Ok(());
            }
            let space = self.space();
            let count = space.len().min(bytes.len());
            let (now, later) = bytes.split_at_checked(count).unwrap_or((bytes, &[]));
            space.iter_mut().zip(now).for_each(|(to, from)| *to = *from);
            self.advance(count);
            bytes = later;
        }
    }

    /// Handle the end of the bytes.
    pub fn handle_end(&self) -> Result<()> {
        match &self.state {
            State::Failed(error) => Err(error.clone()),
            State::Prefix if self.is_between_streams() => Ok(()),
            State::Prefix | State::Head(_) | State::Body(_) => Err(Malformed::StreamEnd.into()),
        }
    }

    /// Return the next item, if its bytes have arrived. After an error, return the same error
    /// again.
    pub fn poll_item(&mut self) -> Result<Option<Item>> {
        let polled = self.poll();
        if let Err(error) = &polled {
            self.state = State::Failed(error.clone());
        }
        polled
    }

    fn poll(&mut self) -> Result<Option<Item>> {
        loop {
            match &self.state {
                State::Failed(error) => return Err(error.clone()),
                State::Prefix => {
                    let Some(prefix) = self.take(PREFIX) else { return Ok(None) };
                    let length = self.head_length(self.buffer.get(prefix).unwrap_or_default())?;
                    if length == 0 {
                        self.stream.take().ok_or(Malformed::UnexpectedEnd)?;
                        return Ok(Some(Item::End));
                    }
                    self.state = State::Head(length);
                }
                State::Head(length) => {
                    let Some(head) = self.take(*length) else { return Ok(None) };
                    let head = self.buffer.get(head).unwrap_or_default().to_vec();
                    let message = self.message(head)?;
                    self.state = State::Body(Box::new(message));
                }
                State::Body(message) => {
                    if message.filled < message.body.len() {
                        return Ok(None);
                    }
                    let State::Body(message) = std::mem::replace(&mut self.state, State::Prefix) else {
                        return Ok(None);
                    };
                    let Message { head, metadata, body, .. } = *message;
                    if let Some(item) = self.handle_message(&head, metadata, &body.into_buffer())? {
                        return Ok(Some(item));
                    }
                }
            }
        }
    }

    /// Return the range of the next `count` bytes, if they have arrived.
    fn take(&mut self, count: usize) -> Option<std::ops::Range<usize>> {
        let end = self.start.checked_add(count).filter(|end| *end <= self.end)?;
        Some(std::mem::replace(&mut self.start, end)..end)
    }

    fn head_length(&self, prefix: &[u8]) -> Result<usize> {
        let Some((continuation, length)) = prefix.split_first_chunk::<4>() else {
            return Err(Malformed::Prefix.into());
        };
        if *continuation != CONTINUATION {
            return Err(Malformed::Continuation(*continuation).into());
        }
        let length = length.first_chunk().map_or(0, |length| u32::from_le_bytes(*length));
        self.limits.head().check(u64::from(length))?;
        Ok(length as usize)
    }

    /// Return a message with memory for its body, and with the part of the body that has already
    /// arrived.
    fn message(&mut self, mut head: Vec<u8>) -> Result<Message> {
        let metadata = take_custom_metadata(&mut head, &self.limits)?;
        let length = parse(&head)?.bodyLength();
        let length = u64::try_from(length).map_err(|_| Malformed::BodyLength)?;
        self.limits.body().check(length)?;
        let length = usize::try_from(length).map_err(|_| Malformed::BodyMemory)?;
        let mut body = self.pool.take(length);
        let here = self.end.saturating_sub(self.start).min(length);
        let end = self.start.saturating_add(here);
        if let (Some(to), Some(from)) = (body.rest(0).get_mut(..here), self.buffer.get(self.start..end)) {
            to.copy_from_slice(from);
        }
        self.start = end;
        Ok(Message { head, metadata, body, filled: here })
    }

    /// Decode messages that are complete in memory, up to the end of a stream or of the memory,
    /// without copying their bodies. Return the number of decoded bytes.
    pub(super) fn in_place(&mut self, bytes: &Buffer, on_item: &mut dyn FnMut(Item)) -> Result<usize> {
        let outside = || Malformed::MessageEnd;
        let mut at = 0_usize;
        while at < bytes.len() {
            let rest = bytes.get(at..).unwrap_or_default();
            let (prefix, rest) = rest.split_at_checked(PREFIX).ok_or_else(outside)?;
            let length = self.head_length(prefix)?;
            if length == 0 {
                on_item(Item::End);
                return Ok(at.saturating_add(PREFIX));
            }
            let mut head = rest.get(..length).ok_or_else(outside)?.to_vec();
            let metadata = take_custom_metadata(&mut head, &self.limits)?;
            let body = usize::try_from(parse(&head)?.bodyLength()).map_err(|_| outside())?;
            let start = at.saturating_add(PREFIX).saturating_add(length);
            let end = start.checked_add(body).filter(|end| *end <= bytes.len()).ok_or_else(outside)?;
            if let Some(item) = self.handle_message(&head, metadata, &bytes.slice_with_length(start, body))? {
                on_item(item);
            }
            at = end;
        }
        Ok(at)
    }

    fn handle_message(&mut self, head: &[u8], metadata: Metadata, body: &Buffer) -> Result<Option<Item>> {
        let parsed = parse(head)?;
        match parsed.header_type() {
            MessageHeader::Schema => {
                let schema = parsed.header_as_schema().ok_or(Malformed::NoSchema)?;
                let layout = Layout::read(schema)?;
                let schema = Arc::clone(&layout.schema);
                self.stream = Some(Stream { layout, dictionaries: Dictionaries::new(), dictionary_bytes: 0 });
                Ok(Some(Item::Schema(schema)))
            }
            MessageHeader::DictionaryBatch => {
                let batch = parsed.header_as_dictionary_batch().ok_or(Malformed::NoDictionary)?;
                let stream = self.stream.as_mut().ok_or(Malformed::NoStream)?;
                stream.dictionary(batch, body, &self.limits)?;
                Ok(None)
            }
            MessageHeader::RecordBatch => {
                let batch = parsed.header_as_record_batch().ok_or(Malformed::NoRecordBatch)?;
                let stream = self.stream.as_ref().ok_or(Malformed::NoStream)?;
                let Stream { layout, dictionaries, .. } = stream;
                let (columns, rows) = columns::read(batch, &layout.columns, body, dictionaries, &self.limits)?;
                let bytes = body.len() as u64;
                Ok(Some(Item::Batch(Batch { schema: Arc::clone(&layout.schema), columns, rows, metadata, bytes })))
            }
            other => Err(Malformed::MessageType(other).into()),
        }
    }
}

fn parse(head: &[u8]) -> Result<fb::Message<'_>> {
    root_as_message(head).map_err(|error| Malformed::Head { reason: error.to_string() }.into())
}

impl Stream {
    fn dictionary(&mut self, batch: fb::DictionaryBatch<'_>, body: &Buffer, limits: &Limits) -> Result<()> {
        let unknown = Malformed::DictionaryId(batch.id());
        let column = self.layout.dictionary(batch.id()).ok_or(Malformed::DictionaryId(batch.id()))?;
        let DataType::Dictionary(_, values) = &column.data_type else { return Err(unknown.into()) };
        let values = Column {
            name: column.name.clone(),
            data_type: values.as_ref().clone(),
            dictionary: None,
            children: column.children.clone(),
        };
        let data = batch.data().ok_or(Malformed::NoValues)?;
        self.dictionary_bytes = self.dictionary_bytes.saturating_add(body.len() as u64);
        limits.dictionaries().check(self.dictionary_bytes)?;
        let (mut arrays, _) = columns::read(data, std::slice::from_ref(&values), body, &self.dictionaries, limits)?;
        let mut array = arrays.pop().ok_or(Malformed::NoValues)?;
        if let Some(before) = self.dictionaries.get(&batch.id()).filter(|_| batch.isDelta()) {
            let (before, more) = (before.to_data(), array.to_data());
            let mut both = MutableArrayData::new(vec![&before, &more], false, before.len().saturating_add(more.len()));
            let overflow = |error: arrow_schema::ArrowError| Malformed::DictionaryLength { reason: error.to_string() };
            both.try_extend(0, 0, before.len()).map_err(overflow)?;
            both.try_extend(1, 0, more.len()).map_err(overflow)?;
            array = make_array(both.freeze());
        }
        self.dictionaries.insert(batch.id(), array);
        Ok(())
    }
}
