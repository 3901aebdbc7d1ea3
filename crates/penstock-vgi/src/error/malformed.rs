use arrow_ipc::MessageHeader;
use penstock_wire::Truncated;

use crate::limits::DEEPEST;
use crate::shm_layout::format::{MOST, VERSION};

/// Inputs that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// There are fewer bytes than a field needs.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// The connection ended while an answer was awaited.
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
    /// A compressed body.
    #[error("a zstd body that cannot be read: {reason}")]
    Zstd {
        /// What zstd said.
        reason: String,
    },
    /// A message ends before its length prefix.
    #[error("half a prefix")]
    Prefix,
    /// A message does not begin with ff ff ff ff.
    #[error("an IPC message begins with {0:02x?}, not with ff ff ff ff")]
    Continuation([u8; 4]),
    /// The head of a message.
    #[error("the head of an IPC message: {reason}")]
    Head {
        /// What flatbuffers said.
        reason: String,
    },
    /// The length of a message's body.
    #[error("a body of negative length")]
    BodyLength,
    /// A body that this machine cannot address.
    #[error("a body beyond the memory of this machine")]
    BodyMemory,
    /// A message extends beyond the memory that holds it.
    #[error("an IPC message ends behind its memory")]
    MessageEnd,
    /// A message made by this crate is shorter than its head says.
    #[error("a message that is shorter than its head says")]
    MessageLength,
    /// A table of flatbuffers.
    #[error("a table outside its IPC message")]
    Table,
    /// An offset of flatbuffers.
    #[error("an offset leads out of its IPC message")]
    Offset,
    /// A message type that streams do not have.
    #[error("an IPC stream with a message of type {0:?}")]
    MessageType(MessageHeader),
    /// The end of a stream outside a stream.
    #[error("the end of a stream that never began")]
    UnexpectedEnd,
    /// A batch outside a stream.
    #[error("a batch before the schema of its stream")]
    NoStream,
    /// A schema message.
    #[error("a schema message without schema")]
    NoSchema,
    /// A stream in memory that is no schema.
    #[error("bytes that are no schema")]
    Schema,
    /// The byte order of a schema.
    #[error("a schema that is not little-endian")]
    Endianness,
    /// A type that is nested too deeply.
    #[error("a schema nests deeper than {DEEPEST} types")]
    Nesting,
    /// The type of a field.
    #[error("field {field:?}: type {type_name:?} is not read here")]
    FieldType {
        /// The field.
        field: String,
        /// Its type.
        type_name: arrow_ipc::Type,
    },
    /// The type of a field's keys.
    #[error("field {field:?}: no integer has {bits} bits")]
    KeyWidth {
        /// The field.
        field: String,
        /// Bits of a key.
        bits: i32,
    },
    /// A dictionary message.
    #[error("no dictionary")]
    NoDictionary,
    /// A dictionary that belongs to no column.
    #[error("a dictionary with the unknown ID {0}")]
    DictionaryId(i64),
    /// A dictionary message.
    #[error("a dictionary without values")]
    NoValues,
    /// A dictionary that grows beyond its keys.
    #[error("{reason}")]
    DictionaryLength {
        /// What Arrow said.
        reason: String,
    },
    /// A batch message.
    #[error("no record batch")]
    NoRecordBatch,
    /// A batch whose body is compressed.
    #[error("compressed IPC bodies are not read here")]
    CompressedBody,
    /// A column is not as long as its batch.
    #[error("column {column:?} has {length} rows, its batch {rows}")]
    ColumnLength {
        /// The name of the column.
        column: String,
        /// Its rows.
        length: usize,
        /// The rows of its batch.
        rows: usize,
    },
    /// The length of a batch or an array.
    #[error("a negative row count")]
    RowCount,
    /// A length that this machine cannot address.
    #[error("a row count beyond the memory of this machine")]
    RowMemory,
    /// A batch has fewer buffers than its columns need.
    #[error("a batch with too few buffers")]
    FewBuffers,
    /// A buffer's place.
    #[error("a buffer outside the body of its IPC message")]
    BufferPlace,
    /// A buffer's length.
    #[error("a buffer shorter than its array")]
    BufferLength,
    /// A batch has fewer nodes than its columns need.
    #[error("a batch with too few field nodes")]
    FewNodes,
    /// An array's nulls.
    #[error("a null count above the length of its array")]
    NullCount,
    /// An array's bitmap.
    #[error("a validity bitmap shorter than its array")]
    Validity,
    /// A batch with views.
    #[error("a batch without the buffer counts of its views")]
    NoViewCounts,
    /// A list.
    #[error("a list without a type of its values")]
    NoListType,
    /// A structure.
    #[error("not a structure")]
    NoStructure,
    /// An array that Arrow rejects.
    #[error("{reason}")]
    Array {
        /// What Arrow said.
        reason: String,
    },
    /// A pointer leads to memory that holds no batch.
    #[error("shared memory without a batch")]
    NoSharedBatch,
    /// A number of a pointer into shared memory.
    #[error("{key} is not a decimal number")]
    PointerNumber {
        /// The key of the metadata.
        key: String,
    },
    /// The header of a segment.
    #[error("the header of a shared memory segment: {0}")]
    Segment(#[from] SegmentHeader),
}

/// What is wrong with the header of a segment of shared memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentHeader {
    /// It is the header of another format.
    #[error("it does not begin with VGIS")]
    Magic,
    /// It has another version.
    #[error("version {0}, expected {VERSION}")]
    Version(u32),
    /// It belongs to a segment of another size.
    #[error("data_size is {data} in a segment of {size} bytes")]
    Size {
        /// The bytes of data that it states.
        data: u64,
        /// Bytes of the segment.
        size: u64,
    },
    /// It has more allocations than there is room for.
    #[error("{0} allocations, above the limit of {MOST}")]
    Count(usize),
    /// An allocation's place.
    #[error("allocation {0} lies outside the data region or in another one")]
    Allocation(usize),
}
