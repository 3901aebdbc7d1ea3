//! The socket of a connection, which other tasks may query: whether the writer has closed it, and whether the last
//! acknowledgement has reached it (decision 12).

use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{sleep, timeout};

#[cfg(target_os = "linux")]
use super::confirmed::unconfirmed;

/// How long the system waits for the peer's TCP to confirm an acknowledgement. A writer waits
/// longer before it gives up a connection, so the connection is known to have broken before the
/// writer reconnects.
#[cfg(target_os = "linux")]
const UNCONFIRMED: Duration = Duration::from_secs(15);

/// After this time everything written has been confirmed, or the socket has failed: the system measures the time from
/// its first retransmission, which is at most a few seconds later.
const CONFIRMED: Duration = Duration::from_secs(30);

/// A socket that one task reads and writes.
#[derive(Debug)]
pub(super) struct Link {
    read: OwnedReadHalf,
    socket: Socket,
}

/// The same socket, for queries.
#[derive(Debug, Clone)]
pub(super) struct Socket(Arc<OwnedWriteHalf>);

/// A socket that may be closed already.
#[derive(Debug, Clone)]
pub(super) struct WeakSocket(std::sync::Weak<OwnedWriteHalf>);

impl Link {
    pub(super) fn new(stream: TcpStream) -> Self {
        #[cfg(target_os = "linux")]
        if let Err(error) = SockRef::from(&stream).set_tcp_user_timeout(Some(UNCONFIRMED)) {
            tracing::debug!(%error, "cannot set TCP_USER_TIMEOUT; a lost connection will be detected later");
        }
        let (read, write) = stream.into_split();
        Self { read, socket: Socket(Arc::new(write)) }
    }

    pub(super) fn socket(&self) -> Socket {
        self.socket.clone()
    }
}

impl AsyncRead for Link {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.read).poll_read(context, into)
    }
}

impl AsyncWrite for Link {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let stream = self.socket.stream();
        loop {
            ready!(stream.poll_write_ready(context))?;
            match stream.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.socket.finish())
    }
}

impl Socket {
    fn stream(&self) -> &TcpStream {
        (*self.0).as_ref()
    }

    pub(super) fn downgrade(&self) -> WeakSocket {
        WeakSocket(Arc::downgrade(&self.0))
    }

    /// Send FIN directly, without the closing messages of a protocol above.
    pub(super) fn finish(&self) -> io::Result<()> {
        SockRef::from(self.stream()).shutdown(Shutdown::Write)
    }

    /// Return whether the writer closes its end within a time.
    pub(super) async fn is_gone_within(&self, limit: Duration) -> bool {
        is_true_within(limit, || !gone(std::slice::from_ref(self)).is_empty()).await
    }

    /// Return whether both ends are closed within a time, after each end has received everything. A
    /// writer that closes its end without reading the last acknowledgement resets the connection.
    pub(super) async fn is_settled_within(&self, limit: Duration) -> bool {
        let settled = is_true_within(limit, || self.stream().peer_addr().is_err()).await;
        settled && matches!(self.stream().take_error(), Ok(None))
    }

    /// Return whether the peer's TCP has confirmed all sent bytes, FIN included; `last` is the time
    /// of the last write. The query is repeated for a while, because a confirmation may be in
    /// flight.
    pub(super) async fn is_confirmed_within(&self, limit: Duration, last: Instant) -> bool {
        let stream = self.stream();
        let (Ok(local), Ok(peer)) = (stream.local_addr(), stream.peer_addr()) else { return false };
        let confirmed = match unconfirmed(local, peer) {
            Some(0) => true,
            Some(_) => is_true_within(limit, || unconfirmed(local, peer) == Some(0)).await,
            None => cfg!(target_os = "linux") && last.elapsed() > CONFIRMED,
        };
        confirmed && matches!(stream.take_error(), Ok(None))
    }
}

impl WeakSocket {
    /// Return the socket; `None` if it is closed.
    pub(super) fn upgrade(&self) -> Option<Socket> {
        self.0.upgrade().map(Socket)
    }
}

/// Poll a condition, with increasing pauses.
async fn is_true_within(limit: Duration, mut is_true: impl FnMut() -> bool) -> bool {
    let looking = async {
        let mut pause = Duration::from_micros(500);
        while !is_true() {
            sleep(pause).await;
            pause = (2 * pause).min(Duration::from_millis(50));
        }
    };
    timeout(limit, looking).await.is_ok()
}

/// Return the indices of the sockets that their writers have closed. The system reports this even
/// before all received bytes have been read.
#[cfg(target_os = "linux")]
pub(super) fn gone(sockets: &[Socket]) -> Vec<usize> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut looked: Vec<_> = sockets.iter().map(|socket| PollFd::new(socket.stream(), PollFlags::RDHUP)).collect();
    if poll(&mut looked, Some(&at_once)).unwrap_or(0) == 0 {
        return Vec::new();
    }
    looked.iter().enumerate().filter(|(_, looked)| !looked.revents().is_empty()).map(|(at, _)| at).collect()
}

/// Other systems do not report unconfirmed bytes.
#[cfg(not(target_os = "linux"))]
fn unconfirmed(_: std::net::SocketAddr, _: std::net::SocketAddr) -> Option<u32> {
    None
}

/// On other systems the end is detected only by reading.
#[cfg(not(target_os = "linux"))]
pub(super) fn gone(_: &[Socket]) -> Vec<usize> {
    Vec::new()
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream as Writer;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    async fn connected() -> (Writer, Link) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let writer = Writer::connect(listener.local_addr().unwrap()).unwrap();
        (writer, Link::new(listener.accept().await.unwrap().0))
    }

    #[tokio::test]
    async fn an_end_is_known_before_everything_is_read() {
        let (mut writer, mut link) = connected().await;
        writer.write_all(b"2W\0\0\0\x01").unwrap();
        let mut bytes = [0; 3];
        link.read_exact(&mut bytes).await.unwrap();
        let (_other, still_open) = connected().await;
        assert_eq!(gone(&[still_open.socket(), link.socket()]), Vec::<usize>::new());
        drop(writer);
        assert!(link.socket().is_gone_within(SOON).await);
        assert_eq!(gone(&[still_open.socket(), link.socket()]), [1]);
        link.read_exact(&mut bytes).await.unwrap();
    }

    #[tokio::test]
    async fn a_writer_that_has_read_everything_leaves_a_settled_socket() {
        // The writer waits for the receiver to close, or closes its own end first.
        for half_closed in [false, true] {
            let (mut writer, mut link) = connected().await;
            if half_closed {
                writer.shutdown(Shutdown::Write).unwrap();
            }
            link.write_all(b"2A\0\0\0\x01").await.unwrap();
            let mut ack = [0; 6];
            writer.read_exact(&mut ack).unwrap();
            if !half_closed {
                drop(writer);
            }
            assert_eq!(link.read(&mut ack).await.unwrap(), 0);
            assert!(!link.socket().is_settled_within(Duration::from_millis(20)).await);
            link.shutdown().await.unwrap();
            assert!(link.socket().is_settled_within(SOON).await);
        }
    }

    #[tokio::test]
    async fn a_writer_that_has_not_read_everything_leaves_none() {
        // The writer has gone before the acknowledgement arrives, or has not read it.
        for answered in [false, true] {
            let (writer, mut link) = connected().await;
            if answered {
                link.write_all(b"2A\0\0\0\x01").await.unwrap();
                writer.set_nonblocking(false).unwrap();
                let mut ack = [0; 6];
                assert_eq!(writer.peek(&mut ack).unwrap(), 6);
            }
            drop(writer);
            let mut rest = [0; 6];
            let read = link.read(&mut rest).await;
            if answered {
                assert_eq!(read.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
                continue;
            }
            assert_eq!(read.unwrap(), 0);
            link.write_all(b"2A\0\0\0\x01").await.unwrap();
            let _ = link.shutdown().await;
            assert!(!link.socket().is_settled_within(SOON).await);
        }
    }
}
