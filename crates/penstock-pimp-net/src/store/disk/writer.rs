//! Who appends to the log: one thread of the pool at a time, as long as something waits.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use penstock_io::DriverError as _;
use penstock_io::runtime::spawn_blocking;
use penstock_pimp::JobId;
use tokio::sync::oneshot;

use super::record::{self, Encoded};
use super::recovery;
use super::state::{Segment, State};
use crate::Change;
use crate::{Error, Result};

/// Bytes after which a new segment begins, where nobody says otherwise.
pub(super) const SEGMENT: u64 = 64 << 20;
/// A segment that has fewer dead bytes is left alone until all of it is dead.
const WORTH: u64 = 1 << 20;
/// Where a log that failed is tried again, and the most bytes that it is tried with.
const TRIAL: &str = ".trial";
const TRIED: usize = 1 << 20;

/// What waits for the writer.
pub(super) enum Pending {
    /// A change.
    Record(Box<Encoded>, oneshot::Sender<Result<()>>),
    /// What has expired by then is to go.
    Sweep(u64, oneshot::Sender<Result<()>>),
}

#[derive(Default)]
struct Waiting {
    pending: Vec<Pending>,
    writing: bool,
}

/// The segment that is appended to.
struct Open {
    number: u64,
    file: Arc<File>,
    bytes: u64,
    /// Something was written behind the last seal.
    unsealed: bool,
}

/// What could not be written.
struct Failing {
    why: String,
    /// Bytes of the longest such write: that a shorter one fits says nothing of it.
    bytes: usize,
}

/// The log's end.
pub(super) struct Writer {
    folder: PathBuf,
    /// Bytes after which a new segment begins.
    segment: u64,
    state: Mutex<State>,
    waiting: Mutex<Waiting>,
    // Taken by the thread that writes, and by no other.
    open: Mutex<Option<Open>>,
    failing: Mutex<Option<Failing>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Writer {
    pub(super) fn new(folder: &Path, segment: u64, state: State) -> Self {
        let (waiting, open, failing) = (Mutex::default(), Mutex::new(None), Mutex::new(None));
        Self { folder: folder.to_owned(), segment, state: Mutex::new(state), waiting, open, failing }
    }

    /// Why nothing can be written, where the last write failed.
    pub(super) fn failing(&self) -> Option<String> {
        locked(&self.failing).as_ref().map(|failing| failing.why.clone())
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Takes something to write; a thread begins unless one is at it, which takes this with its next write.
    pub(super) fn push(self: &Arc<Self>, pending: Pending) -> Result<()> {
        let mut waiting = locked(&self.waiting);
        waiting.pending.push(pending);
        if !waiting.writing {
            let writer = Arc::clone(self);
            spawn_blocking(move || writer.run())?;
            waiting.writing = true;
        }
        Ok(())
    }

    fn run(&self) {
        loop {
            let pending = {
                let mut waiting = locked(&self.waiting);
                if waiting.pending.is_empty() {
                    waiting.writing = false;
                    return;
                }
                std::mem::take(&mut waiting.pending)
            };
            let mut records = Vec::new();
            for each in pending {
                match each {
                    Pending::Record(encoded, done) => records.push((*encoded, done)),
                    Pending::Sweep(now, done) => {
                        self.write(std::mem::take(&mut records));
                        // Nobody may wait any more.
                        let _ = done.send(self.sweep(now));
                    }
                }
            }
            self.write(records);
        }
    }

    /// Writes changes together, and tells who waits for them.
    fn write(&self, records: Vec<(Encoded, oneshot::Sender<Result<()>>)>) {
        let (records, waiting): (Vec<_>, Vec<_>) = records.into_iter().unzip();
        let result = self.append(records);
        for done in waiting {
            let _ = done.send(result.clone());
        }
    }

    /// Appends records and syncs; what they say counts from then on.
    fn append(&self, mut records: Vec<Encoded>) -> Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let length = records.iter().map(|record| record.bytes.len()).sum();
        let mut bytes = Vec::with_capacity(length);
        let mut places = Vec::with_capacity(records.len());
        let mut open = locked(&self.open);
        let start = self.room(&mut open, length as u64)?;
        for record in &mut records {
            places.push(bytes.len() as u64);
            record::set_head(&mut record.bytes, record.id, start);
            bytes.append(&mut record.bytes);
        }
        let number = self.append_bytes(&mut open, &bytes, true)?;
        let mut state = self.state();
        for (record, place) in records.into_iter().zip(places) {
            state.apply(number, start + place, record);
        }
        Ok(())
    }

    /// A write of so many bytes has failed.
    fn failed(&self, bytes: usize, error: io::Error) -> Error {
        let message = "cannot write to the store";
        tracing::error!(%error, folder = %self.folder.display(), bytes, message);
        let error = Error::io(format!("{message} in {}", self.folder.display()), error);
        let mut failing = locked(&self.failing);
        let bytes = failing.as_ref().map_or(bytes, |failing| failing.bytes.max(bytes));
        *failing = Some(Failing { why: error.to_string(), bytes });
        error
    }

    /// A write of so many bytes was taken.
    fn taken(&self, bytes: usize) {
        let mut failing = locked(&self.failing);
        if failing.as_ref().is_some_and(|failing| bytes >= failing.bytes.min(TRIED)) {
            *failing = None;
            tracing::info!(folder = %self.folder.display(), "the store can be written to again");
        }
    }

    /// Tries a log that failed: whoever sends no more requests to a buffer that is not healthy must learn that it is again.
    fn try_again(&self) {
        let Some(bytes) = locked(&self.failing).as_ref().map(|failing| failing.bytes.min(TRIED)) else { return };
        let path = self.folder.join(TRIAL);
        let written = File::create(&path).and_then(|mut file| {
            file.write_all(&vec![0; bytes])?;
            file.sync_all()
        });
        // Where nothing was made there is nothing to remove.
        let _ = fs::remove_file(&path);
        match written {
            Ok(()) => self.taken(bytes),
            Err(error) => {
                tracing::debug!(%error, folder = %self.folder.display(), "the store still cannot be written to")
            }
        }
    }

    /// Begins a segment where so many bytes do not fit; gives where they will begin.
    fn room(&self, open: &mut Option<Open>, length: u64) -> Result<u64> {
        if open.as_ref().is_none_or(|open| open.bytes.saturating_add(length) > self.segment) {
            // It may be the last one again, when those behind it have gone. Where the seal fails, the log and `failing` say so.
            if let Some(synced) = open.as_ref().filter(|open| open.unsealed).map(|open| open.bytes) {
                let _ = self.append_bytes(open, &record::seal(synced), false);
            }
            *open = None;
            *open =
                Some(self.begin().map_err(|error| self.failed(usize::try_from(length).unwrap_or(usize::MAX), error))?);
        }
        Ok(open.as_ref().map_or(0, |open| open.bytes))
    }

    /// Appends bytes durably; gives the segment.
    fn append_bytes(&self, open: &mut Option<Open>, bytes: &[u8], unsealed: bool) -> Result<u64> {
        let Some(current) = open else {
            return Err(self.failed(bytes.len(), io::Error::other("no segment is open")));
        };
        let written = (&*current.file).write_all(bytes).and_then(|()| current.file.sync_data());
        if let Err(error) = written {
            // What was written of it must not come back after a restart: it is refused. Nothing is appended behind it, and the
            // header of the next segment says where this one ends.
            let _ = current.file.set_len(current.bytes).and_then(|()| current.file.sync_data());
            *open = None;
            return Err(self.failed(bytes.len(), error));
        }
        self.taken(bytes.len());
        current.bytes += bytes.len() as u64;
        current.unsealed = unsealed;
        if let Some(segment) = self.state().segments.get_mut(&current.number) {
            segment.bytes = current.bytes;
        }
        Ok(current.number)
    }

    /// Says of what was written last that it is on the disk: else a restart cannot tell damage there from a write that was cut.
    fn seal(&self) -> Result<()> {
        let mut open = locked(&self.open);
        let Some(synced) = open.as_ref().filter(|open| open.unsealed).map(|open| open.bytes) else { return Ok(()) };
        self.append_bytes(&mut open, &record::seal(synced), false).map(drop)
    }

    /// Begins the next segment.
    fn begin(&self) -> io::Result<Open> {
        let (number, before) = {
            let state = self.state();
            match state.segments.last_key_value() {
                Some((number, segment)) if *number > state.given_up => (number + 1, segment.bytes),
                // Of the one before it nobody knows how long it was.
                Some(_) | None => (state.given_up + 1, 0),
            }
        };
        let path = recovery::path(&self.folder, number);
        let file = OpenOptions::new().read(true).append(true).create(true).open(&path)?;
        // One whose beginning failed may be there.
        file.set_len(0)?;
        let header = record::header(number, before);
        (&file).write_all(&header)?;
        file.sync_data()?;
        File::open(&self.folder)?.sync_all()?;
        let (file, bytes) = (Arc::new(file), header.len() as u64);
        let segment = Segment { file: Arc::clone(&file), path, bytes, live: 0, records: 0 };
        self.state().segments.insert(number, segment);
        Ok(Open { number, file, bytes, unsealed: false })
    }

    /// Deletes what has expired, and gives its room back: segments of which nothing counts go, and of those that are mostly dead
    /// the rest is written anew.
    fn sweep(&self, now: u64) -> Result<()> {
        // On a full disk it fails, as the log says then: what has expired goes all the same.
        let _ = self.seal();
        self.state().expire(now);
        let dead = |segment: &Segment| segment.bytes.saturating_sub(segment.live);
        let (mut empty, mut worth) = (BTreeSet::new(), BTreeSet::new());
        {
            let (mut open, state) = (locked(&self.open), self.state());
            let current = open.as_ref().and_then(|open| state.segments.get(&open.number));
            if current.is_some_and(|segment| dead(segment) >= WORTH) {
                *open = None;
            }
            let current = open.as_ref().map(|open| open.number);
            for (number, segment) in state.segments.iter().filter(|(number, _)| Some(**number) != current) {
                if segment.is_empty() {
                    empty.insert(*number);
                } else if dead(segment) >= WORTH && dead(segment) > segment.bytes / 2 {
                    worth.insert(*number);
                }
            }
        }
        // Those of which nothing counts need no room, so they go though the rest cannot be written anew.
        self.remove(&empty);
        self.try_again();
        self.rescue(&worth)?;
        self.remove(&worth);
        Ok(())
    }

    /// Removes segments of which nothing counts any more.
    fn remove(&self, victims: &BTreeSet<u64>) {
        let gone: Vec<_> = {
            let mut state = self.state();
            victims.iter().filter_map(|number| state.segments.remove(number)).collect()
        };
        for segment in gone {
            if let Err(error) = fs::remove_file(&segment.path) {
                tracing::warn!(file = %segment.path.display(), %error, "an old segment cannot be removed");
            }
        }
    }

    /// Writes anew what counts of these segments, a job at a time.
    fn rescue(&self, victims: &BTreeSet<u64>) -> Result<()> {
        let concerned: Vec<JobId> = {
            let state = self.state();
            let concerned = state.jobs.iter().filter(|(_, entry)| {
                victims.contains(&entry.record) || entry.chunks.values().any(|place| victims.contains(&place.segment))
            });
            concerned.map(|(id, _)| *id).collect()
        };
        for id in concerned {
            let (until, job, indices, found) = {
                let state = self.state();
                let Some(entry) = state.jobs.get(&id) else { continue };
                let moved = entry.chunks.iter().filter(|(_, place)| victims.contains(&place.segment));
                let indices: Vec<u32> = moved.map(|(index, _)| *index).collect();
                (entry.until, entry.job.clone(), indices.clone(), state.places(id, &indices))
            };
            let bytes = super::read(&found).map_err(|error| Error::io("cannot read chunks", error))?;
            let chunks: Vec<(u32, Bytes)> = indices.into_iter().zip(bytes).collect();
            let change = Change { was: job.clone(), job, chunks };
            let mut record = record::encode(id, until, change).map_err(Error::Protocol)?;
            // They are not asked for more than before.
            record.recent.clear();
            self.append(vec![record])?;
        }
        Ok(())
    }
}
