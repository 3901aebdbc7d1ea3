use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use penstock_pipestream::EntityKey;
use penstock_pipestream_net::port::{Attempt, SessionControl, TempFile};

use crate::folder::disk::Step;
use crate::folder::shared::{Message, Shared};
use crate::folder::stored::StoredPayload;
use crate::references::References;

/// Signals on drop that no task works for a session any more.
#[derive(Debug)]
pub(super) struct Guard {
    pub(super) session: u64,
    pub(super) shared: Arc<Shared>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.shared.send(Message::Ended { session: self.session });
    }
}

/// The handle of a session, which its driver and every job hold.
#[derive(Debug, Clone)]
pub(super) struct FolderSession {
    pub(super) guard: Arc<Guard>,
    pub(super) path: Arc<Path>,
    pub(super) control: Arc<dyn SessionControl>,
}

impl FolderSession {
    /// Return how the sink handles entities that refer to objects.
    pub(super) fn references(&self) -> References {
        self.guard.shared.references.clone()
    }

    /// Create a temporary file for an entity's payload. Blocks on the disk.
    pub(super) fn create(&self, attempt: Attempt) -> io::Result<(fs::File, TempFile)> {
        let EntityKey { scope, scope_use, entity, entity_use } = attempt.key;
        // The file of an earlier attempt may still exist.
        let again = if attempt.voids() == 0 { String::new() } else { format!("-{}", attempt.voids()) };
        let path = self.path.join(format!(".tmp-{scope}.{scope_use}-{entity}.{entity_use}{again}"));
        self.guard.shared.faults.check(Step::Create, &path)?;
        let file = fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        Ok((file, TempFile::new(path)))
    }

    pub(super) fn stored(&self, attempt: Attempt, stored: StoredPayload) {
        self.control.count(stored.bytes);
        self.guard.shared.send(Message::Stored { session: self.guard.session, attempt, stored });
    }
}
