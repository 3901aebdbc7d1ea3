//! The start: reads the segments, and says what of them is lost.
//!
//! What is broken at the end of the last segment, and was not synced, was cut by a crash and never answered for: it is cut off. What is
//! broken elsewhere was answered for. The record that lost only its head is read all the same; where only its body is broken its head
//! says whose it was. Else every job may have lost one that had not ended and has no record behind. A job that has lost a record, and has no
//! newer one, or that has a chunk of which nobody knows where it lies, [is lost](penstock_pimp::Job::set_lost).
//!
//! A segment whose header is damaged is read all the same: its records say by themselves whether they are whole. One that nobody can
//! tell from a file of another version is refused, until it is named `.damaged`: then all of it is lost.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_io::DriverError as _;
use penstock_pimp::JobId;

use super::record::{self, Encoded, HEADER, Header, SEAL, Scanned};
use super::state::{Segment, State};
use crate::{Error, Result};

const SUFFIX: &str = ".chunks";
/// What a segment is named that was given up.
const DAMAGED: &str = ".damaged";

/// The file of a segment.
pub(super) fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:020}{SUFFIX}"))
}

/// Reads all segments of a folder, oldest first; `now` is in milliseconds since the Unix epoch.
///
/// Fails where a file is no segment, or of another version, by its name.
pub(super) fn recover(folder: &Path, now: u64) -> Result<State> {
    let (mut files, given_up) = (numbered(folder, SUFFIX)?, numbered(folder, DAMAGED)?);
    if let Some(last) = files.last_entry()
        && was_just_made(last.get())?
    {
        fs::remove_file(last.get()).map_err(|error| Error::file("cannot remove", last.get(), error))?;
        last.remove();
    }
    let (mut ends, mut recovery) = (BTreeMap::new(), Recovery::default());
    for (number, path) in &files {
        if let Some(before) = check_header(*number, path)? {
            ends.insert(number.saturating_sub(1), before);
        } else {
            recovery.damaged(path, 0, HEADER);
        }
    }
    recovery.state.given_up = given_up.last_key_value().map_or(0, |(number, _)| *number);
    let last = files.last_key_value().map(|(number, path)| (*number, path.clone()));
    let mut segments: Vec<_> = files.into_iter().map(|(number, path)| (number, path, true)).collect();
    segments.extend(given_up.into_iter().map(|(number, path)| (number, path, false)));
    segments.sort_unstable();
    let newest = segments.last().map(|(number, ..)| *number);
    for (number, path, is_read) in segments {
        if is_read {
            recovery.read_segment(number, path, ends.get(&number).copied(), Some(number) == newest)?;
        } else {
            recovery.give_up(&path)?;
        }
    }
    if let Some((number, path)) = last {
        recovery.secure(number, &path)?;
    }
    Ok(recovery.end(now))
}

/// The files of a folder whose names are numbers with this suffix.
fn numbered(folder: &Path, suffix: &str) -> Result<BTreeMap<u64, PathBuf>> {
    let failed = |error: io::Error| Error::file("cannot list", folder, error);
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let number = entry.file_name().to_str().and_then(|name| name.strip_suffix(suffix)?.parse::<u64>().ok());
        if let Some(number) = number {
            files.insert(number, entry.path());
        }
    }
    Ok(files)
}

fn first_bytes(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(HEADER);
    let read = File::open(path).and_then(|file| file.take(HEADER as u64).read_to_end(&mut bytes));
    read.map_err(|error| Error::file("cannot read", path, error))?;
    Ok(bytes)
}

/// The process, or the system, died before its header was on the disk. A longer file had one, which was damaged since.
fn was_just_made(path: &Path) -> Result<bool> {
    let length = fs::metadata(path).map_err(|error| Error::file("cannot read", path, error))?.len();
    if length > HEADER as u64 {
        return Ok(false);
    }
    let bytes = first_bytes(path)?;
    let is_short = bytes.len() < HEADER && record::is_begun(&bytes);
    Ok(is_short || bytes.iter().all(|byte| *byte == 0))
}

/// How long the segment before this one is; `None`: the header is damaged.
fn check_header(number: u64, path: &Path) -> Result<Option<u64>> {
    match record::read_header(&first_bytes(path)?) {
        Some(Header::Whole(found, before)) if found == number => Ok(Some(before)),
        Some(Header::Whole(found, _)) => {
            Err(Error::content(format!("{} is segment {found} by its content", path.display())))
        }
        Some(Header::Damaged) => Ok(None),
        None => Err(Error::content(format!(
            "{} is no segment of a PIMP store of this version, or its first {HEADER} bytes are damaged: name it \
             {number:020}{DAMAGED} to go on without the chunks in it",
            path.display()
        ))),
    }
}

#[derive(Default)]
struct Recovery {
    state: State,
    /// Jobs that have lost a record, and have no newer one so far.
    lost: HashSet<JobId>,
    /// Something stands behind the last seal of the segment that was read last.
    unsealed: bool,
}

impl Recovery {
    /// `end` is what the segment behind it says of its length: what lies behind that was never answered for.
    fn read_segment(&mut self, number: u64, path: PathBuf, end: Option<u64>, last: bool) -> Result<()> {
        let bytes = fs::read(&path).map_err(|error| Error::file("cannot read", &path, error))?;
        let end = end.map_or(bytes.len(), |end| usize::try_from(end).unwrap_or(usize::MAX));
        let bytes = bytes.get(..end).unwrap_or(&bytes);
        let file = Arc::new(File::open(&path).map_err(|error| Error::file("cannot open", &path, error))?);
        let segment = Segment { file, path: path.clone(), bytes: bytes.len() as u64, live: 0, records: 0 };
        self.state.segments.insert(number, segment);
        self.unsealed = false;
        let mut at = HEADER;
        while at < bytes.len() {
            at = match record::scan(bytes.get(at..).unwrap_or_default()) {
                Scanned::Record(encoded, length) => {
                    self.take(number, at, *encoded);
                    self.unsealed = true;
                    at + length
                }
                Scanned::Seal => {
                    self.unsealed = false;
                    at + SEAL
                }
                Scanned::Foreign => {
                    let path = path.display();
                    return Err(Error::content(format!("{path} has a record of another version at byte {at}")));
                }
                Scanned::Broken(owner, length) if bytes.len() - at >= length => {
                    let behind = at + length;
                    if last && !was_synced(bytes, at, behind) {
                        return self.cut(number, &path, owner, at..bytes.len());
                    }
                    self.damaged(&path, at, behind);
                    self.lost.extend(owner);
                    behind
                }
                Scanned::Broken(..) | Scanned::Nothing => {
                    if last && !was_synced(bytes, at, at + 1) {
                        return self.cut(number, &path, None, at..bytes.len());
                    }
                    let behind = record::next_whole(bytes, at + 1).map_or(bytes.len(), |(behind, _)| behind);
                    self.damaged(&path, at, behind);
                    self.go_through(number, bytes, at, behind);
                    behind
                }
            };
        }
        if bytes.len() < end {
            self.damaged(&path, bytes.len(), end);
            self.suspect();
        }
        Ok(())
    }

    /// A record is whole: whatever its job has lost before, it says how the job is now.
    fn take(&mut self, number: u64, at: usize, encoded: Encoded) {
        self.lost.remove(&encoded.id);
        self.state.apply(number, at as u64, encoded);
    }

    /// Between two records that are whole is something else.
    fn go_through(&mut self, number: u64, bytes: &[u8], at: usize, behind: usize) {
        match bytes.get(at..behind).and_then(record::scan_body) {
            Some(encoded) => self.take(number, at, encoded),
            // No record is as short as a seal.
            None if behind - at == SEAL => {}
            None => self.suspect(),
        }
    }

    /// A segment was named as given up: all of it is lost.
    fn give_up(&mut self, path: &Path) -> Result<()> {
        let length = fs::metadata(path).map_err(|error| Error::file("cannot read", path, error))?.len();
        self.damaged(path, 0, usize::try_from(length).unwrap_or(usize::MAX));
        self.suspect();
        Ok(())
    }

    /// Something is lost, and nobody knows whose it was. Chunks may be missing below a final one, and have come later.
    fn suspect(&mut self) {
        let open = self.state.jobs.iter().filter(|(_, entry)| {
            let job = entry.job.as_ref().filter(|job| !job.is_deleted());
            job.is_some_and(|job| !job.is_whole() && job.done().is_none_or(|done| !done.failed))
        });
        self.lost.extend(open.map(|(id, _)| *id));
    }

    fn damaged(&mut self, path: &Path, at: usize, behind: usize) {
        self.state.damaged += 1;
        tracing::error!(
            file = %path.display(), at, bytes = behind - at,
            "a segment of the store is damaged: jobs that have lost something are refused with 410"
        );
    }

    /// What stands at the end of the log was not on the disk when the process died.
    fn cut(&mut self, number: u64, path: &Path, owner: Option<JobId>, what: Range<usize>) -> Result<()> {
        let (at, job) = (what.start, owner.map(|id| id.to_string()));
        tracing::warn!(file = %path.display(), at, bytes = what.len(), job, "a write that was not finished is cut off");
        let cut = OpenOptions::new().write(true).open(path).and_then(|file| {
            file.set_len(at as u64)?;
            file.sync_all()
        });
        cut.map_err(|error| Error::file("cannot cut", path, error))?;
        if let Some(segment) = self.state.segments.get_mut(&number) {
            segment.bytes = at as u64;
        }
        Ok(())
    }

    /// Makes durable what was read at the end of the log, and says so behind it.
    ///
    /// Where only the process died, the last write may be in the system's memory alone; whoever sends it again is told that it is there.
    /// From now on what breaks of it is damage, and no write that was cut.
    fn secure(&mut self, number: u64, path: &Path) -> Result<()> {
        let failed = |error: io::Error| Error::file("cannot sync", path, error);
        let mut file = OpenOptions::new().append(true).open(path).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        let Some(segment) = self.state.segments.get_mut(&number).filter(|_| self.unsealed) else { return Ok(()) };
        // The seal stands behind all there is in the file, where an append begins.
        let length = file.metadata().map_err(failed)?.len();
        match file.write_all(&record::seal(length)).and_then(|()| file.sync_data()) {
            Ok(()) => segment.bytes = length + SEAL as u64,
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "the end of the log cannot be sealed");
                // What is left of it is cut off by the next start.
                let _ = file.set_len(length);
            }
        }
        Ok(())
    }

    fn end(self, now: u64) -> State {
        let Self { mut state, mut lost, .. } = self;
        state.forget_strangers();
        for (id, entry) in &mut state.jobs {
            let was_named = lost.remove(id);
            let Some(job) = entry.job.as_mut().filter(|job| !job.is_deleted()) else { continue };
            if !was_named && job.indices().count() as usize == entry.chunks.len() {
                continue;
            }
            job.set_lost();
            if now < job.expires_at() {
                tracing::error!(job = %id, "the job has lost chunks, or its newest state: it is refused with 410");
            }
        }
        for id in lost {
            tracing::error!(job = %id, "a job is lost, and not known any more");
        }
        state
    }
}

/// Whether what is broken at `at` was on the disk once: something behind it says so.
fn was_synced(bytes: &[u8], at: usize, behind: usize) -> bool {
    let mut from = behind;
    while let Some((next, synced)) = record::next_whole(bytes, from) {
        if synced > at as u64 {
            return true;
        }
        from = next + SEAL;
    }
    false
}
