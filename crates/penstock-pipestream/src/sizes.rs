//! The sizes and names of the format, which error messages also state.

/// The largest length of a variable frame, and of a yield token (sections 6.1 and 6.5.1).
pub const MAX_FRAME_LENGTH: u32 = 0xFF_FFFF;
/// The longest header that is read (decision 14): 1 MiB.
pub const MAX_HEADER_LENGTH: u32 = 1024 * 1024;
/// The most bytes of an entity's label.
pub const MAX_LABEL: usize = 1_024;
/// The deepest scope that a STATUS frame can name.
pub(crate) const MAX_DEPTH: u8 = 7;

/// The bytes of an entity's checksum.
pub(crate) const CHECKSUM_LENGTH: usize = 32;
/// The highest data layer (section 3).
pub(crate) const MAX_DATA_LAYER: u32 = 3;

/// The metadata entry of a sealed header.
pub(crate) const SEALED: &str = "pipestream.sealed";
/// The bytes of a secret for headers.
pub(crate) const SECRET: usize = 32;
/// The most secrets of one end: the current one, and earlier ones.
pub(crate) const MAX_SECRETS: usize = 16;
/// The fewest bytes of a key for pseudonyms.
pub(crate) const MIN_PSEUDONYM_KEY: usize = 16;

/// The metadata entry of a root entity's PipeDoc.
pub const DOC: &str = "pipestream.doc";
/// The most bytes of a text in a PipeDoc.
pub(crate) const MAX_DOC_TEXT: usize = 256;
/// The most access scopes of an ownership.
pub(crate) const MAX_DOC_SCOPES: usize = 64;
/// The most characters of an entry with a PipeDoc: no valid message is longer.
pub(crate) const MAX_DOC_ENTRY: usize = 32 << 10;

/// The largest message of a reference in bytes.
pub const MAX_REFERENCE: usize = 64 << 10;
/// The longest key of an object in bytes: the longest path of a file, which exceeds the limits of
/// the stores.
pub(crate) const MAX_OBJECT_KEY: usize = 4096;
/// The shortest wrapped key of 256 bits: 32 bytes, and 8 bytes that AES key wrap, the shortest of the approved
/// wrappings, adds.
pub(crate) const SHORTEST_WRAPPED: usize = 40;
/// The longest wrapped key in bytes.
pub(crate) const LONGEST_WRAPPED: usize = 16 << 10;
