//! The one way in for connections: a TCP or Unix socket that listens, for every protocol.
//!
//! ```text
//!  bind ── accept ──▶ admit ── Connection ──▶ handshake ──▶ FirstByte ──▶ the protocol ──▶ the Permit goes
//!             │          │                        └─── 10 s from accept ──────┘
//!             │          └── closed: the server is full, an address has its share, descriptors run out
//!             └── EMFILE, ENFILE, ENOBUFS, ENOMEM: one line in the log, a pause, again
//! ```
//!
//! A server makes one [`Admission`] for all of its listeners. [`Listener::run`] takes connections until it is told to stop, and
//! looks at the files of the certificate meanwhile: a new certificate is shown to new connections, and those that are open
//! keep theirs. [`Admission::idle`] waits for the end of the last connection.

use std::future::{Future, pending};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use socket2::{Domain, Socket as RawSocket, Type};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::admission::{Accept, Admission, FirstByte, Permit};
use crate::runtime::Runtime;
use crate::tls::Acceptor;
use crate::unix::{self, SocketFile};
use crate::{DriverError as _, Error, Result};

/// Connections that wait to be accepted.
pub(crate) const BACKLOG: i32 = 1_024;

/// A socket that listens, and the certificate that its connections are shown.
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

/// A connection that was let in.
#[derive(Debug)]
pub struct Connection {
    /// What it is read from and written to.
    pub stream: Stream,
    /// Its other end; none over a Unix socket.
    pub peer: Option<SocketAddr>,
    /// Its place among the connections.
    pub permit: Permit,
    tls: Option<Arc<ServerConfig>>,
}

/// What a connection is read from and written to.
#[derive(Debug)]
pub enum Stream {
    /// A TCP socket.
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
    /// TLS over TCP.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Why a connection got no further than its handshake.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// TLS failed.
    #[error("the handshake failed: {0}")]
    Failed(#[from] io::Error),
    /// Its time was over, which is counted.
    #[error("the handshake took too long")]
    Late,
}

impl Listener {
    /// Listen on an address; port 0 picks a free one. Return where it listens.
    pub fn tcp(
        address: SocketAddr,
        acceptor: Option<Arc<Acceptor>>,
        admission: &Arc<Admission>,
    ) -> Result<(Self, SocketAddr)> {
        let runtime = Runtime::current()?;
        let bound = listen(address).and_then(|listener| {
            let _entered = runtime.handle().enter();
            Ok((listener.local_addr()?, TcpListener::from_std(listener)?))
        });
        let (address, listener) = bound.map_err(|error| Error::io(format!("cannot listen on {address}"), error))?;
        Ok((Self { socket: Socket::Tcp(listener), acceptor, admission: Arc::clone(admission) }, address))
    }

    /// Listen on a Unix socket that only this user may connect to. Return its file, which goes when it is dropped.
    pub fn unix(path: &Path, admission: &Arc<Admission>) -> Result<(Self, SocketFile)> {
        let runtime = Runtime::current()?;
        let (listener, file) = unix::listen(path)?;
        let _entered = runtime.handle().enter();
        let listener =
            UnixListener::from_std(listener).map_err(|error| Error::file("cannot listen on", path, error))?;
        Ok((Self { socket: Socket::Unix(listener), acceptor: None, admission: Arc::clone(admission) }, file))
    }

    /// Give each connection that is let in to `serve`, until `stopped` resolves; then nothing listens any more.
    pub async fn run(self, stopped: impl Future<Output = ()>, mut serve: impl FnMut(Connection)) {
        let Self { socket, acceptor, admission } = self;
        let accepting = admission.accept(&socket, |stream, peer, permit| {
            let tls = acceptor.as_ref().map(|acceptor| acceptor.config());
            serve(Connection { stream, peer, permit, tls });
        });
        let current = async {
            match &acceptor {
                Some(acceptor) => admission.keep_certificate(acceptor).await,
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

/// Return a socket that takes IPv4 as well where it is of IPv6, and whose port is free again at once.
fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = RawSocket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        // Some systems have no dual-stack sockets; then it serves IPv6 alone.
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
    /// Make the handshake, where the listener has a certificate, by the deadline of the connection's place.
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
    /// Make the handshake of TLS over a stream by the deadline.
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

impl Stream {
    /// Limit the wait for the first byte to the deadline of the connection's place.
    pub fn first_byte(self, permit: &Permit) -> FirstByte<Self> {
        FirstByte::new(self, permit)
    }

    /// Return the certificate that the other end has shown: the CA has signed it, or there would be none.
    pub fn peer_certificate(&self) -> Option<&CertificateDer<'static>> {
        match self {
            Self::Tcp(_) | Self::Unix(_) => None,
            Self::Tls(stream) => stream.get_ref().1.peer_certificates().and_then(<[_]>::first),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
            Self::Tls(stream) => stream.get_ref().0.as_fd(),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, into),
            Self::Unix(stream) => Pin::new(stream).poll_read(context, into),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, into),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Unix(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Self::Unix(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests;
