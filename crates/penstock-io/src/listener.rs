//! Listening TCP and Unix sockets: the way in for the connections of every protocol but QUIC.
//!
//! ```text
//!  bind ── accept ──▶ admit ── Connection ──▶ handshake ──▶ FirstByte ──▶ the protocol ──▶ the Permit goes
//!             │          │                        └─── 10 s from accept ──────┘
//!             │          └── closed: the server is full, an address has its share, descriptors run out
//!             └── EMFILE, ENFILE, ENOBUFS, ENOMEM: one line in the log, a pause, again
//! ```
//!
//! A server makes one [`Admission`] for all of its listeners. [`Listener::run`] accepts connections
//! until it is stopped, and meanwhile watches the certificate's files: new connections use a new
//! certificate, and open ones keep theirs. [`Admission::idle`] waits for the end of the last
//! connection.

mod stream;

use std::future::{Future, pending};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use socket2::{Domain, Socket as RawSocket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub use self::stream::Stream;
use crate::address::Addresses;
use crate::admission::{Accept, Admission, BACKLOG, Permit};
use crate::runtime::Runtime;
use crate::tls::Acceptor;
use crate::unix::{self, SocketFile};
use crate::{DriverError as _, Error, Result};

/// A listening socket, and the certificate for its connections.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    acceptor: Option<Arc<Acceptor>>,
    admission: Arc<Admission>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// An admitted connection.
#[derive(Debug)]
pub struct Connection {
    /// The stream to read from and write to.
    pub stream: Stream,
    /// The address of the other end; `None` over a Unix socket.
    pub peer: Option<SocketAddr>,
    /// The connection's permit.
    pub permit: Permit,
    tls: Option<Arc<ServerConfig>>,
}

/// Why a connection failed during its handshake.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// TLS failed.
    #[error("the handshake failed: {0}")]
    Failed(#[from] io::Error),
    /// The handshake took too long, which is counted.
    #[error("the handshake took too long")]
    Late,
}

impl Listener {
    /// Listen on the first of these addresses that works. Port 0 picks a free port. Return the
    /// listener and its address.
    pub fn tcp(
        addresses: Addresses,
        acceptor: Option<Arc<Acceptor>>,
        admission: &Arc<Admission>,
    ) -> Result<(Self, SocketAddr)> {
        let runtime = Runtime::current()?;
        let (address, listener) = addresses.bind(|address| {
            let listener = listen(address)?;
            let _entered = runtime.handle().enter();
            Ok((listener.local_addr()?, TcpListener::from_std(listener)?))
        })?;
        Ok((Self { socket: Socket::Tcp(listener), acceptor, admission: Arc::clone(admission) }, address))
    }

    /// Listen on a Unix socket to which only this user may connect. Return the listener and the
    /// socket's [`SocketFile`], whose drop removes the file.
    pub fn unix(path: &Path, admission: &Arc<Admission>) -> Result<(Self, SocketFile)> {
        let runtime = Runtime::current()?;
        let (listener, file) = unix::listen(path)?;
        let _entered = runtime.handle().enter();
        let listener =
            UnixListener::from_std(listener).map_err(|error| Error::file("cannot listen on", path, error))?;
        Ok((Self { socket: Socket::Unix(listener), acceptor: None, admission: Arc::clone(admission) }, file))
    }

    /// Pass each admitted connection to `serve` until `stopped` resolves, and then close the
    /// listener.
    pub async fn run(self, stopped: impl Future<Output = ()>, mut serve: impl FnMut(Connection)) {
        let Self { socket, acceptor, admission } = self;
        let accepting = admission.accept(&socket, |stream, peer, permit| {
            let tls = acceptor.as_ref().map(|acceptor| acceptor.config());
            serve(Connection { stream, peer, permit, tls });
        });
        let current = async {
            match &acceptor {
                Some(acceptor) => admission.reload_certificate(acceptor).await,
                None => pending().await,
            }
        };
        tokio::select! {
            never = accepting => match never {},
            never = current => match never {},
            () = stopped => {}
        }
    }
}

/// Make a listening socket whose port can be reused immediately. An IPv6 socket accepts IPv4 as
/// well.
fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = RawSocket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        // Some systems have no dual-stack sockets; there the socket serves IPv6 alone.
        let _ = socket.set_only_v6(false);
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

impl Accept for Socket {
    async fn accept(&self) -> io::Result<(Stream, Option<SocketAddr>)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok((Stream::Tcp(stream), Some(peer)))
            }
            Self::Unix(listener) => Ok((Stream::Unix(listener.accept().await?.0), None)),
        }
    }
}

impl Connection {
    /// Perform the handshake by the permit's deadline, if the listener has a certificate.
    pub async fn handshake(self) -> std::result::Result<Self, HandshakeError> {
        match self {
            Self { stream: Stream::Tcp(stream), peer, permit, tls: Some(tls) } => {
                let stream = Stream::Tls(Box::new(permit.handshake(tls, stream).await?));
                Ok(Self { stream, peer, permit, tls: None })
            }
            other => Ok(other),
        }
    }
}

impl Permit {
    /// Perform a TLS handshake over a stream by the permit's deadline.
    pub async fn handshake<S>(
        &self,
        tls: Arc<ServerConfig>,
        stream: S,
    ) -> std::result::Result<TlsStream<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let handshake = self.in_time(TlsAcceptor::from(tls).accept(stream)).await;
        Ok(handshake.ok_or(HandshakeError::Late)??)
    }
}

#[cfg(test)]
mod tests;
