//! A log to which records are appended.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::disk::is_full;
use crate::frame::{Frame, HEAD, Head, LONGEST, Label, Length, TAIL, hash};
use crate::header::Header;
use crate::recovery::{self, Contents, Replay};
use crate::segment::{self, Format, Segment};
use crate::{Disk, DiskFile, Error, HEADER, Result};

/// The length below which a part of a body is copied next to its neighbours: cheaper than its own
/// slice in a system call.
const SMALL: usize = 1_024;
/// The most bytes of a group's memory that are kept for the next group.
const SCRATCH: usize = 1 << 20;

/// A record to append.
pub trait Record {
    /// Return the label for its head.
    fn label(&self) -> Label;

    /// Push the parts of its body; long parts are written without a copy.
    fn body<'a>(&'a self, parts: &mut Vec<&'a [u8]>);
}

/// The segment that records are appended to.
#[derive(Debug)]
struct Open {
    number: u64,
    file: Arc<dyn DiskFile>,
}

/// The places of appended records, which are durable.
#[derive(Debug)]
pub struct Placement {
    /// The segment's number.
    pub segment: u64,
    /// Its file, which stays readable when the segment is removed.
    pub file: Arc<dyn DiskFile>,
    /// The offset of each body.
    pub offsets: Vec<u64>,
}

/// The segments of a folder; records are appended to the last one. [The crate](crate) states its
/// promises.
///
/// ```text
/// closed ── append ─▶ open ── full, end_segment ─▶ closed     the next append begins a new segment
///                       └── a write or an fsync failed ─▶ closed
/// ```
#[derive(Debug)]
pub struct Log {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    format: Format,
    /// The log's random number.
    log: u64,
    segments: BTreeMap<u64, Segment>,
    given_up: u64,
    damaged: u64,
    open: Option<Open>,
    bytes: Arc<AtomicU64>,
    /// The memory of a group's heads, which the next group reuses.
    scratch: Vec<u8>,
}

impl Log {
    /// Open the log of a folder that this process has locked, and replay its contents to the
    /// engine.
    pub fn open(disk: Arc<dyn Disk>, folder: &Path, format: Format, replay: &mut dyn Replay) -> Result<Self> {
        let contents = recovery::recover(&*disk, folder, &format, replay)?;
        let Contents { segments, log, given_up, damaged, is_earlier } = contents;
        let bytes = segments.values().map(|segment| segment.length).sum();
        let mut opened = Self {
            disk,
            folder: folder.to_owned(),
            format,
            // A random number that no peer can guess.
            log: log.unwrap_or_else(|| RandomState::new().hash_one(folder)),
            segments,
            given_up,
            damaged,
            open: None,
            bytes: Arc::new(AtomicU64::new(bytes)),
            scratch: Vec::new(),
        };
        if is_earlier && opened.segments.values().next_back().is_some_and(|segment| segment.is_unsealed) {
            // An earlier format has no seal: the header of the next segment says where this one ends.
            match opened.begin() {
                Err(error) if is_full(&error) => {
                    tracing::warn!(folder = %folder.display(), %error, "the next segment of the log cannot be begun yet");
                }
                begun => drop(begun.map_err(|error| Error::file("cannot begin a segment in", folder, error))?),
            }
        }
        // An earlier process may have made or removed names without a sync.
        opened.disk.sync_folder(folder).map_err(|error| Error::file("cannot sync", folder, error))?;
        Ok(opened)
    }

    fn last(&self) -> Option<u64> {
        self.segments.last_key_value().map(|(number, _)| *number)
    }

    fn path(&self, number: u64) -> PathBuf {
        segment::path(&self.folder, number, self.format.suffix)
    }

    /// Return the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Return how many damaged places were found when the log was opened.
    pub const fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Return the total number of bytes of all segments, which the log keeps up to date.
    pub fn bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.bytes)
    }

    /// Return the numbers of all segments with their bytes, oldest first.
    pub fn segments(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.segments.iter().map(|(number, segment)| (*number, segment.length))
    }

    /// Return the segment that records are appended to, if one is open.
    pub const fn open_segment(&self) -> Option<u64> {
        match &self.open {
            Some(open) => Some(open.number),
            None => None,
        }
    }

    /// Append records together; they are durable when this returns. If it fails, no record is
    /// durable, and none comes back once a later append has succeeded.
    pub fn append<R: Record>(&mut self, records: &[R]) -> io::Result<Placement> {
        let (mut parts, mut bodies) = (Vec::new(), Vec::with_capacity(records.len()));
        let mut length = 0;
        for record in records {
            let first = parts.len();
            record.body(&mut parts);
            let body: usize = parts.iter().skip(first).map(|part| part.len()).sum();
            let size = u32::try_from(body).ok().filter(|_| body <= LONGEST);
            let too_long =
                || io::Error::new(io::ErrorKind::InvalidInput, format!("a record of {body} bytes is too long"));
            let body = Length::Body(size.ok_or_else(too_long)?);
            length += size_of(body);
            bodies.push((record.label(), body, first..parts.len()));
        }
        let (number, file) = self.room(length)?;
        let segment = self.segments.get(&number).ok_or_else(closed)?;
        let synced = segment.length;
        let frame = segment.frame.ok_or_else(closed)?;
        let mut group = Group::new(frame, synced, segment.unsynced, std::mem::take(&mut self.scratch));
        for (label, length, bounds) in bodies {
            group.push(label, length, parts.get(bounds).unwrap_or_default());
        }
        let written = self.write(&mut group.slices(), length).and_then(|()| self.sync(true));
        let Group { scratch, offsets, .. } = group;
        self.scratch = scratch;
        self.scratch.clear();
        self.scratch.shrink_to(SCRATCH);
        written.map(|()| Placement { segment: number, file, offsets })
    }

    /// Return the segment for a group of this length: the open one, or a new one if the group does not fit.
    fn room(&mut self, length: u64) -> io::Result<(u64, Arc<dyn DiskFile>)> {
        let most = self.format.segment.min(u32::MAX.into());
        if let Some(Open { number, file }) = &self.open {
            let start = self.segments.get(number).map_or(0, |segment| segment.length + segment.unsynced);
            if start.saturating_add(length) <= most || start == HEADER as u64 {
                return Ok((*number, Arc::clone(file)));
            }
            // This segment may become the last one again if later ones are removed. If the seal
            // fails, the segment is closed as well.
            let _ = self.seal();
            self.open = None;
        }
        self.begin()
    }

    /// Mark all records as synced. Without the mark, a start cannot tell damage of the last records
    /// from a torn write.
    pub fn seal(&mut self) -> io::Result<()> {
        self.seal_unsynced()?;
        let Some(open) = &self.open else { return Ok(()) };
        let is_unsynced = self.segments.get(&open.number).is_some_and(|segment| segment.unsynced > 0);
        if is_unsynced { self.sync(false) } else { Ok(()) }
    }

    /// Write the same mark without waiting for the disk. It survives a crash of the process, but
    /// perhaps not a power cut.
    pub fn seal_unsynced(&mut self) -> io::Result<()> {
        let Some(open) = &self.open else { return Ok(()) };
        let is_unsealed = |segment: &&Segment| segment.is_unsealed && segment.unsynced == 0;
        let Some(segment) = self.segments.get(&open.number).filter(is_unsealed) else { return Ok(()) };
        let head = Head { length: Length::Seal, synced: segment.length, label: [0; 16] };
        let head = segment.frame.ok_or_else(closed)?.encode(&head);
        self.write(&mut [IoSlice::new(&head)], HEAD as u64)
    }

    /// Close the open segment, so that the next append begins a new one.
    pub fn end_segment(&mut self) {
        self.open = None;
    }

    /// Remove segments, in any order. The engine must ignore a segment that the disk does not
    /// remove, or that comes back after a crash; [`Log::remove_in_order`] is for an engine that
    /// would replay it.
    pub fn remove(&mut self, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            if let Err(error) = self.unlink(number) {
                tracing::warn!(file = %self.path(number).display(), %error, "an old segment cannot be removed");
            }
            self.forget(number);
        }
    }

    /// Remove segments, each only once all removals before it are durable, including those of
    /// earlier calls. [The crate](crate) says what an order promises. The last removal becomes
    /// durable with the next sync of the folder.
    ///
    /// # Errors
    ///
    /// The error of the first call that fails. [`Log::segments`] still has the segment of that call
    /// and the ones after it.
    pub fn remove_in_order(&mut self, numbers: impl IntoIterator<Item = u64>) -> io::Result<()> {
        for number in numbers {
            self.disk.sync_folder(&self.folder)?;
            self.unlink(number)?;
            self.forget(number);
        }
        Ok(())
    }

    fn unlink(&self, number: u64) -> io::Result<()> {
        match self.disk.remove(&self.path(number)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    fn forget(&mut self, number: u64) {
        self.open.take_if(|open| open.number == number);
        if let Some(segment) = self.segments.remove(&number) {
            self.bytes.fetch_sub(segment.length, Ordering::Relaxed);
        }
    }

    /// Begin the next segment.
    fn begin(&mut self) -> io::Result<(u64, Arc<dyn DiskFile>)> {
        let number = self.last().unwrap_or(0).max(self.given_up) + 1;
        let before = self.segments.get(&(number - 1)).map_or(0, |segment| segment.length);
        let header = Header { kind: self.format.kind, log: self.log, number, before }.encode();
        let path = self.path(number);
        let file = match self.disk.create(&path) {
            // An earlier attempt failed, and its file could not be removed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.disk.remove(&path)?;
                self.disk.create(&path)?
            }
            created => created?,
        };
        let made = file.append(&mut [IoSlice::new(&header)]).and_then(|()| file.sync());
        if let Err(error) = made.and_then(|()| self.disk.sync_folder(&self.folder)) {
            // The next attempt makes another file.
            let _ = self.disk.remove(&path);
            return Err(error);
        }
        self.bytes.fetch_add(HEADER as u64, Ordering::Relaxed);
        let frame = Some(Frame::of(self.log, number));
        self.segments.insert(number, Segment { length: HEADER as u64, unsynced: 0, is_unsealed: false, frame });
        self.open = Some(Open { number, file: Arc::clone(&file) });
        Ok((number, file))
    }

    /// Write after the last byte of the open segment.
    fn write(&mut self, parts: &mut [IoSlice<'_>], length: u64) -> io::Result<()> {
        let open = self.open.as_ref().ok_or_else(closed)?;
        if let Err(error) = open.file.append(parts) {
            self.give_up();
            return Err(error);
        }
        let segment = self.segments.get_mut(&open.number).ok_or_else(closed)?;
        segment.unsynced += length;
        Ok(())
    }

    /// Make what was written durable.
    fn sync(&mut self, is_unsealed: bool) -> io::Result<()> {
        let open = self.open.as_ref().ok_or_else(closed)?;
        if let Err(error) = open.file.sync() {
            self.give_up();
            return Err(error);
        }
        let segment = self.segments.get_mut(&open.number).ok_or_else(closed)?;
        self.bytes.fetch_add(segment.unsynced, Ordering::Relaxed);
        segment.length += std::mem::take(&mut segment.unsynced);
        segment.is_unsealed = is_unsealed;
        Ok(())
    }

    /// Close the open segment after a failed write: nothing is written to it again.
    fn give_up(&mut self) {
        let Some(Open { number, file }) = self.open.take() else { return };
        let Some(segment) = self.segments.get(&number) else { return };
        if segment.length == HEADER as u64 {
            // Otherwise each attempt on a full disk would leave a file.
            self.remove([number]);
            return;
        }
        // The bytes of the failed write must not come back after a restart. If this fails too, the
        // header of the next segment says where this one ends.
        let _ = file.truncate(segment.length).and_then(|()| file.sync());
    }
}

fn closed() -> io::Error {
    io::Error::other("no segment is open")
}

/// Return the length of a record with a body of this length.
fn size_of(length: Length) -> u64 {
    match length {
        Length::Seal | Length::Body(0) => HEAD as u64,
        Length::Body(body) => u64::from(body) + (HEAD + TAIL) as u64,
    }
}

/// Records that are appended together. Heads, tails and short parts of bodies are collected in
/// memory; long parts are written from where they are.
struct Group<'a> {
    frame: Frame,
    synced: u64,
    /// The place in the segment at which the next record begins.
    at: u64,
    scratch: Vec<u8>,
    /// The pieces to write, in order.
    pieces: Vec<Piece<'a>>,
    /// The number of bytes of `scratch` that are in `pieces`.
    taken: usize,
    offsets: Vec<u64>,
}

enum Piece<'a> {
    Scratch(Range<usize>),
    Part(&'a [u8]),
}

impl<'a> Group<'a> {
    const fn new(frame: Frame, synced: u64, unsynced: u64, scratch: Vec<u8>) -> Self {
        Self { frame, synced, at: synced + unsynced, scratch, pieces: Vec::new(), taken: 0, offsets: Vec::new() }
    }

    fn push(&mut self, label: Label, length: Length, parts: &[&'a [u8]]) {
        self.scratch.extend_from_slice(&self.frame.encode(&Head { length, synced: self.synced, label }));
        let (body, pieces) = (self.scratch.len(), self.pieces.len());
        for part in parts {
            if part.len() < SMALL {
                self.scratch.extend_from_slice(part);
            } else {
                self.take_scratch();
                self.pieces.push(Piece::Part(part));
            }
        }
        self.offsets.push(self.at + HEAD as u64);
        self.at += size_of(length);
        if length != Length::Body(0) {
            // The parts are contiguous in `scratch` if none of them was long.
            let together = self.scratch.get(body..).filter(|_| pieces == self.pieces.len());
            let hash = together.map_or_else(|| hash(parts.iter().copied()), |body| hash([body]));
            self.scratch.extend_from_slice(&hash.to_be_bytes());
        }
    }

    fn take_scratch(&mut self) {
        self.pieces.push(Piece::Scratch(self.taken..self.scratch.len()));
        self.taken = self.scratch.len();
    }

    fn slices(&mut self) -> Vec<IoSlice<'_>> {
        self.take_scratch();
        let slice = |piece: &'_ Piece<'a>| match piece {
            Piece::Scratch(range) => self.scratch.get(range.clone()).unwrap_or_default(),
            Piece::Part(part) => part,
        };
        self.pieces.iter().map(slice).filter(|slice| !slice.is_empty()).map(IoSlice::new).collect()
    }
}
