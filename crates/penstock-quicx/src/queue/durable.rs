//! The effects of durable and of failed writes of the journal.

use std::time::Instant;

use super::Queue;
use super::task::{State, Tick, later};
use super::timer::Timer;
use crate::{ErrorCode, Journal, Lsn, Record, TaskId};

/// For each write of the journal, the tasks examined to compact an old segment, and the bytes rewritten.
const SCANNED: u32 = 65_536;
const COMPACTED: usize = 1 << 20;

impl Queue {
    /// Record that the last append of [`poll_write`](Self::poll_write) is durable, in the segment of this number.
    pub fn handle_durable(&mut self, now: Instant, segment: u64) {
        let now = self.tick(now);
        let Some(journal) = &mut self.journal else { return };
        let moved = journal.handle_durable(segment);
        let durable = journal.durable();
        moved.into_iter().for_each(|id| self.moved(id, segment));
        self.events.journal_works();
        self.answer_durable();
        while let Some((lsn, place)) = self.accepting.front().copied()
            && lsn <= durable
        {
            self.accepting.pop_front();
            self.counters.submitted += 1;
            if let (Some(journal), Some(task)) = (&mut self.journal, self.tasks.get_mut(place)) {
                task.segment = segment;
                journal.count_task(segment, task.bytes as usize);
            }
            self.start(now, place);
        }
        self.compact();
        self.resume_all(now);
        self.read_again();
    }

    /// Record that the last append has failed. Submits that were not durable are refused; other records are retried
    /// later (decision 12).
    pub fn handle_write_failed(&mut self, now: Instant, message: &str) {
        let now = self.tick(now);
        if self.journal.is_none() {
            return;
        }
        self.counters.write_failures += 1;
        let accepting = std::mem::take(&mut self.accepting);
        let refused = accepting.len();
        let mut forgotten = Vec::with_capacity(refused);
        for (_, place) in accepting {
            self.forget_unique(place);
            let Some(task) = self.tasks.remove(place) else { continue };
            forgotten.push((task.id, self.pool.get(task.block).ok().and_then(|block| task.key(block))));
            let _ = self.pool.free(task.block);
            self.kinds.leave(task.kind);
        }
        self.keys.forget(forgotten);
        let Some(journal) = &mut self.journal else { return };
        let end = journal.handle_failed();
        self.events.journal_has_failed(now, message, refused);
        self.refuse_held(end);
        self.answer_durable();
        self.timers.insert((later(now, self.config.journal_retry), Timer::Journal));
        self.resume_all(now);
        self.read_again();
    }

    /// Release answers that waited for the disk.
    fn answer_durable(&mut self) {
        let holding = std::mem::take(&mut self.holding);
        for id in &holding {
            self.let_go(*id);
            self.mark(*id);
        }
        self.holding = holding;
    }

    /// Turn submits whose records are not durable into ERROR, in order; other answers wait for the retry.
    fn refuse_held(&mut self, end: Lsn) {
        let durable = self.journal.as_ref().map_or(Lsn(0), Journal::durable);
        for id in &self.holding {
            if let Some(connection) = self.connections.get_mut(*id) {
                self.counters.refused(ErrorCode::QueueFull, connection.output.refuse(durable, end));
            }
        }
    }

    /// Resume reading connections that were paused.
    fn resume_all(&mut self, now: Tick) {
        for id in std::mem::take(&mut self.holding) {
            if let Some(connection) = self.connections.get_mut(id) {
                connection.lists.holding = false;
            }
            self.resume(now, id);
            let waits = self.connections.get(id).is_some_and(|connection| {
                connection.output.holds() || connection.open().is_some_and(|open| open.input.is_stalled())
            });
            if waits {
                self.list(id);
            }
        }
    }

    /// Rewrite the tasks that keep the oldest segment, a few at a time, so that other work is not delayed.
    fn compact(&mut self) {
        let reasons = self.dead.bytes as u64;
        let oldest = self.journal.as_ref().and_then(|journal| journal.to_compact(reasons)).map(|segment| (segment, 0));
        let Some((oldest, start)) = self.compacting.take().or(oldest) else { return };
        let before = self.journal_waiting();
        for place in start..start.saturating_add(SCANNED) {
            if place as usize >= self.tasks.places() {
                return;
            }
            if self.journal_waiting() > before + COMPACTED {
                self.compacting = Some((oldest, place));
                return;
            }
            self.write_again(oldest, place);
        }
        self.compacting = Some((oldest, start.saturating_add(SCANNED)));
    }

    fn write_again(&mut self, oldest: u64, place: u32) {
        let Some(task) = self.tasks.get(place).filter(|task| task.segment == oldest) else { return };
        let (Some(journal), Ok(content)) = (&mut self.journal, self.pool.get(task.block)) else { return };
        let (id, order, attempts, once) = (task.id, task.order, task.attempts, task.once);
        journal.append_again(&Record::Submit { id, order, attempts, content, once });
        if task.state == State::Dead {
            let dead = self.dead.tasks.get(&order);
            let (reason, verdict) = dead.map_or((&[][..], false), |dead| (&*dead.reason, dead.verdict));
            journal.append(&Record::Dead { id, attempts, reason, verdict });
        }
    }

    /// Record the new segment of a rewritten task. A task that has ended meanwhile counts for no segment.
    fn moved(&mut self, id: TaskId, segment: u64) {
        let Some(place) = self.tasks.find(id) else { return };
        let (Some(journal), Some(task)) = (&mut self.journal, self.tasks.get_mut(place)) else { return };
        let (was, bytes) = (std::mem::replace(&mut task.segment, segment), task.bytes as usize);
        journal.release_task(was, bytes);
        journal.count_task(segment, bytes);
    }
}
