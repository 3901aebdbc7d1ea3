use penstock_wire::Truncated;

use super::{ErrorCode, StreamEnd};
use crate::status::Status;

/// Inputs that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// There are fewer bytes than a field needs (decision 3).
    #[error(transparent)]
    Truncated(Truncated),
    /// A message of protobuf.
    #[error("protobuf does not parse: {0}")]
    Protobuf(prost::DecodeError),
    /// An enum of a message.
    #[error("unknown enum value {value} in {field}")]
    EnumValue {
        /// The field, as the message names it.
        field: &'static str,
        /// Its number.
        value: i32,
    },
    /// The type of a frame.
    #[error("0x{0:02X} is no frame type")]
    FrameType(u8),
    /// A reserved frame type.
    #[error("frame type 0x{0:02X} is reserved")]
    ReservedType(u8),
    /// A whole frame of an unknown type.
    #[error("no frame of type {0:?}")]
    NoFrame(Option<u8>),
    /// The status of an entity.
    #[error("status code 0x{0:X} is reserved")]
    Status(u8),
    /// The reason of a yield.
    #[error("yield reason 0x{0:02X} is reserved")]
    YieldReason(u8),
    /// A STATUS that has no extension.
    #[error("STATUS {0} with E=1, but it has no extension")]
    UnexpectedExtension(Status),
    /// A STATUS that has one.
    #[error("STATUS {0} with E=0, but it needs its extension")]
    MissingExtension(Status),
    /// The type of a frame of layer 2.
    #[error("0x{0:02X} is no frame of layer 2")]
    Layer2Type(u8),
    /// A SESSION of a later connection.
    #[error("a SESSION that resumes does not state what was received")]
    NoReceived,
    /// The status in a CLAIM_RESPONSE.
    #[error("a status below 0 in a CLAIM_RESPONSE")]
    ClaimStatus,
    /// A CLAIM_RESPONSE that has found something.
    #[error("a CLAIM_RESPONSE has found a claim check and does not carry it")]
    NoClaimCheck,
    /// A CLAIM_RESPONSE that has found nothing.
    #[error("a CLAIM_RESPONSE carries a claim check that it has not found")]
    UnexpectedClaimCheck,
    /// The ID of a session.
    #[error("a session ID of {length} bytes is not 32 digits of lower-case hex")]
    SessionId {
        /// Bytes that it has.
        length: usize,
    },
    /// The last frame of stream 0.
    #[error("stream 0 was {how} inside a frame")]
    ControlEnd {
        /// How it ended.
        how: StreamEnd,
    },
    /// The header of an entity.
    #[error("a stream ended inside its header")]
    HeaderEnd,
    /// A URI.
    #[error("not a pipestream URI: {0}")]
    Uri(UriError),
    /// A record of claim checks.
    #[error(transparent)]
    ClaimRecord(ClaimRecordError),
    /// A record of a session, which this end has stored.
    #[error("a stored session: {0}")]
    Stored(StoredError),
}

/// Errors in a URI.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UriError {
    /// Too many scope IDs, or an invalid one.
    #[error("a scope path has at most 8 scope IDs, each of them 0 to 65535")]
    ScopePath,
    /// An entity ID that no entity has.
    #[error("the entity ID is reserved")]
    ReservedEntity,
    /// More bytes than a URI may have.
    #[error("it is longer than 1024 bytes")]
    Length,
    /// A different scheme.
    #[error("it does not begin with pipestream://")]
    Scheme,
    /// No session ID.
    #[error("it names no session")]
    NoSession,
    /// A scope path that cannot be read.
    #[error("a scope path is 1 to 8 decimal scope IDs, 0 to 65535, with dots")]
    ScopeText,
    /// Segments after the entity ID.
    #[error("nothing follows the entity ID")]
    Trailing,
    /// An address without its closing bracket.
    #[error("a bracket is not closed")]
    Bracket,
    /// An address that is none.
    #[error("what is in brackets is no IPv6 address")]
    Address,
    /// Something other than a port after an address.
    #[error("only a port may follow the address in brackets")]
    AddressEnd,
    /// A host.
    #[error("the host is neither a DNS name nor an address")]
    Host,
    /// A port.
    #[error("a port is 1 to 65535")]
    Port,
    /// A session ID.
    #[error("a session ID is 1 to 128 letters, digits, '-', '.', '_' or '~'")]
    SessionId,
    /// An entity ID.
    #[error("an entity ID is 1 to 8 hex digits")]
    EntityId,
}

/// Errors in a stored record of claim checks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimRecordError {
    /// The kind of a record.
    #[error("{0} is no kind of claim record")]
    Kind(u8),
    /// A record that is followed by something.
    #[error("{bytes} bytes after a claim record")]
    Trailing {
        /// Bytes that there are.
        bytes: usize,
    },
    /// The state of a claim check.
    #[error("{0} is no state of a claim check")]
    State(u8),
    /// The ID of a session.
    #[error("a session ID is cut off")]
    SessionId,
    /// The status of an entity that is settled.
    #[error("{0} settles no claim check")]
    Status(Status),
    /// The marker before a stopping point.
    #[error("marker {0} before a validation")]
    Validation(u8),
}

/// Errors in the stored records of a session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoredError {
    /// Bytes that are no record.
    #[error("{0}")]
    Encoding(postcard::Error),
    /// No records.
    #[error("no record")]
    Empty,
    /// Records whose beginning is missing.
    #[error("inputs without a snapshot before")]
    NoSnapshot,
    /// A record of a different version.
    #[error("a record of version {found}, not {expected}")]
    Version {
        /// Its version.
        found: u8,
        /// The version that this end reads.
        expected: u8,
    },
    /// The kind of a record.
    #[error("{0} is no kind of record")]
    Kind(u8),
    /// A snapshot that is followed by something.
    #[error("bytes after a snapshot")]
    Trailing,
    /// Scopes whose numbers contradict each other.
    #[error("its scopes do not add up")]
    Scopes,
    /// The state of a parent.
    #[error("{0} is no state of a parent")]
    ResolutionState(u8),
    /// A frame that was cut off, or is followed by something.
    #[error("a frame that is not whole")]
    Frame,
    /// The reserved number of an input.
    #[error("0 is no input")]
    ReservedInput,
    /// The time of an input.
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
            | Self::ClaimStatus
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
