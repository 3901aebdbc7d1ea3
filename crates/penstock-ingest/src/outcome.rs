//! A document that has ended: its receipt, and its rows.

use std::sync::{Mutex, PoisonError};

use penstock_pipestream::ContentTree;
use penstock_pipestream_net::Status;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use serde::Serialize;

use super::identity::OwnerNote;
use super::ledger::{Ledger, Record, file_of};
use super::manner::{AliasNote, PrivacyNote};
use super::policy::DocumentPolicy;
use super::rows;
use crate::error::IntoPyErr;
use penstock_io::hex;

/// Stands for the digest of a document that could not be read.
pub(super) const UNREAD: [u8; 32] = [0; 32];

/// How a document ended, and how each of its parts did.
#[pyclass(frozen, name = "DocumentOutcome", module = "penstock._core")]
pub(crate) struct DocumentOutcome {
    ledger: Mutex<Ledger>,
    #[pyo3(get)]
    key: String,
    #[pyo3(get)]
    content_root: String,
}

/// A receipt, with the names and the order of `interfaces.md`.
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
    scopes: Vec<Scope<'a>>,
    parts: Vec<Part<'a>>,
}

#[derive(Serialize)]
pub(super) struct Scope<'a> {
    session: &'a str,
    scope: u16,
    parent: (u16, u32),
    depth: u32,
    merkle_root: String,
    processed: u64,
    succeeded: u64,
    failed: u64,
    deferred: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    padding: Vec<PaddingNote>,
}

/// An entity in a scope that is no part.
#[derive(Serialize)]
struct PaddingNote {
    entity: u32,
    status: &'static str,
    file: Option<String>,
}

/// Some children of a container that were sent apart from the others.
#[derive(Serialize)]
struct Group<'a> {
    children: u64,
    incomplete: u64,
    inflated: u64,
    missing: Option<&'a str>,
    scope: Option<Scope<'a>>,
}

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
    /// The pseudonym of the last step of its path.
    #[serde(skip_serializing_if = "Option::is_none")]
    alias: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<String>,
}

impl DocumentOutcome {
    /// Closes the account of a document all of whose parts have ended.
    pub(super) fn new(mut ledger: Ledger) -> penstock_pipestream::Result<Self> {
        ledger.finish();
        let mut tree = ContentTree::new();
        for (index, record) in ledger.records.iter().enumerate().skip(1) {
            tree.push(ledger.path(index), record.sha256.as_ref(), record.status)?;
        }
        let key = ledger.key();
        Ok(Self { key, content_root: hex::encode(&tree.root()), ledger: Mutex::new(ledger) })
    }

    fn with<T>(&self, look: impl FnOnce(&mut Ledger) -> T) -> T {
        look(&mut self.ledger.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[pymethods]
impl DocumentOutcome {
    /// The receipt, as JSON; without its scopes and parts if it is not to be whole.
    fn receipt(&self, py: Python<'_>, whole: bool) -> PyResult<String> {
        let json = py.detach(|| self.with(|ledger| self.receipt_of(ledger, whole)));
        json.map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// What whoever gathers the document must know of these parts of it, as JSON: `Group`.
    fn group(&self, py: Python<'_>) -> PyResult<String> {
        let json = py.detach(|| {
            self.with(|ledger| {
                let (children, incomplete) = ledger.counts();
                let scope = ledger.records.first().and_then(|record| scope(record, &ledger.session));
                let (inflated, missing) = (ledger.inflated, ledger.missing.as_deref());
                serde_json::to_string(&Group { children, incomplete, inflated, missing, scope })
            })
        });
        json.map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Rows from the one numbered `start` on, the document's own being 0: at most `max_rows`, and no more than
    /// `max_bytes` of text unless one alone has more; and where the next ones start, if there are any. `claims` adds
    /// the column of claim checks, `placed` all that a receipt needs.
    fn rows(
        &self,
        py: Python<'_>,
        start: usize,
        max_rows: usize,
        max_bytes: usize,
        placed: bool,
        claims: bool,
    ) -> PyResult<(Py<PyAny>, Option<usize>)> {
        let shape = rows::Shape::of(placed, claims);
        let made = py.detach(|| self.with(|ledger| rows::batch(ledger, &self.key, start, max_rows, max_bytes, shape)));
        let (batch, next) = made.map_err(|error| PyOSError::new_err(error.to_string()))?;
        Ok((pyo3_arrow::PyRecordBatch::new(batch).into_pyarrow(py)?.unbind(), next))
    }

    /// How many parts there are at all, and how many of them are COMPLETE.
    fn counts(&self) -> (u64, u64) {
        self.with(|ledger| {
            let complete = ledger.records.iter().skip(1).filter(|record| record.status == Status::Complete).count();
            (ledger.records.len().saturating_sub(1) as u64, complete as u64)
        })
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
            privacy: ledger.manner.note(&ledger.document),
            alias: ledger.manner.alias_of(&doc),
            owner: doc.ownership.as_ref().map(OwnerNote::from),
            uri: ledger.uri(),
            doc_id: doc.doc_id,
            claim: root.and_then(Record::claim),
            policy: ledger.policy.as_ref().map(DocumentPolicy::text),
            outcome: ledger.policy.as_ref().map(|_| ledger.outcome()),
            scopes: ledger.records.iter().take(end).filter_map(|record| scope(record, session)).collect(),
            parts: (1..end).filter_map(|index| part(ledger, index)).collect(),
        })
    }
}

pub(super) fn scope<'a>(record: &Record, session: &'a str) -> Option<Scope<'a>> {
    let (key, digest) = (record.key?, record.digest.as_ref()?);
    Some(Scope {
        session,
        scope: digest.scope_id,
        parent: (key.scope, key.entity),
        depth: record.depth.saturating_add(1),
        merkle_root: hex::encode(&digest.merkle_root),
        processed: digest.processed,
        succeeded: digest.succeeded,
        failed: digest.failed,
        deferred: digest.deferred,
        padding: padding(record, session),
    })
}

fn padding(record: &Record, session: &str) -> Vec<PaddingNote> {
    let note = |padding: &super::manner::Padding| PaddingNote {
        entity: padding.key.entity,
        status: padding.status.name(),
        file: (padding.status == Status::Complete).then(|| file_of(padding.key, session)),
    };
    record.padding.iter().map(note).collect()
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
        alias: ledger.manner.alias(&ledger.document, &ledger.path(index)),
        claim: record.claim(),
    })
}

/// The schema of rows; with the column of claim checks, or all columns that a receipt needs.
#[pyfunction]
#[pyo3(signature = (*, placed = false, claims = false))]
pub(crate) fn part_schema(py: Python<'_>, placed: bool, claims: bool) -> PyResult<Py<PyAny>> {
    let schema = rows::Shape::of(placed, claims).schema();
    Ok(pyo3_arrow::PySchema::new(schema).into_pyarrow(py)?.unbind())
}

/// An error that only a bug makes: a path segment of 4 GiB.
pub(super) fn outcome(ledger: Ledger) -> PyResult<DocumentOutcome> {
    DocumentOutcome::new(ledger).map_err(IntoPyErr::into_py_err)
}
