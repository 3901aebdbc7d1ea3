//! The accept loop, which must survive everything that a client does.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::time::sleep;

use super::counters::count;
use super::permits::{Admission, Permit, Refused, WhenFull};
use super::throttle::{LogThrottle, Problem};
use super::{RESERVED, descriptors};
use crate::Result;
use crate::listener::Stream;
use crate::sync::lock;
use crate::tls::Acceptor;

/// How long to wait when the system has no more sockets.
const PAUSE: Duration = Duration::from_millis(100);
/// How often the certificate's files are checked for changes.
const RELOAD: Duration = Duration::from_secs(5);
/// TCP keep-alive: the silence before the first probe, and the interval of further probes.
const KEEP_ALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(60)).with_interval(Duration::from_secs(15));

/// A socket that accepts connections.
pub(crate) trait Accept {
    /// Return the next connection and its other end, which has no address over a Unix socket.
    fn accept(&self) -> impl Future<Output = io::Result<(Stream, Option<SocketAddr>)>> + Send;
}

/// Send small frames without delay, and detect a peer whose machine has died. Options that the system rejects are
/// skipped.
fn prepare(stream: &Stream) {
    if let Stream::Tcp(stream) = stream {
        let _ = stream.set_nodelay(true);
        let _ = SockRef::from(stream).set_tcp_keepalive(&KEEP_ALIVE);
    }
}

/// Return whether only this connection has failed, so that the next one may be accepted immediately (accept(2), "Error
/// handling").
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
    /// Accept connections as long as this future is polled, and pass each admitted one to `serve` with its permit.
    ///
    /// An error of the listener does not end the loop. If the system is out of descriptors or
    /// memory, log one line per interval, and retry accept after a pause until it succeeds.
    pub(crate) async fn accept(
        self: &Arc<Self>,
        listener: &impl Accept,
        mut serve: impl FnMut(Stream, Option<SocketAddr>, Permit),
    ) -> std::convert::Infallible {
        let what = self.config().what;
        let mut throttle = LogThrottle::default();
        loop {
            match self.config().when_full {
                WhenFull::Close => {}
                WhenFull::Wait => self.capacity().await,
            }
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    count(&self.counters().accept_failures);
                    if !is_of_the_peer(&error) {
                        if throttle.allows(Problem::Accept) {
                            tracing::warn!(%error, what, "accept failed; it is retried until it succeeds");
                        }
                        sleep(PAUSE).await;
                    }
                    continue;
                }
            };
            prepare(&stream);
            let address = peer.map(|peer| peer.ip());
            let admitted = if descriptors::is_in_reserve(&stream, RESERVED) {
                count(&self.counters().descriptors);
                Err(Refused::Descriptors)
            } else {
                self.admit(address)
            };
            match admitted {
                Ok(permit) => serve(stream, peer, permit),
                Err(refused) => {
                    if throttle.allows(refused.into()) {
                        tracing::warn!(
                            peer = address.map(tracing::field::display),
                            %refused, what, "a connection was refused; further refusals are not logged for a while"
                        );
                    }
                    // A flood of refused connections must not starve other tasks.
                    tokio::task::yield_now().await;
                }
            }
        }
    }
}

impl Admission {
    /// Pause after an admitted connection that this process cannot serve, for example because the
    /// system has no thread for it. Return whether to log that: once per interval while the problem
    /// persists.
    pub async fn back_off(&self) -> bool {
        let allows = lock(&self.unserved).allows(Problem::Unserved);
        sleep(PAUSE).await;
        allows
    }
}

impl Admission {
    /// Read the files of a server's certificate again if they have changed; return whether they had. Blocks.
    pub fn reload(&self, acceptor: &Acceptor) -> Result<bool> {
        let what = self.config().what;
        let reloaded = acceptor.reload();
        match &reloaded {
            Ok(true) => {
                count(&self.counters().reloads);
                tracing::info!(fingerprint = %acceptor.fingerprint(), what, "the certificate was reloaded");
            }
            Ok(false) => {}
            Err(error) => {
                count(&self.counters().reload_failures);
                tracing::warn!(%error, what, "the new certificate could not be loaded; the old one stays in use");
            }
        }
        reloaded
    }

    /// Read the files of a server's certificate again after each change, as long as this future is
    /// polled.
    pub async fn reload_certificate(self: &Arc<Self>, acceptor: &Arc<Acceptor>) -> std::convert::Infallible {
        loop {
            sleep(RELOAD).await;
            let (admission, acceptor) = (Arc::clone(self), Arc::clone(acceptor));
            // `reload` has logged the error, and the next round tries again.
            let _ = tokio::task::spawn_blocking(move || admission.reload(&acceptor)).await;
        }
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full(_) => Self::Full,
            Refused::Address(_) => Self::Address,
            Refused::Descriptors => Self::Descriptors,
        }
    }
}
