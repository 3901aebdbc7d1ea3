//! The journal's folder: the log of a daemon's tasks, and a lock that admits one daemon at a time.

mod earlier;
mod recovery;
#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use penstock_io::DriverError as _;
use penstock_log::{Disk, FolderLock, Format, GroupCommit, Label, Log, Record, make_folder};
use penstock_quicx::{Group, Journal, Queue, QueueConfig, Write};

use self::recovery::Found;
use super::state::Shared;
use crate::{Error, Result};

const LOCK: &str = ".lock";
/// The length of a segment at which a new one begins.
const SEGMENT: u64 = 16 << 20;

/// Return the format of a journal's log with segments of this length. Formats 1 to 3 had another
/// layout of segments.
const fn format(segment: u64) -> Format {
    Format { kind: *b"quicx  4", suffix: ".journal", what: "a Quicx journal", segment }
}

/// The journal's folder, which this process writes.
pub(super) struct Folder {
    log: Log,
    /// Held while the journal is written.
    _guard: FolderLock,
}

impl Folder {
    /// Lock the folder, which is created if it is missing, and restore its tasks.
    ///
    /// Fails if another process has locked the folder, if its files are not a journal, or if its
    /// tasks do not fit into the pool.
    pub(super) fn open(disk: Arc<dyn Disk>, path: &Path, now: Instant, config: &QueueConfig) -> Result<(Self, Queue)> {
        Self::with_segments(disk, path, now, config, SEGMENT)
    }

    /// Open a folder like [`open`](Self::open), with segments of this length.
    fn with_segments(
        disk: Arc<dyn Disk>,
        path: &Path,
        now: Instant,
        config: &QueueConfig,
        most: u64,
    ) -> Result<(Self, Queue)> {
        make_folder(&*disk, path).map_err(|error| Error::file("cannot make", path, error))?;
        let guard =
            FolderLock::take(path, LOCK, "another daemon has this journal").map_err(penstock_io::Error::from)?;
        let mut found = Found::default();
        let log = Log::open(disk, path, format(most), &mut found).map_err(penstock_io::Error::from)?;
        // A segment that was just begun has no record, and is removed if the first write to it fails.
        let segments = log.segments().filter(|(number, _)| log.open_segment() != Some(*number));
        let mut queue = found.restore(now, config, Journal::new(most, segments))?;
        queue.count_damage(log.damaged());
        if queue.tasks() > 0 {
            tracing::info!(tasks = queue.tasks(), dead = queue.dead(), "tasks came back from the journal");
        }
        Ok((Self { log, _guard: guard }, queue))
    }

    /// Append records durably; return the number of their segment.
    fn append(&mut self, group: &Group) -> io::Result<u64> {
        let records: Vec<_> = group.records().map(|(label, body)| Written { label, body }).collect();
        let segment = self.log.append(&records)?.segment;
        // The seal lets a later start tell damage to these records from a torn write, even if this
        // process is killed now. The records are durable without it.
        let _ = self.log.seal_unsynced();
        Ok(segment)
    }

    /// Remove the queue's oldest segment, after older ones whose removal failed before. The order
    /// matters: a segment may hold the GONE of tasks in the segment before it.
    fn remove(&mut self, segment: u64) {
        let numbers = self.log.segments().map(|(number, _)| number);
        let oldest: Vec<_> = numbers.take_while(|number| *number <= segment).collect();
        if let Err(error) = self.log.remove_in_order(oldest) {
            tracing::warn!(segment, %error, "old segments of the journal cannot be removed yet");
        }
    }

    /// Start the thread that writes the queue's records until it is closed. The journal has its own
    /// thread because a write takes tens of microseconds, and passing it to a thread pool would
    /// take as long again.
    pub(super) fn start(self, shared: &Arc<Shared>) -> Result<()> {
        let writer = Writer { folder: self, shared: Arc::clone(shared) };
        let commit = GroupCommit::start("penstock-journal", writer);
        let commit = commit.map_err(|error| Error::io("cannot start the journal's thread", error))?;
        // Write the records of tasks that went to the dead list during the start.
        let _ = commit.push(());
        // This cannot fail: a daemon sets its journal once.
        let _ = shared.journal.set(commit);
        Ok(())
    }
}

/// A record to be written.
struct Written<'a> {
    label: Label,
    body: &'a [u8],
}

impl Record for Written<'_> {
    fn label(&self) -> Label {
        self.label
    }

    fn body<'a>(&'a self, parts: &mut Vec<&'a [u8]>) {
        parts.push(self.body);
    }
}

/// The writer on the journal's thread. The queue collects the records; an item only signals that
/// there are some.
struct Writer {
    folder: Folder,
    shared: Arc<Shared>,
}

impl penstock_log::Writer for Writer {
    type Item = ();

    fn weight((): &()) -> usize {
        0
    }

    fn write(&mut self, group: &mut Vec<()>) {
        group.clear();
        let mut next = self.shared.lock().queue.poll_write();
        while let Some(write) = next {
            next = match write {
                Write::Append(group) => self.commit(&group),
                Write::Remove { segment } => {
                    self.folder.remove(segment);
                    self.shared.lock().queue.poll_write()
                }
            };
        }
    }
}

impl Writer {
    /// Append a group, and report the result to the queue; return the queue's next write.
    fn commit(&mut self, group: &Group) -> Option<Write> {
        let began = Instant::now();
        let written = self.folder.append(group);
        self.shared.commit_seconds.observe(began.elapsed());
        let mut state = self.shared.lock();
        match written {
            Ok(segment) => state.queue.handle_durable(Instant::now(), segment),
            Err(error) => state.queue.handle_write_failed(Instant::now(), &error.to_string()),
        }
        let next = state.queue.poll_write();
        self.shared.settle(&mut state, None);
        drop(state);
        self.shared.wrote.notify_waiters();
        next
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // After this, the next start has nothing to repair. If this fails, the next start repairs the log.
        let _ = self.folder.log.seal();
    }
}
