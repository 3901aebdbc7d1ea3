//! Stream 0 at fixed intervals (section 10.6), so that its content and its timing reveal nothing about what is
//! processed.
//!
//! ```text
//!  idle   CAPABILITIES   [heartbeats]        [heartbeats]        [heartbeats]        ...
//!  busy   CAPABILITIES   [frames, heartb.]   [frames, frames]    [frames, heartb.]   ...
//!         immediately    └ 1,152 bytes, once an interval, with nothing between
//! ```
//!
//! A block that frames do not fill is padded with heartbeats, STATUS UNSPECIFIED of the connection,
//! which every peer ignores (section 5.1.3), and which the counts of taken frames leave out. A
//! frame that does not fit continues in the next block. The intervals are counted from the
//! beginning of the session. The end of a session is not hidden, so the remaining bytes are then
//! sent immediately, in whole blocks too.

use std::time::Instant;

use bytes::Bytes;

use super::Session;
use super::link::Link;
use super::pace::STATUS_BLOCK;
use super::state::State;
use crate::Frame;

impl Session {
    /// Return how many bytes for stream 0 [`poll_transmit`](Self::poll_transmit) has not returned
    /// yet.
    pub fn queued_control(&self) -> usize {
        self.control.len()
    }

    /// Return whether stream 0 is written to at fixed intervals.
    pub fn is_paced(&self) -> bool {
        self.pace.is_some() && self.state != State::Closed
    }

    /// Return when the next block is due, once both CAPABILITIES have arrived over the present connection.
    pub(super) fn next_block(&self) -> Option<Instant> {
        let greeted = match self.survival.link {
            Link::Up => self.agreement.is_some(),
            Link::Greeting { agreed } => agreed,
            Link::Down | Link::Returning(_) => false,
        };
        self.pace.as_ref().filter(|_| greeted && self.state != State::Closed).map(|pace| pace.next)
    }

    pub(super) fn expire_block(&mut self, now: Instant) {
        if self.next_block().is_some_and(|at| at <= now)
            && let Some(pace) = &mut self.pace
        {
            pace.tick(now);
        }
    }

    /// Return the next bytes for stream 0 of a session that sends at fixed intervals.
    pub(super) fn poll_block(&mut self, max: usize) -> Option<Bytes> {
        if self.greeting > 0 {
            let length = self.greeting.min(self.control.len()).min(max.max(1));
            self.greeting = self.greeting.saturating_sub(length);
            return Some(self.control.split_to(length).freeze());
        }
        let last = self.state == State::Closed;
        let due = self.pace.as_mut().is_some_and(|pace| std::mem::take(&mut pace.due));
        if !due && (!last || self.control.is_empty()) {
            return None;
        }
        let padded = self.control.len() < STATUS_BLOCK;
        while self.control.len() < STATUS_BLOCK {
            Frame::heartbeat().encode(&mut self.control);
        }
        let block = self.control.split_to(STATUS_BLOCK).freeze();
        if last && padded {
            // Only the rest of a heartbeat is left, and nothing follows it. Without padding it is
            // the rest of a frame, which needs another block.
            self.control.clear();
        }
        Some(block)
    }
}
