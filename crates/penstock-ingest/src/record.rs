//! The record of one part: its announcement, its place, and how it ended.

use penstock_documents::Part;
use penstock_pipestream::PipestreamUri;
use penstock_pipestream_net::{EntityKey, ScopeDigest, ScopeKey, Status};

use crate::previous::PreviousPart;
use crate::privacy::Padding;

/// A position in the ledger's spool: offset and length.
pub(crate) type Span = (u64, usize);

/// One part, or the document itself.
#[derive(Debug)]
pub(crate) struct Record {
    /// The index of its container; `None` for the document itself.
    pub(crate) parent: Option<usize>,
    pub(crate) name: String,
    pub(crate) media_type: String,
    pub(crate) sha256: Option<[u8; 32]>,
    pub(crate) bytes: Option<u64>,
    pub(crate) depth: u32,
    /// Whether its children are sent instead of its own bytes.
    pub(crate) hollow: bool,
    pub(crate) status: Status,
    /// The reason why it is not COMPLETE.
    pub(crate) reason: Option<String>,
    /// Whether it failed only because one of its parts is not COMPLETE.
    pub(crate) failed_by_parts: bool,
    /// Its entity; `None` if it was never announced.
    pub(crate) key: Option<EntityKey>,
    /// The number of times that it was sent.
    pub(crate) attempts: u32,
    /// The claim check under which it was deferred: here, or in an earlier session if it is not DEFERRED.
    pub(crate) claim: Option<u64>,
    /// The scope of its children.
    pub(crate) scope: Option<ScopeKey>,
    pub(crate) digest: Option<ScopeDigest>,
    /// The padding entities among its children.
    pub(crate) padding: Vec<Padding>,
    pub(crate) children: u64,
    pub(crate) incomplete: u64,
    pub(crate) text: Option<Span>,
    pub(crate) content: Option<Span>,
    /// Its place in an earlier session; then it is not sent in this one.
    pub(crate) previous: Option<Box<PreviousPart>>,
    /// The number, from 1, of the child of the ledger's first record that it is or that contains
    /// it; 0 if all are sent.
    pub(crate) place: u64,
}

impl Record {
    /// Make the record of a part that was not announced yet.
    pub(crate) fn new(part: &Part, parent: Option<usize>, hollow: bool, place: u64) -> Self {
        Self {
            parent,
            name: part.path.last().cloned().unwrap_or_default(),
            media_type: part.media_type.clone(),
            sha256: part.sha256,
            bytes: part.bytes,
            depth: part.depth,
            hollow,
            status: Status::Pending,
            reason: None,
            failed_by_parts: false,
            key: None,
            attempts: 1,
            claim: None,
            scope: None,
            digest: None,
            padding: Vec::new(),
            children: 0,
            incomplete: 0,
            text: None,
            content: None,
            previous: None,
            place,
        }
    }

    /// Return how often it was sent. Below layer 2 nothing is sent again.
    pub(crate) fn attempts(&self) -> u32 {
        let here = if self.key.is_some() { self.attempts } else { 0 };
        self.previous.as_ref().map_or(here, |previous| previous.attempts)
    }

    /// Return the claim check under which it was deferred, in the form of receipts.
    pub(crate) fn claim(&self) -> Option<String> {
        self.claim.map(|claim| format!("{claim:016x}"))
    }

    /// Return the session that stores it.
    pub(crate) fn session<'a>(&'a self, own: &'a str) -> &'a str {
        self.previous.as_ref().map_or(own, |previous| &previous.session)
    }

    /// Return the IDs of its scope and of its entity in that session.
    pub(crate) fn ids(&self) -> Option<(u16, u32)> {
        match &self.previous {
            Some(previous) => Some(previous.ids),
            None => self.key.map(|key| (key.scope, key.entity)),
        }
    }

    /// Return its URI at the server of this name; `None` if the name is not a valid authority.
    pub(crate) fn uri(&self, authority: &str, session: &str) -> Option<String> {
        let (scope, entity) = self.ids()?;
        let uri = PipestreamUri::new(authority, session, &[scope.into()], Some(entity)).ok()?;
        Some(uri.to_string())
    }

    /// Return the path of its bytes below the sink's folder. The sink has the bytes of a part that
    /// is COMPLETE, or that failed only because of its own parts, but not those of a hollow
    /// container.
    pub(crate) fn file(&self, session: &str) -> Option<String> {
        if let Some(previous) = &self.previous {
            return previous.file.clone();
        }
        let arrived = self.status == Status::Complete || self.failed_by_parts;
        let key = self.key.filter(|_| arrived && !self.hollow)?;
        Some(file_of(key, session))
    }
}

/// Return the name of an entity's payload below the sink.
pub(crate) fn file_of(key: EntityKey, session: &str) -> String {
    let (scope, entity) = (component(key.scope.into(), key.scope_use), component(key.entity, key.entity_use));
    format!("{session}/{scope}/{entity}")
}

/// Return why a part is not COMPLETE if no reason was sent: a receiver that defers or skips keeps its reason in its own
/// list.
pub(crate) fn default_reason(status: Status) -> &'static str {
    match status {
        Status::Deferred => "set aside by the receiver",
        Status::Skipped => "left out by the receiver",
        Status::Unspecified
        | Status::Pending
        | Status::Processing
        | Status::Complete
        | Status::Failed
        | Status::Checkpoint
        | Status::Dehydrating
        | Status::Rehydrating
        | Status::Yielded
        | Status::Retrying
        | Status::Abandoned => "no reason was given",
    }
}

/// Return an ID as a file name, followed by the number of its earlier uses, if any.
fn component(id: u32, uses: u32) -> String {
    if uses == 0 { id.to_string() } else { format!("{id}.{uses}") }
}

#[cfg(test)]
mod tests {
    use crate::testing::announced_zip;

    #[test]
    fn a_document_has_a_uri_where_its_server_has_a_name() {
        let ledger = announced_zip();
        let root = &ledger.records[0];
        let session = "0123456789abcdef0123456789abcdef";
        assert_eq!(root.uri("sink.example:9", session).unwrap(), format!("pipestream://sink.example:9/{session}/0/1"));
        assert_eq!(root.uri("no authority", session), None);
    }
}
