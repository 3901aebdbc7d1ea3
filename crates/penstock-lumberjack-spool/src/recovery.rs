//! Recovery of a segment after a crash, or after damage.
//!
//! A crash leaves the last write torn: it was never acknowledged, and it is cut off. Any other
//! change of the written bytes is damage. Damage loses the records that it hit, and no other:
//! recovery finds the next whole record by its head, whose first row tells how many rows are lost,
//! and every other record keeps its place and its row numbers. Only the last segment may be torn:
//! each earlier one had its footer before the next one was begun.
//!
//! Recovery writes the repaired segment as a new file, and keeps the file as it was found under a
//! name of its own.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};

use penstock_io::DriverError as _;
use penstock_log::{Disk, is_full, read, read_range, replace};

use crate::copies::{UNCHANGED, keep_copy};
use crate::earlier::convert;
use crate::format::{Entry, HeadSeed, MAX_HEADER, SpoolId, footer, read_first_header, read_header};
use crate::index::Segment;
use crate::names::path_of;
use crate::scan::{Headless, Rest, SegmentScan, by_footer, check_spool, headless, scan};
use crate::{Error, Result};

/// Replace a segment that a crash left without a header by an empty one, so that its number is not
/// used again.
fn set_aside(disk: &dyn Disk, path: &Path, number: u64, header: Vec<u8>) -> Result<Segment> {
    let copy = keep_copy(disk, path, "torn")?;
    tracing::warn!(segment = number, "a segment without a header is set aside: {}", copy.display());
    let length = header.len() as u64;
    let bytes = [header, footer(&[])].concat();
    replace(disk, path, &bytes).map_err(|error| Error::file(UNCHANGED, path, error))?;
    Ok(Segment { header: length, entries: Vec::new(), bytes: bytes.len() as u64, sealed: true })
}

/// Recover a segment: write its missing footer, and cut off a record that a crash left
/// half-written. Also return how many of its records are newly found damaged.
pub(super) fn recover(
    disk: &dyn Disk,
    folder: &Path,
    spool: &SpoolId,
    number: u64,
    last: bool,
) -> Result<(Segment, u64)> {
    let path = path_of(folder, number);
    let failed = |error: io::Error| Error::file("cannot recover", &path, error);
    let file = disk.open_to_read(&path).map_err(failed)?;
    let length = file.length().map_err(failed)?;
    let head = read_range(&*file, 0..length.min(MAX_HEADER)).map_err(failed)?;
    if let Some(header) = read_first_header(&head) {
        check_spool(&path, &header, spool, number)?;
        return convert(disk, &path, &*file, &header);
    }
    let (header, lost_header) = match read_header(&head) {
        Some(header) => {
            check_spool(&path, &header, spool, number)?;
            (header.length, None)
        }
        None => match headless(&*file, &path, spool, number, last)? {
            Headless::Torn { header } => return Ok((set_aside(disk, &path, number, header)?, 0)),
            Headless::Unknown(error) => return Err(error),
            Headless::Damaged { header } => (header.len() as u64, Some(header)),
        },
    };
    let index = match by_footer(&*file, length, header).map_err(failed)? {
        Some(entries) if lost_header.is_none() => {
            if last {
                // The footer may be in the page cache only, if the writer was killed, and the next
                // segment implies a durable one.
                file.sync().map_err(failed)?;
            }
            return Ok((Segment { header, entries, bytes: length, sealed: true }, 0));
        }
        index => index,
    };
    let mut bytes = read(&*file).map_err(failed)?;
    let scanned = || {
        let records = bytes.get(usize::try_from(header).unwrap_or(usize::MAX)..).unwrap_or_default();
        let SegmentScan { mut entries, rest, .. } = scan(records, HeadSeed::of(spool, number), &[], last);
        entries.extend(if let Rest::Damaged(entry) = rest { Some(entry) } else { None });
        (entries, rest)
    };
    let (entries, rest) = index.map_or_else(scanned, |entries| (entries, Rest::Indexed));
    let end = header + entries.iter().map(|entry| u64::from(entry.bytes)).sum::<u64>();
    let is_headless = lost_header.is_some();
    let what = Found { number, is_headless, entries: &entries, rest, torn: length.saturating_sub(end) };
    let (damaged, kept) = what.tell(disk, &path)?;
    bytes.iter_mut().zip(lost_header.iter().flatten()).for_each(|(to, from)| *to = *from);
    bytes.truncate(usize::try_from(end).unwrap_or(usize::MAX));
    let footer = footer(&entries);
    bytes.extend_from_slice(&footer);
    let copy = match (damaged, &kept) {
        (0, None) => Kept::Nothing,
        (0, Some(kept)) => Kept::OfTorn(kept),
        (1.., _) => Kept::OfDamaged,
    };
    write_again(disk, &path, &bytes, &footer, copy).map_err(|error| Error::file(UNCHANGED, &path, error))?;
    Ok((Segment { header, entries, bytes: bytes.len() as u64, sealed: true }, damaged))
}

/// The copy that is kept of a segment as it was found.
#[derive(Debug, Clone, Copy)]
enum Kept<'a> {
    Nothing,
    /// The copy of a segment whose end was torn, without other damage.
    OfTorn(&'a Path),
    OfDamaged,
}

/// Replace the file as it was found by the repaired segment. A full disk has only room for a footer
/// after the whole records.
fn write_again(disk: &dyn Disk, path: &Path, bytes: &[u8], footer: &[u8], copy: Kept<'_>) -> io::Result<()> {
    match (replace(disk, path, bytes), copy) {
        (Err(error), Kept::Nothing | Kept::OfTorn(_)) if is_full(&error) => {
            if let Kept::OfTorn(kept) = copy {
                // The copy may be a link to the same file, and bytes that were never acknowledged
                // must not make the start fail.
                disk.remove(kept)?;
            }
            let file = disk.open(path)?;
            let length = (bytes.len() - footer.len()) as u64;
            file.truncate(length)?;
            let written = file.append(&mut [IoSlice::new(footer)]).and_then(|()| file.sync());
            if written.is_err() {
                // Half a footer would be a torn tail at the next start, which would need room for a
                // copy.
                let _ = file.truncate(length).and_then(|()| file.sync());
            }
            written
        }
        (written, Kept::Nothing | Kept::OfTorn(_) | Kept::OfDamaged) => written,
    }
}

/// The defects that were found in a segment.
struct Found<'a> {
    number: u64,
    is_headless: bool,
    entries: &'a [Entry],
    rest: Rest,
    /// The number of bytes after the last record.
    torn: u64,
}

impl Found<'_> {
    /// Keep a copy of the file and report what is wrong; return how many records are newly found
    /// damaged, and the copy's name.
    fn tell(&self, disk: &dyn Disk, path: &Path) -> Result<(u64, Option<PathBuf>)> {
        let Self { number, is_headless, entries, rest, torn } = *self;
        // Records that the footer marks as lost were reported when that footer was written.
        let lost: Vec<&Entry> = entries.iter().filter(|entry| entry.lost && rest != Rest::Indexed).collect();
        let damaged = lost.len() as u64 + u64::from(is_headless) + u64::from(rest == Rest::DamagedFooter);
        if damaged == 0 && torn == 0 {
            return Ok((0, None));
        }
        let kept = keep_copy(disk, path, if damaged > 0 { "damaged" } else { "torn" })?;
        let copy = kept.display();
        if is_headless {
            tracing::error!(segment = number, %copy, "a segment's header was damaged, and is written again");
        }
        if !lost.is_empty() || rest == Rest::DamagedFooter {
            let bytes: u64 = lost.iter().map(|entry| u64::from(entry.bytes)).sum();
            tracing::error!(
                segment = number, places = lost.len(), rows = lost_rows(entries), bytes, %copy,
                "a segment of the spool is damaged: the rows in it are lost, all others can be read"
            );
        }
        if damaged == 0 {
            tracing::warn!(segment = number, bytes = torn, %copy, "the torn end of a segment, never acknowledged, is cut off");
        }
        Ok((damaged, Some(kept)))
    }
}

/// Return the ranges of lost rows, as `2 to 4, 9 to 9`.
fn lost_rows(entries: &[Entry]) -> String {
    let mut row = 0;
    let mut ranges = Vec::new();
    for entry in entries {
        let next = row + u64::from(entry.rows);
        if entry.lost && next > row {
            ranges.push(format!("{row} to {}", next - 1));
        }
        row = next;
    }
    ranges.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_rows_are_named() {
        let entry = |rows, lost| Entry { bytes: 8, rows, lost };
        let entries = [entry(2, false), entry(3, true), entry(0, true), entry(4, false), entry(1, true)];
        assert_eq!(lost_rows(&entries), "2 to 4, 9 to 9");
    }
}
