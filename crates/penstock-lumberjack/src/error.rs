use std::fmt;

use penstock_wire::{ErrorKind, LimitExceeded, Truncated};

use crate::accepts::Accepts;

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a connection fails, with the number of bytes of the connection before the invalid frame. For a frame
/// inside a compressed frame, that is the offset of the compressed frame (decision 8).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer's bytes do not parse.
    #[error("{0}{place}", place = Place(*.1))]
    Malformed(Malformed, Option<u64>),
    /// The bytes parse, but the peer broke a rule.
    #[error("{0}{place}", place = Place(*.1))]
    Violation(Violation, Option<u64>),
    /// A limit was exceeded.
    #[error("{0}{place}", place = Place(*.1))]
    Limit(LimitExceeded, Option<u64>),
    /// The peer took too long.
    #[error("{0}{place}", place = Place(*.1))]
    Deadline(Deadline, Option<u64>),
    /// The caller broke a rule.
    #[error(transparent)]
    Misuse(#[from] Misuse),
}

/// How the peer's bytes are malformed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// A frame does not begin with a version.
    #[error("a frame's version is 0x31 or 0x32, not 0x{0:02X}")]
    Version(u8),
    /// A frame has an unknown type.
    #[error("no frame has type 0x{0:02X}")]
    FrameType(u8),
    /// A frame is shorter than its fields.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// The lengths of a data frame add up to more than the memory can address.
    #[error("the length of a data frame does not fit into memory")]
    DataLength,
    /// The content of a compressed frame is not zlib.
    #[error("a compressed frame is not zlib: {reason}")]
    Zlib {
        /// Message of zlib.
        reason: String,
    },
    /// A compressed frame ends before its zlib stream does.
    #[error("the zlib stream of a compressed frame is cut off")]
    ZlibTruncated,
    /// A compressed frame continues after its zlib stream.
    #[error("{bytes} bytes follow the zlib stream of a compressed frame")]
    ZlibTrailing {
        /// How many bytes follow.
        bytes: usize,
    },
    /// The last frame in a compressed frame is incomplete.
    #[error("a compressed frame ends inside of a frame")]
    CompressedEnd,
    /// The last frame of the connection is incomplete.
    #[error("the stream ends inside of a frame")]
    StreamEnd,
}

/// The rule that the peer broke.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A frame of a type that only the other end of the connection sends.
    #[error("a {} sends no frame of type {}", .sender.name(), char::from(*.frame_type))]
    FrameType {
        /// The end that sent it.
        sender: Accepts,
        /// Its type.
        frame_type: u8,
    },
    /// A reader sent an event or a window.
    #[error("a reader sends acknowledgements only")]
    NoAck,
    /// A compressed frame inside a compressed frame.
    #[error("a compressed frame lies in a compressed frame")]
    NestedCompression,
    /// An acknowledgement of an event that was never sent.
    #[error("event {sequence} is acknowledged, which was not sent")]
    UnsentEvent {
        /// The number that was acknowledged.
        sequence: u32,
    },
    /// A window without events.
    #[error("a window of 0 events")]
    EmptyWindow,
    /// An event arrived although the window is full.
    #[error("an event beyond the window of {window}")]
    WindowOverrun {
        /// The size of the window.
        window: u32,
    },
}

/// The operation that took too long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Deadline {
    /// The rest of a frame.
    #[error("a frame has not arrived within {seconds} s")]
    Frame {
        /// How long a frame may take.
        seconds: u64,
    },
    /// The next frame.
    #[error("the writer has been silent for too long")]
    Silence,
    /// An acknowledgement.
    #[error("nothing was acknowledged within {seconds} s")]
    Ack {
        /// How long an acknowledgement may take.
        seconds: u64,
    },
}

/// Mistakes of the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// A configuration with which nothing could be sent.
    #[error("a window has at least 1 event, and at least 1 window is on its way")]
    NoWindow,
    /// A level that zlib does not have.
    #[error("zlib has levels 0 to 9, not {0}")]
    CompressionLevel(u32),
    /// A window whose offsets do not fit into their type.
    #[error("a window has 4 GiB or more")]
    WindowLength,
    /// A document whose length does not fit into its field.
    #[error("a document has 4 GiB or more")]
    DocumentLength,
    /// A string whose length does not fit into its field.
    #[error("a key or a value has 4 GiB or more")]
    StringLength,
    /// An event whose pair count does not fit into its field.
    #[error("an event has 2^32 pairs or more")]
    PairCount,
    /// The caller acknowledged more events than it had received.
    #[error("{acknowledged} events are acknowledged, {received} were received")]
    Acknowledged {
        /// How many the caller has acknowledged.
        acknowledged: u64,
        /// How many it had received.
        received: u64,
    },
}

/// The offset of an error, as a suffix of its message.
struct Place(Option<u64>);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |offset| write!(f, " (at byte {offset})"))
    }
}

impl Error {
    /// Return the error with an offset, unless it has one.
    pub(crate) fn at(mut self, place: u64) -> Self {
        match &mut self {
            Self::Malformed(_, offset)
            | Self::Violation(_, offset)
            | Self::Limit(_, offset)
            | Self::Deadline(_, offset) => *offset = offset.or(Some(place)),
            Self::Misuse(_) => {}
        }
        self
    }

    /// Return whose fault it is.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Malformed(..) => ErrorKind::Malformed,
            Self::Violation(..) => ErrorKind::Violation,
            Self::Limit(..) => ErrorKind::Limit,
            Self::Deadline(..) => ErrorKind::Deadline,
            Self::Misuse(_) => ErrorKind::Misuse,
        }
    }

    /// Return how many bytes of the connection precede the invalid frame.
    pub const fn offset(&self) -> Option<u64> {
        match self {
            Self::Malformed(_, offset)
            | Self::Violation(_, offset)
            | Self::Limit(_, offset)
            | Self::Deadline(_, offset) => *offset,
            Self::Misuse(_) => None,
        }
    }
}

impl From<Malformed> for Error {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed, None)
    }
}

impl From<Truncated> for Error {
    fn from(truncated: Truncated) -> Self {
        Malformed::from(truncated).into()
    }
}

impl From<Violation> for Error {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation, None)
    }
}

impl From<LimitExceeded> for Error {
    fn from(exceeded: LimitExceeded) -> Self {
        Self::Limit(exceeded, None)
    }
}

impl From<Deadline> for Error {
    fn from(deadline: Deadline) -> Self {
        Self::Deadline(deadline, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_place_once() {
        let error = Error::from(Malformed::FrameType(0)).at(7).at(9);
        assert_eq!(error.to_string(), "no frame has type 0x00 (at byte 7)");
        assert_eq!(error, Error::Malformed(Malformed::FrameType(0), Some(7)));
        assert_eq!((error.offset(), Error::from(Misuse::NoWindow).at(7).offset()), (Some(7), None));
    }

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
    fn every_malformed_error_has_its_message_and_its_kind() {
        let truncated = Truncated { needed: 4, available: 1 };
        let zlib = Malformed::Zlib { reason: "bad header".to_owned() };
        check(
            ErrorKind::Malformed,
            [
                (Malformed::Version(0x33).into(), "a frame's version is 0x31 or 0x32, not 0x33"),
                (Malformed::FrameType(0x5A).into(), "no frame has type 0x5A"),
                (truncated.into(), "truncated: 4 bytes needed, 1 there"),
                (Malformed::DataLength.into(), "the length of a data frame does not fit into memory"),
                (zlib.into(), "a compressed frame is not zlib: bad header"),
                (Malformed::ZlibTruncated.into(), "the zlib stream of a compressed frame is cut off"),
                (Malformed::ZlibTrailing { bytes: 3 }.into(), "3 bytes follow the zlib stream of a compressed frame"),
                (Malformed::CompressedEnd.into(), "a compressed frame ends inside of a frame"),
                (Malformed::StreamEnd.into(), "the stream ends inside of a frame"),
            ],
        );
    }

    #[test]
    fn every_violation_error_has_its_message_and_its_kind() {
        check(
            ErrorKind::Violation,
            [
                (
                    Violation::FrameType { sender: Accepts::Writer, frame_type: b'A' }.into(),
                    "a writer sends no frame of type A",
                ),
                (
                    Violation::FrameType { sender: Accepts::Reader, frame_type: b'J' }.into(),
                    "a reader sends no frame of type J",
                ),
                (Violation::NoAck.into(), "a reader sends acknowledgements only"),
                (Violation::NestedCompression.into(), "a compressed frame lies in a compressed frame"),
                (Violation::UnsentEvent { sequence: 9 }.into(), "event 9 is acknowledged, which was not sent"),
                (Violation::EmptyWindow.into(), "a window of 0 events"),
                (Violation::WindowOverrun { window: 2 }.into(), "an event beyond the window of 2"),
            ],
        );
    }

    #[test]
    fn every_limit_error_has_its_message_and_its_kind() {
        let exceeded = LimitExceeded { name: "the window", limit: 8, actual: 9 };
        check(ErrorKind::Limit, [(exceeded.into(), "the window is 9, above the limit of 8")]);
    }

    #[test]
    fn every_deadline_error_has_its_message_and_its_kind() {
        check(
            ErrorKind::Deadline,
            [
                (Deadline::Frame { seconds: 5 }.into(), "a frame has not arrived within 5 s"),
                (Deadline::Silence.into(), "the writer has been silent for too long"),
                (Deadline::Ack { seconds: 30 }.into(), "nothing was acknowledged within 30 s"),
            ],
        );
    }

    #[test]
    fn every_misuse_error_has_its_message_and_its_kind() {
        check(
            ErrorKind::Misuse,
            [
                (Misuse::NoWindow.into(), "a window has at least 1 event, and at least 1 window is on its way"),
                (Misuse::CompressionLevel(10).into(), "zlib has levels 0 to 9, not 10"),
                (Misuse::WindowLength.into(), "a window has 4 GiB or more"),
                (Misuse::DocumentLength.into(), "a document has 4 GiB or more"),
                (Misuse::StringLength.into(), "a key or a value has 4 GiB or more"),
                (Misuse::PairCount.into(), "an event has 2^32 pairs or more"),
                (
                    Misuse::Acknowledged { acknowledged: 2, received: 1 }.into(),
                    "2 events are acknowledged, 1 were received",
                ),
            ],
        );
    }
}
