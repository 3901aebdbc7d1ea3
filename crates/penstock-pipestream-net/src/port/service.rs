use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use penstock_io::tls::ClientCertificates;
use quinn::Connection;

/// Another protocol on a server's port. Clients choose it by ALPN.
pub trait PortService: fmt::Debug + Send + Sync {
    /// Return the protocol's name in the handshake.
    fn alpn(&self) -> &'static [u8];

    /// Return whether its clients must have a certificate where those of sessions must.
    fn certificates(&self) -> ClientCertificates;

    /// Serve a connection to its end.
    fn serve(self: Arc<Self>, connection: Connection) -> BoxFuture<'static, ()>;
}
