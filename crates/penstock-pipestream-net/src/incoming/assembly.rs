use std::io;
use std::sync::{Arc, Mutex};

use crate::incoming::body::Spool;
use crate::outcomes::lock;

/// A payload that comes in chunks, a stream each, in any order (decision 15). The driver makes it for the first chunk
/// and lets go of it when the entity is resolved.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    /// Made by the first chunk that has bytes, off the IO thread.
    spool: Mutex<Option<Arc<Spool>>>,
}

impl Assembly {
    /// Return the file, opened where this is the first time. Blocks on the disk then.
    pub(crate) fn spool(&self, open: impl FnOnce() -> io::Result<Spool>) -> io::Result<Arc<Spool>> {
        let mut spool = lock(&self.spool);
        match &*spool {
            Some(spool) => Ok(Arc::clone(spool)),
            None => Ok(Arc::clone(spool.insert(Arc::new(open()?)))),
        }
    }

    /// Return the file, where a chunk has needed one.
    pub(crate) fn made(&self) -> Option<Arc<Spool>> {
        lock(&self.spool).clone()
    }
}
