//! A spool in a local folder: `00000000000000000001.segment`, `spool` (its ID), `readers.json` (the
//! readers' positions).

use std::collections::{BTreeMap, HashMap};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use penstock_io::sync::lock;
use penstock_io::{DriverError as _, Problem, hex};
use penstock_log::{Disk, DiskFile, FolderLock, SystemDisk, make_folder, read, read_range, replace};

use crate::dedup::Recent;
use crate::format::{HeadSeed, MAX_HEADER, SpoolId, read_header};
use crate::index::{Backing, Index, Segment, next_number, read_readers};
use crate::names::{ID, READERS, parse_id, path_of, segment_number};
use crate::options::Ack;
use crate::recovery::recover;
use crate::scan::{Headless, Rest, SegmentScan, by_footer, check_spool, headless, scan};
use crate::shared::{Counters, Shared};
use crate::store::{Missing, Position, SegmentInfo, Store, Unreadable};
use crate::target::{Durable, Target, TargetState};
use crate::{Error, Misuse, Result};

const LOCK: &str = ".lock";
/// The most bytes that wait for the next sync.
const UNSYNCED: usize = 64 << 10;

/// Open a folder for writing.
pub(super) fn open(disk: Arc<dyn Disk>, folder: &Path, ack: Ack) -> Result<TargetState> {
    make_folder(&*disk, folder).map_err(|error| Error::file("cannot make the spool", folder, error))?;
    let guard =
        FolderLock::take(folder, LOCK, "another process writes this spool").map_err(penstock_io::Error::from)?;
    let folder = Folder { disk, path: folder.to_owned() };
    let spool = match folder.id()? {
        Some(spool) => spool,
        None => folder.make_id()?,
    };
    let (mut segments, counters) = (BTreeMap::new(), Counters::default());
    let numbers = folder.numbers()?;
    for number in &numbers {
        let is_last = numbers.last() == Some(number);
        let (segment, damaged) = recover(&*folder.disk, &folder.path, &spool, *number, is_last)?;
        Counters::add(&counters.damaged, damaged);
        segments.insert(*number, segment);
    }
    let readers = match folder.file(READERS)? {
        Some(bytes) => read_readers(&bytes)
            .map_err(|error| Error::file("cannot read", &folder.path.join(READERS), io::Error::from(error)))?,
        None => BTreeMap::new(),
    };
    let next = next_number(numbers.last().copied(), &readers);
    let index = Index::new(spool, (segments, next), readers, Box::new(folder.clone()));
    let shared = Shared::new(index, counters, ack);
    let store = Arc::new(LiveStore { folder: folder.clone(), shared: Arc::clone(&shared) });
    let recent = Recent::of(&*store, numbers.into_iter())?;
    let target = FolderTarget { folder, open: None, unsynced: Vec::new(), cache: Cache::Trusted, _guard: guard };
    Ok(TargetState { target: Box::new(target), shared, store, recent, next })
}

/// The place of a spool.
#[derive(Debug, Clone)]
struct Folder {
    disk: Arc<dyn Disk>,
    path: PathBuf,
}

impl Folder {
    fn id(&self) -> Result<Option<SpoolId>> {
        let Some(text) = self.file(ID)? else { return Ok(None) };
        let wrong = || Error::content(self.path.join(ID).display(), Problem::Not("the ID of a spool"));
        std::str::from_utf8(&text).ok().and_then(parse_id).map(Some).ok_or_else(wrong)
    }

    fn make_id(&self) -> Result<SpoolId> {
        let spool = fastrand::u128(..).to_be_bytes();
        self.replace(ID, hex::encode(spool).as_bytes())?;
        Ok(spool)
    }

    /// Read a whole file, if it exists.
    fn file(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.path.join(name);
        match self.disk.open_to_read(&path).and_then(|file| read(&*file)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::file("cannot read", &path, error)),
        }
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path.join(name);
        replace(&*self.disk, &path, bytes).map_err(|error| Error::file("cannot write", &path, error))
    }

    /// Return the numbers of all segments, in ascending order.
    fn numbers(&self) -> Result<Vec<u64>> {
        let names = self.disk.list(&self.path).map_err(|error| Error::file("cannot list", &self.path, error))?;
        let mut found: Vec<u64> = names.iter().filter_map(|name| segment_number(name)).collect();
        found.sort_unstable();
        Ok(found)
    }

    /// Read bytes of a segment.
    fn read(&self, segment: u64, range: Range<u64>) -> Result<Vec<u8>> {
        let path = path_of(&self.path, segment);
        let bytes = self.disk.open_to_read(&path).and_then(|file| read_range(&*file, range));
        bytes.map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                return Missing::Segment { segment }.into();
            }
            Error::file("cannot read", &path, error)
        })
    }
}

/// Whether the page cache still has the bytes that were not synced:
///
/// ```text
///          a write or a sync fails
///  Trusted ──────────────────────▶ Untrusted
///     ▲    the segment is ended        │
///     └────────────────────────────────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cache {
    Trusted,
    /// The system may have dropped unsynced bytes, and still treat them as written.
    Untrusted,
}

#[derive(Debug)]
struct FolderTarget {
    folder: Folder,
    open: Option<(u64, Arc<dyn DiskFile>)>,
    /// The bytes that were written after the last sync.
    unsynced: Vec<u8>,
    cache: Cache,
    /// Held for as long as this process writes the spool.
    _guard: FolderLock,
}

impl FolderTarget {
    /// Return the file of a segment that has this many bytes.
    fn file(&mut self, segment: u64, length: u64) -> io::Result<Arc<dyn DiskFile>> {
        let file = match self.open.take().filter(|(open, _)| *open == segment) {
            Some((_, file)) => file,
            None if length == 0 => self.folder.disk.create(&path_of(&self.folder.path, segment))?,
            None => self.folder.disk.open(&path_of(&self.folder.path, segment))?,
        };
        self.open = Some((segment, Arc::clone(&file)));
        Ok(file)
    }

    fn put(&mut self, segment: u64, at: u64, bytes: &[u8], durable: Durable) -> io::Result<()> {
        let sync = durable != Durable::Later || self.unsynced.len() + bytes.len() > UNSYNCED;
        let file = self.file(segment, at)?;
        let append = |bytes: &[u8]| file.append(&mut [IoSlice::new(bytes)]);
        let written = match durable {
            Durable::Header(length) => {
                let (header, records) = bytes.split_at_checked(length).unwrap_or((bytes, &[]));
                let begun = append(header).and_then(|()| file.sync());
                begun.and_then(|()| self.folder.disk.sync_folder(&self.folder.path)).and_then(|()| append(records))
            }
            Durable::Now | Durable::Later => append(bytes),
        };
        let written = written.and_then(|()| if sync { file.sync() } else { Ok(()) });
        if written.is_err() {
            self.cache = Cache::Untrusted;
            // Frees the space of a partial write. If this fails too, the end of the segment
            // truncates the file.
            let _ = file.truncate(at);
            return written;
        }
        if sync {
            self.unsynced.clear();
        } else {
            self.unsynced.extend_from_slice(bytes);
        }
        Ok(())
    }

    fn put_footer(&mut self, segment: u64, at: u64, footer: &[u8]) -> io::Result<()> {
        let file = self.file(segment, at)?;
        let again: &[u8] = match self.cache {
            // The bytes stay in place, because a reader may be reading them.
            Cache::Trusted => &[],
            Cache::Untrusted => self.unsynced.as_slice(),
        };
        let ended = file
            .truncate(at.saturating_sub(again.len() as u64))
            .and_then(|()| file.append(&mut [IoSlice::new(again), IoSlice::new(footer)]))
            .and_then(|()| file.sync());
        self.cache = if ended.is_ok() { Cache::Trusted } else { Cache::Untrusted };
        if ended.is_ok() {
            self.unsynced.clear();
        }
        ended
    }

    fn remove(&mut self, segment: u64) -> io::Result<()> {
        (self.open, self.cache) = (None, Cache::Trusted);
        match self.folder.disk.remove(&path_of(&self.folder.path, segment)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => self.folder.disk.sync_folder(&self.folder.path),
        }
    }
}

impl Target for FolderTarget {
    fn write(&mut self, segment: u64, at: u64, bytes: &[u8], durable: Durable) -> Result<()> {
        let written = self.put(segment, at, bytes, durable);
        written.map_err(|error| Error::file("cannot write", &path_of(&self.folder.path, segment), error))
    }

    fn end(&mut self, segment: u64, at: u64, footer: &[u8]) -> Result<()> {
        let ended = if at == 0 { self.remove(segment) } else { self.put_footer(segment, at, footer) };
        ended.map_err(|error| Error::file("cannot end", &path_of(&self.folder.path, segment), error))
    }

    fn is_whole(&self) -> bool {
        false
    }
}

impl Backing for Folder {
    fn keep_readers(&self, readers: &[u8]) -> Result<()> {
        self.replace(READERS, readers)
    }

    fn remove(&self, segment: u64) -> Result<()> {
        let path = path_of(&self.path, segment);
        match self.disk.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::file("cannot remove", &path, error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// The rows of a spool, read in the process that writes it.
#[derive(Debug)]
struct LiveStore {
    folder: Folder,
    shared: Arc<Shared>,
}

impl Store for LiveStore {
    fn spool(&self) -> Result<String> {
        Ok(hex::encode(self.shared.index.spool))
    }

    fn segments(&self, from: u64, max: usize) -> Result<Vec<SegmentInfo>> {
        Ok(self.shared.index.with(|state| {
            let segments = state.segments.range(from..).take(max);
            segments
                .map(|(number, segment)| SegmentInfo {
                    number: *number,
                    header: segment.header,
                    entries: segment.entries.clone(),
                })
                .collect()
        }))
    }

    fn read(&self, segment: u64, range: Range<u64>) -> Result<Vec<u8>> {
        self.folder.read(segment, range)
    }

    fn commit(&self, reader: &str, position: Position) -> Result<()> {
        self.shared.commit(reader, position)
    }
}

/// The rows of a spool in a folder, which another process may be writing.
#[derive(Debug)]
pub struct FolderStore {
    folder: Folder,
    spool: SpoolId,
    seen: Mutex<HashMap<u64, (Segment, u64)>>,
}

impl FolderStore {
    /// Open a folder for reading.
    ///
    /// Fails as a misuse if the folder is not a spool.
    pub fn open(folder: &Path) -> Result<Self> {
        Self::on(Arc::new(SystemDisk), folder)
    }

    /// Open a folder for reading, on a given disk.
    pub(super) fn on(disk: Arc<dyn Disk>, folder: &Path) -> Result<Self> {
        let missing = || Misuse::NoSpoolFile { place: folder.display().to_string(), file: ID };
        let folder = Folder { disk, path: folder.to_owned() };
        let spool = folder.id()?.ok_or_else(missing)?;
        Ok(Self { folder, spool, seen: Mutex::default() })
    }

    /// Return a segment as far as it is whole and durable; `None` if not even its header is, or if
    /// it has been removed.
    fn look(&self, number: u64, last: bool) -> Result<Option<Segment>> {
        let known = lock(&self.seen).get(&number).cloned();
        if let Some((segment, _)) = known.as_ref().filter(|(segment, _)| segment.sealed) {
            return Ok(Some(segment.clone()));
        }
        let path = path_of(&self.folder.path, number);
        let failed = |error: io::Error| Error::file("cannot read", &path, error);
        let file = match self.folder.disk.open_to_read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let length = file.length().map_err(failed)?;
        let (mut segment, mut end) = match known {
            Some(known) => known,
            None => {
                let head = read_range(&*file, 0..length.min(MAX_HEADER)).map_err(failed)?;
                let Some(header) = read_header(&head) else {
                    return match headless(&*file, &path, &self.spool, number, last)? {
                        Headless::Torn { .. } => Ok(None),
                        Headless::Damaged { .. } => Err(Error::io(path.display().to_string(), Unreadable::Header)),
                        Headless::Unknown(error) => Err(error),
                    };
                };
                check_spool(&path, &header, &self.spool, number)?;
                (Segment { header: header.length, ..Segment::default() }, header.length)
            }
        };
        if let Some(entries) = by_footer(&*file, length, segment.header).map_err(failed)? {
            segment = Segment { entries, sealed: true, bytes: length, ..segment };
        } else {
            // An incomplete end may be a write in progress.
            let records = read_range(&*file, end.min(length)..length).map_err(failed)?;
            let SegmentScan { mut entries, end: found, rest } =
                scan(&records, HeadSeed::of(&self.spool, number), &segment.entries, last);
            end += found as u64;
            if let Rest::Damaged(entry) = rest
                && !last
            {
                // No writer completes this segment any more, so its rows must not be passed over.
                entries.push(entry);
                end = length;
            }
            if !entries.is_empty() {
                // A position must outlive a power cut, and the writer may not have synced these
                // records yet.
                file.sync().map_err(failed)?;
            }
            segment.entries.extend(entries);
            segment.sealed = rest == Rest::Footer;
        }
        lock(&self.seen).insert(number, (segment.clone(), end));
        Ok(Some(segment))
    }
}

impl Store for FolderStore {
    fn spool(&self) -> Result<String> {
        let missing = || Misuse::NoSpool { place: self.folder.path.display().to_string() };
        Ok(hex::encode(self.folder.id()?.ok_or_else(missing)?))
    }

    fn segments(&self, from: u64, max: usize) -> Result<Vec<SegmentInfo>> {
        let mut found = Vec::new();
        let numbers = self.folder.numbers()?;
        let last = numbers.last().copied();
        for number in numbers.into_iter().filter(|number| *number >= from).take(max) {
            if let Some(Segment { header, entries, .. }) = self.look(number, last == Some(number))? {
                found.push(SegmentInfo { number, header, entries });
            }
        }
        Ok(found)
    }

    fn read(&self, segment: u64, range: Range<u64>) -> Result<Vec<u8>> {
        self.folder.read(segment, range)
    }

    fn commit(&self, _reader: &str, _position: Position) -> Result<()> {
        Err(Misuse::ReadOnly.into())
    }
}
