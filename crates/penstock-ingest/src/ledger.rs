//! The account of one document: every part, what was announced of it, and how it ended.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use penstock_documents::{Part, Payload};
use penstock_pipestream::{PipeDoc, document_key};
use penstock_pipestream_net::{EntityKey, Resolution, ScopeDigest, ScopeKey, SentEntity, Status};
use tempfile::SpooledTempFile;

use super::identity::{self, Identity};
use super::manner::{Manner, Padding};
use super::outcome::UNREAD;
use super::policy::{self, DocumentPolicy};
use super::previous::Kept;

/// Texts and contents stay in memory up to here, then go to a temporary file without a name: those of a document have
/// no bound.
const SPOOL_IN_MEMORY: usize = 8 << 20;

/// What rows have beside the account of a part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) text: bool,
    /// The largest content in octets; none at all if it is 0.
    pub(crate) max_content: u64,
}

/// Where something lies in the ledger's spool: its offset and its length.
type Span = (u64, usize);

/// One part, or the document itself.
#[derive(Debug)]
pub(crate) struct Record {
    /// The container that it lies in; none for the document itself.
    pub(crate) parent: Option<usize>,
    pub(crate) name: String,
    pub(crate) media_type: String,
    pub(crate) sha256: Option<[u8; 32]>,
    pub(crate) bytes: Option<u64>,
    pub(crate) depth: u32,
    /// Its own octets do not travel: its children stand for them.
    pub(crate) hollow: bool,
    pub(crate) status: Status,
    /// Why it is not COMPLETE.
    pub(crate) reason: Option<String>,
    /// It failed, and nobody gave another reason than that a part of it is not COMPLETE.
    failed_by_parts: bool,
    /// What it was announced as; none if it never was.
    pub(crate) key: Option<EntityKey>,
    /// How often it was sent, where it was.
    sent: u32,
    /// The claim check under which it was set aside, here or, if it is not DEFERRED, in an earlier session.
    claim: Option<u64>,
    /// The scope of its children.
    pub(crate) scope: Option<ScopeKey>,
    pub(crate) digest: Option<ScopeDigest>,
    /// What was sent beside its children.
    pub(crate) padding: Vec<Padding>,
    children: u64,
    incomplete: u64,
    text: Option<Span>,
    content: Option<Span>,
    /// Where it lies since an earlier session; then it is not sent in this one.
    pub(crate) kept: Option<Box<Kept>>,
    /// Which child of the ledger's first record it is, or lies in, counted from 1.
    pub(crate) place: u64,
}

/// All parts of a document, the document itself first, then depth first.
pub(crate) struct Ledger {
    /// The document's name in receipts.
    pub(crate) document: String,
    /// The session's ID.
    pub(crate) session: Arc<str>,
    pub(crate) records: Vec<Record>,
    wanted: Wanted,
    /// Texts and contents.
    spool: SpooledTempFile,
    spool_end: u64,
    /// The way down to the first record, which is not the document itself where only some of its parts are sent.
    base: Vec<String>,
    /// The document's SHA-256, where the first record is not the document.
    pub(crate) whole: Option<[u8; 32]>,
    /// Which children of the first record there are to be; one after the other if nobody says.
    places: Option<Box<dyn Iterator<Item = u64> + Send>>,
    /// The octets of all parts below the first record, those that failed included.
    pub(crate) inflated: u64,
    /// Why the first record's container was not found in the document.
    pub(crate) missing: Option<String>,
    pub(crate) manner: Manner,
    /// Which document it is, and whose.
    pub(crate) identity: Identity,
    /// What its server is called.
    pub(crate) authority: Option<String>,
    /// The URI of the document where an earlier session has put it.
    pub(crate) kept_uri: Option<String>,
    /// What becomes of parts that fail, and so of their containers; without one every part counts.
    pub(crate) policy: Option<DocumentPolicy>,
}

impl Ledger {
    pub(crate) fn new(document: String, session: Arc<str>, wanted: Wanted, policy: Option<DocumentPolicy>) -> Self {
        let spool = SpooledTempFile::new(SPOOL_IN_MEMORY);
        let (records, base, places) = (Vec::new(), Vec::new(), None);
        let (whole, inflated, missing) = (None, 0, None);
        let (manner, identity) = (Manner::default(), Identity::default());
        Self {
            document,
            session,
            records,
            wanted,
            spool,
            spool_end: 0,
            base,
            whole,
            places,
            inflated,
            missing,
            manner,
            identity,
            authority: None,
            kept_uri: None,
            policy,
        }
    }

    /// Its document is this one, at the server of that name.
    pub(crate) fn with_identity(mut self, identity: Identity, authority: Option<String>) -> Self {
        (self.identity, self.authority) = (identity, authority);
        self
    }

    /// The receipt's key; the document's octets must be known.
    pub(crate) fn key(&self) -> String {
        let own = || self.records.first().and_then(|record| record.sha256);
        document_key(&self.document, &self.whole.or_else(own).unwrap_or(UNREAD))
    }

    /// The document's message, with its true names.
    pub(crate) fn pipe_doc(&self) -> PipeDoc {
        self.identity.pipe_doc(&self.key())
    }

    /// The URI of the document's root entity, where its server has a name.
    pub(crate) fn uri(&self) -> Option<String> {
        let root = self.records.first()?;
        if root.kept.is_some() {
            return self.kept_uri.clone();
        }
        identity::uri(self.authority.as_deref()?, &self.session, root)
    }

    /// Its parts go out like that.
    pub(crate) fn with_manner(mut self, manner: Manner) -> Self {
        self.manner = manner;
        self
    }

    /// Makes it that of some children of a container within the document.
    pub(crate) fn with_some(mut self, whole: [u8; 32], places: impl Iterator<Item = u64> + Send + 'static) -> Self {
        self.whole = Some(whole);
        self.places = Some(Box::new(places));
        self
    }

    /// Takes a part in, without its text; gives its place.
    pub(crate) fn add(&mut self, part: &Part, parent: Option<usize>, hollow: bool) -> usize {
        let place = match parent {
            None => {
                self.base.clone_from(&part.path);
                0
            }
            Some(0) => self.places.as_mut().and_then(Iterator::next).unwrap_or_default(),
            Some(parent) => self.records.get(parent).map_or(0, |parent| parent.place),
        };
        self.records.push(Record {
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
            sent: 1,
            claim: None,
            scope: None,
            digest: None,
            padding: Vec::new(),
            children: 0,
            incomplete: 0,
            text: None,
            content: None,
            kept: None,
            place,
        });
        self.records.len() - 1
    }

    /// Keeps a part's text, if texts are wanted, or if its content would not give it.
    pub(crate) fn keep_text(&mut self, index: usize, part: &Part, text: &str) -> io::Result<()> {
        if self.wanted.text || part.declared {
            let span = self.spooled(text.as_bytes())?;
            if let Some(record) = self.records.get_mut(index) {
                record.text = Some(span);
            }
        }
        Ok(())
    }

    /// Keeps a part's octets, if contents of that size are wanted; leaves them to be read from the start.
    pub(crate) fn keep_content(&mut self, index: usize, part: &Part, octets: &mut Payload) -> io::Result<()> {
        let Some(length) = part.bytes.filter(|bytes| *bytes <= self.wanted.max_content && self.wanted.max_content > 0)
        else {
            return Ok(());
        };
        let mut content = Vec::new();
        octets.as_mut().take(length).read_to_end(&mut content)?;
        octets.rewind()?;
        let span = self.spooled(&content)?;
        if let Some(record) = self.records.get_mut(index) {
            record.content = Some(span);
        }
        Ok(())
    }

    fn spooled(&mut self, octets: &[u8]) -> io::Result<Span> {
        self.spool.seek(SeekFrom::Start(self.spool_end))?;
        self.spool.write_all(octets)?;
        let span = (self.spool_end, octets.len());
        self.spool_end = self.spool_end.saturating_add(octets.len() as u64);
        Ok(span)
    }

    fn unspooled(&mut self, (offset, length): Span) -> io::Result<Vec<u8>> {
        let mut octets = vec![0; length];
        self.spool.seek(SeekFrom::Start(offset))?;
        self.spool.read_exact(&mut octets)?;
        Ok(octets)
    }

    /// The part's text, if it has one.
    pub(crate) fn text(&mut self, index: usize) -> io::Result<Option<String>> {
        let Some(span) = self.records.get(index).and_then(|record| record.text) else { return Ok(None) };
        String::from_utf8(self.unspooled(span)?).map(Some).map_err(io::Error::other)
    }

    /// The part's content, if it was kept.
    pub(crate) fn content(&mut self, index: usize) -> io::Result<Option<Vec<u8>>> {
        let span = self.records.get(index).and_then(|record| record.content);
        span.map(|span| self.unspooled(span)).transpose()
    }

    /// How many octets the part's text and content have.
    pub(crate) fn length(&self, index: usize) -> usize {
        let Some(record) = self.records.get(index) else { return 0 };
        [record.text, record.content].into_iter().flatten().map(|(_, length)| length).sum()
    }

    /// The part was announced.
    pub(crate) fn announced(&mut self, index: usize, ticket: &SentEntity) {
        if let Some(record) = self.records.get_mut(index) {
            record.key = Some(ticket.key);
            record.scope = ticket.child_scope;
        }
    }

    /// The part is going to fail for this reason, unless it has failed for another one before.
    pub(crate) fn blame(&mut self, index: usize, reason: &str) {
        if let Some(record) = self.records.get_mut(index) {
            record.reason.get_or_insert_with(|| reason.to_owned());
        }
    }

    /// The part stays where an earlier session has put it.
    pub(crate) fn keep(&mut self, index: usize, kept: Kept) {
        if let Some(record) = self.records.get_mut(index) {
            record.status = Status::Complete;
            record.claim = kept.claim;
            record.kept = Some(Box::new(kept));
        }
    }

    /// The part stays DEFERRED where an earlier session has set it aside: its work was done without a session.
    pub(crate) fn keep_deferred(&mut self, index: usize, mut kept: Kept) {
        let reason = kept.reason.take();
        self.keep(index, kept);
        if let Some(record) = self.records.get_mut(index) {
            record.status = Status::Deferred;
            record.reason = reason;
        }
    }

    /// The part is sent anew after all.
    pub(crate) fn renew(&mut self, index: usize) {
        if let Some(record) = self.records.get_mut(index) {
            record.status = Status::Pending;
            record.claim = None;
            record.kept = None;
        }
    }

    /// More children of the last record than it has here, for one whose children are sent elsewhere.
    pub(crate) fn count_elsewhere(&mut self, children: u64, incomplete: u64) {
        if let Some(record) = self.records.last_mut() {
            record.children += children;
            record.incomplete += incomplete;
        }
    }

    /// How many children the first record has, and how many of them are not COMPLETE.
    pub(crate) fn counts(&self) -> (u64, u64) {
        self.records.first().map_or((0, 0), |record| (record.children, record.incomplete))
    }

    /// How many children the container at `index` has by now, and how many of them stay DEFERRED in an earlier session.
    pub(crate) fn set_aside_before(&self, index: usize) -> (u64, u64) {
        let children = self.records.iter().skip(index + 1).filter(|record| record.parent == Some(index));
        children.fold((0, 0), |(all, deferred), child| {
            (all + 1, deferred + u64::from(child.kept.is_some() && child.status == Status::Deferred))
        })
    }

    /// What its policy made of the document.
    pub(crate) fn outcome(&self) -> &'static str {
        let root = self.records.first();
        let status = root.map_or(Status::Failed, |root| root.status);
        policy::name(policy::outcome(status, root.map_or(0, |root| root.incomplete)))
    }

    /// The part will never be announced.
    pub(crate) fn unsent(&mut self, index: usize, reason: &str) {
        self.blame(index, reason);
        if index == 0 && self.whole.is_some() {
            self.missing.get_or_insert_with(|| reason.to_owned());
        }
        if let Some(record) = self.records.get_mut(index) {
            record.status = Status::Failed;
        }
    }

    /// The part comes again under the claim check that it was set aside under.
    pub(crate) fn redeemed(&mut self, index: usize, claim: u64) {
        if let Some(record) = self.records.get_mut(index) {
            record.claim = Some(claim);
        }
    }

    /// The part has ended.
    pub(crate) fn settle(&mut self, index: usize, resolution: Resolution) {
        let Some(record) = self.records.get_mut(index) else { return };
        record.status = resolution.status;
        record.sent = resolution.attempts;
        record.claim = resolution.claim.or(record.claim);
        if resolution.status == Status::Complete {
            record.reason = None;
        } else if let Some(reason) = resolution.reason {
            let text = if reason.message.is_empty() { reason.code.name().to_owned() } else { reason.message };
            record.reason.get_or_insert(text);
        }
    }

    /// Counts children, and gives every part that is not COMPLETE its reason.
    pub(crate) fn finish(&mut self) {
        for index in (0..self.records.len()).rev() {
            let Some(record) = self.records.get_mut(index) else { continue };
            let incomplete = record.status != Status::Complete;
            record.failed_by_parts = incomplete && record.reason.is_none() && record.incomplete > 0;
            if incomplete && record.reason.is_none() {
                record.reason = Some(match record.incomplete {
                    0 => unsaid(record.status).to_owned(),
                    count => format!("{count} of {} parts are not COMPLETE", record.children),
                });
            }
            let parent = record.parent;
            // Children come after their parents, so the counts below are whole by now.
            if let Some(parent) = parent.and_then(|parent| self.records.get_mut(parent)) {
                parent.children += 1;
                parent.incomplete += u64::from(incomplete);
            }
        }
    }

    /// The way down from the document to a part.
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

    /// What an entity says of itself in its header.
    pub(crate) fn metadata(&self, index: usize, dehydrated: bool) -> BTreeMap<String, String> {
        let (document, path) = self.manner.named(&self.document, &self.path(index));
        // A list of strings is always JSON.
        let path = serde_json::to_string(&path).unwrap_or_default();
        let mut metadata =
            BTreeMap::from([("penstock.document".to_owned(), document), ("penstock.path".to_owned(), path)]);
        if let Some(record) = self.records.get(index).filter(|_| dehydrated) {
            let own = record.sha256.map(penstock_io::hex::encode);
            metadata.extend(own.map(|digest| ("penstock.sha256".to_owned(), digest)));
            let length = record.bytes.map(|bytes| bytes.to_string());
            metadata.extend(length.map(|bytes| ("pipestream.original-length".to_owned(), bytes)));
        }
        metadata
    }
}

impl Record {
    /// How often it was sent. Nothing is sent again below layer 2.
    pub(crate) fn attempts(&self) -> u32 {
        self.kept.as_ref().map_or(if self.key.is_some() { self.sent } else { 0 }, |kept| kept.attempts)
    }

    /// The claim check under which it was set aside, as receipts have it.
    pub(crate) fn claim(&self) -> Option<String> {
        self.claim.map(|claim| format!("{claim:016x}"))
    }

    /// The session that has it.
    pub(crate) fn session<'a>(&'a self, own: &'a str) -> &'a str {
        self.kept.as_ref().map_or(own, |kept| &kept.session)
    }

    /// Its scope and its own ID there.
    pub(crate) fn ids(&self) -> Option<(u16, u32)> {
        match &self.kept {
            Some(kept) => Some(kept.ids),
            None => self.key.map(|key| (key.scope, key.entity)),
        }
    }

    /// Where the sink has its octets, below its folder: what is COMPLETE is there, and what failed only because a part
    /// of it did. The octets of a container stay behind.
    pub(crate) fn file(&self, session: &str) -> Option<String> {
        if let Some(kept) = &self.kept {
            return kept.file.clone();
        }
        let arrived = self.status == Status::Complete || self.failed_by_parts;
        let key = self.key.filter(|_| arrived && !self.hollow)?;
        Some(file_of(key, session))
    }
}

/// The name of an entity's payload below the sink.
pub(crate) fn file_of(key: EntityKey, session: &str) -> String {
    let (scope, entity) = (component(key.scope.into(), key.scope_use), component(key.entity, key.entity_use));
    format!("{session}/{scope}/{entity}")
}

/// Why a part is not COMPLETE, where nobody has said it: a receiver that sets aside, or leaves out, keeps its reason in its
/// own list.
fn unsaid(status: Status) -> &'static str {
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

/// An ID as a name of a file: from its second use on with a number.
fn component(id: u32, uses: u32) -> String {
    if uses == 0 { id.to_string() } else { format!("{id}.{uses}") }
}
