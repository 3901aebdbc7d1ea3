mod code;
mod malformed;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use penstock_wire::{ErrorKind, LimitExceeded};

use crate::key::Digest;
use crate::response;

pub use code::Code;
pub use malformed::Malformed;

/// Return type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. Each error has a [`Code`], by which callers tell errors apart.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A request, an envelope, metadata or a position is not well formed.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// No key, or a wrong one. It says no more than that.
    #[error("no key, or not this job's")]
    Unauthorized,
    /// The buffer does not know the job.
    #[error("the job is not known")]
    NotFound,
    /// The job is in a state that does not allow it.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// The job's life is over.
    #[error("the job has expired after {ttl} ms")]
    Expired {
        /// Milliseconds of its life.
        ttl: u64,
    },
    /// The buffer has lost a part of the job.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The generation is not the one named.
    #[error("the generation is {etag}, If-Match names another")]
    Generation {
        /// The generation that it is.
        etag: String,
    },
    /// A limit was exceeded.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    /// A buffer's answer is longer than any may be.
    #[error("{url}: an answer of more than {limit} bytes")]
    AnswerLength {
        /// Where the answer came from.
        url: String,
        /// Bytes that an answer may have.
        limit: usize,
    },
    /// The body of a request is of another type than JSON.
    #[error("Content-Type is not application/json")]
    ContentType,
    /// The buffer refused a request.
    #[error(transparent)]
    Rejected(Box<Rejection>),
    /// The sender said that the job failed.
    #[error("the sender failed: {reason}")]
    Failed {
        /// What the sender said.
        reason: String,
    },
    /// The consumer has cancelled the job.
    #[error("the consumer has cancelled the job")]
    Cancelled,
    /// Nothing went on for `stallTimeoutMs`.
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// The payload is not what its metadata or its checksum says.
    #[error("the payload is not what its job says: {0}")]
    Corrupt(#[from] Corrupt),
    /// Something could not be written down.
    #[error(transparent)]
    Unwritable(#[from] Unwritable),
    /// The caller broke a rule.
    #[error(transparent)]
    Misuse(#[from] Misuse),
}

/// Which state of the job does not allow it (decisions 1 to 3).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Conflict {
    /// A job has two final chunks.
    #[error("chunks {first} and {second} are both done")]
    TwoEnds {
        /// The one that came first.
        first: u32,
        /// The other one.
        second: u32,
    },
    /// A chunk is behind the final one.
    #[error("chunk {index} is above chunk {done}, which is done")]
    BehindEnd {
        /// The chunk.
        index: u32,
        /// The final one.
        done: u32,
    },
    /// A job is created again with another key.
    #[error("the job exists, with another key")]
    Key,
    /// In a chunk's place is one that this sender did not write.
    #[error("chunk {index} is that of another writer, who had the job before")]
    Writer {
        /// The place.
        index: u32,
    },
    /// The payload is asked for as a whole, and is not whole.
    #[error("the job is not completed")]
    NotCompleted,
}

/// What a buffer has lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// Its disk was damaged, as it found when it started.
    #[error("the buffer's disk was damaged: it has lost a part of the job, which cannot go on")]
    Part,
    /// Its store no longer has a chunk.
    #[error("the buffer's store has lost chunk {index} of the job, which cannot go on")]
    Chunk {
        /// The chunk.
        index: u32,
    },
}

/// What a buffer has refused, and how.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the buffer refused {request} with {status}: {excerpt}")]
pub struct Rejection {
    /// What its status, and the code in its body, mean.
    pub code: Code,
    /// What was asked for.
    pub request: String,
    /// The status.
    pub status: u16,
    /// The beginning of the body, on one line.
    pub excerpt: String,
}

/// What did not go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Stalled {
    /// A chunk could not be written.
    #[error("chunk {index} could not be written within {} ms: {trouble}", .timeout.as_millis())]
    Write {
        /// The chunk.
        index: u32,
        /// How long it was tried.
        timeout: Duration,
        /// Why the last try failed.
        trouble: Trouble,
    },
    /// No chunk came.
    #[error("no new chunk within {} ms: {}{}", .timeout.as_millis(), Last(*.last), Behind(.trouble))]
    Poll {
        /// How long nothing came.
        timeout: Duration,
        /// The last chunk that came.
        last: Option<u32>,
        /// Why the last poll failed, if it did.
        trouble: Option<Trouble>,
    },
}

/// Why a request is made again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Trouble {
    /// It could not be made, or its answer did not come.
    #[error("{0}")]
    Request(String),
    /// The buffer was busy, or has failed.
    #[error("the buffer answered with {0}")]
    Status(u16),
    /// The buffer says that it has a chunk, and no poll gives it.
    #[error("the buffer has chunk {index}, and does not give it")]
    Withheld {
        /// The chunk.
        index: u32,
    },
}

/// How a payload differs from what its job says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Corrupt {
    /// It is no Base64.
    #[error("no Base64: {0}")]
    Base64(base64::DecodeError),
    /// It ends between two characters of Base64 that belong together.
    #[error("the Base64 breaks off")]
    Base64End,
    /// It is no gzip.
    #[error("no gzip: {reason}")]
    Gzip {
        /// What the decompressor said.
        reason: String,
    },
    /// It ends within gzip.
    #[error("the gzip breaks off: {reason}")]
    GzipEnd {
        /// What the decompressor said.
        reason: String,
    },
    /// It has another length.
    #[error("contentLength is {expected}, and {actual} bytes came")]
    Length {
        /// The length that the metadata has.
        expected: u64,
        /// How many bytes came.
        actual: u64,
    },
    /// It has another checksum.
    #[error("its SHA-256 is {actual}, and the sender said {expected}")]
    Digest {
        /// The checksum of the final chunk.
        expected: Box<Digest>,
        /// The checksum of what came.
        actual: Box<Digest>,
    },
}

/// What could not be written down. Memory is the only thing that writers of this crate can lack.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unwritable {
    /// A compressed payload.
    #[error("gzip: {reason}")]
    Gzip {
        /// What the compressor said.
        reason: String,
    },
    /// A chunk.
    #[error("a chunk cannot be written: {reason}")]
    Chunk {
        /// What the writer of JSON said.
        reason: String,
    },
    /// The value of chunk 0.
    #[error("the metadata cannot be written: {reason}")]
    Metadata {
        /// What the writer of JSON said.
        reason: String,
    },
    /// A job's record.
    #[error("a job cannot be written: {reason}")]
    Job {
        /// What the writer of JSON said.
        reason: String,
    },
}

/// What the caller did wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// Something was sent behind the end.
    #[error("the job has ended")]
    Ended,
    /// A payload that is text by its metadata has bytes that are none.
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
    /// Batches of nothing.
    #[error("max_chunks_per_batch is 0")]
    BatchLength,
    /// Chunks that not every code point fits into.
    #[error("max_chunk is below 4 bytes")]
    ChunkLength,
    /// Compressed text.
    #[error("what is compressed is no text: gzip needs base64")]
    GzipText,
    /// The length of compressed data, before it is compressed.
    #[error("content_length of what is compressed is not known before")]
    GzipLength,
    /// `meta` is no JSON.
    #[error("meta is no JSON: {reason}")]
    Meta {
        /// What the reader of JSON said.
        reason: String,
    },
    /// `meta` is another thing of JSON than an object.
    #[error("meta is no JSON object")]
    MetaObject,
}

impl Error {
    /// Return the error of a key that does not fit.
    pub(crate) const fn unauthorized() -> Self {
        Self::Unauthorized
    }

    /// Return the error of a request that a buffer refused: with the [`Code`] of its status, and the beginning of its body.
    pub fn of_response(request: impl Into<String>, status: u16, body: &[u8]) -> Self {
        let lost = || response::code(body).as_deref() == Some(Code::Lost.name());
        let code = Code::of_status(status);
        let code = if code == Code::Expired && lost() { Code::Lost } else { code };
        let (request, excerpt) = (request.into(), response::excerpt(body));
        Self::Rejected(Box::new(Rejection { code, request, status, excerpt }))
    }

    /// Return the code by which callers tell it from others.
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
            // No sender says it to anybody, but the job comes to nothing in the same way.
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

/// The last chunk that came, in words.
struct Last(Option<u32>);

impl fmt::Display for Last {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(last) => write!(f, "the last is {last}"),
            None => f.write_str("none came"),
        }
    }
}

/// Trouble, where there is some, behind a semicolon.
struct Behind<'a>(&'a Option<Trouble>);

impl fmt::Display for Behind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |trouble| write!(f, "; {trouble}"))
    }
}
