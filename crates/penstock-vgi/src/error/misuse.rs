use crate::shm_layout::format::HEADER;

/// Mistakes of the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// A call was made on a busy connection.
    #[error("a call is still open on this connection")]
    CallOpen,
    /// An input or an answer was given without a stream.
    #[error("no stream is open")]
    NoStream,
    /// An input was sent before the answer to the previous one, or after the end.
    #[error("the last input has no answer yet, or the stream was closed")]
    EarlyInput,
    /// An input has another schema than the first one.
    #[error("all inputs of a stream have one schema")]
    InputSchema,
    /// An input was answered twice.
    #[error("an input is answered with one batch")]
    TwoBatches,
    /// A batch was resolved without a request for it.
    #[error("no request waits for the batch behind a pointer")]
    NoPointer,
    /// A reply was given without a call.
    #[error("no call waits for a reply")]
    NoReply,
    /// An error was given without a call.
    #[error("no call waits for an answer")]
    NoAnswer,
    /// A stream was opened without a call.
    #[error("no call waits for a stream")]
    NoStreamCall,
    /// A call was answered twice.
    #[error("the call was answered")]
    Answered,
    /// URLs were given without a request for them.
    #[error("no URLs were requested")]
    NoUrlCall,
    /// A request to be stored elsewhere has no batch.
    #[error("a request without a batch")]
    NoBatch,
    /// A batch comes before the schema of its stream.
    #[error("a stream without a schema")]
    NoSchema,
    /// The columns differ from the schema in type or length.
    #[error("a batch that does not fit its schema: {reason}")]
    BatchSchema {
        /// The message of Arrow.
        reason: String,
    },
    /// Arrow cannot encode the batch.
    #[error("a batch that cannot be written: {reason}")]
    Batch {
        /// The message of Arrow.
        reason: String,
    },
    /// The dialect is unknown.
    #[error("unknown dialect {0:?}; the dialects are \"spec\" and \"0.10\"")]
    Dialect(String),
    /// Two methods of a protocol have one name.
    #[error("two methods have the name {0:?}")]
    MethodName(String),
    /// A batch lacks a column of a description.
    #[error("a description has a column {0}")]
    NoColumn(String),
    /// The columns of a description have other types.
    #[error("the columns of a description have other types")]
    ColumnTypes,
    /// The prefix of a service's paths is invalid.
    #[error("the prefix {0:?} begins with a slash and does not end with one")]
    Prefix(String),
    /// A segment has no room for data.
    #[error("a segment has more than {HEADER} bytes, not {0}")]
    SegmentSize(u64),
}
