use super::{DocumentError, ErrorCode, ObjectError, ReferenceError};
use crate::sizes::{CHECKSUM_LENGTH, DOC, MAX_DATA_LAYER, SEALED};

/// An error that fails one entity while the session continues (decisions 14 to 16).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntityError {
    /// A header with a data layer that is too high.
    #[error("data layer {0} is above {MAX_DATA_LAYER}")]
    DataLayer(u32),
    /// A header whose checksum has the wrong length.
    #[error("the checksum has {0} bytes, not {CHECKSUM_LENGTH}")]
    ChecksumLength(usize),
    /// A header that states no chunks.
    #[error("total_chunks is 0")]
    NoChunks,
    /// A chunk whose index is not below the number of chunks.
    #[error("chunk {index} of {total}")]
    ChunkIndex {
        /// The chunk's index.
        index: u32,
        /// How many chunks there are.
        total: u32,
    },
    /// More chunks than bytes.
    #[error("{total} chunks for a payload of {length} bytes")]
    ChunkCount {
        /// How many chunks there are.
        total: u32,
        /// The payload's length in bytes.
        length: u64,
    },
    /// A chunk that begins after the end of the payload.
    #[error("a chunk at {offset} of a payload of {length} bytes")]
    ChunkOffset {
        /// The chunk's offset in the payload.
        offset: u64,
        /// The payload's length in bytes.
        length: u64,
    },
    /// Streams of one entity whose headers contradict each other.
    #[error("the headers of its streams disagree")]
    ChunkHeaders,
    /// A chunk that has arrived before.
    #[error("chunk {index} came twice")]
    ChunkTwice {
        /// The chunk's index.
        index: u32,
    },
    /// Chunks that do not make up the whole payload.
    #[error("its chunks leave gaps")]
    ChunkGaps,
    /// A chunk that extends beyond the payload.
    #[error("chunk {index} goes beyond the payload's {length} bytes")]
    ChunkEnd {
        /// The chunk's index.
        index: u32,
        /// The payload's length in bytes.
        length: u64,
    },
    /// A chunk that overlaps another one.
    #[error("chunk {index} overlaps another")]
    ChunkOverlap {
        /// The chunk's index.
        index: u32,
    },
    /// A payload that is longer than its header states.
    #[error("the payload has {seen} bytes or more, its header says {length}")]
    PayloadOverrun {
        /// How many bytes arrived.
        seen: u64,
        /// The length in the header.
        length: u64,
    },
    /// A payload whose length is not the one in its header.
    #[error("the payload has {seen} bytes, its header says {length}")]
    PayloadLength {
        /// How many bytes arrived.
        seen: u64,
        /// The length in the header.
        length: u64,
    },
    /// A payload whose checksum differs from the header's.
    #[error("the payload's checksum does not match")]
    Checksum,
    /// A header that is not sealed, at an end that requires sealed headers.
    #[error("its header came in the clear, and this end takes headers only that are sealed with its header key")]
    ClearHeader,
    /// A header that no key of this end opens.
    #[error("its header is sealed with the header key {key_id}, and no key of this end opens it")]
    HeaderKey {
        /// The ID of the key that sealed it, in hex.
        key_id: String,
    },
    /// A malformed entry for a sealed header.
    #[error("{SEALED} is malformed")]
    SealedHeader,
    /// An invalid PipeDoc.
    #[error("{DOC}: {0}")]
    Document(DocumentError),
    /// An error in the object that a reference names.
    #[error(transparent)]
    Object(ObjectError),
    /// An invalid reference to an object.
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
