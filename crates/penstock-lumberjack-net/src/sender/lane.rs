//! One connection at a time to one of the hosts.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use penstock_io::DriverError as _;
use penstock_io::sync::lock;
use penstock_lumberjack::{Client, Window, encoder};
use penstock_wire::Backoff;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, sleep_until, timeout_at};
use tokio_rustls::TlsConnector;

use super::context::Context;
use super::host::Host;
use crate::{Error, Result};

/// The time limit for connecting to a host, including the handshake.
const CONNECT: Duration = Duration::from_secs(10);
/// The pause after no host could be reached: the first and the longest one.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
const NO_DEADLINE: Duration = Duration::from_secs(3_600);

/// The state machine of a writer, and its connection.
#[derive(Debug)]
pub(super) struct Lane {
    /// The host that is tried first.
    first: usize,
    state: Mutex<State>,
    /// Notified when there are events to send, or the sender closes.
    pub(super) work: Notify,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) client: Client,
    /// The error that ended the lane.
    pub(super) failed: Option<Error>,
    /// Whether a caller waits for the open window.
    pub(super) wanted: bool,
}

type Compressing = FuturesOrdered<JoinHandle<Result<Bytes>>>;

impl Lane {
    pub(super) fn new(first: usize, client: Client) -> Self {
        Self { first, state: Mutex::new(State { client, failed: None, wanted: false }), work: Notify::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Connect and send until the sender is closed and all events are acknowledged, or until it
    /// gives up.
    pub(super) async fn drive(self: Arc<Self>, context: Arc<Context>) {
        let mut host = self.first;
        let (mut backoff, mut tried) = (Backoff::new(BACKOFF.0, BACKOFF.1), 0);
        let mut progress = Instant::now();
        let mut acknowledged = 0;
        loop {
            // No connection is opened before there are events to send.
            while self.lock().client.unacknowledged() == 0 {
                if context.is_closed() {
                    return;
                }
                self.work.notified().await;
                progress = Instant::now();
            }
            let ended = self.attempt(&context, host).await;
            let now = Instant::now();
            let done = {
                let mut state = self.lock();
                state.client.handle_disconnect(now);
                std::mem::replace(&mut acknowledged, state.client.acknowledged().0) < acknowledged
            };
            context.room.notify_waiters();
            let error = match ended {
                Ok(()) => continue,
                Err(error) => error,
            };
            if done {
                backoff.reset();
                (tried, progress) = (0, now);
            }
            tracing::warn!(host = context.host(host), %error, "a connection to a receiver ended");
            if context.options.give_up.is_some_and(|limit| progress.elapsed() >= limit) || context.is_abandoned() {
                self.lock().failed = Some(error);
                context.room.notify_waiters();
                return;
            }
            host = (host + 1) % context.options.hosts.len().max(1);
            tried += 1;
            if tried % context.options.hosts.len().max(1) == 0 {
                tokio::select! {
                    () = sleep(backoff.advance_by(fastrand::f64())) => {}
                    () = context.abandoned() => {}
                }
            }
        }
    }

    /// Serve one connection; return `Ok` if it ended because there is nothing left to send.
    async fn attempt(&self, context: &Context, host: usize) -> Result<()> {
        let name = context.host(host);
        let due = tokio::time::Instant::now() + CONNECT;
        let late = || Error::deadline(format!("{name} did not answer within {} s", CONNECT.as_secs()));
        let connecting = async {
            let stream = TcpStream::connect(name).await;
            let stream = stream.map_err(|error| Error::io(format!("cannot connect to {name}"), error))?;
            stream.set_nodelay(true).map_err(|error| Error::io(name, error))?;
            Ok::<_, Error>(stream)
        };
        let stream = timeout_at(due, connecting).await.unwrap_or_else(|_| Err(late()))?;
        let host = Host::new(name, context.options.tls.as_ref());
        let Some(tls) = &context.tls else { return self.serve(context, host, stream).await };
        let connector = TlsConnector::from(Arc::clone(tls));
        let handshake = connector.connect(context.server_name(name)?, stream);
        let stream = timeout_at(due, handshake).await.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
        let stream = stream.map_err(|error| host.handshake_error(error))?;
        self.serve(context, host, stream).await
    }

    async fn serve<S>(&self, context: &Context, mut host: Host<'_>, stream: S) -> Result<()>
    where
        S: AsyncRead + AsyncWrite + Send,
    {
        let (mut reading, mut writing) = tokio::io::split(stream);
        let mut compressing = Compressing::new();
        let mut output: VecDeque<Bytes> = VecDeque::new();
        let mut input = BytesMut::new();
        loop {
            let due = match self.next(context, &mut compressing, &mut output)? {
                Next::Due(due) => due,
                Next::Done => {
                    // An error means that the receiver has closed its end, which it may: all events
                    // are acknowledged.
                    let _ = writing.shutdown().await;
                    return Ok(());
                }
            };
            let front = output.front_mut();
            tokio::select! {
                biased;
                read = reading.read_buf(&mut input) => {
                    if read.map_err(|error| host.connection_error(&error))? == 0 {
                        return Err(host.closed_early());
                    }
                    host.on_receive(&input)?;
                    let taken = self.lock().client.handle_input(Instant::now(), &input);
                    input.clear();
                    taken.map_err(|error| host.protocol_error(error))?;
                    context.room.notify_waiters();
                }
                written = write(&mut writing, front) => {
                    written.map_err(|error| host.connection_error(&error))?;
                    if output.front().is_some_and(Bytes::is_empty) {
                        output.pop_front();
                    }
                    if output.is_empty() {
                        writing.flush().await.map_err(|error| host.connection_error(&error))?;
                    }
                }
                Some(compressed) = compressing.next(), if !compressing.is_empty() => {
                    output.push_back(compressed.map_err(Error::task)??);
                }
                () = self.work.notified() => {}
                () = context.abandoned() => return Err(Error::deadline("the sender was closed".into())),
                () = sleep_until(due.into()) => {
                    let waited = self.lock().client.handle_timeout(Instant::now());
                    waited.map_err(|error| host.protocol_error(error))?;
                }
            }
        }
    }

    /// Take the windows that may be sent. An open window is sent when none is in flight, so that a
    /// few events need not wait.
    fn next(&self, context: &Context, compressing: &mut Compressing, output: &mut VecDeque<Bytes>) -> Result<Next> {
        let now = Instant::now();
        let mut state = self.lock();
        loop {
            let idle = state.client.poll_timeout().is_none();
            if (idle || state.wanted) && state.client.wants_events() {
                state.client.flush();
                state.wanted = false;
            }
            let mut window = BytesMut::new();
            if !state.client.poll_transmit(now, &mut window)? {
                break;
            }
            let (version, level) = (context.options.client.version, context.level);
            if level == 0 {
                output.push_back(window.freeze());
                continue;
            }
            let window = window.freeze();
            // Not on the IO thread: compression would block other tasks, and several windows can be
            // compressed in parallel.
            compressing.push_back(spawn_blocking(move || {
                let (head, frames) = (window.slice(..Window::LENGTH.min(window.len())), window.get(Window::LENGTH..));
                let frames = frames.unwrap_or_default();
                let mut out = BytesMut::with_capacity(frames.len() / 4);
                out.extend_from_slice(&head);
                encoder::compress(version, frames, level, &mut out);
                Ok(out.freeze())
            }));
        }
        let nothing = state.client.unacknowledged() == 0;
        if nothing && context.is_closed() {
            return Ok(Next::Done);
        }
        Ok(Next::Due(state.client.poll_timeout().unwrap_or(now + NO_DEADLINE)))
    }
}

enum Next {
    Due(Instant),
    Done,
}

/// Write some of the bytes; without any bytes, never return.
async fn write(stream: &mut (impl AsyncWrite + Unpin), bytes: Option<&mut Bytes>) -> std::io::Result<()> {
    let Some(bytes) = bytes else { return std::future::pending().await };
    let written = stream.write(bytes).await?;
    if written == 0 {
        return Err(std::io::ErrorKind::WriteZero.into());
    }
    bytes.advance(written.min(bytes.len()));
    Ok(())
}
