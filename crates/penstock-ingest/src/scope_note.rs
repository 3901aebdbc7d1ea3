//! The digest of a scope, as receipts and rows of parts contain it.

use penstock_io::hex;
use penstock_pipestream_net::Status;
use serde::Serialize;

use crate::privacy::Padding;
use crate::record::{Record, file_of};

/// A scope's digest in the form of a receipt.
#[derive(Serialize)]
pub(crate) struct ScopeNote<'a> {
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

/// A padding entity in a scope.
#[derive(Serialize)]
struct PaddingNote {
    entity: u32,
    status: &'static str,
    file: Option<String>,
}
impl<'a> ScopeNote<'a> {
    /// Return the note about the scope of a container's children; `None` if it was not released.
    pub(crate) fn new(record: &Record, session: &'a str) -> Option<Self> {
        let (key, digest) = (record.key?, record.digest.as_ref()?);
        Some(Self {
            session,
            scope: digest.scope_id,
            parent: (key.scope, key.entity),
            depth: record.depth.saturating_add(1),
            merkle_root: hex::encode(digest.merkle_root),
            processed: digest.processed,
            succeeded: digest.succeeded,
            failed: digest.failed,
            deferred: digest.deferred,
            padding: padding(record, session),
        })
    }
}

fn padding(record: &Record, session: &str) -> Vec<PaddingNote> {
    let note = |padding: &Padding| PaddingNote {
        entity: padding.key.entity,
        status: padding.status.name(),
        file: (padding.status == Status::Complete).then(|| file_of(padding.key, session)),
    };
    record.padding.iter().map(note).collect()
}
