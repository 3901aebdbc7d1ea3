//! What the driver, the stream tasks and the handles of one session have in common.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use penstock_io::tls;
use penstock_pipestream::header_key::HeaderKeys;
use penstock_pipestream::messages::CompletionPolicy;
use penstock_pipestream::yield_token::TokenKey;
use penstock_pipestream::{
    Agreement, EntityKey, Event, Layer2Config, Layer2Event, Now, Reason, Role, ScopeDigest, ScopeKey, SessionConfig,
    SessionId, Status, Ticket,
};
use tokio::sync::{Mutex, Notify, OwnedSemaphorePermit, Semaphore, watch};

use super::command::{Attempt, Commands};
use super::consumer::Inlet;
use super::counters::{Counters, Gauges};
use super::events::EventLog;
use super::incoming::{EntityLink, Spool, Untaken};
use super::outcomes::{EventQueue, Outcomes};
use super::outgoing::CREDIT;
use super::resolutions::Resolutions;
use super::transport::{HANDSHAKE_TIMEOUT, Intake};
use crate::Result;

/// What one may set for a session, beyond what the core has.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// Capabilities and limits. Where they offer layer 2 and say nothing else of it, the session's name and the key of its
    /// yield tokens are made from the secure random source.
    pub session: SessionConfig,
    /// The policy of each of our root entities that has children and none of its own; a client's is also that of the root
    /// scopes, if the server knows of such policies. It needs layer 2, so a peer that does not agree on it is refused.
    /// Default: none.
    pub policy: Option<CompletionPolicy>,
    /// How long a session of layer 2 goes on without a connection, where both ends do: a client dials, a server waits.
    /// Default: it ends with its connection. It is kept in memory, a client's payloads too until they are terminal.
    pub survives: Option<Duration>,
    /// A folder for one session of a client that survives its process: it goes on with an unfinished session in there, else
    /// a new one begins there. Needs `survives`. A server has [`ServerOptions::state`](super::ServerOptions::state).
    /// Default: in memory.
    pub state: Option<PathBuf>,
    /// How long the handshake may take, and after it the control stream and the capabilities together. Default: 10 s.
    pub handshake_timeout: Duration,
    /// The connection is given up after so long without a packet. Default: 30 s.
    pub idle_timeout: Duration,
    /// A session in which nothing is open ends after so long without a frame or a command. Default: never; a server's
    /// after 15 minutes ([`ServerOptions::new`](super::ServerOptions::new)).
    pub quiet_timeout: Option<Duration>,
    /// The largest UDP payload that is tried on the path to the peer, in bytes, from 1,200 to 9,000; what the path does
    /// not carry is found out and not used. Default: 6,500 where the peer is on a loopback address, 1,452 elsewhere.
    pub mtu: Option<u16>,
    /// How many events are kept for [`SessionHandle::events`](super::SessionHandle::events). Default: 4,096.
    pub event_queue: usize,
    /// Where events are logged.
    pub events: Option<EventLog>,
    /// A client's: the session's name at layer 2 (decision 18). Default: a random one.
    pub name: Option<SessionId>,
    /// What the metadata and content types of headers are sealed with, in both directions (section 10.6); the peer must
    /// have the same. Default: they are not.
    pub header_keys: Option<HeaderKeys>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            session: SessionConfig::default(),
            policy: None,
            survives: None,
            state: None,
            handshake_timeout: HANDSHAKE_TIMEOUT,
            idle_timeout: Duration::from_secs(30),
            quiet_timeout: None,
            mtu: None,
            event_queue: 4_096,
            events: None,
            name: None,
            header_keys: None,
        }
    }
}

impl SessionOptions {
    /// Fills in what layer 2 needs where it is offered.
    pub(crate) fn prepare(&mut self, role: Role) -> Result<()> {
        let config = &mut self.session;
        if config.capabilities.layer2 && config.layer2.is_none() {
            config.layer2 = Some(Layer2Config::new(None, TokenKey::new(tls::random()?)));
        }
        if let Some(layer2) = config.layer2.as_mut().filter(|layer2| role == Role::Client && layer2.session.is_none()) {
            let random = || tls::random().map(SessionId::new);
            layer2.session = Some(self.name.map_or_else(random, Ok)?);
        }
        if let Some(layer2) = &mut config.layer2 {
            layer2.survives |= self.survives.is_some();
            layer2.policy = self.policy.filter(|_| role == Role::Client);
        }
        Ok(config.check()?)
    }
}

/// How an entity of ours ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// Its terminal status.
    pub status: Status,
    /// Why, where it is not COMPLETE and somebody said why.
    pub reason: Option<Reason>,
    /// How many attempts there were; more than one only where its parent's policy has retries.
    pub attempts: u32,
    /// The claim check under which the receiver has set it aside, where it is DEFERRED.
    pub claim: Option<u64>,
}

impl Resolution {
    /// COMPLETE at the first attempt.
    pub(crate) const COMPLETE: Self = Self { status: Status::Complete, reason: None, attempts: 1, claim: None };
}

/// A scope of ours that the peer released: all in it is terminal, and both ends have the same digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Released {
    /// The scope.
    pub scope: ScopeKey,
    /// Its parent; `None` for the root scope.
    pub parent: Option<EntityKey>,
    /// Its depth.
    pub depth: u8,
    /// Its digest.
    pub digest: ScopeDigest,
}

/// Where a session is, for those who wait for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    Negotiating,
    Open(Agreement),
    /// It is over, and what it leaves behind is being written.
    Ending(Reason),
    Closed(Reason),
}

/// What everybody may read.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The connection's name, which is the session's below layer 2.
    connection: Arc<str>,
    /// The session's name at layer 2, once it is known.
    name: OnceLock<(SessionId, Arc<str>)>,
    pub(crate) role: Role,
    pub(crate) peer: SocketAddr,
    /// An earlier process began the session.
    pub(crate) resumed: bool,
    /// And has ended our root scope.
    pub(crate) root_ended: bool,
    pub(crate) phase: watch::Sender<Phase>,
    pub(crate) resolutions: Resolutions,
    pub(crate) releases: Outcomes<ScopeKey, Released>,
    pub(crate) events: EventQueue<Event>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) gauges: Gauges,
}

impl Shared {
    pub(crate) fn new(
        connection: Arc<str>,
        role: Role,
        peer: SocketAddr,
        event_queue: usize,
        counters: Arc<Counters>,
        (resumed, root_ended): (bool, bool),
    ) -> Arc<Self> {
        Arc::new(Self {
            connection,
            name: OnceLock::new(),
            role,
            peer,
            resumed,
            root_ended,
            phase: watch::Sender::new(Phase::Negotiating),
            resolutions: Resolutions::default(),
            releases: Outcomes::new(),
            events: EventQueue::new(event_queue, |event| match event {
                Event::Layer2(Layer2Event::Yielded { token, .. }) => token.len(),
                Event::Layer2(_)
                | Event::Agreed(_)
                | Event::Status { .. }
                | Event::Admitted { .. }
                | Event::Gathered { .. }
                | Event::Resolved { .. }
                | Event::Released { .. }
                | Event::Digest { .. }
                | Event::Barrier { .. }
                | Event::Checkpoint { .. }
                | Event::Capacity
                | Event::Error { .. }
                | Event::Closed { .. } => 0,
            }),
            counters,
            gauges: Gauges::default(),
        })
    }

    /// The session's ID (decision 18).
    pub(crate) fn id(&self) -> &Arc<str> {
        self.name.get().map_or(&self.connection, |(_, text)| text)
    }

    /// Both ends have agreed on layer 2, and the session is named. Nothing was called by its ID before.
    pub(crate) fn set_name(&self, name: SessionId) {
        // The first name stands; the session refuses another.
        let _ = self.name.set((name, name.to_string().into()));
    }

    /// The session's name at layer 2.
    pub(crate) fn layer2(&self) -> Option<SessionId> {
        self.name.get().map(|(name, _)| *name)
    }

    /// The session is over: known before any entity that its end has failed, so that whoever sees such an entity can
    /// see why.
    pub(crate) fn end(&self, reason: &Reason) {
        self.phase.send_if_modified(|phase| match phase {
            Phase::Ending(_) | Phase::Closed(_) => false,
            Phase::Negotiating | Phase::Open(_) => {
                *phase = Phase::Ending(reason.clone());
                true
            }
        });
    }

    /// Nothing more follows; wakes whoever waits for anything.
    pub(crate) fn close(&self, reason: Reason) {
        self.phase.send_if_modified(|phase| match phase {
            Phase::Closed(_) => false,
            Phase::Negotiating | Phase::Open(_) | Phase::Ending(_) => {
                *phase = Phase::Closed(reason);
                true
            }
        });
        self.resolutions.close();
        self.releases.close();
        self.events.close();
    }

    /// Our root scope's digest will come.
    pub(crate) fn expect_root(&self) {
        self.releases.expect(ScopeKey { scope: self.role.root_scope(), scope_use: 0 });
    }

    /// Nobody will ask for the outcome of an entity of ours.
    pub(crate) fn forget(&self, ticket: &Ticket) {
        self.resolutions.forget(ticket.key);
        if let Some(scope) = ticket.child_scope {
            self.releases.forget(scope);
        }
    }

    /// Why the session is over, if it is.
    pub(crate) fn closed(&self) -> Option<Reason> {
        match &*self.phase.borrow() {
            Phase::Ending(reason) | Phase::Closed(reason) => Some(reason.clone()),
            Phase::Negotiating | Phase::Open(_) => None,
        }
    }

    /// Whether the capabilities are known.
    pub(crate) fn is_negotiating(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Negotiating)
    }
}

/// Bits of a stream's ID.
const STREAM_BITS: u32 = 48;

/// What the tasks of a connection work with.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) shared: Arc<Shared>,
    pub(crate) connection: quinn::Connection,
    /// Which of the session's connections it is, from 0.
    pub(crate) number: u16,
    pub(crate) commands: Commands,
    /// What entities that are handed over keep of this.
    pub(crate) entity: Arc<EntityLink>,
    /// Where entities go; a sink is opened once the session has its ID, and nothing is admitted before.
    pub(crate) inlet: Arc<OnceLock<Inlet>>,
    pub(crate) intake: Intake,
    pub(crate) log: Option<EventLog>,
    /// One for each entity stream of the peer that is being received or waits for its consumer.
    pub(crate) places: Arc<Semaphore>,
    /// Bytes of payloads that wait for their stream.
    pub(crate) credit: Arc<Semaphore>,
    /// Whose turn it is to open a stream: quinn wakes everybody who waits for one.
    pub(crate) opening: Arc<Mutex<()>>,
    /// Shut while stream 0 waits for room.
    pub(crate) gate: Gate,
    /// The longest header taken, in bytes.
    pub(crate) max_header: u32,
}

/// Lets stream 0 go first. quinn's priorities order what it has taken; what it takes goes to whoever asks first, and
/// many entity streams that ask for all the room there is would keep stream 0 out.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    shut: AtomicBool,
    opened: Notify,
}

impl Gate {
    /// Shuts it or opens it.
    pub(crate) fn set(&self, shut: bool) {
        if self.shut.swap(shut, Ordering::AcqRel) && !shut {
            self.opened.notify_waiters();
        }
    }

    /// Waits until it is open.
    pub(crate) async fn open(&self) {
        while self.shut.load(Ordering::Acquire) {
            let mut opened = pin!(self.opened.notified());
            opened.as_mut().enable();
            if !self.shut.load(Ordering::Acquire) {
                return;
            }
            opened.await;
        }
    }

    /// Ready when it is shut by the time it is polled; for whoever is woken to write.
    pub(crate) async fn is_shut(&self) {
        poll_fn(|_| if self.shut.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

impl Link {
    /// The same session over another connection.
    pub(crate) fn over(&self, connection: quinn::Connection) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            connection,
            number: self.number.wrapping_add(1),
            commands: self.commands.clone(),
            entity: Arc::clone(&self.entity),
            inlet: Arc::clone(&self.inlet),
            intake: self.intake,
            log: self.log.clone(),
            places: Arc::clone(&self.places),
            credit: Arc::new(Semaphore::new(CREDIT)),
            opening: Arc::default(),
            gate: Gate::default(),
            max_header: self.max_header,
        }
    }

    /// What a stream of the peer is called in the session: its ID, below the number of its connection. QUIC would take
    /// longer than any session lives to use IDs of 48 bits up.
    pub(crate) fn stream(&self, id: quinn::StreamId) -> u64 {
        u64::from(self.number) << STREAM_BITS | u64::from(id)
    }

    /// Whether a stream is of this connection, and not of one that was lost.
    pub(crate) const fn has(&self, stream: u64) -> bool {
        stream >> STREAM_BITS == self.number as u64
    }

    /// Hands entities over.
    pub(crate) fn deliver(&self, entities: Vec<(Untaken, OwnedSemaphorePermit)>) {
        if let Some(inlet) = self.inlet.get() {
            inlet.deliver(entities, &self.entity);
        }
    }

    /// Where the chunks of an entity are put together. Blocks on the disk.
    pub(crate) fn spool(&self, attempt: Attempt) -> std::io::Result<Spool> {
        match self.inlet.get() {
            Some(inlet) => inlet.spool(attempt),
            None => Err(std::io::Error::other("the session has no sink yet")),
        }
    }

    /// How many entity streams of the peer may be received at once.
    pub(crate) fn streams(&self) -> usize {
        usize::try_from(self.intake.streams()).unwrap_or(usize::MAX)
    }
}

/// Both clocks.
pub(crate) fn now() -> Now {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { instant: Instant::now(), unix_micros: u64::try_from(unix.as_micros()).unwrap_or(u64::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_io::runtime::{block_on, spawn};

    #[test]
    fn a_gate_lets_nobody_through_until_it_opens() {
        let gate = Arc::new(Gate::default());
        block_on(gate.open()).unwrap();
        gate.set(true);
        block_on(gate.is_shut()).unwrap();
        let waiting = Arc::clone(&gate);
        let through = spawn(async move { waiting.open().await }).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert!(!through.is_finished());
        gate.set(false);
        block_on(through).unwrap().unwrap();
    }
}
