//! The form of batches in shared memory (section 11): a complete stream, or, with dictionaries,
//! messages without schema and end. They are read in place, as are the bodies of HTTP.

use arrow_buffer::Buffer;
use arrow_schema::{DataType, SchemaRef};

use super::batch::Batch;
use super::decoder::{Decoder, Item};
use super::encoder::{END, Encoder, Output, stream};
use crate::Metadata;
use crate::error::{Malformed, Misuse, Result, Violation};
use crate::limits::Limits;

/// Return whether a top-level field is a dictionary, which decides the form.
fn has_dictionary(schema: &SchemaRef) -> bool {
    schema.fields().iter().any(|field| matches!(field.data_type(), DataType::Dictionary(..)))
}

/// Return the bytes of a schema message, as `pa.Schema.serialize()` writes them.
pub fn write_schema(schema: &SchemaRef) -> Result<Vec<u8>> {
    let mut out = Output::new();
    Encoder::new(schema)?.finish(&mut out)?;
    let mut bytes = out.concat();
    bytes.truncate(bytes.len().saturating_sub(END.len()));
    Ok(bytes)
}

/// Write a batch in its form for shared memory. Leave its metadata to the pointer.
pub fn shared_form(batch: &Batch, out: &mut Output) -> Result<()> {
    let plain = batch.clone().with_metadata(Metadata::new());
    if !has_dictionary(&batch.schema) {
        return stream(&batch.schema, [&plain], out);
    }
    let mut whole = Output::new();
    stream(&batch.schema, [&plain], &mut whole)?;
    let bytes = whole.concat();
    let schema = write_schema(&batch.schema)?.len();
    let kept = bytes.get(schema..bytes.len().saturating_sub(END.len()));
    out.bytes(kept.ok_or(Misuse::NoSchema)?);
    Ok(())
}

/// Read a batch in shared memory, to which its arrays point.
pub fn read_shared(bytes: Buffer, schema: &SchemaRef) -> Result<Batch> {
    // The messages are complete in memory, so the segment is their limit.
    let mut decoder = Decoder::new(Limits::default());
    let mut items = Vec::new();
    if has_dictionary(schema) {
        decoder.push(&write_schema(schema)?, &mut items)?;
    }
    let mut batch = None;
    decoder.in_place(&bytes, &mut |item| {
        if let Item::Batch(read) = item {
            batch.get_or_insert(read);
        }
    })?;
    let batch = batch.ok_or(Malformed::NoSharedBatch)?;
    if batch.schema.fields() != schema.fields() {
        return Err(Violation::SharedSchema.into());
    }
    Ok(batch)
}

/// Read a schema message.
pub fn read_schema(bytes: &[u8], limits: &Limits) -> Result<SchemaRef> {
    let mut items = Vec::new();
    Decoder::new(limits.clone()).push(bytes, &mut items)?;
    match items.into_iter().next() {
        Some(Item::Schema(schema)) => Ok(schema),
        Some(Item::Batch(_) | Item::End) | None => Err(Malformed::Schema.into()),
    }
}

/// Read all consecutive streams in memory, to which their batches point. Every stream must be
/// complete.
pub fn read_streams(bytes: &Buffer, limits: &Limits) -> Result<Vec<Item>> {
    let mut items = Vec::new();
    let mut at = 0_usize;
    while at < bytes.len() {
        let mut decoder = Decoder::new(limits.clone());
        let rest = bytes.slice(at);
        at = at.saturating_add(decoder.in_place(&rest, &mut |item| items.push(item))?);
        if !matches!(items.last(), Some(Item::End)) {
            return Err(Malformed::BodyEnd.into());
        }
    }
    Ok(items)
}
