use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use penstock_pipestream::Role;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, ConnectionError, VarInt};
use tokio::time::timeout;

use super::command::closed;
use super::connection::{Start, Started};
use super::counters::{CounterSnapshot, Counters};
use super::handle::SessionHandle;
use super::liveness;
use super::shared::{Phase, SessionOptions};
use super::transport::{self, ALPN, Intake};
use crate::runtime::{PerProcess, Runtime};
use crate::tls::ClientTls;
use crate::{Error, Result};

/// Makes sessions to servers. All clients of a process share one socket; this is a trust that was read once.
#[derive(Clone)]
pub struct Client(Arc<PerProcess<Inner>>);

struct Inner {
    crypto: Arc<QuicClientConfig>,
    counters: Arc<Counters>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    /// Reads the trust and the client's certificate.
    pub fn new(tls: &ClientTls) -> Result<Self> {
        let crypto = QuicClientConfig::try_from(tls.config(ALPN)?).map_err(|error| Error::Tls(error.to_string()))?;
        Ok(Self(Arc::new(PerProcess::new(Inner { crypto: Arc::new(crypto), counters: Arc::default() }))))
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
        let (crypto, counters) = (Arc::clone(&inner.crypto), Arc::clone(&inner.counters));
        let server_name = server_name.to_owned();
        // On the IO thread, because the session's tasks live there.
        let connecting = crate::runtime::spawn(connect(crypto, counters, address, server_name, options))?;
        connecting.await.unwrap_or_else(|error| Err(Error::Misuse(error.to_string())))
    }
}

async fn connect(
    crypto: Arc<QuicClientConfig>,
    counters: Arc<Counters>,
    address: SocketAddr,
    server_name: String,
    options: SessionOptions,
) -> Result<SessionHandle> {
    options.mtu.map(|mtu| transport::check_mtu(mtu.into())).transpose()?;
    let endpoint = transport::client_endpoint(Runtime::current()?, address, options.mtu)?;
    let mut config = ClientConfig::new(crypto);
    config.transport_config(transport::config(Intake::Sequential, options.idle_timeout, options.mtu, address)?);
    let patience = options.handshake_timeout;
    let late = || Error::Deadline(format!("{address} did not answer within {} s", patience.as_secs_f64()));
    let connecting = endpoint
        .connect_with(config, address, &server_name)
        .map_err(|error| Error::Misuse(format!("cannot connect to {address}: {error}")))?;
    let connection = match timeout(patience, connecting).await {
        Ok(connected) => connected.map_err(|error| handshake_error(address, &error))?,
        Err(_) => return Err(late()),
    };
    Counters::add(&counters.connections_total, 1);
    // Stream 0 is the first that a client opens, and it is opened at once (section 5.1).
    let control = connection.open_bi().await.map_err(|error| handshake_error(address, &error))?;
    let lost = connection.clone();
    let start = Start { connection, role: Role::Client, options, counters, control: Some(control) };
    let Started { shared, handle, commands } = start.run(None).await.inspect_err(|_| {
        lost.close(VarInt::from_u32(1), b"the client could not start the session");
    })?;
    if address.ip().to_canonical().is_loopback() {
        tokio::spawn(liveness::watch(lost.clone(), commands, address));
    }
    let mut phase = shared.phase.subscribe();
    let _ = phase.wait_for(|phase| !matches!(phase, Phase::Negotiating)).await;
    match (shared.closed(), handle) {
        // A server that refuses the client's certificate says so only now, after the client's own handshake.
        (Some(reason), _) => Err(transport::tls_alert(&lost, address).unwrap_or_else(|| closed(&reason))),
        (None, Some(handle)) => Ok(handle),
        (None, None) => Err(late()),
    }
}

/// A handshake that failed, in words that name the peer.
fn handshake_error(address: SocketAddr, error: &ConnectionError) -> Error {
    match error {
        ConnectionError::TimedOut => Error::Deadline(format!("{address} did not answer")),
        ConnectionError::VersionMismatch
        | ConnectionError::TransportError(_)
        | ConnectionError::ConnectionClosed(_)
        | ConnectionError::ApplicationClosed(_)
        | ConnectionError::Reset
        | ConnectionError::LocallyClosed
        | ConnectionError::CidsExhausted => Error::Tls(format!("the handshake with {address} failed: {error}")),
    }
}
