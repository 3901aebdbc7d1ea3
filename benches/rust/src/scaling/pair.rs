//! Two real sessions with nothing between them: what one wants to send is handed to the other. Time is the testkit's
//! clock; what is measured is the work of the state machines and of their frames, at each end for itself.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use penstock_pipestream::{
    Admission, EntityHeader, EntityKey, Event, HeaderDecoder, Now, Role, Session, SessionConfig, Status, Ticket,
    Transmit,
};
use penstock_testkit::clock::FakeClock;

use crate::{Failure, cpu};

/// Announcements before the other end has its turn, as a driver does it.
const TURN: usize = 256;
/// How much time passes in a turn: a link of 1 ms.
const LATENCY: Duration = Duration::from_millis(1);

/// One end, and what it has cost.
pub(crate) struct End {
    pub(crate) session: Session,
    pub(crate) seconds: f64,
    pub(crate) control_bytes: u64,
    pub(crate) completed: u64,
}

/// What each document consists of.
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    /// Entities of the root scope.
    Flat,
    /// Dehydrated roots with so many children each, in scopes of their own.
    Documents { children: u64 },
}

/// A producer that announces, and a consumer that completes what it gets.
pub(crate) struct Pair {
    pub(crate) clock: FakeClock,
    pub(crate) client: End,
    pub(crate) server: End,
    pub(crate) header_bytes: u64,
    pub(crate) announced: u64,
    shape: Shape,
    /// The document that is being announced, and its children so far.
    document: Option<(EntityKey, u64)>,
    /// Whether the consumer completes; otherwise it leaves everything open.
    pub(crate) completes: bool,
    /// Whether the window or the scopes are used up.
    pub(crate) blocked: bool,
}

impl End {
    fn new(role: Role, clock: &FakeClock) -> Result<Self, Failure> {
        let session = Session::new(role, SessionConfig::default(), now(clock))?;
        Ok(Self { session, seconds: 0.0, control_bytes: 0, completed: 0 })
    }

    /// Takes all events and gives the bytes for stream 0.
    fn poll(&mut self) -> Result<Bytes, Failure> {
        while let Some(event) = self.session.poll_event() {
            match event {
                Event::Resolved { status: Status::Complete, .. } => self.completed += 1,
                Event::Resolved { reason, .. } => return Err(format!("an entity is not COMPLETE: {reason:?}").into()),
                Event::Closed { reason, .. } if reason.code.code() != 0 => return Err(reason.message.into()),
                Event::Agreed(_)
                | Event::Status { .. }
                | Event::Admitted { .. }
                | Event::Gathered { .. }
                | Event::Released { .. }
                | Event::Digest { .. }
                | Event::Barrier { .. }
                | Event::Checkpoint { .. }
                | Event::Capacity
                | Event::Layer2(_)
                | Event::Error { .. }
                | Event::Closed { .. } => {}
            }
        }
        let mut bytes = BytesMut::new();
        while let Some(transmit) = self.session.poll_transmit(16 << 10) {
            match transmit {
                Transmit::Control(control) => bytes.extend_from_slice(&control),
                Transmit::StopStream { code, .. } => return Err(format!("a stream was stopped: {code:?}").into()),
                Transmit::Close { .. } => {}
            }
        }
        self.control_bytes += bytes.len() as u64;
        Ok(bytes.freeze())
    }

    fn timeouts(&mut self, now: Now) {
        if self.session.poll_timeout().is_some_and(|due| due <= now.instant) {
            self.session.handle_timeout(now);
        }
    }
}

impl Pair {
    pub(crate) fn new(shape: Shape) -> Result<Self, Failure> {
        let clock = FakeClock::new();
        let (client, server) = (End::new(Role::Client, &clock)?, End::new(Role::Server, &clock)?);
        let mut pair = Self {
            clock,
            client,
            server,
            header_bytes: 0,
            announced: 0,
            shape,
            document: None,
            completes: true,
            blocked: false,
        };
        pair.turn(0)?;
        pair.client.session.agreement().ok_or("the ends did not agree")?;
        Ok(pair)
    }

    /// Sends up to `upto` entities in all, and lets everything come to its end.
    pub(crate) fn run(&mut self, upto: u64) -> Result<(), Failure> {
        while self.announced < upto || self.document.is_some() {
            self.turn(upto)?;
        }
        while self.completes && self.client.completed < self.announced {
            self.turn(upto)?;
        }
        Ok(())
    }

    /// The producer's turn, the consumer's, and the producer's again with the answers.
    pub(crate) fn turn(&mut self, upto: u64) -> Result<(), Failure> {
        self.clock.advance(LATENCY);
        let started = cpu();
        self.client.timeouts(now(&self.clock));
        let streams = if self.client.session.agreement().is_some() { self.announce(upto)? } else { Vec::new() };
        let control = self.client.poll()?;
        self.client.seconds += cpu() - started;

        self.clock.advance(LATENCY);
        let started = cpu();
        let answers = self.receive(control, streams)?;
        self.server.seconds += cpu() - started;

        let started = cpu();
        self.client.session.handle_control(now(&self.clock), answers)?;
        let more = self.client.poll()?;
        self.client.seconds += cpu() - started;
        if !more.is_empty() {
            self.server.session.handle_control(now(&self.clock), more)?;
        }
        Ok(())
    }

    /// Announces until the turn, the window or the work is over. Gives each entity stream's header.
    fn announce(&mut self, upto: u64) -> Result<Vec<Bytes>, Failure> {
        let mut streams = Vec::with_capacity(TURN);
        self.blocked = false;
        while streams.len() < TURN {
            let time = now(&self.clock);
            let ticket = match (self.shape, self.document) {
                (Shape::Documents { children }, Some((root, done))) if done == children => {
                    self.client.session.end_children(time, root)?;
                    self.document = None;
                    continue;
                }
                (_, None) if self.announced >= upto => break,
                (Shape::Documents { .. }, Some((root, _))) => self.client.session.announce(time, Some(root), false)?,
                (Shape::Documents { .. }, None) => self.client.session.announce(time, None, true)?,
                (Shape::Flat, _) => self.client.session.announce(time, None, false)?,
            };
            let Some(ticket) = ticket else {
                self.blocked = true;
                break;
            };
            match &mut self.document {
                Some((_, done)) => *done += 1,
                None if matches!(self.shape, Shape::Documents { .. }) => self.document = Some((ticket.key, 0)),
                None => {}
            }
            self.announced += 1;
            let header = header(&self.client.session, &ticket);
            self.header_bytes += header.len() as u64;
            streams.push(header);
        }
        Ok(streams)
    }

    fn receive(&mut self, control: Bytes, streams: Vec<Bytes>) -> Result<Bytes, Failure> {
        let (time, server) = (now(&self.clock), &mut self.server);
        server.timeouts(time);
        server.session.handle_control(time, control)?;
        for bytes in streams {
            server.session.handle_stream_opened(time)?;
            let header = HeaderDecoder::new().push(bytes)?.ok_or("a header is not whole")?;
            // The stream's number matters only where a stream is held or stopped, which poll() refuses.
            let Admission::Accepted(accepted) = server.session.handle_header(time, 2, &header)? else {
                return Err("a stream was not accepted".into());
            };
            if self.completes {
                server.session.complete(time, accepted.key);
            }
        }
        server.poll()
    }
}

fn header(session: &Session, ticket: &Ticket) -> Bytes {
    let mut header = EntityHeader {
        content_type: "text/plain; charset=utf-8".to_owned(),
        payload_length: 1_024,
        checksum: Bytes::from_static(&[0x5a; 32]),
        ..EntityHeader::default()
    };
    session.bind_header(ticket, &mut header);
    header.encode()
}

pub(crate) fn now(clock: &FakeClock) -> Now {
    Now { instant: clock.instant(), unix_micros: clock.unix_micros() }
}
