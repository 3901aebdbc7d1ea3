use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use penstock_io::DriverError as _;
use penstock_log::SystemDisk;

use crate::folder::FolderSink;
use crate::format::LOG;
use crate::format::names::{is_session, payload_name};
use crate::read::file_log::FileLog;
use crate::read::store::{JournalLog, ListState, PayloadRange, Store, check_session};
use crate::{Error, Result};

/// Longer than a tick of any file system's clock.
const TICK: Duration = Duration::from_secs(3);

/// A sink's folder, read in place.
#[derive(Debug, Clone)]
pub struct FolderStore {
    dir: PathBuf,
}

impl FolderStore {
    /// Open the sink in a folder; return an error if `dir` is not a folder.
    pub fn open(dir: &Path) -> Result<Self> {
        let found = fs::metadata(dir).and_then(|found| if found.is_dir() { Ok(()) } else { Err(not_a_folder()) });
        found.map_err(|error| Error::file("cannot read the sink", dir, error))?;
        Ok(Self { dir: dir.to_owned() })
    }

    /// Open a session's list; return `None` if it does not exist.
    fn open_list(&self, session: &str) -> Result<Option<File>> {
        check_session(session)?;
        match File::open(self.dir.join(session).join(LOG)) {
            Ok(file) => Ok(Some(file)),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(self.failed(&format!("{session}/{LOG}"), error)),
        }
    }

    fn failed(&self, name: &str, error: io::Error) -> Error {
        Error::file("cannot read the sink's", &self.dir.join(name), error)
    }
}

impl Store for FolderStore {
    fn sessions(&self) -> Result<Vec<String>> {
        let entries = fs::read_dir(&self.dir).map_err(|error| self.failed("", error))?;
        let mut found = Vec::new();
        for entry in entries {
            let name = entry.map_err(|error| self.failed("", error))?.file_name();
            if let Some(name) = name.to_str().filter(|name| is_session(name)) {
                found.push(name.to_owned());
            }
        }
        Ok(found)
    }

    fn changed(&self) -> Result<Option<SystemTime>> {
        let found = fs::metadata(&self.dir).and_then(|found| found.modified());
        let changed = found.map_err(|error| self.failed("", error))?;
        // File systems' clocks tick slowly: a folder that changed recently may change again with
        // the same time.
        let age = SystemTime::now().duration_since(changed).unwrap_or_default();
        Ok((age > TICK).then_some(changed))
    }

    fn list(&self, session: &str) -> Result<Option<ListState>> {
        let Some(list) = self.open_list(session)? else { return Ok(None) };
        let found = list.metadata().and_then(|found| Ok((found.is_file(), found.len(), found.modified()?)));
        let (is_file, length, modified) = found.map_err(|error| self.failed(session, error))?;
        Ok(is_file.then_some(ListState { length, modified }))
    }

    fn make_durable(&self, session: &str) -> Result<()> {
        let Some(list) = self.open_list(session)? else { return Ok(()) };
        list.sync_data().map_err(|error| self.failed(session, error))
    }

    fn read_list(&self, session: &str, range: Range<u64>) -> Result<Vec<u8>> {
        let gone =
            || Error::file("cannot read the sink's", &self.dir.join(session), io::Error::from(io::ErrorKind::NotFound));
        let mut list = self.open_list(session)?.ok_or_else(gone)?;
        let mut bytes = Vec::new();
        list.seek(SeekFrom::Start(range.start))
            .and_then(|_| list.take(range.end.saturating_sub(range.start)).read_to_end(&mut bytes))
            .map_err(|error| self.failed(session, error))?;
        Ok(bytes)
    }

    fn has(&self, file: &str) -> Result<bool> {
        let mut payloads = Payloads::new(&self.dir);
        match payloads.open(file) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.failed(file, error)),
        }
    }

    fn read_payloads(&self, wanted: &[PayloadRange], into: &mut Vec<u8>) -> Result<()> {
        let total: u64 = wanted.iter().map(|part| part.length).sum();
        let room = usize::try_from(total).unwrap_or(usize::MAX);
        let failed = || Error::memory(total);
        // Reserve once for all payloads, with 64 bytes of slack.
        into.try_reserve_exact(room.saturating_add(64)).map_err(|_| failed())?;
        let mut payloads = Payloads::new(&self.dir);
        for part in wanted {
            payloads.read(part, into).map_err(|error| self.failed(&part.file, error))?;
        }
        Ok(())
    }

    fn committed(&self, transaction: &str) -> Result<Vec<Vec<String>>> {
        FolderSink::committed(&self.dir, transaction).map_err(|error| self.failed(".transactions", error))
    }

    fn prepared(&self, transaction: &str) -> Result<Vec<String>> {
        FolderSink::prepared(&self.dir, transaction).map_err(|error| self.failed(".transactions", error))
    }

    fn journal(&self) -> Result<Box<dyn JournalLog>> {
        Ok(Box::new(FileLog::new(Arc::new(SystemDisk), &self.dir)))
    }

    fn remove(&self, session: &str) -> Result<()> {
        check_session(session)?;
        match fs::remove_dir_all(self.dir.join(session)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.failed(session, error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

fn not_a_folder() -> io::Error {
    io::Error::from(io::ErrorKind::NotADirectory)
}

/// The payloads of a sink; the folder of the last scope stays open for its next payload.
struct Payloads<'a> {
    dir: &'a Path,
    folder: Option<(String, File)>,
}

impl<'a> Payloads<'a> {
    const fn new(dir: &'a Path) -> Self {
        Self { dir, folder: None }
    }

    fn read(&mut self, wanted: &PayloadRange, into: &mut Vec<u8>) -> io::Result<()> {
        let mut file = self.open(&wanted.file)?;
        if wanted.offset > 0 {
            file.seek(SeekFrom::Start(wanted.offset))?;
        }
        let read = append(file, wanted.length, into)?;
        if read < wanted.length {
            let problem = format!("it has {} bytes fewer than its session's list says", wanted.length - read);
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem));
        }
        Ok(())
    }

    /// Open a payload without following links: a sink creates none, and a link that another program
    /// created may lead anywhere.
    fn open(&mut self, name: &str) -> io::Result<File> {
        use rustix::fs::{Mode, OFlags, openat};

        let (folder, entity, ..) = split(name)?;
        if self.folder.as_ref().is_none_or(|(open, _)| open != folder) {
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
            let (session, scope) = folder.split_once('/').unwrap_or((folder, ""));
            let outer = rustix::fs::open(self.dir.join(session), flags, Mode::empty())?;
            let inner = openat(&outer, scope, flags, Mode::empty())?;
            self.folder = Some((folder.to_owned(), File::from(inner)));
        }
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY | OFlags::NONBLOCK;
        match &self.folder {
            Some((_, open)) => Ok(File::from(openat(open, entity, flags, Mode::empty())?)),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// Append up to `length` bytes of a file, with one system call if `into` has room for them.
fn append(file: File, length: u64, into: &mut Vec<u8>) -> io::Result<u64> {
    let before = into.len();
    let end = usize::try_from(length).map_or(usize::MAX, |length| before.saturating_add(length));
    while into.len() < end {
        if into.capacity() == into.len() {
            into.reserve(end - into.len());
        }
        match rustix::io::read(&file, rustix::buffer::spare_capacity(into)) {
            Ok(0) => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // The last read may have filled spare room with more than the wanted bytes.
    into.truncate(end);
    Ok((into.len() - before) as u64)
}

fn split(name: &str) -> io::Result<(&str, &str)> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidInput, "that is no name of a payload");
    payload_name(name).and_then(|_| name.rsplit_once('/')).ok_or_else(wrong)
}
