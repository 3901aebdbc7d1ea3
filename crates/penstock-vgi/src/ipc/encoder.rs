//! Encoding schemas and batches as the bytes of an IPC stream (section 2).

use arrow_buffer::Buffer;
use arrow_ipc::writer::StreamEncoder;
use arrow_ipc::{self as fb, MessageHeader, root_as_message};
use arrow_schema::Schema;
use flatbuffers::FlatBufferBuilder;

use super::batch::Batch;
use crate::Metadata;
use crate::error::{Malformed, Misuse, Result};

/// The end of a stream (appendix A).
pub const END: [u8; 8] = [0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0];
/// The size up to which buffers are copied together, which costs less than a separate slice in a
/// write.
const SMALL: usize = 16 << 10;
/// The alignment of bodies, for which heads are padded.
const ALIGNMENT: usize = 8;

/// Bytes to write, in ordered pieces; large pieces share the memory of the arrays.
#[derive(Debug, Default)]
pub struct Output {
    done: Vec<Buffer>,
    small: Vec<u8>,
    length: usize,
}

impl Output {
    /// Make an empty output.
    pub fn new() -> Self {
        Self::default()
    }

    /// Return the number of bytes.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Return whether there are no bytes.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Append bytes.
    pub fn bytes(&mut self, data: &[u8]) {
        self.small.extend_from_slice(data);
        self.length = self.length.saturating_add(data.len());
    }

    fn buffer(&mut self, buffer: Buffer) {
        if buffer.len() <= SMALL {
            self.bytes(&buffer);
            return;
        }
        self.seal();
        self.length = self.length.saturating_add(buffer.len());
        self.done.push(buffer);
    }

    fn seal(&mut self) {
        if !self.small.is_empty() {
            self.done.push(Buffer::from_vec(std::mem::take(&mut self.small)));
        }
    }

    /// Take the pieces, and leave the output empty.
    pub fn take(&mut self) -> Vec<Buffer> {
        self.seal();
        self.length = 0;
        std::mem::take(&mut self.done)
    }

    /// Take all bytes as one piece, and leave the output empty.
    pub fn concat(&mut self) -> Vec<u8> {
        if self.done.is_empty() {
            self.length = 0;
            return std::mem::take(&mut self.small);
        }
        self.take().iter().map(Buffer::as_slice).collect::<Vec<_>>().concat()
    }
}

/// An encoder of one IPC stream.
pub struct Encoder {
    stream: StreamEncoder,
}

impl Encoder {
    /// Begin a stream of batches with this schema. Write nothing before the first batch or the end.
    pub fn new(schema: &Schema) -> Result<Self> {
        Ok(Self { stream: StreamEncoder::try_new(schema).map_err(unwritable)? })
    }

    /// Append a batch, after the schema if it is the first, and after the dictionaries that it
    /// needs.
    pub fn batch(&mut self, batch: &Batch, out: &mut Output) -> Result<()> {
        let parts = self.stream.encode(&batch.to_record_batch()?).map_err(unwritable)?;
        let mut parts = parts.into_iter().filter(|part| !part.is_empty()).peekable();
        while parts.peek().is_some() {
            let prefix = parts.next().unwrap_or_default();
            let length = head_length(&prefix)?;
            let mut head = Vec::with_capacity(length);
            while head.len() < length {
                head.extend_from_slice(&parts.next().ok_or(Malformed::MessageLength)?);
            }
            let message = root_as_message(&head).map_err(|error| Malformed::Head { reason: error.to_string() })?;
            let body = usize::try_from(message.bodyLength()).map_err(|_| Malformed::MessageLength)?;
            match message.header_as_record_batch().filter(|_| !batch.metadata.is_empty()) {
                Some(record) => self::head(&with_metadata(message, record, &batch.metadata), out),
                None => {
                    out.bytes(&prefix);
                    out.bytes(&head);
                }
            }
            let mut written = 0_usize;
            while written < body {
                let part = parts.next().ok_or(Malformed::MessageLength)?;
                written = written.saturating_add(part.len());
                out.buffer(part);
            }
        }
        Ok(())
    }

    /// End the stream. If there was no batch, write the schema first.
    pub fn finish(self, out: &mut Output) -> Result<()> {
        self.stream.finish().map_err(unwritable)?.iter().for_each(|part| out.bytes(part));
        Ok(())
    }
}

/// Write a complete stream.
pub fn stream<'a>(schema: &Schema, batches: impl IntoIterator<Item = &'a Batch>, out: &mut Output) -> Result<()> {
    let mut encoder = Encoder::new(schema)?;
    batches.into_iter().try_for_each(|batch| encoder.batch(batch, out))?;
    encoder.finish(out)
}

fn unwritable(error: arrow_schema::ArrowError) -> Misuse {
    Misuse::Batch { reason: error.to_string() }
}

fn head_length(prefix: &[u8]) -> Result<usize> {
    let length = prefix.get(4..).and_then(<[u8]>::first_chunk);
    Ok(u32::from_le_bytes(*length.ok_or(Malformed::MessageLength)?) as usize)
}

/// Write a head with its prefix and padding.
fn head(bytes: &[u8], out: &mut Output) {
    let padding = bytes.len().wrapping_neg() % ALIGNMENT;
    let length = u32::try_from(bytes.len().saturating_add(padding)).unwrap_or(u32::MAX);
    out.bytes(&[0xFF; 4]);
    out.bytes(&length.to_le_bytes());
    out.bytes(bytes);
    out.bytes([0; ALIGNMENT].get(..padding).unwrap_or_default());
}

/// Rebuild the message with custom metadata whose values may be any bytes, which Arrow's types do
/// not allow.
fn with_metadata(message: fb::Message<'_>, batch: fb::RecordBatch<'_>, metadata: &Metadata) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let pairs: Vec<_> = metadata
        .iter()
        .map(|(key, value)| {
            let (key, value) = (builder.create_byte_string(key), builder.create_byte_string(value));
            let start = builder.start_table();
            builder.push_slot_always(fb::KeyValue::VT_KEY, key);
            builder.push_slot_always(fb::KeyValue::VT_VALUE, value);
            builder.end_table(start)
        })
        .collect();
    let pairs = builder.create_vector(&pairs);
    let nodes = builder.create_vector(&batch.nodes().into_iter().flatten().copied().collect::<Vec<_>>());
    let buffers = builder.create_vector(&batch.buffers().into_iter().flatten().copied().collect::<Vec<_>>());
    let views: Vec<i64> = batch.variadicBufferCounts().into_iter().flatten().collect();
    let views = (!views.is_empty()).then(|| builder.create_vector(&views));
    let mut record = fb::RecordBatchBuilder::new(&mut builder);
    record.add_length(batch.length());
    record.add_nodes(nodes);
    record.add_buffers(buffers);
    if let Some(views) = views {
        record.add_variadicBufferCounts(views);
    }
    let record = record.finish();
    let start = builder.start_table();
    builder.push_slot_always(fb::Message::VT_BODYLENGTH, message.bodyLength());
    builder.push_slot_always(fb::Message::VT_CUSTOM_METADATA, pairs);
    builder.push_slot_always(fb::Message::VT_HEADER, record);
    builder.push_slot_always(fb::Message::VT_VERSION, message.version());
    builder.push_slot_always(fb::Message::VT_HEADER_TYPE, MessageHeader::RecordBatch);
    let message = builder.end_table(start);
    builder.finish_minimal(message);
    builder.finished_data().to_vec()
}
