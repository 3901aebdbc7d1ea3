use arrow_ipc::MessageHeader;
use penstock_wire::Truncated;

use crate::limits::DEEPEST;
use crate::shm_layout::format::{MOST, VERSION};

/// The reasons why an input cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// There are fewer bytes than a field needs.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// The connection ended before the expected answer.
    #[error("the connection ended before the answer")]
    NoAnswer,
    /// The connection ended before the end of a stream.
    #[error("the connection ended within an IPC stream")]
    StreamEnd,
    /// A body ended before the end of a stream.
    #[error("a body that ends within an IPC stream")]
    BodyEnd,
    /// A request over HTTP has no batch.
    #[error("a request without a batch")]
    NoBatch,
    /// A compressed body cannot be inflated.
    #[error("a zstd body that cannot be read: {reason}")]
    Zstd {
        /// The message of zstd.
        reason: String,
    },
    /// A message ends within its length prefix.
    #[error("half a prefix")]
    Prefix,
    /// A message does not begin with ff ff ff ff.
    #[error("an IPC message begins with {0:02x?}, not with ff ff ff ff")]
    Continuation([u8; 4]),
    /// The head of a message cannot be read.
    #[error("the head of an IPC message: {reason}")]
    Head {
        /// The message of flatbuffers.
        reason: String,
    },
    /// The length of a message's body is negative.
    #[error("a body of negative length")]
    BodyLength,
    /// The body is larger than this machine can address.
    #[error("a body beyond the memory of this machine")]
    BodyMemory,
    /// A message extends beyond the memory that holds it.
    #[error("an IPC message ends behind its memory")]
    MessageEnd,
    /// A message made by this crate is shorter than its head states.
    #[error("a message that is shorter than its head says")]
    MessageLength,
    /// A flatbuffers table is outside its message.
    #[error("a table outside its IPC message")]
    Table,
    /// A flatbuffers offset leads out of its message.
    #[error("an offset leads out of its IPC message")]
    Offset,
    /// The message type does not occur in IPC streams.
    #[error("an IPC stream with a message of type {0:?}")]
    MessageType(MessageHeader),
    /// A stream ends that never began.
    #[error("the end of a stream that never began")]
    UnexpectedEnd,
    /// A batch comes before the schema of its stream.
    #[error("a batch before the schema of its stream")]
    NoStream,
    /// A schema message has no schema.
    #[error("a schema message without schema")]
    NoSchema,
    /// The stream in memory does not begin with a schema.
    #[error("bytes that are no schema")]
    Schema,
    /// The byte order of a schema is not little-endian.
    #[error("a schema that is not little-endian")]
    Endianness,
    /// The types of a schema are nested too deeply.
    #[error("a schema nests deeper than {DEEPEST} types")]
    Nesting,
    /// The type of a field is not supported.
    #[error("field {field:?}: type {type_name:?} is not read here")]
    FieldType {
        /// The field.
        field: String,
        /// Its type.
        type_name: arrow_ipc::Type,
    },
    /// The type of a field's keys is not an integer type.
    #[error("field {field:?}: no integer has {bits} bits")]
    KeyWidth {
        /// The field.
        field: String,
        /// The bits of a key.
        bits: i32,
    },
    /// A dictionary message has no dictionary.
    #[error("no dictionary")]
    NoDictionary,
    /// A dictionary belongs to no column.
    #[error("a dictionary with the unknown ID {0}")]
    DictionaryId(i64),
    /// A dictionary message has no values.
    #[error("a dictionary without values")]
    NoValues,
    /// A dictionary has more values than its keys can number.
    #[error("{reason}")]
    DictionaryLength {
        /// The message of Arrow.
        reason: String,
    },
    /// A batch message has no batch.
    #[error("no record batch")]
    NoRecordBatch,
    /// The body of a batch is compressed.
    #[error("compressed IPC bodies are not read here")]
    CompressedBody,
    /// A column and its batch differ in length.
    #[error("column {column:?} has {length} rows, its batch {rows}")]
    ColumnLength {
        /// The name of the column.
        column: String,
        /// The column's number of rows.
        length: usize,
        /// The batch's number of rows.
        rows: usize,
    },
    /// The length of a batch or an array is negative.
    #[error("a negative row count")]
    RowCount,
    /// The length is larger than this machine can address.
    #[error("a row count beyond the memory of this machine")]
    RowMemory,
    /// A batch has fewer buffers than its columns need.
    #[error("a batch with too few buffers")]
    FewBuffers,
    /// A buffer is outside the body of its message.
    #[error("a buffer outside the body of its IPC message")]
    BufferPlace,
    /// A buffer is shorter than its array.
    #[error("a buffer shorter than its array")]
    BufferLength,
    /// A batch has fewer nodes than its columns need.
    #[error("a batch with too few field nodes")]
    FewNodes,
    /// An array has more nulls than values.
    #[error("a null count above the length of its array")]
    NullCount,
    /// An array's validity bitmap is too short.
    #[error("a validity bitmap shorter than its array")]
    Validity,
    /// A batch with views lacks the number of their buffers.
    #[error("a batch without the buffer counts of its views")]
    NoViewCounts,
    /// A list has no type of values.
    #[error("a list without a type of its values")]
    NoListType,
    /// A structure has another type.
    #[error("not a structure")]
    NoStructure,
    /// Arrow rejects an array.
    #[error("{reason}")]
    Array {
        /// The message of Arrow.
        reason: String,
    },
    /// A pointer leads to memory that holds no batch.
    #[error("shared memory without a batch")]
    NoSharedBatch,
    /// A number in a pointer into shared memory is not decimal.
    #[error("{key} is not a decimal number")]
    PointerNumber {
        /// The key of the metadata.
        key: String,
    },
    /// The header of a segment is invalid.
    #[error("the header of a shared memory segment: {0}")]
    Segment(#[from] SegmentHeader),
}

/// The faults of a shared memory segment's header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentHeader {
    /// The header has another format.
    #[error("it does not begin with VGIS")]
    Magic,
    /// The header has another version.
    #[error("version {0}, expected {VERSION}")]
    Version(u32),
    /// The header states another size than the segment has.
    #[error("data_size is {data} in a segment of {size} bytes")]
    Size {
        /// The bytes of data that the header states.
        data: u64,
        /// The bytes of the segment.
        size: u64,
    },
    /// The header counts more allocations than it has room for.
    #[error("{0} allocations, above the limit of {MOST}")]
    Count(usize),
    /// An allocation is outside the data region, or overlaps another one.
    #[error("allocation {0} lies outside the data region or in another one")]
    Allocation(usize),
}
