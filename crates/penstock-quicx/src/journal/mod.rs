//! The journal: the records of a queue's tasks, and the tasks that are restored from them at
//! startup. A log writes the records to files, and reports which segment holds them.

mod record;
mod recovery;

use std::collections::VecDeque;
use std::sync::Arc;

pub use record::{Label, Record};
pub use recovery::{RecoveredState, RecoveredTask, Recovery};

use crate::TaskId;

/// A short segment counts as a full segment divided by this.
const SHORT: u64 = 16;

/// A position in the journal, in bytes since the process started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

/// A request to the log. The log carries requests out in order.
#[derive(Debug, Clone)]
pub enum Write {
    /// Append all records together, durably; then call `handle_durable` or `handle_write_failed`.
    /// After a failure the group may be empty: only an append that succeeds rules out that failed
    /// records reappear, and an empty one tests the disk.
    Append(Arc<Group>),
    /// Remove a segment that holds nothing live.
    Remove {
        /// The segment's number.
        segment: u64,
    },
}

/// Records that become durable together, or not at all.
#[derive(Debug, Default)]
pub struct Group {
    /// The label of each record, and where its body ends in `bodies`.
    records: Vec<(Label, usize)>,
    bodies: Vec<u8>,
    /// The positions before and after the group.
    begin: Lsn,
    end: Lsn,
    /// The tasks that the group moves out of an earlier segment.
    moved: Vec<TaskId>,
}

impl Group {
    /// Return the label and the body of each record, in their order.
    pub fn records(&self) -> impl Iterator<Item = (Label, &[u8])> {
        let mut start = 0;
        self.records.iter().map(move |(label, end)| {
            let body = self.bodies.get(start..*end).unwrap_or_default();
            start = *end;
            (*label, body)
        })
    }

    const fn bytes(&self) -> usize {
        self.bodies.len() + self.records.len() * Record::AROUND
    }

    fn push(&mut self, label: Label, body: &[u8]) {
        self.bodies.extend_from_slice(body);
        self.records.push((label, self.bodies.len()));
        self.end.0 += (body.len() + Record::AROUND) as u64;
    }
}

/// The state machine that decides when records are written, and which segments are removed.
///
/// A task counts for the segment that holds its content ([`count_task`](Self::count_task),
/// [`release_task`](Self::release_task)). The oldest segment is removed once no task counts for it.
/// If it holds tasks for long, [`to_compact`](Self::to_compact) returns it, and the queue appends
/// its tasks again.
///
/// Group commit: records that arrive while an append is under way form the next append.
///
/// ```text
/// append ─▶ gathering ─▶ poll_write ─▶ under way ─▶ durable, in a segment
///               ▲                          │ failed: again, without the submits
///               └──────────────────────────┘
/// ```
#[derive(Debug)]
pub struct Journal {
    segment_size: u64,
    segments: VecDeque<Segment>,
    gathering: Group,
    under_way: Option<Arc<Group>>,
    durable: Lsn,
    log: LogState,
}

/// Whether the log takes appends.
///
/// ```text
///  Sound ── handle_failed ──▶ Failed ── retry ──▶ Retried ── handle_durable ──▶ Sound
///                               ▲                    │
///                               └── handle_failed ───┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogState {
    /// The last append succeeded.
    Sound,
    /// The last append failed. Nothing is appended.
    Failed,
    /// An append is retried after a failure. Until it succeeds, the disk may hold a part of the failed one.
    Retried,
}

impl LogState {
    const fn takes_appends(self) -> bool {
        match self {
            Self::Sound | Self::Retried => true,
            Self::Failed => false,
        }
    }
}

#[derive(Debug)]
struct Segment {
    number: u64,
    bytes: u64,
    /// The number of tasks whose content is in this segment, and their bytes.
    live: u64,
    live_bytes: u64,
    /// The position that must be durable before the segment is removed.
    last: Lsn,
}

impl Segment {
    const fn new(number: u64, bytes: u64) -> Self {
        Self { number, bytes, live: 0, live_bytes: 0, last: Lsn(0) }
    }
}

impl Journal {
    /// Make a journal that continues after the existing segments, each with its number and bytes.
    pub fn new(segment_size: u64, after: impl IntoIterator<Item = (u64, u64)>) -> Self {
        Self {
            segment_size,
            segments: after.into_iter().map(|(number, bytes)| Segment::new(number, bytes)).collect(),
            gathering: Group::default(),
            under_way: None,
            durable: Lsn::default(),
            log: LogState::Sound,
        }
    }

    /// Return the position up to which records are on the disk.
    pub const fn durable(&self) -> Lsn {
        self.durable
    }

    /// Return the position after the last record.
    pub const fn end(&self) -> Lsn {
        self.gathering.end
    }

    /// Return the start of the next group: the records after it become durable together, or not at all.
    pub(crate) const fn gathers_from(&self) -> Lsn {
        self.gathering.begin
    }

    /// Return whether the last append failed and [`retry`](Self::retry) was not called since. Until
    /// then the queue refuses submits.
    pub const fn is_failed(&self) -> bool {
        !self.log.takes_appends()
    }

    /// Return how many bytes wait to be written or are under way.
    pub fn waiting(&self) -> usize {
        self.gathering.bytes() + self.under_way.as_ref().map_or(0, |group| group.bytes())
    }

    /// Return whether [`poll_write`](Self::poll_write) has something to append.
    pub const fn wants_append(&self) -> bool {
        self.under_way.is_none() && self.log.takes_appends() && !self.is_written()
    }

    /// Return whether the disk holds all records, and nothing of a failed append.
    pub const fn is_written(&self) -> bool {
        let settled = match self.log {
            LogState::Sound => true,
            LogState::Failed | LogState::Retried => false,
        };
        settled && self.under_way.is_none() && self.gathering.records.is_empty()
    }

    /// Append a record; return the position that must be durable before the record counts.
    pub fn append(&mut self, record: &Record<'_>) -> Lsn {
        self.gathering.push(record.label(), record.body());
        self.gathering.end
    }

    /// Append the SUBMIT of a task again, so that its segment can be removed. The task stays in
    /// that segment until the record is durable.
    pub fn append_again(&mut self, record: &Record<'_>) {
        self.append(record);
        self.gathering.moved.push(record.id());
    }

    /// Count a task whose content of this many bytes is in the segment.
    pub fn count_task(&mut self, number: u64, bytes: usize) {
        if let Some(segment) = self.segments.iter_mut().rev().find(|segment| segment.number == number) {
            segment.live += 1;
            segment.live_bytes += (bytes + Record::AROUND) as u64;
        }
    }

    /// Stop counting a task. Its segment stays until the records appended so far are durable.
    pub fn release_task(&mut self, number: u64, bytes: usize) {
        let end = self.end();
        if let Some(segment) = self.segments.iter_mut().find(|segment| segment.number == number) {
            segment.live = segment.live.saturating_sub(1);
            segment.live_bytes = segment.live_bytes.saturating_sub((bytes + Record::AROUND) as u64);
            segment.last = segment.last.max(end);
        }
    }

    /// Return the oldest segment if its tasks should be written again so that it can be removed.
    /// `reasons` is the size of all dead tasks' reasons, which count because they are written again
    /// with their tasks.
    ///
    /// A short segment counts as a sixteenth of a full one: each failure of the disk begins a new
    /// segment, and each segment takes a file descriptor at startup.
    pub fn to_compact(&self, reasons: u64) -> Option<u64> {
        let total: u64 = self.segments.iter().map(|segment| segment.bytes.max(self.segment_size / SHORT)).sum();
        let live = self.segments.iter().map(|segment| segment.live_bytes).sum::<u64>() + reasons;
        let oldest = self.segments.front().filter(|oldest| oldest.live > 0 && self.segments.len() > 1)?;
        (self.log.takes_appends() && total > 2 * live + 4 * self.segment_size).then_some(oldest.number)
    }

    /// Return the next request to the log.
    pub fn poll_write(&mut self) -> Option<Write> {
        if self.under_way.is_some() || !self.log.takes_appends() {
            return None;
        }
        let removable = |oldest: &Segment| oldest.live == 0 && oldest.last <= self.durable;
        if self.segments.len() > 1
            && let Some(oldest) = self.segments.pop_front_if(|oldest| removable(oldest))
        {
            return Some(Write::Remove { segment: oldest.number });
        }
        if !self.wants_append() {
            return None;
        }
        let group = Arc::new(self.gather());
        self.under_way = Some(Arc::clone(&group));
        Some(Write::Append(group))
    }

    /// Begin the next group; return the previous one.
    fn gather(&mut self) -> Group {
        let end = self.end();
        std::mem::replace(&mut self.gathering, Group { begin: end, end, ..Group::default() })
    }

    /// Record that the group under way is durable, in the segment of this number. Return the tasks
    /// that the group moved there.
    pub fn handle_durable(&mut self, number: u64) -> Vec<TaskId> {
        let Some(group) = self.under_way.take() else { return Vec::new() };
        self.durable = self.durable.max(group.end);
        self.log = LogState::Sound;
        if !group.records.is_empty() {
            if self.segments.back().is_none_or(|last| last.number != number) {
                self.segments.push_back(Segment::new(number, 0));
            }
            let last = self.segments.back_mut();
            last.into_iter().for_each(|last| last.bytes += group.bytes() as u64);
        }
        Arc::try_unwrap(group).map_or_else(|group| group.moved.clone(), |group| group.moved)
    }

    /// Record that the group under way failed. Drop its submits and those of the next group: new
    /// tasks are refused, and tasks to be moved stay in their segments. The other records are
    /// appended again; return the position that must be durable before they count.
    pub fn handle_failed(&mut self) -> Lsn {
        self.log = LogState::Failed;
        let later = self.gather();
        for group in self.under_way.take().as_deref().into_iter().chain([&later]) {
            let kept = group.records().filter(|(label, _)| !Record::is_submit(label));
            kept.for_each(|(label, body)| self.gathering.push(label, body));
        }
        self.end()
    }

    /// Allow appends again after a failure.
    pub const fn retry(&mut self) {
        match self.log {
            LogState::Failed => self.log = LogState::Retried,
            LogState::Sound | LogState::Retried => {}
        }
    }
}
