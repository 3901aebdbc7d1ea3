//! The place in a sink that a session opens once it has its ID, and closes at its end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::Result;
use crate::claim_checks::DeferTypes;
use crate::port::{EntitySink, NewSession, OpenSession, RecoveredSession};
use crate::shared::Shared;

/// Maximum time for the sink to finish its work. A disk that hangs must not prevent the session from ending.
const SINK_DONE: Duration = Duration::from_secs(30);

/// The sink that is opened once the session has its ID.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) sink: Arc<dyn EntitySink>,
    pub(crate) defer_types: Arc<DeferTypes>,
    /// The session's part in the sink that an earlier process has stored.
    pub(crate) found: Option<Box<dyn RecoveredSession>>,
}

impl Opening {
    /// Open the session's place: a new one, or that of an earlier process.
    pub(super) async fn open(self, session: NewSession) -> Result<OpenSession> {
        match self.found {
            Some(found) => found.open(session).await,
            None => self.sink.open(session).await,
        }
    }
}

/// Wait until the sink has finished its work. Return false if the list has no last line yet.
pub(super) async fn wait_for_sink(done: Option<oneshot::Receiver<()>>, shared: &Shared) -> bool {
    let Some(done) = done else { return true };
    match timeout(SINK_DONE, done).await {
        Ok(finished) => finished.is_ok(),
        Err(_) => {
            tracing::error!(session = %shared.id(), "the sink has not finished; its folder stays open");
            false
        }
    }
}
