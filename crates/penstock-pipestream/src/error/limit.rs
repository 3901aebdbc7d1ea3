use penstock_wire::LimitExceeded;

use super::ErrorCode;
use crate::sizes::{MAX_FRAME_LENGTH, MAX_HEADER_LENGTH, MAX_REFERENCE};

/// The limit that was exceeded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// Parents that wait for their children.
    #[error("the manifest holds {count} entries, which is max_entries")]
    ManifestEntries {
        /// How many there are.
        count: usize,
    },
    /// Children that wait for their parents.
    #[error("{count} completions wait for their parents, which is max_orphans")]
    Orphans {
        /// How many there are.
        count: usize,
    },
    /// Known claim checks.
    #[error("{count} claim checks are known, which is max_claims")]
    ClaimChecks {
        /// How many there are.
        count: usize,
    },
    /// Open queries of this end.
    #[error("{limit} claim requests are open")]
    SentClaimRequests {
        /// How many there may be.
        limit: usize,
    },
    /// Open queries of the peer.
    #[error("more than {limit} claim requests are open")]
    ReceivedClaimRequests {
        /// How many there may be.
        limit: usize,
    },
    /// Open checkpoints of the peer.
    #[error("more than {limit} checkpoints are open")]
    Checkpoints {
        /// How many there may be.
        limit: usize,
    },
    /// Entities of a scope in flight.
    #[error("PENDING outside the window of {window} from cursor {cursor}")]
    Window {
        /// The size of the window.
        window: u32,
        /// The cursor.
        cursor: u32,
    },
    /// Entities that the peer may announce in a scope.
    #[error("more than {limit} entities in a scope")]
    ScopeEntities {
        /// How many there may be.
        limit: u32,
    },
    /// Entities that this end may announce in a scope.
    #[error("scope {scope} has had {announced} entities, all it may have")]
    OwnScopeEntities {
        /// The scope.
        scope: u16,
        /// How many were announced.
        announced: u64,
    },
    /// Entities that the peer has not ended.
    #[error("more than {limit} entities without a terminal status")]
    OpenEntities {
        /// How many there may be.
        limit: usize,
    },
    /// Children at layer 0, which share the window with their parent.
    #[error("the parent has more children than the window of {window}")]
    OwnChildren {
        /// The size of the window.
        window: u32,
    },
    /// Headers that arrived before their PENDING.
    #[error("headers of more than {bytes} bytes wait for their PENDING")]
    HeldHeaders {
        /// Bytes that there are.
        bytes: usize,
    },
    /// Frames kept for a later connection.
    #[error("the peer has not acknowledged {bytes} bytes of stream 0")]
    Unacknowledged {
        /// Bytes that there are.
        bytes: usize,
    },
    /// Bytes before the SESSION of a later connection.
    #[error("too many bytes arrived before the session was resumed")]
    EarlyBytes,
    /// Timers.
    #[error("the heap holds 4294967295 items and takes no more")]
    Heap,
    /// Levels, in a STATUS.
    #[error("DEHYDRATING at depth {depth}; the limit is {limit}")]
    Depth {
        /// The stated depth.
        depth: u8,
        /// How many there may be.
        limit: u8,
    },
    /// Levels, in a header.
    #[error("a dehydrated entity at depth {depth}; the limit is {limit}")]
    HeaderDepth {
        /// The stated depth.
        depth: u8,
        /// How many there may be.
        limit: u8,
    },
    /// Levels that this end may make.
    #[error("an entity at depth {depth} cannot be dehydrated; the limit is {limit}")]
    OwnDepth {
        /// The stated depth.
        depth: u8,
        /// How many there may be.
        limit: u8,
    },
    /// Levels at layer 0.
    #[error("layer 0 has one level: an entity with a parent stays whole")]
    OneLevel,
    /// Bytes of a frame.
    #[error("frame 0x{frame_type:02X} has a length of {length}, above the limit of {MAX_FRAME_LENGTH}")]
    FrameLength {
        /// The type of the frame.
        frame_type: u8,
        /// Bytes that it has.
        length: u32,
    },
    /// Bytes of a header.
    #[error("a header of {length} bytes is above the limit of {limit}")]
    HeaderLength {
        /// Bytes that it has.
        length: u32,
        /// How many there may be.
        limit: u32,
    },
    /// Bytes of a sealed header.
    #[error("a sealed header of {length} bytes is above the limit of {MAX_HEADER_LENGTH}")]
    SealedHeaderLength {
        /// Bytes that it has.
        length: usize,
    },
    /// Bytes of metadata.
    #[error("metadata of {bytes} bytes is above the limit of {limit}")]
    Metadata {
        /// Bytes that there are.
        bytes: usize,
        /// How many there may be.
        limit: usize,
    },
    /// Bytes of a payload.
    #[error("a payload of {length} bytes is above the limit of {limit}")]
    PayloadLength {
        /// Bytes that it has.
        length: u64,
        /// How many there may be.
        limit: u64,
    },
    /// Bytes of a reference.
    #[error("a FileStorageReference of {length} bytes is above the limit of {MAX_REFERENCE}")]
    ReferenceLength {
        /// Bytes that it has.
        length: usize,
    },
    /// Bytes of a payload that is a reference.
    #[error("a FileStorageReference is above the limit of {MAX_REFERENCE} bytes")]
    ReferencePayload,
    /// Bytes of an object behind a reference.
    #[error("the object {name} has {length} bytes; the limit is {limit}")]
    ObjectLength {
        /// Its name.
        name: String,
        /// Bytes that it has.
        length: u64,
        /// How many there may be.
        limit: u64,
    },
    /// Headers that arrived before the keys for opening them.
    #[error("headers of more than {bytes} bytes came before the session had its ID")]
    EarlyHeaders {
        /// Bytes that there are.
        bytes: usize,
    },
    /// Details of claim checks.
    #[error("what claim checks stand for takes {bytes} bytes, which is the limit")]
    ClaimDetails {
        /// Bytes that there are.
        bytes: usize,
    },
    /// Sessions with the same name in a sink.
    #[error("{reason}")]
    SessionFolder {
        /// What is wrong with it.
        reason: String,
    },
    /// Separate ranges of a payload.
    #[error(transparent)]
    Fragments(LimitExceeded),
    /// Bytes that HKDF can produce.
    #[error("a header key cannot be derived")]
    KeyDerivation,
}

/// Operation that took too long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Deadline {
    /// The next frame of the peer.
    #[error("nothing came on stream 0")]
    Silence,
    /// The redemption of a claim check.
    #[error("claim check {id:016x} has expired")]
    ClaimExpired {
        /// The ID.
        id: u64,
    },
}

impl LimitError {
    /// Return the registry's code.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::ManifestEntries { .. }
            | Self::Orphans { .. }
            | Self::ClaimChecks { .. }
            | Self::SentClaimRequests { .. }
            | Self::ReceivedClaimRequests { .. }
            | Self::Checkpoints { .. }
            | Self::Window { .. }
            | Self::ScopeEntities { .. }
            | Self::OwnScopeEntities { .. }
            | Self::OpenEntities { .. }
            | Self::OwnChildren { .. }
            | Self::HeldHeaders { .. }
            | Self::Unacknowledged { .. }
            | Self::EarlyBytes
            | Self::Heap
            | Self::EarlyHeaders { .. }
            | Self::ClaimDetails { .. } => ErrorCode::WindowExceeded,
            Self::Depth { .. } | Self::HeaderDepth { .. } | Self::OwnDepth { .. } => ErrorCode::DepthExceeded,
            Self::OneLevel => ErrorCode::LayerUnsupported,
            Self::FrameLength { .. }
            | Self::HeaderLength { .. }
            | Self::SealedHeaderLength { .. }
            | Self::Metadata { .. }
            | Self::PayloadLength { .. }
            | Self::ReferenceLength { .. }
            | Self::ReferencePayload
            | Self::ObjectLength { .. }
            | Self::Fragments(_) => ErrorCode::EntityTooLarge,
            Self::SessionFolder { .. } => ErrorCode::EntityInvalid,
            Self::KeyDerivation => ErrorCode::InternalError,
        }
    }
}

impl Deadline {
    /// Return the registry's code.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Silence => ErrorCode::IdleTimeout,
            Self::ClaimExpired { .. } => ErrorCode::ClaimExpired,
        }
    }
}
