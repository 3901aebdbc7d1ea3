//! Rows of Arrow that become entities, without a step of Python for any row.
//!
//! ```text
//!  batch ─ columns ─► chunk: sliced out of Arrow's memory, hashed ─► announced together ─► on their way
//!                            (this thread, while the chunk before it is announced)             │
//!  next batch, when there is room ◄──── account ◄──── outcomes, taken together ◄───────────────┘
//! ```

mod account;
mod columns;
mod envelopes;
#[path = "arrow_buffers.rs"]
mod kept;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use penstock_io::DriverError as _;
use penstock_io::runtime::{self, WaitError};
use penstock_pipestream_net::{
    EntityDraft, EntityKey, ErrorCode, Payload, Reason, ScopeKey, SentEntity, SessionHandle,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatch;
use tokio::task::JoinHandle;

use self::account::{Account, Sent};
use self::columns::{Columns, TRANSACTION_OWNER, document_draft};
use crate::documents::Interrupts;
use crate::error::IntoPyErr;
use crate::pipestream::session::Session;

/// Rows are announced together up to this many of them, or of their octets.
const CHUNK_ROWS: usize = 256;
const CHUNK_OCTETS: u64 = 1 << 20;
/// Rows and octets that may be on their way; the next chunk waits. A row that is larger than that goes alone.
const OPEN_ROWS: usize = 32 << 10;
const OPEN_OCTETS: u64 = 64 << 20;

type Chunk = Vec<(Sent, EntityDraft, Payload)>;
type Answers = Vec<(Sent, penstock_pipestream_net::Result<SentEntity>)>;
type FailureTuple = (Option<String>, Option<String>, u64, String, String);

/// Sends rows into one session, which nobody else sends into.
#[pyclass(frozen, name = "RowSender", module = "penstock._core")]
pub(crate) struct RowSender {
    account: Arc<Account>,
    state: Mutex<Sender>,
}

/// How the rows ended.
#[derive(IntoPyObject)]
pub(crate) struct Totals {
    rows: u64,
    octets: u64,
    scopes: u64,
    failed: u64,
    /// Rows that are not COMPLETE, under a policy.
    left_out: u64,
    /// Document, path as JSON, code, the code's name and message of the first rows that failed.
    failures: Vec<FailureTuple>,
    /// The Merkle root over the root scope; none at layer 0, and before `finish`.
    merkle_root: Option<String>,
}

#[pymethods]
impl RowSender {
    /// `metadata` is that of every entity; with `scopes`, each run of rows of one document is a scope. `tolerant`: the
    /// session's policy says which rows may be left out, and only documents fail.
    #[new]
    #[pyo3(signature = (session, metadata, scopes, tolerant = false))]
    fn new(session: &Session, metadata: BTreeMap<String, String>, scopes: bool, tolerant: bool) -> PyResult<Self> {
        let account = Arc::new(Account::new(tolerant));
        let sender = Sender::new(session.handle.clone(), Arc::clone(&account), metadata, scopes);
        Ok(Self { account, state: Mutex::new(sender.map_err(IntoPyErr::into_py_err)?) })
    }

    /// Sends a batch; returns when all of it was handed over. Waits while too much is on its way.
    fn send(&self, py: Python<'_>, batch: PyRecordBatch) -> PyResult<()> {
        let batch = batch.into_inner();
        let interrupts = Interrupts::default();
        let sent = py.detach(|| self.with(|sender| sender.send(&batch, &interrupts)));
        interrupts.result()?;
        sent.map_err(Stop::into_py_err)
    }

    /// Waits until every row has ended and the digests of all scopes have matched.
    fn finish(&self, py: Python<'_>) -> PyResult<Totals> {
        let interrupts = Interrupts::default();
        let finished = py.detach(|| self.with(|sender| sender.finish(&interrupts)));
        interrupts.result()?;
        let merkle_root = finished.map_err(Stop::into_py_err)?;
        Ok(Totals { merkle_root, ..self.totals() })
    }

    /// How the rows ended, as far as it is known.
    fn totals(&self) -> Totals {
        let account::Totals { rows, octets, scopes, failed, left_out } = self.account.totals();
        let failures = self.account.failures().into_iter();
        let failures = failures
            .map(|failure| {
                let account::Failure { document, path, code, message } = failure;
                (document, path, code.code(), code.name().to_owned(), message)
            })
            .collect();
        Totals { rows, octets, scopes, failed, left_out, failures, merkle_root: None }
    }
}

impl RowSender {
    fn with<T>(&self, act: impl FnOnce(&mut Sender) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Why rows were not sent to their end.
enum Stop {
    /// A row, or a column, that cannot be sent.
    Rows(String),
    /// The session.
    Session(penstock_pipestream_net::Error),
    /// Ctrl-C; [`Interrupts`] has the error.
    Interrupted,
}

impl Stop {
    fn into_py_err(self) -> PyErr {
        match self {
            Self::Rows(message) => PyValueError::new_err(message),
            Self::Session(error) => error.into_py_err(),
            Self::Interrupted => {
                penstock_pipestream_net::Error::deadline("the rows were interrupted".into()).into_py_err()
            }
        }
    }
}

impl From<penstock_pipestream_net::Error> for Stop {
    fn from(error: penstock_pipestream_net::Error) -> Self {
        Self::Session(error)
    }
}

impl From<penstock_io::Error> for Stop {
    fn from(error: penstock_io::Error) -> Self {
        Self::Session(error.into())
    }
}

struct Sender {
    session: SessionHandle,
    account: Arc<Account>,
    metadata: BTreeMap<String, String>,
    /// The same with the transaction's owner, and how many entities still say it: a sink needs it of one that is not
    /// refused.
    owned: Option<(BTreeMap<String, String>, usize)>,
    scopes: bool,
    /// Whether there are scopes below the root, and digests (section 10.2).
    layered: bool,
    /// The document whose rows come, and the root that they are sent below.
    document: Option<(Option<String>, EntityKey)>,
    chunk: Chunk,
    chunk_octets: u64,
    /// The chunk that is being announced.
    announcing: Option<JoinHandle<Answers>>,
    collector: JoinHandle<()>,
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.collector.abort();
        kept::sweep();
    }
}

impl Sender {
    fn new(
        session: SessionHandle,
        account: Arc<Account>,
        mut metadata: BTreeMap<String, String>,
        scopes: bool,
    ) -> penstock_pipestream_net::Result<Self> {
        let all = metadata.clone();
        let owned = metadata.remove(TRANSACTION_OWNER).map(|_| (all, CHUNK_ROWS));
        let layered = session.agreement()?.layer > 0;
        let collector = runtime::spawn(collect(session.clone(), Arc::clone(&account)))?;
        let (chunk, announcing) = (Vec::new(), None);
        Ok(Self {
            session,
            account,
            metadata,
            owned,
            scopes,
            layered,
            document: None,
            chunk,
            chunk_octets: 0,
            announcing,
            collector,
        })
    }

    fn send(&mut self, batch: &RecordBatch, interrupts: &Interrupts) -> Result<(), Stop> {
        kept::sweep();
        let columns = Columns::new(batch).map_err(Stop::Rows)?;
        kept::keep(&columns);
        for row in 0..columns.rows() {
            if self.scopes {
                self.enter(&columns, row, interrupts)?;
            }
            let Some(content) = columns.content(row) else { return Err(Stop::Rows(null(&columns, row))) };
            let octets = content.len() as u64;
            let mut draft = columns.draft(row, self.common());
            draft.parent = self.document.as_ref().map(|(_, key)| *key);
            if draft.parent.is_none() {
                draft.document = columns.document(row).map_err(Stop::Rows)?;
            }
            let sent = Sent { names: Arc::clone(columns.names()), row, octets, root: false, scope: None };
            self.chunk.push((sent, draft, Payload::bytes(content)));
            self.chunk_octets = self.chunk_octets.saturating_add(octets);
            if self.chunk.len() >= CHUNK_ROWS || self.chunk_octets >= CHUNK_OCTETS {
                self.flush(interrupts)?;
            }
        }
        self.flush(interrupts)?;
        // The columns of this batch are given back by this thread, after the chunks that use them.
        self.announced(interrupts)
    }

    /// What the next entity says as all do.
    fn common(&mut self) -> &BTreeMap<String, String> {
        match &mut self.owned {
            Some((metadata, left)) if *left > 0 => {
                *left -= 1;
                metadata
            }
            Some(_) | None => &self.metadata,
        }
    }

    /// Lets the row's document be the one whose rows come.
    fn enter(&mut self, columns: &Columns, row: usize, interrupts: &Interrupts) -> Result<(), Stop> {
        let document = columns.names().document(row);
        if self.document.as_ref().is_some_and(|(open, _)| open.as_deref() == document) {
            return Ok(());
        }
        self.leave(interrupts)?;
        let sent = Sent { names: Arc::clone(columns.names()), row, octets: 0, root: true, scope: None };
        let draft = document_draft(document, columns.document(row).map_err(Stop::Rows)?, self.common());
        self.account.open(1, 0);
        let answer = wait(self.session.send(draft, Payload::empty()), interrupts)?;
        let key = answer.as_ref().map(|ticket| ticket.key).map_err(Clone::clone);
        self.account.announced(sent, answer);
        self.document = Some((document.map(str::to_owned), key?));
        Ok(())
    }

    /// No more rows of the document.
    fn leave(&mut self, interrupts: &Interrupts) -> Result<(), Stop> {
        self.flush(interrupts)?;
        self.announced(interrupts)?;
        let Some((_, key)) = self.document.take() else { return Ok(()) };
        Ok(wait(self.session.end_children(key), interrupts)??)
    }

    /// Has the chunk announced, once there is room for it and the one before it was announced.
    fn flush(&mut self, interrupts: &Interrupts) -> Result<(), Stop> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        self.announced(interrupts)?;
        let (chunk, octets) = (std::mem::take(&mut self.chunk), std::mem::take(&mut self.chunk_octets));
        let rows = OPEN_ROWS.saturating_sub(chunk.len());
        wait(self.account.room(rows, OPEN_OCTETS.saturating_sub(octets)), interrupts)?.map_err(over)?;
        self.account.open(chunk.len(), octets);
        self.announcing = Some(runtime::spawn(announce(self.session.clone(), chunk))?);
        Ok(())
    }

    /// Waits until the chunk that is on its way was announced.
    fn announced(&mut self, interrupts: &Interrupts) -> Result<(), Stop> {
        let Some(announcing) = &mut self.announcing else { return Ok(()) };
        let answers = wait(announcing, interrupts)?;
        self.announcing = None;
        for (sent, answer) in answers.unwrap_or_default() {
            self.account.announced(sent, answer);
        }
        Ok(())
    }

    /// Gives the Merkle root over the root scope.
    fn finish(&mut self, interrupts: &Interrupts) -> Result<Option<String>, Stop> {
        self.leave(interrupts)?;
        wait(self.account.room(0, 0), interrupts)?.map_err(over)?;
        wait(self.account.take_digests(&self.session), interrupts)?;
        kept::sweep();
        if !self.layered {
            return Ok(None);
        }
        let session = &self.session;
        let released = async {
            session.end_root().await?;
            session.wait_released(ScopeKey { scope: 0, scope_use: 0 }).await
        };
        let digest = wait(released, interrupts)??.digest;
        Ok(Some(penstock_io::hex::encode(&digest.merkle_root)))
    }
}

async fn announce(session: SessionHandle, chunk: Chunk) -> Answers {
    let (sent, items): (Vec<_>, Vec<_>) =
        chunk.into_iter().map(|(sent, draft, payload)| (sent, (draft, payload))).unzip();
    sent.into_iter().zip(session.send_many(items).await).collect()
}

/// Takes the outcomes as they come, until the session is over.
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

fn wait<F: Future>(future: F, interrupts: &Interrupts) -> Result<F::Output, Stop> {
    runtime::wait(future, None, &mut || interrupts.check()).map_err(|error| match error {
        WaitError::Runtime(error) => error.into(),
        WaitError::Deadline | WaitError::Interrupted => Stop::Interrupted,
    })
}

fn over(reason: Reason) -> Stop {
    Stop::Session(penstock_pipestream_net::Error::Closed(reason))
}

/// The error about a row without content, which says what to do.
fn null(columns: &Columns, row: usize) -> String {
    let name = columns.names().document(row).map_or(String::new(), |document| format!(" of the document {document}"));
    format!("a row{name} has no content (null); filter such rows, or coalesce their content to an empty one")
}
