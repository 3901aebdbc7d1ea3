use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use penstock_io::runtime::Runtime;
use penstock_io::tls::ClientCertificates;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connecting, Connection};

use crate::Result;
use crate::transport;

/// Another protocol on a server's port. Clients choose it by ALPN.
pub trait PortService: fmt::Debug + Send + Sync {
    /// Return the protocol's name in the handshake.
    fn alpn(&self) -> &'static [u8];

    /// Return whether its clients need a certificate where clients of sessions need one.
    fn certificates(&self) -> ClientCertificates;

    /// Serve a connection to its end.
    fn serve(self: Arc<Self>, connection: Connection) -> BoxFuture<'static, ()>;
}

/// Connect to a [`PortService`], over the socket that all clients of this process share. Call this
/// on the IO thread, where the connection's task runs.
///
/// # Errors
///
/// Misuse for a wrong address or name; the socket's errors.
pub fn connect_service(crypto: QuicClientConfig, address: SocketAddr, server_name: &str) -> Result<Connecting> {
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(transport::service_config(address));
    let endpoint = transport::client_endpoint(Runtime::current()?, address, None)?;
    endpoint.connect_with(config, address, server_name).map_err(|error| transport::connect_error(address, error))
}
