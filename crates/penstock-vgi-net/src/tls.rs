//! TLS over a TCP connection.

use std::fmt;
use std::io::{self, ErrorKind as IoKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use penstock_io::sync::lock;
use penstock_io::tls::{Acceptor, ClientTls, Offer, ServerTls, server_name};
use penstock_io::{DriverError as _, Error, Result};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConnection, Stream};

use super::byte_stream::{Sink, Source};
use super::channel::Channel;
use super::peer::Peer;

const ALPN: &[u8] = b"vgi-rpc";
const OFFER: Offer = Offer::tcp(&[ALPN]);
/// The longest wait in the system before the caller is asked whether to continue.
const SLICE: Duration = Duration::from_millis(100);

/// The TLS configuration of the accepting or the connecting end.
#[derive(Clone)]
pub enum Tls {
    /// The accepting end. Each new connection gets the certificate that the files hold at that
    /// time.
    Server(Arc<Acceptor>),
    /// The connecting end, and the name that the server's certificate must have.
    Client(Arc<ClientConfig>, ServerName<'static>),
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Tls {
    /// Make the configuration of the accepting end. Read its files now.
    pub fn server(tls: &ServerTls) -> Result<Self> {
        Ok(Self::Server(Arc::new(Acceptor::new(tls.clone(), OFFER)?)))
    }

    /// Make the configuration of the connecting end.
    pub fn client(tls: &ClientTls, name: &str) -> Result<Self> {
        let name = server_name(Some(name), name)?;
        Ok(Self::Client(Arc::new(tls.config(ALPN)?), name))
    }

    /// Return the acceptor of the accepting end.
    pub(super) fn acceptor(&self) -> Option<Arc<Acceptor>> {
        match self {
            Self::Server(acceptor) => Some(Arc::clone(acceptor)),
            Self::Client(..) => None,
        }
    }

    /// Return a channel over a connected socket. The first read or write performs the handshake.
    pub fn channel(&self, socket: OwnedFd) -> Result<Channel> {
        let broken = |error: rustls::Error| Error::tls_from(error.to_string(), error);
        let connection: Connection = match self {
            Self::Server(acceptor) => ServerConnection::new(acceptor.config()).map_err(broken)?.into(),
            Self::Client(config, name) => {
                ClientConnection::new(Arc::clone(config), name.clone()).map_err(broken)?.into()
            }
        };
        let socket = TcpStream::from(socket);
        let waits = socket.set_read_timeout(Some(SLICE)).and_then(|()| socket.set_write_timeout(Some(SLICE)));
        waits.map_err(|error| Error::io("a socket for TLS", error))?;
        let socket = Socket { socket, deadline: None };
        let half = Half(Arc::new(Mutex::new(Encrypted { connection, socket })));
        Ok(Channel::new(Box::new(half.clone()), Box::new(half), false, Peer::Remote))
    }
}

struct Encrypted {
    connection: Connection,
    socket: Socket,
}

/// A socket with a deadline over several reads, because each read of a handshake may bring a byte
/// in time.
struct Socket {
    socket: TcpStream,
    deadline: Option<Instant>,
}

impl Read for Socket {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(IoKind::TimedOut.into());
        }
        self.socket.read(space)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

impl Encrypted {
    fn with<T>(&mut self, work: impl FnOnce(&mut dyn ReadWrite) -> io::Result<T>) -> io::Result<T> {
        match &mut self.connection {
            Connection::Client(connection) => work(&mut Stream::new(connection, &mut self.socket)),
            Connection::Server(connection) => work(&mut Stream::new(connection, &mut self.socket)),
        }
    }
}

trait ReadWrite: Read + Write {}

impl<T: Read + Write> ReadWrite for T {}

impl Drop for Encrypted {
    fn drop(&mut self) {
        // Flushing would complete the handshake first, and must not wait for a peer that does not
        // complete it: the caller may hold a lock.
        if self.connection.is_handshaking() {
            return;
        }
        self.connection.send_close_notify();
        // The peer may have disconnected.
        let _ = self.with(|stream| stream.flush());
    }
}

/// One direction of a connection. Calls are lockstep, so the two directions never wait for each
/// other.
#[derive(Clone)]
struct Half(Arc<Mutex<Encrypted>>);

impl Half {
    fn lock(&self) -> MutexGuard<'_, Encrypted> {
        lock(&self.0)
    }
}

impl Read for Half {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        match self.lock().with(|stream| stream.read(space)) {
            // A peer may end without close_notify; the state machine decides whether it may end
            // here.
            Err(error) if error.kind() == IoKind::UnexpectedEof => Ok(0),
            read => read,
        }
    }
}

impl Write for Half {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.lock().with(|stream| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.lock().with(|stream| stream.flush())
    }
}

impl Source for Half {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // The system does not see bytes that are already decrypted.
        None
    }

    fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.lock().socket.deadline = deadline;
    }
}

impl Sink for Half {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
