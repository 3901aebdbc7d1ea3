use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use penstock_io::DriverError as _;
use penstock_io::runtime::{PerProcess, Runtime};
use penstock_io::tls::ClientTls;
use penstock_pipestream::{ErrorCode, Reason, Role};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, ConnectionError, VarInt};
use tokio::time::timeout;

use super::claims::Claims;
use super::command::{Urgent, closed};
use super::connection::{Start, Started, Stored};
use super::counters::{CounterSnapshot, Counters};
use super::driver::{Dialled, Road};
use super::handle::SessionHandle;
use super::journal::ClientState;
use super::shared::{Phase, SessionOptions};
use super::transport::{self, ALPN, Intake};
use crate::{Error, Result};

/// Makes sessions to servers. All clients of a process share one socket; this is a trust that was read once.
#[derive(Clone)]
pub struct Client(Arc<PerProcess<Inner>>);

struct Inner {
    crypto: Arc<QuicClientConfig>,
    counters: Arc<Counters>,
    /// A client keeps none, so what servers send is not set aside here.
    claims: Arc<Claims>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    /// Reads the trust and the client's certificate.
    pub fn new(tls: &ClientTls) -> Result<Self> {
        let crypto = QuicClientConfig::try_from(tls.config(ALPN)?).map_err(|error| Error::tls(error.to_string()))?;
        Ok(Self(Arc::new(PerProcess::new(Inner {
            crypto: Arc::new(crypto),
            counters: Arc::default(),
            claims: Claims::nowhere(),
        }))))
    }

    /// What all sessions of this client have seen.
    pub fn counters(&self) -> Result<CounterSnapshot> {
        Ok(self.0.get()?.counters.snapshot())
    }

    /// Connects and agrees on capabilities. `server_name` is what the server's certificate must be for, unless it is
    /// pinned.
    pub async fn connect(
        &self,
        address: SocketAddr,
        server_name: &str,
        options: SessionOptions,
    ) -> Result<SessionHandle> {
        let inner = self.0.get()?;
        let inner = Inner {
            crypto: Arc::clone(&inner.crypto),
            counters: Arc::clone(&inner.counters),
            claims: Arc::clone(&inner.claims),
        };
        let server_name = server_name.to_owned();
        // On the IO thread, because the session's tasks live there.
        let connecting = penstock_io::runtime::spawn(connect(inner, address, server_name, options))?;
        connecting.await.unwrap_or_else(|died| Err(Error::task(&died)))
    }
}

/// Makes connections to one server.
pub(crate) struct Dialer {
    config: ClientConfig,
    address: SocketAddr,
    server_name: String,
    mtu: Option<u16>,
    patience: Duration,
    counters: Arc<Counters>,
}

impl Dialer {
    fn new(inner: &Inner, address: SocketAddr, server_name: String, options: &SessionOptions) -> Result<Self> {
        options.mtu.map(|mtu| transport::check_mtu(mtu.into())).transpose()?;
        let crypto: Arc<dyn quinn::crypto::ClientConfig> = Arc::<QuicClientConfig>::clone(&inner.crypto);
        let mut config = ClientConfig::new(crypto);
        config.transport_config(transport::config(Intake::Sequential, options.idle_timeout, options.mtu, address)?);
        let (mtu, patience, counters) = (options.mtu, options.handshake_timeout, Arc::clone(&inner.counters));
        Ok(Self { config, address, server_name, mtu, patience, counters })
    }

    fn late(&self) -> Error {
        Error::deadline(format!("{} did not answer within {} s", self.address, self.patience.as_secs_f64()))
    }

    /// A connection, and its stream 0.
    pub(crate) async fn dial(&self) -> Result<Dialled> {
        let address = self.address;
        let endpoint = transport::client_endpoint(Runtime::current()?, address, self.mtu)?;
        let connecting = endpoint
            .connect_with(self.config.clone(), address, &self.server_name)
            .map_err(|error| Error::misuse(format!("cannot connect to {address}: {error}")))?;
        let connection = match timeout(self.patience, connecting).await {
            Ok(connected) => connected.map_err(|error| handshake_error(address, &error))?,
            Err(_) => return Err(self.late()),
        };
        Counters::add(&self.counters.connections_total, 1);
        // Stream 0 is the first that a client opens, and it is opened at once (section 5.1).
        let control = connection.open_bi().await.map_err(|error| handshake_error(address, &error))?;
        Ok((connection, control))
    }
}

async fn connect(
    inner: Inner,
    address: SocketAddr,
    server_name: String,
    options: SessionOptions,
) -> Result<SessionHandle> {
    let needs_layer2 = options.policy.is_some() || options.survives.is_some();
    let dialer = Arc::new(Dialer::new(&inner, address, server_name, &options)?);
    let (connection, control) = dialer.dial().await?;
    let lost = connection.clone();
    let road = match options.survives {
        Some(within) => Road::Dials { dialer: Arc::clone(&dialer), within, dialling: None },
        None => Road::Ends,
    };
    let Inner { counters, claims, .. } = inner;
    let mut options = options;
    let stored = match options.state.clone() {
        Some(folder) => Some(open_state(folder, &mut options).await?),
        None => None,
    };
    let (role, control, defer_types) = (Role::Client, Some(control), Arc::default());
    let start = Start {
        connection,
        role,
        options,
        counters,
        claims,
        defer_types,
        control,
        road,
        names: Arc::default(),
        stored,
    };
    let Started { shared, handle, commands } = start.run(None).inspect_err(|_| {
        lost.close(VarInt::from_u32(1), b"the client could not start the session");
    })?;
    let mut phase = shared.phase.subscribe();
    let _ = phase.wait_for(|phase| !matches!(phase, Phase::Negotiating)).await;
    match (shared.closed(), handle) {
        // A server that refuses the client's certificate says so only now, after the client's own handshake.
        (Some(reason), _) => Err(transport::tls_alert(&lost, address).unwrap_or_else(|| closed(&reason))),
        (None, Some(_)) if needs_layer2 && shared.layer2().is_none() => {
            let message = "what was asked for needs layer 2".to_owned();
            commands.urge(Urgent::Abort(Reason { code: ErrorCode::LayerUnsupported, message }));
            let message = format!("policies and sessions that survive need layer 2: {address} has not agreed on it");
            Err(Error::misuse(message))
        }
        (None, Some(handle)) => Ok(handle),
        (None, None) => Err(dialer.late()),
    }
}

/// The session in a folder, or a new one that is to be there.
async fn open_state(folder: PathBuf, options: &mut SessionOptions) -> Result<Stored> {
    if options.survives.is_none() || !options.session.capabilities.layer2 {
        return Err(Error::misuse("a session with a state folder survives its connections, at layer 2".into()));
    }
    if let Some(layer2) = &mut options.session.layer2 {
        layer2.survives = true;
    }
    let mut config = options.session.clone();
    // Until then nothing is agreed on, and another address of the same server may be tried.
    let opened = tokio::task::spawn_blocking(move || {
        let opened = ClientState::open(&folder, &mut config);
        opened.map(|opened| (opened, config))
    });
    let ((state, session), config) = opened.await.map_err(|died| Error::task(&died))??;
    options.session = config;
    Ok(match session {
        Some((session, journal)) => Stored::Begun(Box::new(session), Box::new(journal)),
        None => Stored::New(state),
    })
}

/// A handshake that failed, in words that name the peer.
fn handshake_error(address: SocketAddr, error: &ConnectionError) -> Error {
    match error {
        ConnectionError::TimedOut => Error::deadline(format!("{address} did not answer")),
        ConnectionError::VersionMismatch
        | ConnectionError::TransportError(_)
        | ConnectionError::ConnectionClosed(_)
        | ConnectionError::ApplicationClosed(_)
        | ConnectionError::Reset
        | ConnectionError::LocallyClosed
        | ConnectionError::CidsExhausted => Error::tls(format!("the handshake with {address} failed: {error}")),
    }
}
