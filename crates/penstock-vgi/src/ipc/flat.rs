//! The custom metadata of a message, read by ourselves.
//!
//! The stock reader wants UTF-8 there, and drops it; a state token is any bytes. So it is read here, by bounds-checked
//! access alone, and taken out of the table. What is left goes to the stock verifier.

use penstock_wire::Reader;

use crate::Metadata;
use crate::error::{Malformed, Result};
use crate::limits::Limits;

/// Where `Message.custom_metadata` stands in a vtable: two bytes for each of two sizes and four fields before it.
const CUSTOM_METADATA: usize = 4 + 2 * 4;
/// Where the key and the value stand in the vtable of a `KeyValue`.
const KEY: usize = 4;
const VALUE: usize = 6;

/// Read the custom metadata of a flatbuffer `Message`, and remove it there.
pub(super) fn take_custom_metadata(message: &mut [u8], limits: &Limits) -> Result<Metadata> {
    let table = indirect(message, 0)?;
    let Some(vector) = field(message, table, CUSTOM_METADATA)? else { return Ok(Metadata::new()) };
    let metadata = pairs(message, indirect(message, vector)?, limits)?;
    let slot = vtable(message, table)?.saturating_add(CUSTOM_METADATA);
    if let Some(entry) = message.get_mut(slot..slot.saturating_add(2)) {
        entry.fill(0);
    }
    Ok(metadata)
}

fn pairs(message: &[u8], vector: usize, limits: &Limits) -> Result<Metadata> {
    let count = u32_at(message, vector)?;
    limits.pairs().check(u64::from(count))?;
    let mut bytes = 0_u64;
    let mut metadata = Metadata::new();
    for index in 0..count as usize {
        let pair = indirect(message, vector.saturating_add(4).saturating_add(index.saturating_mul(4)))?;
        let key = string(message, pair, KEY)?;
        let value = string(message, pair, VALUE)?;
        // Pairs may share one string: what counts is what they take once they are apart.
        bytes = bytes.saturating_add(key.len() as u64).saturating_add(value.len() as u64);
        limits.metadata().check(bytes)?;
        metadata.push(key, value);
    }
    Ok(metadata)
}

/// Return a string of a table; one that is left out is empty.
fn string(message: &[u8], table: usize, slot: usize) -> Result<&[u8]> {
    let Some(at) = field(message, table, slot)? else { return Ok(&[]) };
    let at = indirect(message, at)?;
    let length = u32_at(message, at)? as usize;
    Ok(reader_at(message, at.saturating_add(4))?.take(length)?)
}

/// Where a field of a table is, if it is there.
fn field(message: &[u8], table: usize, slot: usize) -> Result<Option<usize>> {
    let vtable = vtable(message, table)?;
    let length = usize::from(u16_at(message, vtable)?);
    if length < slot.saturating_add(2) {
        return Ok(None);
    }
    let offset = u16_at(message, vtable.saturating_add(slot))?;
    Ok((offset != 0).then(|| table.saturating_add(usize::from(offset))))
}

fn vtable(message: &[u8], table: usize) -> Result<usize> {
    let back = u32_at(message, table)?.cast_signed() as i64;
    usize::try_from((table as i64).saturating_sub(back)).map_err(|_| Malformed::Table.into())
}

/// Return where the offset at `at` leads.
fn indirect(message: &[u8], at: usize) -> Result<usize> {
    Ok(at.saturating_add(u32_at(message, at)? as usize))
}

fn u16_at(message: &[u8], at: usize) -> Result<u16> {
    Ok(reader_at(message, at)?.u16_le()?)
}

fn u32_at(message: &[u8], at: usize) -> Result<u32> {
    Ok(reader_at(message, at)?.u32_le()?)
}

fn reader_at(message: &[u8], at: usize) -> Result<Reader<'_>> {
    message.get(at..).map(Reader::new).ok_or(Malformed::Offset.into())
}
