use super::{DocumentError, ErrorCode, ObjectError, ReferenceError};
use crate::sizes::{CHECKSUM_LENGTH, DOC, MAX_DATA_LAYER, SEALED};

/// What fails one entity while the session continues (decisions 14 to 16).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntityError {
    /// The data layer in a header.
    #[error("data layer {0} is above {MAX_DATA_LAYER}")]
    DataLayer(u32),
    /// The checksum in a header.
    #[error("the checksum has {0} bytes, not {CHECKSUM_LENGTH}")]
    ChecksumLength(usize),
    /// The number of chunks in a header.
    #[error("total_chunks is 0")]
    NoChunks,
    /// The number of a chunk.
    #[error("chunk {index} of {total}")]
    ChunkIndex {
        /// The number of the chunk.
        index: u32,
        /// How many chunks there are.
        total: u32,
    },
    /// More chunks than bytes.
    #[error("{total} chunks for a payload of {length} bytes")]
    ChunkCount {
        /// How many chunks there are.
        total: u32,
        /// Bytes that it has.
        length: u64,
    },
    /// The place of a chunk.
    #[error("a chunk at {offset} of a payload of {length} bytes")]
    ChunkOffset {
        /// Where it begins.
        offset: u64,
        /// Bytes that it has.
        length: u64,
    },
    /// Chunks of different entities with one ID.
    #[error("the headers of its streams disagree")]
    ChunkHeaders,
    /// A chunk that is there already.
    #[error("chunk {index} came twice")]
    ChunkTwice {
        /// The number of the chunk.
        index: u32,
    },
    /// Chunks that do not make up the whole payload.
    #[error("its chunks leave gaps")]
    ChunkGaps,
    /// A chunk that is too long.
    #[error("chunk {index} goes beyond the payload's {length} bytes")]
    ChunkEnd {
        /// The number of the chunk.
        index: u32,
        /// Bytes that it has.
        length: u64,
    },
    /// A chunk in the range of another one.
    #[error("chunk {index} overlaps another")]
    ChunkOverlap {
        /// The number of the chunk.
        index: u32,
    },
    /// More payload than the header states.
    #[error("the payload has {seen} bytes or more, its header says {length}")]
    PayloadOverrun {
        /// Bytes that arrived.
        seen: u64,
        /// Bytes that it has.
        length: u64,
    },
    /// Less payload than the header states.
    #[error("the payload has {seen} bytes, its header says {length}")]
    PayloadLength {
        /// Bytes that arrived.
        seen: u64,
        /// Bytes that it has.
        length: u64,
    },
    /// A payload whose checksum differs from the header's.
    #[error("the payload's checksum does not match")]
    Checksum,
    /// A header that is not sealed.
    #[error("its header came in the clear, and this end takes headers only that are sealed with its header key")]
    ClearHeader,
    /// A header that is sealed with another key.
    #[error("its header is sealed with the header key {key_id}, and no key of this end opens it")]
    HeaderKey {
        /// The ID of the key, in hex.
        key_id: String,
    },
    /// A sealed header that is none.
    #[error("{SEALED} is malformed")]
    SealedHeader,
    /// The PipeDoc in a header.
    #[error("{DOC}: {0}")]
    Document(DocumentError),
    /// An object that a reference leads to.
    #[error(transparent)]
    Object(ObjectError),
    /// A reference to an object elsewhere.
    #[error(transparent)]
    Reference(ReferenceError),
}

impl EntityError {
    /// Return the registry's code.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::DataLayer(_)
            | Self::ChecksumLength(_)
            | Self::NoChunks
            | Self::ChunkIndex { .. }
            | Self::ChunkCount { .. }
            | Self::ChunkOffset { .. }
            | Self::ChunkHeaders
            | Self::ChunkTwice { .. }
            | Self::ChunkGaps
            | Self::ChunkEnd { .. }
            | Self::ChunkOverlap { .. }
            | Self::PayloadOverrun { .. }
            | Self::PayloadLength { .. }
            | Self::ClearHeader
            | Self::SealedHeader
            | Self::Document(_)
            | Self::Reference(_) => ErrorCode::EntityInvalid,
            Self::Checksum | Self::HeaderKey { .. } => ErrorCode::IntegrityError,
            Self::Object(error) => error.code(),
        }
    }
}

impl From<DocumentError> for EntityError {
    fn from(error: DocumentError) -> Self {
        Self::Document(error)
    }
}

impl From<ObjectError> for EntityError {
    fn from(error: ObjectError) -> Self {
        Self::Object(error)
    }
}

impl From<ReferenceError> for EntityError {
    fn from(error: ReferenceError) -> Self {
        Self::Reference(error)
    }
}
