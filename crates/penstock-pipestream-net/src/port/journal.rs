use std::{fmt, io};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use penstock_pipestream::{EntityKey, ErrorCode, ScopeDigest, Session, SessionId, Ticket};

use crate::counters::JournalCounters;
use crate::port::RecoveredSession;
use crate::types::Resolution;

/// The journals of an end's sessions.
pub(crate) trait SessionJournals: fmt::Debug + Send + Sync {
    /// Return the journal of a new session.
    fn begin(&self, owner: Owner) -> Box<dyn SessionJournal>;

    /// Return the counters of all of them.
    fn counters(&self) -> &JournalCounters;
}

/// The records of one session, by which it outlives its process.
pub(crate) trait SessionJournal: fmt::Debug + Send + Sync {
    /// Return whether the next record must be a snapshot.
    fn wants_snapshot(&self) -> bool;

    /// Return whether a record was written.
    fn has_begun(&self) -> bool;

    /// Write a record of the core, a snapshot where that was wanted, and return when it is durable.
    fn write<'a>(&'a mut self, record: &'a [u8], kind: RecordKind) -> BoxFuture<'a, io::Result<()>>;

    /// Remove the records of a session that has ended.
    fn remove(self: Box<Self>) -> BoxFuture<'static, io::Result<()>>;

    /// Keep the records for the next process, which may open them once the last journal is closed.
    fn close(self: Box<Self>) -> BoxFuture<'static, ()>;

    /// Note the name of the session's folder in the sink. It is durable with the next record, so
    /// before the sink stores anything of an entity.
    fn note_sink_folder(&mut self, name: &str);

    /// Note that an entity of ours was announced with a label.
    fn announced(&mut self, label: Bytes, ticket: Ticket);

    /// Return the ticket of a label whose entity has no terminal status.
    fn open(&self, label: &Bytes) -> Option<Ticket>;

    /// Return the outcome of a label whose entity has a terminal status. Blocks on the disk.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    fn ended(&self, label: &Bytes) -> io::Result<Option<Ended>>;

    /// Return the digest of an open entity's scope, where that was released.
    fn digest(&self, parent: EntityKey) -> Option<&ScopeDigest>;

    /// Return the digest of our root scope, where that was released.
    fn root(&self) -> Option<&ScopeDigest>;

    /// Note that a scope of ours was released.
    fn note_released(&mut self, parent: EntityKey, digest: &ScopeDigest);

    /// Note that our root scope was released.
    fn note_root_released(&mut self, digest: &ScopeDigest);

    /// Note that an entity of ours has its terminal status.
    fn note_ended(&mut self, key: EntityKey, resolution: &Resolution);

    /// Count the session as one whose client did not return.
    fn count_in_vain(&self);
}

/// The kind of a record of the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// The session's state. It replaces all records before it.
    Snapshot,
    /// The session's inputs since the record before it.
    Inputs,
    /// The same, of a session that has ended with this code: no record follows.
    Last(ErrorCode),
}

/// Owner of a session's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) session: SessionId,
    /// The SHA-256 of the client's certificate, at a server.
    pub(crate) certificate: Option<[u8; 32]>,
}

/// The outcome of an entity of ours that has a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) ticket: Ticket,
    pub(crate) resolution: Resolution,
    /// The digest of its children's scope.
    pub(crate) digest: Option<ScopeDigest>,
}

/// A server's session of an earlier process, which waits for its client.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) session: Session,
    pub(crate) owner: Owner,
    pub(crate) journal: Box<dyn SessionJournal>,
    /// The sink's part of it, as far as its open entities are concerned.
    pub(crate) found: Box<dyn RecoveredSession>,
    /// The code that it has ended with; its list may lack the last line.
    pub(crate) end: Option<ErrorCode>,
}
