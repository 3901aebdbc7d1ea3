//! The session: both ends of a PipeStream connection as one state machine.
//!
//! # Calling order
//!
//! After any `handle_*` or command, call [`Session::poll_event`] until `None`, act on the events, then call
//! [`Session::poll_transmit`] until `None` and carry the transmits out; then arrange for
//! [`Session::handle_timeout`] at [`Session::poll_timeout`]. Events come first, so that what must be on disk before
//! the peer hears of it can be.
//!
//! Payloads never pass through here. A driver reads an entity stream's header, asks [`Session::handle_header`], lets
//! somebody else receive and verify the octets, and says [`Session::complete`] or [`Session::fail`].
//!
//! # States
//!
//! ```text
//!                peer's CAPABILITIES          close() of a client
//!  Negotiating ─────────────────────► Open ─────────────────────► Draining ──everything terminal──► Closed
//!       │                              │                             │
//!       └───────────── an error of the connection, abort(), its loss ┴─────────────────────────────► Closed
//! ```
//!
//! The scopes that we own are in `outbound`, the peer's in `inbound`; a received entity's own states stand in
//! `receiver.rs`, a sent one's in `owner.rs`.

mod checkpoint;
mod closing;
mod control;
mod gather;
mod owner;
mod receiver;
mod scopes;
mod seen;
mod streams;
#[cfg(test)]
mod tests;
mod types;

use std::collections::VecDeque;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use penstock_wire::FastMap;

pub use seen::{Counters, Limit, Usage};
pub use types::{
    Accepted, AcceptedChunk, Admission, ChunkProgress, EntityKey, Event, Reason, Role, ScopeKey, SessionConfig, Ticket,
    Transmit,
};

use crate::error::{Error, ErrorCode, Result};
use crate::manifest::Manifest;
use crate::scope::Scope;
use crate::status::Status;
use crate::time::Now;
use crate::{Agreement, Capabilities, ErrorFrame, Frame, FrameDecoder, StatusFrame};
use checkpoint::{Checkpoints, LevelZero};
use gather::Orphans;
use owner::Outbound;
use receiver::Inbound;
use scopes::{OwnScopes, PeerScopes};
use streams::HeldStreams;

/// Where a session is; the diagram stands above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Negotiating,
    Open,
    /// `awaiting` is the sequence number of the CHECKPOINT that goes before the close (decision 17).
    Draining {
        awaiting: Option<u64>,
    },
    Closed,
}

/// One end of a connection. The module's documentation has the calling order and the states.
#[derive(Debug)]
pub struct Session {
    role: Role,
    config: SessionConfig,
    state: State,
    agreement: Option<Agreement>,
    decoder: FrameDecoder,
    outbound: FastMap<u16, Scope<Outbound>>,
    own_scopes: OwnScopes,
    sent: Manifest,
    inbound: FastMap<u16, Scope<Inbound>>,
    peer_scopes: PeerScopes,
    gathering: Manifest,
    held: HeldStreams,
    orphans: Orphans,
    checkpoints: Checkpoints,
    level_zero: LevelZero,
    open_owned: usize,
    open_received: usize,
    blocked: bool,
    last_status_sent: Instant,
    last_control_received: Instant,
    control: BytesMut,
    transmits: VecDeque<Transmit>,
    events: VecDeque<Event>,
    counters: Counters,
    ended: Option<Reason>,
}

impl Session {
    /// A new session. A client's CAPABILITIES are ready to be sent at once (decision 1).
    pub fn new(role: Role, config: SessionConfig, now: Now) -> Result<Self> {
        config.check()?;
        let manifest = Manifest::new(config.manifest);
        let root = role.root_scope();
        let mut session = Self {
            role,
            state: State::Negotiating,
            agreement: None,
            decoder: FrameDecoder::new(),
            outbound: FastMap::from_iter([(root, Scope::root(root))]),
            own_scopes: OwnScopes::new(role),
            sent: manifest.clone(),
            inbound: FastMap::from_iter([(1 - root, Scope::root(1 - root))]),
            peer_scopes: PeerScopes::default(),
            gathering: manifest,
            held: HeldStreams::default(),
            orphans: Orphans::default(),
            checkpoints: Checkpoints::default(),
            level_zero: LevelZero::default(),
            open_owned: 0,
            open_received: 0,
            blocked: false,
            last_status_sent: now.instant,
            last_control_received: now.instant,
            control: BytesMut::new(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
            ended: None,
            config,
        };
        if role == Role::Client {
            session.send_capabilities();
        }
        Ok(session)
    }

    /// What both ends agreed on, once both CAPABILITIES have come.
    pub fn agreement(&self) -> Option<Agreement> {
        self.agreement
    }

    /// Whether the session is over.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Why the session is over, if it is, before its last events are polled.
    pub fn end(&self) -> Option<&Reason> {
        self.ended.as_ref()
    }

    /// Entities of ours without a terminal status.
    pub fn open_owned(&self) -> usize {
        self.open_owned
    }

    /// Entities of the peer without a terminal status.
    pub fn open_received(&self) -> usize {
        self.open_received
    }

    /// What the session has seen so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What the session holds now.
    pub fn usage(&self) -> Usage {
        Usage {
            open_owned: self.open_owned,
            open_received: self.open_received,
            manifest_entries: self.gathering.len() + self.sent.len(),
            scopes: self.outbound.len() + self.inbound.len(),
            held_octets: self.held.octets(),
            checkpoints: self.checkpoints.open(),
        }
    }

    /// The largest payload taken, in octets.
    pub fn max_payload(&self) -> u64 {
        self.config.max_payload
    }

    /// The next thing to know, or `None`.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next thing to do on the connection, or `None`. Octets for stream 0 come in pieces of at most `max`.
    pub fn poll_transmit(&mut self, max: usize) -> Option<Transmit> {
        if !self.control.is_empty() {
            let length = self.control.len().min(max.max(1));
            return Some(Transmit::Control(self.control.split_to(length).freeze()));
        }
        self.transmits.pop_front()
    }

    /// When [`Session::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.state == State::Closed {
            return None;
        }
        let heartbeat =
            self.config.keepalive.filter(|_| self.agreement.is_some()).map(|after| self.last_status_sent + after);
        let idle = self.config.idle_timeout.map(|after| self.last_control_received + after);
        [heartbeat, idle, self.checkpoints.next_deadline(), self.gathering.poll_timeout(), self.sent.poll_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Does what has become due: heartbeats, time-outs of checkpoints and of manifest entries, the idle limit.
    pub fn handle_timeout(&mut self, now: Now) {
        if self.state == State::Closed {
            return;
        }
        if self.config.idle_timeout.is_some_and(|after| now.instant >= self.last_control_received + after) {
            let error =
                Error::new(penstock_wire::ErrorKind::Deadline, ErrorCode::IdleTimeout, "nothing came on stream 0");
            self.close_with(&error);
            return;
        }
        if self.agreement.is_some()
            && self.config.keepalive.is_some_and(|after| now.instant >= self.last_status_sent + after)
        {
            self.send_heartbeat(now);
        }
        self.expire_checkpoints(now);
        self.expire_entries(now);
        let followed = self.follow_up(now);
        if let Err(error) = followed {
            self.close_with(&error);
        }
    }

    /// Runs what a peer caused; its error closes the connection.
    fn guard<T>(&mut self, outcome: Result<T>) -> Result<T> {
        if let Err(error) = &outcome {
            self.close_with(error);
        }
        outcome
    }

    fn agreed(&self) -> Result<Agreement> {
        self.agreement.ok_or_else(|| Error::misuse("capabilities have not been negotiated yet"))
    }

    fn layer(&self) -> u8 {
        self.agreement.map_or(0, |agreement| agreement.layer)
    }

    fn send_capabilities(&mut self) {
        let capabilities: Capabilities = self.config.capabilities.clone();
        self.send_frame(&Frame::Capabilities(capabilities));
    }

    fn send_frame(&mut self, frame: &Frame) {
        frame.encode(&mut self.control);
    }

    /// Section 5.1.3.
    fn send_heartbeat(&mut self, now: Now) {
        self.last_status_sent = now.instant;
        self.send_frame(&Frame::Status(StatusFrame {
            status: Status::Unspecified,
            entity_id: crate::entity_id::CONNECTION_LEVEL,
            scope_id: 0,
            depth: 0,
            cursor: None,
            extension: None,
        }));
    }

    fn send_status(&mut self, now: Now, key: EntityKey, status: Status, depth: u8, cursor: Option<u32>) {
        self.last_status_sent = now.instant;
        self.send_frame(&Frame::Status(StatusFrame {
            status,
            entity_id: key.entity,
            scope_id: key.scope,
            depth,
            cursor,
            extension: None,
        }));
        self.events.push_back(Event::Status { key, status, depth, cursor, by_peer: false });
    }

    /// A 0xC0 ERROR frame about an entity, and the same as an event (decision 14).
    fn send_error(&mut self, key: EntityKey, reason: &Reason) {
        self.send_frame(&Frame::Error(ErrorFrame {
            code: u32::try_from(reason.code.code()).unwrap_or(u32::MAX),
            scope_id: u32::from(key.scope),
            entity_id: key.entity,
            message: reason.message.clone(),
        }));
        self.events.push_back(Event::Error {
            reason: reason.clone(),
            scope: Some(u32::from(key.scope)),
            entity: Some(key.entity),
            by_peer: false,
        });
    }

    fn stop_stream(&mut self, stream: u64, code: ErrorCode) {
        self.transmits.push_back(Transmit::StopStream { stream, code });
    }

    /// Says that whoever could not announce may try again.
    fn capacity_came_free(&mut self) {
        if std::mem::take(&mut self.blocked) {
            self.events.push_back(Event::Capacity);
        }
    }

    /// Octets of stream 0, in order. An error has closed the session: keep polling.
    pub fn handle_control(&mut self, now: Now, octets: Bytes) -> Result<()> {
        if self.state == State::Closed {
            return Ok(());
        }
        self.last_control_received = now.instant;
        self.decoder.push(octets);
        loop {
            let frame = self.decoder.next_frame();
            match self.guard(frame)? {
                Some(frame) => {
                    let outcome = self.handle_frame(now, frame);
                    self.guard(outcome)?;
                }
                None => return Ok(()),
            }
        }
    }
}
