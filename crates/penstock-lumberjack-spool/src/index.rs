//! The index of a spool: its segments, and the positions of its readers.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::sync::{Condvar, Mutex};

use penstock_io::DriverError as _;
use penstock_io::sync::lock;

use crate::format::{Entry, SpoolId};
use crate::store::Position;
use crate::{Error, Misuse, Result};

/// The number of segments with rows that are kept whatever readers have committed: after a restart,
/// their hashes show which events are sent again.
const KEPT: usize = 2;

/// A segment, as far as it is durable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Segment {
    /// The number of bytes of its header.
    pub(super) header: u64,
    /// Its records. Empty for segments in an object store that an earlier process wrote.
    pub(super) entries: Vec<Entry>,
    /// The number of its bytes, with header and footer.
    pub(super) bytes: u64,
    /// Whether it has a footer.
    pub(super) sealed: bool,
}

impl Segment {
    pub(super) fn rows(&self) -> u64 {
        self.entries.iter().map(|entry| u64::from(entry.rows)).sum()
    }
}

/// Return the number of the next segment after `last`. No number is used again, even if segments
/// were moved away: a reader of the old segment would take the new one for it.
pub(super) fn next_number(last: Option<u64>, readers: &BTreeMap<String, Position>) -> u64 {
    let read = readers.values().map(|at| if at.row > 0 { at.segment + 1 } else { at.segment });
    last.map(|last| last + 1).into_iter().chain(read).max().unwrap_or(0).max(1)
}

/// Encode the position of each reader, as it is stored: `{"NAME": [segment, row]}`.
fn write_readers(readers: &BTreeMap<String, Position>) -> Result<Vec<u8>> {
    let plain: BTreeMap<&str, (u64, u64)> =
        readers.iter().map(|(name, at)| (name.as_str(), (at.segment, at.row))).collect();
    serde_json::to_vec(&plain).map_err(|error| Error::internal("the positions of the readers", error))
}

pub(super) fn read_readers(bytes: &[u8]) -> serde_json::Result<BTreeMap<String, Position>> {
    let plain: BTreeMap<String, (u64, u64)> = serde_json::from_slice(bytes)?;
    Ok(plain.into_iter().map(|(name, (segment, row))| (name, Position { segment, row })).collect())
}

/// Return whether an error says that the disk is full.
fn is_full(error: &Error) -> bool {
    let mut cause = error.source();
    while let Some(found) = cause {
        if found.downcast_ref().is_some_and(penstock_log::is_full) {
            return true;
        }
        cause = found.source();
    }
    false
}

/// The storage behind an index: it keeps the readers' positions, and removes segments.
pub(super) trait Backing: std::fmt::Debug + Send + Sync {
    /// Store the position of each reader.
    fn keep_readers(&self, readers: &[u8]) -> Result<()>;

    /// Remove a segment.
    fn remove(&self, segment: u64) -> Result<()>;
}

/// The index of a spool.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) spool: SpoolId,
    state: Mutex<State>,
    room: Condvar,
    backing: Box<dyn Backing>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) segments: BTreeMap<u64, Segment>,
    pub(super) readers: BTreeMap<String, Position>,
    bytes: u64,
    /// The furthest position that a reader can have reached; rows written later come after it.
    reach: Position,
    closed: bool,
}

impl Index {
    /// `next` is the number of the next segment.
    pub(super) fn new(
        spool: SpoolId,
        (segments, next): (BTreeMap<u64, Segment>, u64),
        readers: BTreeMap<String, Position>,
        backing: Box<dyn Backing>,
    ) -> Self {
        let bytes = segments.values().map(|segment| segment.bytes).sum();
        let reach = Position { segment: next, row: 0 };
        let state = State { segments, readers, bytes, reach, closed: false };
        Self { spool, state: Mutex::new(state), room: Condvar::new(), backing }
    }

    pub(super) fn bytes(&self) -> u64 {
        lock(&self.state).bytes
    }

    /// Allow readers to commit up to a position. Called before the rows are written, because a
    /// reader may see them before the write returns.
    pub(super) fn extend(&self, to: Position) {
        let mut state = lock(&self.state);
        state.reach = state.reach.max(to);
    }

    pub(super) fn with<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&lock(&self.state))
    }

    /// Change a segment's entry, after records or its footer were written.
    pub(super) fn update<T>(&self, number: u64, change: impl FnOnce(&mut Segment) -> T) -> T {
        let mut state = lock(&self.state);
        let segment = state.segments.entry(number).or_default();
        let before = segment.bytes;
        let result = change(segment);
        let after = segment.bytes;
        state.bytes = state.bytes.saturating_sub(before).saturating_add(after);
        result
    }

    /// Wait until this many more bytes fit; return false if the spool is closed and they do not
    /// fit. Bytes that fit are written even when it is closed, because the ends of connections come
    /// last.
    pub(super) fn wait_for_room(&self, wanted: u64, max: u64) -> bool {
        let mut state = lock(&self.state);
        let mut told = false;
        // Segments that are kept for deduplication only must not block a write.
        while state.bytes.saturating_add(wanted) > max && state.segments.len() > state.kept() {
            if state.closed {
                return false;
            }
            if !told {
                tracing::warn!(bytes = state.bytes, max, "the spool is full: senders wait until readers commit");
                told = true;
            }
            state = self.room.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        true
    }

    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.room.notify_all();
    }

    /// Record a position that a reader has committed; return the one that all readers have reached.
    ///
    /// Fails as a misuse where the position is beyond the spool's end: later rows would count as
    /// read when they arrive.
    pub(super) fn commit(&self, reader: &str, position: Position) -> Result<Position> {
        if reader.is_empty() || reader.len() > 128 {
            return Err(Misuse::ReaderName.into());
        }
        let (oldest, surplus) = {
            let mut state = lock(&self.state);
            if position > state.reach {
                return Err(Misuse::CommitPosition {
                    reader: reader.to_owned(),
                    row: position.row,
                    segment: position.segment,
                    last_row: state.reach.row,
                    last_segment: state.reach.segment,
                }
                .into());
            }
            let before = state.readers.get(reader).copied();
            if before.is_some_and(|before| position < before) {
                // An old query that was started again from an old checkpoint reads the rows again,
                // and takes nothing back.
                return Ok(state.oldest());
            }
            state.readers.insert(reader.to_owned(), position);
            match self.keep_readers(&mut state) {
                Ok(surplus) => (state.oldest(), surplus),
                Err(error) => {
                    // A batch is acknowledged only up to a position that a restart knows.
                    match before {
                        Some(before) => state.readers.insert(reader.to_owned(), before),
                        None => state.readers.remove(reader),
                    };
                    return Err(error);
                }
            }
        };
        for number in surplus {
            self.remove(&mut lock(&self.state), number)?;
        }
        Ok(oldest)
    }

    /// Store the position of each reader; return the segments that can be removed now.
    fn keep_readers(&self, state: &mut State) -> Result<Vec<u64>> {
        let (readers, mut surplus) = (write_readers(&state.readers)?, state.surplus());
        match self.backing.keep_readers(&readers) {
            // All readers have read these segments. After a crash before the positions are stored,
            // they do not ask for them either.
            Err(error) if is_full(&error) && !surplus.is_empty() => {
                self.remove(state, surplus.remove(0))?;
                self.backing.keep_readers(&readers)?;
            }
            kept => kept?,
        }
        Ok(surplus)
    }

    fn remove(&self, state: &mut State, number: u64) -> Result<()> {
        self.backing.remove(number)?;
        let bytes = state.segments.remove(&number).map_or(0, |segment| segment.bytes);
        state.bytes = state.bytes.saturating_sub(bytes);
        self.room.notify_all();
        Ok(())
    }
}

impl State {
    /// Count the segments at the end that are always kept.
    fn kept(&self) -> usize {
        // A segment whose entries are not known may have rows.
        let has_rows = |segment: &Segment| segment.entries.is_empty() || segment.rows() > 0;
        let mut left = KEPT;
        self.segments
            .values()
            .rev()
            .take_while(|segment| {
                let more = left > 0;
                left -= usize::from(more && has_rows(segment));
                more
            })
            .count()
    }

    /// Return the segments at the beginning that no reader needs.
    fn surplus(&self) -> Vec<u64> {
        let (oldest, removable) = (self.oldest(), self.segments.len().saturating_sub(self.kept()));
        let done = |(number, segment): &(&u64, &Segment)| segment.sealed && **number < oldest.segment;
        self.segments.iter().take(removable).take_while(done).map(|(number, _)| *number).collect()
    }

    fn oldest(&self) -> Position {
        self.readers.values().min().copied().unwrap_or_default()
    }
}
