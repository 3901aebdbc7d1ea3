//! The two byte streams of a connection, and waiting for them.

use std::fmt;
use std::io::{self, ErrorKind as IoKind, IoSlice};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use penstock_io::DriverError as _;
use penstock_vgi::ipc::{Decoder, Output};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use socket2::SockRef;

use super::byte_stream::{Sink, Source};
use super::descriptor::Descriptor;
use super::peer::Peer;
use crate::error::{Error, Result};

/// The longest wait in the system before the caller is asked whether to continue.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// The most pieces in one write.
const PIECES: usize = 64;

/// The reply of a [`Check`] that stops a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupted;

/// A callback that decides whether a wait continues, called at intervals and after a signal.
pub type Check<'a> = &'a mut dyn FnMut() -> std::result::Result<(), Interrupted>;

/// A connection, for one call at a time.
pub struct Channel {
    source: Box<dyn Source>,
    sink: Box<dyn Sink>,
    /// Whether reads take only what is needed, because another reader shares the source.
    exact: bool,
    peer: Peer,
    timeout: Option<Duration>,
    /// The deadline of the current answer, if there is one.
    deadline: Option<Instant>,
    /// The deadline of the first byte, including the TLS handshake; `None` once it has arrived.
    first_byte: Option<Instant>,
    /// How long the peer may send nothing during a read, or take nothing during a write.
    idle: Option<Duration>,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("exact", &self.exact).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Channel {
    /// Make a channel over two descriptors, or the same one twice.
    pub fn descriptors(reader: OwnedFd, writer: OwnedFd) -> Self {
        let peer = Peer::of(&reader, &writer);
        Self::new(Box::new(Descriptor::new(reader)), Box::new(Descriptor::new(writer)), false, peer)
    }

    /// Make a channel over any other objects. With `exact`, read only the bytes needed next.
    pub fn new(source: Box<dyn Source>, sink: Box<dyn Sink>, exact: bool, peer: Peer) -> Self {
        Self { source, sink, exact, peer, timeout: None, deadline: None, first_byte: None, idle: None }
    }

    /// Return the process at the other end.
    pub const fn peer(&self) -> Peer {
        self.peer
    }

    /// Return whether descriptors can be passed both ways, as between two processes on one machine over a Unix socket.
    pub fn passes_descriptors(&self) -> bool {
        self.peer != Peer::Remote && self.source.receives_descriptors() && self.sink.passes_descriptors()
    }

    /// Pass a descriptor with the next byte that is written.
    pub fn pass(&mut self, descriptor: OwnedFd) {
        self.sink.pass(descriptor);
    }

    /// Take the last descriptor that the peer has passed.
    pub fn received(&mut self) -> Option<OwnedFd> {
        self.source.received()
    }

    /// Set how long an answer may take, over all its reads and writes, counted from
    /// [`begin`](Self::begin); `None` means no limit.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
        self.begin();
    }

    /// Start the time limit of an answer.
    pub fn begin(&mut self) {
        self.deadline = self.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    }

    /// Make the answer's time limit expire now.
    #[cfg(test)]
    pub(super) fn expire(&mut self) {
        self.deadline = Some(Instant::now());
    }

    /// Make the first read fail with a deadline error if no byte arrives within the limit from now on.
    pub fn set_first_byte(&mut self, limit: Duration) {
        self.first_byte = Instant::now().checked_add(limit);
    }

    /// Make a read fail with a deadline error if the peer sends nothing for this long, and a write
    /// if the peer takes nothing.
    pub fn set_idle(&mut self, limit: Duration) {
        self.idle = Some(limit);
        for descriptor in [self.source.descriptor(), self.sink.descriptor()].into_iter().flatten() {
            // With timeouts on the socket, a read need not poll first. On anything but a socket
            // these calls fail, and reads poll as before.
            let socket = SockRef::from(&descriptor);
            let _ = socket.set_read_timeout(Some(limit)).and_then(|()| socket.set_write_timeout(Some(limit)));
        }
    }

    /// Read the available bytes, at least one; return `false` if the peer has closed its end.
    pub fn fill(&mut self, decoder: &mut Decoder, check: Check<'_>) -> Result<bool> {
        let explicit = [self.deadline, self.first_byte].into_iter().flatten().min();
        let deadline = explicit.into_iter().chain(self.idle_deadline()).min();
        self.source.set_deadline(deadline);
        let filled = self.fill_until(decoder, deadline, explicit.is_some(), check);
        self.source.set_deadline(None);
        filled
    }

    fn fill_until(
        &mut self,
        decoder: &mut Decoder,
        deadline: Option<Instant>,
        asks: bool,
        check: Check<'_>,
    ) -> Result<bool> {
        loop {
            if asks {
                self.wait(PollFlags::IN, deadline, check)?;
            }
            let wanted = decoder.wanted();
            let space = decoder.space();
            let size = if self.exact { space.len().min(wanted) } else { space.len() };
            match self.source.read(space.get_mut(..size).unwrap_or_default()) {
                Ok(0) => return Ok(false),
                Ok(count) => {
                    self.first_byte = None;
                    decoder.advance(count);
                    return Ok(true);
                }
                Err(error) if error.kind() == IoKind::Interrupted => check().map_err(interrupted)?,
                Err(error) if error.kind() == IoKind::WouldBlock => self.wait(PollFlags::IN, deadline, check)?,
                // A reset ends the connection as a close does; the state machine decides whether it
                // may end here.
                Err(error) if error.kind() == IoKind::ConnectionReset => return Ok(false),
                Err(error) if error.kind() == IoKind::TimedOut && is_over(deadline) => return Err(self.late()),
                Err(error) => return Err(failed("reading from the peer", error)),
            }
        }
    }

    /// Write all output.
    pub fn flush(&mut self, output: &mut Output, check: Check<'_>) -> Result<()> {
        if output.is_empty() {
            return Ok(());
        }
        let total = self.deadline;
        let mut deadline = total.into_iter().chain(self.idle_deadline()).min();
        let pieces = output.take();
        let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut rest = slices.as_mut_slice();
        while !rest.is_empty() {
            if total.is_some() {
                self.wait(PollFlags::OUT, deadline, check)?;
            }
            let now = rest.get(..rest.len().min(PIECES)).unwrap_or_default();
            match self.sink.write_vectored(now) {
                Ok(0) => return Err(failed("writing to the peer", IoKind::WriteZero.into())),
                Ok(count) => {
                    IoSlice::advance_slices(&mut rest, count);
                    deadline = total.into_iter().chain(self.idle_deadline()).min();
                }
                Err(error) if error.kind() == IoKind::Interrupted => check().map_err(interrupted)?,
                Err(error) if error.kind() == IoKind::WouldBlock => self.wait(PollFlags::OUT, deadline, check)?,
                Err(error) => return Err(failed("writing to the peer", error)),
            }
        }
        loop {
            match self.sink.flush() {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == IoKind::Interrupted => check().map_err(interrupted)?,
                Err(error) if error.kind() == IoKind::WouldBlock => self.wait(PollFlags::OUT, deadline, check)?,
                Err(error) => return Err(failed("writing to the peer", error)),
            }
        }
    }

    fn late(&self) -> Error {
        let message = match (self.first_byte, self.idle, self.timeout) {
            (Some(_), _, _) => "the peer has not finished its handshake and sent a first byte in time".to_owned(),
            (None, Some(idle), _) => format!("the peer has sent or read nothing for {} s", idle.as_secs_f64()),
            (None, None, Some(timeout)) => {
                format!("the peer has not answered within the time-out of {} s", timeout.as_secs_f64())
            }
            (None, None, None) => "the peer has not answered in time".to_owned(),
        };
        Error::deadline(message)
    }

    fn idle_deadline(&self) -> Option<Instant> {
        self.idle.and_then(|idle| Instant::now().checked_add(idle))
    }

    /// Wait until the system can read or write, or until the deadline.
    fn wait(&self, what: PollFlags, deadline: Option<Instant>, check: Check<'_>) -> Result<()> {
        let descriptor = if what == PollFlags::IN { self.source.descriptor() } else { self.sink.descriptor() };
        let Some(descriptor) = descriptor else {
            // An object without a descriptor does its own waiting; the caller is asked between its
            // waits.
            if is_over(deadline) {
                return Err(self.late());
            }
            return check().map_err(interrupted);
        };
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(self.late());
            }
            let slice = Timespec::try_from(left.unwrap_or(CHECK_INTERVAL).min(CHECK_INTERVAL)).ok();
            match poll(&mut [PollFd::from_borrowed_fd(descriptor, what)], slice.as_ref()) {
                Ok(0) | Err(rustix::io::Errno::INTR) => check().map_err(interrupted)?,
                Ok(_) => return Ok(()),
                Err(error) => return Err(failed("waiting for the peer", error.into())),
            }
        }
    }
}

fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

fn interrupted(_: Interrupted) -> Error {
    Error::Interrupted
}

fn failed(doing: &str, error: io::Error) -> Error {
    Error::io(doing, error)
}
