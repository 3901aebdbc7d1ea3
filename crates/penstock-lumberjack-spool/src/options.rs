//! The options of a spool.

use std::path::{Path, PathBuf};
use std::time::Duration;

use penstock_io::storage::{ObjectPrefix, StorageOptions};

use crate::Result;

/// Where segments are kept.
#[derive(Debug, Clone)]
pub enum Keep {
    /// In a local folder.
    Folder(PathBuf),
    /// In an object store: a segment is an object, which is written at once.
    Objects(ObjectPrefix),
}

impl Keep {
    /// Keep segments in a folder, or under the URI of a prefix in an object store.
    pub fn at(place: &Path, storage: &StorageOptions) -> Result<Self> {
        Ok(match ObjectPrefix::of_sink(Some(place), storage)? {
            Some(prefix) => Self::Objects(prefix),
            None => Self::Folder(place.to_owned()),
        })
    }
}

/// When events count as safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    /// On disk.
    Spool,
    /// Committed by every reader.
    Commit,
}

/// How a spool behaves.
#[derive(Debug, Clone)]
pub struct SpoolOptions {
    /// Where it is.
    pub keep: Keep,
    /// The most bytes of all segments; a full spool accepts nothing until readers commit. Default:
    /// 10 GiB.
    pub max_bytes: u64,
    /// A segment is full at this many bytes, or at a quarter of `max_bytes`. Default: 64 MiB.
    pub segment_bytes: u64,
    /// A segment also ends at this age. Default: 60 s.
    pub segment_age: Duration,
    /// How long an object waits for more events before it is written. Default: 500 ms.
    pub linger: Duration,
    /// When events are acknowledged.
    pub ack: Ack,
    /// Whether events that are sent again after a reconnect are left out (decision 12).
    pub dedup: bool,
}

impl SpoolOptions {
    /// Return the defaults.
    pub fn new(keep: Keep) -> Self {
        Self {
            keep,
            max_bytes: 10 << 30,
            segment_bytes: 64 << 20,
            segment_age: Duration::from_secs(60),
            linger: Duration::from_millis(500),
            ack: Ack::Spool,
            dedup: true,
        }
    }
}
