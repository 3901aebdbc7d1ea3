//! The driver of one connection.

use std::future::pending;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use penstock_io::admission::Permit;
use penstock_quicx::ConnectionId;
use penstock_wire::later;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::yield_now;
use tokio::time::{sleep, sleep_until};

use super::state::{Phase, Shared, State};

/// The most consecutive reads and writes before other tasks run.
const TURNS: usize = 16;
/// How long the task stays awake for the next request of a sequential producer: sleeping and waking up would take as
/// long as the rest of a request.
const STAY_AWAKE: Duration = Duration::from_micros(20);
/// How long the peer of a closing connection may take to read the remaining output.
const LINGER: Duration = Duration::from_secs(10);

/// A connection while it is served. [`run`](Self::run) goes through these states:
///
/// ```text
///         the queue ends it            all is written, LINGER is over, the daemon cuts it, it breaks
///  serve ───────────────────▶ poll_rest ─────────────────────────────────────────────────────────────▶ closed
///    │    the daemon cuts it, it breaks, or it has no role and says nothing                              ▲
///    └───────────────────────────────────────────────────────────────────────────────────────────────────┘
/// ```
pub(super) struct Connection<S> {
    shared: Arc<Shared>,
    stream: S,
    id: ConnectionId,
    /// The permit, which counts the connection until it is dropped.
    _permit: Permit,
    name: Arc<str>,
    /// Whether TLS may still buffer written bytes, in any state.
    unflushed: bool,
    /// Until when the task stays awake for the next request.
    awake_until: Option<Instant>,
    /// When a byte was last read or written.
    last_activity: Instant,
}

/// The state after reading has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// The remaining output is written first.
    Drain,
    Close,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Make a connection; a `trusted` one may stop the daemon.
    pub(super) fn new(shared: &Arc<Shared>, stream: S, permit: Permit, name: &str, trusted: bool) -> Self {
        let id = shared.lock().queue.open(trusted);
        Self {
            shared: Arc::clone(shared),
            stream,
            id,
            _permit: permit,
            name: name.into(),
            unflushed: false,
            awake_until: None,
            last_activity: Instant::now(),
        }
    }

    /// Serve the connection to its end.
    pub(super) async fn run(mut self) {
        let ended = match self.serve().await {
            Ok(Next::Drain) => tokio::select! {
                ended = std::future::poll_fn(|cx| self.poll_rest(cx)) => ended,
                () = sleep(LINGER) => Err(io::ErrorKind::TimedOut.into()),
            },
            Ok(Next::Close) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            tracing::debug!(peer = %self.name, %error, "a connection broke");
        }
    }

    async fn serve(&mut self) -> io::Result<Next> {
        loop {
            let idle = self.shared.idle_timeout.map(|idle| later(self.last_activity, idle));
            let serving = std::future::poll_fn(|cx| self.poll(cx));
            let idle = async { if let Some(at) = idle { sleep_until(at.into()).await } else { pending().await } };
            tokio::select! {
                biased;
                served = serving => return served,
                () = idle => {}
            }
            if self.is_idle() {
                tracing::info!(peer = %self.name, "an idle connection was closed");
                return Ok(Next::Close);
            }
        }
    }

    /// Read and write until reading ends.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Next>> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        state.watch(self.id, &self.name, cx.waker());
        // The last phase begins under this lock, so one check is enough.
        if shared.phase() == Phase::Ended {
            return Poll::Ready(Ok(Next::Close));
        }
        for _ in 0..TURNS {
            self.write(cx, &mut state)?;
            if state.queue.is_ending(self.id) {
                return Poll::Ready(Ok(Next::Drain));
            }
            let mut progress = false;
            if state.queue.wants_input(self.id) {
                let state = &mut *state;
                let mut read = ReadBuf::new(&mut state.scratch);
                if Pin::new(&mut self.stream).poll_read(cx, &mut read)?.is_ready() {
                    let (now, bytes) = (Instant::now(), read.filled());
                    self.last_activity = now;
                    if bytes.is_empty() {
                        state.queue.handle_end(now, self.id);
                    } else {
                        state.queue.handle_input(now, self.id, bytes);
                    }
                    shared.settle(state, Some(self.id));
                    self.awake_until = (shared.cores > 1 && state.queue.is_in_turn(self.id)).then(|| now + STAY_AWAKE);
                    progress = true;
                }
            }
            // All possible output is written: wait for input.
            if !progress {
                self.stay_awake(cx);
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Return whether the connection has no role and was silent for too long. A connection with a
    /// role is checked again after the same time.
    fn is_idle(&mut self) -> bool {
        let Some(idle) = self.shared.idle_timeout else { return false };
        if self.last_activity.elapsed() < idle {
            return false;
        }
        let idle = self.shared.lock().queue.has_no_role(self.id);
        self.last_activity = Instant::now();
        idle
    }

    /// Yield to other tasks and poll the system once, instead of sleeping until an event.
    fn stay_awake(&mut self, cx: &mut Context<'_>) {
        if self.awake_until.take_if(|until| Instant::now() >= *until).is_none() && self.awake_until.is_some() {
            let _ = pin!(yield_now()).poll(cx);
        }
    }

    /// Write the output, or as much as the system accepts.
    fn write(&mut self, cx: &mut Context<'_>, state: &mut State) -> io::Result<()> {
        loop {
            let bytes = state.queue.poll_transmit(self.id);
            if bytes.is_empty() {
                break;
            }
            match Pin::new(&mut self.stream).poll_write(cx, bytes) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(written) => {
                    self.last_activity = Instant::now();
                    state.queue.handle_written(self.last_activity, self.id, written?);
                    self.shared.settle(state, Some(self.id));
                    self.unflushed = true;
                }
                Poll::Pending => break,
            }
        }
        if self.unflushed && Pin::new(&mut self.stream).poll_flush(cx)?.is_ready() {
            self.unflushed = false;
        }
        Ok(())
    }

    /// Write the remaining output, including answers that wait for the disk, and close.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        state.watch(self.id, &self.name, cx.waker());
        if shared.phase() == Phase::Ended {
            return Poll::Ready(Ok(()));
        }
        self.write(cx, &mut state)?;
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

#[cfg(test)]
mod tests {
    use penstock_io::admission::{Admission, Config};
    use penstock_io::runtime::block_on;
    use penstock_quicx::{Frame, Queue, QueueConfig};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::task::JoinHandle;

    use super::*;

    fn served(idle_timeout: Option<Duration>) -> (Arc<Shared>, DuplexStream, JoinHandle<()>) {
        let queue = Queue::new(Instant::now(), QueueConfig::default()).unwrap();
        let admission = Admission::new(Config::new("a test", 1), Arc::default()).unwrap();
        let permit = admission.admit(None).unwrap();
        let shared = Arc::new(Shared::new(queue, admission, idle_timeout));
        let (stream, peer) = duplex(1 << 10);
        let connection = Connection::new(&shared, stream, permit, "peer", false);
        (shared, peer, tokio::spawn(connection.run()))
    }

    fn stats() -> Vec<u8> {
        let mut bytes = Vec::new();
        Frame::Stats.encode(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_connection_whose_peer_has_finished_is_drained_and_closed() {
        block_on(async {
            let (shared, mut peer, running) = served(None);
            peer.write_all(&stats()).await.unwrap();
            peer.shutdown().await.unwrap();
            let mut answer = Vec::new();
            peer.read_to_end(&mut answer).await.unwrap();
            assert!(!answer.is_empty(), "the answer comes before the end");
            running.await.unwrap();
            assert_eq!((shared.lock().queue.connections(), shared.admission.open()), (0, 0));
        })
        .unwrap();
    }

    #[test]
    fn a_connection_that_is_cut_is_closed_at_once() {
        block_on(async {
            let (shared, mut peer, running) = served(None);
            peer.write_all(&stats()).await.unwrap();
            peer.read_u8().await.unwrap();
            shared.cut();
            running.await.unwrap();
            assert_eq!(shared.lock().queue.connections(), 0);
        })
        .unwrap();
    }

    #[test]
    fn only_a_connection_without_a_role_is_closed_for_its_silence() {
        block_on(async {
            let idle = Duration::from_millis(100);
            let (_shared, _peer, running) = served(Some(idle));
            running.await.unwrap();

            let (shared, mut worker, running) = served(Some(idle));
            let mut ready = Vec::new();
            Frame::Ready.encode(&mut ready).unwrap();
            worker.write_all(&ready).await.unwrap();
            sleep(3 * idle).await;
            assert!(!running.is_finished());
            assert_eq!(shared.lock().queue.connections(), 1);
        })
        .unwrap();
    }
}
