//! Segments of the first format: they are written again in this one when the spool is opened, row for row, under their
//! numbers, so every position stays what it was.
//!
//! ```text
//! header  "PSPOOL1\n", else as now
//! record  "RECD" (4)  rows (4)  length of origin (4)  length of batch (4)  origin  batch: an Arrow IPC message  hash (8)
//! footer  as now
//! ```
//!
//! `origin` was connection (8), count of hashes (4), length of the sender's name (4), hashes (8 each), name, zeros. The hashes
//! had no key, so they are compared with nothing any more.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use penstock_io::DriverError as _;
use penstock_wire::Reader;

use super::folder::{replace, segment_name};
use super::format::{
    Entry, HeadSeed, MAX_HEADER, MAX_RECORD, Sent, SpoolId, footer, header_with, read_first_header, record_with,
    u32_le, u64_le, verify,
};
use super::recovery::{by_footer, check_spool, keep_copy, read_from};
use crate::{Error, Result};

const RECORD: &[u8; 4] = b"RECD";
const HEAD: usize = 16;
const HASH: usize = 8;

/// A record of the first format.
struct Record {
    rows: u32,
    sent: Sent,
    message: Range<usize>,
}

/// The rows of a record, and its bytes, by its head.
fn entry(head: &[u8]) -> Option<Entry> {
    let mut reader = Reader::new(head);
    if reader.take(4).ok()? != RECORD {
        return None;
    }
    let (rows, origin, body) = (u32_le(&mut reader)?, u32_le(&mut reader)?, u32_le(&mut reader)?);
    let bytes = u64::from(origin) + u64::from(body) + (HEAD + HASH) as u64;
    let fits = bytes <= MAX_RECORD as u64;
    Some(Entry { bytes: u32::try_from(bytes).ok().filter(|_| fits)?, rows, lost: false })
}

/// A record, if that is what was written.
fn record(bytes: &[u8]) -> Option<Record> {
    if !verify(bytes) {
        return None;
    }
    let Entry { rows, .. } = entry(bytes)?;
    let mut reader = Reader::new(bytes.get(8..)?);
    let (origin, body) = (usize::try_from(u32_le(&mut reader)?).ok()?, usize::try_from(u32_le(&mut reader)?).ok()?);
    let connection = u64_le(&mut reader)?;
    let (count, name) = (usize::try_from(u32_le(&mut reader)?).ok()?, usize::try_from(u32_le(&mut reader)?).ok()?);
    reader.take(count.checked_mul(8)?).ok()?;
    let sender = std::str::from_utf8(reader.take(name).ok()?).ok()?.into();
    let start = HEAD.checked_add(origin)?;
    let message = start..start.checked_add(body)?;
    bytes.get(message.clone())?;
    Some(Record { rows, sent: Sent { sender, connection, hashes: Vec::new(), unconfirmed: 0 }, message })
}

/// Writes a segment again in this format, if it is of the first one; says how many records of it are newly found damaged.
pub(super) fn convert(folder: &Path, path: &Path, spool: &SpoolId, number: u64) -> Result<u64> {
    let failed = |error: std::io::Error| Error::file("cannot read", path, error);
    let mut file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let head = read_from(&mut file, 0..length.min(MAX_HEADER)).map_err(failed)?;
    let Some(header) = read_first_header(&head) else { return Ok(0) };
    check_spool(path, &header, spool, number)?;
    let index = by_footer(&mut file, length, header.length).map_err(failed)?;
    let mut known = index.clone().unwrap_or_default().into_iter();
    let mut bytes = header_with(&header.schema, spool, number);
    let (mut entries, mut at, mut row) = (Vec::new(), header.length, 0);
    let seed = HeadSeed::of(spool, number);
    loop {
        let head = read_from(&mut file, at..length.min(at + HEAD as u64)).map_err(failed)?;
        // Without an index it goes on as long as records are whole, as it did.
        let next = if index.is_some() { known.next() } else { entry(&head) };
        let Some(next) = next.filter(|next| at + u64::from(next.bytes) <= length) else { break };
        let old = read_from(&mut file, at..at + u64::from(next.bytes)).map_err(failed)?;
        let written = match record(&old) {
            Some(Record { rows, sent, message }) => {
                let message = old.get(message).unwrap_or_default();
                record_with((message, rows), (seed, row), &sent, &mut bytes)
            }
            None if index.is_none() => break,
            None => {
                bytes.extend_from_slice(&old);
                Entry { lost: true, ..next }
            }
        };
        (at, row) = (at + u64::from(next.bytes), row + u64::from(written.rows));
        entries.push(written);
    }
    let lost = entries.iter().filter(|entry| entry.lost).count() as u64;
    if lost > 0 || (index.is_none() && at < length) {
        let copy = keep_copy(path, if lost > 0 { "damaged" } else { "torn" })?;
        tracing::error!(segment = number, records = lost, copy = %copy.display(), "a segment of format 1 was not whole");
    }
    bytes.extend_from_slice(&footer(&entries));
    replace(folder, &segment_name(number), &bytes)?;
    tracing::info!(segment = number, rows = row, "a segment of an earlier build was written again");
    Ok(lost)
}
