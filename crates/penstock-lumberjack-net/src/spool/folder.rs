//! A spool in a local folder: `00000000000000000001.segment`, `spool` (its ID), `readers.json` (how far they are).

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use penstock_io::folder_lock::FolderLock;
use penstock_io::{DriverError as _, hex};

use super::format::{HeadSeed, MAX_HEADER, SpoolId, read_header, read_record, verify};
use super::index::{Backing, Index, Segment, next_number};
use super::reading::{SegmentInfo, Store};
use super::recent::{OF_CONNECTION, Recent};
use super::recovery::{
    Headless, Rest, Scanned, by_footer, check_spool, headless, read_from, read_range, recover, scan,
};
use super::writer::{Durable, Opened, Target};
use super::{Ack, Counters, Position, Shared, lock};
use crate::{Error, Result};

const ID: &str = "spool";
const READERS: &str = "readers.json";
const LOCK: &str = ".lock";
const SUFFIX: &str = ".segment";
/// Bytes that wait for the next sync at most.
const UNSYNCED: usize = 64 << 10;

pub(super) fn segment_name(number: u64) -> String {
    format!("{number:020}{SUFFIX}")
}

pub(super) fn segment_number(name: &str) -> Option<u64> {
    name.strip_suffix(SUFFIX).filter(|digits| digits.len() == 20)?.parse().ok()
}

pub(super) fn path_of(folder: &Path, number: u64) -> PathBuf {
    folder.join(segment_name(number))
}

pub(super) fn parse_id(text: &str) -> Option<SpoolId> {
    hex::decode(text.trim())
}

/// Opens a folder to be written.
pub(super) fn open(folder: &Path, ack: Ack) -> Result<Opened> {
    fs::create_dir_all(folder).map_err(|error| Error::file("cannot make the spool", folder, error))?;
    let guard = FolderLock::take(folder, LOCK, "another process writes this spool")?;
    let spool = match read_id(folder)? {
        Some(spool) => spool,
        None => make_id(folder)?,
    };
    let (mut segments, counters) = (BTreeMap::new(), Counters::default());
    let numbers = numbers(folder)?;
    for number in &numbers {
        let (segment, damaged) = recover(folder, &spool, *number, numbers.last() == Some(number))?;
        Counters::add(&counters.damaged, damaged);
        segments.insert(*number, segment);
    }
    let readers: BTreeMap<String, Position> = match fs::read(folder.join(READERS)) {
        Ok(bytes) => serde_json::from_slice::<BTreeMap<String, (u64, u64)>>(&bytes)
            .map_err(|error| Error::file("cannot read", &folder.join(READERS), io::Error::from(error)))?
            .into_iter()
            .map(|(name, (segment, row))| (name, Position { segment, row }))
            .collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
        Err(error) => return Err(Error::file("cannot read", &folder.join(READERS), error)),
    };
    let next = next_number(numbers.last().copied(), &readers);
    let recent = remember(folder, &segments)?;
    let backing = Box::new(FolderBacking { folder: folder.to_owned() });
    let index = Index::new(spool, (segments, next), readers, backing);
    let shared = Arc::new(Shared { index, counters, ack, parked: Mutex::new(BTreeMap::new()) });
    let store = Arc::new(LiveStore { folder: folder.to_owned(), shared: Arc::clone(&shared) });
    let target = Box::new(FolderTarget { folder: folder.to_owned(), open: None, unsynced: Vec::new(), _guard: guard });
    Ok(Opened { target, shared, store, recent, next })
}

fn read_id(folder: &Path) -> Result<Option<SpoolId>> {
    let path = folder.join(ID);
    match fs::read_to_string(&path) {
        Ok(text) => {
            let wrong = || Error::content(format!("{} is not the ID of a spool", path.display()));
            parse_id(&text).map(Some).ok_or_else(wrong)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::file("cannot read", &path, error)),
    }
}

fn make_id(folder: &Path) -> Result<SpoolId> {
    let spool = fastrand::u128(..).to_be_bytes();
    replace(folder, ID, hex::encode(spool).as_bytes())?;
    Ok(spool)
}

/// Writes a file so that after a crash there is the old one or the new one.
pub(super) fn replace(folder: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let path = folder.join(name);
    let failed = |error: io::Error| Error::file("cannot write", &path, error);
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    file.write_all(bytes).and_then(|()| file.as_file().sync_data()).map_err(failed)?;
    file.persist(&path).map_err(|error| failed(error.error))?;
    sync_folder(folder).map_err(failed)
}

pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn numbers(folder: &Path) -> Result<Vec<u64>> {
    let failed = |error: io::Error| Error::file("cannot list", folder, error);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        found.extend(name.to_str().and_then(segment_number));
    }
    found.sort_unstable();
    Ok(found)
}

/// Reads what was taken lately, for events that are sent again.
fn remember(folder: &Path, segments: &BTreeMap<u64, Segment>) -> Result<Recent> {
    let (mut rows, mut from) = (0, Vec::new());
    for (number, segment) in segments.iter().rev() {
        if rows >= 2 * OF_CONNECTION as u64 {
            break;
        }
        rows += segment.rows();
        from.push((*number, segment));
    }
    let mut recent = Recent::default();
    for (number, segment) in from.into_iter().rev() {
        let path = path_of(folder, number);
        let failed = |error: io::Error| Error::file("cannot read", &path, error);
        let mut file = File::open(&path).map_err(failed)?;
        let (mut at, mut row) = (segment.header, 0);
        for entry in &segment.entries {
            let bytes = read_from(&mut file, at..at + u64::from(entry.bytes)).map_err(failed)?;
            at += u64::from(entry.bytes);
            row += u64::from(entry.rows);
            // A record that was damaged since is nothing to compare with.
            if let Some(record) = read_record(&bytes).filter(|_| !entry.lost && verify(&bytes)) {
                recent.read(&record, Position { segment: number, row });
            }
        }
    }
    recent.all_broke();
    Ok(recent)
}

#[derive(Debug)]
struct FolderTarget {
    folder: PathBuf,
    open: Option<(u64, File)>,
    /// What was written behind the last sync. Where a sync fails the system may forget it, and take it for written.
    unsynced: Vec<u8>,
    /// Held as long as the spool is written.
    _guard: FolderLock,
}

impl FolderTarget {
    fn file(&mut self, segment: u64) -> io::Result<&mut File> {
        let open = match self.open.take().filter(|(open, _)| *open == segment) {
            Some(open) => open,
            None => {
                let path = path_of(&self.folder, segment);
                (segment, OpenOptions::new().create(true).truncate(false).write(true).open(path)?)
            }
        };
        Ok(&mut self.open.insert(open).1)
    }

    fn put(&mut self, segment: u64, at: u64, bytes: &[u8], durable: Durable) -> io::Result<()> {
        let sync = durable == Durable::Now || self.unsynced.len() + bytes.len() > UNSYNCED;
        let file = self.file(segment)?;
        let written = file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(bytes));
        let written = written.and_then(|()| if sync { file.sync_data() } else { Ok(()) });
        if written.is_err() {
            // Frees the space that the half of it took. Where that fails too, the end of the segment does it.
            let _ = file.set_len(at);
            return written;
        }
        if sync {
            self.unsynced.clear();
        } else {
            self.unsynced.extend_from_slice(bytes);
        }
        if at == 0 { sync_folder(&self.folder) } else { Ok(()) }
    }

    fn put_footer(&mut self, segment: u64, at: u64, footer: &[u8]) -> io::Result<()> {
        let again = [self.unsynced.as_slice(), footer].concat();
        let from = at.saturating_sub(self.unsynced.len() as u64);
        let file = self.file(segment)?;
        file.set_len(at).and_then(|()| file.seek(SeekFrom::Start(from)))?;
        file.write_all(&again).and_then(|()| file.sync_data())?;
        self.unsynced.clear();
        Ok(())
    }

    fn remove(&mut self, segment: u64) -> io::Result<()> {
        self.open = None;
        match fs::remove_file(path_of(&self.folder, segment)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => sync_folder(&self.folder),
        }
    }
}

impl Target for FolderTarget {
    fn write(&mut self, segment: u64, at: u64, bytes: &[u8], durable: Durable) -> Result<()> {
        let written = self.put(segment, at, bytes, durable);
        written.map_err(|error| Error::file("cannot write", &path_of(&self.folder, segment), error))
    }

    fn end(&mut self, segment: u64, at: u64, footer: &[u8]) -> Result<()> {
        let ended = if at == 0 { self.remove(segment) } else { self.put_footer(segment, at, footer) };
        ended.map_err(|error| Error::file("cannot end", &path_of(&self.folder, segment), error))
    }

    fn is_whole(&self) -> bool {
        false
    }
}

#[derive(Debug)]
struct FolderBacking {
    folder: PathBuf,
}

impl Backing for FolderBacking {
    fn keep_readers(&self, readers: &BTreeMap<String, Position>) -> Result<()> {
        let plain: BTreeMap<&str, (u64, u64)> =
            readers.iter().map(|(name, at)| (name.as_str(), (at.segment, at.row))).collect();
        let bytes = serde_json::to_vec(&plain).map_err(|error| Error::content(error.to_string()))?;
        replace(&self.folder, READERS, &bytes)
    }

    fn remove(&self, segment: u64) -> Result<()> {
        let path = path_of(&self.folder, segment);
        match fs::remove_file(&path) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(Error::file("cannot remove", &path, error)),
        }
    }
}

fn gone(number: u64, path: &Path, error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::NotFound {
        return Error::misuse(format!("segment {number} of the spool is gone: all its named readers had read it"));
    }
    Error::file("cannot read", path, error)
}

/// The rows of a spool that this process writes.
#[derive(Debug)]
struct LiveStore {
    folder: PathBuf,
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
        let path = path_of(&self.folder, segment);
        read_range(&path, range).map_err(|error| gone(segment, &path, error))
    }

    fn commit(&self, reader: &str, position: Position) -> Result<()> {
        self.shared.commit(reader, position)
    }
}

/// The rows of a spool in a folder, which another process may be writing.
#[derive(Debug)]
pub struct FolderStore {
    folder: PathBuf,
    spool: SpoolId,
    seen: Mutex<HashMap<u64, (Segment, u64)>>,
}

impl FolderStore {
    /// Looks into a folder.
    ///
    /// Fails as a misuse if it is no spool.
    pub fn open(folder: &Path) -> Result<Self> {
        let missing = || Error::misuse(format!("{} is no spool: it has no file {ID}", folder.display()));
        let spool = read_id(folder)?.ok_or_else(missing)?;
        Ok(Self { folder: folder.to_owned(), spool, seen: Mutex::default() })
    }

    /// A segment as far as it is whole and durable; `None`: not even its header is, or it has been removed.
    fn look(&self, number: u64, last: bool) -> Result<Option<Segment>> {
        let known = lock(&self.seen).get(&number).cloned();
        if let Some((segment, _)) = known.as_ref().filter(|(segment, _)| segment.sealed) {
            return Ok(Some(segment.clone()));
        }
        let path = path_of(&self.folder, number);
        let failed = |error: io::Error| Error::file("cannot read", &path, error);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let length = file.metadata().map_err(failed)?.len();
        let (mut segment, mut end) = match known {
            Some(known) => known,
            None => {
                let head = read_from(&mut file, 0..length.min(MAX_HEADER)).map_err(failed)?;
                let Some(header) = read_header(&head) else {
                    return match headless(&mut file, &path, &self.spool, number, last)? {
                        Headless::Torn { .. } => Ok(None),
                        Headless::Damaged { .. } => Err(Error::io(
                            path.display().to_string(),
                            "the segment's header is damaged; a receiver writes it again when it opens the spool",
                        )),
                        Headless::Unknown(error) => Err(error),
                    };
                };
                check_spool(&path, &header, &self.spool, number)?;
                (Segment { header: header.length, ..Segment::default() }, header.length)
            }
        };
        if let Some(entries) = by_footer(&mut file, length, segment.header).map_err(failed)? {
            segment = Segment { entries, sealed: true, bytes: length, ..segment };
        } else {
            // What is not whole at its end may be being written.
            let seed = HeadSeed::of(&self.spool, number);
            let Scanned { mut entries, end: mut found, rest } =
                scan(&mut file, seed, length, (end, segment.rows()), last).map_err(failed)?;
            if let Rest::Damaged(entry) = rest
                && !last
            {
                // Nobody writes here any more, so its rows must not be passed over.
                entries.push(entry);
                found = length;
            }
            if !entries.is_empty() {
                // A position must outlive a power cut, and the writer may not have asked the disk yet.
                file.sync_data().map_err(failed)?;
            }
            segment.entries.extend(entries);
            segment.sealed = rest == Rest::Footer;
            end = found;
        }
        lock(&self.seen).insert(number, (segment.clone(), end));
        Ok(Some(segment))
    }
}

impl Store for FolderStore {
    fn spool(&self) -> Result<String> {
        let missing = || Error::misuse(format!("{} is no spool", self.folder.display()));
        Ok(hex::encode(read_id(&self.folder)?.ok_or_else(missing)?))
    }

    fn segments(&self, from: u64, max: usize) -> Result<Vec<SegmentInfo>> {
        let mut found = Vec::new();
        let numbers = numbers(&self.folder)?;
        let last = numbers.last().copied();
        for number in numbers.into_iter().filter(|number| *number >= from).take(max) {
            if let Some(Segment { header, entries, .. }) = self.look(number, last == Some(number))? {
                found.push(SegmentInfo { number, header, entries });
            }
        }
        Ok(found)
    }

    fn read(&self, segment: u64, range: Range<u64>) -> Result<Vec<u8>> {
        let path = path_of(&self.folder, segment);
        read_range(&path, range).map_err(|error| gone(segment, &path, error))
    }

    fn commit(&self, _reader: &str, _position: Position) -> Result<()> {
        Err(Error::misuse("only who writes a spool can take commits: connect to the receiver".into()))
    }
}
