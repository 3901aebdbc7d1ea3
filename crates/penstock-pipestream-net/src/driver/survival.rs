//! A session that goes on when its connection is lost (layer 2).
//!
//! ```text
//!             the connection is lost               a client has dialled, a server was called again
//!  attached ──────────────────────────► detached ──────────────────────────────────────────────► attached, by another
//!      │                                   └─ nobody came in time, or the peer refuses: the session ends     `Link`
//!      └─ the peer has closed it, or one of both ends does not go on: the session ends
//! ```
//!
//! At a server every connection begins with a session of its own. Where its client names one that waits, the
//! connection is handed to that one's driver ([`Returning`]).

use std::collections::HashMap;
use std::future::pending;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use penstock_pipestream::{EntityKey, ErrorCode, Reason, Role, Session, SessionId};
use quinn::{Connection, ConnectionError, RecvStream, SendStream};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio::time::{sleep, sleep_until};

use super::super::client::Dialer;
use super::super::connection;
use super::super::counters::Counters;
use super::super::journal::{Owner, ServerState, Waiting};
use super::super::outcomes::lock;
use super::super::shared::now;
use super::super::sink::SinkEvent;
use super::super::transport::{GOES_ON, loss, quic_code};
use super::Driver;
use super::control::Control;
use super::durable::Durable;
use super::streams::Streams;
use crate::Result;

/// Between two attempts to dial, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// A client's connection, and its stream 0.
pub(crate) type Dialled = (Connection, (SendStream, RecvStream));

/// A connection whose client goes on with a session that is somebody else's.
#[derive(Debug)]
pub(crate) struct Returning {
    /// The session that the connection began with.
    fresh: Session,
    control: Control,
    connection: Connection,
}

/// The sessions of a server that another connection may go on with.
#[derive(Debug, Default)]
pub(crate) struct Returns {
    live: Mutex<HashMap<SessionId, mpsc::UnboundedSender<Returning>>>,
    /// Those of an earlier process.
    waiting: Mutex<HashMap<SessionId, Waiting>>,
    /// Where they are on disk.
    pub(crate) state: Option<ServerState>,
}

/// How a session gets another connection.
#[derive(Default)]
pub(crate) enum Road {
    /// It does not.
    #[default]
    Ends,
    /// A client dials.
    Dials { dialer: Arc<Dialer>, within: Duration, dialling: Option<Dialling> },
    /// A server waits.
    Waits {
        returns: Arc<Returns>,
        within: Duration,
        calls: Option<mpsc::UnboundedReceiver<Returning>>,
        until: Option<Instant>,
    },
}

type Dialling = Pin<Box<dyn Future<Output = Result<Dialled>> + Send>>;

/// What came of waiting.
pub(super) enum Met {
    /// A client has got through.
    Dialled(Box<Dialled>),
    /// A server's client is back.
    Returned(Box<Returning>),
    /// Nobody came in time; why.
    Nobody(String),
}

impl Road {
    /// Waits for another connection. It may be given up and called again.
    pub(super) async fn next(&mut self) -> Met {
        match self {
            Self::Ends | Self::Dials { dialling: None, .. } | Self::Waits { calls: None, .. } => pending().await,
            Self::Dials { dialling: Some(dialling), .. } => match dialling.await {
                Ok(dialled) => Met::Dialled(Box::new(dialled)),
                Err(error) => Met::Nobody(error.to_string()),
            },
            Self::Waits { calls: Some(calls), until, within, .. } => {
                let late = async {
                    match until {
                        Some(until) => sleep_until((*until).into()).await,
                        None => pending().await,
                    }
                };
                tokio::select! {
                    Some(returning) = calls.recv() => Met::Returned(Box::new(returning)),
                    () = late => Met::Nobody(format!("its client did not come back within {} s", within.as_secs_f64())),
                }
            }
        }
    }

    /// The session is over: nobody goes on with it any more.
    pub(super) fn close(&mut self) {
        let Self::Waits { calls: Some(calls), .. } = self else { return };
        calls.close();
        while let Ok(returning) = calls.try_recv() {
            refuse(&returning.connection);
        }
    }

    /// The connection is lost: another one is looked for.
    fn look(&mut self) {
        match self {
            Self::Ends => {}
            Self::Dials { dialer, within, dialling } => {
                *dialling = Some(Box::pin(dial(Arc::clone(dialer), *within)));
            }
            Self::Waits { within, until, .. } => *until = Instant::now().checked_add(*within),
        }
    }

    /// There is one.
    fn found(&mut self) {
        match self {
            Self::Ends => {}
            Self::Dials { dialling, .. } => *dialling = None,
            Self::Waits { until, .. } => *until = None,
        }
    }
}

/// Tells who has come back to a session that it ended meanwhile.
fn refuse(connection: &Connection) {
    connection.close(quic_code(ErrorCode::ClaimNotFound), b"the session has just ended");
}

/// Dials until it gets through, or the time is over.
async fn dial(dialer: Arc<Dialer>, within: Duration) -> Result<Dialled> {
    let late = Instant::now().checked_add(within);
    let mut pause = PAUSE.0;
    loop {
        let error = match dialer.dial().await {
            Ok(dialled) => return Ok(dialled),
            Err(error) => error,
        };
        if late.is_some_and(|late| Instant::now() + pause >= late) {
            return Err(error);
        }
        tracing::debug!(%error, "the server is not there yet");
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

impl Driver {
    /// The connection is lost: the session waits for another one, or ends.
    pub(super) fn handle_lost(&mut self, error: &ConnectionError) {
        let (reason, by_peer) = loss(error);
        // A server that was too busy to hear in time who comes back has not said that the session is over.
        let unheard = reason.code == ErrorCode::IdleTimeout && self.session.is_returning();
        // What the peer has closed is over, and so is what this end has.
        let over = match error {
            ConnectionError::ApplicationClosed(_) => reason.code != GOES_ON && !unheard,
            ConnectionError::LocallyClosed if self.durable.is_some() => {
                self.leaving = true;
                return;
            }
            ConnectionError::LocallyClosed => true,
            ConnectionError::VersionMismatch
            | ConnectionError::TransportError(_)
            | ConnectionError::ConnectionClosed(_)
            | ConnectionError::Reset
            | ConnectionError::TimedOut
            | ConnectionError::CidsExhausted => false,
        };
        if over || !self.detach(&reason.message) {
            self.session.handle_connection_lost(now(), reason, by_peer);
        }
    }

    /// The server does not listen any more, which nobody says on the connection. Says whether the session waits.
    pub(super) fn handle_gone(&mut self, reason: Reason) -> bool {
        if self.session.is_suspended() {
            return true;
        }
        let waits = self.detach(&reason.message);
        if waits {
            self.link.connection.close(quic_code(reason.code), reason.message.as_bytes());
        } else {
            self.session.abort(now(), reason);
        }
        waits
    }

    fn detach(&mut self, why: &str) -> bool {
        if matches!(self.road, Road::Ends) {
            return false;
        }
        let unfinished = self.streams.unfinished();
        if !self.session.suspend(now(), |key| !unfinished.contains(&key)) {
            return false;
        }
        let comes_again = unfinished.len();
        tracing::info!(session = %self.link.shared.id(), why, comes_again, "the connection is lost; the session waits for another one");
        self.streams = Streams::default();
        self.sealing.forget_early();
        self.control = Control::new(None);
        for key in unfinished {
            self.layer2.void(key);
            self.batches.sink(SinkEvent::AttemptFailed { key });
        }
        // What was to be sent comes again; whoever waits for its ticket has it.
        self.outgoing.clear();
        self.answer_announced();
        self.pump.lose(&self.link.entity);
        self.road.look();
        true
    }

    /// Another connection may be there, or never come. Says whether the session is attached again.
    pub(super) fn handle_met(&mut self, met: Met) -> bool {
        match met {
            Met::Dialled(dialled) => {
                let (connection, control) = *dialled;
                self.attach(connection, Control::new(Some(control)));
                // Misuse alone, which it is not.
                self.session.reconnect(now()).is_ok()
            }
            Met::Returned(returning) => self.handle_returned(*returning),
            Met::Nobody(why) => {
                let reason = Reason { code: ErrorCode::IdleTimeout, message: format!("the connection is lost: {why}") };
                if let Some(durable) = self.durable.as_mut().filter(|_| self.link.shared.role == Role::Client) {
                    // The next process may be luckier.
                    durable.stays();
                }
                self.session.handle_connection_lost(now(), reason, false);
                false
            }
        }
    }

    fn handle_returned(&mut self, returning: Returning) -> bool {
        let Returning { fresh, control, connection } = returning;
        let is_up = !self.session.is_suspended();
        if !same_client(&self.link.connection, &connection) {
            tracing::warn!(session = %self.link.shared.id(), peer = %connection.remote_address(), "another client asks for the session");
            connection.close(quic_code(ErrorCode::ClaimNotFound), b"the session is another client's");
            return is_up;
        }
        // The old connection is gone, though nobody here has noticed.
        if is_up && !self.detach("its client is back") {
            connection.close(quic_code(ErrorCode::ClaimNotFound), b"the session has ended");
            return true;
        }
        let old = self.link.connection.clone();
        self.attach(connection, control);
        old.close(quic_code(ErrorCode::NoError), b"the session goes on over another connection");
        // What is wrong with it closes the session by itself.
        let _ = self.session.adopt(now(), fresh);
        true
    }

    fn attach(&mut self, connection: Connection, control: Control) {
        let peer = connection.remote_address();
        tracing::info!(session = %self.link.shared.id(), %peer, "the session goes on over another connection");
        Counters::add(&self.link.shared.counters.reconnects, 1);
        self.link = Arc::new(self.link.over(connection));
        self.control = control;
        self.road.found();
        self.accepting.abort_all();
        self.accepting = connection::accept(&self.link);
    }

    /// The peer of a fresh connection names a session that waits: its driver takes the connection. Gives the driver back
    /// where there is none.
    pub(super) fn hand_over_to(mut self, named: SessionId) -> Option<Self> {
        let (calls, waiting) = match &self.road {
            Road::Waits { returns, .. } => (returns.of(named), returns.take(named)),
            Road::Ends | Road::Dials { .. } => (None, None),
        };
        if let Some(waiting) = waiting {
            self.take_over(waiting);
            return Some(self);
        }
        let Some(calls) = calls else {
            self.session.refuse_return(now());
            return Some(self);
        };
        self.accepting.abort_all();
        let connection = self.link.connection.clone();
        let returning = Returning { fresh: self.session, control: self.control, connection: connection.clone() };
        if calls.send(returning).is_err() {
            refuse(&connection);
        }
        None
    }

    /// The session has its name: others may go on with it. False: at a server another session has that name, be it one that
    /// waits for its client.
    pub(super) fn register(&mut self, name: SessionId) -> bool {
        if self.link.shared.role == Role::Client {
            return true;
        }
        let waits = matches!(&self.road, Road::Waits { returns, .. } if lock(&returns.waiting).contains_key(&name));
        self.named = if waits { None } else { self.names.take(name) };
        if self.named.is_none() {
            return false;
        }
        if self.session.survives()
            && let Road::Waits { returns, calls, .. } = &mut self.road
        {
            *calls = returns.register(name);
            if let Some(state) = returns.state.as_ref().filter(|_| self.durable.is_none() && calls.is_some()) {
                let owner = Owner { session: name, certificate: certificate(&self.link.connection) };
                self.durable = Some(Durable::new(state.begin(owner)));
            }
        }
        true
    }
}

impl Returns {
    /// Sessions that are on disk, or else in memory.
    pub(crate) fn new(state: Option<ServerState>) -> Self {
        Self { live: Mutex::default(), waiting: Mutex::default(), state }
    }

    /// A session of an earlier process waits for its client.
    pub(crate) fn wait_for(&self, waiting: Waiting) {
        lock(&self.waiting).insert(waiting.owner.session, waiting);
    }

    fn take(&self, name: SessionId) -> Option<Waiting> {
        lock(&self.waiting).remove(&name)
    }

    /// Those that nobody has come back to.
    pub(crate) fn take_waiting(&self) -> Vec<Waiting> {
        std::mem::take(&mut *lock(&self.waiting)).into_values().collect()
    }

    /// From now on connections are handed to whoever has this; `None` where somebody has that name.
    fn register(&self, name: SessionId) -> Option<mpsc::UnboundedReceiver<Returning>> {
        let mut sessions = lock(&self.live);
        sessions.retain(|_, calls| !calls.is_closed());
        if sessions.contains_key(&name) {
            return None;
        }
        let (calls, called) = mpsc::unbounded_channel();
        sessions.insert(name, calls);
        Some(called)
    }

    fn of(&self, name: SessionId) -> Option<mpsc::UnboundedSender<Returning>> {
        lock(&self.live).get(&name).filter(|calls| !calls.is_closed()).cloned()
    }
}

/// Whether both connections are of a client with the same certificate, or of some without.
fn same_client(one: &Connection, other: &Connection) -> bool {
    certificate(one) == certificate(other)
}

/// The SHA-256 of the certificate that a client has shown.
pub(super) fn certificate(connection: &Connection) -> Option<[u8; 32]> {
    let chain = connection.peer_identity()?.downcast::<Vec<rustls::pki_types::CertificateDer<'static>>>().ok()?;
    chain.first().map(|certificate| Sha256::digest(certificate).into())
}

/// The keys of entities whose payload had not come whole.
pub(super) type Unfinished = std::collections::HashSet<EntityKey>;
