//! Batches as they lie in shared memory (section 11): a whole stream, or without schema and end if there are
//! dictionaries. They are read in place.

use arrow_buffer::Buffer;
use arrow_schema::{DataType, SchemaRef};

use super::batch::Batch;
use super::decoder::{Decoder, Item};
use super::encoder::{END, Encoder, Output, stream};
use crate::limits::Limits;
use crate::{Error, Metadata, Result};

/// Whether a field at the top is a dictionary: that decides the form.
fn has_dictionary(schema: &SchemaRef) -> bool {
    schema.fields().iter().any(|field| matches!(field.data_type(), DataType::Dictionary(..)))
}

/// The octets of a schema message.
fn schema_message(schema: &SchemaRef) -> Result<Vec<u8>> {
    let mut out = Output::new();
    Encoder::new(schema)?.finish(&mut out)?;
    let mut octets = out.concat();
    octets.truncate(octets.len().saturating_sub(END.len()));
    Ok(octets)
}

/// A batch as it is put into shared memory. Its metadata stays on the pointer.
pub fn shared_form(batch: &Batch, out: &mut Output) -> Result<()> {
    let plain = batch.clone().with_metadata(Metadata::new());
    if !has_dictionary(&batch.schema) {
        return stream(&batch.schema, [&plain], out);
    }
    let mut whole = Output::new();
    stream(&batch.schema, [&plain], &mut whole)?;
    let octets = whole.concat();
    let schema = schema_message(&batch.schema)?.len();
    let kept = octets.get(schema..octets.len().saturating_sub(END.len()));
    out.bytes(kept.ok_or_else(|| Error::misuse("a stream without a schema"))?);
    Ok(())
}

/// The batch that lies in shared memory; its arrays point there.
pub fn read_shared(octets: Buffer, schema: &SchemaRef) -> Result<Batch> {
    // Its messages lie whole in memory: the segment is their limit.
    let mut decoder = Decoder::new(Limits::default());
    let mut items = Vec::new();
    if has_dictionary(schema) {
        decoder.push(&schema_message(schema)?, &mut items)?;
    }
    let mut batch = None;
    decoder.in_place(&octets, &mut |item| {
        if let Item::Batch(read) = item {
            batch.get_or_insert(read);
        }
    })?;
    let batch = batch.ok_or_else(|| Error::malformed("shared memory without a batch"))?;
    if batch.schema.fields() != schema.fields() {
        return Err(Error::violation("a batch in shared memory whose schema is not that of its pointer"));
    }
    Ok(batch)
}
