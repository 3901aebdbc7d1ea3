//! Connections to one server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use penstock_io::DriverError as _;
use penstock_io::runtime::Runtime;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, ConnectionError, RecvStream, SendStream};
use tokio::time::timeout;

use crate::counters::Counters;
use crate::options::SessionOptions;
use crate::transport::{self, Intake};
use crate::{Error, Result};

/// A client's connection, and its stream 0.
pub(crate) type DialedConnection = (Connection, (SendStream, RecvStream));

/// A dialer of connections to one server.
pub(crate) struct Dialer {
    config: ClientConfig,
    address: SocketAddr,
    server_name: String,
    mtu: Option<u16>,
    handshake_timeout: Duration,
    counters: Arc<Counters>,
}

impl Dialer {
    pub(crate) fn new(
        trust: &Arc<QuicClientConfig>,
        counters: &Arc<Counters>,
        address: SocketAddr,
        server_name: String,
        options: &SessionOptions,
    ) -> Result<Self> {
        options.mtu.map(|mtu| transport::check_mtu(mtu.into())).transpose()?;
        let crypto: Arc<dyn quinn::crypto::ClientConfig> = Arc::<QuicClientConfig>::clone(trust);
        let mut config = ClientConfig::new(crypto);
        config.transport_config(transport::config(Intake::Sequential, options.idle_timeout, options.mtu, address)?);
        let mtu = options.mtu;
        let handshake_timeout = options.handshake_timeout;
        let counters = Arc::clone(counters);
        Ok(Self { config, address, server_name, mtu, handshake_timeout, counters })
    }

    /// Return the error for a server that has not responded in time.
    fn timeout_error(&self) -> Error {
        Error::deadline(format!("{} did not respond within {} s", self.address, self.handshake_timeout.as_secs_f64()))
    }

    /// Connect, and return the connection and its stream 0.
    pub(crate) async fn dial(&self) -> Result<DialedConnection> {
        let address = self.address;
        let endpoint = transport::client_endpoint(Runtime::current()?, address, self.mtu)?;
        let connecting = endpoint
            .connect_with(self.config.clone(), address, &self.server_name)
            .map_err(|error| transport::connect_error(address, error))?;
        let connection = match timeout(self.handshake_timeout, connecting).await {
            Ok(connected) => connected.map_err(|error| handshake_error(address, error))?,
            Err(_) => return Err(self.timeout_error()),
        };
        Counters::add(&self.counters.connections_total, 1);
        // Stream 0 is the first stream that a client opens, and it is opened immediately (section 5.1).
        let control = connection.open_bi().await.map_err(|error| handshake_error(address, error))?;
        Ok((connection, control))
    }
}

/// Return the error of a failed handshake, with the peer's address.
fn handshake_error(address: SocketAddr, error: ConnectionError) -> Error {
    match error {
        ConnectionError::TimedOut => Error::deadline(format!("{address} did not respond")),
        ConnectionError::VersionMismatch
        | ConnectionError::TransportError(_)
        | ConnectionError::ConnectionClosed(_)
        | ConnectionError::ApplicationClosed(_)
        | ConnectionError::Reset
        | ConnectionError::LocallyClosed
        | ConnectionError::CidsExhausted => {
            Error::tls_from(format!("the handshake with {address} failed: {error}"), error)
        }
    }
}
