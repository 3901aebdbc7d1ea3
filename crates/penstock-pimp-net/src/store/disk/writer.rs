//! The writer, which appends to the log on a separate thread.

use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use penstock_io::DriverError as _;
use penstock_io::sync::lock;
use penstock_log::{Disk, FolderLock, Log};
use penstock_pimp::JobId;
use tokio::sync::oneshot;

use super::read::read;
use super::record::{self, EncodedChange};
use super::state::State;
use crate::{Change, Error, Result, Usage};

/// The default size after which a new segment begins.
pub(super) const SEGMENT: u64 = 64 << 20;
/// A segment with fewer dead bytes is kept until all of it is dead.
const WORTH: u64 = 1 << 20;
/// Bytes of a seal.
const SEAL: usize = 32;
/// The file for testing a log that failed, and the most bytes that are written to it.
const TRIAL: &str = ".trial";
const TRIED: usize = 1 << 20;

/// Work for the writer.
pub(super) enum Pending {
    /// A change.
    Record(Box<EncodedChange>, oneshot::Sender<Result<()>>),
    /// Delete jobs and chunks that have expired by this time.
    Sweep(u64, oneshot::Sender<Result<()>>),
}

/// A failed write that no successful write has followed.
struct FailedWrite {
    why: String,
    /// The size of the longest such write: a shorter write that succeeds proves nothing about it.
    bytes: usize,
}

/// State that the writer shares with readers.
pub(super) struct Shared {
    pub(super) folder: PathBuf,
    state: Mutex<State>,
    failing: Mutex<Option<FailedWrite>>,
    /// Bytes of all segments.
    bytes: Arc<AtomicU64>,
    damaged: u64,
}

impl Shared {
    pub(super) fn new(log: &Log, state: State) -> Self {
        let (folder, bytes, damaged) = (log.folder().to_owned(), log.bytes(), log.damaged());
        Self { folder, state: Mutex::new(state), failing: Mutex::new(None), bytes, damaged }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Return why nothing can be written, if the last write failed.
    pub(super) fn failing(&self) -> Option<String> {
        lock(&self.failing).as_ref().map(|failing| failing.why.clone())
    }

    pub(super) fn usage(&self) -> Usage {
        let state = self.state();
        Usage {
            jobs: state.known() as u64,
            chunk_bytes: state.live(),
            disk_bytes: self.bytes.load(Ordering::Relaxed),
            damaged: self.damaged,
        }
    }

    /// Record that a write of this many bytes has failed.
    fn failed(&self, bytes: usize, error: io::Error) -> Error {
        let message = "cannot write to the store";
        tracing::error!(%error, folder = %self.folder.display(), bytes, message);
        let error = Error::io(format!("{message} in {}", self.folder.display()), error);
        let mut failing = lock(&self.failing);
        let bytes = failing.as_ref().map_or(bytes, |failing| failing.bytes.max(bytes));
        *failing = Some(FailedWrite { why: error.to_string(), bytes });
        error
    }

    /// Record that a write of this many bytes has succeeded.
    fn succeeded(&self, bytes: usize) {
        let mut failing = lock(&self.failing);
        if failing.as_ref().is_some_and(|failing| bytes >= failing.bytes.min(TRIED)) {
            *failing = None;
            tracing::info!(folder = %self.folder.display(), "the store accepts writes again");
        }
    }
}

/// The writer's side of the log.
pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) log: Log,
    /// Held while the folder is written.
    pub(super) _guard: FolderLock,
}

impl penstock_log::Writer for Writer {
    type Item = Pending;

    fn weight(item: &Pending) -> usize {
        match item {
            Pending::Record(encoded, _) => encoded.length(),
            Pending::Sweep(..) => 0,
        }
    }

    fn write(&mut self, group: &mut Vec<Pending>) {
        let (mut records, mut waiting) = (Vec::with_capacity(group.len()), Vec::with_capacity(group.len()));
        for each in group.drain(..) {
            match each {
                Pending::Record(encoded, done) => {
                    records.push(*encoded);
                    waiting.push(done);
                }
                Pending::Sweep(now, done) => {
                    self.commit(std::mem::take(&mut records), std::mem::take(&mut waiting));
                    // An error means that the caller stopped waiting, here and below.
                    let _ = done.send(self.sweep(now));
                }
            }
        }
        self.commit(records, waiting);
    }
}

impl Writer {
    /// Write changes together, and answer their callers.
    fn commit(&mut self, records: Vec<EncodedChange>, waiting: Vec<oneshot::Sender<Result<()>>>) {
        let result = self.append(records, true);
        for done in waiting {
            let _ = done.send(result.clone());
        }
    }

    /// Append records durably, then apply them. Chunks that `are_new` stay in memory.
    fn append(&mut self, records: Vec<EncodedChange>, are_new: bool) -> Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let bytes = records.iter().map(EncodedChange::length).sum();
        let appended = self.log.append(&records).map_err(|error| self.shared.failed(bytes, error))?;
        self.shared.succeeded(bytes);
        let mut state = self.shared.state();
        state.add_segment(appended.segment, &appended.file);
        for (record, offset) in records.into_iter().zip(appended.offsets) {
            let EncodedChange { update, envelopes, .. } = record;
            state.apply(appended.segment, offset, update, if are_new { envelopes } else { Vec::new() });
        }
        Ok(())
    }

    /// Test a log that failed. Clients may send nothing to an unhealthy buffer, so it must discover by itself that it
    /// can write again.
    fn try_again(&self) {
        let failing = lock(&self.shared.failing).as_ref().map(|failing| failing.bytes.min(TRIED));
        let Some(bytes) = failing else { return };
        let (folder, path) = (self.shared.folder.display(), self.shared.folder.join(TRIAL));
        // A process that died may have left a trial file.
        let _ = self.disk.remove(&path);
        let written = self.disk.create(&path).and_then(|file| {
            file.append(&mut [IoSlice::new(&vec![0; bytes])])?;
            file.sync()
        });
        let _ = self.disk.remove(&path);
        match written {
            Ok(()) => self.shared.succeeded(bytes),
            Err(error) => tracing::debug!(%error, %folder, "the store still rejects writes"),
        }
    }

    /// Delete expired jobs and chunks, and free their space: segments without live content are
    /// removed, and those that are mostly dead are rewritten first.
    fn sweep(&mut self, now: u64) -> Result<()> {
        if let Err(error) = self.log.seal() {
            // Even on a full disk, expired jobs must be deleted.
            self.shared.failed(SEAL, error);
        }
        self.shared.state().expire(now);
        let (empty, worth) = self.choose();
        // Segments without live content need no space, so they are removed even if the others cannot be rewritten.
        self.remove(empty);
        self.try_again();
        self.rescue(&worth)?;
        self.remove(worth);
        Ok(())
    }

    /// Return the segments without live content, and those with little of it.
    fn choose(&mut self) -> (BTreeSet<u64>, BTreeSet<u64>) {
        let (mut empty, mut worth) = (BTreeSet::new(), BTreeSet::new());
        let open = self.log.open_segment();
        let mut is_worth_ending = false;
        let state = self.shared.state();
        for (number, bytes) in self.log.segments() {
            let segment = state.segments.get(&number);
            let dead = bytes.saturating_sub(segment.map_or(0, |segment| segment.live));
            if open == Some(number) && dead < WORTH {
                continue;
            }
            is_worth_ending |= open == Some(number);
            if segment.is_none_or(|segment| segment.is_empty()) {
                empty.insert(number);
            } else if dead >= WORTH && dead > bytes / 2 {
                worth.insert(number);
            }
        }
        drop(state);
        if is_worth_ending {
            self.log.end_segment();
        }
        (empty, worth)
    }

    /// Remove segments without live content.
    fn remove(&mut self, victims: BTreeSet<u64>) {
        self.shared.state().segments.retain(|number, _| !victims.contains(number));
        self.log.remove(victims);
    }

    /// Rewrite the live content of these segments, one job at a time.
    fn rescue(&mut self, victims: &BTreeSet<u64>) -> Result<()> {
        let concerned: Vec<JobId> = {
            let state = self.shared.state();
            let concerned = state.jobs.iter().filter(|(_, entry)| {
                victims.contains(&entry.record) || entry.chunks.values().any(|place| victims.contains(&place.segment))
            });
            concerned.map(|(id, _)| *id).collect()
        };
        for id in concerned {
            let (until, job, indices, found) = {
                let state = self.shared.state();
                let Some(entry) = state.jobs.get(&id) else { continue };
                let moved = entry.chunks.iter().filter(|(_, place)| victims.contains(&place.segment));
                let indices: Vec<u32> = moved.map(|(index, _)| *index).collect();
                (entry.until, entry.job.clone(), indices.clone(), state.places(id, &indices))
            };
            let envelopes = read(&found).map_err(|error| Error::io("cannot read chunks", error))?;
            let chunks: Vec<(u32, Bytes)> = indices.into_iter().zip(envelopes).collect();
            let change = Change { was: job.clone(), job, chunks };
            // These chunks are not cached, because they are not polled more often than before.
            self.append(vec![record::encode(id, until, change).map_err(Error::Protocol)?], false)?;
        }
        Ok(())
    }
}
