//! Sessions that outlive their process: their records on disk, in one log for all sessions of a folder (`penstock-log`).
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
//! The driver writes what the session has been told before it does anything that follows from it ([`Journal::write`]). One log
//! serves all sessions, so that a session costs no file, and what sessions say at once shares a write and an `fdatasync`.

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

use bytes::Bytes;
use penstock_pipestream::{EntityKey, ErrorCode, ScopeDigest, Ticket};

pub(crate) use self::labels::Ended;
use self::labels::{encode_ended, encode_released};
pub(crate) use self::open::{ClientState, ServerState, Waiting};
pub(crate) use self::record::Owner;
use self::record::{Entry, Form, Kind, StoredSession, put};
pub(crate) use self::writer::JournalWriter;
use crate::counters::JournalCounters;
use crate::types::Resolution;

/// The records of one session, for its driver.
#[derive(Debug)]
pub(crate) struct Journal {
    keeper: Arc<JournalWriter>,
    owner: Owner,
    /// What its folder in the sink is called.
    sink_folder: Option<String>,
    /// The first record has been written.
    begun: bool,
    /// Parts of ours that go with the core's next record.
    unwritten: Vec<u8>,
    /// Entities of ours that have a label and have ended, which goes with that record, too.
    ended: HashMap<Bytes, Ended>,
    /// How many have, with those.
    known: u32,
    /// Entities of ours that have a label and are open.
    open: HashMap<Bytes, Ticket>,
    labels: HashMap<EntityKey, Bytes>,
    /// Digests of the scopes of such entities.
    released: HashMap<EntityKey, ScopeDigest>,
    /// The digest of our root scope, once that was released.
    root: Option<(EntityKey, ScopeDigest)>,
}

/// What a root scope has instead of a parent.
const fn no_entity(scope: u16) -> EntityKey {
    EntityKey { scope, scope_use: 0, entity: 0, entity_use: 0 }
}

impl Journal {
    fn new(keeper: &Arc<JournalWriter>, owner: Owner) -> Self {
        Self {
            keeper: Arc::clone(keeper),
            owner,
            sink_folder: None,
            begun: false,
            unwritten: Vec::new(),
            ended: HashMap::new(),
            known: 0,
            open: HashMap::new(),
            labels: HashMap::new(),
            released: HashMap::new(),
            root: None,
        }
    }

    /// The one of a session that an earlier process has begun.
    fn restored(keeper: &Arc<JournalWriter>, found: &StoredSession) -> Self {
        let (sink_folder, known) = (found.sink_folder.clone(), keeper.book().labels(found.owner.session));
        Self { sink_folder, begun: true, known, ..Self::new(keeper, found.owner) }
    }

    /// Whether the next record is to be a snapshot.
    pub(crate) fn wants_snapshot(&self) -> bool {
        !self.begun || self.keeper.book().is_long(self.owner.session)
    }

    /// What is counted of all journals of the folder.
    pub(crate) fn counters(&self) -> &JournalCounters {
        &self.keeper.counters
    }

    /// Whether there is something on disk.
    pub(crate) const fn has_begun(&self) -> bool {
        self.begun
    }

    /// What the session's folder in the sink is called. It is durable with the core's next record, so before the sink begins
    /// with an entity.
    pub(crate) fn note_sink_folder(&mut self, name: &str) {
        put(Kind::Folder, name.as_bytes(), &mut self.unwritten);
        self.sink_folder = Some(name.to_owned());
    }

    /// Writes a record of the core, a snapshot where that was wanted; `end`: it is the last one, and the session has ended.
    /// Returns when it is durable.
    pub(crate) async fn write(&mut self, record: &[u8], snapshot: bool, end: Option<ErrorCode>) -> io::Result<()> {
        let form = match (snapshot, self.begun) {
            (true, false) => Form::New,
            (true, true) => Form::Whole,
            (false, true) => Form::More,
            (false, false) => return Err(io::Error::other("its first record is no snapshot")),
        };
        let unwritten = std::mem::take(&mut self.unwritten);
        let mut parts = if snapshot { self.beginning() } else { unwritten };
        for (label, ended) in &self.ended {
            put(Kind::Label, &encode_ended(label, ended), &mut parts);
        }
        match end {
            None => put(Kind::Core, record, &mut parts),
            Some(code) => put(Kind::End, &[&code.code().to_be_bytes(), record].concat(), &mut parts),
        }
        self.keeper.write(Entry::new(self.owner.session, form, self.known, parts)).await?;
        self.begun = true;
        self.ended.clear();
        Ok(())
    }

    /// The parts that a snapshot has of its own.
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

    /// The session has ended, and all of it is where it belongs: nothing is kept.
    pub(crate) async fn remove(self) -> io::Result<()> {
        let written = self.keeper.write(Entry::gone(self.owner.session)).await;
        self.close().await;
        written
    }

    /// Let the records stay. With the last journal of a folder another process may have that.
    pub(crate) async fn close(self) {
        self.keeper.close().await;
    }

    /// An entity of ours has been announced with a label.
    pub(crate) fn announced(&mut self, label: Bytes, ticket: Ticket) {
        self.labels.insert(ticket.key, label.clone());
        self.open.insert(label, ticket);
    }

    /// An entity that has no terminal status.
    pub(crate) fn open(&self, label: &Bytes) -> Option<Ticket> {
        self.open.get(label).copied()
    }

    /// One that has. Reads a file.
    pub(crate) fn ended(&self, label: &Bytes) -> io::Result<Option<Ended>> {
        match self.ended.get(label) {
            Some(ended) => Ok(Some(ended.clone())),
            None => self.keeper.find(self.owner.session, label),
        }
    }

    /// The digest of an open entity's scope, where that was released.
    pub(crate) fn digest(&self, parent: EntityKey) -> Option<&ScopeDigest> {
        self.released.get(&parent)
    }

    /// A scope of ours was released.
    pub(crate) fn note_released(&mut self, parent: EntityKey, digest: &ScopeDigest) {
        if self.labels.contains_key(&parent) {
            put(Kind::Released, &encode_released(parent, digest), &mut self.unwritten);
            self.released.insert(parent, digest.clone());
        }
    }

    /// Our root scope was released.
    pub(crate) fn note_root_released(&mut self, digest: &ScopeDigest) {
        let parent = no_entity(digest.scope_id);
        put(Kind::Released, &encode_released(parent, digest), &mut self.unwritten);
        self.root = Some((parent, digest.clone()));
    }

    /// The digest of our root scope, where that was released.
    pub(crate) fn root(&self) -> Option<&ScopeDigest> {
        self.root.as_ref().map(|(_, digest)| digest)
    }

    /// An entity of ours has come to its end.
    pub(crate) fn note_ended(&mut self, key: EntityKey, resolution: &Resolution) {
        let digest = self.released.remove(&key);
        let Some(label) = self.labels.remove(&key) else { return };
        let Some(ticket) = self.open.remove(&label) else { return };
        self.ended.insert(label, Ended { ticket, resolution: resolution.clone(), digest });
        self.known = self.known.saturating_add(1);
    }
}
