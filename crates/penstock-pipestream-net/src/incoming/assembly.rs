use std::io;
use std::sync::{Arc, Mutex};

use penstock_io::sync::lock;

use crate::incoming::body::Spool;

/// A payload that arrives in chunks, each on its own stream, in any order (decision 15). The driver creates it for the
/// first chunk and releases it when the entity is resolved.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    /// Created by the first chunk that has bytes, off the IO thread.
    spool: Mutex<Option<Arc<Spool>>>,
}

impl Assembly {
    /// Return the file; open it on the first call, which blocks on the disk.
    pub(crate) fn spool(&self, open: impl FnOnce() -> io::Result<Spool>) -> io::Result<Arc<Spool>> {
        let mut spool = lock(&self.spool);
        match &*spool {
            Some(spool) => Ok(Arc::clone(spool)),
            None => Ok(Arc::clone(spool.insert(Arc::new(open()?)))),
        }
    }

    /// Return the file, if a chunk has opened it.
    pub(crate) fn opened_spool(&self) -> Option<Arc<Spool>> {
        lock(&self.spool).clone()
    }
}
