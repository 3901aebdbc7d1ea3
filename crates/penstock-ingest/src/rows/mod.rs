//! The conversion of Arrow rows into entities, without a call for each row.
//!
//! ```text
//!  batch ─ columns ─► chunk: sliced out of Arrow's memory, hashed ─► announced together ─► on their way
//!                            (this thread, while the chunk before it is announced)             │
//!  next batch, when there is room ◄──── account ◄──── outcomes, taken together ◄───────────────┘
//! ```

mod account;
mod arrow_buffers;
mod columns;
mod envelopes;
mod strings;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use arrow_array::RecordBatch;
use penstock_io::hex;
use penstock_io::runtime::{self, WaitError};
use penstock_io::sync::lock;
use penstock_pipestream_net::{
    EntityDraft, EntityKey, ErrorCode, Payload, Reason, ScopeKey, SentEntity, SessionHandle,
};
use tokio::task::JoinHandle;

use self::account::{Account, OpenRow};
pub use self::account::{RowFailure, RowTotals};
use self::columns::{EntityColumns, TRANSACTION_OWNER, document_draft};
use crate::interrupts::Interrupts;
use crate::{Error, Result, Value};

/// Maximum numbers of rows and bytes that are announced together.
const CHUNK_ROWS: usize = 256;
const CHUNK_BYTES: u64 = 1 << 20;
/// Maximum numbers of rows and bytes in flight; the next chunk waits. A larger row is sent alone.
const OPEN_ROWS: usize = 32 << 10;
const OPEN_BYTES: u64 = 64 << 20;

type Chunk = Vec<(OpenRow, EntityDraft, Payload)>;
type AnnounceResults = Vec<(OpenRow, penstock_pipestream_net::Result<SentEntity>)>;

/// Options for sending rows.
#[derive(Debug, Clone, Default)]
pub struct RowOptions {
    /// The metadata in every entity's header.
    pub metadata: BTreeMap<String, String>,
    /// Make a scope for each run of rows of one document.
    pub scopes: bool,
    /// Let the session's policy decide which rows may be skipped, so that only documents fail.
    pub tolerant: bool,
}

/// A sender of rows into one session, which must not be used for anything else.
pub struct RowSender {
    account: Arc<Account>,
    state: Mutex<Sender>,
}

impl RowSender {
    /// Create a sender of rows, and begin to receive the session's outcomes.
    ///
    /// # Errors
    ///
    /// Errors of the session, if the ends have not agreed yet or the session has ended.
    pub fn new(session: SessionHandle, options: RowOptions) -> Result<Self> {
        let account = Arc::new(Account::new(options.tolerant));
        let sender = Sender::new(session, Arc::clone(&account), options)?;
        Ok(Self { account, state: Mutex::new(sender) })
    }

    /// Send a batch, and return when all its rows were handed over. Block while too many rows are
    /// in flight.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] for a row or a column that cannot be sent; errors of the session;
    /// [`Error::Interrupted`].
    pub fn send(&self, batch: &RecordBatch, interrupts: &dyn Interrupts) -> Result<()> {
        self.with(|sender| sender.send(batch, interrupts))
    }

    /// Wait until every row has ended and the digests of all scopes have matched. Return the Merkle root over the root
    /// scope, in hex; `None` at layer 0.
    ///
    /// # Errors
    ///
    /// Errors of the session, and [`Error::Interrupted`].
    pub fn finish(&self, interrupts: &dyn Interrupts) -> Result<Option<String>> {
        self.with(|sender| sender.finish(interrupts))
    }

    /// Return the totals of the outcomes that are known so far.
    pub fn totals(&self) -> RowTotals {
        self.account.totals()
    }

    /// Return the first rows that failed.
    pub fn failures(&self) -> Vec<RowFailure> {
        self.account.failures()
    }

    fn with<T>(&self, act: impl FnOnce(&mut Sender) -> T) -> T {
        act(&mut lock(&self.state))
    }
}

impl fmt::Debug for RowSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowSender").field("totals", &self.totals()).finish_non_exhaustive()
    }
}

struct Sender {
    session: SessionHandle,
    account: Arc<Account>,
    metadata: BTreeMap<String, String>,
    /// The metadata with the transaction's owner, and the number of further entities that must
    /// carry it: a sink needs it in an entity that is not refused.
    owner_metadata: Option<(BTreeMap<String, String>, usize)>,
    scopes: bool,
    /// Whether there are scopes below the root, and digests (section 10.2).
    layered: bool,
    /// The document of the current rows, and the root below which they are sent.
    document: Option<(Option<String>, EntityKey)>,
    chunk: Chunk,
    chunk_bytes: u64,
    /// The chunk that is being announced.
    announcing: Option<JoinHandle<AnnounceResults>>,
    collector: JoinHandle<()>,
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.collector.abort();
        arrow_buffers::release_unused();
    }
}

impl Sender {
    fn new(session: SessionHandle, account: Arc<Account>, options: RowOptions) -> Result<Self> {
        let RowOptions { mut metadata, scopes, tolerant: _ } = options;
        let all = metadata.clone();
        let owner_metadata = metadata.remove(TRANSACTION_OWNER).map(|_| (all, CHUNK_ROWS));
        let layered = session.agreement()?.layer > 0;
        let collector = runtime::spawn(collect(session.clone(), Arc::clone(&account)))?;
        let (chunk, announcing) = (Vec::new(), None);
        Ok(Self {
            session,
            account,
            metadata,
            owner_metadata,
            scopes,
            layered,
            document: None,
            chunk,
            chunk_bytes: 0,
            announcing,
            collector,
        })
    }

    fn send(&mut self, batch: &RecordBatch, interrupts: &dyn Interrupts) -> Result<()> {
        arrow_buffers::release_unused();
        let columns = EntityColumns::new(batch)?;
        arrow_buffers::hold(&columns);
        for row in 0..columns.rows() {
            if self.scopes {
                self.enter(&columns, row, interrupts)?;
            }
            let Some(content) = columns.content(row) else { return Err(null_content(&columns, row)) };
            let bytes = content.len() as u64;
            let mut draft = columns.draft(row, self.common());
            draft.parent = self.document.as_ref().map(|(_, key)| *key);
            if draft.parent.is_none() {
                draft.document = columns.document(row)?;
            }
            let open = OpenRow { names: Arc::clone(columns.names()), row, bytes, root: false, scope: None };
            self.chunk.push((open, draft, Payload::bytes(content)));
            self.chunk_bytes = self.chunk_bytes.saturating_add(bytes);
            if self.chunk.len() >= CHUNK_ROWS || self.chunk_bytes >= CHUNK_BYTES {
                self.flush(interrupts)?;
            }
        }
        self.flush(interrupts)?;
        // Wait for the chunks that use the batch's columns, so that this thread releases the
        // columns.
        self.finish_announcing(interrupts)
    }

    /// Return the metadata that the next entity shares with the others.
    fn common(&mut self) -> &BTreeMap<String, String> {
        match &mut self.owner_metadata {
            Some((metadata, remaining)) if *remaining > 0 => {
                *remaining -= 1;
                metadata
            }
            Some(_) | None => &self.metadata,
        }
    }

    /// Begin the row's document, unless it is the current one.
    fn enter(&mut self, columns: &EntityColumns, row: usize, interrupts: &dyn Interrupts) -> Result<()> {
        let document = columns.names().document(row);
        if self.document.as_ref().is_some_and(|(open, _)| open.as_deref() == document) {
            return Ok(());
        }
        self.leave(interrupts)?;
        let open = OpenRow { names: Arc::clone(columns.names()), row, bytes: 0, root: true, scope: None };
        let draft = document_draft(document, columns.document(row)?, self.common());
        self.account.open(1, 0);
        let result = wait(self.session.send(draft, Payload::empty()), interrupts)?;
        let key = result.as_ref().map(|ticket| ticket.key).map_err(Clone::clone);
        self.account.record_announcement(open, result);
        self.document = Some((document.map(str::to_owned), key?));
        Ok(())
    }

    /// End the current document.
    fn leave(&mut self, interrupts: &dyn Interrupts) -> Result<()> {
        self.flush(interrupts)?;
        self.finish_announcing(interrupts)?;
        let Some((_, key)) = self.document.take() else { return Ok(()) };
        Ok(wait(self.session.end_children(key), interrupts)??)
    }

    /// Announce the chunk, once there is room for it and the previous one was announced.
    fn flush(&mut self, interrupts: &dyn Interrupts) -> Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        self.finish_announcing(interrupts)?;
        let (chunk, bytes) = (std::mem::take(&mut self.chunk), std::mem::take(&mut self.chunk_bytes));
        let rows = OPEN_ROWS.saturating_sub(chunk.len());
        wait(self.account.wait_below(rows, OPEN_BYTES.saturating_sub(bytes)), interrupts)?.map_err(closed)?;
        self.account.open(chunk.len(), bytes);
        self.announcing = Some(runtime::spawn(announce(self.session.clone(), chunk))?);
        Ok(())
    }

    /// Wait until the chunk in flight was announced.
    fn finish_announcing(&mut self, interrupts: &dyn Interrupts) -> Result<()> {
        let Some(announcing) = &mut self.announcing else { return Ok(()) };
        let results = wait(announcing, interrupts)?;
        self.announcing = None;
        for (open, result) in results.unwrap_or_default() {
            self.account.record_announcement(open, result);
        }
        Ok(())
    }

    /// Return the Merkle root over the root scope.
    fn finish(&mut self, interrupts: &dyn Interrupts) -> Result<Option<String>> {
        self.leave(interrupts)?;
        wait(self.account.wait_below(0, 0), interrupts)?.map_err(closed)?;
        wait(self.account.take_digests(&self.session), interrupts)?;
        arrow_buffers::release_unused();
        if !self.layered {
            return Ok(None);
        }
        let session = &self.session;
        let released = async {
            session.end_root().await?;
            session.wait_released(ScopeKey { scope: 0, scope_use: 0 }).await
        };
        let digest = wait(released, interrupts)??.digest;
        Ok(Some(hex::encode(digest.merkle_root)))
    }
}

async fn announce(session: SessionHandle, chunk: Chunk) -> AnnounceResults {
    let (rows, items): (Vec<_>, Vec<_>) =
        chunk.into_iter().map(|(open, draft, payload)| (open, (draft, payload))).unzip();
    rows.into_iter().zip(session.send_many(items).await).collect()
}

/// Receive outcomes until the session has ended.
async fn collect(session: SessionHandle, account: Arc<Account>) {
    loop {
        let outcomes = session.resolutions(CHUNK_ROWS).await.unwrap_or_default();
        if outcomes.is_empty() {
            break;
        }
        account.settle(outcomes);
        account.take_digests(&session).await;
    }
    let ending = || Reason { code: ErrorCode::InternalError, message: "the session is ending".to_owned() };
    account.close(session.is_closed().ok().flatten().unwrap_or_else(ending));
}

fn wait<F: Future>(future: F, interrupts: &dyn Interrupts) -> Result<F::Output> {
    runtime::wait(future, None, &mut || interrupts.check()).map_err(|error| match error {
        WaitError::Runtime(error) => error.into(),
        WaitError::Deadline | WaitError::Interrupted => Error::Interrupted("the rows were interrupted"),
    })
}

fn closed(reason: Reason) -> Error {
    Error::Session(penstock_pipestream_net::Error::Closed(reason))
}

/// Return the error for a row without content.
fn null_content(columns: &EntityColumns, row: usize) -> Error {
    Value::NullContent { document: columns.names().document(row).map(str::to_owned) }.into()
}
