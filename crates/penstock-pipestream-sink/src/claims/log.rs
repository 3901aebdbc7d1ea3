//! The log of claim checks in a folder (`penstock-log`).
//!
//! ```text
//!  00000000000000000001.claims   records (record.rs)
//!  lock                          held by the process that writes
//! ```
//!
//! When most of it concerns claim checks that are forgotten, all that is known is written once more, and what was before goes. So it is
//! at a start that has found damage: the places that are lost are records then (doubts.rs).

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

/// How many times as long as what is known the log may get, and how much longer.
const TIMES: u64 = 4;
const BEYOND: u64 = 1 << 20;
/// How often a reader begins again, because the server has written the log anew meanwhile.
const ROUNDS: usize = 8;

/// The log of a folder that is this process's.
#[derive(Debug)]
pub(super) struct ClaimLog {
    log: Log,
    /// Bytes that are appended together, at most.
    group: usize,
    /// Bytes from which on it is written anew.
    limit: u64,
    /// Records that the disk did not take. The book has them, so they go with the next ones.
    owed: Vec<Entry>,
}

impl ClaimLog {
    /// Read what is in a folder.
    pub(super) fn open(disk: &Arc<dyn Disk>, folder: &Path, format: Format, state: &mut State) -> Result<Self> {
        let earlier = earlier::look(&**disk, folder, |(record, details)| state.restore(record, details))?;
        let mut heard = Heard { state, records: 0, is_new: false };
        let log = Log::open(Arc::clone(disk), folder, format, &mut heard).map_err(penstock_io::Error::from)?;
        let (records, is_damaged) = (heard.records, heard.is_new);
        let bytes = log.bytes().load(Ordering::Relaxed);
        let known = (bytes / records.max(1)).saturating_mul(state.book.len() as u64);
        let (limit, owed) = (known.saturating_mul(TIMES).saturating_add(BEYOND), Vec::new());
        let group = usize::try_from(format.segment).unwrap_or(GROUP).min(GROUP);
        let mut opened = Self { log, group, limit, owed };
        if is_damaged {
            tracing::error!(
                folder = %folder.display(), claims = state.doubts.all().count(),
                "claim checks are in doubt: records of them are damaged. Whoever asks about one gets an error"
            );
        }
        if earlier.is_some() {
            let path = folder.join(earlier::NAME);
            let failed = |error| Error::file("cannot write anew", &path, error);
            opened.write_anew(&state.entries()).map_err(failed)?;
            // It must not come back over what the log says from now on.
            disk.remove(&path).and_then(|()| disk.sync_folder(folder)).map_err(failed)?;
        } else if is_damaged {
            opened.limit = 0;
            opened.tidy(&mut || state.entries());
        }
        Ok(opened)
    }

    /// Return how many places were found damaged.
    pub(super) const fn damaged(&self) -> u64 {
        self.log.damaged()
    }

    /// Append records; they are durable when this returns. Those that the disk does not take precede the next ones.
    pub(super) fn append(&mut self, mut entries: Vec<Entry>) -> io::Result<()> {
        if !self.owed.is_empty() {
            entries.splice(..0, self.owed.drain(..));
        }
        let written = self.append_all(&entries);
        if let Err((durable, error)) = written {
            entries.drain(..durable);
            self.owed = without_voided(entries);
            return Err(error);
        }
        // So a start can tell what breaks of them from a write that was cut, although this process be killed now. They are on the
        // disk without it, too.
        let _ = self.log.seal_unsynced();
        Ok(())
    }

    /// Append records in groups. Where it fails, say how many are durable.
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

    /// Say of all records that they are durable: what breaks of them from then on is damage.
    pub(super) fn seal(&mut self) -> io::Result<()> {
        self.log.seal()
    }

    /// Write the log anew where it has become long.
    pub(super) fn tidy(&mut self, entries: &mut dyn FnMut() -> Vec<Entry>) {
        let bytes = self.log.bytes().load(Ordering::Relaxed);
        if bytes < self.limit {
            return;
        }
        if let Err(error) = self.write_anew(&entries()) {
            self.limit = bytes.saturating_mul(2).saturating_add(BEYOND);
            tracing::warn!(folder = %self.log.folder().display(), %error, "the log of claim checks stays as long as it is");
        }
    }

    /// Write all that is known into new segments, and remove those before.
    ///
    /// A crash may come at any time: what is said again of a claim check stands for all that was said of it before, and says no less.
    fn write_anew(&mut self, entries: &[Entry]) -> io::Result<()> {
        let before: Vec<u64> = self.log.segments().map(|(number, _)| number).collect();
        self.log.end_segment();
        let written = self.append_all(entries).map_err(|(_, error)| error).and_then(|()| self.log.seal());
        if written.is_err() {
            // They take room on a disk that may be full.
            let new: Vec<u64> =
                self.log.segments().map(|(number, _)| number).filter(|it| !before.contains(it)).collect();
            self.log.remove(new);
            return written;
        }
        // Oldest first: what a segment says may not hold any more once a later one has gone.
        if let Err(error) = self.log.remove_in_order(before) {
            tracing::warn!(folder = %self.log.folder().display(), %error, "old segments of the log of claim checks stay for now");
        }
        self.limit = self.log.bytes().load(Ordering::Relaxed).saturating_mul(TIMES).saturating_add(BEYOND);
        Ok(())
    }
}

/// Leave out claim checks that were issued and voided: no peer has heard of them.
fn without_voided(mut entries: Vec<Entry>) -> Vec<Entry> {
    let of = |form| entries.iter().filter(move |entry| entry.form == form).map(|entry| entry.id).collect();
    let (issued, voided): (HashSet<u64>, HashSet<u64>) = (of(Form::Change), of(Form::Voided));
    entries.retain(|entry| !(issued.contains(&entry.id) && voided.contains(&entry.id)));
    entries
}

/// Read what is in a folder, of which another process may be the owner, without changing it.
pub(super) fn look(disk: &dyn Disk, folder: &Path, format: &Format, state: &mut State) -> Result<()> {
    match disk.list(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        names => drop(names.map_err(|error| Error::file("cannot read", folder, error))?),
    }
    for round in 1.. {
        *state = State::default();
        earlier::look(disk, folder, |(record, details)| state.restore(record, details))?;
        let mut heard = Heard { state, records: 0, is_new: false };
        match log::look(disk, folder, format, &mut heard) {
            // Its owner has removed a segment.
            Err(log::Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound && round < ROUNDS => {}
            looked => return looked.map(drop).map_err(|error| penstock_io::Error::from(error).into()),
        }
    }
    Ok(())
}

/// Return whether a folder has claim checks.
pub(super) fn exists(disk: &dyn Disk, folder: &Path, format: &Format) -> bool {
    let is_ours = |name: &String| name == earlier::NAME || name.ends_with(format.suffix) || name.ends_with(".damaged");
    disk.list(folder).is_ok_and(|names| names.iter().any(is_ours))
}

/// What is heard of the log, oldest first.
struct Heard<'a> {
    state: &'a mut State,
    records: u64,
    /// A place is lost of which the log does not tell.
    is_new: bool,
}

impl Heard<'_> {
    fn lose(&mut self, id: Option<u64>, hole: &Hole<'_>) {
        self.is_new = true;
        self.state.lose(id, &hole.to_string());
    }
}

impl Replay for Heard<'_> {
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
