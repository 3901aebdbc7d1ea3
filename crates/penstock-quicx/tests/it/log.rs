//! A log as its users know it: what was appended is there, what failed may be there until a later append has succeeded.
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::collections::BTreeMap;

use penstock_quicx::{Group, Label, Record, RecoveredTask, Recovery};

/// Labels, each with where its body ends, and the bodies.
#[derive(Debug, Default, Clone)]
struct Segment {
    records: Vec<(Label, usize)>,
    bodies: Vec<u8>,
}

impl Segment {
    fn push(&mut self, group: &Group, count: usize) {
        for (label, body) in group.records().take(count) {
            self.bodies.extend_from_slice(body);
            self.records.push((label, self.bodies.len()));
        }
    }

    fn bytes(&self) -> usize {
        self.bodies.len() + 40 * self.records.len()
    }
}

/// Segments, and the one that is appended to.
#[derive(Debug, Clone)]
pub(crate) struct ModelLog {
    segments: BTreeMap<u64, Segment>,
    open: Option<u64>,
    pub(crate) most: usize,
    /// What a segment has become by appends that failed: its number, and what it was.
    unsettled: Option<(u64, Segment)>,
}

impl ModelLog {
    /// Return a log whose segments end after this many bytes.
    pub(crate) const fn new(most: usize) -> Self {
        Self { segments: BTreeMap::new(), open: None, most, unsettled: None }
    }

    /// What a new process finds.
    pub(crate) fn restarted(mut self) -> Self {
        (self.open, self.unsettled) = (None, None);
        self.segments.retain(|_, segment| !segment.records.is_empty());
        self
    }

    pub(crate) fn append(&mut self, group: &Group) -> u64 {
        if let Some((number, segment)) = self.unsettled.take() {
            self.segments.insert(number, segment);
        }
        let is_full = |number: &u64| self.segments.get(number).is_some_and(|segment| segment.bytes() >= self.most);
        let next = || self.segments.last_key_value().map_or(1, |(last, _)| last + 1);
        let number = self.open.filter(|open| !is_full(open)).unwrap_or_else(next);
        self.open = Some(number);
        self.segments.entry(number).or_default().push(group, usize::MAX);
        number
    }

    /// Let an append fail with this many of its records in the last segment.
    pub(crate) fn fail(&mut self, group: &Group, count: usize) {
        self.open = None;
        let Some(mut last) = self.segments.last_entry() else { return };
        self.unsettled.get_or_insert((*last.key(), last.get().clone()));
        last.get_mut().push(group, count);
    }

    pub(crate) fn remove(&mut self, number: u64) {
        assert_ne!(self.open, Some(number), "what is appended to stays");
        assert!(self.segments.remove(&number).is_some(), "it was there");
    }

    /// The numbers of all segments with their bytes.
    pub(crate) fn segments(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.segments.iter().map(|(number, segment)| (*number, segment.bytes() as u64))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.segments.values().map(Segment::bytes).sum()
    }

    pub(crate) fn recover(&self) -> Recovery {
        let mut recovery = Recovery::default();
        for (number, segment) in &self.segments {
            let mut start = 0;
            for (label, end) in &segment.records {
                let record = Record::read(label, &segment.bodies[start..*end]).expect("ours");
                recovery.apply(*number, *end as u64, &record);
                start = *end;
            }
        }
        recovery
    }

    pub(crate) fn content(&self, task: &RecoveredTask) -> &[u8] {
        let start = usize::try_from(task.offset).expect("short");
        &self.segments[&task.segment].bodies[start..start + task.bytes]
    }
}
