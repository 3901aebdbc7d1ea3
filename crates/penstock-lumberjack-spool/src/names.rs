//! The names of a spool's files and objects, which are the same in a folder and in an object store.

use std::path::{Path, PathBuf};

use penstock_io::hex;

use crate::format::SpoolId;

/// The file of the spool's ID, in hex.
pub(super) const ID: &str = "spool";
/// The file of the readers' positions.
pub(super) const READERS: &str = "readers.json";
const SUFFIX: &str = ".segment";

pub(super) fn segment_name(number: u64) -> String {
    format!("{number:020}{SUFFIX}")
}

pub(super) fn segment_number(name: &str) -> Option<u64> {
    name.strip_suffix(SUFFIX).filter(|digits| digits.len() == 20)?.parse().ok()
}

pub(super) fn path_of(folder: &Path, number: u64) -> PathBuf {
    folder.join(segment_name(number))
}

pub(super) fn parse_id(text: &str) -> Option<SpoolId> {
    hex::decode(text.trim())
}
