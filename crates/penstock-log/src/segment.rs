//! The names of a log's segments, and the state of each.

use std::path::{Path, PathBuf};

use crate::frame::Frame;

/// The suffix after the number of a segment that an operator has given up, and after the name of a
/// damaged segment's copy.
pub(crate) const DAMAGED: &str = ".damaged";

/// The engine of a log, with its names and bounds.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// The engine and the version of its records, as in headers.
    pub kind: [u8; 8],
    /// The suffix after the number in a segment's name, with the dot.
    pub suffix: &'static str,
    /// The log's name in messages, such as "a PIMP store".
    pub what: &'static str,
    /// The number of bytes after which a new segment begins, at most 2^32 - 1.
    pub segment: u64,
}

/// A segment of an open log. It holds no file, because a log may have more segments than the
/// process has descriptors.
#[derive(Debug)]
pub(crate) struct Segment {
    /// The number of synced bytes.
    pub(crate) length: u64,
    /// The number of bytes of a seal after them, which may be only in the page cache.
    pub(crate) unsynced: u64,
    /// Whether a record follows the last seal.
    pub(crate) is_unsealed: bool,
    /// The framing of its records; `None` if an earlier version began it.
    pub(crate) frame: Option<Frame>,
}

/// Return the path of a segment.
pub(crate) fn path(folder: &Path, number: u64, suffix: &str) -> PathBuf {
    folder.join(format!("{number:020}{suffix}"))
}
