//! What is left of a segment after a crash, or after damage.
//!
//! A crash leaves the end of what was being written torn: it was never acknowledged, and it is cut off. Everything
//! else that is not what was written is damage. It loses the records that it hit, and no other: the next whole record is
//! looked for by its head, its first row tells how many rows are lost, and every record keeps its bytes and its rows. Only
//! the last segment may be torn: the others had their footers when the next one was begun.
//!
//! What is brought into order is written again as a new file, and the file as it was found keeps a name of its own.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};

use penstock_io::DriverError as _;
use penstock_log::{Disk, DiskFile, is_full, keep_aside, read, read_range, replace};

use super::earlier::convert;
use super::folder::path_of;
use super::format::{
    Encoder, Entry, FOOTER_TAIL, HeadSeed, Header, MAX_HEADER, RECORD_HEAD, SpoolId, begins_as_footer, footer,
    footer_length, read_first_header, read_footer, read_head, read_header, repair_head, verify,
};
use super::index::Segment;
use crate::{Error, Result};

/// Records begin at multiples of this.
const STEP: usize = 8;

/// What is known of a segment, from a byte on.
#[derive(Debug)]
pub(super) struct SegmentScan {
    pub(super) entries: Vec<Entry>,
    /// The byte behind the last record, lost ones among them.
    pub(super) end: usize,
    pub(super) rest: Rest,
}

/// What is behind the last record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    Nothing,
    /// The footer, whole.
    Footer,
    /// The footer, whole, by which the records are known.
    Indexed,
    /// Something that was never acknowledged: a record or a footer that is half-written.
    Torn,
    /// A footer that is not what was written.
    DamagedFooter,
    /// A record that is not what was written, and no crash explains it.
    Damaged(Entry),
}

/// Looks through records, each with its hash, of which the first has the row `row`. `last`: they are those of the last segment,
/// so their end may be torn.
pub(super) fn scan(bytes: &[u8], seed: HeadSeed, row: u64, last: bool) -> SegmentScan {
    let (mut entries, mut at, mut row) = (Vec::new(), 0, row);
    let rest = loop {
        let left = bytes.get(at..).unwrap_or_default();
        if left.is_empty() {
            break Rest::Nothing;
        }
        // A head in which one bit has changed tells how many rows are lost.
        let known = read_head(seed, left).or_else(|| repair_head(seed, left)).filter(|(_, first)| *first == row);
        let next = || next_head(left, STEP, seed, row);
        if let Some((entry, _)) = known {
            let size = usize::try_from(entry.bytes).unwrap_or(usize::MAX);
            let whole = left.get(..size);
            let verified = whole.is_some_and(verify);
            if !verified && next().is_none() {
                // Nothing follows it that was written later.
                let torn = last && whole.is_none_or(is_torn);
                break if torn { Rest::Torn } else { Rest::Damaged(to_the_end(left, entry.rows)) };
            }
            if whole.is_some() {
                entries.push(Entry { lost: !verified, ..entry });
                (at, row) = (at + size, row + u64::from(entry.rows));
                continue;
            }
        }
        let Some((behind, first)) = next() else { break headless_rest(left, &entries, last) };
        let rows = u32::try_from(first.saturating_sub(row)).unwrap_or(u32::MAX);
        entries.push(Entry { bytes: u32::try_from(behind).unwrap_or(u32::MAX), rows, lost: true });
        (at, row) = (at + behind, first);
    };
    SegmentScan { entries, end: at, rest }
}

/// A lost record that takes all that is left of a segment: whatever is behind it, the footer comes behind that.
fn to_the_end(left: &[u8], rows: u32) -> Entry {
    Entry { bytes: u32::try_from(left.len()).unwrap_or(u32::MAX), rows, lost: true }
}

/// The next head that is what was written, from a byte on, with its first row. Linear: a head is known by its own hash.
fn next_head(bytes: &[u8], from: usize, seed: HeadSeed, row: u64) -> Option<(usize, u64)> {
    (from..bytes.len()).step_by(STEP).find_map(|at| {
        let (_, first) = read_head(seed, bytes.get(at..)?)?;
        (first >= row).then_some((at, first))
    })
}

/// What the end of a segment is that begins with no head of a record.
fn headless_rest(bytes: &[u8], entries: &[Entry], last: bool) -> Rest {
    let expected = footer(entries);
    if read_footer(bytes).is_some() {
        return Rest::Footer;
    }
    let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    let written = bytes.get(..written).unwrap_or_default();
    // A crash leaves a part of a head or of a footer, and zeros. A failed write of the footer leaves a part of that.
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
    // How many rows it had is not known; some.
    Rest::Damaged(to_the_end(bytes, 1))
}

/// Whether the end of a record has never reached the disk, which writes sectors: zeros are where its hash should be.
fn is_torn(bytes: &[u8]) -> bool {
    bytes.ends_with(&[0; STEP])
}

/// The entries of a segment by its footer, if it has one.
pub(super) fn by_footer(file: &dyn DiskFile, length: u64, header: u64) -> io::Result<Option<Vec<Entry>>> {
    let Some(tail) = length.checked_sub(FOOTER_TAIL).filter(|tail| *tail >= header) else { return Ok(None) };
    let Some(size) = footer_length(&read_range(file, tail..length)?) else { return Ok(None) };
    let Some(start) = length.checked_sub(size).filter(|start| *start >= header) else { return Ok(None) };
    let Some(entries) = read_footer(&read_range(file, start..length)?) else { return Ok(None) };
    let records: u64 = entries.iter().map(|entry| u64::from(entry.bytes)).sum();
    Ok((header + records == start).then_some(entries))
}

/// What a segment without a header is.
pub(super) enum Headless {
    /// Its first group was never durable, so nothing of it was acknowledged. Its number is taken all the same.
    Torn { header: Vec<u8> },
    /// Its header has changed, and this is what was written: what is behind that belongs to the segment.
    Damaged { header: Vec<u8> },
    /// What it had is not known.
    Unknown(Error),
}

/// Looks at a segment whose header cannot be read. A crash leaves a part of the header, zeros, or both; and only of the
/// last segment. What a header says is known without it, and that it is the header of this segment is told by the records.
pub(super) fn headless(file: &dyn DiskFile, path: &Path, spool: &SpoolId, number: u64, last: bool) -> Result<Headless> {
    let failed = |error: io::Error| Error::file("cannot read", path, error);
    let (bytes, header) = (read(file).map_err(failed)?, Encoder::new()?.header(spool, number));
    // The disk may have got its sectors in any order.
    let expected = header.iter().copied().chain(std::iter::repeat(0));
    if last && bytes.iter().zip(expected).all(|(byte, expected)| *byte == expected || *byte == 0) {
        return Ok(Headless::Torn { header });
    }
    let indexed = by_footer(file, bytes.len() as u64, header.len() as u64).map_err(failed)?;
    let found = next_head(&bytes, header.len(), HeadSeed::of(spool, number), 0);
    if found.is_some() || indexed.is_some_and(|entries| entries.is_empty()) {
        return Ok(Headless::Damaged { header });
    }
    let message = if read_first_header(&bytes).is_some() {
        "it was written by an earlier build (format 1): a receiver of this one writes it again when it opens the spool"
    } else {
        "the segment's header is damaged, and no record of this spool was found behind it: put a copy of the file back"
    };
    Ok(Headless::Unknown(Error::io(path.display().to_string(), message)))
}

/// Keeps a segment's file as it was found, durably, under a name that no other has. Where an earlier start has kept it, that is its
/// name.
pub(super) fn keep_copy(disk: &dyn Disk, path: &Path, suffix: &str) -> Result<PathBuf> {
    let name =
        |number: u32| path.with_extension(if number == 0 { suffix.to_owned() } else { format!("{suffix}.{number}") });
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    let keeping = || -> io::Result<PathBuf> {
        let (file, names) = (disk.open(path)?, disk.list(folder)?);
        file.sync()?;
        let found = read(&*file)?;
        let is_taken =
            |kept: &Path| names.iter().any(|name| kept.file_name().is_some_and(|kept| kept == name.as_str()));
        let is_kept =
            |kept: &Path| disk.open_to_read(kept).and_then(|kept| read(&*kept)).is_ok_and(|kept| kept == found);
        let kept = (0..).map(name).find(|kept| !is_taken(kept) || is_kept(kept)).unwrap_or_else(|| name(0));
        keep_aside(disk, path, &kept)?;
        disk.sync_folder(folder)?;
        Ok(kept)
    };
    keeping().map_err(|error| Error::file(UNCHANGED, path, error))
}

/// How it is said that a segment could not be written again.
const UNCHANGED: &str = "cannot copy, so nothing is changed,";

/// Puts an empty segment in the place of one that a crash has left without a header, so that its number stays taken.
fn set_aside(disk: &dyn Disk, path: &Path, number: u64, header: Vec<u8>) -> Result<Segment> {
    let copy = keep_copy(disk, path, "torn")?;
    tracing::warn!(segment = number, "a segment without a header is set aside: {}", copy.display());
    let length = header.len() as u64;
    let bytes = [header, footer(&[])].concat();
    replace(disk, path, &bytes).map_err(|error| Error::file(UNCHANGED, path, error))?;
    Ok(Segment { header: length, entries: Vec::new(), bytes: bytes.len() as u64, sealed: true })
}

pub(super) fn check_spool(path: &Path, header: &Header, spool: &SpoolId, number: u64) -> Result<()> {
    if header.spool == *spool && header.segment == number {
        return Ok(());
    }
    Err(Error::content(format!("{} belongs to another spool", path.display())))
}

/// Brings a segment into order: it gets the footer that it lacks, and what a crash has left half-written is cut off. Gives
/// how many records of it are newly found damaged, too.
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
                // It may be in the system's memory alone, where its process was killed; the next segment says that it is there.
                file.sync().map_err(failed)?;
            }
            return Ok((Segment { header, entries, bytes: length, sealed: true }, 0));
        }
        index => index,
    };
    let mut bytes = read(&*file).map_err(failed)?;
    let scanned = || {
        let records = bytes.get(usize::try_from(header).unwrap_or(usize::MAX)..).unwrap_or_default();
        let SegmentScan { mut entries, rest, .. } = scan(records, HeadSeed::of(spool, number), 0, last);
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

/// What is kept of a segment as it was found.
#[derive(Debug, Clone, Copy)]
enum Kept<'a> {
    Nothing,
    /// Its end was torn, and nothing else is wrong.
    OfTorn(&'a Path),
    OfDamaged,
}

/// Puts a segment in the place of what was found. A disk that is full has room for a footer alone, behind the records that are whole.
fn write_again(disk: &dyn Disk, path: &Path, bytes: &[u8], footer: &[u8], copy: Kept<'_>) -> io::Result<()> {
    match (replace(disk, path, bytes), copy) {
        (Err(error), Kept::Nothing | Kept::OfTorn(_)) if is_full(&error) => {
            if let Kept::OfTorn(kept) = copy {
                // It may be the same file, and what nobody was told of must not cost the start.
                disk.remove(kept)?;
            }
            let file = disk.open(path)?;
            let length = (bytes.len() - footer.len()) as u64;
            file.truncate(length)?;
            let written = file.append(&mut [IoSlice::new(footer)]).and_then(|()| file.sync());
            if written.is_err() {
                // Half a footer is a torn tail to the next start, which would want room for a copy.
                let _ = file.truncate(length).and_then(|()| file.sync());
            }
            written
        }
        (written, Kept::Nothing | Kept::OfTorn(_) | Kept::OfDamaged) => written,
    }
}

/// What was found of a segment that is not in order.
struct Found<'a> {
    number: u64,
    is_headless: bool,
    entries: &'a [Entry],
    rest: Rest,
    /// Bytes behind the last record.
    torn: u64,
}

impl Found<'_> {
    /// Says what is wrong, once the file has a name that stays; gives how many records are newly found damaged, and that name.
    fn tell(&self, disk: &dyn Disk, path: &Path) -> Result<(u64, Option<PathBuf>)> {
        let Self { number, is_headless, entries, rest, torn } = *self;
        // What is lost by its footer was told when that was written.
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

/// Which rows are lost, as `2 to 4, 9 to 9`.
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

    #[test]
    fn lost_rows_are_named() {
        let entry = |rows, lost| Entry { bytes: 8, rows, lost };
        let entries = [entry(2, false), entry(3, true), entry(0, true), entry(4, false), entry(1, true)];
        assert_eq!(lost_rows(&entries), "2 to 4, 9 to 9");
    }
}
