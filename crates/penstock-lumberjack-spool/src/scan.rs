//! Classification of a segment's bytes: records, damage, a torn end, a footer. Nothing is changed.

use std::io;
use std::path::Path;

use penstock_io::{DriverError as _, Problem};
use penstock_log::{DiskFile, read, read_range};

use crate::format::{
    Encoder, Entry, FOOTER_TAIL, HeadSeed, Header, RECORD_HEAD, SpoolId, begins_as_footer, footer, footer_length,
    read_first_header, read_footer, read_head, repair_head, verify,
};
use crate::store::Unreadable;
use crate::{Error, Result};

/// The alignment of records, in bytes.
const STEP: usize = 8;

/// The result of scanning a segment from a given byte on.
#[derive(Debug)]
pub(super) struct SegmentScan {
    pub(super) entries: Vec<Entry>,
    /// The byte after the last record, where lost records count too.
    pub(super) end: usize,
    pub(super) rest: Rest,
}

/// What follows the last record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    Nothing,
    /// The footer, whole.
    Footer,
    /// The footer, whole; the records are known from it, and were not scanned.
    Indexed,
    /// A half-written record or footer, which was never acknowledged.
    Torn,
    /// A footer that has changed since it was written.
    DamagedFooter,
    /// A record that has changed since it was written, and that no crash explains.
    Damaged(Entry),
}

/// Scan the records behind the `known` ones and check their hashes. `last` says that the segment is
/// the last one, whose end may be torn.
pub(super) fn scan(bytes: &[u8], seed: HeadSeed, known: &[Entry], last: bool) -> SegmentScan {
    let (mut entries, mut at) = (Vec::new(), 0);
    let mut row = known.iter().map(|entry| u64::from(entry.rows)).sum();
    let rest = loop {
        let left = bytes.get(at..).unwrap_or_default();
        if left.is_empty() {
            break Rest::Nothing;
        }
        // A head in which one bit has changed still tells how many rows are lost.
        let head = read_head(seed, left).or_else(|| repair_head(seed, left)).filter(|(_, first)| *first == row);
        let next = || next_head(left, STEP, seed, row);
        if let Some((entry, _)) = head {
            let size = usize::try_from(entry.bytes).unwrap_or(usize::MAX);
            let whole = left.get(..size);
            let verified = whole.is_some_and(verify);
            if !verified && next().is_none() {
                // No later record follows, so this may be the torn end.
                let torn = last && whole.is_none_or(is_torn);
                break if torn { Rest::Torn } else { Rest::Damaged(to_the_end(left, entry.rows)) };
            }
            if whole.is_some() {
                entries.push(Entry { lost: !verified, ..entry });
                (at, row) = (at + size, row + u64::from(entry.rows));
                continue;
            }
        }
        let Some((behind, first)) = next() else { break headless_rest(left, &[known, &entries].concat(), last) };
        let rows = u32::try_from(first.saturating_sub(row)).unwrap_or(u32::MAX);
        entries.push(Entry { bytes: u32::try_from(behind).unwrap_or(u32::MAX), rows, lost: true });
        (at, row) = (at + behind, first);
    };
    SegmentScan { entries, end: at, rest }
}

/// Return a lost record that takes all the bytes left in a segment; the footer is written after it.
fn to_the_end(left: &[u8], rows: u32) -> Entry {
    Entry { bytes: u32::try_from(left.len()).unwrap_or(u32::MAX), rows, lost: true }
}

/// Find the next intact head from a byte on; return its place and its first row. Linear: a head is
/// recognized by its own hash.
fn next_head(bytes: &[u8], from: usize, seed: HeadSeed, row: u64) -> Option<(usize, u64)> {
    (from..bytes.len()).step_by(STEP).find_map(|at| {
        let (_, first) = read_head(seed, bytes.get(at..)?)?;
        (first >= row).then_some((at, first))
    })
}

/// Classify the end of a segment where it does not begin with the head of a record.
fn headless_rest(bytes: &[u8], entries: &[Entry], last: bool) -> Rest {
    let expected = footer(entries);
    if read_footer(bytes).is_some() {
        return Rest::Footer;
    }
    let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    let written = bytes.get(..written).unwrap_or_default();
    // A crash leaves a part of a head or of a footer, and zeros. A failed write of the footer
    // leaves a part of it.
    let begun = expected.starts_with(written) && (last || !written.is_empty());
    if begun || bytes.starts_with(&expected) || (last && written.len() < RECORD_HEAD) {
        return Rest::Torn;
    }
    let same = bytes.iter().zip(&expected).filter(|(a, b)| a == b).count();
    if bytes.len() == expected.len() && 2 * same >= bytes.len() && begins_as_footer(bytes) {
        return Rest::DamagedFooter;
    }
    if last && is_torn(bytes) {
        return Rest::Torn;
    }
    // The number of its rows is not known; it had at least one.
    Rest::Damaged(to_the_end(bytes, 1))
}

/// Return whether the end of a record has never reached the disk, which writes sectors: zeros are
/// in the place of its hash.
fn is_torn(bytes: &[u8]) -> bool {
    bytes.ends_with(&[0; STEP])
}

/// Read the entries of a segment from its footer, if it has one.
pub(super) fn by_footer(file: &dyn DiskFile, length: u64, header: u64) -> io::Result<Option<Vec<Entry>>> {
    let Some(tail) = length.checked_sub(FOOTER_TAIL).filter(|tail| *tail >= header) else { return Ok(None) };
    let Some(size) = footer_length(&read_range(file, tail..length)?) else { return Ok(None) };
    let Some(start) = length.checked_sub(size).filter(|start| *start >= header) else { return Ok(None) };
    let Some(entries) = read_footer(&read_range(file, start..length)?) else { return Ok(None) };
    let records: u64 = entries.iter().map(|entry| u64::from(entry.bytes)).sum();
    Ok((header + records == start).then_some(entries))
}

/// What a segment without a readable header is.
pub(super) enum Headless {
    /// Its first group was never durable, so nothing in it was acknowledged. Its number is still
    /// taken.
    Torn { header: Vec<u8> },
    /// Its header has changed. `header` is the one that was written, and the bytes after it belong
    /// to the segment.
    Damaged { header: Vec<u8> },
    /// Its content cannot be identified.
    Unknown(Error),
}

/// Examine a segment whose header cannot be read. A crash leaves a part of the header, zeros, or
/// both, and only in the last segment. The header's content can be computed, and the records show
/// that they belong to this segment.
pub(super) fn headless(file: &dyn DiskFile, path: &Path, spool: &SpoolId, number: u64, last: bool) -> Result<Headless> {
    let failed = |error: io::Error| Error::file("cannot read", path, error);
    let (bytes, header) = (read(file).map_err(failed)?, Encoder::new()?.header(spool, number));
    // The disk may have written its sectors in any order.
    let expected = header.iter().copied().chain(std::iter::repeat(0));
    if last && bytes.iter().zip(expected).all(|(byte, expected)| *byte == expected || *byte == 0) {
        return Ok(Headless::Torn { header });
    }
    let indexed = by_footer(file, bytes.len() as u64, header.len() as u64).map_err(failed)?;
    let found = next_head(&bytes, header.len(), HeadSeed::of(spool, number), 0);
    if found.is_some() || indexed.is_some_and(|entries| entries.is_empty()) {
        return Ok(Headless::Damaged { header });
    }
    let is_earlier = read_first_header(&bytes).is_some();
    let reason = if is_earlier { Unreadable::EarlierFormat } else { Unreadable::Headless };
    Ok(Headless::Unknown(Error::io(path.display().to_string(), reason)))
}

pub(super) fn check_spool(path: &Path, header: &Header, spool: &SpoolId, number: u64) -> Result<()> {
    if header.spool == *spool && header.segment == number {
        return Ok(());
    }
    Err(Error::content(path.display(), Problem::Foreign("spool")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_not_taken_for_a_footer_of_its_length() {
        let entries = [Entry { bytes: 800, rows: 2, lost: false }; 3];
        let mut bytes = footer(&entries);
        if let Some(first) = bytes.first_mut() {
            *first ^= 1;
        }
        assert_eq!(headless_rest(&bytes, &entries, true), Rest::DamagedFooter);
        bytes.splice(..4, *b"RECD");
        let lost = Entry { bytes: 48, rows: 1, lost: true };
        assert_eq!(headless_rest(&bytes, &entries, true), Rest::Damaged(lost));
    }
}
