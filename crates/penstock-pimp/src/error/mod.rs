mod code;
mod malformed;
mod rejection;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use penstock_wire::{ErrorKind, LimitExceeded};

use crate::digest::Digest;

pub use code::Code;
pub use malformed::Malformed;
pub use rejection::Rejection;

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The errors of this crate. Each has a [`Code`], by which callers tell errors apart.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A request, an envelope, metadata or a position is not well formed.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// No key, or a wrong one. The error says no more, so that it does not help to guess keys.
    #[error("no key, or not this job's")]
    Unauthorized,
    /// The buffer does not know the job.
    #[error("the job is not known")]
    NotFound,
    /// The job's state does not allow the request.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// The job's lifetime is over.
    #[error("the job has expired after {ttl} ms")]
    Expired {
        /// The lifetime in milliseconds.
        ttl: u64,
    },
    /// The buffer has lost a part of the job.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The generation is not the one in `If-Match`.
    #[error("the generation is {etag}, If-Match names another")]
    Generation {
        /// The actual generation.
        etag: String,
    },
    /// A limit was exceeded.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    /// A buffer's answer is longer than any valid one.
    #[error("{url}: an answer of more than {limit} bytes")]
    AnswerLength {
        /// Source of the answer.
        url: String,
        /// The most bytes that an answer may have.
        limit: usize,
    },
    /// The content type of a request is not JSON.
    #[error("Content-Type is not application/json")]
    ContentType,
    /// The buffer refused a request.
    #[error(transparent)]
    Rejected(Box<Rejection>),
    /// The sender reported that the job failed.
    #[error("the sender failed: {reason}")]
    Failed {
        /// Message of the sender.
        reason: String,
    },
    /// The consumer has cancelled the job.
    #[error("the consumer has cancelled the job")]
    Cancelled,
    /// No progress for `stallTimeoutMs`.
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// The payload does not match its metadata or its checksum.
    #[error("the payload is not what its job says: {0}")]
    Corrupt(#[from] Corrupt),
    /// A value could not be encoded.
    #[error(transparent)]
    Unwritable(#[from] Unwritable),
    /// The caller broke a rule.
    #[error(transparent)]
    Misuse(#[from] Misuse),
}

/// How a request conflicts with the job's state (decisions 1 to 3).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Conflict {
    /// A job has two final chunks.
    #[error("chunks {first} and {second} are both done")]
    TwoEnds {
        /// The one that arrived first.
        first: u32,
        /// The other one.
        second: u32,
    },
    /// A chunk follows the final one.
    #[error("chunk {index} is above chunk {done}, which is done")]
    BehindEnd {
        /// The chunk.
        index: u32,
        /// The final one.
        done: u32,
    },
    /// A job is created again with a different key.
    #[error("the job exists, with another key")]
    Key,
    /// A chunk's index holds a chunk that this sender did not write.
    #[error("chunk {index} is that of another writer, who had the job before")]
    Writer {
        /// The index.
        index: u32,
    },
    /// The whole payload is requested before it is complete.
    #[error("the job is not completed")]
    NotCompleted,
}

/// The data that a buffer has lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// A part of the job: recovery found at the start that the disk was damaged.
    #[error("the buffer's disk was damaged: it has lost a part of the job, which cannot go on")]
    Part,
    /// A chunk that is missing from its store.
    #[error("the buffer's store has lost chunk {index} of the job, which cannot go on")]
    Chunk {
        /// The chunk.
        index: u32,
    },
}

/// The operation that made no progress.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Stalled {
    /// A chunk could not be written.
    #[error("chunk {index} could not be written within {} ms: {failure}", .timeout.as_millis())]
    Write {
        /// The chunk.
        index: u32,
        /// How long the write was retried.
        timeout: Duration,
        /// Why the last attempt failed.
        failure: Failure,
    },
    /// No chunk arrived.
    #[error("no new chunk within {} ms: {}{}", .timeout.as_millis(), Last(*.last), Behind(.failure))]
    Poll {
        /// How long no chunk arrived.
        timeout: Duration,
        /// The last chunk that arrived.
        last: Option<u32>,
        /// Why the last poll failed, if it did.
        failure: Option<Failure>,
    },
}

/// Why a request is retried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The request could not be made, or its answer was lost.
    #[error("{0}")]
    Request(String),
    /// The buffer was busy, or it failed.
    #[error("the buffer answered with {0}")]
    Status(u16),
    /// The buffer reports that it has a chunk, but no poll returns it.
    #[error("the buffer has chunk {index}, and does not give it")]
    Withheld {
        /// The chunk.
        index: u32,
    },
}

/// How a payload differs from its metadata or its checksum.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Corrupt {
    /// It is not Base64.
    #[error("no Base64: {0}")]
    Base64(base64::DecodeError),
    /// It ends between two characters of Base64 that belong together.
    #[error("the Base64 breaks off")]
    Base64End,
    /// It is not gzip.
    #[error("no gzip: {reason}")]
    Gzip {
        /// Message of the decompressor.
        reason: String,
    },
    /// It ends within gzip.
    #[error("the gzip breaks off: {reason}")]
    GzipEnd {
        /// Message of the decompressor.
        reason: String,
    },
    /// It has another length.
    #[error("contentLength is {expected}, and {actual} bytes came")]
    Length {
        /// The length stated in the metadata.
        expected: u64,
        /// How many bytes arrived.
        actual: u64,
    },
    /// It has another checksum.
    #[error("its SHA-256 is {actual}, and the sender said {expected}")]
    Digest {
        /// The checksum that the sender stated.
        expected: Box<Digest>,
        /// The checksum of the bytes that arrived.
        actual: Box<Digest>,
    },
}

/// The data that could not be encoded. Encoding in this crate fails only where memory runs out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unwritable {
    /// A compressed payload.
    #[error("gzip: {reason}")]
    Gzip {
        /// Message of the compressor.
        reason: String,
    },
    /// A chunk.
    #[error("a chunk cannot be written: {reason}")]
    Chunk {
        /// Message of the JSON serializer.
        reason: String,
    },
    /// The value of chunk 0.
    #[error("the metadata cannot be written: {reason}")]
    Metadata {
        /// Message of the JSON serializer.
        reason: String,
    },
    /// A job's record.
    #[error("a job cannot be written: {reason}")]
    Job {
        /// Message of the JSON serializer.
        reason: String,
    },
}

/// Mistakes of the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// Something was sent after the end.
    #[error("the job has ended")]
    Ended,
    /// A payload that is text by its metadata is not valid UTF-8.
    #[error("the payload is not the UTF-8 that chunk 0 says it is")]
    NoText,
    /// A payload that is text ends within a code point.
    #[error("the payload ends within a code point")]
    CodePoint,
    /// A payload has another length than was configured.
    #[error("content_length is {expected}, and {actual} bytes were sent")]
    Length {
        /// The length that was configured.
        expected: u64,
        /// How many bytes were sent.
        actual: u64,
    },
    /// A content type that no header can carry.
    #[error("content_type is no MIME type")]
    ContentType,
    /// Batches of zero chunks.
    #[error("max_chunks_per_batch is 0")]
    BatchLength,
    /// Chunks too small for some code points.
    #[error("max_chunk is below 4 bytes")]
    ChunkLength,
    /// Compressed text.
    #[error("what is compressed is no text: gzip needs base64")]
    GzipText,
    /// `content_length` together with compression.
    #[error("content_length of what is compressed is not known before")]
    GzipLength,
    /// `meta` is not JSON.
    #[error("meta is no JSON: {reason}")]
    Meta {
        /// Message of the JSON parser.
        reason: String,
    },
    /// `meta` is JSON, but not an object.
    #[error("meta is no JSON object")]
    MetaObject,
}

impl Error {
    /// Return the error for a wrong key.
    pub(crate) const fn unauthorized() -> Self {
        Self::Unauthorized
    }

    /// Return the error for a request that a buffer rejected, with the [`Code`] of its status and the beginning of its
    /// body.
    pub fn of_response(request: impl Into<String>, status: u16, body: &[u8]) -> Self {
        Self::Rejected(Box::new(Rejection::new(request.into(), status, body)))
    }

    /// Return the code, by which callers tell errors apart.
    pub const fn code(&self) -> Code {
        match self {
            Self::Malformed(_) => Code::Malformed,
            Self::Unauthorized => Code::Unauthorized,
            Self::NotFound => Code::NotFound,
            Self::Conflict(_) => Code::Conflict,
            Self::Expired { .. } => Code::Expired,
            Self::Lost(_) => Code::Lost,
            Self::Generation { .. } => Code::PreconditionFailed,
            Self::Limit(_) | Self::AnswerLength { .. } => Code::TooLarge,
            Self::ContentType => Code::UnsupportedMediaType,
            Self::Rejected(rejection) => rejection.code,
            // No sender reports `Unwritable`, but it fails the job in the same way.
            Self::Failed { .. } | Self::Unwritable(_) => Code::Failed,
            Self::Cancelled => Code::Cancelled,
            Self::Stalled(_) => Code::Stalled,
            Self::Corrupt(_) => Code::Corrupt,
            Self::Misuse(_) => Code::Misuse,
        }
    }

    /// Return whose fault it is.
    pub const fn kind(&self) -> ErrorKind {
        self.code().kind()
    }
}

/// The last chunk that arrived, as a part of a message.
struct Last(Option<u32>);

impl fmt::Display for Last {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(last) => write!(f, "the last is {last}"),
            None => f.write_str("none came"),
        }
    }
}

/// The failure, if there is one, after a semicolon.
struct Behind<'a>(&'a Option<Failure>);

impl fmt::Display for Behind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |failure| write!(f, "; {failure}"))
    }
}
