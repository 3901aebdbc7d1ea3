//! Journals of sessions that outlive their process: one log on disk for all sessions of a folder
//! (`penstock-log`).
//!
//! ```text
//!  a server's folder                            a client's folder, for one session
//!    .lock                                        .lock
//!    key                                          key          seals yield tokens
//!    00000000000000000001.log.session             00000000000000000001.log.session
//!    SESSION.damaged/                             none where its session has ended
//!      00000000000000000001.log.session
//! ```
//!
//! The driver writes a session's inputs before it acts on them ([`SessionJournal::write`]). All
//! sessions share one log, so that a session costs no file, and records of several sessions share a
//! write and an `fdatasync`.

mod book;
mod earlier;
mod expire_orphans;
mod labels;
mod open;
mod places;
mod record;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use penstock_pipestream::{EntityKey, ScopeDigest, Ticket};

use self::labels::{encode_ended, encode_released};
pub(crate) use self::open::{ClientState, ServerState};
use self::record::{Entry, Form, Kind, StoredSession, put};
pub(crate) use self::writer::JournalWriter;
use crate::port::{BoxFuture, Ended, Owner, RecordKind, SessionJournal};
use crate::types::Resolution;

/// The journal of one session, for its driver.
#[derive(Debug)]
pub(crate) struct Journal {
    keeper: Arc<JournalWriter>,
    owner: Owner,
    /// The name of the session's folder in the sink.
    sink_folder: Option<String>,
    first_record: FirstRecord,
    /// Parts to be written with the core's next record.
    unwritten: Vec<u8>,
    /// Outcomes of labelled entities of ours, to be written with the same record.
    ended: HashMap<Bytes, Ended>,
    /// Number of labels that have ended, including those in `ended`.
    known: u32,
    /// Labelled entities of ours that are open.
    open: HashMap<Bytes, Ticket>,
    labels: HashMap<EntityKey, Bytes>,
    /// Digests of the released scopes of open labelled entities.
    released: HashMap<EntityKey, ScopeDigest>,
    /// The digest of our root scope, once that was released.
    root: Option<(EntityKey, ScopeDigest)>,
}

/// The first record of a session, which is a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstRecord {
    /// The record must be written next.
    Due,
    /// This process or an earlier one has written the record.
    Written,
}

/// Return the key that stands for the missing parent of a root scope.
const fn no_entity(scope: u16) -> EntityKey {
    EntityKey { scope, scope_use: 0, entity: 0, entity_use: 0 }
}

impl Journal {
    fn new(keeper: &Arc<JournalWriter>, owner: Owner) -> Self {
        Self {
            keeper: Arc::clone(keeper),
            owner,
            sink_folder: None,
            first_record: FirstRecord::Due,
            unwritten: Vec::new(),
            ended: HashMap::new(),
            known: 0,
            open: HashMap::new(),
            labels: HashMap::new(),
            released: HashMap::new(),
            root: None,
        }
    }

    /// Create the journal of a session that an earlier process has begun.
    fn restored(keeper: &Arc<JournalWriter>, found: &StoredSession) -> Self {
        let (sink_folder, known) = (found.sink_folder.clone(), keeper.book().labels(found.owner.session));
        Self { sink_folder, first_record: FirstRecord::Written, known, ..Self::new(keeper, found.owner) }
    }

    /// Return the parts that a snapshot begins with.
    fn beginning(&self) -> Vec<u8> {
        let mut parts = Vec::new();
        put(Kind::Begin, &self.owner.encode(), &mut parts);
        if let Some(name) = &self.sink_folder {
            put(Kind::Folder, name.as_bytes(), &mut parts);
        }
        let root = self.root.as_ref().map(|(parent, digest)| (parent, digest));
        for (parent, digest) in self.released.iter().chain(root) {
            put(Kind::Released, &encode_released(*parent, digest), &mut parts);
        }
        parts
    }

    async fn write_record(&mut self, record: &[u8], kind: RecordKind) -> io::Result<()> {
        let form = match (kind, self.first_record) {
            (RecordKind::Snapshot, FirstRecord::Due) => Form::New,
            (RecordKind::Snapshot, FirstRecord::Written) => Form::Whole,
            (RecordKind::Inputs | RecordKind::Last(_), FirstRecord::Written) => Form::More,
            (RecordKind::Inputs | RecordKind::Last(_), FirstRecord::Due) => {
                return Err(io::Error::other("its first record is no snapshot"));
            }
        };
        let unwritten = std::mem::take(&mut self.unwritten);
        let mut parts = match kind {
            RecordKind::Snapshot => self.beginning(),
            RecordKind::Inputs | RecordKind::Last(_) => unwritten,
        };
        for (label, ended) in &self.ended {
            put(Kind::Label, &encode_ended(label, ended), &mut parts);
        }
        match kind {
            RecordKind::Snapshot | RecordKind::Inputs => put(Kind::Core, record, &mut parts),
            RecordKind::Last(code) => put(Kind::End, &[&code.code().to_be_bytes(), record].concat(), &mut parts),
        }
        self.keeper.write(Entry::new(self.owner.session, form, self.known, parts)).await?;
        self.first_record = FirstRecord::Written;
        self.ended.clear();
        Ok(())
    }
}

impl SessionJournal for Journal {
    fn wants_snapshot(&self) -> bool {
        !self.has_begun() || self.keeper.book().is_long(self.owner.session)
    }

    fn has_begun(&self) -> bool {
        match self.first_record {
            FirstRecord::Due => false,
            FirstRecord::Written => true,
        }
    }

    fn write<'a>(&'a mut self, record: &'a [u8], kind: RecordKind) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(self.write_record(record, kind))
    }

    fn remove(self: Box<Self>) -> BoxFuture<'static, io::Result<()>> {
        Box::pin(async move {
            let written = self.keeper.write(Entry::gone(self.owner.session)).await;
            self.keeper.close().await;
            written
        })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move { self.keeper.close().await })
    }

    fn note_sink_folder(&mut self, name: &str) {
        put(Kind::Folder, name.as_bytes(), &mut self.unwritten);
        self.sink_folder = Some(name.to_owned());
    }

    fn announced(&mut self, label: Bytes, ticket: Ticket) {
        self.labels.insert(ticket.key, label.clone());
        self.open.insert(label, ticket);
    }

    fn open(&self, label: &Bytes) -> Option<Ticket> {
        self.open.get(label).copied()
    }

    fn ended(&self, label: &Bytes) -> io::Result<Option<Ended>> {
        match self.ended.get(label) {
            Some(ended) => Ok(Some(ended.clone())),
            None => self.keeper.find(self.owner.session, label),
        }
    }

    fn digest(&self, parent: EntityKey) -> Option<&ScopeDigest> {
        self.released.get(&parent)
    }

    fn root(&self) -> Option<&ScopeDigest> {
        self.root.as_ref().map(|(_, digest)| digest)
    }

    fn note_released(&mut self, parent: EntityKey, digest: &ScopeDigest) {
        if self.labels.contains_key(&parent) {
            put(Kind::Released, &encode_released(parent, digest), &mut self.unwritten);
            self.released.insert(parent, digest.clone());
        }
    }

    fn note_root_released(&mut self, digest: &ScopeDigest) {
        let parent = no_entity(digest.scope_id);
        put(Kind::Released, &encode_released(parent, digest), &mut self.unwritten);
        self.root = Some((parent, digest.clone()));
    }

    fn note_ended(&mut self, key: EntityKey, resolution: &Resolution) {
        let digest = self.released.remove(&key);
        let Some(label) = self.labels.remove(&key) else { return };
        let Some(ticket) = self.open.remove(&label) else { return };
        self.ended.insert(label, Ended { ticket, resolution: resolution.clone(), digest });
        self.known = self.known.saturating_add(1);
    }

    fn count_in_vain(&self) {
        self.keeper.counters.in_vain.fetch_add(1, Ordering::Relaxed);
    }
}
