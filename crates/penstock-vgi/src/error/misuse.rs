use crate::shm_layout::format::HEADER;

/// Mistakes of the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// A call on a connection that is busy.
    #[error("a call is still open on this connection")]
    CallOpen,
    /// An input or an answer without a stream.
    #[error("no stream is open")]
    NoStream,
    /// An input before the answer to the previous one, or after the end.
    #[error("the last input has no answer yet, or the stream was closed")]
    EarlyInput,
    /// An input with another schema than the first one.
    #[error("all inputs of a stream have one schema")]
    InputSchema,
    /// A second answer to an input.
    #[error("an input is answered with one batch")]
    TwoBatches,
    /// A resolved batch that was not requested.
    #[error("no request waits for the batch behind a pointer")]
    NoPointer,
    /// A reply without a call.
    #[error("no call waits for a reply")]
    NoReply,
    /// An error without a call.
    #[error("no call waits for an answer")]
    NoAnswer,
    /// A stream without a call.
    #[error("no call waits for a stream")]
    NoStreamCall,
    /// A second answer to a call.
    #[error("the call was answered")]
    Answered,
    /// URLs that were not requested.
    #[error("no URLs were requested")]
    NoUrlCall,
    /// A request whose body is to be stored elsewhere has no batch.
    #[error("a request without a batch")]
    NoBatch,
    /// A batch before the schema of its stream.
    #[error("a stream without a schema")]
    NoSchema,
    /// Columns of other types or lengths than the schema's.
    #[error("a batch that does not fit its schema: {reason}")]
    BatchSchema {
        /// Message of Arrow.
        reason: String,
    },
    /// A batch that Arrow cannot encode.
    #[error("a batch that cannot be written: {reason}")]
    Batch {
        /// Message of Arrow.
        reason: String,
    },
    /// A dialect that is not known.
    #[error("unknown dialect {0:?}; the dialects are \"spec\" and \"0.10\"")]
    Dialect(String),
    /// Two methods of a protocol have one name.
    #[error("two methods have the name {0:?}")]
    MethodName(String),
    /// A batch that does not describe a protocol.
    #[error("a description has a column {0}")]
    NoColumn(String),
    /// A description whose columns have other types.
    #[error("the columns of a description have other types")]
    ColumnTypes,
    /// The prefix of a service's paths.
    #[error("the prefix {0:?} begins with a slash and does not end with one")]
    Prefix(String),
    /// A segment without room for data.
    #[error("a segment has more than {HEADER} bytes, not {0}")]
    SegmentSize(u64),
}
