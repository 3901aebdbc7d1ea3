//! One connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use penstock_quicx::ConnectionId;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::sleep;

use super::state::Shared;
use super::thrown;

/// Reads and writes in a row before others have their turn.
const TURNS: usize = 16;
/// How long a connection that ends has to take what is left for it.
const LINGER: Duration = Duration::from_secs(10);

/// A connection as long as it is served.
pub(super) struct Connection<S> {
    shared: Arc<Shared>,
    stream: S,
    id: ConnectionId,
    name: Arc<str>,
    /// Written, and perhaps kept by TLS.
    unflushed: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Those who are trusted may stop the daemon.
    pub(super) fn new(shared: &Arc<Shared>, stream: S, name: &str, trusted: bool) -> Self {
        let id = shared.lock().queue.open(trusted);
        Self { shared: Arc::clone(shared), stream, id, name: name.into(), unflushed: false }
    }

    /// Serves it to its end.
    pub(super) async fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let mut ending = false;
        let served = tokio::select! {
            served = std::future::poll_fn(|cx| self.poll(cx, &mut ending)) => served,
            () = thrown(&shared.cut) => Ok(()),
        };
        let ended = match served {
            Ok(()) if ending => tokio::select! {
                ended = std::future::poll_fn(|cx| self.poll_rest(cx)) => ended,
                () = sleep(LINGER) => Err(io::ErrorKind::TimedOut.into()),
                () = thrown(&shared.cut) => Ok(()),
            },
            served @ (Ok(()) | Err(_)) => served,
        };
        if let Err(error) = ended {
            tracing::debug!(peer = %self.name, %error, "a connection broke");
        }
    }

    /// Reads and writes, until nothing more is read.
    fn poll(&mut self, cx: &mut Context<'_>, ending: &mut bool) -> Poll<io::Result<()>> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        state.watch(self.id, &self.name, cx.waker());
        for _ in 0..TURNS {
            let mut progress = self.write(cx, &mut state)?;
            if state.queue.is_ending(self.id) {
                *ending = true;
                return Poll::Ready(Ok(()));
            }
            if state.queue.wants_input(self.id) {
                let state = &mut *state;
                let mut read = ReadBuf::new(&mut state.scratch);
                if Pin::new(&mut self.stream).poll_read(cx, &mut read)?.is_ready() {
                    let (now, octets) = (Instant::now(), read.filled());
                    if octets.is_empty() {
                        state.queue.handle_end(now, self.id);
                    } else {
                        state.queue.handle_input(now, self.id, octets);
                    }
                    shared.settle(state, Some(self.id));
                    progress = true;
                }
            }
            if !progress {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes what there is; says whether that was something.
    fn write(&mut self, cx: &mut Context<'_>, state: &mut super::state::State) -> io::Result<bool> {
        let mut progress = false;
        loop {
            let octets = state.queue.poll_transmit(self.id);
            if octets.is_empty() {
                break;
            }
            match Pin::new(&mut self.stream).poll_write(cx, octets) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(written) => {
                    state.queue.handle_written(Instant::now(), self.id, written?);
                    self.shared.settle(state, Some(self.id));
                    (progress, self.unflushed) = (true, true);
                }
                Poll::Pending => break,
            }
        }
        if self.unflushed && Pin::new(&mut self.stream).poll_flush(cx)?.is_ready() {
            self.unflushed = false;
        }
        Ok(progress)
    }

    /// Writes what is left, also what still waits for the disk, and closes.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        state.watch(self.id, &self.name, cx.waker());
        while self.write(cx, &mut state)? {}
        if !state.queue.poll_transmit(self.id).is_empty() || self.unflushed {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S> Drop for Connection<S> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.queue.handle_closed(Instant::now(), self.id);
        state.forget(self.id);
        self.shared.settle(&mut state, None);
    }
}
