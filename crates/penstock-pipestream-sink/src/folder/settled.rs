//! The deferred work that workers have done: `SESSION/settled.jsonl`, next to the list, which may have been closed long
//! ago. It has a line for each claim check that was settled COMPLETE without a session; a line may appear twice.

use std::collections::{HashMap, HashSet};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use penstock_log::{Disk as _, SystemDisk};
use penstock_pipestream::Status;
use penstock_pipestream_net::ClaimRow;
use serde::{Deserialize, Serialize};

use crate::folder::disk::{Faults, Step};
use crate::folder::shared::Shared;
use crate::sync::lock;

/// The file's name.
const SETTLED: &str = "settled.jsonl";

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    /// 16 hex digits.
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

/// Store what was settled without a session, next to the lists of the sessions in which it was deferred; lines that
/// exist already are not written again. Blocks on the disk.
pub(super) fn note_all(shared: &Shared, rows: &[ClaimRow]) -> io::Result<()> {
    let _settling = lock(&shared.settling);
    let mut by_session: HashMap<String, Vec<Line>> = HashMap::new();
    for row in rows {
        if let Some(session) = row.check.session {
            // Its file names the folder, where the session's ID was used more than once.
            let folder = row.details.file.as_deref().and_then(|file| file.split('/').next());
            let folder = folder.map_or_else(|| session.to_string(), str::to_owned);
            by_session.entry(folder).or_default().push(row.into());
        }
    }
    for (session, lines) in by_session {
        let folder = shared.dir.join(session);
        // Nothing is needed for a session that was removed.
        if folder.is_dir() {
            note(&folder, lines, &shared.faults)?;
        }
    }
    Ok(())
}

fn note(folder: &Path, lines: Vec<Line>, faults: &Faults) -> io::Result<()> {
    let path = &folder.join(SETTLED);
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let there = bytes.get(..whole).unwrap_or_default().split(|byte| *byte == b'\n');
    let there: HashSet<String> =
        there.filter_map(|line| serde_json::from_slice::<Line>(line).ok()).map(|line| line.claim).collect();
    let mut text = Vec::new();
    for line in lines.iter().filter(|line| !there.contains(&line.claim)) {
        serde_json::to_writer(&mut text, line)?;
        text.push(b'\n');
    }
    if text.is_empty() {
        return Ok(());
    }
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    // Half a line of a process that was killed while it wrote.
    file.set_len(whole as u64)?;
    let written = file
        .write_all(&text)
        .and_then(|()| faults.check(Step::Sync, path))
        .and_then(|()| file.sync_all())
        .and_then(|()| SystemDisk.sync_folder(folder));
    if written.is_err() {
        // A line that may not be durable must not look as if it existed when it is written again.
        file.set_len(whole as u64)?;
    }
    written
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_line_that_could_not_be_made_durable_is_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(SETTLED);
        let broken = Arc::new(AtomicBool::new(false));
        let now = Arc::clone(&broken);
        let faults =
            Faults::new(
                move |_, _| {
                    if now.load(Ordering::SeqCst) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
                },
            );
        let line = |entity: u32| Line {
            claim: format!("{entity:016x}"),
            scope: 0,
            entity,
            status: Status::Complete.name().to_owned(),
            file: None,
        };
        note(dir.path(), vec![line(1)], &faults).unwrap();
        let before = fs::read(&path).unwrap();
        broken.store(true, Ordering::SeqCst);
        assert!(note(dir.path(), vec![line(1), line(2)], &faults).is_err());
        assert_eq!(fs::read(&path).unwrap(), before);
        broken.store(false, Ordering::SeqCst);
        for _ in 0..2 {
            note(dir.path(), vec![line(1), line(2)], &faults).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 2);
        }
    }
}
