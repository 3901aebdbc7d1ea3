//! A parser for the custom metadata of a message.
//!
//! The stock reader requires UTF-8 there and discards the metadata, but a state token is arbitrary
//! bytes. So this module reads it, with bounds-checked access only, and removes it from the table.
//! The stock verifier gets the rest.

use penstock_wire::Reader;

use crate::Metadata;
use crate::error::{Malformed, Result};
use crate::limits::Limits;

/// The position of `Message.custom_metadata` in a vtable: two bytes each for the two sizes and for
/// the four fields before it.
const CUSTOM_METADATA: usize = 4 + 2 * 4;
/// The positions of key and value in the vtable of a `KeyValue`.
const KEY: usize = 4;
const VALUE: usize = 6;

/// Read the custom metadata of a flatbuffer `Message`, and remove it from the message.
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
        // Pairs may share one string, so the limit applies to their size after copying.
        bytes = bytes.saturating_add(key.len() as u64).saturating_add(value.len() as u64);
        limits.metadata().check(bytes)?;
        metadata.push(key, value);
    }
    Ok(metadata)
}

/// Return a string of a table, or an empty one if it is missing.
fn string(message: &[u8], table: usize, slot: usize) -> Result<&[u8]> {
    let Some(at) = field(message, table, slot)? else { return Ok(&[]) };
    let at = indirect(message, at)?;
    let length = u32_at(message, at)? as usize;
    Ok(reader_at(message, at.saturating_add(4))?.take(length)?)
}

/// Return the position of a field in a table, if it is present.
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

/// Return the target of the offset at `at`.
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
