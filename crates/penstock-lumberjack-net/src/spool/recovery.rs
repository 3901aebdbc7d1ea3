//! What is left of a segment after a crash, or after damage.
//!
//! A crash leaves the end of what was being written torn: nobody was told that it is safe, and it is cut off. Everything
//! else that is not what was written is damage. It loses the records that it hit, and no other: the next whole record is
//! looked for by its head, its first row tells how many rows are lost, and every record keeps its bytes and its rows. No
//! file is cut before a copy of it is durable. Only the last segment may be torn: the others had their footers when the
//! next one was begun.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

use penstock_io::DriverError as _;

use super::earlier::convert;
use super::folder::{path_of, replace, segment_name, sync_folder};
use super::format::{
    Encoder, Entry, FOOTER_TAIL, HeadSeed, Header, MAX_HEADER, RECORD_HEAD, SpoolId, begins_as_footer, footer,
    footer_length, mend_head, read_first_header, read_footer, read_head, read_header, verify,
};
use super::index::Segment;
use crate::{Error, Result};

/// Bytes that are searched at a time: few at first, as the next record is mostly near.
const WINDOW: std::ops::RangeInclusive<u64> = (4 << 10)..=(1 << 20);
/// Records begin at multiples of this.
const STEP: usize = 8;

pub(super) fn read_range(path: &Path, range: Range<u64>) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    read_from(&mut file, range)
}

pub(super) fn read_from(file: &mut File, range: Range<u64>) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(range.start))?;
    let wanted = range.end.saturating_sub(range.start);
    let mut bytes = Vec::new();
    file.take(wanted).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == wanted { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// What is known of a segment, from a byte on.
#[derive(Debug)]
pub(super) struct Scanned {
    pub(super) entries: Vec<Entry>,
    /// The byte behind the last record, lost ones among them.
    pub(super) end: u64,
    pub(super) rest: Rest,
}

/// What is behind the last record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    Nothing,
    /// The footer, whole.
    Footer,
    /// Something that nobody was told is safe: a record or a footer that is half-written.
    Torn,
    /// A footer that is not what was written.
    DamagedFooter,
    /// A record that is not what was written, and no crash explains it.
    Damaged(Entry),
}

impl Scanned {
    fn lost(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.lost)
    }
}

/// Looks through the records of a segment from `at` on, each with its hash, where the first has the row `row`. `last`: it is
/// the last segment, so its end may be torn.
pub(super) fn scan(
    file: &mut File,
    seed: HeadSeed,
    length: u64,
    (at, row): (u64, u64),
    last: bool,
) -> io::Result<Scanned> {
    let (mut entries, mut at, mut row) = (Vec::new(), at, row);
    let rest = loop {
        if at >= length {
            break Rest::Nothing;
        }
        let head = read_from(file, at..length.min(at + RECORD_HEAD as u64))?;
        // A head in which one bit has changed tells how many rows are lost.
        let known = read_head(seed, &head).or_else(|| mend_head(seed, &head)).filter(|(_, first)| *first == row);
        if let Some((entry, _)) = known {
            let end = at + u64::from(entry.bytes);
            let whole = if end <= length { Some(read_from(file, at..end)?) } else { None };
            let verified = whole.as_deref().is_some_and(verify);
            if !verified && next_head(file, seed, length, at + STEP as u64, row)?.is_none() {
                // Nothing follows it that was written later.
                break match whole {
                    Some(bytes) if !last || !is_torn(&bytes) => Rest::Damaged(to_the_end(length - at, entry.rows)),
                    None if !last => Rest::Damaged(to_the_end(length - at, entry.rows)),
                    Some(_) | None => Rest::Torn,
                };
            }
            if verified || end <= length {
                entries.push(Entry { lost: !verified, ..entry });
                (at, row) = (end, row + u64::from(entry.rows));
                continue;
            }
        }
        let Some((next, first)) = next_head(file, seed, length, at + STEP as u64, row)? else {
            break headless_rest(&read_from(file, at..length)?, &entries, last);
        };
        let rows = u32::try_from(first.saturating_sub(row)).unwrap_or(u32::MAX);
        entries.push(Entry { bytes: u32::try_from(next - at).unwrap_or(u32::MAX), rows, lost: true });
        (at, row) = (next, first);
    };
    Ok(Scanned { entries, end: at, rest })
}

/// A lost record that takes all that is left of a segment: whatever is behind it, the footer comes behind that.
fn to_the_end(bytes: u64, rows: u32) -> Entry {
    Entry { bytes: u32::try_from(bytes).unwrap_or(u32::MAX), rows, lost: true }
}

/// The next head that is what was written, with its first row. Linear: a head is known by its own hash.
fn next_head(file: &mut File, seed: HeadSeed, length: u64, from: u64, row: u64) -> io::Result<Option<(u64, u64)>> {
    let (mut at, mut window) = (from, *WINDOW.start());
    while at + RECORD_HEAD as u64 <= length {
        let bytes = read_from(file, at..length.min(at + window))?;
        let places = (0..bytes.len().saturating_sub(RECORD_HEAD - 1)).step_by(STEP);
        let mut heads = places.filter_map(|place| {
            let (_, first) = read_head(seed, bytes.get(place..)?)?;
            (first >= row).then_some((at + place as u64, first))
        });
        if let Some(found) = heads.next() {
            return Ok(Some(found));
        }
        at += window - RECORD_HEAD as u64;
        window = (2 * window).min(*WINDOW.end());
    }
    Ok(None)
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
    // Nobody knows how many rows it had; some.
    Rest::Damaged(to_the_end(bytes.len() as u64, 1))
}

/// Whether the end of a record has never reached the disk, which writes sectors: zeros are where its hash should be.
fn is_torn(bytes: &[u8]) -> bool {
    bytes.ends_with(&[0; STEP])
}

/// The entries of a segment by its footer, if it has one.
pub(super) fn by_footer(file: &mut File, length: u64, header: u64) -> io::Result<Option<Vec<Entry>>> {
    let Some(tail) = length.checked_sub(FOOTER_TAIL).filter(|tail| *tail >= header) else { return Ok(None) };
    let Some(size) = footer_length(&read_from(file, tail..length)?) else { return Ok(None) };
    let Some(start) = length.checked_sub(size).filter(|start| *start >= header) else { return Ok(None) };
    let Some(entries) = read_footer(&read_from(file, start..length)?) else { return Ok(None) };
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
pub(super) fn headless(file: &mut File, path: &Path, spool: &SpoolId, number: u64, last: bool) -> Result<Headless> {
    let failed = |error: io::Error| Error::file("cannot read", path, error);
    let length = file.metadata().map_err(failed)?.len();
    let header = Encoder::new()?.header(spool, number);
    let behind = header.len() as u64;
    let head = read_from(file, 0..length.min(behind)).map_err(failed)?;
    let written = head.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    let begins = head.get(..written).is_some_and(|written| header.starts_with(written));
    if last && begins && only_zeros(file).map_err(failed)? {
        return Ok(Headless::Torn { header });
    }
    let indexed = by_footer(file, length, behind).map_err(failed)?;
    let found = next_head(file, HeadSeed::of(spool, number), length, behind, 0).map_err(failed)?;
    if found.is_some() || indexed.is_some_and(|entries| entries.is_empty()) {
        return Ok(Headless::Damaged { header });
    }
    let whole = read_from(file, 0..length.min(MAX_HEADER)).map_err(failed)?;
    let message = if read_first_header(&whole).is_some() {
        "it was written by an earlier build (format 1): a receiver of this one writes it again when it opens the spool"
    } else {
        "the segment's header is damaged, and no record of this spool was found behind it: put a copy of the file back"
    };
    Ok(Headless::Unknown(Error::io(path.display().to_string(), message)))
}

/// Whether only zeros follow in a file.
fn only_zeros(file: &mut File) -> io::Result<bool> {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let count = file.read(&mut bytes)?;
        if count == 0 {
            return Ok(true);
        }
        if bytes.iter().take(count).any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
}

/// Copies a segment's file, durably, under a name that no earlier copy has.
pub(super) fn keep_copy(path: &Path, suffix: &str) -> Result<PathBuf> {
    let name =
        |number: u32| path.with_extension(if number == 0 { suffix.to_owned() } else { format!("{suffix}.{number}") });
    let failed = |error: io::Error| Error::file("cannot copy, so nothing is changed,", path, error);
    let copying = || -> io::Result<PathBuf> {
        let folder = path.parent().unwrap_or_else(|| Path::new("."));
        let mut copy = tempfile::NamedTempFile::new_in(folder)?;
        io::copy(&mut File::open(path)?, &mut copy)?;
        copy.as_file().sync_all()?;
        let mut number = 0;
        loop {
            match copy.persist_noclobber(name(number)) {
                Ok(_) => break,
                Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => copy = error.file,
                Err(error) => return Err(error.error),
            }
            number += 1;
        }
        sync_folder(folder)?;
        Ok(name(number))
    };
    copying().map_err(failed)
}

/// Puts an empty segment in the place of one that a crash has left without a header, so that its number stays taken.
fn set_aside(folder: &Path, number: u64, header: Vec<u8>) -> Result<Segment> {
    let copy = keep_copy(&path_of(folder, number), "torn")?;
    tracing::warn!(segment = number, "a segment without a header is set aside: {}", copy.display());
    let length = header.len() as u64;
    let bytes = [header, footer(&[])].concat();
    replace(folder, &segment_name(number), &bytes)?;
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
pub(super) fn recover(folder: &Path, spool: &SpoolId, number: u64, last: bool) -> Result<(Segment, u64)> {
    let path = path_of(folder, number);
    let failed = |error: io::Error| Error::file("cannot recover", &path, error);
    let converted = convert(folder, &path, spool, number)?;
    let mut file = OpenOptions::new().read(true).write(true).open(&path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let head = read_from(&mut file, 0..length.min(MAX_HEADER)).map_err(failed)?;
    let (header, mended) = match read_header(&head) {
        Some(header) => {
            check_spool(&path, &header, spool, number)?;
            (header.length, converted)
        }
        None => match headless(&mut file, &path, spool, number, last)? {
            Headless::Torn { header } => return Ok((set_aside(folder, number, header)?, 0)),
            Headless::Unknown(error) => return Err(error),
            Headless::Damaged { header } => {
                mend_header(&mut file, &path, number, &header)?;
                (header.len() as u64, 1)
            }
        },
    };
    if let Some(entries) = by_footer(&mut file, length, header).map_err(failed)? {
        return Ok((Segment { header, entries, bytes: length, sealed: true }, mended));
    }
    let mut scanned = scan(&mut file, HeadSeed::of(spool, number), length, (header, 0), last).map_err(failed)?;
    if let Rest::Damaged(entry) = scanned.rest {
        scanned.entries.push(entry);
        scanned.end = length;
    }
    keep_what_was(&path, number, length, &scanned)?;
    let foot = footer(&scanned.entries);
    file.set_len(scanned.end).map_err(failed)?;
    file.seek(SeekFrom::Start(scanned.end)).map_err(failed)?;
    file.write_all(&foot).and_then(|()| file.sync_all()).map_err(failed)?;
    let (damaged, bytes) = (scanned.lost().count() as u64, scanned.end + foot.len() as u64);
    let damaged = mended + damaged + u64::from(scanned.rest == Rest::DamagedFooter);
    Ok((Segment { header, entries: scanned.entries, bytes, sealed: true }, damaged))
}

/// Writes a segment's header again, where it has changed.
fn mend_header(file: &mut File, path: &Path, number: u64, header: &[u8]) -> Result<()> {
    let copy = keep_copy(path, "damaged")?;
    let failed = |error: io::Error| Error::file("cannot recover", path, error);
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    file.write_all(header).and_then(|()| file.sync_all()).map_err(failed)?;
    tracing::error!(segment = number, copy = %copy.display(), "a segment's header was damaged, and is written again");
    Ok(())
}

/// Copies a file before it is changed, and says what is wrong with it.
fn keep_what_was(path: &Path, number: u64, length: u64, scanned: &Scanned) -> Result<()> {
    let (lost, end) = (scanned.lost().count(), scanned.end);
    if lost > 0 || scanned.rest == Rest::DamagedFooter {
        let copy = keep_copy(path, "damaged")?;
        let bytes: u64 = scanned.lost().map(|entry| u64::from(entry.bytes)).sum();
        tracing::error!(
            segment = number, places = lost, rows = lost_rows(&scanned.entries), bytes, copy = %copy.display(),
            "a segment of the spool is damaged: the rows in it are lost, all others can be read"
        );
    } else if end < length {
        let copy = keep_copy(path, "torn")?;
        let bytes = length - end;
        tracing::warn!(segment = number, bytes, copy = %copy.display(), "the torn end of a segment, never acknowledged, is cut off");
    }
    Ok(())
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
