use penstock_wire::Truncated;

use super::{ErrorCode, StreamEnd};
use crate::status::Status;

/// Inputs that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// Bytes that end inside a field (decision 3).
    #[error(transparent)]
    Truncated(Truncated),
    /// A message that is not valid protobuf.
    #[error("protobuf does not parse: {0}")]
    Protobuf(prost::DecodeError),
    /// An unknown value of an enum in a message.
    #[error("unknown enum value {value} in {field}")]
    EnumValue {
        /// The field, as the message names it.
        field: &'static str,
        /// The value.
        value: i32,
    },
    /// A type byte that is not a frame type.
    #[error("0x{0:02X} is no frame type")]
    FrameType(u8),
    /// A reserved frame type.
    #[error("frame type 0x{0:02X} is reserved")]
    ReservedType(u8),
    /// A whole frame of an unknown type.
    #[error("no frame of type {0:?}")]
    NoFrame(Option<u8>),
    /// A reserved status code.
    #[error("status code 0x{0:X} is reserved")]
    Status(u8),
    /// A reserved yield reason.
    #[error("yield reason 0x{0:02X} is reserved")]
    YieldReason(u8),
    /// A STATUS that announces an extension which its status does not have.
    #[error("STATUS {0} with E=1, but it has no extension")]
    UnexpectedExtension(Status),
    /// A STATUS without the extension that its status needs.
    #[error("STATUS {0} with E=0, but it needs its extension")]
    MissingExtension(Status),
    /// A type byte that is not a frame type of layer 2.
    #[error("0x{0:02X} is no frame of layer 2")]
    Layer2Type(u8),
    /// A SESSION that resumes without a count of received frames.
    #[error("a SESSION that resumes does not state what was received")]
    NoReceived,
    /// A CLAIM_RESPONSE that states a found claim check but does not contain it.
    #[error("a CLAIM_RESPONSE has found a claim check and does not carry it")]
    NoClaimCheck,
    /// A CLAIM_RESPONSE that contains a claim check but states that none was found.
    #[error("a CLAIM_RESPONSE carries a claim check that it has not found")]
    UnexpectedClaimCheck,
    /// A session ID that is not 32 digits of lower-case hex.
    #[error("a session ID of {length} bytes is not 32 digits of lower-case hex")]
    SessionId {
        /// The ID's length in bytes.
        length: usize,
    },
    /// A control stream that ended inside a frame.
    #[error("stream 0 was {how} inside a frame")]
    ControlEnd {
        /// How the stream ended.
        how: StreamEnd,
    },
    /// An entity stream that ended inside its header.
    #[error("a stream ended inside its header")]
    HeaderEnd,
    /// An invalid URI.
    #[error("not a pipestream URI: {0}")]
    Uri(UriError),
    /// An invalid record of claim checks.
    #[error(transparent)]
    ClaimRecord(ClaimRecordError),
    /// An invalid record of a session.
    #[error("a stored session: {0}")]
    Stored(StoredError),
}

/// Errors in a URI.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UriError {
    /// A path with too many scope IDs, or an invalid one.
    #[error("a scope path has at most 8 scope IDs, each of them 0 to 65535")]
    ScopePath,
    /// An entity ID that is reserved.
    #[error("the entity ID is reserved")]
    ReservedEntity,
    /// A URI that is too long.
    #[error("it is longer than 1024 bytes")]
    Length,
    /// A scheme other than `pipestream`.
    #[error("it does not begin with pipestream://")]
    Scheme,
    /// A URI without a session ID.
    #[error("it names no session")]
    NoSession,
    /// A scope path that is malformed.
    #[error("a scope path is 1 to 8 decimal scope IDs, 0 to 65535, with dots")]
    ScopeText,
    /// Segments after the entity ID.
    #[error("nothing follows the entity ID")]
    Trailing,
    /// An IPv6 address without its closing bracket.
    #[error("a bracket is not closed")]
    Bracket,
    /// Brackets around something other than an IPv6 address.
    #[error("what is in brackets is no IPv6 address")]
    Address,
    /// Something other than a port after an IPv6 address.
    #[error("only a port may follow the address in brackets")]
    AddressEnd,
    /// An invalid host.
    #[error("the host is neither a DNS name nor an address")]
    Host,
    /// An invalid port.
    #[error("a port is 1 to 65535")]
    Port,
    /// An invalid session ID.
    #[error("a session ID is 1 to 128 letters, digits, '-', '.', '_' or '~'")]
    SessionId,
    /// An invalid entity ID.
    #[error("an entity ID is 1 to 8 hex digits")]
    EntityId,
}

/// Errors in a stored record of claim checks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimRecordError {
    /// An unknown kind of record.
    #[error("{0} is no kind of claim record")]
    Kind(u8),
    /// Bytes after the end of a record.
    #[error("{bytes} bytes after a claim record")]
    Trailing {
        /// How many bytes follow the record.
        bytes: usize,
    },
    /// An unknown state of a claim check.
    #[error("{0} is no state of a claim check")]
    State(u8),
    /// A session ID that is cut off.
    #[error("a session ID is cut off")]
    SessionId,
    /// A settled claim check whose status is not terminal.
    #[error("{0} settles no claim check")]
    Status(Status),
    /// An unknown marker before a stopping point.
    #[error("marker {0} before a validation")]
    Validation(u8),
}

/// Errors in the stored records of a session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoredError {
    /// Bytes that cannot be decoded.
    #[error("{0}")]
    Encoding(postcard::Error),
    /// A session without records.
    #[error("no record")]
    Empty,
    /// A record of inputs without a snapshot before it.
    #[error("inputs without a snapshot before")]
    NoSnapshot,
    /// A record of another version.
    #[error("a record of version {found}, not {expected}")]
    Version {
        /// The record's version.
        found: u8,
        /// The version that this end reads.
        expected: u8,
    },
    /// An unknown kind of record.
    #[error("{0} is no kind of record")]
    Kind(u8),
    /// Bytes after the end of a snapshot.
    #[error("bytes after a snapshot")]
    Trailing,
    /// Scopes whose numbers contradict each other.
    #[error("its scopes do not add up")]
    Scopes,
    /// An unknown state of a parent.
    #[error("{0} is no state of a parent")]
    ResolutionState(u8),
    /// A frame that is cut off, or followed by other bytes.
    #[error("a frame that is not whole")]
    Frame,
    /// An input with the reserved number.
    #[error("0 is no input")]
    ReservedInput,
    /// An input whose time is out of range.
    #[error("a moment that is too far away")]
    Moment,
    /// An announcement for which the restored session has no room.
    #[error("an announcement that does not fit")]
    Announcement,
}

impl Malformed {
    /// Return the registry's code.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Truncated(_)
            | Self::Protobuf(_)
            | Self::EnumValue { .. }
            | Self::FrameType(_)
            | Self::ReservedType(_)
            | Self::NoFrame(_)
            | Self::Status(_)
            | Self::YieldReason(_)
            | Self::UnexpectedExtension(_)
            | Self::MissingExtension(_)
            | Self::Layer2Type(_)
            | Self::NoReceived
            | Self::NoClaimCheck
            | Self::UnexpectedClaimCheck
            | Self::SessionId { .. }
            | Self::ControlEnd { .. }
            | Self::HeaderEnd
            | Self::Uri(_)
            | Self::ClaimRecord(_) => ErrorCode::EntityInvalid,
            Self::Stored(_) => ErrorCode::InternalError,
        }
    }
}

impl From<UriError> for Malformed {
    fn from(error: UriError) -> Self {
        Self::Uri(error)
    }
}

impl From<ClaimRecordError> for Malformed {
    fn from(error: ClaimRecordError) -> Self {
        Self::ClaimRecord(error)
    }
}

impl From<StoredError> for Malformed {
    fn from(error: StoredError) -> Self {
        Self::Stored(error)
    }
}
