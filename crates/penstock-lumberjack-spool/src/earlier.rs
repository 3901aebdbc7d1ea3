//! Conversion of segments of the first format: when the spool is opened, they are rewritten in the
//! current format, row for row and under the same numbers, so every position stays valid.
//!
//! ```text
//! header  "PSPOOL1\n", otherwise as now
//! record  "RECD" (4)  rows (4)  length of origin (4)  length of batch (4)  origin  batch: an Arrow IPC message  hash (8)
//! footer  as now
//! ```
//!
//! `origin` was connection (8), count of hashes (4), length of the sender's name (4), hashes (8
//! each), name, zeros. The hashes had no key, so they are not used any more.

use std::io;
use std::ops::Range;
use std::path::Path;

use penstock_io::DriverError as _;
use penstock_log::{Disk, DiskFile, read, replace};
use penstock_wire::Reader;

use crate::copies::keep_copy;
use crate::format::{
    Entry, HeadSeed, Header, MAX_RECORD, Sent, footer, header_with, record_with, u32_le, u64_le, verify,
};
use crate::index::Segment;
use crate::scan::by_footer;
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

/// Read the entry of a record from its head.
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

/// Read a record; `None` if its hash does not fit.
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

/// Rewrite a segment of the first format in the current one; also return how many of its records
/// are newly found damaged.
pub(super) fn convert(disk: &dyn Disk, path: &Path, file: &dyn DiskFile, header: &Header) -> Result<(Segment, u64)> {
    let failed = |error: io::Error| Error::file("cannot read", path, error);
    let found = read(file).map_err(failed)?;
    let index = by_footer(file, found.len() as u64, header.length).map_err(failed)?;
    let mut known = index.as_deref().unwrap_or_default().iter().copied();
    let mut bytes = header_with(&header.schema, &header.spool, header.segment);
    let (behind, seed) = (bytes.len() as u64, HeadSeed::of(&header.spool, header.segment));
    let mut left = found.get(usize::try_from(header.length).unwrap_or(usize::MAX)..).unwrap_or_default();
    let (mut entries, mut row) = (Vec::new(), 0);
    loop {
        // Without an index, the segment is read up to the first record that is not whole, as the
        // first format did.
        let next = if index.is_some() { known.next() } else { entry(left) };
        let whole = next.and_then(|next| Some((next, left.split_at_checked(usize::try_from(next.bytes).ok()?)?)));
        let Some((next, (old, rest))) = whole else { break };
        let written = match record(old) {
            Some(Record { rows, sent, message }) => {
                let message = old.get(message).unwrap_or_default();
                record_with((message, rows), (seed, row), &sent, &mut bytes)
            }
            None if index.is_none() => break,
            None => {
                bytes.extend_from_slice(old);
                Entry { lost: true, ..next }
            }
        };
        (left, row) = (rest, row + u64::from(written.rows));
        entries.push(written);
    }
    let lost = entries.iter().filter(|entry| entry.lost).count() as u64;
    if lost > 0 || (index.is_none() && !left.is_empty()) {
        let copy = keep_copy(disk, path, if lost > 0 { "damaged" } else { "torn" })?;
        tracing::error!(segment = header.segment, records = lost, copy = %copy.display(), "a segment of format 1 was not whole");
    }
    bytes.extend_from_slice(&footer(&entries));
    replace(disk, path, &bytes).map_err(|error| Error::file("cannot write", path, error))?;
    tracing::info!(segment = header.segment, rows = row, "a segment of an earlier build was written again");
    Ok((Segment { header: behind, entries, bytes: bytes.len() as u64, sealed: true }, lost))
}
