use std::collections::{HashMap, HashSet};

use penstock_io::hex;
use penstock_pipestream::EntityKey;

use crate::Result;
use crate::format::TRANSACTION;
use crate::format::line::Line;
use crate::read::lines::{Lines, closed, damaged, wrong};
use crate::read::session::{ClosedSession, ListedSession};
use crate::read::store::{MAX_CONTENT, Store};

/// Cost of a row in addition to its content, as a number of bytes: its line, and opening its file.
const ROW_COST: u64 = 4 << 10;

/// A range of a closed session's list, to be read by one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Where its first line starts.
    pub start: u64,
    /// Where its last line ends.
    pub end: u64,
    /// The number of its rows.
    pub rows: u64,
    /// The total size of their payloads in bytes.
    pub bytes: u64,
}

/// Limits of the pieces of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanLimits {
    /// The maximum size of a piece's payloads in bytes; a single row may exceed it.
    pub bytes: u64,
    /// The maximum number of rows in a piece.
    pub rows: u64,
    /// The maximum number of pieces in the plan.
    pub pieces: usize,
}

/// Pieces of a session, and where the rest of it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The pieces in the order of the list; they do not overlap.
    pub pieces: Vec<Piece>,
    /// Where the next plan continues; `None` at the end of the list.
    pub next: Option<u64>,
}

/// The rows that a caller wants; the default is every row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// The documents whose rows are wanted; `None` for all.
    pub documents: Option<HashSet<String>>,
    /// The names of the wanted rows, `None` for all: a row's file, or `SESSION/SCOPE/ENTITY` if it
    /// has no file.
    pub names: Option<HashSet<String>>,
}

/// Examine a session's list. Return `None` if it is not closed with 0, because such a session is
/// not read.
pub fn examine(store: &dyn Store, session: &str) -> Result<Option<ClosedSession>> {
    Ok(examine_list(store, session)?.map(|found| found.session))
}

/// As [`examine`], with the transaction that decides whether the session may be read yet.
pub(super) fn examine_list(store: &dyn Store, session: &str) -> Result<Option<ListedSession>> {
    let Some(list) = store.list(session)? else { return Ok(None) };
    let Some((0, end)) = closed(store, session, list.length)? else { return Ok(None) };
    let mut found = ClosedSession { id: session.to_owned(), rows: 0, bytes: 0, superseded: Vec::new() };
    let mut suspects = Suspects::new();
    // Trust COMPLETE rows: an entity that the sink refused may name another transaction than the
    // session's.
    let (mut transaction, mut is_sure) = (None, false);
    let mut lines = Lines::new(store, session, 0, end);
    while let Some((offset, bytes)) = lines.next()? {
        let line = Line::parse(bytes).map_err(|error| damaged(session, offset, error))?;
        if line.is_row() {
            found.rows += 1;
            found.bytes = found.bytes.saturating_add(content_bytes(&line));
            let complete = line.status == "COMPLETE";
            if let (false, Some(key)) = (is_sure, line.metadata.get(TRANSACTION))
                && (complete || transaction.is_none())
            {
                (transaction, is_sure) = (Some(key.to_owned()), complete);
            }
        }
        // This payload was verified and then removed, so an earlier COMPLETE line may name it.
        if line.status != "COMPLETE"
            && line.file.is_none()
            && let Some(payload) = verified(&line)
        {
            suspects.insert(payload, offset);
        }
    }
    if !suspects.is_empty() {
        supersede(store, session, end, &suspects, &mut found)?;
    }
    Ok(Some(ListedSession { session: found, modified: list.modified, transaction }))
}

/// The payloads that were verified and then removed, with the offsets of the last lines that say so.
type Suspects = HashMap<(EntityKey, [u8; 32]), u64>;

/// Return a line's entity and its payload's SHA-256, if the payload was verified.
fn verified(line: &Line<'_>) -> Option<(EntityKey, [u8; 32])> {
    Some((line.key()?, hex::decode(line.sha256.as_ref()?.as_ref())?))
}

/// Find the COMPLETE lines that later lines have replaced: they have the same entity and payload,
/// and their file, if they had one, was removed.
fn supersede(store: &dyn Store, session: &str, end: u64, suspects: &Suspects, found: &mut ClosedSession) -> Result<()> {
    let mut lines = Lines::new(store, session, 0, end);
    while let Some((offset, bytes)) = lines.next()? {
        let line = Line::parse(bytes).map_err(|error| damaged(session, offset, error))?;
        let removed = verified(&line).and_then(|payload| suspects.get(&payload));
        if line.status != "COMPLETE" || removed.is_none_or(|removed| *removed < offset) {
            continue;
        }
        if let Some(file) = &line.file
            && store.has(file.as_ref())?
        {
            continue;
        }
        found.superseded.push(offset);
        if line.is_row() {
            found.rows = found.rows.saturating_sub(1);
            found.bytes = found.bytes.saturating_sub(content_bytes(&line));
        }
    }
    Ok(())
}

/// Divide a session, from a position in its list on, into pieces of about the same weight.
pub fn plan(store: &dyn Store, session: &ClosedSession, start: u64, limits: PlanLimits) -> Result<Plan> {
    let list = store.list(&session.id)?.ok_or_else(|| wrong(&session.id, "it no longer exists"))?;
    let (_, end) = closed(store, &session.id, list.length)?.ok_or_else(|| wrong(&session.id, "it is not closed"))?;
    let mut divided = Pieces::new(limits);
    let mut lines = Lines::new(store, &session.id, start.min(end), end);
    while let Some((offset, bytes)) = lines.next()? {
        let after = offset + bytes.len() as u64 + 1;
        if session.superseded.binary_search(&offset).is_ok() {
            divided.gap();
            continue;
        }
        let line = Line::parse(bytes).map_err(|error| wrong(&session.id, error))?;
        if divided.push(offset, after, line.is_row().then(|| content_bytes(&line))) {
            return Ok(Plan { pieces: divided.pieces, next: Some(offset) });
        }
    }
    Ok(Plan { pieces: divided.finish(), next: None })
}

impl Selection {
    /// Return whether this selects every row.
    pub fn is_all(&self) -> bool {
        self.documents.is_none() && self.names.is_none()
    }

    fn wants(&self, session: &str, line: &Line<'_>) -> bool {
        let document = self.documents.as_ref().is_none_or(|documents| {
            line.metadata.get("penstock.document").is_some_and(|document| documents.contains(document))
        });
        document && self.names.as_ref().is_none_or(|names| names.contains(&line.name(session)))
    }
}

/// A filter that narrows pieces down to the wanted rows: it takes the pieces' lines and returns
/// smaller pieces.
#[derive(Debug)]
pub struct Refiner<'a> {
    session: &'a str,
    selection: &'a Selection,
    pieces: Pieces,
}

impl<'a> Refiner<'a> {
    /// Create a refiner for a session.
    pub fn new(session: &'a str, selection: &'a Selection, limits: PlanLimits) -> Self {
        let limits = PlanLimits { pieces: usize::MAX, ..limits };
        Self { session, selection, pieces: Pieces::new(limits) }
    }

    /// Take lines that start at the position `start` of the list.
    pub fn take(&mut self, start: u64, lines: &[u8]) -> Result<()> {
        let mut offset = start;
        for bytes in lines.split_inclusive(|byte| *byte == b'\n') {
            let after = offset + bytes.len() as u64;
            let line = Line::parse(bytes).map_err(|error| wrong(self.session, error))?;
            if line.is_row() && self.selection.wants(self.session, &line) {
                self.pieces.push(offset, after, Some(content_bytes(&line)));
            } else {
                self.pieces.gap();
            }
            offset = after;
        }
        Ok(())
    }

    /// End the open piece, because the next line does not follow the last one in the list.
    pub fn gap(&mut self) {
        self.pieces.gap();
    }

    /// Return the smaller pieces.
    pub fn finish(self) -> Vec<Piece> {
        self.pieces.finish()
    }
}

/// Return the size of a row's content in bytes; 0 if it has none, or one that is too large to be
/// read.
pub(super) fn content_bytes(line: &Line<'_>) -> u64 {
    match (&line.file, line.bytes) {
        (Some(_), Some(bytes)) if bytes <= MAX_CONTENT => bytes,
        _ => 0,
    }
}

/// The pieces made of the lines taken so far.
#[derive(Debug)]
struct Pieces {
    limits: PlanLimits,
    pieces: Vec<Piece>,
    open: Option<Piece>,
    weight: u64,
}

impl Pieces {
    fn new(limits: PlanLimits) -> Self {
        Self { limits, pieces: Vec::new(), open: None, weight: 0 }
    }

    /// Take a line; `bytes` is `None` if it is not a row. Return true if the line was not taken,
    /// because there are enough pieces.
    fn push(&mut self, start: u64, end: u64, bytes: Option<u64>) -> bool {
        let weight = bytes.map_or(0, |bytes| bytes.saturating_add(ROW_COST.min(self.limits.bytes / 64)));
        let (rows, bytes) = (u64::from(bytes.is_some()), bytes.unwrap_or(0));
        let full = self.open.is_some_and(|open| {
            open.rows > 0
                && rows > 0
                && (open.rows >= self.limits.rows || self.weight.saturating_add(weight) > self.limits.bytes)
        });
        if full {
            self.gap();
            if self.pieces.len() >= self.limits.pieces {
                return true;
            }
        }
        let piece = self.open.get_or_insert(Piece { start, end, rows: 0, bytes: 0 });
        piece.end = end;
        piece.rows += rows;
        piece.bytes = piece.bytes.saturating_add(bytes);
        self.weight = self.weight.saturating_add(weight);
        false
    }

    /// End the open piece, and drop it if it has no rows.
    fn gap(&mut self) {
        self.pieces.extend(self.open.take().filter(|piece| piece.rows > 0));
        self.weight = 0;
    }

    fn finish(mut self) -> Vec<Piece> {
        self.gap();
        self.pieces
    }
}
