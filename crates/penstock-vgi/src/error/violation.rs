/// The rules that a peer can break.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The client sent bytes outside a request and a stream.
    #[error("the client has sent bytes outside a request or a stream")]
    Request,
    /// The client did not wait for the answer to its last input.
    #[error("the client has sent an input before the answer to the last one")]
    EarlyInput,
    /// The server sent a batch without an open call.
    #[error("the server has sent a batch without an open call")]
    UnexpectedBatch,
    /// The server ended a stream without an open call.
    #[error("the server has ended a stream without an open call")]
    UnexpectedEnd,
    /// The server answered an input twice.
    #[error("the server has sent two batches for one input")]
    TwoBatches,
    /// The answer to a call has no result.
    #[error("the answer to a call has no result")]
    NoResult,
    /// The header of a stream has no batch.
    #[error("the header of a stream has no batch")]
    NoHeader,
    /// An answer over HTTP to a call with a header lacks the header.
    #[error("the answer to a stream with a header lacks it")]
    NoHttpHeader,
    /// An answer over HTTP contains a pointer into shared memory.
    #[error("an answer over HTTP points into shared memory, which HTTP does not have")]
    HttpPointer,
    /// An answer over HTTP has a coding that the request did not accept.
    #[error("the answer has the coding {0:?}, which the request did not accept")]
    Coding(String),
    /// An answer with upload URLs lacks their columns.
    #[error("an answer with upload URLs that has no such columns")]
    UploadColumns,
    /// A pointer leads to no region of the segment.
    #[error("a pointer to {length} bytes at {offset} leads to no region of the segment")]
    Region {
        /// The offset of the pointer.
        offset: u64,
        /// The length of the pointer.
        length: u64,
    },
    /// The schema of a batch in shared memory differs from its pointer's.
    #[error("a batch in shared memory whose schema is not that of its pointer")]
    SharedSchema,
    /// A pointer to an external batch is not UTF-8.
    #[error("the pointer to an external batch is not UTF-8")]
    Location,
    /// The bytes behind a pointer are not those that were stored.
    #[error("the SHA-256 of an external batch is {actual}, and its pointer says {expected}")]
    Digest {
        /// The checksum of the fetched bytes, in hex.
        actual: String,
        /// The checksum in the pointer.
        expected: String,
    },
    /// There is more than one stream behind a pointer.
    #[error("an external batch must be one IPC stream, and there are more")]
    ExternalStreams,
    /// There is more than one batch behind a pointer.
    #[error("there is more than one batch behind a pointer")]
    ExternalBatches,
    /// There is no batch behind a pointer.
    #[error("there is no batch behind a pointer")]
    NoExternalBatch,
    /// There is a pointer behind a pointer.
    #[error("redirect loop: there is a pointer behind a pointer")]
    RedirectLoop,
    /// A batch behind a pointer has another schema than the pointer.
    #[error("Schema mismatch: the batch behind a pointer has another schema than the pointer")]
    ExternalSchema,
}
