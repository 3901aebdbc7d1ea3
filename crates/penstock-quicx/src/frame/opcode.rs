use std::fmt;

use super::{Prefetch, StatsResponse, TaskId};

/// The kind of a frame (decisions 1, 6 and 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Opcode {
    Submit,
    Ok,
    Error,
    Ready,
    Task,
    Done,
    Failed,
    Wait,
    Heartbeat,
    Pong,
    Stats,
    StatsResponse,
    Observe,
    Prefetch,
    Subscribe,
    DeadList,
    DeadTasks,
    DeadRequeue,
    DeadDrop,
    Stop,
    SubmitOnce,
    DeadAfter,
}

impl Opcode {
    const ALL: [(Self, u8, &'static str); 22] = [
        (Self::Submit, 0x01, "SUBMIT"),
        (Self::Ok, 0x02, "OK"),
        (Self::Error, 0x03, "ERROR"),
        (Self::Ready, 0x04, "READY"),
        (Self::Task, 0x05, "TASK"),
        (Self::Done, 0x06, "DONE"),
        (Self::Failed, 0x07, "FAILED"),
        (Self::Wait, 0x08, "WAIT"),
        (Self::Heartbeat, 0x09, "HEARTBEAT"),
        (Self::Pong, 0x0A, "PONG"),
        (Self::Stats, 0x0B, "STATS"),
        (Self::StatsResponse, 0x0C, "STATS_RESPONSE"),
        (Self::Observe, 0x20, "OBSERVE"),
        (Self::Prefetch, 0x21, "PREFETCH"),
        (Self::Subscribe, 0x22, "SUBSCRIBE"),
        (Self::DeadList, 0x23, "DEAD_LIST"),
        (Self::DeadTasks, 0x24, "DEAD_TASKS"),
        (Self::DeadRequeue, 0x25, "DEAD_REQUEUE"),
        (Self::DeadDrop, 0x26, "DEAD_DROP"),
        (Self::Stop, 0x27, "STOP"),
        (Self::SubmitOnce, 0x28, "SUBMIT_ONCE"),
        (Self::DeadAfter, 0x29, "DEAD_AFTER"),
    ];

    const fn row(self) -> (Self, u8, &'static str) {
        // The variants and the rows have the same order; a test checks this.
        match self {
            Self::Submit => Self::ALL[0],
            Self::Ok => Self::ALL[1],
            Self::Error => Self::ALL[2],
            Self::Ready => Self::ALL[3],
            Self::Task => Self::ALL[4],
            Self::Done => Self::ALL[5],
            Self::Failed => Self::ALL[6],
            Self::Wait => Self::ALL[7],
            Self::Heartbeat => Self::ALL[8],
            Self::Pong => Self::ALL[9],
            Self::Stats => Self::ALL[10],
            Self::StatsResponse => Self::ALL[11],
            Self::Observe => Self::ALL[12],
            Self::Prefetch => Self::ALL[13],
            Self::Subscribe => Self::ALL[14],
            Self::DeadList => Self::ALL[15],
            Self::DeadTasks => Self::ALL[16],
            Self::DeadRequeue => Self::ALL[17],
            Self::DeadDrop => Self::ALL[18],
            Self::Stop => Self::ALL[19],
            Self::SubmitOnce => Self::ALL[20],
            Self::DeadAfter => Self::ALL[21],
        }
    }

    /// Return the byte on the wire.
    pub const fn byte(self) -> u8 {
        self.row().1
    }

    /// Return the name, without `MSG_`.
    pub const fn name(self) -> &'static str {
        self.row().2
    }

    /// Return the opcode with this byte, if there is one.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.iter().find(|row| row.1 == byte).map(|row| row.0)
    }

    /// Return whether only the daemon sends such frames.
    pub const fn is_daemons(self) -> bool {
        match self {
            Self::Ok | Self::Error | Self::Task | Self::Wait | Self::StatsResponse | Self::DeadTasks => true,
            Self::Submit
            | Self::Ready
            | Self::Done
            | Self::Failed
            | Self::Heartbeat
            | Self::Pong
            | Self::Stats
            | Self::Observe
            | Self::Prefetch
            | Self::Subscribe
            | Self::DeadList
            | Self::DeadRequeue
            | Self::DeadDrop
            | Self::Stop
            | Self::SubmitOnce
            | Self::DeadAfter => false,
        }
    }

    /// Return whether the daemon sends such frames, even if clients send them too.
    pub(crate) const fn is_to_clients(self) -> bool {
        self.is_daemons()
            || match self {
                Self::Done | Self::Failed | Self::Heartbeat | Self::Pong => true,
                Self::Submit
                | Self::Ok
                | Self::Error
                | Self::Ready
                | Self::Task
                | Self::Wait
                | Self::Stats
                | Self::StatsResponse
                | Self::Observe
                | Self::Prefetch
                | Self::Subscribe
                | Self::DeadList
                | Self::DeadTasks
                | Self::DeadRequeue
                | Self::DeadDrop
                | Self::Stop
                | Self::SubmitOnce
                | Self::DeadAfter => false,
            }
    }

    /// Return the bytes of the payload, if its layout has a fixed length.
    pub(crate) const fn length(self) -> Option<usize> {
        match self {
            Self::Ready | Self::Wait | Self::Heartbeat | Self::Pong | Self::Stats | Self::DeadList | Self::Stop => {
                Some(0)
            }
            Self::Ok | Self::Done | Self::Observe | Self::DeadRequeue | Self::DeadDrop | Self::DeadAfter => {
                Some(TaskId::LENGTH)
            }
            Self::StatsResponse => Some(StatsResponse::LENGTH),
            Self::Prefetch => Some(Prefetch::LENGTH),
            Self::Submit
            | Self::SubmitOnce
            | Self::Error
            | Self::Task
            | Self::Failed
            | Self::Subscribe
            | Self::DeadTasks => None,
        }
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opcode_has_its_row() {
        for (opcode, byte, name) in Opcode::ALL {
            assert_eq!((opcode.byte(), opcode.name()), (byte, name));
            assert_eq!(Opcode::from_byte(byte), Some(opcode));
        }
        assert_eq!((0..=u8::MAX).filter_map(Opcode::from_byte).count(), 22);
    }
}
