//! The daemon's answers to the requests of producers and monitors.

use std::fmt;

use penstock_wire::ErrorKind;

use crate::frame::{ErrorCode, StatsResponse, TaskId};

/// A refusal: the content of ERROR.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The error code.
    pub code: ErrorCode,
    /// The message of the daemon, cut at 1 KiB.
    pub message: String,
}

impl Refused {
    /// Return whose fault the refusal is.
    pub const fn kind(&self) -> ErrorKind {
        match self.code {
            ErrorCode::QueueFull | ErrorCode::TooLarge => ErrorKind::Limit,
            ErrorCode::Invalid | ErrorCode::UnknownType | ErrorCode::Other(_) => ErrorKind::Violation,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the daemon refused it ({}): {}", self.code, self.message)
    }
}

impl std::error::Error for Refused {}

/// A dead task, as DEAD_TASKS lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadEntry {
    /// Its ID.
    pub id: TaskId,
    /// Its type.
    pub kind: Vec<u8>,
    /// How often it was delivered.
    pub attempts: u16,
    /// Why the last delivery failed.
    pub reason: Vec<u8>,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// OK: the task that was submitted, requeued or dropped; 0 for STOP.
    Accepted(TaskId),
    /// The task is observed; its outcome is a separate event.
    Observed,
    /// STATS_RESPONSE.
    Stats(StatsResponse),
    /// DEAD_TASKS.
    Dead(Vec<DeadEntry>),
    /// PONG.
    Alive,
}
