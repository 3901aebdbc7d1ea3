//! The reader of events.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use penstock_wire::later;

use crate::error::{Deadline, Error, Malformed, Misuse, Result, Violation};
use crate::frame::Window;
use crate::limits::Limits;
use crate::{Accepts, Ack, Decoder, Frame, Pairs, Version};

/// The most windows with unacknowledged events; no further one is read (decision 5).
const OPEN_WINDOWS: usize = 2;

/// The configuration of a reader. A value after a colon is the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// The limits on a writer's input.
    pub limits: Limits,
    /// How long a frame may take to arrive once it has begun: 30 s.
    pub frame_timeout: Duration,
    /// How long the writer may be silent between frames while nothing is unacknowledged: indefinitely.
    pub idle_timeout: Option<Duration>,
    /// How often a writer of version 2 gets a keep-alive while the application is slow: 3 s.
    pub keepalive: Duration,
    /// Whether a writer of version 1 with continuous numbers gets its last acknowledgement repeated instead. Default:
    /// no.
    pub repeat_ack: bool,
    /// The pause between frames after which the taken part of a window is acknowledged: 1 s.
    pub pause: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            frame_timeout: Duration::from_secs(30),
            idle_timeout: None,
            keepalive: Duration::from_secs(3),
            repeat_ack: false,
            pause: Duration::from_secs(1),
        }
    }
}

/// The content of an event, borrowed during the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// A JSON document; it is not validated.
    Json(&'a [u8]),
    /// Pairs of strings.
    Data(Pairs<'a>),
}

/// A receiver of events, in order, as they are decoded.
pub trait Events {
    /// Take an event.
    fn event(&mut self, sequence: u32, event: Event<'_>);

    /// Handle the end of a window, which the last event has filled. Return whether to continue; if not, the reader
    /// stops as at the budget.
    fn window_end(&mut self) -> bool {
        true
    }
}

impl<F: FnMut(u32, Event<'_>)> Events for F {
    fn event(&mut self, sequence: u32, event: Event<'_>) {
        self(sequence, event);
    }
}

/// The progress of [`Server::handle_input`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// How many events were handed over.
    pub events: u64,
    /// Whether it stopped at the budget, or because [`Events::window_end`] said so; then there may be more.
    pub more: bool,
}

/// The reader's end of a connection.
///
/// ```text
///   bytes ─▶ input() ─▶ handle_input ─▶ Events     the application takes events, and reports how many it has taken
///                                                        │ acknowledge(n)
///   bytes ◀─ poll_transmit ◀────────────────────────────┘
/// ```
///
/// After each call of `handle_*` and `acknowledge`, poll [`poll_transmit`](Self::poll_transmit) until it returns
/// `None`, then [`poll_timeout`](Self::poll_timeout). Read from the socket only while
/// [`wants_input`](Self::wants_input) returns `true`.
#[derive(Debug)]
pub struct Server {
    config: ServerConfig,
    decoder: Decoder,
    /// How many events were handed over, taken by the application, and acknowledged to the writer, since the beginning.
    received: u64,
    taken: u64,
    acknowledged: u64,
    /// The window size in the last W frame.
    window: u32,
    /// Whether a W frame has arrived since the last window began.
    announced: bool,
    /// Windows with unacknowledged events, oldest first. Only the last one may be open.
    windows: VecDeque<Span>,
    /// The sequence numbers of unacknowledged events.
    runs: VecDeque<Run>,
    transmits: VecDeque<Ack>,
    last_ack: Option<Ack>,
    /// When the incomplete frame began.
    frame_began: Option<Instant>,
    last_frame: Instant,
    last_transmit: Instant,
    failed: Option<Error>,
}

/// A window. Its events end before position `end`, which grows until no events are `left`.
#[derive(Debug, Clone, Copy)]
struct Span {
    end: u64,
    left: u32,
}

/// Events with consecutive sequence numbers, beginning at a position.
#[derive(Debug, Clone, Copy)]
struct Run {
    position: u64,
    sequence: u32,
    version: Version,
}

impl Server {
    /// Make a reader at the beginning of a connection.
    pub fn new(now: Instant, config: ServerConfig) -> Self {
        Self {
            decoder: Decoder::new(Accepts::Writer, config.limits.clone()),
            config,
            received: 0,
            taken: 0,
            acknowledged: 0,
            window: 1,
            announced: false,
            windows: VecDeque::new(),
            runs: VecDeque::new(),
            transmits: VecDeque::new(),
            last_ack: None,
            frame_began: None,
            last_frame: now,
            last_transmit: now,
            failed: None,
        }
    }

    /// Return the buffer to which arriving bytes are appended; then call [`handle_input`](Self::handle_input).
    pub fn input(&mut self) -> &mut BytesMut {
        self.decoder.input()
    }

    /// Return how many events were handed over since the beginning; [`acknowledge`](Self::acknowledge) counts in the
    /// same way.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Return how many events were acknowledged to the writer since the beginning.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Return how many bytes of the connection belong to frames that were handled.
    pub fn offset(&self) -> u64 {
        self.decoder.offset()
    }

    /// Return how many bytes have arrived and belong to no event handed over, including the inflated ones.
    pub fn waiting(&self) -> usize {
        self.decoder.waiting()
    }

    /// Free the memory of the input, if it is empty.
    pub fn release(&mut self) {
        self.decoder.release();
    }

    /// Return whether a frame has begun but is incomplete.
    pub fn is_mid_frame(&self) -> bool {
        self.decoder.is_mid_frame()
    }

    /// Return whether to read from the socket: not while two windows wait for the application, nor after an error.
    pub fn wants_input(&self) -> bool {
        self.failed.is_none() && !self.is_held()
    }

    /// Hand over the events that have arrived, until `budget` bytes of them were handed over.
    ///
    /// Fails where the writer broke a rule; earlier events were handed over and still must be acknowledged (decision
    /// 8). From then on it fails in the same way.
    pub fn handle_input(&mut self, now: Instant, budget: usize, events: &mut impl Events) -> Result<Progress> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let before = self.received;
        let result = self.read(now, budget, events);
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        self.acknowledge_taken(now);
        result.map(|more| Progress { events: self.received - before, more })
    }

    fn read(&mut self, now: Instant, budget: usize, events: &mut impl Events) -> Result<bool> {
        let mut handed_over = 0_usize;
        let more = loop {
            if self.is_held() {
                break false;
            }
            if handed_over >= budget {
                break true;
            }
            let at = self.decoder.offset();
            let (version, sequence, event) = match self.decoder.next_frame()? {
                None => break false,
                Some(Frame::Window(window)) => {
                    self.window(now, window).map_err(|error| error.at(at))?;
                    handed_over = handed_over.saturating_add(Window::LENGTH);
                    continue;
                }
                Some(Frame::Json(json)) => (json.version, json.sequence, Event::Json(json.payload)),
                Some(Frame::Data(data)) => (data.version, data.sequence, Event::Data(data.pairs)),
                Some(Frame::Ack(_)) => {
                    return Err(Error::from(Violation::FrameType { sender: Accepts::Writer, frame_type: b'A' }).at(at));
                }
            };
            handed_over = handed_over.saturating_add(match event {
                Event::Json(payload) => payload.len(),
                Event::Data(pairs) => pairs.bytes(),
            });
            // Not `self.check_room()`: the event borrows the decoder.
            check_room(&self.windows, self.announced, self.window).map_err(|error| error.at(at))?;
            events.event(sequence, event);
            self.event(now, version, sequence);
            if self.windows.back().is_some_and(|window| window.left == 0) && !events.window_end() {
                break true;
            }
        };
        self.frame_began = match (self.decoder.is_mid_frame() && !self.is_held(), self.frame_began) {
            (false, _) => None,
            (true, None) => Some(now),
            (true, Some(began)) => Some(began.max(self.last_frame)),
        };
        Ok(more)
    }

    fn window(&mut self, now: Instant, window: Window) -> Result<()> {
        if window.size == 0 {
            return Err(Violation::EmptyWindow.into());
        }
        self.config.limits.window().check(window.size.into())?;
        self.window = window.size;
        self.last_frame = now;
        // A window that is still open is extended: its events are acknowledged with the following ones (decision 3).
        match self.windows.back_mut().filter(|open| open.left > 0) {
            Some(open) => open.left = window.size,
            None => self.announced = true,
        }
        Ok(())
    }

    #[inline]
    fn event(&mut self, now: Instant, version: Version, sequence: u32) {
        let run = Run { position: self.received, sequence, version };
        if self.runs.back().is_none_or(|last| !last.goes_on(&run)) {
            self.runs.push_back(run);
        }
        self.received += 1;
        match self.windows.back_mut().filter(|open| open.left > 0) {
            Some(open) => {
                open.end = self.received;
                open.left -= 1;
            }
            None => {
                self.windows.push_back(Span { end: self.received, left: self.window.saturating_sub(1) });
                self.announced = false;
            }
        }
        self.last_frame = now;
        if self.received - self.acknowledged == 1 {
            // The application's delay counts from now, not from the time when it had nothing to take.
            self.last_transmit = now;
        }
    }

    /// Return whether the next event must wait until the application has taken earlier ones.
    #[inline]
    fn is_held(&self) -> bool {
        let unacknowledged = self.received - self.acknowledged;
        let open = self.windows.back().is_some_and(|window| window.left > 0);
        // A writer that announces windows and never fills them is limited to two windows of the largest size.
        (self.windows.len() >= OPEN_WINDOWS && !open) || unacknowledged >= 2 * self.config.limits.window
    }

    /// Record that the application has taken this many events since the beginning: they are safe.
    ///
    /// Fails as a misuse if fewer events were handed over.
    pub fn acknowledge(&mut self, now: Instant, events: u64) -> Result<()> {
        if events > self.received {
            return Err(Misuse::Acknowledged { acknowledged: events, received: self.received }.into());
        }
        self.taken = self.taken.max(events);
        self.acknowledge_taken(now);
        Ok(())
    }

    fn acknowledge_taken(&mut self, now: Instant) {
        while let Some(window) = self.windows.front().copied().filter(|window| window.end <= self.taken) {
            // An open window may still grow; its taken part is acknowledged after a pause or at the end of the stream.
            if window.left > 0 {
                break;
            }
            self.windows.pop_front();
            self.transmit_ack(now, window.end);
        }
        let partial = self.taken > self.acknowledged;
        if partial && (now >= later(self.last_frame, self.config.pause) || self.failed.is_some()) {
            self.transmit_ack(now, self.taken);
        }
    }

    /// Acknowledge all events before the position.
    fn transmit_ack(&mut self, now: Instant, end: u64) {
        let Some(last) = end.checked_sub(1).filter(|_| end > self.acknowledged) else { return };
        while self.runs.get(1).is_some_and(|next| next.position <= last) {
            self.runs.pop_front();
        }
        let Some(run) = self.runs.front().copied() else { return };
        let ack = Ack { version: run.version, sequence: run.sequence_at(last) };
        self.acknowledged = end;
        if end == self.received {
            self.runs.clear();
        }
        self.transmits.push_back(ack);
        (self.last_ack, self.last_transmit) = (Some(ack), now);
    }

    /// Return the next six bytes to write.
    pub fn poll_transmit(&mut self) -> Option<[u8; Ack::LENGTH]> {
        self.transmits.pop_front().map(Ack::encode)
    }

    /// Return when to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.failed.is_some() {
            return None;
        }
        [self.frame_due(), self.idle_due(), self.keepalive_due(), self.pause_due()].into_iter().flatten().min()
    }

    fn frame_due(&self) -> Option<Instant> {
        self.frame_began.map(|began| later(began, self.config.frame_timeout))
    }

    fn idle_due(&self) -> Option<Instant> {
        let idle = self.frame_began.is_none() && self.received == self.acknowledged;
        self.config.idle_timeout.filter(|_| idle).map(|timeout| later(self.last_frame.max(self.last_transmit), timeout))
    }

    fn keepalive_due(&self) -> Option<Instant> {
        let version = self.runs.back()?.version;
        let slow = self.taken < self.received;
        let spoken = match version {
            Version::V1 => self.config.repeat_ack && self.last_ack.is_some(),
            Version::V2 => true,
        };
        (slow && spoken).then(|| later(self.last_transmit, self.config.keepalive))
    }

    fn pause_due(&self) -> Option<Instant> {
        (self.taken > self.acknowledged).then(|| later(self.last_frame, self.config.pause))
    }

    /// Handle timeouts.
    ///
    /// Fails where a frame took too long to arrive, or the writer was silent for too long.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<()> {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let late = if due(self.frame_due()) {
            Some(Deadline::Frame { seconds: self.config.frame_timeout.as_secs() })
        } else if due(self.idle_due()) {
            Some(Deadline::Silence)
        } else {
            None
        };
        if let Some(deadline) = late {
            let error = Error::from(deadline).at(self.decoder.offset());
            self.failed = Some(error.clone());
            self.acknowledge_taken(now);
            return Err(error);
        }
        if due(self.pause_due()) {
            self.acknowledge_taken(now);
        }
        if due(self.keepalive_due()) {
            self.keep_alive(now);
        }
        Ok(())
    }

    /// Send the writer a keep-alive, unless the writer could take it for the acknowledgement of events that are not
    /// safe.
    fn keep_alive(&mut self, now: Instant) {
        let ack = match self.runs.back().map(|run| run.version) {
            Some(version @ Version::V2) => Some(Ack { version, sequence: 0 }).filter(|_| !self.is_expected(0)),
            Some(Version::V1) => self.last_ack.filter(|last| self.goes_on_behind(last.sequence)),
            None => None,
        };
        self.transmits.extend(ack);
        self.last_transmit = now;
    }

    /// Return whether a number belongs to an unacknowledged event, or to one that the open window still lacks.
    fn is_expected(&self, sequence: u32) -> bool {
        let lacking = self.windows.back().map_or(0, |window| window.left);
        let ends = self.runs.iter().skip(1).map(|next| next.position).chain([self.received + u64::from(lacking)]);
        self.runs.iter().zip(ends).any(|(run, end)| {
            let begin = run.position.max(self.acknowledged);
            u64::from(sequence.wrapping_sub(run.sequence_at(begin))) < end.saturating_sub(begin)
        })
    }

    /// Return whether the unacknowledged events continue after this number. For a writer that restarts its numbers in
    /// each window, the number would acknowledge an event of the next window.
    fn goes_on_behind(&self, sequence: u32) -> bool {
        self.runs.back().is_some_and(|run| {
            run.position <= self.acknowledged && run.sequence_at(self.acknowledged) == sequence.wrapping_add(1)
        })
    }

    /// Handle the end of the writer's stream. The taken part of an open window is acknowledged now, or once it is
    /// taken.
    ///
    /// Fails as malformed where the stream ends inside a frame.
    pub fn handle_end(&mut self, now: Instant) -> Result<()> {
        let result = match &self.failed {
            Some(error) => Err(error.clone()),
            None if self.decoder.is_mid_frame() && !self.is_held() => {
                Err(Error::from(Malformed::StreamEnd).at(self.decoder.offset()))
            }
            None => Ok(()),
        };
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        // No further events will fill the window.
        if let Some(open) = self.windows.back_mut().filter(|_| result.is_ok()) {
            open.left = 0;
        }
        self.acknowledge_taken(now);
        result
    }
}

/// Check that an event may begin a window. Without a W frame that is allowed only if the previous window is
/// acknowledged, because the writer waits for that.
#[inline]
fn check_room(windows: &VecDeque<Span>, announced: bool, window: u32) -> Result<()> {
    match windows.back() {
        Some(last) if last.left == 0 && !announced => Err(Violation::WindowOverrun { window }.into()),
        _ => Ok(()),
    }
}

impl Run {
    fn sequence_at(&self, position: u64) -> u32 {
        // Numbers are compared modulo 2^32 (decision 4), so only the low half of the distance matters.
        let [.., a, b, c, d] = (position - self.position).to_be_bytes();
        self.sequence.wrapping_add(u32::from_be_bytes([a, b, c, d]))
    }

    fn goes_on(&self, next: &Self) -> bool {
        next.version == self.version && self.sequence_at(next.position) == next.sequence
    }
}
