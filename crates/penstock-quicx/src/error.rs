use penstock_pool::{AllocError, ConfigError};
use penstock_wire::{ErrorKind, Truncated};

use crate::answer::{Answer, Refused};
use crate::frame::{ErrorCode, Opcode, TaskId};
use crate::limits::{LARGEST, SUBSCRIBE};

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error, classified by whose fault it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes do not parse.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The bytes parse, but the peer broke a rule.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// A limit was exceeded.
    #[error(transparent)]
    Limit(#[from] Limit),
    /// The caller broke a rule.
    #[error(transparent)]
    Misuse(#[from] Misuse),
}

/// A frame, or a task in the journal, that does not parse (decision 3).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// A frame of another version.
    #[error("version 0x{0:02X}; only 0x01 is spoken here")]
    Version(u8),
    /// A frame whose payload is above the limit for all frames.
    #[error("a frame of {length} bytes is above the limit of {LARGEST}")]
    FrameLength {
        /// Bytes of payload.
        length: u32,
    },
    /// A frame with an unknown opcode.
    #[error("there is no opcode 0x{0:02X}")]
    Opcode(u8),
    /// A frame in the wrong direction.
    #[error("{0} goes the other way")]
    Direction(Opcode),
    /// A frame whose payload does not have its fixed length.
    #[error("{opcode} has no payload of {length} bytes")]
    PayloadLength {
        /// The frame's opcode.
        opcode: Opcode,
        /// Bytes of payload.
        length: usize,
    },
    /// A task larger than every size class.
    #[error("a task of {length} bytes is above the largest size class of {largest}")]
    TaskLength {
        /// Bytes of payload.
        length: usize,
        /// The largest size class.
        largest: usize,
    },
    /// A subscription that is too long.
    #[error("SUBSCRIBE of {length} bytes is above the limit of {SUBSCRIBE}")]
    SubscribeLength {
        /// Bytes of payload.
        length: usize,
    },
    /// A payload that is shorter than its fields.
    #[error("the payload of {opcode} is {truncated}")]
    Payload {
        /// The frame's opcode.
        opcode: Opcode,
        /// The field that is cut off.
        truncated: Truncated,
    },
    /// A payload that is longer than its fields.
    #[error("{opcode} has {length} bytes of payload, {trailing} too many")]
    Trailing {
        /// The frame's opcode.
        opcode: Opcode,
        /// Bytes of payload.
        length: usize,
        /// Bytes after the last field.
        trailing: usize,
    },
    /// A worker that may hold no task.
    #[error("PREFETCH of 0 tasks")]
    EmptyPrefetch,
    /// A subscription whose last type is cut off.
    #[error("SUBSCRIBE ends inside of a type")]
    SubscribeEnd,
    /// A list of dead tasks whose last one is cut off.
    #[error("DEAD_TASKS ends inside of a task")]
    DeadTasksEnd,
    /// A type that is empty.
    #[error("a task's type is empty")]
    EmptyType,
    /// A type that is not UTF-8.
    #[error("a task's type is not UTF-8")]
    TypeEncoding,
}

/// A rule that the peer broke.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A producer received a frame for workers.
    #[error("{0} is for workers")]
    WorkersFrame(Opcode),
    /// A worker received a frame for producers.
    #[error("{0} is not for workers")]
    ProducersFrame(Opcode),
    /// A client received a frame that clients send.
    #[error("{0} goes the other way")]
    Direction(Opcode),
    /// An answer without a request, or of another kind than the first request expects.
    #[error("an answer that nothing was asked for: {0:?}")]
    Answer(Box<Answer>),
    /// A refusal without a request.
    #[error(transparent)]
    Refusal(Refused),
    /// A refusal of SUBSCRIBE alone: the daemon would send the worker tasks of other types.
    #[error("SUBSCRIBE was refused: {0}")]
    Subscribe(Refused),
}

/// A limit that was exceeded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Limit {
    /// A task of the journal is larger than every class of the pool.
    #[error("a task of the journal has no class: {0}")]
    JournalTask(ConfigError),
    /// The tasks of the journal do not fit into the pool (decision 14).
    #[error("the journal's {tasks} tasks need a pool of {needed} bytes, not {bytes}")]
    JournalPool {
        /// The number of tasks.
        tasks: usize,
        /// The bytes of the smallest pool that holds them.
        needed: usize,
        /// Bytes of the pool.
        bytes: usize,
    },
    /// The tasks of the journal have more types than the queue may have.
    #[error("the journal has more than {types} types")]
    JournalTypes {
        /// The most types allowed.
        types: usize,
    },
    /// The pool has no block for a task.
    #[error(transparent)]
    Block(AllocError),
}

/// A mistake of the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// A payload that is longer than its length field can express.
    #[error("a frame has 4 GiB or more")]
    FrameLength,
    /// A type that is empty, or longer than its length field can express.
    #[error("a task's type has 1 to 255 bytes, not {0}")]
    TypeLength(usize),
    /// A policy without attempts.
    #[error("{policy}: attempts is 1 or more")]
    Attempts {
        /// The policy's name: a type, or "the default policy".
        policy: String,
    },
    /// A policy whose retries get faster.
    #[error("{policy}: back-off is 1 or more")]
    BackOff {
        /// The policy's name.
        policy: String,
    },
    /// A policy whose rate is not a positive number.
    #[error("{policy}: rate is above 0")]
    Rate {
        /// The policy's name.
        policy: String,
    },
    /// A queue with a limit below the number of configured types.
    #[error("there are more policies than types allowed")]
    PolicyCount,
    /// A pool that cannot be made.
    #[error(transparent)]
    Pool(ConfigError),
    /// A worker that may hold no task.
    #[error("a worker holds 1 task or more")]
    EmptyPrefetch,
    /// An outcome of a task that the worker does not hold.
    #[error("task {0} is not held by this worker")]
    NotHeld(TaskId),
}

impl Error {
    /// Return whose fault the error is.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Malformed(_) => ErrorKind::Malformed,
            Self::Violation(_) => ErrorKind::Violation,
            Self::Limit(_) => ErrorKind::Limit,
            Self::Misuse(_) => ErrorKind::Misuse,
        }
    }
}

impl Malformed {
    /// Return the code of the ERROR that answers such a frame.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::FrameLength { .. } | Self::TaskLength { .. } => ErrorCode::TooLarge,
            Self::Version(_)
            | Self::Opcode(_)
            | Self::Direction(_)
            | Self::PayloadLength { .. }
            | Self::SubscribeLength { .. }
            | Self::Payload { .. }
            | Self::Trailing { .. }
            | Self::EmptyPrefetch
            | Self::SubscribeEnd
            | Self::DeadTasksEnd
            | Self::EmptyType
            | Self::TypeEncoding => ErrorCode::Invalid,
        }
    }

    /// Return whether the connection ends, because the start of the next frame is unknown or too far away.
    pub const fn is_fatal(&self) -> bool {
        matches!(self, Self::Version(_) | Self::FrameLength { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_small() {
        assert!(size_of::<Error>() <= 64, "{}", size_of::<Error>());
    }

    fn check<const N: usize>(kind: ErrorKind, table: [(Error, &str); N]) {
        for (error, message) in table {
            assert_eq!((error.kind(), error.to_string().as_str()), (kind, message));
        }
    }

    #[test]
    fn every_malformed_frame_has_its_message_and_its_code_and_may_end_the_connection() {
        let (opcode, truncated) = (Opcode::Submit, Truncated { needed: 2, available: 1 });
        let table = [
            (Malformed::Version(2), ErrorCode::Invalid, true, "version 0x02; only 0x01 is spoken here"),
            (
                Malformed::FrameLength { length: u32::MAX },
                ErrorCode::TooLarge,
                true,
                "a frame of 4294967295 bytes is above the limit of 67108864",
            ),
            (Malformed::Opcode(0xEE), ErrorCode::Invalid, false, "there is no opcode 0xEE"),
            (Malformed::Direction(Opcode::Task), ErrorCode::Invalid, false, "TASK goes the other way"),
            (
                Malformed::PayloadLength { opcode: Opcode::Done, length: 9 },
                ErrorCode::Invalid,
                false,
                "DONE has no payload of 9 bytes",
            ),
            (
                Malformed::TaskLength { length: 65, largest: 64 },
                ErrorCode::TooLarge,
                false,
                "a task of 65 bytes is above the largest size class of 64",
            ),
            (
                Malformed::SubscribeLength { length: 65_537 },
                ErrorCode::Invalid,
                false,
                "SUBSCRIBE of 65537 bytes is above the limit of 65536",
            ),
            (
                Malformed::Payload { opcode, truncated },
                ErrorCode::Invalid,
                false,
                "the payload of SUBMIT is truncated: 2 bytes needed, 1 there",
            ),
            (
                Malformed::Trailing { opcode: Opcode::Done, length: 10, trailing: 2 },
                ErrorCode::Invalid,
                false,
                "DONE has 10 bytes of payload, 2 too many",
            ),
            (Malformed::EmptyPrefetch, ErrorCode::Invalid, false, "PREFETCH of 0 tasks"),
            (Malformed::SubscribeEnd, ErrorCode::Invalid, false, "SUBSCRIBE ends inside of a type"),
            (Malformed::DeadTasksEnd, ErrorCode::Invalid, false, "DEAD_TASKS ends inside of a task"),
            (Malformed::EmptyType, ErrorCode::Invalid, false, "a task's type is empty"),
            (Malformed::TypeEncoding, ErrorCode::Invalid, false, "a task's type is not UTF-8"),
        ];
        for (malformed, code, fatal, message) in table {
            assert_eq!((malformed.code(), malformed.is_fatal()), (code, fatal), "{malformed}");
            check(ErrorKind::Malformed, [(malformed.into(), message)]);
        }
    }

    #[test]
    fn every_violation_has_its_message_and_its_kind() {
        let refused = || Refused { code: ErrorCode::Invalid, message: "why".to_owned() };
        let said = refused().to_string();
        check(
            ErrorKind::Violation,
            [
                (Violation::WorkersFrame(Opcode::Task).into(), "TASK is for workers"),
                (Violation::ProducersFrame(Opcode::Stats).into(), "STATS is not for workers"),
                (Violation::Direction(Opcode::Submit).into(), "SUBMIT goes the other way"),
                (Violation::Answer(Box::new(Answer::Alive)).into(), "an answer that nothing was asked for: Alive"),
                (Violation::Refusal(refused()).into(), &said),
                (Violation::Subscribe(refused()).into(), &format!("SUBSCRIBE was refused: {said}")),
            ],
        );
    }

    #[test]
    fn every_limit_has_its_message_and_its_kind() {
        let block = AllocError::Exhausted { class: 16 };
        check(
            ErrorKind::Limit,
            [
                (
                    Limit::JournalTask(ConfigError::Class(70_000)).into(),
                    "a task of the journal has no class: size classes ascend and are multiples of 16 up to 1 MiB: \
                     70000 does not fit",
                ),
                (
                    Limit::JournalPool { tasks: 3, needed: 4_096, bytes: 2_048 }.into(),
                    "the journal's 3 tasks need a pool of 4096 bytes, not 2048",
                ),
                (Limit::JournalTypes { types: 2 }.into(), "the journal has more than 2 types"),
                (Limit::Block(block).into(), "the pool has no free block of 16 bytes"),
            ],
        );
    }

    #[test]
    fn every_misuse_has_its_message_and_its_kind() {
        let policy = || "mail".to_owned();
        check(
            ErrorKind::Misuse,
            [
                (Misuse::FrameLength.into(), "a frame has 4 GiB or more"),
                (Misuse::TypeLength(256).into(), "a task's type has 1 to 255 bytes, not 256"),
                (Misuse::Attempts { policy: policy() }.into(), "mail: attempts is 1 or more"),
                (Misuse::BackOff { policy: policy() }.into(), "mail: back-off is 1 or more"),
                (Misuse::Rate { policy: policy() }.into(), "mail: rate is above 0"),
                (Misuse::PolicyCount.into(), "there are more policies than types allowed"),
                (Misuse::Pool(ConfigError::Count(0)).into(), "a pool has 1 to 255 size classes, not 0"),
                (Misuse::EmptyPrefetch.into(), "a worker holds 1 task or more"),
                (Misuse::NotHeld(TaskId(4)).into(), "task 4 is not held by this worker"),
            ],
        );
    }
}
