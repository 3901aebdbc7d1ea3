//! The start of a log: it reads all segments of the folder and repairs the end of the last one.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{is_full, read, read_start};
use crate::frame::{Frame, Framing, Head, Length};
use crate::header::{Header, is_begun};
use crate::scan::{End, Entry, Hole, Item, Scan, foreign};
use crate::segment::{DAMAGED, Format, Segment};
use crate::{Disk, DiskFile, Error, HEADER, Mismatch, Result};

/// The number of digits of a segment's number in its name.
const DIGITS: usize = 20;

/// An engine that receives the contents of a log.
pub trait Replay {
    /// Take a segment, before its records.
    fn segment(&mut self, _number: u64, _file: &Arc<dyn DiskFile>) {}

    /// Take a record; records come in the order in which they were written. Return `None` if this
    /// version cannot read the record: then opening the log fails.
    fn record(&mut self, entry: &Entry<'_>) -> Option<()>;

    /// Take a damaged place, in the same order.
    fn hole(&mut self, hole: &Hole<'_>);

    /// Return whether segments of another kind belong to the log too, because an earlier version wrote
    /// them in this framing.
    fn is_kind(&self, _kind: [u8; 8]) -> bool {
        false
    }

    /// Return whether a crash of an earlier version may have left these bytes of a segment's header.
    fn is_begun(&self, _start: &[u8]) -> bool {
        false
    }

    /// Return how to read a segment that begins with these bytes if an earlier version wrote it.
    fn earlier(&self, _number: u64, _start: &[u8]) -> Option<EarlierSegment> {
        None
    }

    /// Return how to read a segment whose header is unreadable if an earlier version may have
    /// written it. Called only if no segment of this version has a lower number.
    fn headless(&self, _number: u64, _segment: &[u8]) -> Option<EarlierSegment> {
        None
    }
}

/// A segment of an earlier format.
pub struct EarlierSegment {
    /// The framing of its records.
    pub framing: Box<dyn Framing>,
    /// Its number, from its header, or from its name if the header is damaged.
    pub number: u64,
    /// The length of the segment before it, if the header is whole; 0 if the header does not contain it.
    pub before: Option<u64>,
}

/// The contents of a folder.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) segments: BTreeMap<u64, Segment>,
    /// The log's random number, if there is a header.
    pub(crate) log: Option<u64>,
    /// The highest number of a segment that was given up.
    pub(crate) given_up: u64,
    pub(crate) damaged: u64,
    /// Whether the last segment has an earlier format.
    pub(crate) is_earlier: bool,
}

/// A segment whose first bytes were read.
struct Part {
    number: u64,
    path: PathBuf,
    start: Start,
    length: u64,
    /// Whether it has no record: its header is whole, or a crash cut it short.
    is_empty: bool,
}

enum Start {
    Whole(Header),
    /// A header with one wrong bit.
    Repaired(Header),
    Earlier(EarlierSegment),
    Unknown,
}

impl Start {
    fn header(&self) -> Option<&Header> {
        match self {
            Self::Whole(header) | Self::Repaired(header) => Some(header),
            Self::Earlier(_) | Self::Unknown => None,
        }
    }

    fn before(&self) -> Option<u64> {
        let before = match self {
            Self::Whole(header) | Self::Repaired(header) => Some(header.before),
            Self::Earlier(earlier) => earlier.before,
            Self::Unknown => None,
        };
        before.filter(|before| *before > 0)
    }

    const fn is_damaged(&self) -> bool {
        match self {
            Self::Whole(_) => false,
            Self::Earlier(earlier) => earlier.before.is_none(),
            Self::Repaired(_) | Self::Unknown => true,
        }
    }
}

/// Replay the contents of a folder to an engine without changing any file: another process may own
/// the folder. Return the number of damaged places.
///
/// # Errors
///
/// [`NotFound`](io::ErrorKind::NotFound) if the other process has removed a segment meanwhile: try
/// again, with a fresh engine.
pub fn look(disk: &dyn Disk, folder: &Path, format: &Format, replay: &mut dyn Replay) -> Result<u64> {
    read_all(disk, folder, format, replay, Access::Look).map(|contents| contents.damaged)
}

/// Read all segments of a folder, oldest first, and repair the end of the last one.
pub(crate) fn recover(disk: &dyn Disk, folder: &Path, format: &Format, replay: &mut dyn Replay) -> Result<Contents> {
    read_all(disk, folder, format, replay, Access::Own)
}

/// Whether this process owns the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Own,
    Look,
}

fn read_all(
    disk: &dyn Disk,
    folder: &Path,
    format: &Format,
    replay: &mut dyn Replay,
    access: Access,
) -> Result<Contents> {
    let mut recovery = Recovery { disk, format, replay, access, contents: Contents::default(), first: None };
    let names = disk.list(folder).map_err(|error| Error::file("cannot list", folder, error))?;
    let files = numbers(folder, &names, format.suffix);
    let given_up = numbers(folder, &names, DAMAGED);
    let mut parts = files.into_iter().map(|(number, path)| recovery.part(number, path)).collect::<Result<Vec<_>>>()?;
    let just_made = take_just_made(&mut parts);
    recovery.contents.log = recovery.log(&parts)?;
    recovery.first = parts.iter().find(|part| part.start.header().is_some()).map(|part| part.number);
    recovery.contents.given_up = given_up.last_key_value().map_or(0, |(number, _)| *number);
    let end = |part: &Part| Some((part.number.checked_sub(1)?, part.start.before()?));
    let ends: BTreeMap<u64, u64> = parts.iter().chain(&just_made).filter_map(end).collect();
    let newest = parts.last().map_or(0, |part| part.number).max(recovery.contents.given_up);
    let mut given_up = given_up.into_iter().peekable();
    for part in parts {
        while let Some((number, path)) = given_up.next_if(|(number, _)| *number < part.number) {
            recovery.give_up(number, &path)?;
        }
        let end = ends.get(&part.number).copied();
        let is_last = part.number == newest;
        let mut segment = recovery.load(part, end)?;
        if is_last {
            recovery.secure(&mut segment)?;
            recovery.contents.is_earlier = segment.earlier;
        }
        recovery.replay(segment, !is_last)?;
    }
    given_up.try_for_each(|(number, path)| recovery.give_up(number, &path))?;
    if let Some(Part { path, .. }) = just_made
        && access == Access::Own
    {
        // Only now: its header says where the segment before it ends, and that one has been cut
        // there by now.
        disk.remove(&path).map_err(|error| Error::file("cannot remove", &path, error))?;
    }
    Ok(recovery.contents)
}

/// Return the files whose names are numbers with this suffix.
fn numbers(folder: &Path, names: &[String], suffix: &str) -> BTreeMap<u64, PathBuf> {
    let number = |name: &String| {
        let digits = name.strip_suffix(suffix).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
        // A longer name is not that of a segment, even if its value is small: it may belong to an
        // engine's own files.
        let digits = Some(digits).filter(|digits| digits.len() <= DIGITS)?;
        Some((digits.parse().ok()?, folder.join(name)))
    };
    names.iter().filter_map(number).collect()
}

/// Take the last segment out if it has no record. It may never have been durable: its header may be
/// only in the page cache, or only half on the disk. A longer file had a durable header.
fn take_just_made(parts: &mut Vec<Part>) -> Option<Part> {
    let (last, others) = parts.split_last()?;
    let previous = others.last().filter(|previous| last.number.checked_sub(1) == Some(previous.number));
    // Every start must report the bytes that are missing at the end of the previous segment.
    let is_cut = last.start.before().zip(previous).is_some_and(|(end, previous)| previous.length < end);
    parts.pop_if(|last| last.is_empty && !is_cut)
}

/// A segment whose bytes were read.
struct LoadedSegment {
    number: u64,
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    bytes: Vec<u8>,
    frame: Option<Frame>,
    framing: Box<dyn Framing>,
    /// Whether its header is damaged.
    is_damaged: bool,
    /// The bytes that are missing at its end.
    missing: Option<(u64, u64)>,
    /// Whether its end is known.
    is_ended: bool,
    earlier: bool,
}

impl LoadedSegment {
    fn scan(&self, is_ended: bool) -> Scan<'_> {
        let Self { number, bytes, framing, earlier, .. } = self;
        let is_ended = is_ended || self.is_ended;
        Scan { framing: &**framing, number: *number, bytes, is_ended, earlier: *earlier, synced: OnceCell::new() }
    }
}

struct Recovery<'a> {
    disk: &'a dyn Disk,
    format: &'a Format,
    replay: &'a mut dyn Replay,
    access: Access,
    contents: Contents,
    /// The number of the first segment with a header of this version.
    first: Option<u64>,
}

impl Recovery<'_> {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        match self.access {
            Access::Own => self.disk.open(path),
            Access::Look => self.disk.open_to_read(path),
        }
    }

    /// Return whether a header has a kind of this engine.
    fn is_ours(&self, header: &Header) -> bool {
        header.kind == self.format.kind || self.replay.is_kind(header.kind)
    }

    fn part(&self, number: u64, path: PathBuf) -> Result<Part> {
        let failed = |error| Error::file("cannot read", &path, error);
        let file = self.open(&path).map_err(failed)?;
        let bytes = read_start(&*file, HEADER).map_err(failed)?;
        let length = file.length().map_err(failed)?;
        let other = |found: u64| Error::content(&path, Mismatch::Number { found });
        let start = match (Header::read(&bytes), self.replay.earlier(number, &bytes)) {
            (Some(header), _) if !self.is_ours(&header) => {
                return Err(Error::content(&path, Mismatch::Kind { what: self.format.what, found: header.kind }));
            }
            (Some(header), _) if header.number != number => return Err(other(header.number)),
            (Some(header), _) => Start::Whole(header),
            (None, Some(earlier)) if earlier.number != number => return Err(other(earlier.number)),
            (None, Some(earlier)) => Start::Earlier(earlier),
            (None, None) => {
                match Header::repair(&bytes).filter(|header| self.is_ours(header) && header.number == number) {
                    Some(header) => Start::Repaired(header),
                    None => Start::Unknown,
                }
            }
        };
        let is_header = match start {
            Start::Whole(_) => true,
            Start::Unknown => is_begun(&bytes) || self.replay.is_begun(&bytes),
            Start::Repaired(_) | Start::Earlier(_) => false,
        };
        let is_empty = is_header && length <= HEADER as u64;
        Ok(Part { number, path, start, length, is_empty })
    }

    /// Return the random number of the log that the segments belong to.
    fn log(&self, parts: &[Part]) -> Result<Option<u64>> {
        let mut log = None;
        for part in parts {
            let Some(header) = part.start.header() else { continue };
            if *log.get_or_insert(header.log) != header.log {
                return Err(Error::content(&part.path, Mismatch::Log));
            }
        }
        Ok(log)
    }

    /// Read a segment. `end_by_next` is its length according to the next header: bytes after that
    /// were never acknowledged.
    fn load(&self, part: Part, end_by_next: Option<u64>) -> Result<LoadedSegment> {
        let Part { number, path, start, .. } = part;
        let failed = |error| Error::file("cannot read", &path, error);
        let file = self.open(&path).map_err(failed)?;
        let mut bytes = read(&*file).map_err(failed)?;
        let length = bytes.len() as u64;
        if let Some(end) = end_by_next.filter(|end| *end < length) {
            // The bytes of a failed write must not come back when the next segment is removed.
            self.cut(&*file, end).map_err(|error| Error::file("cannot cut", &path, error))?;
            bytes.truncate(usize::try_from(end).unwrap_or(usize::MAX));
        }
        let missing = end_by_next.filter(|end| *end > length).map(|end| (length, end));
        let is_damaged = start.is_damaged();
        let frame = match start {
            Start::Earlier(earlier) => Err(earlier),
            Start::Whole(header) | Start::Repaired(header) => Ok(Frame::of(header.log, number)),
            Start::Unknown => match self.unknown(number, &path, &bytes) {
                Ok(frame) => Ok(frame),
                Err(error) => Err(self.headless(number, &bytes).ok_or(error)?),
            },
        };
        let earlier = frame.is_err();
        let (frame, mut framing): (_, Box<dyn Framing>) = match frame {
            Ok(frame) => (Some(frame), Box::new(frame)),
            Err(earlier) => (None, earlier.framing),
        };
        let by_framing = framing.end(&bytes);
        // If the next header says where the segment ends, all bytes before that were acknowledged:
        // a record that is cut is damaged.
        let cuts = |end: &usize| end_by_next.is_none() && *end < bytes.len();
        if let Some(end) = by_framing.filter(cuts) {
            self.cut_off(&path, end as u64, (bytes.len() - end) as u64);
            self.cut(&*file, end as u64).map_err(|error| Error::file("cannot cut", &path, error))?;
            bytes.truncate(end);
        }
        let is_ended = by_framing.is_some() || end_by_next.is_some();
        Ok(LoadedSegment { number, path, file, bytes, frame, framing, is_damaged, missing, is_ended, earlier })
    }

    /// Return how an earlier version reads a segment whose header is unreadable. A segment of this
    /// version, whose number is above that of the first one, is never read so.
    fn headless(&self, number: u64, bytes: &[u8]) -> Option<EarlierSegment> {
        self.first.is_none_or(|first| number < first).then(|| self.replay.headless(number, bytes)).flatten()
    }

    /// Repair the end of the last segment: cut off a torn tail, and make the rest durable, with a
    /// seal at its end.
    ///
    /// If only the process died, its last write may be only in the page cache; and if its last sync
    /// failed, a later sync does not report that. So the file is written again.
    fn secure(&mut self, last: &mut LoadedSegment) -> Result<()> {
        let mut holes: Vec<_> = last.is_damaged.then(|| (0, last.framing.header() as u64)).into_iter().collect();
        let found = last.scan(false).run(&mut |item| {
            holes.extend(if let Item::Hole(hole) = item { Some((hole.start, hole.end)) } else { None });
            Ok(())
        })?;
        let is_ours = self.access == Access::Own;
        if is_ours && !holes.is_empty() {
            // Kept before the file changes. `tell` reports a failure.
            let _ = self.keep(last, &holes).1;
        }
        let torn = last.bytes.len() as u64 - found.length;
        last.bytes.truncate(usize::try_from(found.length).unwrap_or(usize::MAX));
        if !is_ours {
            return Ok(());
        }
        if torn > 0 {
            self.cut_off(&last.path, found.length, torn);
        }
        if found.is_unsealed && self.write_again(last)? {
            return Ok(());
        }
        if torn > 0 { self.cut(&*last.file, found.length) } else { last.file.sync() }
            .map_err(|error| Error::file("cannot sync", &last.path, error))
    }

    /// Replace a segment by a copy. Return `false` if the disk is full.
    fn write_again(&self, last: &mut LoadedSegment) -> Result<bool> {
        let (length, failed) = (last.bytes.len(), |error| Error::file("cannot write again", &last.path, error));
        let seal = Head { length: Length::Seal, synced: length as u64, label: [0; 16] };
        // An earlier format has no seal.
        last.bytes.extend(last.frame.iter().flat_map(|frame| frame.encode(&seal)));
        match crate::replace(self.disk, &last.path, &last.bytes) {
            Err(error) if is_full(&error) => {
                last.bytes.truncate(length);
                tracing::warn!(file = %last.path.display(), %error, "the end of the log cannot be sealed");
                return Ok(false);
            }
            written => written.map_err(failed)?,
        }
        last.file = self.disk.open(&last.path).map_err(failed)?;
        Ok(true)
    }

    /// Replay a segment to the engine.
    fn replay(&mut self, segment: LoadedSegment, is_ended: bool) -> Result<()> {
        let LoadedSegment { number, path, file, is_damaged, missing, earlier, .. } = &segment;
        self.replay.segment(*number, file);
        let mut holes = Vec::new();
        let replay = &mut *self.replay;
        let mut each = |item: Item<'_>| {
            match item {
                Item::Entry(entry) => replay.record(&entry).ok_or_else(|| foreign(path, &entry))?,
                Item::Hole(hole) => {
                    holes.push((hole.start, hole.end));
                    replay.hole(&hole);
                }
            }
            Ok(())
        };
        let hole = |(start, end), loses| {
            Item::Hole(Hole { segment: *number, start, end, label: None, body: None, loses, earlier: *earlier })
        };
        if *is_damaged {
            each(hole((0, segment.framing.header() as u64), false))?;
        }
        let found = segment.scan(is_ended).run(&mut each)?;
        if let Some(missing) = *missing {
            each(hole(missing, true))?;
        }
        self.tell(&segment, &holes);
        let End { length, is_unsealed } = found;
        self.contents.segments.insert(*number, Segment { length, unsynced: 0, is_unsealed, frame: segment.frame });
        Ok(())
    }

    /// Find the framing of a segment whose header is unreadable, from its records.
    fn unknown(&self, number: u64, path: &Path, bytes: &[u8]) -> Result<Frame> {
        let records = bytes.get(HEADER..).unwrap_or_default();
        let heads = |frame: Frame, from: usize| {
            (from..records.len()).any(|at| records.get(at..).and_then(|rest| frame.head(rest)).is_some())
        };
        let known = self.contents.log.map(|log| Frame::of(log, number)).filter(|frame| heads(*frame, 0));
        // Any head yields some key: a second head, or the body, must confirm it. The first group
        // was written right after the header.
        let by_head = || {
            let frame = Frame::by_head(records)?;
            let is_first = frame.head(records).is_some_and(|head| head.synced == HEADER as u64);
            (is_first && (heads(frame, 1) || frame.begins_with_body(records))).then_some(frame)
        };
        known.or_else(by_head).ok_or_else(|| Error::content(path, Mismatch::Unknown { what: self.format.what, number }))
    }

    /// Report a segment that an operator has given up, as one hole.
    fn give_up(&mut self, number: u64, path: &Path) -> Result<()> {
        let length = self.open(path).and_then(|file| file.length());
        let end = length.map_err(|error| Error::file("cannot read", path, error))?;
        self.contents.damaged += 1;
        if self.access == Access::Own {
            tracing::error!(file = %path.display(), bytes = end, "a segment of {} was given up", self.format.what);
        }
        let (label, body, loses, earlier) = (None, None, true, false);
        self.replay.hole(&Hole { segment: number, start: 0, end, label, body, loses, earlier });
        Ok(())
    }

    /// Report a torn tail that is cut off.
    fn cut_off(&self, path: &Path, offset: u64, bytes: u64) {
        if self.access == Access::Own {
            let message = "a write that was not finished is cut off: nothing of it was acknowledged";
            tracing::warn!(file = %path.display(), offset, bytes, message);
        }
    }

    fn cut(&self, file: &dyn DiskFile, length: u64) -> io::Result<()> {
        match self.access {
            Access::Own => file.truncate(length).and_then(|()| file.sync()),
            Access::Look => Ok(()),
        }
    }

    /// Report the damaged places of a segment, and keep its file for examination.
    fn tell(&mut self, segment: &LoadedSegment, holes: &[(u64, u64)]) {
        if holes.is_empty() {
            return;
        }
        self.contents.damaged += holes.len() as u64;
        if self.access == Access::Look {
            return;
        }
        let (kept, error) = self.keep(segment, holes);
        for (start, end) in holes {
            tracing::error!(
                file = %segment.path.display(), offset = start, bytes = end - start, kept = %kept.display(),
                not_kept = error.as_ref().map(ToString::to_string),
                "a segment of {} is damaged. Check the disk, and remove the file that is kept when nobody needs it", self.format.what
            );
        }
    }

    /// Keep the file of a damaged segment under another name. Return the name, and the error if
    /// that failed. A copy of the same damage from an earlier start is used again; a copy of other
    /// damage stays next to it.
    fn keep(&self, segment: &LoadedSegment, holes: &[(u64, u64)]) -> (PathBuf, Option<io::Error>) {
        let place = |(start, end)| Some(usize::try_from(start).ok()?..usize::try_from(end).ok()?);
        let is_same = |found: &[u8]| {
            let mut places = holes.iter().copied().filter_map(place);
            places.all(|place| found.get(place.clone()) == segment.bytes.get(place))
        };
        let mut number = 1;
        loop {
            let kept = kept(&segment.path, number);
            number += 1;
            match self.disk.open_to_read(&kept).and_then(|file| read(&*file)) {
                Ok(found) if !is_same(&found) => {}
                Ok(_) => return (kept, None),
                Err(error) if error.kind() != io::ErrorKind::NotFound => return (kept, Some(error)),
                Err(_) => {
                    let error = crate::keep_aside(self.disk, &segment.path, &kept).err();
                    return (kept, error);
                }
            }
        }
    }
}

/// Return a name for a damaged segment's copy.
fn kept(path: &Path, number: u32) -> PathBuf {
    let number = if number > 1 { format!(".{number}") } else { String::new() };
    PathBuf::from(format!("{}{number}{DAMAGED}", path.display()))
}

impl Frame {
    /// Return whether these bytes begin with a head and a whole body.
    fn begins_with_body(self, bytes: &[u8]) -> bool {
        let Some(Length::Body(length)) = self.head(bytes).map(|head| head.length) else { return false };
        let (before, behind) = self.around(Length::Body(length));
        let whole = || {
            let (body, rest) = bytes.get(before..)?.split_at_checked(usize::try_from(length).ok()?)?;
            Some(!body.is_empty() && self.is_whole(body, rest.get(..behind)?))
        };
        whole().unwrap_or(false)
    }
}
