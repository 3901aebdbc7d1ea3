//! The journal: bytes to write, and from what was written the tasks again. Who writes them is not known here.

mod header;
mod record;
mod recovery;

use std::collections::VecDeque;

use header::encode_segment_header;
pub use record::{Damage, Record, Records};
pub use recovery::{Recovered, Recovery};

use crate::TaskId;

/// A place in the journal: bytes since the process began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

/// What is to be done with the journal's files, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Append to a segment's file, and make it durable (`fdatasync`, and for a new file its
    /// folder); then call `handle_durable` or `handle_write_failed`. For a segment that is not open, as at the beginning and after a
    /// failure, the file is made anew: nothing in one of this name counts.
    Append {
        /// The segment's number.
        segment: u64,
        /// What to append.
        bytes: Vec<u8>,
        /// What is durable then.
        end: Lsn,
    },
    /// Remove a segment's file: nothing in it counts any more. After a failed write it may never have been made.
    Remove {
        /// The segment's number.
        segment: u64,
    },
}

/// What is written when, and which segments may go.
///
/// A task counts for the segment that holds its content ([`born`](Self::born), [`gone`](Self::gone)). The oldest segment goes
/// once nothing in it counts; where that does not come by itself, [`to_compact`](Self::to_compact) names it, and its tasks
/// are appended again.
///
/// Group commit: while an append is under way, records gather; they are the next append.
///
/// ```text
/// append ─▶ gathering ─▶ poll_write ─▶ under way ─▶ durable
///               ▲                          │ failed: in a new segment, without the submits
///               └──────────────────────────┘
/// ```
#[derive(Debug)]
pub struct Journal {
    segment_size: u64,
    segments: VecDeque<Segment>,
    gathering: VecDeque<Batch>,
    under_way: Option<UnderWay>,
    end: Lsn,
    durable: Lsn,
    /// The last append failed, and none has succeeded since.
    failed: bool,
}

#[derive(Debug)]
struct Segment {
    number: u64,
    bytes: u64,
    /// Tasks whose content is here, and their bytes.
    live: u64,
    live_bytes: u64,
    /// It may go when this is durable and nothing is live.
    last: Lsn,
    /// Something of it is on the disk for certain.
    durable: bool,
}

#[derive(Debug)]
struct Batch {
    segment: u64,
    bytes: Vec<u8>,
    /// What is before it.
    begin: Lsn,
    /// The records without those of submits: what must be written again after a failure.
    control: Vec<u8>,
    end: Lsn,
}

/// A batch whose bytes somebody writes.
#[derive(Debug)]
struct UnderWay {
    segment: u64,
    bytes: usize,
    control: Vec<u8>,
    end: Lsn,
}

impl Journal {
    /// A journal that goes on behind the segments that are there, each with its number and bytes.
    pub fn new(segment_size: u64, after: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let old = after.into_iter().map(|(number, bytes)| Segment {
            number,
            bytes,
            live: 0,
            live_bytes: 0,
            last: Lsn::default(),
            durable: true,
        });
        Self {
            segment_size,
            segments: old.collect(),
            gathering: VecDeque::new(),
            under_way: None,
            end: Lsn::default(),
            durable: Lsn::default(),
            failed: false,
        }
        .with_new_segment()
    }

    fn with_new_segment(mut self) -> Self {
        self.begin_segment();
        self
    }

    /// What is on the disk.
    pub const fn durable(&self) -> Lsn {
        self.durable
    }

    /// What was appended last.
    pub const fn end(&self) -> Lsn {
        self.end
    }

    /// Where the batch begins that is appended to now: what is behind that is durable at once, or not at all.
    pub fn gathers_from(&self) -> Lsn {
        self.gathering.back().map_or(self.end, |batch| batch.begin)
    }

    /// Whether the last append failed and [`retry`](Self::retry) was not called since. Submits are to be refused.
    pub const fn is_failed(&self) -> bool {
        self.failed
    }

    /// Bytes that wait to be written or are under way.
    pub fn waiting(&self) -> usize {
        let gathering = self.gathering.iter().map(|batch| batch.bytes.len());
        gathering.chain(self.under_way.as_ref().map(|batch| batch.bytes)).sum()
    }

    /// Never appends behind what an earlier process or a failed write left: its end may be torn.
    fn begin_segment(&mut self) {
        let number = self.segments.back().map_or(1, |segment| segment.number + 1);
        self.segments.push_back(Segment { number, bytes: 0, live: 0, live_bytes: 0, last: self.end, durable: false });
        self.gather(number);
    }

    /// A segment's beginning.
    fn gather(&mut self, number: u64) {
        let mut bytes = Vec::new();
        encode_segment_header(number, &mut bytes);
        let (begin, end) = (self.end, self.end);
        self.gathering.push_back(Batch { segment: number, bytes, begin, control: Vec::new(), end });
    }

    /// Appends a record; gives the segment it is in and what must be durable before it counts.
    pub fn append(&mut self, record: &Record<'_>, is_submit: bool) -> (u64, Lsn) {
        if self.segments.back().is_none_or(|segment| segment.bytes >= self.segment_size) {
            self.begin_segment();
        }
        let number = self.segments.back().map_or(0, |segment| segment.number);
        if self.gathering.back().is_none_or(|batch| batch.segment != number) {
            let (begin, end) = (self.end, self.end);
            let batch = Batch { segment: number, bytes: Vec::new(), begin, control: Vec::new(), end };
            self.gathering.push_back(batch);
        }
        let mut bytes = 0;
        if let Some(batch) = self.gathering.back_mut() {
            let start = batch.bytes.len();
            bytes = record.encode(&mut batch.bytes) as u64;
            if !is_submit {
                batch.control.extend_from_slice(batch.bytes.get(start..).unwrap_or_default());
            }
            self.end = Lsn(self.end.0 + bytes);
            batch.end = self.end;
        }
        if let Some(segment) = self.segments.back_mut() {
            segment.bytes += bytes;
            segment.last = self.end;
        }
        (number, self.end)
    }

    /// A task's content of so many bytes is in the segment, and counts.
    pub fn born(&mut self, number: u64, bytes: usize) {
        if let Some(segment) = self.segments.iter_mut().rev().find(|segment| segment.number == number) {
            segment.live += 1;
            segment.live_bytes += (bytes + Record::AROUND) as u64;
        }
    }

    /// It counts no more once what was appended last is durable.
    pub fn gone(&mut self, number: u64, bytes: usize) {
        let end = self.end;
        if let Some(segment) = self.segments.iter_mut().find(|segment| segment.number == number) {
            segment.live = segment.live.saturating_sub(1);
            segment.live_bytes = segment.live_bytes.saturating_sub((bytes + Record::AROUND) as u64);
            segment.last = segment.last.max(end);
        }
    }

    /// The oldest segment, if its tasks should be written again so that it can go. The reasons of dead tasks, so many bytes,
    /// count too: they are written again with their tasks.
    pub fn to_compact(&self, reasons: u64) -> Option<u64> {
        let total: u64 = self.segments.iter().map(|segment| segment.bytes).sum();
        let live = self.segments.iter().map(|segment| segment.live_bytes).sum::<u64>() + reasons;
        let oldest = self.segments.front().filter(|oldest| oldest.live > 0 && self.segments.len() > 1)?;
        (!self.failed && total > 2 * live + 4 * self.segment_size).then_some(oldest.number)
    }

    /// What to do next with the files.
    pub fn poll_write(&mut self) -> Option<Write> {
        if self.under_way.is_some() || self.failed {
            return None;
        }
        let removable = |oldest: &Segment| oldest.live == 0 && oldest.last <= self.durable;
        if self.segments.len() > 1
            && let Some(oldest) = self.segments.pop_front_if(|oldest| removable(oldest))
        {
            return Some(Write::Remove { segment: oldest.number });
        }
        let Batch { segment, bytes, control, end, begin: _ } = self.gathering.pop_front()?;
        self.under_way = Some(UnderWay { segment, bytes: bytes.len(), control, end });
        Some(Write::Append { segment, bytes, end })
    }

    /// What was under way is on the disk.
    pub fn handle_durable(&mut self) {
        if let Some(batch) = self.under_way.take() {
            self.durable = self.durable.max(batch.end);
            if let Some(segment) = self.segments.iter_mut().rev().find(|segment| segment.number == batch.segment) {
                segment.durable = true;
            }
        }
    }

    /// It is not, or perhaps a part of it is: what must not be lost gathers again, in a new segment, or in the last one anew. Gives what must be
    /// durable before that counts.
    pub fn handle_failed(&mut self, cancelled: impl IntoIterator<Item = TaskId>) -> Lsn {
        let (failed, mut again) = self.under_way.take().map_or((0, Vec::new()), |batch| (batch.segment, batch.control));
        self.gathering.drain(..).for_each(|batch| again.extend_from_slice(&batch.control));
        self.failed = true;
        // One of which nothing is certain is made anew, and the submits in it are gone with it: a disk that stays full does not
        // get a file with each try, nor more and more to write.
        match self.segments.back_mut().filter(|segment| segment.number == failed && !segment.durable) {
            Some(segment) => {
                segment.bytes = 0;
                self.gather(failed);
            }
            None => {
                self.begin_segment();
                for id in cancelled {
                    Record::Gone { id }.encode(&mut again);
                }
            }
        }
        self.end = Lsn(self.end.0 + again.len() as u64);
        if let (Some(batch), Some(segment)) = (self.gathering.back_mut(), self.segments.back_mut()) {
            batch.bytes.extend_from_slice(&again);
            (batch.control, batch.end) = (again, self.end);
            segment.bytes += batch.bytes.len() as u64;
        }
        self.segments.iter_mut().for_each(|segment| segment.last = self.end);
        self.end
    }

    /// Tries again after a failure.
    pub const fn retry(&mut self) {
        self.failed = false;
    }
}
