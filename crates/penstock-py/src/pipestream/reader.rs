//! Reading a sink for Python; `penstock.pipestream.SinkReader` wraps it.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use arrow_array::RecordBatch;
use penstock_io::storage::{ObjectPrefix, StorageOptions};
use penstock_io::sync::lock;
use penstock_io::{Addresses, DriverError as _, runtime};
use penstock_pipestream_net::{ClaimRow, Error, Result};
use penstock_pipestream_sink::read::{
    BatchLimits, ClosedSession, FolderStore, Journal, JournalPage, MAX_CONTENT, ObjectReader, Piece, Plan, PlanLimits,
    Refiner, RemoteSink, Selection, Store, closed_session, closed_sessions, plan, read_batch, read_rows,
};
use penstock_pipestream_sink::{read_claims, read_claims_in};
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatch;
use tokio::task::{JoinHandle, spawn_blocking};

use super::fields::ClaimRowFields;
use super::options::ReaderOptions;
use super::rows::{Columns, record_batch};
use super::waiting::{Timeout, wait};
use crate::error::{IntoPyErr, joined};

/// The most sessions and pieces in one request.
const ITEMS: usize = 4_096;

/// The source of the rows.
#[derive(Clone)]
enum Sink {
    /// A store that this process can read.
    Local(Arc<LocalSink>),
    /// The server that has the sink.
    Remote(RemoteSink),
}

/// The place of a sink's claim checks.
enum SinkStorage {
    Folder(PathBuf),
    Objects(ObjectPrefix),
}

struct LocalSink {
    /// The place of the claim checks.
    storage: SinkStorage,
    store: Arc<dyn Store>,
    journal: Journal,
    /// Sessions that were examined.
    examined: Mutex<HashMap<String, Arc<ClosedSession>>>,
}

/// Start, end, rows and bytes of a piece.
type PieceTuple = (u64, u64, u64, u64);
/// A batch, and the start of the next one.
type Rows = (RecordBatch, Option<u64>);
/// ID, rows and bytes of a session.
type SessionTuple = (String, u64, u64);

/// A sink that is being read.
#[pyclass(frozen, module = "penstock._core")]
pub(crate) struct SinkReader {
    sink: Sink,
}

fn store(folder: &Path, storage: &StorageOptions) -> Result<Arc<dyn Store>> {
    Ok(match ObjectPrefix::at(folder, storage)? {
        Some(place) => Arc::new(ObjectReader::open(place)?),
        None => Arc::new(FolderStore::open(folder)?),
    })
}

#[pymethods]
impl SinkReader {
    #[new]
    fn new(py: Python<'_>, options: ReaderOptions) -> PyResult<Self> {
        let sink = match (&options.folder, &options.address) {
            (Some(folder), _) => {
                let store = py.detach(|| store(folder, &options.storage)).map_err(IntoPyErr::into_py_err)?;
                let journal = Journal::new(Arc::clone(&store)).map_err(IntoPyErr::into_py_err)?;
                let storage = ObjectPrefix::at(folder, &options.storage).map_err(IntoPyErr::into_py_err)?;
                let storage = storage.map_or_else(|| SinkStorage::Folder(folder.clone()), SinkStorage::Objects);
                Sink::Local(Arc::new(LocalSink { storage, store, journal, examined: Mutex::default() }))
            }
            (None, Some(address)) => Sink::Remote(connect(py, address, &options)?),
            (None, None) => return Err(Error::misuse("a folder or an address must be given".into()).into_py_err()),
        };
        Ok(Self { sink })
    }

    /// Return the closed sessions, in the order of their ends. Nothing is written.
    fn sessions(&self, py: Python<'_>) -> PyResult<Vec<SessionTuple>> {
        let sink = self.sink.clone();
        wait(py, Timeout::NEVER, background(async move { sink.sessions().await }))
    }

    /// Return the journal's name and length, and its sessions from a position on.
    fn follow(&self, py: Python<'_>, after: u64, max: usize) -> PyResult<(String, u64, Vec<SessionTuple>)> {
        let sink = self.sink.clone();
        let followed = wait(py, Timeout::NEVER, background(async move { sink.follow(after, max).await }))?;
        Ok((followed.journal, followed.length, followed.sessions.into_iter().map(session_tuple).collect()))
    }

    /// Divide a session, from a position in its list on, into at most this many pieces; the rest starts at the second
    /// result.
    #[pyo3(signature = (session, start, max_bytes, rows, pieces, documents=None, names=None))]
    #[allow(clippy::too_many_arguments)]
    fn plan(
        &self,
        py: Python<'_>,
        session: String,
        start: u64,
        max_bytes: u64,
        rows: u64,
        pieces: usize,
        documents: Option<HashSet<String>>,
        names: Option<HashSet<String>>,
    ) -> PyResult<(Vec<PieceTuple>, Option<u64>)> {
        let sink = self.sink.clone();
        let limits = PlanLimits { bytes: max_bytes, rows, pieces: pieces.clamp(1, ITEMS) };
        let selection = Selection { documents, names };
        let planned = wait(
            py,
            Timeout::NEVER,
            background(async move {
                let planned = sink.plan(&session, start, limits).await?;
                if selection.is_all() {
                    return Ok(planned);
                }
                Ok(Plan { pieces: sink.refine(&session, &planned.pieces, &selection, limits).await?, ..planned })
            }),
        )?;
        let tuples = planned.pieces.into_iter().map(|piece| (piece.start, piece.end, piece.rows, piece.bytes));
        Ok((tuples.collect(), planned.next))
    }

    /// Return the rows of a piece. Without `max_content` no content is read.
    #[pyo3(signature = (session, start, end, max_content, batch_bytes))]
    fn rows(&self, session: String, start: u64, end: u64, max_content: Option<u64>, batch_bytes: u64) -> SinkRows {
        let limits = BatchLimits {
            bytes: batch_bytes,
            content: max_content.is_some(),
            max_content: max_content.unwrap_or(0).min(MAX_CONTENT),
            ..BatchLimits::default()
        };
        let range = Range { sink: self.sink.clone(), session: session.into(), end, limits };
        SinkRows { state: Mutex::new(State { range, next: Some(start), ahead: None }) }
    }

    /// Return the claim checks of the server that has the sink, ordered by expiry.
    fn claims(&self, py: Python<'_>) -> PyResult<Vec<ClaimRowFields>> {
        let sink = self.sink.clone();
        let rows = wait(py, Timeout::NEVER, background(async move { sink.claims().await }))?;
        Ok(rows.into_iter().map(Into::into).collect())
    }

    /// Remove a session of a folder.
    fn remove(&self, py: Python<'_>, session: &str) -> PyResult<()> {
        match &self.sink {
            Sink::Local(local) => py.detach(|| local.store.remove(session)).map_err(IntoPyErr::into_py_err),
            Sink::Remote(_) => {
                Err(Error::misuse("a reader over the network cannot remove sessions".into()).into_py_err())
            }
        }
    }
}

/// The rows of a piece, batch by batch; the next batch is read while the last one is used.
#[pyclass(frozen, module = "penstock._core")]
pub(crate) struct SinkRows {
    state: Mutex<State>,
}

struct State {
    range: Range,
    /// The start of the batch after the one that is being read.
    next: Option<u64>,
    ahead: Option<JoinHandle<Result<Rows>>>,
}

#[derive(Clone)]
struct Range {
    sink: Sink,
    session: Arc<str>,
    end: u64,
    limits: BatchLimits,
}

#[pymethods]
impl SinkRows {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        loop {
            let reading = {
                let mut state = lock(&self.state);
                let Some(reading) = state.ahead.take().map_or_else(|| state.read(), |ahead| Ok(Some(ahead)))? else {
                    return Ok(None);
                };
                reading
            };
            let (batch, next) = wait(py, Timeout::NEVER, joined(reading))?;
            {
                let mut state = lock(&self.state);
                state.next = next;
                state.ahead = state.read()?;
            }
            if batch.num_rows() > 0 {
                return Ok(Some(PyRecordBatch::new(batch).into_pyarrow(py)?.unbind()));
            }
        }
    }
}

impl State {
    /// Start reading the next batch.
    fn read(&mut self) -> PyResult<Option<JoinHandle<Result<Rows>>>> {
        let Some(start) = self.next.take() else { return Ok(None) };
        let range = self.range.clone();
        runtime::spawn(async move { range.read(start).await }).map(Some).map_err(IntoPyErr::into_py_err)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if let Some(ahead) = &self.ahead {
            ahead.abort();
        }
    }
}

impl Range {
    async fn read(self, start: u64) -> Result<Rows> {
        let Self { sink, session, end, limits } = self;
        let most = limits.content.then_some(limits.max_content);
        match sink {
            Sink::Local(local) => {
                blocking(move || {
                    let mut rows = Columns::default();
                    let (content, next) = read_rows(&*local.store, &session, start, end, limits, |line, size| {
                        rows.push(&session, line, size, most)
                    })?;
                    Ok((rows.finish(content)?, next))
                })
                .await
            }
            Sink::Remote(remote) => {
                let batch = remote.batch(&session, start, end, limits).await?;
                blocking(move || {
                    let next = batch.next;
                    Ok((record_batch(&session, batch, most)?, next))
                })
                .await
            }
        }
    }
}

impl Sink {
    async fn sessions(self) -> Result<Vec<SessionTuple>> {
        match self {
            Self::Local(local) => {
                let found = blocking(move || local.closed()).await?;
                Ok(found.into_iter().map(session_tuple).collect())
            }
            Self::Remote(remote) => {
                let mut found = Vec::new();
                loop {
                    let after = found.len() as u64;
                    let JournalPage { length, sessions, .. } = remote.sessions(after, ITEMS).await?;
                    let more = !sessions.is_empty() && after + (sessions.len() as u64) < length;
                    found.extend(sessions.into_iter().map(session_tuple));
                    if !more {
                        return Ok(found);
                    }
                }
            }
        }
    }

    async fn claims(self) -> Result<Vec<ClaimRow>> {
        match self {
            Self::Local(local) => blocking(move || local.claims()).await,
            Self::Remote(remote) => remote.claims().await,
        }
    }

    async fn follow(self, after: u64, max: usize) -> Result<JournalPage> {
        match self {
            Self::Local(local) => blocking(move || local.journal.follow(after, max)).await,
            Self::Remote(remote) => remote.sessions(after, max).await,
        }
    }

    async fn plan(&self, session: &str, start: u64, limits: PlanLimits) -> Result<Plan> {
        match self {
            Self::Local(local) => {
                let (local, session) = (Arc::clone(local), session.to_owned());
                blocking(move || plan(&*local.store, &*local.examined(&session)?, start, limits)).await
            }
            Self::Remote(remote) => remote.plan(session, start, limits).await,
        }
    }

    async fn refine(
        &self,
        session: &str,
        pieces: &[Piece],
        selection: &Selection,
        limits: PlanLimits,
    ) -> Result<Vec<Piece>> {
        let lines = BatchLimits { content: false, ..BatchLimits::default() };
        let mut refiner = Refiner::new(session, selection, limits);
        for piece in pieces {
            let mut rest = Some(piece.start);
            while let Some(start) = rest {
                let batch = match self {
                    Self::Local(local) => {
                        let (local, session, end) = (Arc::clone(local), session.to_owned(), piece.end);
                        blocking(move || read_batch(&*local.store, &session, start, end, lines)).await?
                    }
                    Self::Remote(remote) => remote.batch(session, start, piece.end, lines).await?,
                };
                refiner.take(start, &batch.lines)?;
                rest = batch.next;
            }
            refiner.gap();
        }
        Ok(refiner.finish())
    }
}

impl LocalSink {
    fn claims(&self) -> Result<Vec<ClaimRow>> {
        match &self.storage {
            SinkStorage::Folder(folder) => read_claims(folder),
            SinkStorage::Objects(place) => read_claims_in(place),
        }
    }

    /// Return every closed session that may be read, ordered by the time of the last write to its list.
    fn closed(&self) -> Result<Vec<ClosedSession>> {
        let found = closed_sessions(&*self.store)?;
        let mut examined = lock(&self.examined);
        for session in &found {
            examined.insert(session.id.clone(), Arc::new(session.clone()));
        }
        Ok(found)
    }

    fn examined(&self, session: &str) -> Result<Arc<ClosedSession>> {
        let known = lock(&self.examined).get(session).map(Arc::clone);
        if let Some(found) = known.or_else(|| self.journal.session(session)) {
            return Ok(found);
        }
        let missing = || Error::misuse(format!("there is no closed session {session:?}"));
        let found = Arc::new(closed_session(&*self.store, session)?.ok_or_else(missing)?);
        lock(&self.examined).insert(session.to_owned(), Arc::clone(&found));
        Ok(found)
    }
}

fn connect(py: Python<'_>, address: &str, options: &ReaderOptions) -> PyResult<RemoteSink> {
    let timeout: Timeout = Timeout::seconds(options.timeout)?;
    let prepare = || -> Result<_> {
        let addresses = Addresses::resolve(address)?;
        let missing = || Error::misuse("read_key is missing: a server lets nobody read its sink without it".into());
        let key = options.read_key.clone().ok_or_else(missing)?;
        let name = addresses.server_name(options.server_name.as_deref()).to_owned();
        Ok((addresses, name, options.tls()?, key))
    };
    let (addresses, name, tls, key) = py.detach(prepare).map_err(IntoPyErr::into_py_err)?;
    wait(py, timeout, async move {
        let connect = |address| {
            let (tls, name, key) = (tls.clone(), name.clone(), key.clone());
            async move { RemoteSink::connect(&tls, address, &name, &key).await }
        };
        addresses.connect(connect).await
    })
}

fn session_tuple(session: ClosedSession) -> SessionTuple {
    (session.id, session.rows, session.bytes)
}

/// Run a future on the IO thread, so that it finishes there even if the caller stops waiting.
async fn background<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    joined(runtime::spawn(work)?).await
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    joined(spawn_blocking(work)).await
}
