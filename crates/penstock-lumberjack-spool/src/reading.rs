//! Reading a spool from any store, in ranges of rows.

use std::error::Error as StdError;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_select::concat::concat_batches;
use penstock_io::DriverError as _;
use penstock_lumberjack_net::columns::{Layout, reshape};

use crate::format::{Decoder, RECORD_HEAD, Record, damaged, read_entry, read_header, read_record, verify};
use crate::names::segment_name;
use crate::store::{Missing, Position, SegmentInfo, Store, Unreadable};
use crate::{Error, Result};

/// The number of segments listed by one request.
const PAGE: usize = 64;
/// The number of bytes read at a time, unless one record is longer.
const CHUNK: u64 = 4 << 20;
/// The number of rows from which a batch is not extended any more.
const ROWS: usize = 65_536;
/// The same limit in bytes, as they are encoded in the spool.
const BYTES: usize = 4 << 20;

/// A contiguous range of a segment's rows: a piece of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowRange {
    /// The segment's number.
    pub segment: u64,
    /// Bytes of the segment's header.
    pub header: u64,
    /// The byte at which its first record begins.
    pub start: u64,
    /// The byte at which its last record ends.
    pub end: u64,
    /// The number of rows at the start of the first record that are not in the piece.
    pub skip: u64,
    /// The number of its rows.
    pub rows: u64,
}

/// The limits of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanLimits {
    /// The most rows of all pieces.
    pub rows: u64,
    /// The most bytes of all pieces; a larger row comes alone.
    pub bytes: u64,
    /// The most bytes of a piece; a larger record makes a piece alone.
    pub piece: u64,
}

/// The rows between two positions, in pieces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The pieces, in ascending order.
    pub pieces: Vec<RowRange>,
    /// The position at which they end.
    pub end: Position,
}

/// Divide the rows after a position into pieces, up to another position or to the end.
///
/// Fails with [`Missing`] as its source where a segment after the position has been removed, or
/// where the spool ends before a given position.
pub fn plan(store: &dyn Store, start: Position, until: Option<Position>, limits: PlanLimits) -> Result<Plan> {
    let mut plan = Plan { pieces: Vec::new(), end: start };
    let mut left = (limits.rows, limits.bytes);
    let mut from = start.segment;
    // A position at the beginning of a segment is valid before the segment exists.
    let mut missing = until.filter(|until| until.row > 0 && *until > start);
    'segments: loop {
        let segments = store.segments(from, PAGE)?;
        if from == start.segment {
            check_start(store, start, segments.first())?;
        }
        for info in &segments {
            if until.is_some_and(|until| info.number > until.segment) {
                break 'segments;
            }
            missing = missing.filter(|until| info.number != until.segment || !info.reaches(until.row));
            if !divide(info, start, until, limits, &mut left, &mut plan) {
                return Ok(plan);
            }
        }
        match segments.last() {
            Some(last) if segments.len() == PAGE => from = last.number + 1,
            Some(_) | None => break,
        }
    }
    missing.map_or(Ok(plan), |until| Err(beyond(until)))
}

/// Refuse a start that is not in the spool: it would look like a start after which no rows have
/// arrived yet.
fn check_start(store: &dyn Store, start: Position, first: Option<&SegmentInfo>) -> Result<()> {
    let Position { segment, row } = start;
    let fits = match first {
        Some(info) if info.number == segment => info.reaches(row),
        _ if segment == 0 => row == 0,
        Some(_) => {
            return Err(Missing::Segment { segment }.into());
        }
        None if row > 0 => false,
        // The start is the next segment, which has no rows yet.
        None => segment == 1 || store.segments(segment - 1, 1)?.first().is_some_and(|info| info.number < segment),
    };
    if fits { Ok(()) } else { Err(beyond(start)) }
}

fn beyond(Position { segment, row }: Position) -> Error {
    Missing::Row { segment, row }.into()
}

/// Add the wanted rows of a segment to the plan; return false once there are enough.
fn divide(
    info: &SegmentInfo,
    start: Position,
    until: Option<Position>,
    limits: PlanLimits,
    left: &mut (u64, u64),
    plan: &mut Plan,
) -> bool {
    let (mut at, mut row) = (info.header, 0);
    let first = if info.number == start.segment { start.row } else { 0 };
    let last = until.filter(|until| until.segment == info.number).map_or(u64::MAX, |until| until.row);
    // The end of the last lost record, which is never in a piece with another record.
    let mut lost = 0;
    for entry in &info.entries {
        let (begin, end) = (row, row + u64::from(entry.rows));
        let bytes = (at, at + u64::from(entry.bytes));
        (at, row) = (bytes.1, end);
        let (from, to) = (begin.max(first), end.min(last));
        if from >= to {
            // A record of a connection's end has no rows, and does not end a piece.
            let between = |piece: &&mut RowRange| {
                entry.rows == 0 && !entry.lost && piece.segment == info.number && piece.end == bytes.0
            };
            if let Some(piece) = plan.pieces.last_mut().filter(between) {
                piece.end = bytes.1;
            }
            continue;
        }
        // An estimate: all rows of a record count as equally large.
        let each = (u64::from(entry.bytes) / u64::from(entry.rows.max(1))).max(1);
        let fits = left.0.min(left.1 / each).max(u64::from(plan.pieces.is_empty() && left.0 > 0));
        let rows = fits.min(to - from);
        if rows == 0 {
            return false;
        }
        *left = (left.0 - rows, left.1.saturating_sub(rows * each));
        let goes_on = |piece: &&mut RowRange| {
            let whole = piece.end == bytes.0 && from == begin && !entry.lost && bytes.0 != lost;
            piece.segment == info.number && whole && bytes.1 - piece.start <= limits.piece
        };
        match plan.pieces.last_mut().filter(goes_on) {
            Some(piece) => (piece.end, piece.rows) = (bytes.1, piece.rows + rows),
            None => plan.pieces.push(RowRange {
                segment: info.number,
                header: info.header,
                start: bytes.0,
                end: bytes.1,
                skip: from - begin,
                rows,
            }),
        }
        if entry.lost {
            lost = bytes.1;
        }
        plan.end = Position { segment: info.number, row: from + rows };
        if rows < to - from {
            return false;
        }
    }
    plan.end = plan.end.max(Position { segment: info.number, row: row.min(last) });
    true
}

/// A reader of a piece's rows, batch by batch.
#[derive(Debug)]
pub struct Reader {
    store: Arc<dyn Store>,
    layout: Layout,
    piece: RowRange,
    skips_damaged: bool,
    /// The next byte to read, and the bytes read before it that are not a whole record yet.
    at: u64,
    rest: Vec<u8>,
    decoder: Option<Decoder>,
    waiting: Vec<RecordBatch>,
}

impl Reader {
    /// Make a reader that returns the rows in `layout`.
    pub fn new(store: Arc<dyn Store>, piece: RowRange, layout: Layout) -> Self {
        let at = piece.start;
        Self { store, layout, piece, skips_damaged: false, at, rest: Vec::new(), decoder: None, waiting: Vec::new() }
    }

    /// Leave damaged rows out, with a warning. Without this, they are an error at every read.
    #[must_use]
    pub const fn skip_damaged(mut self) -> Self {
        self.skips_damaged = true;
        self
    }

    /// Return the next rows; `None` at the end. Blocks.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let mut rows: usize = self.waiting.iter().map(RecordBatch::num_rows).sum();
        let mut bytes = 0;
        while self.piece.rows > 0 && rows < ROWS && bytes < BYTES {
            let before = self.waiting.len();
            bytes += self.read_records()?;
            rows += self.waiting.get(before..).unwrap_or_default().iter().map(RecordBatch::num_rows).sum::<usize>();
        }
        let Some(first) = self.waiting.first() else { return Ok(None) };
        let batch = match self.waiting.as_slice() {
            [only] => only.clone(),
            several => concat_batches(first.schema_ref(), several).map_err(damaged)?,
        };
        self.waiting.clear();
        reshape(&self.layout, &batch).map(Some)
    }

    /// Read until there is at least one more whole record; return the number of bytes used.
    fn read_records(&mut self) -> Result<usize> {
        let needed = read_entry(&self.rest).map_or(0, |entry| u64::from(entry.bytes));
        let wanted = needed.saturating_sub(self.rest.len() as u64).max(CHUNK);
        let end = self.at.saturating_add(wanted).min(self.piece.end);
        if end == self.at {
            return self.pass_over(self.at - self.rest.len() as u64);
        }
        let more = self.store.read(self.piece.segment, self.at..end)?;
        let begins = self.at - self.rest.len() as u64;
        let bytes = if self.rest.is_empty() { more } else { [std::mem::take(&mut self.rest), more].concat() };
        self.at = end;
        let (buffer, mut used) = (Buffer::from_vec(bytes), 0);
        let read = self.keep_records(&buffer, begins, &mut used);
        if read.is_err() {
            // The next call begins with the record that failed.
            (self.at, self.rest) = (begins + used as u64, Vec::new());
        }
        read
    }

    /// Keep the rows of the whole records in a buffer, whose first byte is byte `begins` of the
    /// segment. `used` counts the bytes of the records that were read.
    fn keep_records(&mut self, buffer: &Buffer, begins: u64, used: &mut usize) -> Result<usize> {
        while self.piece.rows > 0 {
            let left = buffer.as_slice().get(*used..).unwrap_or_default();
            let Some(entry) = left.get(..RECORD_HEAD).and_then(read_entry) else {
                if left.len() >= RECORD_HEAD {
                    return self.pass_over(begins + *used as u64);
                }
                break;
            };
            let length = usize::try_from(entry.bytes).unwrap_or(usize::MAX);
            let Some(record) = left.get(..length) else { break };
            let parts = if verify(record) { read_record(record) } else { None };
            let Some(Record { message, .. }) = parts else {
                return self.pass_over(begins + *used as u64);
            };
            // A record without rows is the end of a connection.
            if entry.rows > 0 {
                let batch = self.decode(&buffer.slice_with_length(*used + message.start, message.len()))?;
                self.keep(batch);
            }
            *used += length;
        }
        self.rest = buffer.as_slice().get(*used..).unwrap_or_default().to_vec();
        Ok(*used)
    }

    fn decode(&mut self, message: &Buffer) -> Result<RecordBatch> {
        if self.decoder.is_none() {
            let header = self.store.read(self.piece.segment, 0..self.piece.header)?;
            let header = read_header(&header).ok_or_else(|| self.damaged("its header is not what was written"))?;
            self.decoder = Some(Decoder::new(&header.schema)?);
        }
        match &mut self.decoder {
            Some(decoder) => decoder.batch(message),
            None => Err(self.damaged("it has no schema")),
        }
    }

    /// Count off the rows of a record; return how many of them precede the piece, and how many
    /// after those belong to it.
    fn take_off(&mut self, rows: u64) -> (u64, u64) {
        let skip = std::mem::take(&mut self.piece.skip).min(rows);
        let taken = (rows - skip).min(self.piece.rows);
        self.piece.rows -= taken;
        (skip, taken)
    }

    /// Keep the rows that belong to the piece.
    fn keep(&mut self, batch: RecordBatch) {
        let (skip, taken) = self.take_off(batch.num_rows() as u64);
        let (skip, taken) = (usize::try_from(skip).unwrap_or(usize::MAX), usize::try_from(taken).unwrap_or(0));
        if taken > 0 {
            self.waiting.push(batch.slice(skip, taken));
        }
    }

    /// Skip the damaged record that has a given byte if damaged records may be skipped; else fail.
    fn pass_over(&mut self, byte: u64) -> Result<usize> {
        let segment = self.piece.segment;
        let info = self.store.segments(segment, 1)?.pop().filter(|info| info.number == segment);
        let (mut at, mut row) = (self.piece.header, 0);
        for entry in info.into_iter().flat_map(|info| info.entries) {
            let (end, next) = (at + u64::from(entry.bytes), row + u64::from(entry.rows));
            if !(at..end).contains(&byte) {
                (at, row) = (end, next);
                continue;
            }
            let copy = entry.lost.then(|| segment_name(segment).replace(".segment", ".damaged"));
            let lost = Unreadable::Rows { first: row, last: next.saturating_sub(1), bytes: at..end, segment, copy };
            if !self.skips_damaged {
                return Err(self.damaged(lost));
            }
            tracing::warn!(segment, "events are left out: {lost}");
            self.take_off(u64::from(entry.rows));
            (self.at, self.rest) = (end, Vec::new());
            return Ok(0);
        }
        Err(self.damaged(Unreadable::Record { byte }))
    }

    fn damaged(&self, reason: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        Error::io(format!("segment {} of the spool", self.piece.segment), reason)
    }
}
