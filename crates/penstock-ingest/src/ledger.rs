//! The ledger of one document: every part, how it was announced, and how it ended.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use penstock_documents::{Part, Payload};
use penstock_io::hex;
use penstock_pipestream::{PipeDoc, document_key};
use penstock_pipestream_net::{Resolution, SentEntity, Status};
use tempfile::SpooledTempFile;

use crate::identity::Identity;
use crate::policy::{self, DocumentPolicy};
use crate::previous::PreviousPart;
use crate::privacy::Privacy;
use crate::record::{Record, Span, default_reason};

/// The size up to which texts and contents stay in memory; after that they go to an unnamed temporary file, because
/// their size per document is unbounded.
const SPOOL_IN_MEMORY: usize = 8 << 20;

/// The substitute for the digest of a document that could not be read.
const UNREAD: [u8; 32] = [0; 32];

/// The content of rows in addition to the record of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowContent {
    /// Include every part's text.
    pub text: bool,
    /// Include contents of at most this many bytes; none at all if it is 0.
    pub max_content: u64,
}

/// The records of all parts of a document: the document itself, then its parts, depth first.
pub(crate) struct Ledger {
    /// The document's name in receipts.
    pub(crate) document: String,
    /// The session's ID.
    pub(crate) session: Arc<str>,
    pub(crate) records: Vec<Record>,
    row_content: RowContent,
    /// The texts and contents that are kept.
    spool: SpooledTempFile,
    spool_end: u64,
    /// The path to the first record, which is not the document itself if only some of its parts are sent.
    base: Vec<String>,
    /// The document's SHA-256, if the first record is not the document.
    pub(crate) whole: Option<[u8; 32]>,
    /// The places of the first record's children; all places are 0 if not set.
    places: Option<Box<dyn Iterator<Item = u64> + Send>>,
    /// The bytes of all parts below the first record, including those that failed.
    pub(crate) inflated: u64,
    /// The reason why the first record's container was not found in the document.
    pub(crate) missing: Option<String>,
    pub(crate) privacy: Privacy,
    /// The document's identity and owner.
    pub(crate) identity: Identity,
    /// The server's name.
    pub(crate) authority: Option<String>,
    /// The URI of the document in an earlier session.
    pub(crate) previous_uri: Option<String>,
    /// The policy for parts that fail, and so for their containers; without a policy every part
    /// must be COMPLETE.
    pub(crate) policy: Option<DocumentPolicy>,
}

impl Ledger {
    pub(crate) fn new(
        document: String,
        session: Arc<str>,
        row_content: RowContent,
        policy: Option<DocumentPolicy>,
    ) -> Self {
        let spool = SpooledTempFile::new(SPOOL_IN_MEMORY);
        let (records, base, places) = (Vec::new(), Vec::new(), None);
        let (whole, inflated, missing) = (None, 0, None);
        let (privacy, identity) = (Privacy::default(), Identity::default());
        Self {
            document,
            session,
            records,
            row_content,
            spool,
            spool_end: 0,
            base,
            whole,
            places,
            inflated,
            missing,
            privacy,
            identity,
            authority: None,
            previous_uri: None,
            policy,
        }
    }

    /// Set the document's identity, and the name of its server.
    pub(crate) fn with_identity(mut self, identity: Identity, authority: Option<String>) -> Self {
        (self.identity, self.authority) = (identity, authority);
        self
    }

    /// Return the receipt's key; the document's bytes must be known.
    pub(crate) fn key(&self) -> String {
        let own = || self.records.first().and_then(|record| record.sha256);
        document_key(&self.document, &self.whole.or_else(own).unwrap_or(UNREAD))
    }

    /// Return the document's message, with its real names.
    pub(crate) fn pipe_doc(&self) -> PipeDoc {
        self.identity.pipe_doc(&self.key())
    }

    /// Return the URI of the document's root entity, if its server has a name.
    pub(crate) fn uri(&self) -> Option<String> {
        let root = self.records.first()?;
        if root.previous.is_some() {
            return self.previous_uri.clone();
        }
        root.uri(self.authority.as_deref()?, &self.session)
    }

    /// Set how much the receiver learns about the document's parts.
    pub(crate) fn with_privacy(mut self, privacy: Privacy) -> Self {
        self.privacy = privacy;
        self
    }

    /// Restrict the ledger to some children of a container within the document whose digest is `whole`.
    pub(crate) fn with_selection(
        mut self,
        whole: [u8; 32],
        places: impl Iterator<Item = u64> + Send + 'static,
    ) -> Self {
        self.whole = Some(whole);
        self.places = Some(Box::new(places));
        self
    }

    /// Add a part without its text, and return its index among the records.
    pub(crate) fn add(&mut self, part: &Part, parent: Option<usize>, hollow: bool) -> usize {
        let place = match parent {
            None => {
                self.base.clone_from(&part.path);
                0
            }
            Some(0) => self.places.as_mut().and_then(Iterator::next).unwrap_or_default(),
            Some(parent) => self.records.get(parent).map_or(0, |parent| parent.place),
        };
        self.records.push(Record::new(part, parent, hollow, place));
        self.records.len() - 1
    }

    /// Keep a part's text if rows contain texts, or if it cannot be derived from the part's content.
    pub(crate) fn keep_text(&mut self, index: usize, part: &Part, text: &str) -> io::Result<()> {
        if self.row_content.text || part.declared {
            let span = self.write_spool(text.as_bytes())?;
            if let Some(record) = self.records.get_mut(index) {
                record.text = Some(span);
            }
        }
        Ok(())
    }

    /// Keep a part's bytes if rows contain contents of that size, and rewind the payload
    /// afterwards.
    pub(crate) fn keep_content(&mut self, index: usize, part: &Part, payload: &mut Payload) -> io::Result<()> {
        let Some(length) =
            part.bytes.filter(|bytes| *bytes <= self.row_content.max_content && self.row_content.max_content > 0)
        else {
            return Ok(());
        };
        let mut content = Vec::new();
        payload.as_mut().take(length).read_to_end(&mut content)?;
        payload.rewind()?;
        let span = self.write_spool(&content)?;
        if let Some(record) = self.records.get_mut(index) {
            record.content = Some(span);
        }
        Ok(())
    }

    fn write_spool(&mut self, bytes: &[u8]) -> io::Result<Span> {
        self.spool.seek(SeekFrom::Start(self.spool_end))?;
        self.spool.write_all(bytes)?;
        let span = (self.spool_end, bytes.len());
        self.spool_end = self.spool_end.saturating_add(bytes.len() as u64);
        Ok(span)
    }

    fn read_spool(&mut self, (offset, length): Span) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.spool.seek(SeekFrom::Start(offset))?;
        self.spool.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Return the part's text, if it was kept.
    pub(crate) fn text(&mut self, index: usize) -> io::Result<Option<String>> {
        let Some(span) = self.records.get(index).and_then(|record| record.text) else { return Ok(None) };
        String::from_utf8(self.read_spool(span)?).map(Some).map_err(io::Error::other)
    }

    /// Return the part's content, if it was kept.
    pub(crate) fn content(&mut self, index: usize) -> io::Result<Option<Vec<u8>>> {
        let span = self.records.get(index).and_then(|record| record.content);
        span.map(|span| self.read_spool(span)).transpose()
    }

    /// Return the size in bytes of the part's text and content that were kept.
    pub(crate) fn row_bytes(&self, index: usize) -> usize {
        let Some(record) = self.records.get(index) else { return 0 };
        [record.text, record.content].into_iter().flatten().map(|(_, length)| length).sum()
    }

    /// Record the entity that a part was announced as.
    pub(crate) fn announce(&mut self, index: usize, ticket: &SentEntity) {
        if let Some(record) = self.records.get_mut(index) {
            record.key = Some(ticket.key);
            record.scope = ticket.child_scope;
        }
    }

    /// Record why a part is going to fail, unless it has an earlier reason.
    pub(crate) fn set_reason(&mut self, index: usize, reason: &str) {
        if let Some(record) = self.records.get_mut(index) {
            record.reason.get_or_insert_with(|| reason.to_owned());
        }
    }

    /// Record that the part stays where an earlier session has stored it.
    pub(crate) fn keep(&mut self, index: usize, previous: PreviousPart) {
        if let Some(record) = self.records.get_mut(index) {
            record.status = Status::Complete;
            record.claim = previous.claim;
            record.previous = Some(Box::new(previous));
        }
    }

    /// Record that the part stays DEFERRED in an earlier session, because its work was done without a session.
    pub(crate) fn keep_deferred(&mut self, index: usize, mut previous: PreviousPart) {
        let reason = previous.reason.take();
        self.keep(index, previous);
        if let Some(record) = self.records.get_mut(index) {
            record.status = Status::Deferred;
            record.reason = reason;
        }
    }

    /// Record that the part is sent again after all.
    pub(crate) fn renew(&mut self, index: usize) {
        if let Some(record) = self.records.get_mut(index) {
            record.status = Status::Pending;
            record.claim = None;
            record.previous = None;
        }
    }

    /// Add children that are sent elsewhere to the counts of the last record, which is their
    /// container.
    pub(crate) fn count_elsewhere(&mut self, children: u64, incomplete: u64) {
        if let Some(record) = self.records.last_mut() {
            record.children += children;
            record.incomplete += incomplete;
        }
    }

    /// Return how many children the first record has, and how many of them are not COMPLETE.
    pub(crate) fn counts(&self) -> (u64, u64) {
        self.records.first().map_or((0, 0), |record| (record.children, record.incomplete))
    }

    /// Return how many children the container at `index` has so far, and how many of them stay DEFERRED in an earlier
    /// session.
    pub(crate) fn set_aside_before(&self, index: usize) -> (u64, u64) {
        let children = self.records.iter().skip(index + 1).filter(|record| record.parent == Some(index));
        children.fold((0, 0), |(all, deferred), child| {
            (all + 1, deferred + u64::from(child.previous.is_some() && child.status == Status::Deferred))
        })
    }

    /// Return the outcome of the document under its policy.
    pub(crate) fn outcome(&self) -> &'static str {
        let root = self.records.first();
        let status = root.map_or(Status::Failed, |root| root.status);
        policy::name(policy::outcome(status, root.map_or(0, |root| root.incomplete)))
    }

    /// Fail a part that will never be announced.
    pub(crate) fn fail_unsent(&mut self, index: usize, reason: &str) {
        self.set_reason(index, reason);
        if index == 0 && self.whole.is_some() {
            self.missing.get_or_insert_with(|| reason.to_owned());
        }
        if let Some(record) = self.records.get_mut(index) {
            record.status = Status::Failed;
        }
    }

    /// Record the claim check under which a part is sent again.
    pub(crate) fn redeem(&mut self, index: usize, claim: u64) {
        if let Some(record) = self.records.get_mut(index) {
            record.claim = Some(claim);
        }
    }

    /// Record how a part has ended.
    pub(crate) fn settle(&mut self, index: usize, resolution: Resolution) {
        let Some(record) = self.records.get_mut(index) else { return };
        record.status = resolution.status;
        record.attempts = resolution.attempts;
        record.claim = resolution.claim.or(record.claim);
        if resolution.status == Status::Complete {
            record.reason = None;
        } else if let Some(reason) = resolution.reason {
            let text = if reason.message.is_empty() { reason.code.name().to_owned() } else { reason.message };
            record.reason.get_or_insert(text);
        }
    }

    /// Count children, and set the reason of every part that is not COMPLETE.
    pub(crate) fn finish(&mut self) {
        for index in (0..self.records.len()).rev() {
            let Some(record) = self.records.get_mut(index) else { continue };
            let incomplete = record.status != Status::Complete;
            record.failed_by_parts = incomplete && record.reason.is_none() && record.incomplete > 0;
            if incomplete && record.reason.is_none() {
                record.reason = Some(match record.incomplete {
                    0 => default_reason(record.status).to_owned(),
                    count => format!("{count} of {} parts are not COMPLETE", record.children),
                });
            }
            let parent = record.parent;
            // Children come after their parents, so a record's counts are complete when the loop
            // reaches it.
            if let Some(parent) = parent.and_then(|parent| self.records.get_mut(parent)) {
                parent.children += 1;
                parent.incomplete += u64::from(incomplete);
            }
        }
    }

    /// Return the path from the document to a part.
    pub(crate) fn path(&self, index: usize) -> Vec<&str> {
        let mut path: Vec<&str> = Vec::new();
        let mut at = self.records.get(index);
        while let Some(record) = at {
            let Some(parent) = record.parent else { break };
            path.push(record.name.as_str());
            at = self.records.get(parent);
        }
        path.extend(self.base.iter().rev().map(String::as_str));
        path.reverse();
        path
    }

    /// Return the metadata of an entity's header.
    pub(crate) fn metadata(&self, index: usize, dehydrated: bool) -> BTreeMap<String, String> {
        let (document, path) = self.privacy.disclosed_path(&self.document, &self.path(index));
        // A list of strings can always be written as JSON.
        let path = serde_json::to_string(&path).unwrap_or_default();
        let mut metadata =
            BTreeMap::from([("penstock.document".to_owned(), document), ("penstock.path".to_owned(), path)]);
        if let Some(record) = self.records.get(index).filter(|_| dehydrated) {
            let own = record.sha256.map(hex::encode);
            metadata.extend(own.map(|digest| ("penstock.sha256".to_owned(), digest)));
            let length = record.bytes.map(|bytes| bytes.to_string());
            metadata.extend(length.map(|bytes| ("pipestream.original-length".to_owned(), bytes)));
        }
        metadata
    }
}
