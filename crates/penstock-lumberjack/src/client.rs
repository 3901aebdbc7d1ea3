//! The writer of events.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use penstock_wire::later;

use crate::error::{Deadline, Error, Misuse, Result, Violation};
use crate::frame::Window;
use crate::limits::Limits;
use crate::{Accepts, Ack, Data, Decoder, Frame, Json, Pair, Version, encoder};

/// The numbering of events (decision 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sequence {
    /// From 1 in every window, as Beats do. Receivers that acknowledge numbers and those that count both understand it.
    Window,
    /// Continuous over windows and connections; 1 follows 2^32 - 1.
    Continue,
}

/// The configuration of a writer. A value after a colon is the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// The version of its frames: `V1`.
    pub version: Version,
    /// The numbering of events: `Window`.
    pub sequence: Sequence,
    /// The most events of a window: 2,048.
    pub window: u32,
    /// The most bytes of frames in a window: 8 MiB. A single event may be larger.
    pub window_bytes: usize,
    /// The most windows in flight: 2.
    pub in_flight: usize,
    /// zlib's level, 0 for none: 3.
    pub compression: u32,
    /// How long the reader may stay silent while windows are in flight: 30 s.
    pub timeout: Duration,
    /// The reader's limits: events and windows above them are rejected here, because they would end every connection.
    pub limits: Limits,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            version: Version::V1,
            sequence: Sequence::Window,
            window: 2_048,
            window_bytes: 8 << 20,
            in_flight: 2,
            compression: 3,
            timeout: Duration::from_secs(30),
            limits: Limits::default(),
        }
    }
}

/// The number of events since the beginning that the reader has acknowledged. The caller need not keep them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Acknowledged(pub u64);

/// The writer's end, over any number of consecutive connections.
///
/// ```text
///   send_json / send_data ─▶ open window ─▶ full or flushed ─▶ waits ─ poll_transmit ─▶ in flight ─ A ─▶ forgotten
///                                                                ▲                         │
///                                                                └──── handle_disconnect ──┘
/// ```
///
/// After each call of `handle_*`, `flush` and `send_*`, poll [`poll_transmit`](Self::poll_transmit) until it returns
/// `None`, then [`poll_timeout`](Self::poll_timeout). Check [`wants_events`](Self::wants_events) before sending more.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    decoder: Decoder,
    open: Batch,
    /// Full windows, oldest first; the first `in_flight` of them are in flight.
    full: VecDeque<Batch>,
    in_flight: usize,
    /// Events acknowledged since the beginning.
    acknowledged: u64,
    /// The number of the last event in a full window, for continuous numbering.
    last_sequence: u32,
    heard: Instant,
    failed: Option<Error>,
}

/// The events of a window.
#[derive(Debug, Default)]
struct Batch {
    /// Their uncompressed frames, and where each begins.
    frames: BytesMut,
    starts: Vec<u32>,
    /// The number of the first event.
    first: u32,
    /// How many of them the reader has acknowledged.
    partial: u32,
}

impl Batch {
    fn count(&self) -> u32 {
        u32::try_from(self.starts.len()).unwrap_or(u32::MAX)
    }

    /// Return how many events an acknowledgement of this number covers, at least 1; more than `count` if it does not
    /// belong to this window.
    fn covered(&self, sequence: u32) -> u64 {
        u64::from(sequence.wrapping_sub(self.first)) + 1
    }

    /// Drop the first events. If windows are numbered from 1, renumber the rest from 1.
    fn drop_front(&mut self, count: usize, sequence: Sequence) {
        let start = self.starts.get(count).copied().unwrap_or(0);
        let bytes = usize::try_from(start).unwrap_or(usize::MAX).min(self.frames.len());
        drop(self.frames.split_to(bytes));
        self.starts.drain(..count.min(self.starts.len()));
        self.starts.iter_mut().for_each(|at| *at = at.saturating_sub(start));
        match sequence {
            Sequence::Continue => self.first = self.first.wrapping_add(u32::try_from(count).unwrap_or(0)),
            Sequence::Window => self.renumber(),
        }
    }

    fn renumber(&mut self) {
        for (number, start) in (self.first..).zip(&self.starts) {
            let field = usize::try_from(*start).ok().and_then(|at| self.frames.get_mut(at + 2..at + 6));
            if let Some(field) = field {
                field.copy_from_slice(&number.to_be_bytes());
            }
        }
    }
}

impl Client {
    /// Make a writer that has sent nothing.
    ///
    /// Fails as a misuse where the window or the number of windows is 0, or the level is above 9; as a limit where the
    /// window is larger than the reader takes.
    pub fn new(now: Instant, config: ClientConfig) -> Result<Self> {
        if config.window == 0 || config.in_flight == 0 {
            return Err(Misuse::NoWindow.into());
        }
        if config.compression > 9 {
            return Err(Misuse::CompressionLevel(config.compression).into());
        }
        config.limits.window().check(config.window.into())?;
        let mut client = Self {
            config,
            decoder: Decoder::new(Accepts::Reader, Limits::default()),
            open: Batch::default(),
            full: VecDeque::new(),
            in_flight: 0,
            acknowledged: 0,
            last_sequence: 0,
            heard: now,
            failed: None,
        };
        client.open.first = client.first();
        Ok(client)
    }

    /// Return whether another event may be sent: there are fewer full windows than may be in flight.
    pub fn wants_events(&self) -> bool {
        self.full.len() < self.config.in_flight
    }

    /// Return how many events were sent but not acknowledged.
    pub fn unacknowledged(&self) -> u64 {
        self.full.iter().chain([&self.open]).map(|batch| u64::from(batch.count() - batch.partial)).sum()
    }

    /// Return how many events were acknowledged since the beginning.
    pub fn acknowledged(&self) -> Acknowledged {
        let partial = self.full.front().map_or(0, |batch| batch.partial);
        Acknowledged(self.acknowledged + u64::from(partial))
    }

    /// Send an event that is a JSON document, unchanged.
    ///
    /// Fails as a limit where the reader would refuse it.
    pub fn send_json(&mut self, payload: &[u8]) -> Result<()> {
        Json::check(payload, &self.config.limits)?;
        let (version, sequence) = (self.config.version, self.next_sequence());
        self.append(|out| Json { version, sequence, payload }.encode(out))
    }

    /// Send an event of pairs.
    ///
    /// Fails as a limit where the reader would refuse it.
    pub fn send_data<'p, I>(&mut self, pairs: I) -> Result<()>
    where
        I: IntoIterator<Item = Pair<'p>>,
        I::IntoIter: ExactSizeIterator + Clone,
    {
        let pairs = pairs.into_iter();
        Data::check(pairs.clone(), &self.config.limits)?;
        let (version, sequence) = (self.config.version, self.next_sequence());
        self.append(|out| Data::encode(version, sequence, pairs, out))
    }

    fn append(&mut self, encode: impl FnOnce(&mut BytesMut) -> Result<()>) -> Result<()> {
        let start = u32::try_from(self.open.frames.len()).map_err(|_| Misuse::WindowLength)?;
        encode(&mut self.open.frames)?;
        self.open.starts.push(start);
        // No event may have the number 0, which means keep-alive. So a new window begins there, with 1.
        let full = self.open.count() >= self.config.window
            || self.open.frames.len() >= self.config.window_bytes
            || self.next_sequence() == 0;
        if full {
            self.flush();
        }
        Ok(())
    }

    /// Send the events so far, even if their window is not full.
    pub fn flush(&mut self) {
        if self.open.starts.is_empty() {
            return;
        }
        self.last_sequence = self.open.first.wrapping_add(self.open.count() - 1);
        let next = Batch { first: self.first(), ..Batch::default() };
        self.full.push_back(std::mem::replace(&mut self.open, next));
    }

    fn first(&self) -> u32 {
        match self.config.sequence {
            Sequence::Window => 1,
            // The number 0 in an acknowledgement means keep-alive.
            Sequence::Continue => self.last_sequence.wrapping_add(1).max(1),
        }
    }

    fn next_sequence(&self) -> u32 {
        self.open.first.wrapping_add(self.open.count())
    }

    /// Append the next window to `out`; return `false` if none may be sent.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut BytesMut) -> Result<bool> {
        if self.in_flight >= self.config.in_flight || self.failed.is_some() {
            return Ok(false);
        }
        let Some(batch) = self.full.get(self.in_flight) else { return Ok(false) };
        let version = self.config.version;
        Window { version, size: batch.count() }.encode(out);
        match self.config.compression {
            0 => out.extend_from_slice(&batch.frames),
            level => encoder::compress(version, &batch.frames, level, out),
        }
        if self.in_flight == 0 {
            self.heard = now;
        }
        self.in_flight += 1;
        Ok(true)
    }

    /// Take bytes from the reader; return how many events are acknowledged.
    ///
    /// Fails where the bytes are not acknowledgements, or acknowledge events that were never sent.
    pub fn handle_input(&mut self, now: Instant, bytes: &[u8]) -> Result<Acknowledged> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.decoder.push(bytes);
        let result = self.read(now);
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        result.map(|()| self.acknowledged())
    }

    fn read(&mut self, now: Instant) -> Result<()> {
        loop {
            let at = self.decoder.offset();
            let ack = match self.decoder.next_frame()? {
                None => return Ok(()),
                Some(Frame::Ack(ack)) => ack,
                Some(Frame::Window(_) | Frame::Data(_) | Frame::Json(_)) => {
                    return Err(Error::from(Violation::NoAck).at(at));
                }
            };
            self.heard = now;
            self.acknowledge(ack).map_err(|error| error.at(at))?;
        }
    }

    fn acknowledge(&mut self, ack: Ack) -> Result<()> {
        // A continuous number may acknowledge several windows; a number that restarts belongs to the oldest window.
        let mut windows = 0;
        for batch in self.full.iter().take(self.in_flight) {
            let covered = batch.covered(ack.sequence);
            if covered <= u64::from(batch.count()) {
                return self.acknowledge_window(windows, covered);
            }
            match self.config.sequence {
                Sequence::Window => break,
                Sequence::Continue => windows += 1,
            }
        }
        // 0 means keep-alive, and earlier acknowledgements may be repeated (decision 5).
        let old = self.config.sequence == Sequence::Continue
            && self.full.front().is_none_or(|batch| ack.sequence.wrapping_sub(batch.first) > u32::MAX / 2);
        let idle = self.in_flight == 0;
        if ack.sequence == 0 || old || idle {
            return Ok(());
        }
        Err(Violation::UnsentEvent { sequence: ack.sequence }.into())
    }

    /// Drop this many whole windows, and record that the reader has acknowledged the first events of the next one.
    fn acknowledge_window(&mut self, windows: usize, events: u64) -> Result<()> {
        for batch in self.full.drain(..windows) {
            self.acknowledged += u64::from(batch.count());
            self.in_flight -= 1;
        }
        let Some(batch) = self.full.front_mut() else { return Ok(()) };
        if events == u64::from(batch.count()) {
            self.acknowledged += events;
            self.in_flight -= 1;
            self.full.pop_front();
            return Ok(());
        }
        batch.partial = batch.partial.max(u32::try_from(events).unwrap_or(0));
        Ok(())
    }

    /// Return when to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Instant> {
        (self.in_flight > 0 && self.failed.is_none()).then(|| later(self.heard, self.config.timeout))
    }

    /// Check for a timeout.
    ///
    /// Fails where the reader was silent for too long; the caller then disconnects.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<()> {
        if self.poll_timeout().is_some_and(|due| due <= now) {
            let error = Error::from(Deadline::Ack { seconds: self.config.timeout.as_secs() });
            self.failed = Some(error.clone());
            return Err(error);
        }
        Ok(())
    }

    /// Handle a lost connection: everything that is not acknowledged is sent again over the next one, in order.
    pub fn handle_disconnect(&mut self, now: Instant) {
        if let Some(batch) = self.full.front_mut().filter(|batch| batch.partial > 0) {
            let events = std::mem::take(&mut batch.partial);
            self.acknowledged += u64::from(events);
            batch.drop_front(usize::try_from(events).unwrap_or(0), self.config.sequence);
        }
        self.in_flight = 0;
        self.decoder = Decoder::new(Accepts::Reader, Limits::default());
        self.heard = now;
        self.failed = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_go_on_leave_out_the_one_that_keeps_alive() {
        let now = Instant::now();
        let config =
            ClientConfig { sequence: Sequence::Continue, window: 4, compression: 0, ..ClientConfig::default() };
        let mut client = Client::new(now, config).expect("legal");
        client.last_sequence = u32::MAX - 2;
        client.open.first = client.first();
        (0..4).for_each(|_| client.send_json(b"{}").expect("fits"));
        client.flush();
        let mut out = BytesMut::new();
        while client.poll_transmit(now, &mut out).expect("fits") {}
        let ack = |sequence: u32| [b"1A".as_slice(), &sequence.to_be_bytes()].concat();
        assert_eq!(client.handle_input(now, &ack(0)), Ok(Acknowledged(0)));
        assert_eq!(client.handle_input(now, &ack(u32::MAX)), Ok(Acknowledged(2)));
        assert_eq!(client.handle_input(now, &ack(0)), Ok(Acknowledged(2)));
        assert_eq!(client.handle_input(now, &ack(2)), Ok(Acknowledged(4)));
        assert_eq!(client.unacknowledged(), 0);
    }
}
