//! The deferred work that workers have done: `SESSION/settled.jsonl`, next to the list, which may
//! have been closed long ago. It has a line for each claim check that was settled COMPLETE without
//! a session; a line may appear twice.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;

use penstock_io::sync::lock;
use penstock_log::{Disk, SystemDisk};
use penstock_pipestream::Status;
use penstock_pipestream_net::ClaimRow;
use serde::{Deserialize, Serialize};

use crate::folder::shared::Shared;
use crate::format::line_file::LineFile;

/// The name of the file.
const SETTLED: &str = "settled.jsonl";

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    /// The claim check's ID, in 16 hex digits.
    claim: String,
    scope: u16,
    entity: u32,
    status: String,
    file: Option<String>,
}

impl From<&ClaimRow> for Line {
    fn from(row: &ClaimRow) -> Self {
        let ClaimRow { check, details } = row;
        Self {
            claim: format!("{:016x}", check.id),
            scope: check.scope,
            entity: check.entity,
            status: Status::Complete.name().to_owned(),
            file: details.file.clone(),
        }
    }
}

/// Write a line for each claim check that was settled without a session, next to the list of the
/// session in which it was deferred. Existing lines are not written again. Blocks on the disk.
pub(super) fn note_all(shared: &Shared, rows: &[ClaimRow]) -> io::Result<()> {
    let _settling = lock(&shared.settling);
    let mut by_session: HashMap<String, Vec<Line>> = HashMap::new();
    for row in rows {
        if let Some(session) = row.check.session {
            // If the session's ID was used more than once, only the payload's name contains the
            // right folder.
            let folder = row.details.file.as_deref().and_then(|file| file.split('/').next());
            let folder = folder.map_or_else(|| session.to_string(), str::to_owned);
            by_session.entry(folder).or_default().push(row.into());
        }
    }
    for (session, lines) in by_session {
        let folder = shared.dir.join(session);
        // A session that was removed needs no line.
        if folder.is_dir() {
            note(&SystemDisk, &folder.join(SETTLED), &lines)?;
        }
    }
    Ok(())
}

fn note(disk: &dyn Disk, path: &Path, lines: &[Line]) -> io::Result<()> {
    let file = LineFile::open(disk, path)?;
    let bytes = file.read(0)?;
    let there = bytes.split(|byte| *byte == b'\n');
    let there: HashSet<String> =
        there.filter_map(|line| serde_json::from_slice::<Line>(line).ok()).map(|line| line.claim).collect();
    let mut text = Vec::new();
    for line in lines.iter().filter(|line| !there.contains(&line.claim)) {
        serde_json::to_writer(&mut text, line)?;
        text.push(b'\n');
    }
    if text.is_empty() { Ok(()) } else { file.append(bytes.len() as u64, &text) }
}

#[cfg(test)]
mod tests {
    use penstock_log::make_folder;
    use penstock_testkit::disk::{Fault, MemoryDisk};

    use super::*;

    fn path() -> &'static Path {
        Path::new("sink/session/settled.jsonl")
    }

    fn line(entity: u32) -> Line {
        let file = Some(format!("session/0/{entity}{}", "0".repeat(300)));
        Line { claim: format!("{entity:016x}"), scope: 0, entity, status: Status::Complete.name().to_owned(), file }
    }

    /// Return the claim checks of all lines, including repeated ones.
    fn claims(disk: &MemoryDisk) -> Vec<String> {
        let text = disk.read(path()).unwrap();
        let lines = text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Line>(line).ok());
        lines.map(|line| line.claim).collect()
    }

    /// Note one claim check after another, each time with all before it, as a server does at its
    /// start.
    fn run(disk: &MemoryDisk) -> Vec<String> {
        let mut noted = Vec::new();
        for entity in 1..6 {
            let lines: Vec<Line> = (1..=entity).map(line).collect();
            let made = make_folder(disk, Path::new("sink/session"));
            if made.and_then(|()| note(disk, path(), &lines)).is_ok() {
                noted = lines.into_iter().map(|line| line.claim).collect();
            }
        }
        noted
    }

    #[test]
    fn a_line_that_could_not_be_made_durable_is_written_again_and_is_there_once() {
        let whole = MemoryDisk::default();
        let all = run(&whole);
        assert_eq!((all.len(), claims(&whole)), (5, all.clone()));
        for fault in [Fault::Io, Fault::Full, Fault::Short] {
            for call in 0..whole.calls() {
                let disk = MemoryDisk::default();
                disk.fail(call, fault, 1);
                run(&disk);
                note(&disk, path(), &(1..6).map(line).collect::<Vec<_>>()).unwrap();
                assert_eq!(claims(&disk.crash(call)), all, "{fault:?} at call {call}");
            }
        }
    }

    #[test]
    fn what_was_noted_is_there_wherever_the_power_goes() {
        let whole = MemoryDisk::default();
        let all = run(&whole);
        for call in 0..=whole.calls() {
            let disk = MemoryDisk::default();
            disk.fail(call, Fault::Power, 1);
            let noted = run(&disk);
            for seed in 0..6 {
                let image = disk.crash(seed);
                assert!(noted.is_empty() || claims(&image).starts_with(&noted), "call {call}, image {seed}");
                run(&image);
                let again = claims(&image.crash(seed));
                assert!(
                    all.iter().all(|claim| again.iter().filter(|it| *it == claim).count() == 1),
                    "call {call}: {again:?}"
                );
            }
        }
    }
}
