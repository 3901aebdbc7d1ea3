use std::str::Utf8Error;

use crate::id::JobId;
use crate::limits::LONGEST_KEY;

/// The input, or the part of it, that is malformed. A buffer answers such a request with 400.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// A job's ID (decision 8).
    #[error("jobId is no UUIDv4 in lower case")]
    JobId,
    /// A chunk of a job other than the one in the path.
    #[error("jobId is not that of the path")]
    OtherJob,
    /// The value of chunk 0.
    #[error("chunk 0 is no metadata: {reason}")]
    Metadata {
        /// Message of the JSON parser.
        reason: String,
    },
    /// The content type in chunk 0.
    #[error("chunk 0 is no metadata: contentType is no MIME type")]
    ContentType,
    /// The application's `meta` in chunk 0.
    #[error("chunk 0 is no metadata: meta is no object")]
    Meta,
    /// A consumer's position.
    #[error("no position in a job: {reason}")]
    Position {
        /// Message of the JSON parser.
        reason: String,
    },
    /// A position in another job.
    #[error("no position in a job: it is one in job {position}, and this is {job}")]
    PositionJob {
        /// The job of the position.
        position: String,
        /// The job that is read.
        job: JobId,
    },
    /// The checksum in a position.
    #[error("the position has no state of a SHA-256")]
    PositionDigest,
    /// A position that does not fit the form of the payload.
    #[error("the position is none of this payload")]
    PositionPayload,
    /// The text of a body.
    #[error("the body is no UTF-8: {0}")]
    BodyText(Utf8Error),
    /// The fields of a body.
    #[error("the body: {reason}")]
    Body {
        /// Message of the JSON parser.
        reason: String,
    },
    /// A body that ended early.
    #[error("the body broke off")]
    BodyEnd,
    /// A write without a chunk.
    #[error("chunks is empty")]
    NoChunks,
    /// A stored or received envelope.
    #[error("no envelope: {reason}")]
    Envelope {
        /// Message of the JSON parser.
        reason: String,
    },
    /// An index that does not fit 32 bits.
    #[error("index is above 2^32 - 1")]
    Index,
    /// A chunk that has an error but is not final.
    #[error("chunk {index}: error is not null, but done is false")]
    ErrorBeforeEnd {
        /// The chunk.
        index: u64,
    },
    /// The time at which a chunk was made.
    #[error("chunk {index}: createdAt is above 2^53 - 1")]
    CreatedAt {
        /// The chunk.
        index: u64,
    },
    /// A chunk that has a checksum but is not final.
    #[error("chunk {index}: sha256 is there, but done is false")]
    DigestBeforeEnd {
        /// The chunk.
        index: u64,
    },
    /// The checksum of a chunk.
    #[error("chunk {index}: sha256 is no SHA-256 in lower-case hex")]
    Digest {
        /// The chunk.
        index: u64,
    },
    /// Metadata that is final.
    #[error("chunk {index}: done is true without an error, but it is the metadata")]
    MetadataEnd {
        /// The chunk: 0.
        index: u64,
    },
    /// A job's lifetime.
    #[error("ttlMs is not within 1 and {limit}")]
    Ttl {
        /// The longest lifetime, in milliseconds.
        limit: u64,
    },
    /// A key in the body of a creation.
    #[error("{field} is no key: 1 to {LONGEST_KEY} visible ASCII characters")]
    Key {
        /// The name of the field.
        field: &'static str,
    },
    /// A key of a job.
    #[error("a key is 1 to {LONGEST_KEY} visible ASCII characters")]
    JobKey,
    /// The key of a new generation.
    #[error("writeKey is missing, or no key")]
    NewKey,
    /// The key of a new generation without the generation that it replaces.
    #[error("writeKey without If-Match")]
    NoGeneration,
    /// A query parameter that occurs twice.
    #[error("{name} comes twice")]
    Repeated {
        /// The parameter.
        name: &'static str,
    },
    /// A poll for zero chunks.
    #[error("limit is 0")]
    NoLimit,
    /// A numeric query parameter.
    #[error("{name} is no integer of 0 or more")]
    Number {
        /// The parameter.
        name: &'static str,
    },
    /// The index from which a stream of events resumes.
    #[error("Last-Event-ID is no index")]
    LastEventId,
    /// The key in a trigger request.
    #[error("writeKey is no key: visible ASCII characters")]
    TriggerKey,
    /// The payload in a trigger request.
    #[error("payload is no object")]
    TriggerPayload,
    /// A job's record in a store.
    #[error("no record of a job: {reason}")]
    Job {
        /// Message of the JSON parser.
        reason: String,
    },
    /// A buffer's status of a job.
    #[error("the buffer's status is none: {reason}")]
    Status {
        /// Message of the JSON parser.
        reason: String,
    },
}
