//! Sessions that outlive their process: their records on disk.
//!
//! ```text
//!  a server's folder              a client's folder, for one session
//!    .lock                          .lock
//!    key                            key          seals yield tokens
//!    SESSION/00000001.session       00000001.session
//!    SESSION.damaged/               labels
//! ```
//!
//! The driver writes what the session has been told before it does anything that follows from it ([`Journal::write`]).

mod keeper;
mod labels;
mod log;
mod open;
mod vain;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use penstock_pipestream::{EntityKey, ErrorCode, ScopeDigest, Ticket};

pub(crate) use self::keeper::Keeper;
use self::keeper::{Files, Write};
pub(crate) use self::labels::Ended;
use self::labels::encode_released;
pub(crate) use self::log::Owner;
use self::log::{Kind, put};
pub(crate) use self::open::{ClientState, ServerState, Waiting};
use crate::counters::JournalCounters;
use crate::outcomes::lock;
use crate::types::Resolution;

/// The records of one session, for its driver.
#[derive(Debug)]
pub(crate) struct Journal {
    keeper: Arc<Keeper>,
    files: Arc<Mutex<Files>>,
    /// The first record has been written.
    begun: bool,
    /// Records of ours that go with the core's next one.
    unwritten: Vec<u8>,
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
    fn new(keeper: &Arc<Keeper>, files: Files, begun: bool) -> Self {
        Self {
            keeper: Arc::clone(keeper),
            files: Arc::new(Mutex::new(files)),
            begun,
            unwritten: Vec::new(),
            open: HashMap::new(),
            labels: HashMap::new(),
            released: HashMap::new(),
            root: None,
        }
    }

    /// Whether the next record is to be a snapshot.
    pub(crate) fn wants_snapshot(&self) -> bool {
        !self.begun || lock(&self.files).log.is_long()
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
        lock(&self.files).log.sink_folder = Some(name.to_owned());
    }

    /// Writes a record of the core, a snapshot where that was wanted; `end`: it is the last one, and the session has ended.
    /// Returns when it is durable.
    pub(crate) async fn write(&mut self, record: &[u8], snapshot: bool, end: Option<ErrorCode>) -> io::Result<()> {
        let mut bytes = std::mem::take(&mut self.unwritten);
        if snapshot {
            bytes.clear();
            let root = self.root.as_ref().map(|(parent, digest)| (parent, digest));
            for (parent, digest) in self.released.iter().chain(root) {
                put(Kind::Released, &encode_released(*parent, digest), &mut bytes);
            }
        }
        match end {
            None => put(Kind::Core, record, &mut bytes),
            Some(code) => put(Kind::End, &[&code.code().to_be_bytes(), record].concat(), &mut bytes),
        }
        let write = if snapshot { Write::Replace(bytes) } else { Write::Append(bytes) };
        self.keeper.write(&self.files, write).await?;
        self.begun = true;
        Ok(())
    }

    /// The session has ended, and all of it is where it belongs: nothing is kept.
    pub(crate) async fn remove(self) -> io::Result<()> {
        self.keeper.write(&self.files, Write::Remove).await
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
        lock(&self.files).labels.find(label)
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
        let ended = Ended { ticket, resolution: resolution.clone(), digest };
        put(Kind::Label, &labels::encode_ended(&label, &ended), &mut self.unwritten);
        lock(&self.files).labels.insert(label, ended);
    }
}
