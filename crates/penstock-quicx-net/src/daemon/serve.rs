//! One connection.

use std::future::pending;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use penstock_io::admission::Permit;
use penstock_quicx::ConnectionId;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::yield_now;
use tokio::time::{sleep, sleep_until};

use super::state::{Shared, State};

/// Reads and writes in a row before others have their turn.
const TURNS: usize = 16;
/// How long a producer that asks one after the other is waited for awake: to sleep and to be woken would take as long as all the
/// rest of an answer.
const AWAKE: Duration = Duration::from_micros(20);
/// How long a connection that ends has to take what is left for it.
const LINGER: Duration = Duration::from_secs(10);

/// A connection as long as it is served.
pub(super) struct Connection<S> {
    shared: Arc<Shared>,
    stream: S,
    id: ConnectionId,
    /// Its place among the connections.
    _permit: Permit,
    name: Arc<str>,
    /// Written, and perhaps kept by TLS.
    unflushed: bool,
    /// Until when its next request is waited for awake.
    awake: Option<Instant>,
    /// When a byte came or went last.
    moved: Instant,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Those who are trusted may stop the daemon.
    pub(super) fn new(shared: &Arc<Shared>, stream: S, permit: Permit, name: &str, trusted: bool) -> Self {
        let id = shared.lock().queue.open(trusted);
        Self {
            shared: Arc::clone(shared),
            stream,
            id,
            _permit: permit,
            name: name.into(),
            unflushed: false,
            awake: None,
            moved: Instant::now(),
        }
    }

    /// Serves it to its end.
    pub(super) async fn run(mut self) {
        let mut ending = false;
        let served = loop {
            let idle = self.shared.idle_timeout.map(|idle| self.moved + idle);
            let serving = std::future::poll_fn(|cx| self.poll(cx, &mut ending));
            let idle = async { if let Some(at) = idle { sleep_until(at.into()).await } else { pending().await } };
            tokio::select! {
                biased;
                served = serving => break served,
                () = idle => {}
            }
            if self.is_idle() {
                tracing::info!(peer = %self.name, "a connection that says nothing was closed");
                return;
            }
        };
        let ended = match served {
            Ok(()) if ending => tokio::select! {
                ended = std::future::poll_fn(|cx| self.poll_rest(cx)) => ended,
                () = sleep(LINGER) => Err(io::ErrorKind::TimedOut.into()),
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
            if state.cut {
                return Poll::Ready(Ok(()));
            }
            self.write(cx, &mut state)?;
            if state.queue.is_ending(self.id) {
                *ending = true;
                return Poll::Ready(Ok(()));
            }
            let mut progress = false;
            if state.queue.wants_input(self.id) {
                let state = &mut *state;
                let mut read = ReadBuf::new(&mut state.scratch);
                if Pin::new(&mut self.stream).poll_read(cx, &mut read)?.is_ready() {
                    let (now, bytes) = (Instant::now(), read.filled());
                    self.moved = now;
                    if bytes.is_empty() {
                        state.queue.handle_end(now, self.id);
                    } else {
                        state.queue.handle_input(now, self.id, bytes);
                    }
                    shared.settle(state, Some(self.id));
                    self.awake = (shared.cores > 1 && state.queue.is_in_turn(self.id)).then(|| now + AWAKE);
                    progress = true;
                }
            }
            // All is written that can be: nothing is left to do before something comes.
            if !progress {
                self.stay_awake(cx);
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Whether it has been silent for too long. One that nobody needs to hear of is looked at again after as long a silence.
    fn is_idle(&mut self) -> bool {
        let Some(idle) = self.shared.idle_timeout else { return false };
        if self.moved.elapsed() < idle {
            return false;
        }
        let idle = self.shared.lock().queue.has_no_role(self.id);
        self.moved = Instant::now();
        idle
    }

    /// Comes again once all others had their turn and the system was asked for news, instead of sleeping until there is some.
    fn stay_awake(&mut self, cx: &mut Context<'_>) {
        if self.awake.take_if(|until| Instant::now() >= *until).is_none() && self.awake.is_some() {
            let _ = pin!(yield_now()).poll(cx);
        }
    }

    /// Writes what there is, or as much of it as the system takes.
    fn write(&mut self, cx: &mut Context<'_>, state: &mut State) -> io::Result<()> {
        loop {
            let bytes = state.queue.poll_transmit(self.id);
            if bytes.is_empty() {
                break;
            }
            match Pin::new(&mut self.stream).poll_write(cx, bytes) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(written) => {
                    self.moved = Instant::now();
                    state.queue.handle_written(self.moved, self.id, written?);
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

    /// Writes what is left, also what still waits for the disk, and closes.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        state.watch(self.id, &self.name, cx.waker());
        if state.cut {
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
