//! The opening of a session in its sink once it has its ID, and its close at the end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::Result;
use crate::claim_checks::DeferTypes;
use crate::entity_link::Place;
use crate::port::{EntitySink, NewSession, OpenSession, RecoveredSession};
use crate::shared::Shared;

/// Maximum time for the sink to finish its work. A disk that hangs must not prevent the session from ending.
const SINK_DONE: Duration = Duration::from_secs(30);

/// The sink that is opened once the session has its ID.
#[derive(Debug)]
pub(crate) struct SinkOpening {
    pub(crate) sink: Arc<dyn EntitySink>,
    pub(crate) defer_types: Arc<DeferTypes>,
    /// The connection's place among the server's.
    pub(crate) place: Arc<Place>,
    /// The part of the session that an earlier process has stored in the sink.
    pub(crate) found: Option<Box<dyn RecoveredSession>>,
}

impl SinkOpening {
    /// Open the session in the sink: a new one, or that of an earlier process.
    pub(super) async fn open(self, session: NewSession) -> Result<OpenSession> {
        match self.found {
            Some(found) => found.open(session).await,
            None => self.sink.open(session).await,
        }
    }
}

/// State of a session in its sink.
///
/// ```text
///  Absent: a handle receives entities       Closed ── the session has its ID, or has ended before ──► Open
///    ▲                                        │
///    └────────────── the sink refuses ────────┘
/// ```
#[derive(Debug)]
pub(super) enum SinkState {
    /// There is no sink, or it has refused the session.
    Absent,
    /// The sink is opened once the session has its ID.
    Closed(SinkOpening),
    /// The sink is open. The receiver fires when the sink has written the session's last line.
    Open(oneshot::Receiver<()>),
}

impl From<Option<SinkOpening>> for SinkState {
    fn from(opening: Option<SinkOpening>) -> Self {
        opening.map_or(Self::Absent, Self::Closed)
    }
}

/// Wait until the sink has written all pending lines. Return `false` where the list has no last line yet.
pub(super) async fn wait_for_sink(sink_state: SinkState, shared: &Shared) -> bool {
    let SinkState::Open(done) = sink_state else { return true };
    match timeout(SINK_DONE, done).await {
        Ok(finished) => finished.is_ok(),
        Err(_) => {
            tracing::error!(session = %shared.id(), "the sink did not finish in time: its folder is left open");
            false
        }
    }
}
