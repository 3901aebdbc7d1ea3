use std::collections::BTreeSet;

use penstock_pool::PoolConfig;
use penstock_wire::FastMap;

use super::{Label, Record};
use crate::error::{Limit, Result};
use crate::frame::TaskId;

/// A task that a journal holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveredTask {
    /// Its ID.
    pub id: TaskId,
    /// Deliveries so far.
    pub attempts: u16,
    /// Whether the task is on the dead list.
    pub state: RecoveredState,
    /// Its number in the order of submission.
    pub order: u64,
    /// The bytes of its content: type, payload and key.
    pub bytes: usize,
    /// Whether it has a key.
    pub once: bool,
    /// The segment that holds its content.
    pub segment: u64,
    /// The offset of its content in the segment.
    pub offset: u64,
}

/// The state of a task that a journal holds:
///
/// ```text
///           its last attempt failed
///  Waiting ────────────────────────▶ Dead
///     ▲      it is queued again        │
///     └────────────────────────────────┘
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RecoveredState {
    /// It is not on the dead list: it is delivered, unless it has no attempts left.
    #[default]
    Waiting,
    /// It is on the dead list.
    Dead {
        /// Why the last delivery failed, as far as the dead list kept it.
        reason: Vec<u8>,
        /// Whether the reason comes from a worker.
        verdict: bool,
    },
}

/// The tasks that a journal holds, found by applying its records in order. Content is not read yet:
/// once the live tasks are known and the pool has room for them, it goes straight into the pool.
#[derive(Debug, Default)]
pub struct Recovery {
    tasks: FastMap<u32, RecoveredTask>,
    lost: BTreeSet<u32>,
}

impl Recovery {
    /// Apply a record whose body ends at this offset of the segment.
    pub fn apply(&mut self, segment: u64, end: u64, record: &Record<'_>) {
        let task = self.tasks.get_mut(&record.id().0);
        match (record, task) {
            (Record::Submit { id, order, attempts, content, once }, before) => {
                let (id, order, attempts, bytes, once) = (*id, *order, *attempts, content.len(), *once);
                let offset = end.saturating_sub(bytes as u64);
                // A dead task that is written again stays dead, even if a crash lost the DEAD that follows.
                let before = before.filter(|task| task.order == order);
                let state = before.map_or(RecoveredState::Waiting, |task| std::mem::take(&mut task.state));
                let task = RecoveredTask { id, attempts, state, order, bytes, once, segment, offset };
                self.tasks.insert(id.0, task);
                self.lost.remove(&id.0);
            }
            (Record::Gone { id }, _) => {
                self.tasks.remove(&id.0);
                self.lost.remove(&id.0);
            }
            (Record::Delivered { attempts, .. }, Some(task)) => task.attempts = *attempts,
            (Record::Dead { attempts, reason, verdict, .. }, Some(task)) => {
                task.attempts = *attempts;
                task.state = RecoveredState::Dead { reason: reason.to_vec(), verdict: *verdict };
            }
            (Record::Requeued { order, .. }, Some(task)) => {
                (task.order, task.attempts, task.state) = (*order, 0, RecoveredState::Waiting);
            }
            // The task had ended, and the segment with its SUBMIT was removed.
            (Record::Delivered { .. } | Record::Dead { .. } | Record::Requeued { .. }, None) => {}
        }
    }

    /// Apply the label of a record whose body is damaged. A task whose reason is lost stays dead. Lost
    /// content may still exist in an earlier segment, if the record is a task that was written again.
    pub fn apply_label(&mut self, segment: u64, label: &Label) {
        match Record::read(label, &[]) {
            Some(Record::Submit { id, order, attempts, .. }) => match self.tasks.get_mut(&id.0) {
                Some(task) if task.order == order => task.attempts = attempts,
                Some(task) => {
                    (task.order, task.attempts, task.state) = (order, attempts, RecoveredState::Waiting);
                }
                None => {
                    self.lost.insert(id.0);
                }
            },
            Some(record) => self.apply(segment, 0, &record),
            None => {}
        }
    }

    /// Return the tasks found, in order of submission.
    pub fn tasks(&self) -> Vec<&RecoveredTask> {
        let mut tasks: Vec<_> = self.tasks.values().collect();
        tasks.sort_unstable_by_key(|task| task.order);
        tasks
    }

    /// Return the tasks that are known to be lost.
    pub fn lost(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.lost.iter().copied().map(TaskId)
    }

    /// Check that the tasks fit into a pool. Fails as a limit that names the size needed
    /// (decision 14).
    pub fn check(&self, pool: &PoolConfig) -> Result<()> {
        let needed = pool.bytes_for(self.tasks.values().map(|task| task.bytes));
        let needed = needed.map_err(Limit::JournalTask)?;
        if needed > pool.bytes {
            return Err(Limit::JournalPool { tasks: self.tasks.len(), needed, bytes: pool.bytes }.into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn submit(id: u32, content: &[u8]) -> Record<'_> {
        Record::Submit { id: TaskId(id), order: u64::from(id), attempts: 1, content, once: false }
    }

    #[test]
    fn a_dead_task_that_is_written_again_is_dead_although_that_is_lost() {
        let dead = Record::Dead { id: TaskId(1), attempts: 5, reason: b"why", verdict: true };
        for is_damaged in [false, true] {
            let mut recovery = Recovery::default();
            recovery.apply(1, 100, &submit(1, b"\x01aone"));
            recovery.apply(1, 200, &dead);
            if is_damaged {
                recovery.apply_label(2, &submit(1, b"\x01aone").label());
            } else {
                recovery.apply(2, 100, &submit(1, b"\x01aone"));
            }
            let found: Vec<_> = recovery.tasks().iter().map(|task| task.state.clone()).collect();
            assert_eq!(found, [RecoveredState::Dead { reason: b"why".to_vec(), verdict: true }]);
            // A task that has left the dead list is not dead, nor is a new task with the same ID.
            recovery.apply(2, 200, &Record::Requeued { id: TaskId(1), order: 9 });
            recovery.apply(
                2,
                300,
                &Record::Submit { id: TaskId(1), order: 9, attempts: 0, content: b"\x01aone", once: false },
            );
            assert_eq!(recovery.tasks()[0].state, RecoveredState::Waiting);
            recovery.apply(2, 400, &dead);
            recovery.apply(2, 500, &submit(1, b"\x01aother"));
            assert_eq!(recovery.tasks()[0].state, RecoveredState::Waiting);
        }
    }

    #[test]
    fn what_a_label_says_counts_where_its_body_is_damaged() {
        let mut recovery = Recovery::default();
        recovery.apply(1, 100, &submit(1, b"\x01aone"));
        recovery.apply(1, 200, &submit(2, b"\x01atwo"));
        // The reason is lost, but the task is dead.
        recovery.apply_label(1, &Record::Dead { id: TaskId(1), attempts: 5, reason: b"why", verdict: true }.label());
        // The task was written again, but its first copy still exists.
        recovery.apply_label(2, &submit(2, b"\x01atwo").label());
        // Tasks 3 and 4 are damaged, but only task 3 is lost, because task 4 has ended.
        recovery.apply_label(2, &submit(3, b"\x01athree").label());
        recovery.apply_label(2, &submit(4, b"\x01afour").label());
        recovery.apply(2, 300, &Record::Gone { id: TaskId(4) });
        let found: Vec<_> = recovery.tasks().iter().map(|task| (task.id.0, task.segment, task.state.clone())).collect();
        let dead = RecoveredState::Dead { reason: Vec::new(), verdict: true };
        assert_eq!(found, [(1, 1, dead), (2, 1, RecoveredState::Waiting)]);
        assert_eq!(recovery.lost().collect::<Vec<_>>(), [TaskId(3)]);
    }
}
