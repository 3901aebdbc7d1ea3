//! What happens when the journal is on the disk, and when it cannot be written.

use std::time::Instant;

use super::connection::Held;
use super::task::{State, Tick};
use super::time::Timer;
use super::{Event, Queue};
use crate::{ErrorCode, Failure, Frame, Journal, Lsn, Record};

impl Queue {
    /// What [`poll_write`](Self::poll_write) gave last is on the disk.
    pub fn handle_durable(&mut self, now: Instant) {
        let now = self.tick(now);
        let Some(journal) = &mut self.journal else { return };
        journal.handle_durable();
        let durable = journal.durable();
        if std::mem::take(&mut self.events.journal_failed) {
            self.events.push(Event::JournalWorks);
        }
        self.answer_durable(durable);
        while let Some((lsn, place)) = self.accepting.front().copied()
            && lsn <= durable
        {
            self.accepting.pop_front();
            self.start(now, place);
        }
        self.compact();
        self.resume_all(now);
    }

    /// It is not. Submits that were not durable are refused; the rest is written again, a little later (decision 12).
    pub fn handle_write_failed(&mut self, now: Instant, message: &str) {
        let now = self.tick(now);
        if self.journal.is_none() {
            return;
        }
        self.counters.write_failures += 1;
        let accepting = std::mem::take(&mut self.accepting);
        let mut cancelled = Vec::with_capacity(accepting.len());
        for (_, place) in accepting {
            self.forget_unique(place);
            let Some(task) = self.tasks.remove(place) else { continue };
            if let Some(key) = self.pool.get(task.block).ok().and_then(|block| task.key(block)) {
                self.keys.forget(key);
            }
            let _ = self.pool.free(task.block);
            self.kinds.leave(task.kind);
            if let Some(journal) = &mut self.journal {
                journal.gone(task.segment, task.octets as usize);
            }
            cancelled.push(task.id);
        }
        self.counters.submitted -= cancelled.len() as u64;
        let refused = cancelled.len();
        let Some(journal) = &mut self.journal else { return };
        let end = journal.handle_failed(cancelled);
        let durable = journal.durable();
        self.events.journal_failed = true;
        self.events.push(Event::JournalFailed { message: message.to_owned(), refused });
        self.refuse_held(end);
        self.answer_durable(durable);
        self.timers.insert((now + self.config.journal_retry.as_micros() as u64, Timer::Journal));
        self.resume_all(now);
    }

    /// Answers that waited for the disk.
    fn answer_durable(&mut self, durable: Lsn) {
        for id in self.holding.clone() {
            let Some(connection) = self.connections.get_mut(id) else { continue };
            while let Some(held) = connection.held.pop_front() {
                match held {
                    Held::Submit { id, lsn } | Held::Control { id, lsn } if lsn <= durable => {
                        connection.write(&Frame::Ok(id));
                    }
                    Held::Octets(octets) => connection.out.extend_from_slice(&octets),
                    Held::Submit { .. } | Held::Control { .. } => {
                        connection.held.push_front(held);
                        break;
                    }
                }
            }
            self.mark(id);
        }
    }

    /// Submits whose records are not on the disk become ERROR, in their turn; the rest waits for what is written again.
    fn refuse_held(&mut self, end: Lsn) {
        let durable = self.journal.as_ref().map_or(Lsn(0), Journal::durable);
        let failure = Failure { code: ErrorCode::QueueFull, message: b"the journal cannot be written" };
        for id in self.holding.clone() {
            let Some(connection) = self.connections.get_mut(id) else { continue };
            for held in &mut connection.held {
                match held {
                    Held::Submit { lsn, .. } if *lsn > durable => {
                        let mut octets = Vec::new();
                        let _ = Frame::Error(failure).encode(&mut octets);
                        *held = Held::Octets(octets);
                        self.counters.refused(ErrorCode::QueueFull);
                    }
                    Held::Control { lsn, .. } => *lsn = end,
                    Held::Submit { .. } | Held::Octets(_) => {}
                }
            }
        }
    }

    /// Connections of which nothing was read may be read again.
    fn resume_all(&mut self, now: Tick) {
        for id in std::mem::take(&mut self.holding) {
            if let Some(connection) = self.connections.get_mut(id) {
                connection.listed = false;
            }
            self.resume(now, id);
            if self.connections.get(id).is_some_and(|connection| !connection.held.is_empty() || connection.stalled) {
                self.list(id);
            }
        }
    }

    /// Writes the tasks of the oldest segment again, where that is what keeps it.
    fn compact(&mut self) {
        let Some(oldest) = self.journal.as_ref().and_then(Journal::to_compact) else { return };
        let places: Vec<u32> =
            self.tasks.iter().filter(|(_, task)| task.segment == oldest).map(|(place, _)| place).collect();
        for place in places {
            let (Some(journal), Some(task)) = (&mut self.journal, self.tasks.get_mut(place)) else { return };
            let Ok(content) = self.pool.get(task.block) else { continue };
            let (id, order, attempts, once) = (task.id, task.order, task.attempts, task.once);
            let (segment, _) = journal.append(&Record::Submit { id, order, attempts, content, once }, false);
            if task.state == State::Dead {
                let reason = self.dead.tasks.get(&order).map_or(&[][..], |(_, reason)| &**reason);
                journal.append(&Record::Dead { id, attempts, reason }, false);
            }
            journal.gone(oldest, content.len());
            journal.born(segment, content.len());
            task.segment = segment;
        }
    }
}
