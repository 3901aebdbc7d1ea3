//! What workers have done of what was set aside: `SESSION/settled.jsonl`, beside the list, which may have been closed long
//! ago. A line for each claim check that was settled COMPLETE without a session; one may be there twice.

use std::collections::{HashMap, HashSet};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use penstock_io::records::sync_folder;
use penstock_pipestream::Status;
use serde::{Deserialize, Serialize};

use super::super::claims::ClaimRow;
use super::super::outcomes::lock;
use super::FolderSink;

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

impl FolderSink {
    /// Keeps what was settled without a session, beside the lists of the sessions in which it was set aside; what is there
    /// already is not written again. Blocks on the disk.
    pub(crate) fn note_settled(&self, rows: &[ClaimRow]) -> io::Result<()> {
        let shared = self.shared.get().map_err(io::Error::other)?;
        let _settling = lock(&shared.settling);
        let mut by_session: HashMap<String, Vec<Line>> = HashMap::new();
        for row in rows {
            if let Some(session) = row.check.session {
                // Its file says which, where the session's ID was used more than once.
                let folder = row.details.file.as_deref().and_then(|file| file.split('/').next());
                let folder = folder.map_or_else(|| session.to_string(), str::to_owned);
                by_session.entry(folder).or_default().push(row.into());
            }
        }
        for (session, lines) in by_session {
            let folder = shared.dir.join(session);
            // Whoever has removed a session needs nothing of it.
            if folder.is_dir() {
                note(&folder.join(SETTLED), lines)?;
            }
        }
        Ok(())
    }
}

fn note(path: &Path, lines: Vec<Line>) -> io::Result<()> {
    let octets = match fs::read(path) {
        Ok(octets) => octets,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    let whole = octets.iter().rposition(|octet| *octet == b'\n').map_or(0, |at| at + 1);
    let there = octets.get(..whole).unwrap_or_default().split(|octet| *octet == b'\n');
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
    // What a process has left that was killed while it wrote.
    file.set_len(whole as u64)?;
    file.write_all(&text)?;
    file.sync_all()?;
    sync_folder(path)
}
