//! How a session gets another connection when one is lost: a client dials, a server waits.

use std::collections::HashMap;
use std::future::pending;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use penstock_io::sync::lock;
use penstock_pipestream::{ErrorCode, Session, SessionId};
use quinn::Connection;
use tokio::sync::mpsc;
use tokio::time::{sleep, sleep_until};

use crate::Result;
use crate::congestion;
use crate::dial::{DialedConnection, Dialer};
use crate::driver::control::Control;
use crate::port::{SessionJournals, Waiting};
use crate::transport::quic_code;

/// Initial and maximum pause between two attempts to dial.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// A new connection whose client resumes a session that another driver owns.
#[derive(Debug)]
pub(crate) struct ReturningClient {
    /// The session that the connection began with.
    pub(super) fresh: Session,
    pub(super) control: Control,
    pub(super) connection: Connection,
}

/// The sessions of a server that a new connection may resume.
#[derive(Debug, Default)]
pub(crate) struct ResumableSessions {
    live: Mutex<HashMap<SessionId, mpsc::UnboundedSender<ReturningClient>>>,
    /// Sessions of an earlier process.
    waiting: Mutex<HashMap<SessionId, Earlier>>,
    /// The journals for new sessions, if sessions are stored on disk.
    pub(crate) journals: Option<Arc<dyn SessionJournals>>,
}

/// A session of an earlier process.
///
/// ```text
///  Waiting ── its client returns ──► (taken)
///    └── time is over ──► Ending ── its records are gone ──► (removed)
/// ```
#[derive(Debug)]
enum Earlier {
    /// The session waits for its client.
    Waiting(Box<Waiting>),
    /// The session is being ended. No other session may take its name yet: the record of this end
    /// would remove that session's records.
    Ending,
}

/// How a session gets another connection.
#[derive(Default)]
pub(crate) enum Reconnect {
    /// The session ends with its connection.
    #[default]
    Never,
    /// A client dials the server.
    Dial { dialer: Arc<Dialer>, within: Duration, dialing: Option<DialFuture> },
    /// A server accepts a connection of the client.
    Accept {
        resumable: Arc<ResumableSessions>,
        within: Duration,
        connections: Option<mpsc::UnboundedReceiver<ReturningClient>>,
        until: Option<Instant>,
    },
}

type DialFuture = Pin<Box<dyn Future<Output = Result<DialedConnection>> + Send>>;

/// Result of reconnecting.
pub(super) enum ReconnectOutcome {
    /// A client has reached the server.
    Dialed(Box<DialedConnection>),
    /// A server's client has returned.
    Accepted(Box<ReturningClient>),
    /// No connection was established in time, with the reason.
    TimedOut(String),
}

impl Reconnect {
    /// Wait for another connection. Safe to cancel.
    pub(super) async fn next(&mut self) -> ReconnectOutcome {
        match self {
            Self::Never | Self::Dial { dialing: None, .. } | Self::Accept { connections: None, .. } => pending().await,
            Self::Dial { dialing: Some(dialing), .. } => match dialing.await {
                Ok(dialed) => ReconnectOutcome::Dialed(Box::new(dialed)),
                Err(error) => ReconnectOutcome::TimedOut(error.to_string()),
            },
            Self::Accept { connections: Some(connections), until, within, .. } => {
                let late = async {
                    match until {
                        Some(until) => sleep_until((*until).into()).await,
                        None => pending().await,
                    }
                };
                tokio::select! {
                    Some(returning) = connections.recv() => ReconnectOutcome::Accepted(Box::new(returning)),
                    () = late => ReconnectOutcome::TimedOut(format!("the client did not reconnect within {} s", within.as_secs_f64())),
                }
            }
        }
    }

    /// Accept no more connections for a session that is over.
    pub(super) fn close(&mut self) {
        let Self::Accept { connections: Some(connections), .. } = self else { return };
        connections.close();
        while let Ok(returning) = connections.try_recv() {
            refuse(&returning.connection);
        }
    }

    /// Start to reconnect, because the connection is lost.
    pub(super) fn start(&mut self) {
        match self {
            Self::Never => {}
            Self::Dial { dialer, within, dialing } => {
                *dialing = Some(Box::pin(dial(Arc::clone(dialer), *within)));
            }
            Self::Accept { within, until, .. } => *until = Instant::now().checked_add(*within),
        }
    }

    /// Finish reconnecting: there is a connection.
    pub(super) fn finish(&mut self) {
        match self {
            Self::Never => {}
            Self::Dial { dialing, .. } => *dialing = None,
            Self::Accept { until, .. } => *until = None,
        }
    }
}

/// Refuse a client that has returned to a session that has ended in the meantime.
pub(super) fn refuse(connection: &Connection) {
    congestion::close(connection, quic_code(ErrorCode::ClaimNotFound), b"the session has ended");
}

/// Dial until a connection is established, or the time is over.
async fn dial(dialer: Arc<Dialer>, within: Duration) -> Result<DialedConnection> {
    let late = Instant::now().checked_add(within);
    let mut pause = PAUSE.0;
    loop {
        let error = match dialer.dial().await {
            Ok(dialed) => return Ok(dialed),
            Err(error) => error,
        };
        if late.is_some_and(|late| Instant::now() + pause >= late) {
            return Err(error);
        }
        tracing::debug!(%error, "cannot reconnect to the server yet");
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

impl ResumableSessions {
    /// Create an empty set. Without `journals`, sessions are only in memory.
    pub(crate) fn new(journals: Option<Arc<dyn SessionJournals>>) -> Self {
        Self { live: Mutex::default(), waiting: Mutex::default(), journals }
    }

    /// Add a session of an earlier process that waits for its client.
    pub(crate) fn insert(&self, waiting: Waiting) {
        lock(&self.waiting).insert(waiting.owner.session, Earlier::Waiting(Box::new(waiting)));
    }

    /// Record that a session of an earlier process has ended and is yet to be removed.
    pub(crate) fn note_end(&self, session: SessionId) {
        lock(&self.waiting).insert(session, Earlier::Ending);
    }

    /// Remove a session of an earlier process.
    pub(crate) fn note_removed(&self, session: SessionId) {
        lock(&self.waiting).remove(&session);
    }

    /// Return whether a session of an earlier process has this name.
    pub(super) fn waits(&self, name: SessionId) -> bool {
        lock(&self.waiting).contains_key(&name)
    }

    pub(super) fn take(&self, name: SessionId) -> Option<Waiting> {
        let mut waiting = lock(&self.waiting);
        match waiting.remove(&name)? {
            Earlier::Waiting(session) => Some(*session),
            Earlier::Ending => {
                waiting.insert(name, Earlier::Ending);
                None
            }
        }
    }

    /// Take the sessions whose client has not returned. They keep their names until they are
    /// removed.
    pub(crate) fn take_waiting(&self) -> Vec<Waiting> {
        let mut waiting = lock(&self.waiting);
        let taken = waiting.values_mut().map(|session| std::mem::replace(session, Earlier::Ending));
        let waits = |session| match session {
            Earlier::Waiting(session) => Some(*session),
            Earlier::Ending => None,
        };
        taken.filter_map(waits).collect()
    }

    /// Register a session under its name. Return the receiver of its connections; `None` if another session has that
    /// name.
    pub(super) fn register(&self, name: SessionId) -> Option<mpsc::UnboundedReceiver<ReturningClient>> {
        let mut sessions = lock(&self.live);
        sessions.retain(|_, connections| !connections.is_closed());
        if sessions.contains_key(&name) {
            return None;
        }
        let (connections, receiver) = mpsc::unbounded_channel();
        sessions.insert(name, connections);
        Some(receiver)
    }

    pub(super) fn of(&self, name: SessionId) -> Option<mpsc::UnboundedSender<ReturningClient>> {
        lock(&self.live).get(&name).filter(|connections| !connections.is_closed()).cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use penstock_pipestream::{EntityHeader, EntityKey, Role, SessionConfig};

    use super::*;
    use crate::clock::now;
    use crate::journal::ServerState;
    use crate::port::{BoxFuture, NewSession, OpenSession, Owner, RecoveredSession};

    /// The part in the sink of a session that has stored nothing.
    #[derive(Debug)]
    struct Nothing;

    impl RecoveredSession for Nothing {
        fn has(&self, _key: EntityKey) -> bool {
            false
        }

        fn entities(&self) -> Vec<(EntityKey, Arc<EntityHeader>)> {
            Vec::new()
        }

        fn is_closed(&self) -> bool {
            false
        }

        fn close_list(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn open(self: Box<Self>, _session: NewSession) -> BoxFuture<'static, Result<OpenSession>> {
            Box::pin(pending())
        }
    }

    #[test]
    fn no_session_has_the_name_of_an_earlier_one_until_the_records_of_that_are_gone() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = SessionConfig::default();
        let state = ServerState::open(dir.path(), &mut config).unwrap();
        let [comes, stays, ends] = [1, 2, 3].map(|name| SessionId::new([name; 16]));
        let waiting = |session| {
            let owner = Owner { session, certificate: None };
            let journal = state.begin(owner);
            let session = Session::new(Role::Server, config.clone(), now()).unwrap();
            Waiting { session, owner, journal, found: Box::new(Nothing), end: None }
        };
        let sessions = ResumableSessions::new(None);
        sessions.insert(waiting(comes));
        sessions.insert(waiting(stays));
        sessions.note_end(ends);
        let waits = || [comes, stays, ends].map(|name| sessions.waits(name));
        assert_eq!(waits(), [true, true, true]);
        // The client of the first session returns in time.
        assert_eq!(sessions.take(comes).unwrap().owner.session, comes);
        assert!(sessions.take(comes).is_none());
        let late: Vec<SessionId> = sessions.take_waiting().iter().map(|waiting| waiting.owner.session).collect();
        assert_eq!(late, [stays]);
        // The other clients return while their sessions are being ended.
        for _ in 0..2 {
            assert!(sessions.take(stays).is_none() && sessions.take(ends).is_none());
            assert!(sessions.take_waiting().is_empty());
            assert_eq!(waits(), [false, true, true]);
        }
        [stays, ends].into_iter().for_each(|name| sessions.note_removed(name));
        assert_eq!(waits(), [false, false, false]);
    }
}
