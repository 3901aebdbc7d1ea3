use penstock_wire::LimitExceeded;

use super::ErrorCode;
use crate::sizes::{MAX_FRAME_LENGTH, MAX_HEADER_LENGTH, MAX_REFERENCE};

/// A limit that was exceeded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// The open entries of the manifest.
    #[error("the manifest holds {count} entries, which is max_entries")]
    ManifestEntries {
        /// How many entries are open.
        count: usize,
    },
    /// The completions that arrived before their parents' entries.
    #[error("{count} completions wait for their parents, which is max_orphans")]
    Orphans {
        /// How many orphans are kept.
        count: usize,
    },
    /// The known claim checks.
    #[error("{count} claim checks are known, which is max_claims")]
    ClaimChecks {
        /// How many claim checks are known.
        count: usize,
    },
    /// The open claim requests of this end.
    #[error("{limit} claim requests are open")]
    SentClaimRequests {
        /// How many requests may be open.
        limit: usize,
    },
    /// The open claim requests of the peer.
    #[error("more than {limit} claim requests are open")]
    ReceivedClaimRequests {
        /// How many requests may be open.
        limit: usize,
    },
    /// The open checkpoints of the peer.
    #[error("more than {limit} checkpoints are open")]
    Checkpoints {
        /// How many checkpoints may be open.
        limit: usize,
    },
    /// The window of a scope.
    #[error("PENDING outside the window of {window} from cursor {cursor}")]
    Window {
        /// The size of the window.
        window: u32,
        /// The scope's cursor.
        cursor: u32,
    },
    /// The entities that the peer may announce in one scope.
    #[error("more than {limit} entities in a scope")]
    ScopeEntities {
        /// How many entities a scope may have.
        limit: u32,
    },
    /// The entities that this end may announce in one scope.
    #[error("scope {scope} has had {announced} entities, all it may have")]
    OwnScopeEntities {
        /// The scope.
        scope: u16,
        /// How many entities were announced.
        announced: u64,
    },
    /// The entities of the peer that have no terminal status yet.
    #[error("more than {limit} entities without a terminal status")]
    OpenEntities {
        /// How many entities may be open.
        limit: usize,
    },
    /// The children of one parent at layer 0, which share the window with it.
    #[error("the parent has more children than the window of {window}")]
    OwnChildren {
        /// The size of the window.
        window: u32,
    },
    /// The headers that wait for their PENDING.
    #[error("headers of more than {bytes} bytes wait for their PENDING")]
    HeldHeaders {
        /// The limit in bytes.
        bytes: usize,
    },
    /// The sent bytes of stream 0 that are kept until the peer acknowledges them.
    #[error("the peer has not acknowledged {bytes} bytes of stream 0")]
    Unacknowledged {
        /// How many bytes are unacknowledged.
        bytes: usize,
    },
    /// The bytes that arrive after a SESSION that resumes, before the session is found.
    #[error("too many bytes arrived before the session was resumed")]
    EarlyBytes,
    /// The items of a heap.
    #[error("the heap holds 4294967295 items and takes no more")]
    Heap,
    /// The depth of scopes, exceeded by a DEHYDRATING.
    #[error("DEHYDRATING at depth {depth}; the limit is {limit}")]
    Depth {
        /// The stated depth.
        depth: u8,
        /// The deepest scope's depth.
        limit: u8,
    },
    /// The depth of scopes, exceeded by a header.
    #[error("a dehydrated entity at depth {depth}; the limit is {limit}")]
    HeaderDepth {
        /// The entity's depth.
        depth: u8,
        /// The deepest scope's depth.
        limit: u8,
    },
    /// The depth of scopes, exceeded by an announcement of this end.
    #[error("an entity at depth {depth} cannot be dehydrated; the limit is {limit}")]
    OwnDepth {
        /// The entity's depth.
        depth: u8,
        /// The deepest scope's depth.
        limit: u8,
    },
    /// The levels at layer 0, where a child cannot be dehydrated in turn.
    #[error("layer 0 has one level: an entity with a parent stays whole")]
    OneLevel,
    /// The length of a frame.
    #[error("frame 0x{frame_type:02X} has a length of {length}, above the limit of {MAX_FRAME_LENGTH}")]
    FrameLength {
        /// The frame's type.
        frame_type: u8,
        /// The frame's length in bytes.
        length: u32,
    },
    /// The length of a header.
    #[error("a header of {length} bytes is above the limit of {limit}")]
    HeaderLength {
        /// The header's length in bytes.
        length: u32,
        /// The limit in bytes.
        limit: u32,
    },
    /// The length of a sealed header.
    #[error("a sealed header of {length} bytes is above the limit of {MAX_HEADER_LENGTH}")]
    SealedHeaderLength {
        /// The sealed entry's length in bytes.
        length: usize,
    },
    /// The size of a header's metadata.
    #[error("metadata of {bytes} bytes is above the limit of {limit}")]
    Metadata {
        /// The size of the metadata in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The length of a payload.
    #[error("a payload of {length} bytes is above the limit of {limit}")]
    PayloadLength {
        /// The payload's length in bytes.
        length: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The length of a reference.
    #[error("a FileStorageReference of {length} bytes is above the limit of {MAX_REFERENCE}")]
    ReferenceLength {
        /// The reference's length in bytes.
        length: usize,
    },
    /// The length of a payload that is a reference.
    #[error("a FileStorageReference is above the limit of {MAX_REFERENCE} bytes")]
    ReferencePayload,
    /// The length of the object that a reference names.
    #[error("the object {name} has {length} bytes; the limit is {limit}")]
    ObjectLength {
        /// The object's URL.
        name: String,
        /// The object's length in bytes.
        length: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The headers that arrived before the keys that open them.
    #[error("headers of more than {bytes} bytes came before the session had its ID")]
    EarlyHeaders {
        /// The limit in bytes.
        bytes: usize,
    },
    /// The details of claim checks that are kept.
    #[error("what claim checks stand for takes {bytes} bytes, which is the limit")]
    ClaimDetails {
        /// The limit in bytes.
        bytes: usize,
    },
    /// The sessions of one name in a sink: the session's folder exists already.
    #[error("{reason}")]
    SessionFolder {
        /// The error of the file system.
        reason: String,
    },
    /// The separate ranges of a payload.
    #[error(transparent)]
    Fragments(LimitExceeded),
    /// The bytes that HKDF can produce.
    #[error("a header key cannot be derived")]
    KeyDerivation,
}

/// A deadline that passed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Deadline {
    /// No frame arrived in time.
    #[error("nothing came on stream 0")]
    Silence,
    /// A claim check was not redeemed in time.
    #[error("claim check {id:016x} has expired")]
    ClaimExpired {
        /// The claim check's ID.
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
