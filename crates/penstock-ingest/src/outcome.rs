//! The outcome of a document: its receipt and its rows.

use std::fmt;
use std::sync::Mutex;

use arrow_array::RecordBatch;
use penstock_io::hex;
use penstock_io::sync::lock;
use penstock_pipestream::ContentTree;
use penstock_pipestream_net::Status;
use serde::Serialize;

use crate::identity::OwnerNote;
use crate::ledger::Ledger;
use crate::part_rows::{self, PartColumns};
use crate::policy::DocumentPolicy;
use crate::privacy::{AliasNote, PrivacyNote};
use crate::record::Record;
use crate::scope_note::ScopeNote;
use crate::{Error, Result};

/// The outcome of a document and of each of its parts.
pub struct DocumentOutcome {
    ledger: Mutex<Ledger>,
    key: String,
    content_root: String,
}

/// A receipt, with the field names and the order of `interfaces.md`.
#[derive(Serialize)]
struct Receipt<'a> {
    version: u32,
    document: &'a str,
    sha256: Option<String>,
    bytes: Option<u64>,
    status: &'static str,
    reason: Option<&'a str>,
    content_root: &'a str,
    session: &'a str,
    root: Option<(u16, u32)>,
    file: Option<String>,
    doc_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<OwnerNote>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uri: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alias: Option<AliasNote>,
    #[serde(skip_serializing_if = "Option::is_none")]
    privacy: Option<PrivacyNote>,
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    scopes: Vec<ScopeNote<'a>>,
    parts: Vec<Part<'a>>,
}

/// Some children of a container that were sent separately from the others.
#[derive(Serialize)]
struct Group<'a> {
    children: u64,
    incomplete: u64,
    inflated: u64,
    missing: Option<&'a str>,
    scope: Option<ScopeNote<'a>>,
}

/// A part in the form of a receipt.
#[derive(Serialize)]
struct Part<'a> {
    path: Vec<&'a str>,
    r#type: &'a str,
    sha256: Option<String>,
    bytes: Option<u64>,
    status: &'static str,
    reason: Option<&'a str>,
    attempts: u32,
    session: &'a str,
    scope: Option<u16>,
    entity: Option<u32>,
    file: Option<String>,
    /// The pseudonym of the last step in its path.
    #[serde(skip_serializing_if = "Option::is_none")]
    alias: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<String>,
}

impl DocumentOutcome {
    /// Conclude the ledger of a document whose parts have all ended.
    ///
    /// The only error is that of a path segment of 4 GiB, which only a bug can produce.
    pub(crate) fn new(mut ledger: Ledger) -> penstock_pipestream::Result<Self> {
        ledger.finish();
        let mut tree = ContentTree::new();
        for (index, record) in ledger.records.iter().enumerate().skip(1) {
            tree.push(ledger.path(index), record.sha256.as_ref(), record.status)?;
        }
        let key = ledger.key();
        Ok(Self { key, content_root: hex::encode(tree.root()), ledger: Mutex::new(ledger) })
    }

    /// Return the document's key, which names its receipt.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Return the content root over the document's parts, in hex.
    pub fn content_root(&self) -> &str {
        &self.content_root
    }

    /// Return the receipt as JSON, without scopes and parts unless `whole`.
    ///
    /// # Errors
    ///
    /// [`Error::Receipt`] if it cannot be written.
    pub fn receipt(&self, whole: bool) -> Result<String> {
        self.with(|ledger| self.receipt_of(ledger, whole)).map_err(Error::Receipt)
    }

    /// Return, as JSON, the facts about these parts that are needed to combine the document's groups: how many there
    /// are, and the digest of their scope.
    ///
    /// # Errors
    ///
    /// [`Error::Receipt`] if it cannot be written.
    pub fn group(&self) -> Result<String> {
        let json = self.with(|ledger| {
            let (children, incomplete) = ledger.counts();
            let scope = ledger.records.first().and_then(|record| ScopeNote::new(record, &ledger.session));
            let (inflated, missing) = (ledger.inflated, ledger.missing.as_deref());
            serde_json::to_string(&Group { children, incomplete, inflated, missing, scope })
        });
        json.map_err(Error::Receipt)
    }

    /// Return rows from number `start` on (the document itself is 0), and the number of the next
    /// row, if there is one. Return at most `max_rows` rows, with at most `max_bytes` of text and
    /// content, unless a single row has more.
    ///
    /// # Errors
    ///
    /// [`Error::Rows`] if texts or contents cannot be read back.
    pub fn rows(
        &self,
        start: usize,
        max_rows: usize,
        max_bytes: usize,
        columns: PartColumns,
    ) -> Result<(RecordBatch, Option<usize>)> {
        let batch = self.with(|ledger| part_rows::batch(ledger, &self.key, start, max_rows, max_bytes, columns));
        batch.map_err(Error::Rows)
    }

    /// Return how many parts there are in total, and how many of them are COMPLETE.
    pub fn counts(&self) -> (u64, u64) {
        self.with(|ledger| {
            let complete = ledger.records.iter().skip(1).filter(|record| record.status == Status::Complete).count();
            (ledger.records.len().saturating_sub(1) as u64, complete as u64)
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut Ledger) -> T) -> T {
        act(&mut lock(&self.ledger))
    }
}

impl fmt::Debug for DocumentOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DocumentOutcome").field("key", &self.key).finish_non_exhaustive()
    }
}

impl DocumentOutcome {
    fn receipt_of(&self, ledger: &Ledger, whole: bool) -> serde_json::Result<String> {
        let session: &str = &ledger.session;
        let root = ledger.records.first();
        let end = if whole { ledger.records.len() } else { 0 };
        let doc = ledger.pipe_doc();
        serde_json::to_string(&Receipt {
            version: 1,
            document: &ledger.document,
            sha256: root.and_then(|root| root.sha256.map(hex::encode)),
            bytes: root.and_then(|root| root.bytes),
            status: root.map_or(Status::Failed, |root| root.status).name(),
            reason: root.and_then(|root| root.reason.as_deref()),
            content_root: &self.content_root,
            session: root.map_or(session, |root| root.session(session)),
            root: root.and_then(Record::ids),
            file: root.and_then(|root| root.file(session)),
            privacy: ledger.privacy.note(&ledger.document),
            alias: ledger.privacy.document_alias(&doc),
            owner: doc.ownership.as_ref().map(OwnerNote::from),
            uri: ledger.uri(),
            doc_id: doc.doc_id,
            claim: root.and_then(Record::claim),
            policy: ledger.policy.as_ref().map(DocumentPolicy::text),
            outcome: ledger.policy.as_ref().map(|_| ledger.outcome()),
            scopes: ledger.records.iter().take(end).filter_map(|record| ScopeNote::new(record, session)).collect(),
            parts: (1..end).filter_map(|index| part(ledger, index)).collect(),
        })
    }
}

fn part(ledger: &Ledger, index: usize) -> Option<Part<'_>> {
    let record = ledger.records.get(index)?;
    Some(Part {
        path: ledger.path(index),
        r#type: &record.media_type,
        sha256: record.sha256.map(hex::encode),
        bytes: record.bytes,
        status: record.status.name(),
        reason: record.reason.as_deref(),
        attempts: record.attempts(),
        session: record.session(&ledger.session),
        scope: record.ids().map(|(scope, _)| scope),
        entity: record.ids().map(|(_, entity)| entity),
        file: record.file(&ledger.session),
        alias: ledger.privacy.alias(&ledger.document, &ledger.path(index)),
        claim: record.claim(),
    })
}
