//! The thread that stores changes in the log of a folder or in objects. It writes all changes that
//! arrived while it was busy as one group.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use penstock_io::DriverError as _;
use penstock_io::sync::lock;
use penstock_log::{Disk, FolderLock, GroupCommit, SystemDisk, Writer, make_folder};
use tokio::sync::oneshot;

use crate::claims::log::ClaimLog;
use crate::claims::objects::ObjectLog;
use crate::claims::record::{Entry, FORMAT};
use crate::claims::state::State;
use crate::claims::{earlier, log};
use crate::{Error, Result};

/// Time without changes after which the log gets a durable seal.
const IDLE: Duration = Duration::from_secs(1);
/// Number of bytes that a record adds to a group besides its body.
const AROUND: usize = 48;

/// Fires when all earlier changes are stored.
pub(super) type Answer = oneshot::Receiver<io::Result<()>>;

/// Changes that are stored together.
#[derive(Debug)]
struct Message {
    entries: Vec<Entry>,
    done: oneshot::Sender<io::Result<()>>,
}

impl Message {
    fn weight(&self) -> usize {
        self.entries.iter().map(|entry| entry.length() + AROUND).sum()
    }
}

/// The sender of changes to the thread.
#[derive(Debug)]
pub(super) struct Store(GroupCommit<Message>);

impl Store {
    /// Pass changes on. The answer arrives when they and all earlier changes are stored.
    pub(super) fn save(&self, entries: Vec<Entry>) -> Answer {
        let (done, answer) = oneshot::channel();
        // If the thread has ended, the answer is an error.
        drop(self.0.push(Message { entries, done }));
        answer
    }

    /// Write the remaining changes and release the folder. Blocks on the disk.
    pub(super) fn close(&self) {
        self.0.close();
    }

    fn start(writer: impl Writer<Item = Message>) -> Result<Self> {
        let commit = GroupCommit::start("penstock-claims", writer);
        commit.map(Self).map_err(|error| Error::io("cannot start the thread that stores claim checks", error))
    }

    /// Store changes in objects.
    pub(super) fn objects(log: ObjectLog) -> Result<Self> {
        Self::start(ObjectWriter { log, unsaved: Vec::new() })
    }
}

/// A folder that this process has locked.
#[derive(Debug)]
pub(super) struct Folder {
    log: ClaimLog,
    lock: FolderLock,
}

impl Folder {
    /// Lock a folder and read its claim checks.
    pub(super) fn open(path: &Path, state: &mut State) -> Result<Self> {
        let disk: Arc<dyn Disk> = Arc::new(SystemDisk);
        make_folder(&*disk, path).map_err(|error| Error::file("cannot make the folder", path, error))?;
        let lock = FolderLock::take(path, "lock", "another server keeps its claim checks there");
        let lock = lock.map_err(penstock_io::Error::from)?;
        Ok(Self { log: ClaimLog::open(&disk, path, FORMAT, state)?, lock })
    }

    /// Return how many damaged places of the log were found.
    pub(super) const fn damaged(&self) -> u64 {
        self.log.damaged()
    }

    /// Start to store changes in the folder. `state` provides all records for a rewritten log.
    pub(super) fn start(self, state: &Arc<Mutex<State>>) -> Result<Store> {
        let Self { log, lock } = self;
        Store::start(LogWriter { log, state: Arc::clone(state), idle: None, _lock: lock })
    }
}

/// Read a folder without changing it: another process may have locked it.
pub(super) fn look(folder: &Path, state: &mut State) -> Result<()> {
    log::look(&SystemDisk, folder, &FORMAT, state)
}

/// Return whether a folder contains claim checks.
pub(super) fn exists(folder: &Path) -> bool {
    log::exists(&SystemDisk, folder, &FORMAT)
}

/// The thread's writer to the log of a folder.
struct LogWriter {
    log: ClaimLog,
    state: Arc<Mutex<State>>,
    /// The time at which the durable seal is due.
    idle: Option<Instant>,
    _lock: FolderLock,
}

impl Writer for LogWriter {
    type Item = Message;

    fn weight(item: &Message) -> usize {
        item.weight()
    }

    fn write(&mut self, group: &mut Vec<Message>) {
        let written = tell(group, |entries| self.log.append(entries));
        if written.is_ok() {
            self.log.tidy(&mut || lock(&self.state).entries());
            self.idle = Some(Instant::now() + IDLE);
        }
    }

    fn due(&self) -> Option<Instant> {
        self.idle
    }

    fn wake(&mut self) {
        self.idle = None;
        self.seal();
    }

    fn end(&mut self) {
        self.seal();
    }
}

impl LogWriter {
    fn seal(&mut self) {
        if let Err(error) = self.log.seal() {
            // The next write begins another segment.
            tracing::debug!(%error, "the log of claim checks cannot be sealed");
        }
    }
}

/// The thread's writer to objects.
struct ObjectWriter {
    log: ObjectLog,
    /// Records that could not be written. They precede the next ones, so that the order is
    /// preserved.
    unsaved: Vec<u8>,
}

impl Writer for ObjectWriter {
    type Item = Message;

    fn weight(item: &Message) -> usize {
        item.weight()
    }

    fn write(&mut self, group: &mut Vec<Message>) {
        let written = tell(group, |entries| {
            entries.iter().for_each(|entry| earlier::append(entry.bare(), &mut self.unsaved));
            self.log.append(&self.unsaved)
        });
        if written.is_ok() {
            self.unsaved = Vec::new();
        }
    }
}

/// Write a group, and send the result to its callers.
fn tell(group: &mut Vec<Message>, write: impl FnOnce(Vec<Entry>) -> io::Result<()>) -> io::Result<()> {
    let (entries, waiting): (Vec<_>, Vec<_>) = group.drain(..).map(|each| (each.entries, each.done)).unzip();
    let written = write(entries.into_iter().flatten().collect());
    for done in waiting {
        let same = written.as_ref().copied().map_err(|error| io::Error::new(error.kind(), error.to_string()));
        // The caller may have stopped waiting.
        let _ = done.send(same);
    }
    written
}

#[cfg(test)]
mod tests;
