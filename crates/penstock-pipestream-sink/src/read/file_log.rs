//! The journal of a folder: a file of lines to which all processes that follow the sink append, one
//! process at a time.
//!
//! Each line states how many bytes of the file were durable when it was written, as the records of
//! `penstock-log` do. This distinguishes damage from lines whose writing a crash interrupted.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_io::DriverError as _;
use penstock_log::Disk;
use serde::Deserialize;

use crate::format::line_file::LineFile;
use crate::read::store::JournalLog;
use crate::{Error, Result};

/// The journal's file, at the top of a sink's folder.
pub(super) const FILE: &str = "closed.jsonl";

/// The journal in a folder: a file that is locked while a process reads and appends.
#[derive(Debug)]
pub(super) struct FileLog {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    open: Option<OpenFile>,
    read_to: u64,
}

#[derive(Debug)]
struct OpenFile {
    lines: LineFile,
    /// The same file, opened for its lock.
    lock: File,
    lock_state: LockState,
}

/// The state of the file's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LockState {
    /// Any process may change the file.
    Released,
    /// Only this process may change the file.
    Held,
}

/// The field of a line that states how much of the file was durable when the line was written.
#[derive(Debug, Deserialize)]
struct Mark {
    /// The number of durable bytes of the file; `None` in a line of an earlier version.
    synced: Option<u64>,
}

impl FileLog {
    pub(super) fn new(disk: Arc<dyn Disk>, dir: &Path) -> Self {
        Self { disk, path: dir.join(FILE), open: None, read_to: 0 }
    }

    fn lock(&mut self) -> io::Result<&LineFile> {
        let open = match self.open.take() {
            Some(open) => open,
            None => {
                let lines = LineFile::open(&*self.disk, &self.path)?;
                OpenFile { lines, lock: File::open(&self.path)?, lock_state: LockState::Released }
            }
        };
        let open = self.open.insert(open);
        match open.lock_state {
            LockState::Released => {
                open.lock.lock()?;
                open.lock_state = LockState::Held;
            }
            LockState::Held => {}
        }
        Ok(&open.lines)
    }

    fn read(&mut self) -> io::Result<Vec<u8>> {
        let from = self.read_to;
        let lines = self.lock()?;
        let mut new = lines.read(from)?;
        // The machine has not crashed since the first read, so only that read can find torn lines.
        let durable = if from == 0 { durable(&new) } else { new.len() };
        if durable < new.len() {
            lines.cut(durable as u64)?;
            tracing::warn!(
                path = %self.path.display(), bytes = new.len() - durable,
                "truncated lines that were being written when the machine crashed: no reader has seen them"
            );
            new.truncate(durable);
        }
        self.read_to = from + new.len() as u64;
        Ok(new)
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let end = self.read_to;
        let marked = marked(lines, end);
        self.lock()?.append(end, &marked)?;
        self.read_to = end + marked.len() as u64;
        Ok(())
    }

    fn failed(&self, error: io::Error) -> Error {
        Error::file("cannot keep the order of the sink's sessions in", &self.path, error)
    }
}

/// Add to each line, a JSON object with at least one key, how many bytes of the file are durable.
fn marked(lines: &[u8], synced: u64) -> Vec<u8> {
    let end = format!(",\"synced\":{synced}}}\n");
    let objects = lines.split(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"}"));
    objects.flat_map(|object| object.iter().chain(end.as_bytes())).copied().collect()
}

/// Return the end of the lines that a reader may have seen. A power cut may leave zeros in sectors
/// of lines that were being written, even before intact lines. But if a later line states that
/// those bytes were durable, they are damaged.
fn durable(lines: &[u8]) -> usize {
    let (mut at, mut torn) = (0, None);
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        match (serde_json::from_slice::<Mark>(line), torn) {
            (Ok(_), None) => {}
            (Ok(Mark { synced: Some(synced) }), Some(torn)) if synced <= torn as u64 => {}
            (Ok(_), Some(_)) => return lines.len(),
            (Err(_), _) if line.contains(&0) => torn = torn.or(Some(at)),
            // No crash leaves any other invalid line; the caller ignores empty lines and reports
            // the others.
            (Err(_), _) => {}
        }
        at += line.len();
    }
    torn.unwrap_or(lines.len())
}

impl JournalLog for FileLog {
    fn read_new(&mut self) -> Result<Vec<u8>> {
        self.read().map_err(|error| self.failed(error))
    }

    fn append(&mut self, lines: &[u8]) -> Result<bool> {
        self.write(lines).map_err(|error| self.failed(error))?;
        Ok(true)
    }

    fn release(&mut self) {
        let Some(open) = &mut self.open else { return };
        match std::mem::replace(&mut open.lock_state, LockState::Released) {
            LockState::Released => {}
            LockState::Held => {
                if let Err(error) = open.lock.unlock() {
                    tracing::warn!(path = %self.path.display(), %error, "cannot unlock the journal");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use penstock_log::make_folder;
    use penstock_testkit::disk::{Fault, MemoryDisk};

    use super::*;

    /// The number of lines in a run.
    const LINES: usize = 160;

    fn line(number: usize) -> Vec<u8> {
        format!("{{\"session\":\"{number}\",\"rows\":1,\"octets\":7}}\n").into_bytes()
    }

    /// Return the end of the group of lines that begins with this line; some groups span several
    /// sectors.
    fn group(first: usize) -> usize {
        (first + [1, 3, 28, 9][first % 4]).min(LINES)
    }

    /// A folder in memory, and one on disk with a file of the same name, for its lock.
    struct Place {
        disk: MemoryDisk,
        folder: tempfile::TempDir,
    }

    impl Place {
        fn new() -> Self {
            Self::of(MemoryDisk::default())
        }

        fn of(disk: MemoryDisk) -> Self {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join(FILE), "").unwrap();
            Self { disk, folder }
        }

        fn path(&self) -> PathBuf {
            Path::new("sink").join(FILE)
        }

        /// Return the journal as a newly started process opens it.
        fn journal(&self) -> FileLog {
            let _ = make_folder(&self.disk, Path::new("sink"));
            let journal = FileLog::new(Arc::new(self.disk.clone()), Path::new("sink"));
            let lock = File::open(self.folder.path().join(FILE)).unwrap();
            match LineFile::open(&self.disk, &self.path()) {
                Ok(lines) => {
                    FileLog { open: Some(OpenFile { lines, lock, lock_state: LockState::Released }), ..journal }
                }
                Err(_) => journal,
            }
        }

        /// Return how many lines a newly started process finds, and assert that they are the first
        /// ones.
        fn found(&self) -> usize {
            let found = strip(&self.journal().read_new().unwrap());
            let count = found.split_inclusive(|byte| *byte == b'\n').count();
            assert_eq!(found, (0..count).flat_map(line).collect::<Vec<u8>>());
            count
        }

        /// Append all lines from `from` on, by two processes in turn that retry failed appends.
        /// Return how many lines were appended, and the end of the last group tried, which may be
        /// stored as well.
        fn run(&self, from: usize) -> (usize, usize) {
            let mut journals = [self.journal(), self.journal()];
            let (mut count, mut end) = (from, from);
            for turn in 0..2 * LINES {
                let journal = &mut journals[turn % 2];
                if count < LINES && journal.read_new().is_ok() {
                    end = group(count);
                    let lines: Vec<u8> = (count..end).flat_map(line).collect();
                    if journal.append(&lines).is_ok() {
                        count = end;
                    }
                }
                journal.release();
            }
            (count, end)
        }
    }

    /// Return the lines without their marks.
    fn strip(lines: &[u8]) -> Vec<u8> {
        let bare = |line: &str| format!("{}}}\n", &line[..line.find(",\"synced\"").unwrap()]).into_bytes();
        str::from_utf8(lines).unwrap().lines().flat_map(bare).collect()
    }

    #[test]
    fn what_was_appended_is_there_wherever_the_power_goes_and_no_part_of_a_line_is() {
        let whole = Place::new();
        assert_eq!((whole.run(0).0, whole.found()), (LINES, LINES));
        for call in 0..=whole.disk.calls() {
            let place = Place::new();
            place.disk.fail(call, Fault::Power, 1);
            let (count, end) = place.run(0);
            for seed in 0..8 {
                let image = Place::of(place.disk.crash(seed));
                let found = image.found();
                assert!((count..=end).contains(&found), "call {call}, image {seed}: {found}, not {count} to {end}");
                // The journal can still be written, and the lines found are durable.
                assert_eq!(image.run(found).0, LINES);
                assert_eq!(Place::of(image.disk.crash(seed)).found(), LINES, "call {call}, image {seed}");
            }
        }
    }

    #[test]
    fn what_the_disk_did_not_take_is_there_once_when_it_is_appended_again() {
        let whole = Place::new();
        whole.run(0);
        for fault in [Fault::Io, Fault::Full, Fault::Short] {
            for call in 0..whole.disk.calls() {
                let place = Place::new();
                place.disk.fail(call, fault, 1);
                assert_eq!(place.run(0).0, LINES, "{fault:?} at call {call}");
                assert_eq!(Place::of(place.disk.crash(call)).found(), LINES, "{fault:?} at call {call}");
            }
        }
    }

    #[test]
    fn zeros_in_front_of_what_was_on_the_disk_are_damage_and_stay() {
        let place = Place::new();
        place.run(0);
        let whole = place.disk.read(&place.path()).unwrap();
        let unmarked = strip(&whole);
        // The last group has at most 28 lines.
        let last = whole.windows(7).position(|text| text == &b"\"130\",\""[..7]).unwrap();
        for at in (0..last).step_by(97) {
            let mut damaged = whole.clone();
            damaged[at..at + 60].fill(0);
            place.disk.damage(&place.path(), damaged.clone()).unwrap();
            assert_eq!(place.journal().read_new().unwrap(), damaged, "{at}");
            // Earlier versions wrote no marks.
            let mut damaged = unmarked.clone();
            damaged[at / 2..at / 2 + 60].fill(0);
            place.disk.damage(&place.path(), damaged.clone()).unwrap();
            assert_eq!(place.journal().read_new().unwrap(), damaged, "{at}");
        }
    }
}
