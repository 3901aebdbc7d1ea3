use std::collections::VecDeque;

use super::ConnectionId;
use super::task::Tick;
use crate::{ErrorCode, TaskId};

/// The most queued events; later ones are only counted.
const MOST: usize = 1_024;
/// Microseconds between two reports that the journal cannot be written.
const REPORT_INTERVAL: Tick = 60_000_000;
/// The most bytes of a reason in an event.
const REASON: usize = 1 << 10;

/// An event for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A worker has failed at a task.
    Failed {
        /// The task's ID.
        id: TaskId,
        /// Its type.
        kind: String,
        /// The reason, cut at 1 KiB.
        reason: String,
        /// Whether it will be retried.
        again: bool,
    },
    /// A task went to the dead list.
    Dead {
        /// The task's ID.
        id: TaskId,
        /// Its type.
        kind: String,
        /// Deliveries.
        attempts: u16,
        /// Why its last delivery failed.
        reason: String,
    },
    /// A connection was cut off because it does not read.
    Slow {
        /// The connection.
        connection: ConnectionId,
    },
    /// A worker or a producer was cut off because it does not answer heartbeats.
    Silent {
        /// The connection.
        connection: ConnectionId,
    },
    /// The journal cannot be written; reported at the first failure, and then once a minute.
    JournalFailed {
        /// The system's message.
        message: String,
        /// The submits refused since the last report.
        refused: usize,
    },
    /// The journal can be written again.
    JournalWorks,
    /// A client requests a stop.
    Stop {
        /// The client's connection.
        connection: ConnectionId,
    },
}

/// The counters of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Connections that were opened.
    pub connections: u64,
    /// Accepted tasks, that is, answered with OK; with a journal these are durable.
    pub submitted: u64,
    /// Submits that were merged into another task, by `unique` or by their keys.
    pub merged: u64,
    /// Frames refused with ERROR, by code: 0x01 to 0x04.
    pub errors: [u64; 4],
    /// Deliveries.
    pub delivered: u64,
    /// Tasks done.
    pub done: u64,
    /// Tasks that failed permanently.
    pub failed: u64,
    /// Failures that are retried.
    pub retried: u64,
    /// Tasks returned because their worker's connection ended.
    pub lost: u64,
    /// Tasks returned because their leases ended.
    pub late: u64,
    /// Tasks that went to the dead list.
    pub died: u64,
    /// Dead tasks that were queued again.
    pub requeued: u64,
    /// Dead tasks that were dropped.
    pub dropped: u64,
    /// Connections cut off because they do not read.
    pub slow: u64,
    /// Workers cut off because they do not answer heartbeats.
    pub silent: u64,
    /// Producers cut off because they do not answer heartbeats.
    pub silent_producers: u64,
    /// Writes of the journal that failed.
    pub write_failures: u64,
    /// Damaged places found in the journal when the daemon began.
    pub damaged: u64,
}

impl Counters {
    pub(super) fn refused(&mut self, code: ErrorCode, times: u64) {
        let index = usize::from(code.byte().saturating_sub(1));
        if let Some(counter) = self.errors.get_mut(index) {
            *counter += times;
        }
    }
}

/// Queued events.
#[derive(Debug, Default)]
pub(super) struct Events {
    waiting: VecDeque<Event>,
    /// When the failure of the journal was last reported, and the submits refused since.
    failed: Option<Tick>,
    refused: usize,
}

impl Events {
    pub(super) fn push(&mut self, event: Event) {
        if self.waiting.len() < MOST {
            self.waiting.push_back(event);
        }
    }

    /// Report the failure when it begins, and then once a minute.
    pub(super) fn journal_has_failed(&mut self, now: Tick, message: &str, refused: usize) {
        self.refused += refused;
        if self.failed.is_none_or(|reported| now.saturating_sub(reported) >= REPORT_INTERVAL) {
            self.failed = Some(now);
            let refused = std::mem::take(&mut self.refused);
            self.push(Event::JournalFailed { message: message.to_owned(), refused });
        }
    }

    pub(super) fn journal_works(&mut self) {
        self.refused = 0;
        if self.failed.take().is_some() {
            self.push(Event::JournalWorks);
        }
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        self.waiting.pop_front()
    }
}

/// Return a peer's bytes as the log shows them.
pub(super) fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.get(..REASON).unwrap_or(bytes)).into_owned()
}
