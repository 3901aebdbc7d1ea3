//! The file of claim checks.
//!
//! ```text
//!  claims.log    "penstock claims 1\n", then records:
//!                length 4   CRC-32 4   length of the change 4   the change (core: claims/record.rs)   details, JSON
//!  lock          held by the process that writes
//! ```
//!
//! One thread writes: all changes that arrived while it was busy go to disk together. When most of the file concerns
//! claim checks that are forgotten, it is rewritten. A record that a crash has cut off is one that was not reported to
//! any peer.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use bytes::Buf as _;
use penstock_io::DriverError as _;
use penstock_io::records::{self, sync_folder};
use penstock_log::{FolderLock, SystemDisk, make_folder};
use penstock_pipestream::claims::ClaimRecord;
use penstock_pipestream_net::port::Details;
use tokio::sync::{mpsc, oneshot};

use crate::sync::lock;
use crate::{Error, Result};

pub(super) const MAGIC: &[u8] = b"penstock claims 1\n";
pub(super) const NAME: &str = "claims.log";
/// Maximum length of a record: a claim check's state is in a token of at most 16 MiB.
const MAX_RECORD: usize = 32 << 20;
/// Maximum number of messages that go to disk together.
const BATCH: usize = 4_096;
/// A file with fewer records than this is never rewritten.
const MANY: usize = 4_096;

pub(super) type Change = (ClaimRecord, Option<Details>);

/// Message to the thread: records, their number, and the sender that reports the result.
#[derive(Debug)]
struct Message {
    bytes: Vec<u8>,
    records: usize,
    done: oneshot::Sender<io::Result<()>>,
}

/// The way to the thread.
#[derive(Debug)]
pub(super) struct Store {
    inbox: Mutex<Option<mpsc::UnboundedSender<Message>>>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

/// Appends records to durable storage. Blocks until they are durable.
type Append = dyn FnMut(&[u8]) -> io::Result<()> + Send;

/// The opened store, whose records were read and to which changes are now written.
pub(super) enum Opened {
    /// A file in a folder that belongs to this process, as long as the lock is held.
    File { file: Log, _lock: FolderLock },
    /// Objects of this process in a store; it appends to them.
    Objects(Box<Append>),
}

pub(super) struct Log {
    path: PathBuf,
    file: File,
    length: u64,
    records: usize,
}

impl Store {
    /// Take a folder and read what is in it.
    pub(super) fn open(folder: &Path, mut each: impl FnMut(ClaimRecord, Option<Details>)) -> Result<Opened> {
        make_folder(&SystemDisk, folder).map_err(|error| Error::file("cannot make the folder", folder, error))?;
        let lock = FolderLock::take(folder, "lock", "another server keeps its claim checks there");
        let lock = lock.map_err(penstock_io::Error::from)?;
        let path = folder.join(NAME);
        let file = Log::open(&path, &mut each).map_err(|error| Error::file("cannot read", &path, error))?;
        Ok(Opened::File { file, _lock: lock })
    }

    /// Pass changes on; the answer arrives when they, and all before them, are on disk.
    pub(super) fn save(&self, changes: &[Change]) -> oneshot::Receiver<io::Result<()>> {
        let mut bytes = Vec::new();
        changes.iter().for_each(|change| append(change, &mut bytes));
        let (done, answer) = oneshot::channel();
        if let Some(inbox) = &*lock(&self.inbox) {
            // Without the thread there is no answer, which is an error for the caller that waits.
            let _ = inbox.send(Message { bytes, records: changes.len(), done });
        }
        answer
    }

    /// Write the remaining changes and release the folder. Blocks on the disk.
    pub(super) fn close(&self) {
        lock(&self.inbox).take();
        if let Some(thread) = lock(&self.thread).take() {
            // It ends by itself, and a panic has been reported.
            let _ = thread.join();
        }
    }
}

impl Opened {
    /// Start the thread, which ends with the last sender. `snapshot` returns all claim checks, if there are no more
    /// than its argument.
    pub(super) fn start(self, snapshot: impl Fn(usize) -> Option<Vec<Change>> + Send + 'static) -> Result<Store> {
        let (inbox, mut messages) = mpsc::unbounded_channel::<Message>();
        let mut log = self;
        let run = move || {
            let mut batch = Vec::with_capacity(BATCH);
            let mut unsaved = (Vec::new(), 0);
            while messages.blocking_recv_many(&mut batch, BATCH) > 0 {
                for message in &batch {
                    unsaved.0.extend_from_slice(&message.bytes);
                    unsaved.1 += message.records;
                }
                let saved = log.append(&unsaved.0, unsaved.1);
                if saved.is_ok() {
                    unsaved = (Vec::new(), 0);
                }
                // Changes that could not be written stay and precede the next ones, so that the order is preserved.
                for message in batch.drain(..) {
                    let again = |error: &io::Error| io::Error::new(error.kind(), error.to_string());
                    // The caller may have stopped waiting.
                    let _ = message.done.send(saved.as_ref().copied().map_err(again));
                }
                if saved.is_ok() {
                    log.compact(&snapshot);
                }
            }
        };
        let started = thread::Builder::new().name("penstock-claims".into()).spawn(run);
        let started = started.map_err(|error| Error::io("cannot start the thread that stores claim checks", error))?;
        Ok(Store { inbox: Mutex::new(Some(inbox)), thread: Mutex::new(Some(started)) })
    }

    fn append(&mut self, bytes: &[u8], records: usize) -> io::Result<()> {
        match self {
            Self::File { file, .. } => file.append(bytes, records),
            Self::Objects(append) => append(bytes),
        }
    }

    fn compact(&mut self, snapshot: &impl Fn(usize) -> Option<Vec<Change>>) {
        match self {
            Self::File { file, .. } => {
                if file.records > MANY
                    && let Err(error) = file.compact(snapshot)
                {
                    tracing::warn!(path = %file.path.display(), %error, "the file of claim checks stays as long as it is");
                }
            }
            // They are merged as they arrive, and removed when they are old.
            Self::Objects(_) => {}
        }
    }
}

impl Log {
    fn open(path: &Path, each: &mut impl FnMut(ClaimRecord, Option<Details>)) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        if MAGIC.starts_with(&bytes) {
            // New, or cut off in its first line.
            file.set_len(0)?;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(MAGIC)?;
            file.sync_all()?;
            sync_folder(path)?;
            return Ok(Self { path: path.to_owned(), file, length: MAGIC.len() as u64, records: 0 });
        }
        let (records, length) = read_all(&bytes, each)?;
        if length < bytes.len() as u64 {
            tracing::warn!(path = %path.display(), bytes = bytes.len() as u64 - length, "a claim check that was being written is gone");
            file.set_len(length)?;
            file.sync_all()?;
        }
        file.seek(SeekFrom::Start(length))?;
        Ok(Self { path: path.to_owned(), file, length, records })
    }

    fn append(&mut self, bytes: &[u8], records: usize) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        // The remains of a failed write are overwritten.
        self.file.seek(SeekFrom::Start(self.length))?;
        self.file.write_all(bytes)?;
        self.file.sync_data()?;
        self.length = self.length.saturating_add(bytes.len() as u64);
        self.records += records;
        Ok(())
    }

    /// Rewrite the file, if that makes it much shorter.
    fn compact(&mut self, snapshot: &impl Fn(usize) -> Option<Vec<Change>>) -> io::Result<()> {
        let Some(changes) = snapshot(self.records / 4) else { return Ok(()) };
        let mut bytes = MAGIC.to_vec();
        changes.iter().for_each(|change| append(change, &mut bytes));
        let temp = self.path.with_extension("tmp");
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&temp)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&temp, &self.path)?;
        // From here on the old file has no name: nothing may be written to it, even where the folder cannot be synced.
        *self = Self { path: self.path.clone(), file, length: bytes.len() as u64, records: changes.len() };
        sync_folder(&self.path)
    }
}

fn append((record, details): &Change, bytes: &mut Vec<u8>) {
    let change = record.encode();
    // Every key is a string and a Vec takes everything, so this does not fail.
    let details = details.as_ref().and_then(|details| serde_json::to_vec(details).ok()).unwrap_or_default();
    let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    let body = [count(change.len()).as_slice(), change.as_slice(), details.as_slice()].concat();
    records::append(&body, bytes);
}

/// Read the file of a folder, where there is one, without changing it.
pub(super) fn look(folder: &Path, mut each: impl FnMut(ClaimRecord, Option<Details>)) -> Result<()> {
    let path = folder.join(NAME);
    match fs::read(&path) {
        // New, or cut off in its first line.
        Ok(bytes) if MAGIC.starts_with(&bytes) => Ok(()),
        Ok(bytes) => read_all(&bytes, &mut each).map(drop).map_err(|error| Error::file("cannot read", &path, error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::file("cannot read", &path, error)),
    }
}

/// Read all records, and return how many there are and where the last one ends.
pub(super) fn read_all(bytes: &[u8], each: &mut impl FnMut(ClaimRecord, Option<Details>)) -> io::Result<(usize, u64)> {
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        return Err(records::damaged("it is no file of claim checks".to_owned()));
    };
    let mut count = 0;
    let length = records::read(rest, MAGIC.len(), MAX_RECORD, |body| {
        let (record, details) = parse(body)?;
        each(record, details);
        count += 1;
        Some(())
    })?;
    Ok((count, length as u64))
}

fn parse(body: &[u8]) -> Option<(ClaimRecord, Option<Details>)> {
    let (mut count, body) = body.split_at_checked(4)?;
    let (change, details) = body.split_at_checked(usize::try_from(count.get_u32()).ok()?)?;
    let details = if details.is_empty() { None } else { Some(serde_json::from_slice(details).ok()?) };
    Some((ClaimRecord::decode(change).ok()?, details))
}

#[cfg(test)]
mod tests;
