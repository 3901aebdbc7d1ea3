use std::collections::BTreeMap;

use penstock_pool::PoolConfig;
use penstock_wire::FastMap;

use super::header::{BadSegment, Header, read_segment_header};
use super::{Damage, Record, Records};
use crate::error::{Limit, Malformed, Misuse, Result};
use crate::frame::TaskId;

/// A task that a journal holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// Its ID.
    pub id: TaskId,
    /// Deliveries so far.
    pub attempts: u16,
    /// Why it is on the dead list, if it is.
    pub dead: Option<Vec<u8>>,
    /// Whether that is what a worker has said.
    pub verdict: bool,
    /// Its place in the order of submission.
    pub order: u64,
    /// Bytes of its type and payload, and of its key.
    pub bytes: usize,
    /// Whether it has one.
    pub once: bool,
    /// The segment that holds them.
    pub segment: u64,
    /// Where its record begins there.
    offset: usize,
}

/// Finds out which tasks a journal holds. Segments are read twice, in the order of their numbers: once to learn which tasks
/// count ([`scan`](Self::scan)), and once for their content alone ([`content`](Self::content)), so that it goes straight into the
/// pool.
#[derive(Debug, Default)]
pub struct Recovery {
    tasks: FastMap<u32, Recovered>,
    segments: BTreeMap<u64, u64>,
    damage: Vec<Damage>,
}

impl Recovery {
    /// Reads the segment that has this number by its name. False where the process died when it had just made it: it holds
    /// nothing. It may be torn or damaged, wherever: what is whole counts, and [`damage`](Self::damage) says what is not.
    ///
    /// Fails as malformed where it is no segment, of a format that is not known, or another one by its content; as misuse where
    /// it comes out of its order.
    pub fn scan(&mut self, number: u64, segment: &[u8]) -> Result<bool> {
        let header = match read_segment_header(segment, number) {
            Ok(header) => header,
            Err(BadSegment::Short) => return Ok(false),
            Err(BadSegment::Foreign) => return Err(Malformed::Segment.into()),
            Err(BadSegment::Format(format)) => return Err(Malformed::SegmentFormat(format).into()),
            Err(BadSegment::Number(found)) => return Err(Malformed::SegmentNumber(found).into()),
        };
        if self.segments.last_key_value().is_some_and(|(last, _)| *last >= number) {
            return Err(Misuse::SegmentOrder(number).into());
        }
        let (mut records, mut read) = (Records::new(segment), 0);
        while let Some(record) = records.next() {
            self.apply(number, records.at(), &record);
            read += 1;
        }
        if header == Header::Damaged {
            self.damage.push(Damage::header(number, read));
        }
        self.damage.extend(records.damage(number));
        self.segments.insert(number, segment.len() as u64);
        Ok(true)
    }

    fn apply(&mut self, segment: u64, offset: usize, record: &Record<'_>) {
        let task = self.tasks.get_mut(&record.id().0);
        match (record, task) {
            (Record::Submit { id, order, attempts, content, once }, _) => {
                let (id, order, attempts, bytes, once) = (*id, *order, *attempts, content.len(), *once);
                let (dead, verdict) = (None, false);
                let task = Recovered { id, attempts, dead, verdict, order, bytes, once, segment, offset };
                self.tasks.insert(id.0, task);
            }
            (Record::Gone { id }, _) => {
                self.tasks.remove(&id.0);
            }
            (Record::Delivered { attempts, .. }, Some(task)) => task.attempts = *attempts,
            (Record::Dead { attempts, reason, verdict, .. }, Some(task)) => {
                (task.attempts, task.dead, task.verdict) = (*attempts, Some(reason.to_vec()), *verdict);
            }
            (Record::Requeued { order, .. }, Some(task)) => {
                (task.order, task.attempts, task.dead, task.verdict) = (*order, 0, None, false);
            }
            // Of a task whose segment went because it was gone.
            (Record::Delivered { .. } | Record::Dead { .. } | Record::Requeued { .. }, None) => {}
        }
    }

    /// The tasks found, in order of submission.
    pub fn tasks(&self) -> Vec<&Recovered> {
        let mut tasks: Vec<_> = self.tasks.values().collect();
        tasks.sort_unstable_by_key(|task| task.order);
        tasks
    }

    /// What could not be read of the segments.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Fails as a limit where the tasks do not fit into a pool, and names the size needed (decision 14).
    pub fn check(&self, pool: &PoolConfig) -> Result<()> {
        let needed = pool.bytes_for(self.tasks.values().map(|task| task.bytes));
        let needed = needed.map_err(Limit::JournalTask)?;
        if needed > pool.bytes {
            return Err(Limit::JournalPool { tasks: self.tasks.len(), needed, bytes: pool.bytes }.into());
        }
        Ok(())
    }

    /// The segments scanned, each with its bytes: what [`Journal`](super::Journal) goes on behind.
    pub fn segments(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.segments.iter().map(|(number, bytes)| (*number, *bytes))
    }

    /// The tasks whose content is in the segment of this number, with it.
    pub fn content<'s>(
        &'s self,
        number: u64,
        segment: &'s [u8],
    ) -> impl Iterator<Item = (&'s Recovered, &'s [u8])> + 's {
        let mut records = Records::new(segment);
        std::iter::from_fn(move || records.next().map(|record| (records.at(), record))).filter_map(
            move |(offset, record)| match record {
                Record::Submit { id, content, .. } => {
                    let task = self.tasks.get(&id.0)?;
                    (task.segment == number && task.offset == offset).then_some((task, content))
                }
                Record::Delivered { .. } | Record::Gone { .. } | Record::Dead { .. } | Record::Requeued { .. } => None,
            },
        )
    }
}
