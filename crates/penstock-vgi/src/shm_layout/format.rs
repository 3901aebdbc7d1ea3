//! The format of a segment's header.

/// The size of the header; the data region begins after it.
pub const HEADER: u64 = 65_536;
/// The size of the fixed part of the header, which the allocations follow.
pub const FIXED: usize = 24;
/// The size of one allocation: offset and length.
pub const ENTRY: usize = 16;
/// The most allocations that fit into the header.
pub const MOST: usize = (HEADER as usize - FIXED) / ENTRY;
pub(super) const MAGIC: [u8; 4] = *b"VGIS";
pub(crate) const VERSION: u32 = 1;
