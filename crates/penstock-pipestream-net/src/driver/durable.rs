//! A session whose records are on disk: it survives its process.
//!
//! The session's input is stored before anything that follows from it is sent, and before the sink
//! may begin with an entity. So the sink contains nothing that the restored session does not know.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use penstock_pipestream::{EntityKey, Reason, ScopeDigest, Ticket};

use crate::port::SessionJournal;
use crate::types::{Released, Resolution};

/// The driver's state for a session that survives its process.
#[derive(Debug)]
pub(crate) struct Durable {
    pub(super) journal: Box<dyn SessionJournal>,
    /// Entities that an earlier process announced and whose payload was not provided again yet.
    pub(super) pending_payloads: HashMap<EntityKey, PendingPayload>,
    /// Parents whose last child was announced by an earlier process.
    pub(super) ended: HashSet<EntityKey>,
    pub(super) earlier_root: EarlierRoot,
    pub(super) records: Records,
}

/// Our root scope as an earlier process has left it.
///
/// ```text
///  Open        Ended ── the caller ends it, too, and gets its digest ──► Told
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EarlierRoot {
    Open,
    Ended,
    Told,
}

/// The state of a session's records while a driver owns the session.
///
/// ```text
///  Written ── the end of the session is written, or a write failed ──► Finished
///     └─────────── the next process continues the session, or tries its list again ──┴──► Kept
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Records {
    /// Each input of the session is stored.
    Written,
    /// Nothing more is written, and the records are removed with the session.
    Finished,
    /// Nothing more is written, and the records are kept for the next process.
    Kept,
}

impl Records {
    /// Return whether more records may follow.
    pub(super) const fn are_open(self) -> bool {
        match self {
            Self::Written => true,
            Self::Finished | Self::Kept => false,
        }
    }
}

/// State of an entity that waits for a payload.
#[derive(Debug)]
pub(super) enum PendingPayload {
    /// The session has not requested the payload.
    NotRequested,
    /// The session has requested the payload.
    Wanted,
    /// The attempt has failed: the entity is sent again or given up.
    Failed(Reason),
}

impl Durable {
    pub(crate) fn new(journal: Box<dyn SessionJournal>) -> Self {
        Self {
            journal,
            pending_payloads: HashMap::new(),
            ended: HashSet::new(),
            earlier_root: EarlierRoot::Open,
            records: Records::Written,
        }
    }

    /// Return whether the parent's last child was announced by an earlier process. Return true only
    /// once.
    pub(super) fn has_ended(&mut self, parent: EntityKey) -> bool {
        self.ended.remove(&parent)
    }

    /// Return whether our root scope was ended by an earlier process, with its digest if it was
    /// released. Return it only once.
    pub(super) fn has_ended_root(&mut self) -> Option<Option<ScopeDigest>> {
        match self.earlier_root {
            EarlierRoot::Open | EarlierRoot::Told => None,
            EarlierRoot::Ended => {
                self.earlier_root = EarlierRoot::Told;
                Some(self.journal.root().cloned())
            }
        }
    }

    /// Record the name of the session's folder in the sink, by which the next process finds it.
    pub(super) fn note_sink_folder(&mut self, folder: &str) {
        self.journal.note_sink_folder(folder);
    }

    pub(super) fn note_released(&mut self, released: &Released) {
        match released.parent {
            Some(parent) => self.journal.note_released(parent, &released.digest),
            None => self.journal.note_root_released(&released.digest),
        }
    }

    pub(super) fn note_ended(&mut self, key: EntityKey, resolution: &Resolution) {
        self.pending_payloads.remove(&key);
        self.journal.note_ended(key, resolution);
    }

    /// Mark an entity as requested. Return whether its payload is pending.
    pub(super) fn mark_wanted(&mut self, key: EntityKey) -> bool {
        self.pending_payloads.get_mut(&key).map(|pending| *pending = PendingPayload::Wanted).is_some()
    }

    /// Record that an attempt has failed. Return whether the payload is pending.
    pub(super) fn failed(&mut self, key: EntityKey, reason: &Reason) -> bool {
        let failed = || PendingPayload::Failed(reason.clone());
        self.pending_payloads.get_mut(&key).map(|pending| *pending = failed()).is_some()
    }

    pub(super) fn announced(&mut self, label: Bytes, ticket: Ticket) {
        if !label.is_empty() {
            self.journal.announced(label, ticket);
        }
    }

    /// Write no more records, and keep the stored ones for the next process.
    pub(super) fn keep_records(&mut self) {
        self.records = Records::Kept;
    }

    /// Remove the records of a session that has ended. Return whether they are kept for the next process.
    pub(super) async fn remove(self, session: &str) -> bool {
        if !self.journal.has_begun() {
            self.journal.close().await;
            return false;
        }
        match self.records {
            Records::Kept => {
                self.journal.close().await;
                true
            }
            Records::Written | Records::Finished => {
                if let Err(error) = self.journal.remove().await {
                    // The log removes them before a later session of that ID writes any.
                    tracing::warn!(session, %error, "cannot remove the records of a session that has ended");
                }
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use penstock_pipestream::{SessionConfig, SessionId};

    use super::*;
    use crate::journal::ClientState;
    use crate::port::{Owner, RecordKind, SessionJournals as _};

    #[test]
    fn records_go_with_their_session_unless_they_are_for_the_next_process() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for (begins, stays) in [(false, true), (true, false), (true, true)] {
            let dir = tempfile::tempdir().unwrap();
            let (state, found) = ClientState::open(dir.path(), &mut SessionConfig::default()).unwrap();
            assert!(found.is_none());
            let mut durable = Durable::new(state.begin(Owner { session: SessionId::new([7; 16]), certificate: None }));
            let stayed = runtime.block_on(async {
                if begins {
                    durable.journal.write(b"a snapshot", RecordKind::Snapshot).await.unwrap();
                }
                if stays {
                    durable.keep_records();
                }
                durable.remove("a session").await
            });
            let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
            let segments = names.filter(|name| name.to_string_lossy().ends_with(".session")).count();
            let expected = begins && stays;
            assert_eq!((stayed, segments), (expected, usize::from(expected)), "{begins}, {stays}");
        }
    }
}
