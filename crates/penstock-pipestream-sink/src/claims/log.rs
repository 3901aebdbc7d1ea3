//! The log of claim checks in a folder (`penstock-log`).
//!
//! ```text
//!  00000000000000000001.claims   records (record.rs)
//!  lock                          held by the process that writes
//! ```
//!
//! When most records concern forgotten claim checks, the server rewrites the state of all others
//! and removes the earlier segments. A start that finds damage does the same, and adds records of
//! the lost places (doubts.rs).

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use penstock_io::DriverError as _;
use penstock_log::{self as log, Disk, Format, GROUP, Hole, Log, Replay};
use penstock_pipestream::claims::ClaimRecord;

use crate::claims::earlier;
use crate::claims::record::{Entry, Form, Item, SHORTEST, read_body, read_label};
use crate::claims::state::State;
use crate::{Error, Result};

/// The log is rewritten when it exceeds `TIMES` the size of its current state, plus `BEYOND` bytes.
const TIMES: u64 = 4;
const BEYOND: u64 = 1 << 20;
/// Maximum number of attempts of a reader, which starts again if the server rewrites the log in the
/// meantime.
const ROUNDS: usize = 8;

/// The log of a folder that this process has locked.
#[derive(Debug)]
pub(super) struct ClaimLog {
    log: Log,
    /// Maximum number of bytes of a group of records.
    group: usize,
    /// Number of bytes from which on the log is rewritten.
    limit: u64,
    /// Records that could not be written. The book has their changes, so they are written with the
    /// next ones.
    unwritten: Vec<Entry>,
}

impl ClaimLog {
    /// Read the log of a folder that this process has locked.
    pub(super) fn open(disk: &Arc<dyn Disk>, folder: &Path, format: Format, state: &mut State) -> Result<Self> {
        let earlier = earlier::look(&**disk, folder, |(record, details)| state.restore(record, details))?;
        let mut heard = ClaimReplay { state, records: 0, is_new: false };
        let log = Log::open(Arc::clone(disk), folder, format, &mut heard).map_err(penstock_io::Error::from)?;
        let (records, is_damaged) = (heard.records, heard.is_new);
        let bytes = log.bytes().load(Ordering::Relaxed);
        let known = (bytes / records.max(1)).saturating_mul(state.book.len() as u64);
        let (limit, unwritten) = (known.saturating_mul(TIMES).saturating_add(BEYOND), Vec::new());
        let group = usize::try_from(format.segment).unwrap_or(GROUP).min(GROUP);
        let mut opened = Self { log, group, limit, unwritten };
        if is_damaged {
            tracing::error!(
                folder = %folder.display(), claims = state.doubts.all().count(),
                "claim checks are in doubt: records of them are damaged. A question about one of them fails"
            );
        }
        if earlier.is_some() {
            let path = folder.join(earlier::NAME);
            let failed = |error| Error::file("cannot rewrite", &path, error);
            opened.rewrite(&state.entries()).map_err(failed)?;
            // Remove the file, because a later start must not apply its records over newer ones of
            // the log.
            disk.remove(&path).and_then(|()| disk.sync_folder(folder)).map_err(failed)?;
        } else if is_damaged {
            opened.limit = 0;
            opened.tidy(&mut || state.entries());
        }
        Ok(opened)
    }

    /// Return how many damaged places were found.
    pub(super) const fn damaged(&self) -> u64 {
        self.log.damaged()
    }

    /// Append records. They are durable when this returns. Records that could not be written
    /// precede the next ones.
    pub(super) fn append(&mut self, mut entries: Vec<Entry>) -> io::Result<()> {
        if !self.unwritten.is_empty() {
            entries.splice(..0, self.unwritten.drain(..));
        }
        let written = self.append_all(&entries);
        if let Err((durable, error)) = written {
            entries.drain(..durable);
            self.unwritten = without_voided(entries);
            return Err(error);
        }
        // The seal lets a start tell damage of these records from a torn write, even if this
        // process is killed now. The records are durable without it.
        let _ = self.log.seal_unsynced();
        Ok(())
    }

    /// Append records in groups. On failure, return how many of them are durable.
    fn append_all(&mut self, entries: &[Entry]) -> std::result::Result<(), (usize, io::Error)> {
        let (mut done, most) = (0, self.group);
        while let Some(rest) = entries.get(done..).filter(|rest| !rest.is_empty()) {
            let mut bytes = 0;
            let fits = |entry: &&Entry| {
                bytes += entry.length();
                bytes <= most
            };
            let count = rest.iter().take_while(fits).count().max(1);
            self.log.append(rest.get(..count).unwrap_or(rest)).map_err(|error| (done, error))?;
            done += count;
        }
        Ok(())
    }

    /// Mark all records as durable, so that later changes of their bytes count as damage.
    pub(super) fn seal(&mut self) -> io::Result<()> {
        self.log.seal()
    }

    /// Rewrite the log if it has become long.
    pub(super) fn tidy(&mut self, entries: &mut dyn FnMut() -> Vec<Entry>) {
        let bytes = self.log.bytes().load(Ordering::Relaxed);
        if bytes < self.limit {
            return;
        }
        if let Err(error) = self.rewrite(&entries()) {
            self.limit = bytes.saturating_mul(2).saturating_add(BEYOND);
            tracing::warn!(folder = %self.log.folder().display(), %error, "the log of claim checks stays as long as it is");
        }
    }

    /// Write the state of all claim checks into new segments, and remove the earlier ones. A crash
    /// may come at any time: the new record of a claim check replaces all its earlier ones, and
    /// contains as much.
    fn rewrite(&mut self, entries: &[Entry]) -> io::Result<()> {
        let before: Vec<u64> = self.log.segments().map(|(number, _)| number).collect();
        self.log.end_segment();
        let written = self.append_all(entries).map_err(|(_, error)| error).and_then(|()| self.log.seal());
        if written.is_err() {
            // The new segments take space on a disk that may be full.
            let new: Vec<u64> =
                self.log.segments().map(|(number, _)| number).filter(|it| !before.contains(it)).collect();
            self.log.remove(new);
            return written;
        }
        // Remove the oldest first, because a later segment may override an outdated record.
        if let Err(error) = self.log.remove_in_order(before) {
            tracing::warn!(folder = %self.log.folder().display(), %error, "old segments of the log of claim checks stay for now");
        }
        self.limit = self.log.bytes().load(Ordering::Relaxed).saturating_mul(TIMES).saturating_add(BEYOND);
        Ok(())
    }
}

/// Leave out claim checks that were issued and voided: no peer knows them.
fn without_voided(mut entries: Vec<Entry>) -> Vec<Entry> {
    let of = |form| entries.iter().filter(move |entry| entry.form == form).map(|entry| entry.id).collect();
    let (issued, voided): (HashSet<u64>, HashSet<u64>) = (of(Form::Change), of(Form::Voided));
    entries.retain(|entry| !(issued.contains(&entry.id) && voided.contains(&entry.id)));
    entries
}

/// Read the log of a folder without changing it, because another process may be writing it.
pub(super) fn look(disk: &dyn Disk, folder: &Path, format: &Format, state: &mut State) -> Result<()> {
    match disk.list(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        names => drop(names.map_err(|error| Error::file("cannot read", folder, error))?),
    }
    for round in 1.. {
        *state = State::default();
        earlier::look(disk, folder, |(record, details)| state.restore(record, details))?;
        let mut heard = ClaimReplay { state, records: 0, is_new: false };
        match log::look(disk, folder, format, &mut heard) {
            // The writing process has removed a segment: start again.
            Err(log::Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound && round < ROUNDS => {}
            looked => return looked.map(drop).map_err(|error| penstock_io::Error::from(error).into()),
        }
    }
    Ok(())
}

/// Return whether a folder contains claim checks.
pub(super) fn exists(disk: &dyn Disk, folder: &Path, format: &Format) -> bool {
    let is_ours = |name: &String| name == earlier::NAME || name.ends_with(format.suffix) || name.ends_with(".damaged");
    disk.list(folder).is_ok_and(|names| names.iter().any(is_ours))
}

/// The receiver of the log's records, oldest first.
struct ClaimReplay<'a> {
    state: &'a mut State,
    records: u64,
    /// Whether a place is lost for which the log has no record yet.
    is_new: bool,
}

impl ClaimReplay<'_> {
    fn lose(&mut self, id: Option<u64>, hole: &Hole<'_>) {
        self.is_new = true;
        self.state.lose(id, &hole.to_string());
    }
}

impl Replay for ClaimReplay<'_> {
    fn record(&mut self, entry: &log::Entry<'_>) -> Option<()> {
        self.records += 1;
        self.state.replay(read_body(entry.body)?);
        Some(())
    }

    fn hole(&mut self, hole: &Hole<'_>) {
        let body = hole.body.and_then(|(_, body)| read_body(body));
        match (body, hole.label.as_ref().and_then(read_label)) {
            (Some(item), _) => self.state.replay(item),
            (None, Some((Some(id), Form::Voided))) => {
                self.state.replay(Item::Change((ClaimRecord::Voided { id }, None)));
            }
            (None, Some((id, _))) => self.lose(id, hole),
            (None, None) if hole.loses && hole.end - hole.start >= SHORTEST => self.lose(None, hole),
            (None, None) => {}
        }
    }
}

#[cfg(test)]
mod tests;
