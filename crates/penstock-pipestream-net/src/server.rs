use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use penstock_io::admission::{Admission, Config, IDLE_TIMEOUT, Permit};
use penstock_io::runtime::{PerProcess, Runtime};
use penstock_io::sync::lock;
use penstock_io::tls::{Acceptor, ClientCertificates, Fingerprint, Offer, ServerTls};
use penstock_io::{Addresses, DriverError as _, metrics};
use penstock_pipestream::{self as core, ErrorCode, Role, Status};
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Connection, Endpoint, Incoming, ServerConfig};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use crate::claim_checks::{ClaimRow, DeferTypes};
use crate::command::{Commands, Urgent};
use crate::congestion;
use crate::connection::{Destination, RunningSession, Start};
use crate::counters::{CounterSnapshot, Counters};
use crate::driver::{Names, Reconnect, ResumableSessions};
use crate::entity_link::Place;
use crate::events::EventLog;
use crate::journal::ServerState;
use crate::metrics::{OpenTotals, Report, Transport};
use crate::options::SessionOptions;
use crate::port::{ClaimChecks, EntitySink, PortService, SessionJournals, Waiting, no_claim_checks};
use crate::shared::{Phase, Shared};
use crate::transport::{self, ALPN, SESSION_CONTINUES, alpn_of, quic_code};
use crate::{Error, Misuse, Result};

/// Number of handshakes that may wait to be accepted, and of bytes that their clients may have sent
/// by then.
const WAITING_HANDSHAKES: usize = 256;
const WAITING_BYTES: u64 = 4 << 20;

/// How a server listens.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The addresses to listen on: the first one that works is used. Port 0 picks a free port.
    pub listen: Addresses,
    /// The server's certificate, and the CA of the client certificates that it accepts.
    pub tls: ServerTls,
    /// Options of every session.
    pub session: SessionOptions,
    /// Number of connections beyond which further ones are refused. Default: 1,024.
    pub max_connections: u64,
    /// Number of connections from one address beyond which further ones are refused; an IPv6
    /// address stands for its /64. Default: seven eighths of all, or 64 if that is more.
    pub max_connections_per_address: Option<u64>,
    /// Address on which metrics and `/healthz` are served by HTTP; port 0 picks a free one. Default: none.
    pub metrics: Option<Addresses>,
    /// Another protocol on the same port, such as one that reads the content of the sink. Default:
    /// none.
    pub service: Option<Arc<dyn PortService>>,
    /// Store of claim checks. Default: none, so no claim check is issued.
    pub claims: Arc<dyn ClaimChecks>,
    /// A folder for sessions that survive this process: the next server on the folder continues
    /// them. Needs `survives`, and a sink that can recover sessions. Default: none, sessions are
    /// kept in memory.
    pub state: Option<PathBuf>,
    /// Content types that a sink stores and defers under a claim check, at layer 2. Default: none.
    pub defer_types: DeferTypes,
}

impl ServerOptions {
    /// Return the defaults.
    pub fn new(listen: Addresses, tls: ServerTls) -> Self {
        Self {
            listen,
            tls,
            session: SessionOptions { quiet_timeout: Some(IDLE_TIMEOUT), ..SessionOptions::default() },
            max_connections: 1_024,
            max_connections_per_address: None,
            metrics: None,
            service: None,
            claims: no_claim_checks(),
            state: None,
            defer_types: DeferTypes::default(),
        }
    }
}

/// A server, which accepts sessions until it is shut down or dropped.
pub struct Server(PerProcess<Arc<Inner>>);

struct Inner {
    endpoint: Endpoint,
    address: SocketAddr,
    acceptor: Arc<Acceptor>,
    session: SessionOptions,
    admission: Arc<Admission>,
    sink: Arc<dyn EntitySink>,
    /// The other protocol on the port.
    service: Option<Arc<dyn PortService>>,
    /// Whether a session needs a client certificate.
    needs_certificate: bool,
    counters: Arc<Counters>,
    claims: Arc<dyn ClaimChecks>,
    defer_types: Arc<DeferTypes>,
    /// Sessions that continue when their client returns.
    resumable: Arc<ResumableSessions>,
    /// The names of the open sessions.
    names: Arc<Names>,
    /// The number of the last claim check that [`Server::fresh_claims`] has returned. A caller
    /// holds the lock while it waits for the next ones, so that no other caller gets the same.
    last_claim: tokio::sync::Mutex<u64>,
    sessions: Mutex<Sessions>,
    next_number: AtomicU64,
    stopping: AtomicBool,
    metrics: OnceLock<metrics::Endpoint>,
}

/// The open sessions, and QUIC's counters of the connections that have ended.
#[derive(Default)]
struct Sessions {
    open: HashMap<u64, ActiveSession>,
    ended: Transport,
}

struct ActiveSession {
    commands: Commands,
    shared: Arc<Shared>,
    connection: Connection,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

fn admission(connections: u64, per_address: Option<u64>, counters: &Counters) -> Result<Arc<Admission>> {
    let config = Config {
        per_address,
        // Connections share one socket. A session in a sink has one file open, and for a short time
        // that of a payload.
        descriptors: 2,
        ..Config::new("PipeStream", connections)
    };
    Ok(Admission::new(config, Arc::clone(&counters.admission))?)
}

impl Server {
    /// Start to listen. The entities of every session go to `sink`.
    pub fn bind(options: ServerOptions, sink: Arc<dyn EntitySink>) -> Result<Self> {
        let service = options.service;
        let certificates = service.as_ref().map_or(ClientCertificates::Required, |service| service.certificates());
        let offer = Offer::named(&[ALPN]).with_certificates(certificates);
        let acceptor = Arc::new(Acceptor::new(options.tls.clone(), offer)?);
        let mut session = options.session;
        let (state, waiting) = match &options.state {
            Some(folder) => open_state(folder, &mut session, &*sink)?,
            None => (None, Vec::new()),
        };
        let reset = state.as_ref().map(ServerState::reset_key);
        // All sessions share one token key: the content of a token binds it to its session.
        session.prepare(Role::Server)?;
        session.mtu.map(|mtu| transport::check_mtu(mtu.into())).transpose()?;
        note_settled(&*options.claims, &*sink);
        let counters = Arc::<Counters>::default();
        let admission = admission(options.max_connections, options.max_connections_per_address, &counters)?;
        let runtime = Runtime::current()?;
        let (socket, address) = options.listen.bind(|address| {
            let socket = transport::bind(address)?;
            let address = socket.local_addr()?;
            Ok((socket, address))
        })?;
        let mut config = ServerConfig::with_crypto(crypto(&acceptor, service.as_deref())?);
        config.max_incoming(WAITING_HANDSHAKES).incoming_buffer_size_total(WAITING_BYTES);
        let inner = Arc::new(Inner {
            endpoint: transport::endpoint(runtime, socket, transport::segments_for(session.mtu), Some(config), reset)?,
            address,
            acceptor,
            session,
            admission,
            sink,
            service,
            needs_certificate: options.tls.client_ca.is_some(),
            counters,
            claims: options.claims,
            defer_types: Arc::new(options.defer_types),
            resumable: Arc::new(ResumableSessions::new(state.map(|state| Arc::new(state) as Arc<dyn SessionJournals>))),
            names: Arc::default(),
            last_claim: tokio::sync::Mutex::new(0),
            sessions: Mutex::default(),
            next_number: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            metrics: OnceLock::new(),
        });
        if let Some(listen) = options.metrics {
            let endpoint = metrics::Endpoint::bind(listen, Arc::clone(&inner) as Arc<dyn metrics::Source>)?;
            drop(inner.metrics.set(endpoint));
        }
        inner.claims.fail_left(&|session| waiting.iter().any(|waiting| waiting.owner.session == session));
        runtime.handle().spawn(accept(Arc::clone(&inner)));
        inner.wait_for_clients(runtime.handle(), waiting);
        Ok(Self(PerProcess::new(inner)))
    }

    /// Return the address on which the server listens.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        Ok(self.0.get()?.address)
    }

    /// Return the address on which metrics are served; `None` without metrics.
    pub fn metrics_addr(&self) -> Result<Option<SocketAddr>> {
        Ok(self.0.get()?.metrics.get().map(metrics::Endpoint::address))
    }

    /// Return the fingerprint of the current certificate, for clients that pin it.
    pub fn fingerprint(&self) -> Result<Fingerprint> {
        Ok(self.0.get()?.acceptor.fingerprint())
    }

    /// Return the counters of all sessions.
    pub fn counters(&self) -> Result<CounterSnapshot> {
        let inner = self.0.get()?;
        let mut snapshot = CounterSnapshot { claims: inner.claims.count(), ..inner.counters.snapshot() };
        snapshot.limits.extend(inner.claims.counters().limits());
        Ok(snapshot)
    }

    /// Return the stored claim checks, by their expiry.
    pub fn claims(&self) -> Result<Vec<ClaimRow>> {
        Arc::clone(&self.0.get()?.claims).page((0, 0), usize::MAX)
    }

    /// Return the claim checks that may be redeemed, in the order in which they were issued: not those that have
    /// expired, and not those that a session has redeemed, even if the entity is DEFERRED once more, under another
    /// claim check.
    pub fn open_claims(&self) -> Result<Vec<ClaimRow>> {
        Ok(self.0.get()?.claims.open_rows())
    }

    /// Wait for open claim checks that were not returned before. Each is returned once, however many callers wait.
    /// Safe to cancel.
    pub async fn fresh_claims(&self) -> Result<Vec<ClaimRow>> {
        let inner = self.0.get()?;
        let mut last = inner.last_claim.lock().await;
        let (rows, number) = Arc::clone(&inner.claims).fresh(*last).await;
        *last = number;
        Ok(rows)
    }

    /// End the entity of a claim check that no session has redeemed, because its work was done
    /// elsewhere. Return when the status is stored; a second call changes nothing.
    ///
    /// # Errors
    ///
    /// CLAIM_NOT_FOUND, also if a session has redeemed the claim check; misuse for DEFERRED and for
    /// a status that is not terminal.
    pub async fn settle(&self, claim: u64, status: Status) -> Result<()> {
        let inner = self.0.get()?;
        // To defer it again, a session issues a new claim check.
        if !status.is_terminal() || status == Status::Deferred {
            return Err(core::Error::from(core::Misuse::ClaimStatus(status)).into());
        }
        Arc::clone(&inner.claims).settle_here(claim, status).await?;
        let Some(row) = inner.claims.done_here(claim) else { return Ok(()) };
        if !inner.sink.keeps_settled() {
            return Ok(());
        }
        let sink = Arc::clone(&inner.sink);
        let noted = penstock_io::runtime::spawn_blocking(move || sink.note_settled(&[row]))?.await;
        let noted = noted.map_err(Error::task)?;
        noted.map_err(|error| Error::io("the sink cannot store a settled claim check", error))
    }

    /// Accept no more connections, and close each session with NO_ERROR as soon as nothing is open
    /// in it; sessions that remain after `grace` are cut off. Wait until everything is written.
    /// Sessions on disk continue with the next server.
    pub async fn shutdown(&self, grace: Duration) -> Result<()> {
        let inner = Arc::clone(self.0.get()?);
        let down = penstock_io::runtime::spawn(async move { inner.shutdown(grace).await })?;
        down.await.map_err(Error::task)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // In a forked child the socket belongs to the parent.
        if let Ok(inner) = self.0.get() {
            if inner.resumable.journals.is_some() {
                // A client that reconnects immediately must not be told that its session is unknown.
                inner.endpoint.set_server_config(None);
                // The process that continues the sessions finds them on disk.
                inner.send_urgent_to_all(|| Urgent::Leave(None));
                drop(inner.resumable.take_waiting());
                inner.close_endpoint(SESSION_CONTINUES, b"the server was dropped");
            }
            inner.close_endpoint(ErrorCode::InternalError, b"the server was dropped");
            inner.stop_metrics();
        }
    }
}

impl Inner {
    async fn shutdown(&self, grace: Duration) {
        self.stopping.store(true, Ordering::Relaxed);
        self.endpoint.set_server_config(None);
        if !grace.is_zero() {
            self.send_urgent_to_all(|| Urgent::CloseWhenIdle);
            let _ = timeout(grace, self.all_closed()).await;
        }
        // Sessions on disk continue with the next server.
        self.send_urgent_to_all(|| Urgent::Leave(None));
        drop(self.resumable.take_waiting());
        self.all_closed().await;
        Arc::clone(&self.claims).close().await;
        self.close_endpoint(ErrorCode::NoError, b"the server is shutting down");
        let _ = timeout(Duration::from_secs(1), self.endpoint.wait_idle()).await;
        self.stop_metrics();
    }

    fn close_endpoint(&self, code: ErrorCode, reason: &[u8]) {
        lock(&self.sessions).open.values().for_each(|open| congestion::lift_window(&open.connection));
        self.endpoint.close(quic_code(code), reason);
    }

    /// Return how a session recovers from the loss of its connection.
    fn reconnect(&self) -> Reconnect {
        match self.session.survives {
            Some(within) => {
                Reconnect::Accept { resumable: Arc::clone(&self.resumable), within, connections: None, until: None }
            }
            None => Reconnect::Never,
        }
    }

    /// Let the sessions of an earlier process wait for their clients as long as other sessions do,
    /// then end those that still wait. End sessions whose end is already recorded at once.
    fn wait_for_clients(self: &Arc<Self>, runtime: &Handle, waiting: Vec<Waiting>) {
        let (ended, waiting): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|waiting| waiting.end.is_some());
        waiting.into_iter().for_each(|waiting| self.resumable.insert(waiting));
        ended.iter().for_each(|waiting| self.resumable.note_end(waiting.owner.session));
        let (inner, within) = (Arc::downgrade(self), self.session.survives.unwrap_or_default());
        runtime.spawn(async move {
            let give_up = async |waiting: Vec<Waiting>| {
                let Some(inner) = inner.upgrade() else { return };
                for waiting in waiting {
                    let session = waiting.owner.session;
                    if waiting.end(&inner.counters).await {
                        inner.resumable.note_removed(session);
                    }
                    inner.claims.fail_redeemed(session);
                }
            };
            give_up(ended).await;
            sleep(within).await;
            let waiting = inner.upgrade().map(|inner| inner.resumable.take_waiting());
            give_up(waiting.unwrap_or_default()).await;
        });
    }

    fn stop_metrics(&self) {
        if let Some(metrics) = self.metrics.get() {
            metrics.stop();
        }
    }

    fn send_urgent_to_all(&self, command: impl Fn() -> Urgent) {
        for session in lock(&self.sessions).open.values() {
            session.commands.send_urgent(command());
        }
    }

    async fn all_closed(&self) {
        let sessions: Vec<_> = lock(&self.sessions).open.values().map(|open| Arc::clone(&open.shared)).collect();
        for shared in sessions {
            closed(&shared).await;
        }
    }

    fn config(&self, peer: SocketAddr) -> Result<Arc<ServerConfig>> {
        let mut config = ServerConfig::with_crypto(crypto(&self.acceptor, self.service.as_deref())?);
        let SessionOptions { idle_timeout, mtu, .. } = self.session;
        config.transport_config(transport::config(self.sink.intake(), idle_timeout, mtu, peer)?);
        Ok(Arc::new(config))
    }

    /// Admit and count a connection, unless there are too many in total or from its address.
    fn admit(&self, peer: SocketAddr) -> Option<Permit> {
        match self.admission.admit(Some(peer.ip())) {
            Ok(permit) => {
                Counters::add(&self.counters.connections_total, 1);
                Counters::add(&self.counters.connections_open, 1);
                Some(permit)
            }
            Err(refused) => {
                Counters::add(&self.counters.refused, 1);
                tracing::debug!(%peer, %refused, "refused a connection");
                None
            }
        }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("address", &self.address).finish_non_exhaustive()
    }
}

impl metrics::Source for Inner {
    fn write(&self, page: &mut metrics::Page<'_>) -> fmt::Result {
        let mut totals = OpenTotals::default();
        let transport = {
            let sessions = lock(&self.sessions);
            let mut transport = sessions.ended;
            for open in sessions.open.values() {
                transport.add(&open.connection.stats());
                totals.add(&open.shared.gauges);
                totals.events += u64::try_from(open.shared.events.len()).unwrap_or(u64::MAX);
            }
            transport
        };
        let log = self.session.events.as_ref().map(EventLog::counters);
        let claims = self.claims.count();
        let claim_counters = self.claims.counters();
        let journal = self.resumable.journals.as_ref().map(|journals| journals.counters());
        Report { counters: &self.counters, claims, claim_counters, transport, totals, sink: &*self.sink, log, journal }
            .write(page)
    }

    fn is_healthy(&self) -> bool {
        !self.stopping.load(Ordering::Relaxed)
    }
}

/// Return the TLS configuration of one connection, with the current certificate and the protocols
/// of sessions and of the service on the same port.
fn crypto(acceptor: &Acceptor, service: Option<&dyn PortService>) -> Result<Arc<dyn quinn::crypto::ServerConfig>> {
    let mut tls = acceptor.config();
    if let Some(service) = service {
        Arc::make_mut(&mut tls).alpn_protocols.push(service.alpn().to_vec());
    }
    let crypto = QuicServerConfig::try_from(tls).map_err(|error| Error::tls_from(error.to_string(), error))?;
    Ok(Arc::new(crypto))
}

/// Let the sink store the claim checks that were settled without a session, if it stores such: an
/// earlier server may have been killed before it did.
fn note_settled(claims: &dyn ClaimChecks, sink: &dyn EntitySink) {
    if sink.keeps_settled()
        && let Err(error) = sink.note_settled(&claims.note_in_sink())
    {
        tracing::warn!(%error, "the sink cannot store settled claim checks: retried at the next start");
    }
}

/// Open the state folder, and restore the sessions that the last server left in it.
fn open_state(
    folder: &Path,
    session: &mut SessionOptions,
    sink: &dyn EntitySink,
) -> Result<(Option<ServerState>, Vec<Waiting>)> {
    let recovery = sink.recovery().ok_or(Misuse::StateSink)?;
    if session.survives.is_none() || !session.session.capabilities.layer2 {
        return Err(Misuse::StateLayer.into());
    }
    let state = ServerState::open(folder, &mut session.session)?;
    let waiting = state.restore(&session.session, recovery);
    Ok((Some(state), waiting))
}

/// Accept connections until the endpoint is closed, and keep the certificate current meanwhile.
async fn accept(inner: Arc<Inner>) {
    tokio::select! {
        never = inner.admission.reload_certificate(&inner.acceptor) => match never {},
        () = accept_connections(&inner) => {}
    }
}

async fn accept_connections(inner: &Arc<Inner>) {
    while let Some(incoming) = inner.endpoint.accept().await {
        let peer = incoming.remote_address();
        // When the server is half full, or the address has half its share, a client must prove its
        // address: forged addresses must not use up the limit.
        if inner.admission.is_half_full(peer.ip()) && !incoming.remote_address_validated() && incoming.may_retry() {
            Counters::add(&inner.counters.retries, 1);
            let _ = incoming.retry();
            continue;
        }
        let Some(permit) = inner.admit(peer) else {
            incoming.refuse();
            continue;
        };
        let inner = Arc::clone(inner);
        tokio::spawn(async move {
            let place = Place::new(permit, &inner.counters);
            if let Err(error) = serve(incoming, &inner, &place).await {
                tracing::info!(%peer, %error, "the handshake failed");
            }
        });
    }
}

/// Complete the handshake of one connection.
async fn handshake(incoming: Incoming, inner: &Inner) -> Result<Connection> {
    let peer = incoming.remote_address();
    let connecting = incoming
        .accept_with(inner.config(peer)?)
        .map_err(|error| Error::tls_from(format!("handshake: {error}"), error))?;
    match timeout(inner.session.handshake_timeout, connecting).await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(error)) => {
            Counters::add(&inner.counters.handshakes_failed, 1);
            Err(Error::tls_from(format!("handshake: {error}"), error))
        }
        Err(_) => {
            Counters::add(&inner.counters.handshakes_late, 1);
            Err(Error::deadline("the handshake took too long".into()))
        }
    }
}

/// Handle one connection from its handshake to its end.
async fn serve(incoming: Incoming, inner: &Inner, place: &Arc<Place>) -> Result<()> {
    let connection = handshake(incoming, inner).await?;
    if let Some(service) = &inner.service
        && alpn_of(&connection).is_some_and(|chosen| chosen == service.alpn())
    {
        Arc::clone(service).serve(connection).await;
        return Ok(());
    }
    // If clients of the other protocol need no certificate, the handshake admits any client without
    // one.
    if inner.needs_certificate && connection.peer_identity().is_none() {
        Counters::add(&inner.counters.handshakes_failed, 1);
        congestion::close(
            &connection,
            quic_code(ErrorCode::InternalError),
            b"this server requires a client certificate",
        );
        return Err(Error::tls("the client has no certificate".into()));
    }
    let start = Start {
        connection: connection.clone(),
        role: Role::Server,
        options: inner.session.clone(),
        counters: Arc::clone(&inner.counters),
        claims: Arc::clone(&inner.claims),
        defer_types: Arc::clone(&inner.defer_types),
        control: None,
        reconnect: inner.reconnect(),
        names: Arc::clone(&inner.names),
        client_journal: None,
    };
    let destination = Destination::Sink(Arc::clone(&inner.sink), Arc::clone(place));
    let RunningSession { shared, commands, .. } = match start.run(destination) {
        Ok(started) => started,
        Err(error) => {
            congestion::close(&connection, quic_code(ErrorCode::InternalError), error.to_string().as_bytes());
            return Err(error);
        }
    };
    let number = inner.next_number.fetch_add(1, Ordering::Relaxed);
    let open = ActiveSession { commands, shared: Arc::clone(&shared), connection: connection.clone() };
    let commands = open.commands.clone();
    lock(&inner.sessions).open.insert(number, open);
    if inner.stopping.load(Ordering::Relaxed) {
        // The handshake began before the server stopped, which has not told this session.
        commands.send_urgent(Urgent::Leave(None));
    }
    closed(&shared).await;
    let mut sessions = lock(&inner.sessions);
    sessions.open.remove(&number);
    sessions.ended.add(&connection.stats());
    Ok(())
}

/// Wait for the end of a session.
async fn closed(shared: &Shared) {
    let mut phase = shared.phase.subscribe();
    let _ = phase.wait_for(|phase| matches!(phase, Phase::Closed(_))).await;
}
