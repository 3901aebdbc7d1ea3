//! A reader of a sink, directly from its store or through its server.

use std::sync::{Arc, Mutex};

use penstock_io::sync::lock;
use penstock_pipestream_net::ClaimRow;

use crate::place::SinkPlace;
use crate::read::batch::{Batch, BatchLimits, read_batch};
use crate::read::client::RemoteSink;
use crate::read::journal::{Journal, JournalPage};
use crate::read::piece_reader::{PieceReader, RowRange, RowSource};
use crate::read::plan::{Piece, Plan, PlanLimits, Refiner, Selection, plan};
use crate::read::session::ClosedSession;
use crate::read::session_cache::{MAX_BYTES, SessionCache};
use crate::read::store::{MAX_CONTENT, Store};
use crate::read::tasks::{background, blocking};
use crate::read::transactions::{closed_session, closed_sessions};
use crate::read::wire::MAX_ITEMS;
use crate::{Misuse, Result};

/// A reader of a sink. Clones share the journal and examined sessions.
///
/// Requests run on the IO thread and its pool, and finish there even if the caller stops waiting.
#[derive(Debug, Clone)]
pub struct SinkReader(Sink);

#[derive(Debug, Clone)]
enum Sink {
    /// A store that this process can read.
    Local(Arc<LocalSink>),
    /// The sink's server.
    Remote(RemoteSink),
}

#[derive(Debug)]
struct LocalSink {
    place: SinkPlace,
    store: Arc<dyn Store>,
    journal: Journal,
    examined: Mutex<SessionCache>,
}

impl From<RemoteSink> for SinkReader {
    fn from(server: RemoteSink) -> Self {
        Self(Sink::Remote(server))
    }
}

impl SinkReader {
    /// Open a sink in its store. Blocks.
    ///
    /// # Errors
    ///
    /// The errors of [`SinkPlace::store`].
    pub fn open(place: SinkPlace) -> Result<Self> {
        Ok(Self(Sink::Local(Arc::new(LocalSink::open(place, MAX_BYTES)?))))
    }

    /// Return every closed session, in the order in which they ended. A sink in its store is only
    /// read, never written.
    pub async fn sessions(&self) -> Result<Vec<ClosedSession>> {
        match &self.0 {
            Sink::Local(local) => {
                let local = Arc::clone(local);
                background(blocking(move || local.sessions())).await
            }
            Sink::Remote(server) => {
                let server = server.clone();
                background(all_sessions(async move |after| server.sessions(after, MAX_ITEMS).await)).await
            }
        }
    }

    /// Return the journal's ID and length, and at most `max` of its sessions from a position on.
    pub async fn follow(&self, after: u64, max: usize) -> Result<JournalPage> {
        match &self.0 {
            Sink::Local(local) => {
                let local = Arc::clone(local);
                background(blocking(move || local.journal.follow(after, max))).await
            }
            Sink::Remote(server) => {
                let server = server.clone();
                background(async move { server.sessions(after, max).await }).await
            }
        }
    }

    /// Divide a session, from a position in its list on, into pieces of the selected rows. A plan has at most 4,096
    /// pieces before the selection narrows them.
    pub async fn plan(&self, session: &str, start: u64, limits: PlanLimits, selection: Selection) -> Result<Plan> {
        let limits = PlanLimits { pieces: limits.pieces.clamp(1, MAX_ITEMS), ..limits };
        let (sink, session) = (self.0.clone(), session.to_owned());
        background(async move {
            let plan = sink.plan(&session, start, limits).await?;
            if selection.is_all() {
                return Ok(plan);
            }
            Ok(Plan { pieces: sink.select(&session, &plan.pieces, &selection, limits).await?, ..plan })
        })
        .await
    }

    /// Return a reader of the rows in a range of a session's list, with batches of about
    /// `batch_bytes` bytes. It leaves out payloads larger than `max_content` bytes; without
    /// `max_content` it reads no payload.
    pub fn rows(&self, session: &str, start: u64, end: u64, max_content: Option<u64>, batch_bytes: u64) -> PieceReader {
        let limits = BatchLimits {
            bytes: batch_bytes,
            content: max_content.is_some(),
            max_content: max_content.unwrap_or(0).min(MAX_CONTENT),
            ..BatchLimits::default()
        };
        let source = match &self.0 {
            Sink::Local(local) => RowSource::Store(Arc::clone(&local.store)),
            Sink::Remote(server) => RowSource::Server(server.clone()),
        };
        PieceReader::new(RowRange { source, session: session.into(), end, limits }, start)
    }

    /// Return all claim checks of the sink's server, ordered by expiry.
    pub async fn claims(&self) -> Result<Vec<ClaimRow>> {
        match &self.0 {
            Sink::Local(local) => {
                let local = Arc::clone(local);
                background(blocking(move || local.place.claims())).await
            }
            Sink::Remote(server) => {
                let server = server.clone();
                background(async move { server.claims().await }).await
            }
        }
    }

    /// Remove a session. Blocks.
    ///
    /// # Errors
    ///
    /// Misuse if the sink is read through its server.
    pub fn remove(&self, session: &str) -> Result<()> {
        match &self.0 {
            Sink::Local(local) => local.store.remove(session),
            Sink::Remote(_) => Err(Misuse::RemoteRemoval.into()),
        }
    }
}

/// Read a journal page by page, and return all its sessions.
async fn all_sessions(page: impl AsyncFn(u64) -> Result<JournalPage>) -> Result<Vec<ClosedSession>> {
    let mut found = Vec::new();
    loop {
        let after = found.len() as u64;
        let JournalPage { length, sessions, .. } = page(after).await?;
        let more = !sessions.is_empty() && after + (sessions.len() as u64) < length;
        found.extend(sessions);
        if !more {
            return Ok(found);
        }
    }
}

impl Sink {
    async fn plan(&self, session: &str, start: u64, limits: PlanLimits) -> Result<Plan> {
        match self {
            Self::Local(local) => {
                let (local, session) = (Arc::clone(local), session.to_owned());
                blocking(move || plan(&*local.store, &*local.closed_session(&session)?, start, limits)).await
            }
            Self::Remote(server) => server.plan(session, start, limits).await,
        }
    }

    /// Narrow pieces down to the selected rows.
    async fn select(
        &self,
        session: &str,
        pieces: &[Piece],
        selection: &Selection,
        limits: PlanLimits,
    ) -> Result<Vec<Piece>> {
        let mut refiner = Refiner::new(session, selection, limits);
        for piece in pieces {
            let mut rest = Some(piece.start);
            while let Some(start) = rest {
                let batch = self.lines(session, start, piece.end).await?;
                refiner.take(start, &batch.lines)?;
                rest = batch.next;
            }
            refiner.gap();
        }
        Ok(refiner.finish())
    }

    /// Return a batch of lines, without content.
    async fn lines(&self, session: &str, start: u64, end: u64) -> Result<Batch> {
        let limits = BatchLimits { content: false, ..BatchLimits::default() };
        match self {
            Self::Local(local) => {
                let (local, session) = (Arc::clone(local), session.to_owned());
                blocking(move || read_batch(&*local.store, &session, start, end, limits)).await
            }
            Self::Remote(server) => server.batch(session, start, end, limits).await,
        }
    }
}

impl LocalSink {
    fn open(place: SinkPlace, max_bytes: usize) -> Result<Self> {
        let store = place.store()?;
        let journal = Journal::new(Arc::clone(&store))?;
        Ok(Self { place, store, journal, examined: Mutex::new(SessionCache::new(max_bytes)) })
    }

    fn sessions(&self) -> Result<Vec<ClosedSession>> {
        let found = closed_sessions(&*self.store)?;
        lock(&self.examined).fill(&found);
        Ok(found)
    }

    /// Return a closed session; an error if it may not be read.
    fn closed_session(&self, session: &str) -> Result<Arc<ClosedSession>> {
        let known = lock(&self.examined).get(session);
        if let Some(found) = known.or_else(|| self.journal.session(session)) {
            return Ok(found);
        }
        let missing = || Misuse::NoClosedSession { session: session.to_owned() };
        let found = Arc::new(closed_session(&*self.store, session)?.ok_or_else(missing)?);
        lock(&self.examined).insert(Arc::clone(&found));
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use penstock_io::runtime::block_on;

    use super::*;
    use crate::Error;

    fn session(number: usize) -> ClosedSession {
        ClosedSession { id: format!("s{number}"), rows: 0, bytes: 0, superseded: Vec::new() }
    }

    #[test]
    fn all_sessions_of_a_journal_are_read_page_by_page() {
        for (length, expected) in [(0, 1), (3, 1), (4, 2), (9, 3)] {
            let pages = Mutex::new(0);
            let page = async |after: u64| {
                *lock(&pages) += 1;
                let sessions = (0..length).skip(after as usize).take(3).map(session).collect();
                Ok(JournalPage { journal: "j".into(), length: length as u64, sessions })
            };
            let found = block_on(all_sessions(page)).unwrap().unwrap();
            assert_eq!(found, (0..length).map(session).collect::<Vec<_>>());
            assert_eq!(*lock(&pages), expected, "{length}");
        }
        // A server that promises more and sends nothing does not keep the client in a loop.
        let empty = async |_| Ok(JournalPage { journal: "j".into(), length: 5, sessions: Vec::new() });
        assert_eq!(block_on(all_sessions(empty)).unwrap().unwrap(), []);
    }

    #[test]
    fn sessions_that_the_cache_has_no_room_for_are_examined_again() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("entities.jsonl"), "{\"closed\":0}\n").unwrap();
        }
        fs::create_dir(dir.path().join("open")).unwrap();
        fs::write(dir.path().join("open/entities.jsonl"), "").unwrap();
        let sink = LocalSink::open(SinkPlace::Folder(dir.path().to_owned()), 1).unwrap();
        let kept = || ["a", "b", "c"].map(|name| lock(&sink.examined).get(name).is_some());
        assert_eq!((sink.sessions().unwrap().len(), kept()), (3, [false; 3]));
        for (name, expected) in [("a", [true, false, false]), ("c", [false, false, true])] {
            assert_eq!((sink.closed_session(name).unwrap().id.as_str(), kept()), (name, expected));
        }
        for missing in ["open", "d"] {
            let error = sink.closed_session(missing).unwrap_err();
            assert!(
                matches!(&error, Error::Misuse(Misuse::NoClosedSession { session }) if session == missing),
                "{error:?}"
            );
        }
    }
}
