//! The log in a folder of sessions' records, looked into from outside.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_log::{Entry, Format, Hole, Log, Replay, SystemDisk};

const FORMAT: Format =
    Format { kind: *b"session2", suffix: ".log.session", what: "the journal of sessions", segment: 16 << 20 };
/// Bytes of a record before its parts: the session's ID, the form, a number.
const BEFORE: usize = 21;

/// The parts of each session in a log.
#[derive(Default)]
struct Sessions(HashMap<[u8; 16], Vec<u8>>);

impl Replay for Sessions {
    fn record(&mut self, entry: &Entry<'_>) -> Option<()> {
        let (head, parts) = entry.body.split_at_checked(BEFORE)?;
        match head[16] {
            b'N' | b'W' => drop(self.0.insert(entry.label, parts.to_vec())),
            b'M' => self.0.entry(entry.label).or_default().extend(parts),
            b'G' => drop(self.0.remove(&entry.label)),
            _ => {}
        }
        Some(())
    }

    fn hole(&mut self, hole: &Hole<'_>) {
        panic!("{hole}");
    }
}

/// The segments in a folder, oldest first.
pub(crate) fn segments(folder: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<_> = names.filter(|path| path.to_string_lossy().ends_with(FORMAT.suffix)).collect();
    names.sort();
    names
}

/// What a folder has of each session. Looks at a copy: a process may be writing it.
pub(crate) fn sessions(folder: &Path) -> HashMap<[u8; 16], Vec<u8>> {
    let copy = tempfile::tempdir().unwrap();
    for segment in segments(folder) {
        // It may go meanwhile.
        drop(fs::copy(&segment, copy.path().join(segment.file_name().unwrap())));
    }
    let mut sessions = Sessions::default();
    Log::open(Arc::new(SystemDisk), copy.path(), FORMAT, &mut sessions).unwrap();
    sessions.0
}

/// How many sessions a folder has.
pub(crate) fn count(folder: &Path) -> usize {
    sessions(folder).len()
}
