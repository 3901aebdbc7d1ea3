//! One connection, from its first byte to its last acknowledgement.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use penstock_io::DriverError as _;
use penstock_lumberjack::{ErrorKind, Server};
use penstock_wire::later;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::time::{Sleep, sleep_until, timeout};

use super::budget::Share;
use super::connection_guard::ConnectionGuard;
use super::counters::{Peer, add};
use super::intake::{Intake, IntakeTotals};
use super::link::Socket;
use super::shared::{Shared, Stage};
use crate::delivery::{Delivery, Origin};
use crate::{Error, Result};

/// The size of a read: it starts small, so that a thousand idle connections cost little, and doubles while reads are
/// full.
const READ: std::ops::RangeInclusive<usize> = (8 << 10)..=(256 << 10);
/// The bytes that are decoded before other tasks run.
const BUDGET: usize = 256 << 10;
/// The size at which a batch is passed on before its window is complete.
const BATCH: usize = 4 << 20;
/// How long input is drained after the last acknowledgement, which a reset could overtake.
const LINGER: Duration = Duration::from_secs(2);
/// How long after a writer's last bytes its end of the connection may close.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(10);
/// How often a connection without room checks for it again, in case it missed a notification.
const ROOM_INTERVAL: Duration = Duration::from_millis(100);
/// The delay of a timer without a deadline.
const NO_DEADLINE: Duration = Duration::from_secs(3_600);

/// A connection and its peer.
pub(super) struct Connection<S> {
    pub(super) stream: S,
    pub(super) socket: Socket,
    pub(super) shared: Arc<Shared>,
    pub(super) number: u64,
    pub(super) origin: Origin,
    pub(super) sender: Arc<str>,
    pub(super) peer: [Arc<Peer>; 2],
}

/// The totals of a connection.
#[derive(Debug, Default)]
pub(super) struct ConnectionSummary {
    pub(super) events: u64,
    pub(super) acknowledged: u64,
    pub(super) bytes: u64,
}

/// The state of a connection.
///
/// ```text
///           the writer closes it, breaks a rule or is late,
///           the receiver stops, the age limit                  everything is acknowledged
///  Reading ─────────────────────────────────────────▶ Draining ──────────────────────────▶ closed
/// ```
#[derive(Debug)]
enum State {
    /// Frames are read while there is room.
    Reading {
        /// Whether received bytes are still to be decoded.
        more: bool,
    },
    /// Nothing more is read; accepted events are still acknowledged.
    Draining(ReadEnd),
}

impl State {
    const fn is_reading(&self) -> bool {
        match self {
            Self::Reading { .. } => true,
            Self::Draining(_) => false,
        }
    }

    /// Return whether received bytes are still to be decoded.
    const fn has_more(&self) -> bool {
        match self {
            Self::Reading { more } => *more,
            Self::Draining(_) => false,
        }
    }

    /// Set whether bytes are still to be decoded. A draining connection decodes none.
    const fn set_more(&mut self, waits: bool) {
        match self {
            Self::Reading { more } => *more = waits,
            Self::Draining(_) => {}
        }
    }

    /// Stop reading. The first reason is kept.
    fn end(&mut self, ending: ReadEnd) {
        match self {
            Self::Reading { .. } => *self = Self::Draining(ending),
            Self::Draining(_) => {}
        }
    }
}

/// The reason why reading has stopped.
#[derive(Debug, Clone)]
enum ReadEnd {
    /// The peer has finished.
    Finished,
    /// The receiver stops.
    Stopped,
    /// The connection reached its age limit.
    Aged,
    /// The peer broke a rule, or a frame took too long.
    Failed(Error),
}

impl ReadEnd {
    /// Return whether this end closes the connection, which the writer may not notice.
    fn closes_here(&self) -> bool {
        match self {
            Self::Stopped | Self::Aged => true,
            Self::Finished => false,
            Self::Failed(error) => error.kind() == ErrorKind::Deadline,
        }
    }

    /// Return the reason for the access log.
    fn into_result(self) -> Result<&'static str> {
        match self {
            Self::Finished => Ok("the writer closed it"),
            Self::Stopped => Ok("the receiver stops"),
            Self::Aged => Ok("its age limit"),
            Self::Failed(error) => Err(error),
        }
    }
}

struct Run<S> {
    connection: Connection<S>,
    server: Server,
    intake: Intake,
    /// Present if the destination detects replays.
    guard: Option<ConnectionGuard>,
    share: Share,
    /// Batches that are not durable yet, each with the number of the connection's events up to its end.
    in_flight: FuturesOrdered<InFlight>,
    /// Events passed to the destination.
    delivered: u64,
    /// The ends of the last two complete windows, the older one first.
    windows: [u64; 2],
    read: usize,
    state: State,
    began: Instant,
    /// The time at which the last byte was written.
    last_write: Instant,
    summary: ConnectionSummary,
}

type InFlight = std::pin::Pin<Box<dyn Future<Output = (u64, usize, Instant, Result<()>)> + Send>>;

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    /// Serve the connection to its end. An error comes from the peer or from the destination.
    pub(super) async fn run(self, stage: watch::Receiver<Stage>) -> (ConnectionSummary, Result<&'static str>) {
        let now = Instant::now();
        let Shared { open_connections, destination, .. } = &*self.shared;
        let guard = || open_connections.open(&self.sender, self.number, &self.socket, destination);
        let mut run = Run {
            guard: destination.hash_seed().map(|_| guard()),
            server: Server::new(now, self.shared.options.server.clone()),
            intake: Intake::new(&*self.shared.destination),
            share: Share::new(Arc::clone(&self.shared.budget)),
            connection: self,
            in_flight: FuturesOrdered::new(),
            delivered: 0,
            windows: [0; 2],
            read: *READ.start(),
            state: State::Reading { more: false },
            began: now,
            last_write: now,
            summary: ConnectionSummary::default(),
        };
        let result = run.serve(stage).await;
        run.summary.events = run.server.received();
        run.summary.acknowledged = run.server.acknowledged();
        (run.summary, result)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Run<S> {
    async fn serve(&mut self, mut stage: watch::Receiver<Stage>) -> Result<&'static str> {
        let mut timer = Box::pin(sleep_until((self.began + NO_DEADLINE).into()));
        loop {
            self.flush_ready().await?;
            self.transmit().await?;
            self.end_at_its_age();
            if let State::Draining(ending) = &self.state
                && self.in_flight.is_empty()
                && self.intake.rows() == 0
            {
                let ending = ending.clone();
                return self.close(ending).await;
            }
            let wants = self.state.is_reading() && self.server.wants_input();
            let room = self.share.has_room(wants && self.server.waiting() > 0);
            let reading = wants && room;
            if reading && self.state.has_more() {
                self.decode();
                tokio::task::yield_now().await;
                continue;
            }
            self.set_timer(timer.as_mut(), room);
            let budget = Arc::clone(self.share.budget());
            tokio::select! {
                biased;
                Some(done) = self.in_flight.next(), if !self.in_flight.is_empty() => self.on_safe(done)?,
                read = read(&mut self.connection.stream, self.server.input(), self.read), if reading => self.on_read(read)?,
                _ = stage.wait_for(|stage| stage.is_stopping()), if self.state.is_reading() => self.finish(ReadEnd::Stopped),
                () = budget.freed(), if !room => {}
                () = timer.as_mut() => self.on_timeout(),
            }
        }
    }

    /// Set the timer, unless it fires earlier anyway: then it is set after it has fired.
    fn set_timer(&mut self, timer: std::pin::Pin<&mut Sleep>, room: bool) {
        let now = Instant::now();
        let options = &self.connection.shared.options;
        let pause = (self.intake.rows() > 0).then(|| later(self.intake.last, options.server.pause));
        let age = options.max_age.filter(|_| self.state.is_reading()).map(|age| later(self.began, age));
        // A connection over its age limit ends between windows, which a frame or an acknowledgement triggers, not the
        // timer.
        let age = age.filter(|at| *at > now);
        let room_check = (!room).then(|| now + ROOM_INTERVAL);
        let due = [self.server.poll_timeout(), pause, age, room_check]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(now + NO_DEADLINE);
        if timer.is_elapsed() || timer.deadline() > due.into() {
            timer.reset(due.into());
        }
    }

    fn on_read(&mut self, read: std::io::Result<usize>) -> Result<()> {
        let count = or_end(read).map_err(|error| Error::io("the connection broke", error))?;
        if count == 0 {
            self.finish(ReadEnd::Finished);
            return Ok(());
        }
        self.summary.bytes += count as u64;
        for peer in &self.connection.peer {
            peer.wire(count);
        }
        if count >= self.read {
            self.read = (self.read * 2).min(*READ.end());
        } else if count < self.read / 4 {
            self.read = (self.read / 2).max(*READ.start());
        }
        self.decode();
        if self.read == *READ.start() {
            self.server.release();
        }
        Ok(())
    }

    fn decode(&mut self) {
        let now = Instant::now();
        let (events, bytes) = (self.intake.rows(), self.intake.bytes());
        let progress = self.server.handle_input(now, BUDGET, &mut self.intake);
        let received = self.intake.rows() - events;
        if received > 0 {
            self.intake.last = now;
            for peer in &self.connection.peer {
                peer.events(received, self.intake.bytes() - bytes);
            }
        }
        match progress {
            Ok(progress) => self.state.set_more(progress.more),
            Err(error) => self.finish(ReadEnd::Failed(error.into())),
        }
        let waiting = self.server.waiting();
        self.share.hold(waiting + self.intake.bytes());
    }

    /// Stop reading.
    fn finish(&mut self, ending: ReadEnd) {
        let now = Instant::now();
        let ending = match (ending, self.server.handle_end(now)) {
            // On a stop or at the age limit, this side itself cuts the frame off.
            (ending @ (ReadEnd::Failed(_) | ReadEnd::Stopped | ReadEnd::Aged), _)
            | (ending @ ReadEnd::Finished, Ok(())) => ending,
            (ReadEnd::Finished, Err(error)) => ReadEnd::Failed(error.into()),
        };
        self.state.end(ending);
    }

    fn end_at_its_age(&mut self) {
        let Some(age) = self.connection.shared.options.max_age.filter(|_| self.state.is_reading()) else { return };
        // Between windows, every event is acknowledged. Frames that were not read are sent again on
        // the next connection.
        let edge = self.server.received() == self.server.acknowledged();
        if edge && self.began.elapsed() >= age {
            add(&self.connection.shared.counters.aged, 1);
            self.finish(ReadEnd::Aged);
        }
    }

    fn on_timeout(&mut self) {
        let now = Instant::now();
        if self.server.poll_timeout().is_some_and(|due| due <= now)
            && let Err(error) = self.server.handle_timeout(now)
        {
            self.finish(ReadEnd::Failed(error.into()));
        }
    }

    /// Pass a batch to the destination: a complete window, or the part of a window that is due.
    async fn flush_ready(&mut self) -> Result<()> {
        if self.intake.rows() == 0 {
            return Ok(());
        }
        let pause = self.connection.shared.options.server.pause;
        let due = self.intake.window_ended()
            || !self.state.is_reading()
            || self.intake.bytes() >= BATCH
            || self.share.budget().is_full()
            || self.intake.last.elapsed() >= pause;
        if !due {
            return Ok(());
        }
        let IntakeTotals { batch, rows, bytes, origin, hashes, windows } =
            self.intake.finish(self.connection.origin.clone())?;
        let counters = &self.connection.shared.counters;
        add(&counters.batches, 1);
        add(&counters.windows, windows.len());
        if let Some(guard) = self.guard.as_ref().filter(|_| self.delivered == 0) {
            guard.wait_for_earlier().await;
        }
        let (first, [confirmed, last]) = (self.delivered, self.windows);
        self.delivered += rows as u64;
        if !windows.is_empty() {
            self.windows = [last, self.delivered];
        }
        self.share.send(bytes);
        let safe = self.connection.shared.destination.take(Delivery {
            batch,
            bytes,
            origin,
            sender: Arc::clone(&self.connection.sender),
            connection: self.connection.number,
            first,
            confirmed,
            hashes,
            windows,
        });
        let (end, began) = (self.delivered, Instant::now());
        self.in_flight.push_back(Box::pin(async move { (end, bytes, began, safe.await) }));
        self.share.hold(self.server.waiting());
        Ok(())
    }

    fn on_safe(&mut self, (end, bytes, began, taken): (u64, usize, Instant, Result<()>)) -> Result<()> {
        let now = Instant::now();
        let counters = &self.connection.shared.counters;
        counters.safe_seconds.observe(now - began);
        self.share.safe(bytes);
        self.share.hold(self.server.waiting() + self.intake.bytes());
        if let Err(error) = taken {
            add(&counters.not_taken, 1);
            return Err(error);
        }
        let before = self.server.acknowledged();
        self.server.acknowledge(now, end)?;
        counters.acknowledged.fetch_add(self.server.acknowledged() - before, Ordering::Relaxed);
        // Frames that the server deferred because two windows were open may have arrived already.
        if self.server.waiting() > 0 {
            self.state.set_more(true);
        }
        Ok(())
    }

    /// Write acknowledgements. If the peer reads none of them within the time limit of a frame, the
    /// connection fails.
    async fn transmit(&mut self) -> Result<()> {
        let Some(first) = self.server.poll_transmit() else { return Ok(()) };
        let mut bytes = BytesMut::from(&first[..]);
        while let Some(ack) = self.server.poll_transmit() {
            bytes.extend_from_slice(&ack);
        }
        let alive = bytes.chunks(6).filter(|ack| ack.ends_with(&[0; 4])).count();
        add(&self.connection.shared.counters.keepalives, alive);
        let limit = self.connection.shared.options.server.frame_timeout;
        let late = || Error::deadline("the writer reads no acknowledgements".into());
        let written = write(&mut self.connection.stream, bytes.freeze(), limit).await.unwrap_or_else(|| Err(late()));
        self.last_write = Instant::now();
        written
    }

    /// Close the connection after everything accepted was acknowledged.
    async fn close(&mut self, ending: ReadEnd) -> Result<&'static str> {
        let closes_here = ending.closes_here();
        let all = self.server.received() == self.server.acknowledged();
        let clean = match timeout(LINGER, self.close_stream()).await {
            Ok(settled) => settled.unwrap_or(false),
            // A writer that does not read does not notice the close, but its kernel may have the acknowledgements.
            Err(_) => {
                closes_here && all && self.connection.socket.is_confirmed_within(CLOSE_TIMEOUT, self.last_write).await
            }
        };
        if let Some(guard) = self.guard.as_mut().filter(|_| clean) {
            guard.is_clean();
        }
        ending.into_result()
    }

    /// Close this end of the stream; return whether the writer has every acknowledgement.
    async fn close_stream(&mut self) -> std::io::Result<bool> {
        let socket = self.connection.socket.clone();
        if socket.is_gone_within(CLOSE_TIMEOUT).await {
            // A writer that has closed its socket would answer any other bytes, such as
            // close_notify, with a reset.
            socket.finish()?;
        } else {
            self.connection.stream.shutdown().await?;
        }
        // Unread bytes would cause a reset, which could overtake the last acknowledgement.
        let mut rest = vec![0_u8; 16 << 10];
        while or_end(self.connection.stream.read(&mut rest).await)? > 0 {}
        Ok(socket.is_settled_within(LINGER).await)
    }
}

/// Return the result of a read; a TLS stream that ends without close_notify counts as ended.
fn or_end(read: std::io::Result<usize>) -> std::io::Result<usize> {
    match read {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(0),
        read => read,
    }
}

async fn read(stream: &mut (impl AsyncRead + Unpin), input: &mut BytesMut, want: usize) -> std::io::Result<usize> {
    input.reserve(want);
    stream.read_buf(input).await
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), bytes: Bytes, limit: Duration) -> Option<Result<()>> {
    let writing = async {
        stream.write_all(&bytes).await?;
        stream.flush().await
    };
    let written = timeout(limit, writing).await.ok()?;
    Some(written.map_err(|error| Error::io("cannot write an acknowledgement", error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_read_until_it_ends_and_the_first_reason_stands() {
        let mut state = State::Reading { more: false };
        assert!(state.is_reading() && !state.has_more());
        state.set_more(true);
        assert!(state.is_reading() && state.has_more());
        state.end(ReadEnd::Aged);
        assert!(!state.is_reading() && !state.has_more(), "what waits is sent again on the next connection");
        state.set_more(true);
        assert!(!state.has_more(), "nothing more is decoded");
        state.end(ReadEnd::Failed(Error::deadline("late".into())));
        assert!(matches!(state, State::Draining(ReadEnd::Aged)), "{state:?}");
    }

    #[test]
    fn this_end_closes_a_connection_that_stops_is_aged_or_late() {
        let broken = || Error::misuse("a rule".into());
        assert!(ReadEnd::Stopped.closes_here() && ReadEnd::Aged.closes_here());
        assert!(ReadEnd::Failed(Error::deadline("late".into())).closes_here());
        assert!(!ReadEnd::Finished.closes_here() && !ReadEnd::Failed(broken()).closes_here());
        assert!(ReadEnd::Finished.into_result().is_ok() && ReadEnd::Failed(broken()).into_result().is_err());
    }
}
