//! What is left of a segment after a crash, or after damage.
//!
//! A crash leaves the end of what was being written torn: nobody was told that it is safe, and it is cut off. Everything
//! else that is not what was written is damage. It loses the records that it hit, and no other: the next whole record is
//! looked for by its head, its first row tells how many rows are lost, and every record keeps its octets and its rows. No
//! file is cut or added to before a copy of it is durable, unless what is cut off is zeros, which nobody wrote.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::folder::{path_of, replace, segment_name, sync_folder};
use super::format::{
    Encoder, Entry, FOOTER_TAIL, HeadSeed, Header, MAX_HEADER, RECORD_HEAD, SpoolId, footer, footer_length,
    read_footer, read_head, read_header, verify,
};
use super::index::Segment;
use crate::{Error, Result};

/// Octets that are searched at a time.
const WINDOW: u64 = 1 << 20;
/// Records begin at multiples of this.
const STEP: usize = 8;

pub(super) fn read_range(path: &Path, range: Range<u64>) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    read_from(&mut file, range)
}

pub(super) fn read_from(file: &mut File, range: Range<u64>) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(range.start))?;
    let wanted = range.end.saturating_sub(range.start);
    let mut octets = Vec::new();
    file.take(wanted).read_to_end(&mut octets)?;
    if octets.len() as u64 == wanted { Ok(octets) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// What is known of a segment, from an octet on.
#[derive(Debug)]
pub(super) struct Scanned {
    pub(super) entries: Vec<Entry>,
    /// The octet behind the last record, lost ones among them.
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

/// Looks through the records of a segment from `at` on, each with its hash, where the first has the row `row`.
pub(super) fn scan(file: &mut File, seed: HeadSeed, length: u64, at: u64, row: u64) -> io::Result<Scanned> {
    let (mut entries, mut at, mut row) = (Vec::new(), at, row);
    let rest = loop {
        if at >= length {
            break Rest::Nothing;
        }
        let head = read_from(file, at..length.min(at + RECORD_HEAD as u64))?;
        let known = read_head(seed, &head).filter(|(_, first)| *first == row);
        if let Some((entry, _)) = known {
            let end = at + u64::from(entry.octets);
            let whole = if end <= length { Some(read_from(file, at..end)?) } else { None };
            let verified = whole.as_deref().is_some_and(verify);
            if !verified && next_head(file, seed, length, at + STEP as u64, row)?.is_none() {
                // Nothing follows it that was written later.
                break match whole {
                    Some(octets) if !is_torn(&octets) => Rest::Damaged(Entry { lost: true, ..entry }),
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
            break headless_rest(&read_from(file, at..length)?, &entries);
        };
        let rows = u32::try_from(first.saturating_sub(row)).unwrap_or(u32::MAX);
        entries.push(Entry { octets: u32::try_from(next - at).unwrap_or(u32::MAX), rows, lost: true });
        (at, row) = (next, first);
    };
    Ok(Scanned { entries, end: at, rest })
}

/// The next head that is what was written, with its first row. Linear: a head is known by its own hash.
fn next_head(file: &mut File, seed: HeadSeed, length: u64, from: u64, row: u64) -> io::Result<Option<(u64, u64)>> {
    let mut at = from;
    while at + RECORD_HEAD as u64 <= length {
        let octets = read_from(file, at..length.min(at + WINDOW))?;
        let places = (0..octets.len().saturating_sub(RECORD_HEAD - 1)).step_by(STEP);
        let mut heads = places.filter_map(|place| {
            let (_, first) = read_head(seed, octets.get(place..)?)?;
            (first >= row).then_some((at + place as u64, first))
        });
        if let Some(found) = heads.next() {
            return Ok(Some(found));
        }
        at += WINDOW - RECORD_HEAD as u64;
    }
    Ok(None)
}

/// What the end of a segment is that begins with no head of a record.
fn headless_rest(octets: &[u8], entries: &[Entry]) -> Rest {
    let expected = footer(entries);
    if read_footer(octets).is_some() {
        return Rest::Footer;
    }
    let written = octets.iter().rposition(|octet| *octet != 0).map_or(0, |at| at + 1);
    let written = octets.get(..written).unwrap_or_default();
    // A crash leaves a part of a head or of a footer, and zeros.
    if expected.starts_with(written) || written.len() < RECORD_HEAD {
        return Rest::Torn;
    }
    let same = octets.iter().zip(&expected).filter(|(a, b)| a == b).count();
    if octets.len() == expected.len() && 2 * same >= octets.len() {
        return Rest::DamagedFooter;
    }
    if is_torn(octets) {
        return Rest::Torn;
    }
    // Nobody knows how many rows it had; some.
    Rest::Damaged(Entry { octets: u32::try_from(octets.len()).unwrap_or(u32::MAX), rows: 1, lost: true })
}

/// Whether the end of a record has never reached the disk, which writes sectors: zeros are where its hash should be.
fn is_torn(octets: &[u8]) -> bool {
    octets.ends_with(&[0; STEP])
}

/// The entries of a segment by its footer, if it has one.
pub(super) fn by_footer(file: &mut File, length: u64, header: u64) -> io::Result<Option<Vec<Entry>>> {
    let Some(tail) = length.checked_sub(FOOTER_TAIL).filter(|tail| *tail >= header) else { return Ok(None) };
    let Some(size) = footer_length(&read_from(file, tail..length)?) else { return Ok(None) };
    let Some(start) = length.checked_sub(size).filter(|start| *start >= header) else { return Ok(None) };
    let Some(entries) = read_footer(&read_from(file, start..length)?) else { return Ok(None) };
    let records: u64 = entries.iter().map(|entry| u64::from(entry.octets)).sum();
    Ok((header + records == start).then_some(entries))
}

/// What a segment without a header is.
pub(super) enum Headless {
    /// Its first group was never durable, so nothing of it was acknowledged. Its number is taken all the same.
    Torn { header: Vec<u8> },
    /// Something has changed it, and what it had is not known.
    Damaged(Error),
}

/// Looks at a segment whose header cannot be read. A crash leaves a part of the header, zeros, or both; and only of the
/// last segment.
pub(super) fn headless(file: &mut File, path: &Path, spool: &SpoolId, number: u64, last: bool) -> Result<Headless> {
    let failed = |error: io::Error| Error::file("cannot read", path, &error);
    let length = file.metadata().map_err(failed)?.len();
    let header = Encoder::new()?.header(spool, number);
    let head = read_from(file, 0..length.min(header.len() as u64)).map_err(failed)?;
    let written = head.iter().rposition(|octet| *octet != 0).map_or(0, |at| at + 1);
    let begins = head.get(..written).is_some_and(|written| header.starts_with(written));
    if last && begins && only_zeros(file).map_err(failed)? {
        return Ok(Headless::Torn { header });
    }
    let message = "the segment's header is damaged: put a copy of the file back, or move it away and lose its events";
    Ok(Headless::Damaged(Error::Io { context: path.display().to_string(), message: message.into() }))
}

/// Whether only zeros follow in a file.
fn only_zeros(file: &mut File) -> io::Result<bool> {
    let mut octets = vec![0; 64 << 10];
    loop {
        let count = file.read(&mut octets)?;
        if count == 0 {
            return Ok(true);
        }
        if octets.iter().take(count).any(|octet| *octet != 0) {
            return Ok(false);
        }
    }
}

/// Copies a segment's file, durably, under a name that no earlier copy has.
fn keep_copy(path: &Path, suffix: &str) -> Result<PathBuf> {
    let name =
        |number: u32| path.with_extension(if number == 0 { suffix.to_owned() } else { format!("{suffix}.{number}") });
    let failed = |error: io::Error| Error::file("cannot copy, so nothing is changed,", path, &error);
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
    let octets = [header, footer(&[])].concat();
    replace(folder, &segment_name(number), &octets)?;
    Ok(Segment { header: length, entries: Vec::new(), octets: octets.len() as u64, sealed: true })
}

pub(super) fn check_spool(path: &Path, header: &Header, spool: &SpoolId, number: u64) -> Result<()> {
    if header.spool == *spool && header.segment == number {
        return Ok(());
    }
    Err(Error::Misuse(format!("{} belongs to another spool", path.display())))
}

/// Brings a segment into order: it gets the footer that it lacks, and what a crash has left half-written is cut off. Gives
/// how many records of it are newly found damaged, too.
pub(super) fn recover(folder: &Path, spool: &SpoolId, number: u64, last: bool) -> Result<(Segment, u64)> {
    let path = path_of(folder, number);
    let failed = |error: io::Error| Error::file("cannot recover", &path, &error);
    let mut file = OpenOptions::new().read(true).write(true).open(&path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let head = read_from(&mut file, 0..length.min(MAX_HEADER)).map_err(failed)?;
    let Some(header) = read_header(&head) else {
        return match headless(&mut file, &path, spool, number, last)? {
            Headless::Torn { header } => Ok((set_aside(folder, number, header)?, 0)),
            Headless::Damaged(error) => Err(error),
        };
    };
    check_spool(&path, &header, spool, number)?;
    let header = header.length;
    if let Some(entries) = by_footer(&mut file, length, header).map_err(failed)? {
        return Ok((Segment { header, entries, octets: length, sealed: true }, 0));
    }
    let mut scanned = scan(&mut file, HeadSeed::of(spool, number), length, header, 0).map_err(failed)?;
    if let Rest::Damaged(entry) = scanned.rest {
        scanned.entries.push(entry);
        scanned.end = length;
    }
    keep_what_was(&mut file, &path, number, length, &scanned)?;
    let foot = footer(&scanned.entries);
    file.set_len(scanned.end).map_err(failed)?;
    file.seek(SeekFrom::Start(scanned.end)).map_err(failed)?;
    file.write_all(&foot).and_then(|()| file.sync_all()).map_err(failed)?;
    let (damaged, octets) = (scanned.lost().count() as u64, scanned.end + foot.len() as u64);
    let damaged = damaged + u64::from(scanned.rest == Rest::DamagedFooter);
    Ok((Segment { header, entries: scanned.entries, octets, sealed: true }, damaged))
}

/// Copies a file before it is changed, and says what is wrong with it.
fn keep_what_was(file: &mut File, path: &Path, number: u64, length: u64, scanned: &Scanned) -> Result<()> {
    let (lost, end) = (scanned.lost().count(), scanned.end);
    if lost > 0 || scanned.rest == Rest::DamagedFooter {
        let copy = keep_copy(path, "damaged")?;
        let rows: u64 = scanned.lost().map(|entry| u64::from(entry.rows)).sum();
        let octets: u64 = scanned.lost().map(|entry| u64::from(entry.octets)).sum();
        tracing::error!(
            segment = number, places = lost, rows, octets, copy = %copy.display(),
            "a segment of the spool is damaged: the rows in it are lost, all others can be read"
        );
        return Ok(());
    }
    let failed = |error: io::Error| Error::file("cannot read", path, &error);
    file.seek(SeekFrom::Start(end)).map_err(failed)?;
    if end < length && !only_zeros(file).map_err(failed)? {
        let copy = keep_copy(path, "torn")?;
        let octets = length - end;
        tracing::warn!(segment = number, octets, copy = %copy.display(), "the torn end of a segment, never acknowledged, is cut off");
    }
    Ok(())
}
