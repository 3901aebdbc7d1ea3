//! The loop that takes connections, which nothing that a client does may end.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::counters::count;
use super::permits::{Admission, Permit, Refused, WhenFull};
use super::{RESERVED, descriptors};

/// How long to wait when the system has no more sockets.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a trouble that goes on is not told again.
const SAY_AGAIN: Duration = Duration::from_secs(10);
/// After so long a silence the system asks whether the other end is there, and so often it asks again.
const KEEP_ALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(60)).with_interval(Duration::from_secs(15));

/// What connections come from.
pub trait Listen {
    /// A connection.
    type Stream;
    /// Who connects.
    type Peer;

    /// The next connection.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, Self::Peer)>> + Send;

    /// The address whose share a connection takes; none for one of this machine without an address.
    fn address(peer: &Self::Peer) -> Option<IpAddr>;

    /// Whether the connection has a descriptor that is kept for files.
    fn is_in_reserve(stream: &Self::Stream) -> bool;
}

impl Listen for TcpListener {
    type Stream = TcpStream;
    type Peer = SocketAddr;

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = Self::accept(self).await?;
        prepare(&stream);
        Ok((stream, peer))
    }

    fn address(peer: &SocketAddr) -> Option<IpAddr> {
        Some(peer.ip())
    }

    fn is_in_reserve(stream: &TcpStream) -> bool {
        descriptors::is_in_reserve(stream, RESERVED)
    }
}

impl Listen for tokio::net::UnixListener {
    type Stream = tokio::net::UnixStream;
    type Peer = tokio::net::unix::SocketAddr;

    async fn accept(&self) -> io::Result<(Self::Stream, Self::Peer)> {
        Self::accept(self).await
    }

    fn address(_: &Self::Peer) -> Option<IpAddr> {
        None
    }

    fn is_in_reserve(stream: &Self::Stream) -> bool {
        descriptors::is_in_reserve(stream, RESERVED)
    }
}

/// Small frames go at once, and a peer whose machine is gone is noticed. What the system cannot do is left.
fn prepare(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(stream).set_tcp_keepalive(&KEEP_ALIVE);
}

/// Whether only this connection has failed, so that the next may be taken at once (accept(2), "Error handling").
fn is_of_the_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
            | io::ErrorKind::TimedOut
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
    )
}

impl Admission {
    /// Takes connections as long as this is polled, and gives each that is let in to `serve` with its place.
    ///
    /// No error of the listener ends it: where the system has no descriptors or no memory left it says so once, and tries
    /// again after a pause until it has.
    pub async fn accept<L: Listen>(
        self: &Arc<Self>,
        listener: &L,
        mut serve: impl FnMut(L::Stream, L::Peer, Permit),
    ) -> std::convert::Infallible {
        let what = self.config().what;
        let mut failing = Failing::default();
        loop {
            match self.config().when_full {
                WhenFull::Close => {}
                WhenFull::Wait => self.room().await,
            }
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    count(&self.counters().accept_failures);
                    if !is_of_the_peer(&error) {
                        if failing.says(Trouble::Accept) {
                            tracing::warn!(%error, what, "no connection can be taken; it is tried again until one can");
                        }
                        sleep(PAUSE).await;
                    }
                    continue;
                }
            };
            let address = L::address(&peer);
            let admitted = if L::is_in_reserve(&stream) {
                count(&self.counters().descriptors);
                Err(Refused::Descriptors)
            } else {
                self.admit(address)
            };
            match admitted {
                Ok(permit) => serve(stream, peer, permit),
                Err(refused) => {
                    if failing.says(refused.into()) {
                        tracing::warn!(
                            peer = address.map(tracing::field::display),
                            %refused, what, "a connection too many was closed, and so are others as long as this holds"
                        );
                    }
                    // A flood that is refused must not keep others from their turn.
                    tokio::task::yield_now().await;
                }
            }
        }
    }
}

/// Why connections are not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    Accept,
    Full,
    Address,
    Descriptors,
}

impl From<Refused> for Trouble {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full(_) => Self::Full,
            Refused::Address(_) => Self::Address,
            Refused::Descriptors => Self::Descriptors,
        }
    }
}

/// Says each trouble once in a while as long as it holds: a log that a flood can fill is one more thing to attack.
#[derive(Debug, Default)]
struct Failing([Option<Instant>; 4]);

impl Failing {
    fn says(&mut self, trouble: Trouble) -> bool {
        let Some(said) = self.0.get_mut(trouble as usize) else { return false };
        let says = said.is_none_or(|said| said.elapsed() >= SAY_AGAIN);
        if says {
            *said = Some(Instant::now());
        }
        says
    }
}
