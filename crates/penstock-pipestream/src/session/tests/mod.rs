//! Dialogues of sessions in memory, under the test's clock.
//!
//! [`Pair`] is both ends and the connection: control bytes in order, entity streams as headers.
//! [`Peer`] is one end whose peer sends hand-written frames, which a well-behaved end never sends.

// A test matches only the variant that it is about.
#![allow(clippy::wildcard_enum_match_arm)]

mod attempts;
mod bad_peers;
mod claims;
mod dehydration;
mod layer_zero;
mod lifecycle;
mod pace;
mod policies;
mod records;
mod resilience;
mod survival;
mod yields;

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use super::*;
use crate::{Barrier, Checkpoint, EntityHeader, ScopeDigest};

pub(super) fn start() -> Now {
    Now { instant: Instant::now(), unix_micros: 1_700_000_000_000_000 }
}

pub(super) fn later(now: Now, by: Duration) -> Now {
    Now { instant: now.instant + by, unix_micros: now.unix_micros + by.as_micros() as u64 }
}

pub(super) fn config(layer1: bool, window: u32) -> SessionConfig {
    let mut config = SessionConfig::default();
    config.capabilities.layer1 = layer1;
    config.capabilities.max_window_size = Some(window);
    config
}

/// Return a header as a sender makes it, for a payload of this length.
pub(super) fn header(session: &Session, ticket: &Ticket, length: u64) -> EntityHeader {
    let mut header = plain_header(0, 0, length);
    session.bind_header(ticket, &mut header);
    header
}

pub(super) fn plain_header(scope_id: u32, entity_id: u32, payload_length: u64) -> EntityHeader {
    EntityHeader {
        entity_id,
        parent_id: 0,
        scope_id,
        layer: 0,
        content_type: "text/plain".to_owned(),
        payload_length,
        checksum: Bytes::from_static(&[7; 32]),
        metadata: Default::default(),
        chunk_info: None,
        completion_policy: None,
    }
}

pub(super) fn reason(code: ErrorCode) -> Reason {
    Reason { code, message: "because".to_owned() }
}

pub(super) fn drain(session: &mut Session) -> Vec<Event> {
    std::iter::from_fn(|| session.poll_event()).collect()
}

/// Both ends of a connection.
pub(super) struct Pair {
    pub(super) now: Now,
    pub(super) client: Session,
    pub(super) server: Session,
    pub(super) client_events: Vec<Event>,
    pub(super) server_events: Vec<Event>,
    pub(super) client_closed: Option<ErrorCode>,
    pub(super) server_closed: Option<ErrorCode>,
    pub(super) stopped: Vec<(u64, ErrorCode)>,
    pub(super) client_records: Vec<Bytes>,
    pub(super) server_records: Vec<Bytes>,
    next_stream: u64,
}

impl Pair {
    pub(super) fn new(layer1: bool, window: u32) -> Self {
        let now = start();
        let client = Session::new(Role::Client, config(layer1, window), now).expect("client");
        let server = Session::new(Role::Server, config(layer1, window), now).expect("server");
        Self::of(client, server, now)
    }

    pub(super) fn of(client: Session, server: Session, now: Now) -> Self {
        let mut pair = Self::between(client, server, now);
        pair.drive();
        assert_eq!(pair.client.agreement(), pair.server.agreement());
        pair
    }

    fn between(client: Session, server: Session, now: Now) -> Self {
        Self {
            now,
            client,
            server,
            client_events: Vec::new(),
            server_events: Vec::new(),
            client_closed: None,
            server_closed: None,
            stopped: Vec::new(),
            client_records: Vec::new(),
            server_records: Vec::new(),
            next_stream: 2,
        }
    }

    /// Carry control bytes both ways until nothing moves.
    pub(super) fn drive(&mut self) {
        loop {
            self.client_events.extend(drain(&mut self.client));
            self.server_events.extend(drain(&mut self.server));
            self.client_records.extend(std::iter::from_fn(|| self.client.poll_record()));
            self.server_records.extend(std::iter::from_fn(|| self.server.poll_record()));
            let mut moved = false;
            // Small pieces, so that frames arrive split.
            while let Some(transmit) = self.client.poll_transmit(13) {
                moved = true;
                match transmit {
                    Transmit::Control(bytes) => drop(self.server.handle_control(self.now, bytes)),
                    Transmit::StopStream { stream, code } => self.stopped.push((stream, code)),
                    Transmit::Close { code, message } => {
                        self.client_closed = Some(code);
                        self.server.handle_connection_lost(self.now, Reason { code, message }, true);
                    }
                }
            }
            while let Some(transmit) = self.server.poll_transmit(11) {
                moved = true;
                match transmit {
                    Transmit::Control(bytes) => drop(self.client.handle_control(self.now, bytes)),
                    Transmit::StopStream { stream, code } => self.stopped.push((stream, code)),
                    Transmit::Close { code, message } => {
                        self.server_closed = Some(code);
                        self.client.handle_connection_lost(self.now, Reason { code, message }, true);
                    }
                }
            }
            if !moved {
                return;
            }
        }
    }

    pub(super) fn wait(&mut self, by: Duration) {
        self.now = later(self.now, by);
        self.client.handle_timeout(self.now);
        self.server.handle_timeout(self.now);
        self.drive();
    }

    pub(super) fn announce(&mut self, parent: Option<EntityKey>, dehydrate: bool) -> Ticket {
        self.client.announce(self.now, parent, dehydrate).expect("allowed").expect("window")
    }

    /// Open a client's entity stream at the server; only the header matters here.
    pub(super) fn open(&mut self, ticket: &Ticket, length: u64) -> Admission {
        let header = header(&self.client, ticket, length);
        self.open_with(&header)
    }

    pub(super) fn open_with(&mut self, header: &EntityHeader) -> Admission {
        let stream = self.next_stream;
        self.next_stream += 4;
        let admission = self.server.handle_header(self.now, stream, header).unwrap_or(Admission::Held);
        self.drive();
        admission
    }

    /// Open an entity's stream, which the server accepts immediately.
    pub(super) fn open_plain(&mut self, ticket: &Ticket) -> EntityKey {
        self.drive();
        match self.open(ticket, 0) {
            Admission::Accepted(accepted) => accepted.key,
            admission => panic!("{admission:?}"),
        }
    }

    /// Send an entity and have the server complete it.
    pub(super) fn deliver(&mut self, ticket: &Ticket) {
        self.drive();
        let admission = self.open(ticket, 0);
        let Admission::Accepted(accepted) = admission else { panic!("{admission:?}") };
        self.server.complete(self.now, accepted.key);
        self.drive();
    }

    /// Return the terminal status of one of the client's entities, from the client's events.
    pub(super) fn outcome(&self, key: EntityKey) -> Option<Status> {
        self.client_events.iter().find_map(|event| match event {
            Event::Resolved { key: resolved, status, owned: true, .. } if *resolved == key => Some(*status),
            _ => None,
        })
    }

    pub(super) fn server_outcome(&self, key: EntityKey) -> Option<(Status, Option<Reason>)> {
        self.server_events.iter().find_map(|event| match event {
            Event::Resolved { key: resolved, status, reason, owned: false, .. } if *resolved == key => {
                Some((*status, reason.clone()))
            }
            _ => None,
        })
    }

    pub(super) fn released(&self) -> Vec<ScopeDigest> {
        self.client_events
            .iter()
            .filter_map(|event| match event {
                Event::Released { digest, .. } => Some(digest.clone()),
                _ => None,
            })
            .collect()
    }
}

/// One end, with a peer that can send any frame.
pub(super) struct Peer {
    pub(super) now: Now,
    pub(super) session: Session,
}

impl Peer {
    /// Make a server that has negotiated with a client.
    pub(super) fn server(layer1: bool, window: u32) -> Self {
        Self::new(Role::Server, layer1, window)
    }

    pub(super) fn new(role: Role, layer1: bool, window: u32) -> Self {
        let now = start();
        let session = Session::new(role, config(layer1, window), now).expect("session");
        let mut peer = Self { now, session };
        let ours = config(layer1, window).capabilities;
        peer.say(&Frame::Capabilities(ours)).expect("capabilities");
        peer.received_frames();
        peer
    }

    pub(super) fn say(&mut self, frame: &Frame) -> Result<()> {
        let mut bytes = BytesMut::new();
        frame.encode(&mut bytes);
        self.session.handle_control(self.now, bytes.freeze())
    }

    pub(super) fn status(&mut self, status: Status, scope_id: u16, entity_id: u32) -> Result<()> {
        self.status_at(status, scope_id, entity_id, 0)
    }

    pub(super) fn status_at(&mut self, status: Status, scope_id: u16, entity_id: u32, depth: u8) -> Result<()> {
        self.say(&Frame::Status(StatusFrame { status, entity_id, scope_id, depth, cursor: None, extension: None }))
    }

    pub(super) fn barrier(&mut self, barrier_id: u16, parent_id: u32, released: bool) -> Result<()> {
        self.say(&Frame::Barrier(Barrier { released, barrier_id, parent_id }))
    }

    pub(super) fn checkpoint(&mut self, scope_id: u32, entity: u32, timeout_ms: u32) -> Result<()> {
        self.say(&Frame::Checkpoint(Checkpoint {
            checkpoint_id: "c".to_owned(),
            sequence_number: 1,
            checkpoint_entity_id: entity,
            scope_id,
            flags: 0,
            timeout_ms,
        }))
    }

    pub(super) fn open(&mut self, stream: u64, header: &EntityHeader) -> Result<Admission> {
        self.session.handle_header(self.now, stream, header)
    }

    /// Return the frames that the session has sent since the last call.
    pub(super) fn received_frames(&mut self) -> Vec<Frame> {
        let mut decoder = FrameDecoder::new();
        let mut frames = Vec::new();
        while let Some(transmit) = self.session.poll_transmit(usize::MAX) {
            if let Transmit::Control(bytes) = transmit {
                decoder.push(bytes);
                while let Some(frame) = decoder.next_frame().expect("our own frames") {
                    frames.push(frame);
                }
            }
        }
        frames
    }
}

/// Return a dehydrated entity's header.
pub(super) fn parent_header(scope_id: u32, entity_id: u32, child_scope: &str) -> EntityHeader {
    let mut header = plain_header(scope_id, entity_id, 0);
    header.metadata.insert("pipestream.dehydrated".to_owned(), "1".to_owned());
    header.metadata.insert("pipestream.child-scope".to_owned(), child_scope.to_owned());
    header
}

pub(super) fn child_header(scope_id: u32, entity_id: u32, parent_id: u32) -> EntityHeader {
    let mut header = plain_header(scope_id, entity_id, 0);
    header.parent_id = parent_id;
    header
}
