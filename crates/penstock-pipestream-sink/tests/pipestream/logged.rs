//! The log in a folder of sessions' records, examined from outside.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_log::{Entry, Format, Hole, Log, Replay, SystemDisk};

/// The end of a segment's file name, after its number.
const SUFFIX: &str = ".log.session";
/// The number of bytes of a record before its parts: the session's ID, the form, two numbers.
const BEFORE: usize = 25;

/// The parts of each session in a log, and the number of damaged places.
#[derive(Default)]
pub(crate) struct Sessions {
    pub(crate) parts: HashMap<[u8; 16], Vec<u8>>,
    holes: usize,
}

impl Replay for Sessions {
    fn record(&mut self, entry: &Entry<'_>) -> Option<()> {
        let parts = || entry.body[BEFORE..].to_vec();
        match entry.body[16] {
            b'n' | b'w' => drop(self.parts.insert(entry.label, parts())),
            b'm' => self.parts.entry(entry.label).or_default().extend(parts()),
            b'G' => drop(self.parts.remove(&entry.label)),
            _ => {}
        }
        Some(())
    }

    fn hole(&mut self, _: &Hole<'_>) {
        self.holes += 1;
    }
}

/// Return the segments in a folder, oldest first.
pub(crate) fn segments(folder: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<_> = names.filter(|path| path.to_string_lossy().ends_with(SUFFIX)).collect();
    names.sort();
    names
}

/// Return the sessions in a folder. Read a copy, because a process may be writing the folder.
pub(crate) fn sessions(folder: &Path) -> Sessions {
    let copy = tempfile::tempdir().unwrap();
    for segment in segments(folder) {
        // The segment may be removed in the meantime.
        drop(fs::copy(&segment, copy.path().join(segment.file_name().unwrap())));
    }
    let mut sessions = Sessions::default();
    // The header of each segment states the kind of the log.
    let header = segments(copy.path()).first().map(|segment| fs::read(segment).unwrap());
    let kind = header.and_then(|header| header.get(8..16)?.try_into().ok()).unwrap_or_default();
    let format = Format { kind, suffix: SUFFIX, what: "the journal of sessions", segment: 16 << 20 };
    Log::open(Arc::new(SystemDisk), copy.path(), format, &mut sessions).unwrap();
    sessions
}

/// Return the number of sessions in a folder. A damaged place counts as one: a server that started
/// there removes the damaged segment a moment later, when its sessions have ended.
pub(crate) fn count(folder: &Path) -> usize {
    let Sessions { parts, holes } = sessions(folder);
    parts.len() + holes
}
