//! The session: both ends of a PipeStream connection as one state machine.
//!
//! # Calling order
//!
//! After any `handle_*` or command, call [`Session::poll_event`] until `None` and act on the
//! events, then call [`Session::poll_transmit`] until `None` and carry out the transmits; then
//! arrange for [`Session::handle_timeout`] at [`Session::poll_timeout`]. Events come first, so that
//! the caller can store everything that must be on disk before the peer learns of it.
//!
//! Payloads never pass through the session. A driver reads an entity stream's header, calls [`Session::handle_header`],
//! has the bytes received and verified elsewhere, and calls [`Session::complete`] or [`Session::fail`].
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
//! Our own scopes are in `outbound`, the peer's in `inbound`. The states of a received entity are
//! described in `receiver.rs`, those of a sent one in `owner.rs`. The files with methods of the
//! session use this file, which uses only the files with data: `inbound.rs`, `outbound.rs`,
//! `link.rs` and so on.

mod attempt;
mod binding;
mod blocks;
mod checkpoint;
mod checkpoints;
mod claims;
mod closing;
mod control;
mod counters;
mod held;
mod inbound;
mod input;
mod journal;
mod layer2;
mod link;
mod orphans;
mod outbound;
mod owner;
mod pace;
mod receiver;
mod resilience;
mod retry;
mod scope_release;
mod scopes;
mod state;
mod streams;
mod survival;
#[cfg(test)]
mod tests;
mod types;

use std::collections::VecDeque;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use penstock_wire::{FastMap, later};

pub use attempt::Attempt;
pub use counters::{Counters, Limit, LimitCounts, Usage};
pub use journal::Restored;
pub use types::{
    Accepted, AcceptedChunk, Admission, ChunkProgress, ClaimAsk, EntityKey, Event, Layer2Config, Layer2Event, Reason,
    Role, ScopeKey, SentOpen, SessionConfig, Ticket, Transmit,
};

use crate::error::{Deadline, Error, ErrorCode, Misuse, Result};
use crate::manifest::Manifest;
use crate::scope::Scope;
use crate::status::Status;
use crate::time::Now;
use crate::{Agreement, Capabilities, ErrorFrame, Extension, Frame, FrameDecoder, StatusFrame};
use binding::Unbound;
use checkpoints::{Checkpoints, LevelZero};
use held::HeldStreams;
use inbound::Inbound;
use input::{Input, Journal};
use layer2::Resilience;
use link::{Link, Survival};
use orphans::Orphans;
use outbound::Outbound;
use pace::Pace;
pub use pace::STATUS_BLOCK;
use scopes::{OwnScopes, PeerScopes};
use state::State;

/// One end of a connection. The module's documentation has the calling order and the states.
///
/// A copy is independent of the original: for simulations that explore several futures of one state.
#[derive(Debug, Clone)]
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
    /// Derived from `inbound`.
    unbound: Unbound,
    checkpoints: Checkpoints,
    level_zero: LevelZero,
    resilience: Resilience,
    survival: Survival,
    /// The time at which the session began.
    epoch: Now,
    journal: Option<Journal>,
    /// The labelled entities that have ended while records are replayed.
    replayed_outcomes: Option<Vec<(Bytes, EntityKey, Status)>>,
    open_owned: usize,
    open_received: usize,
    blocked: bool,
    last_status_sent: Instant,
    last_control_received: Instant,
    control: BytesMut,
    /// Sends stream 0 at fixed intervals, if the configuration asks for it.
    pace: Option<Pace>,
    /// Bytes at the beginning of `control` that do not wait for an interval: CAPABILITIES.
    greeting: usize,
    transmits: VecDeque<Transmit>,
    events: VecDeque<Event>,
    counters: Counters,
    ended: Option<Reason>,
}

impl Session {
    /// Make a new session. A client's CAPABILITIES are ready to be sent immediately (decision 1).
    pub fn new(role: Role, config: SessionConfig, now: Now) -> Result<Self> {
        config.check()?;
        let unnamed = config.layer2.as_ref().is_some_and(|layer2| layer2.session.is_none());
        if role == Role::Client && config.capabilities.layer2 && unnamed {
            return Err(Misuse::NoSessionName.into());
        }
        let manifest = Manifest::new(config.manifest);
        let sent = Manifest::new(config.manifest.for_sent());
        let root = role.root_scope();
        let survives = config.capabilities.layer2 && config.layer2.as_ref().is_some_and(|layer2| layer2.survives);
        let mut session = Self {
            role,
            state: State::Negotiating,
            agreement: None,
            decoder: FrameDecoder::new(),
            outbound: FastMap::from_iter([(root, Scope::root(root))]),
            own_scopes: OwnScopes::new(role),
            sent,
            inbound: FastMap::from_iter([(1 - root, Scope::root(1 - root))]),
            peer_scopes: PeerScopes::default(),
            gathering: manifest,
            held: HeldStreams::default(),
            orphans: Orphans::default(),
            unbound: Unbound::default(),
            checkpoints: Checkpoints::default(),
            level_zero: LevelZero::default(),
            resilience: Resilience::default(),
            survival: Survival::new(survives),
            epoch: now,
            journal: Some(Journal::new(now))
                .filter(|_| survives && config.layer2.as_ref().is_some_and(|layer2| layer2.journal)),
            replayed_outcomes: None,
            open_owned: 0,
            open_received: 0,
            blocked: false,
            last_status_sent: now.instant,
            last_control_received: now.instant,
            control: BytesMut::new(),
            pace: config.status_interval.map(|interval| Pace::new(interval, now.instant)),
            greeting: 0,
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

    /// Return the agreement of both ends, once both CAPABILITIES have arrived.
    pub fn agreement(&self) -> Option<Agreement> {
        self.agreement
    }

    /// Return whether the session is over.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Return why the session has ended, if it has, even before its last events are polled.
    pub fn end(&self) -> Option<&Reason> {
        self.ended.as_ref()
    }

    /// Return the number of our entities without a terminal status.
    pub fn open_owned(&self) -> usize {
        self.open_owned
    }

    /// Return the number of the peer's entities without a terminal status.
    pub fn open_received(&self) -> usize {
        self.open_received
    }

    /// Return the session's counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Return the resources that the session holds now.
    pub fn usage(&self) -> Usage {
        Usage {
            open_owned: self.open_owned,
            open_received: self.open_received,
            manifest_entries: self.gathering.len() + self.sent.len(),
            scopes: self.outbound.len() + self.inbound.len(),
            held_bytes: self.held.bytes(),
            checkpoints: self.checkpoints.open(),
        }
    }

    /// Return the longest accepted header, in bytes.
    pub fn max_header(&self) -> u32 {
        self.config.max_header
    }

    /// Return the largest accepted payload, in bytes.
    pub fn max_payload(&self) -> u64 {
        self.config.max_payload
    }

    /// Return the next event, or `None`.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Return the next action on the connection, or `None`. Bytes for stream 0 are in pieces of at
    /// most `max`; at fixed intervals, if the configuration asks for that, in whole blocks of
    /// [`STATUS_BLOCK`].
    ///
    /// If records are stored, return nothing while a record is pending: see
    /// [`poll_record`](Self::poll_record).
    pub fn poll_transmit(&mut self, max: usize) -> Option<Transmit> {
        if self.owes_record() {
            return None;
        }
        if self.pace.is_some() {
            if let Some(block) = self.poll_block(max) {
                return Some(Transmit::Control(block));
            }
        } else if !self.control.is_empty() {
            let length = self.control.len().min(max.max(1));
            return Some(Transmit::Control(self.control.split_to(length).freeze()));
        }
        self.transmits.pop_front()
    }

    /// Return when to call [`Session::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.state == State::Closed {
            return None;
        }
        let connected = self.survival.link != Link::Down;
        let greeted = self.agreement.is_some() && self.survival.is_up();
        let heartbeat = self.config.keepalive.filter(|_| greeted).map(|after| later(self.last_status_sent, after));
        let idle = self.config.idle_timeout.filter(|_| connected).map(|after| later(self.last_control_received, after));
        let entries = [self.gathering.poll_timeout(), self.sent.poll_timeout()];
        [heartbeat, idle, self.next_block(), self.checkpoints.next_deadline(), self.resilience.next_deadline()]
            .into_iter()
            .chain(entries)
            .flatten()
            .min()
    }

    /// Handle everything that is due: blocks of stream 0, heartbeats, retries, the idle limit, and
    /// the timeouts of checkpoints, policies and manifest entries.
    pub fn handle_timeout(&mut self, now: Now) {
        if self.state == State::Closed {
            return;
        }
        if self.survival.link != Link::Down
            && self.config.idle_timeout.is_some_and(|after| now.instant >= later(self.last_control_received, after))
        {
            let error = Error::from(Deadline::Silence);
            self.close_with(&error);
            return;
        }
        self.expire_block(now.instant);
        if self.agreement.is_some()
            && self.survival.is_up()
            && self.config.keepalive.is_some_and(|after| now.instant >= later(self.last_status_sent, after))
        {
            self.send_heartbeat(now);
        }
        let expired = self.expire_due(now);
        if let Err(error) = expired {
            self.close_with(&error);
        }
    }

    /// Expire what is due, and record that if it changes the session.
    fn expire_due(&mut self, now: Now) -> Result<()> {
        let due = [
            self.checkpoints.next_deadline(),
            self.resilience.next_deadline(),
            self.gathering.poll_timeout(),
            self.sent.poll_timeout(),
        ];
        if due.into_iter().flatten().any(|at| at <= now.instant) || !self.orphans.unchecked.is_empty() {
            self.note(Some(now), || Input::Timeout);
        }
        self.expire(now)
    }

    fn expire(&mut self, now: Now) -> Result<()> {
        self.expire_checkpoints(now);
        self.expire_entries(now);
        self.expire_children(now);
        self.expire_resends(now);
        self.follow_up(now)
    }

    /// Pass on the result of a peer's input; an error closes the connection.
    fn guard<T>(&mut self, outcome: Result<T>) -> Result<T> {
        if let Err(error) = &outcome {
            self.close_with(error);
        }
        outcome
    }

    fn agreed(&self) -> Result<Agreement> {
        self.agreement.ok_or(Misuse::NotAgreed.into())
    }

    fn layer(&self) -> u8 {
        self.agreement.map_or(0, |agreement| agreement.layer)
    }

    fn send_capabilities(&mut self) {
        let capabilities: Capabilities = self.config.capabilities.clone();
        let before = self.control.len();
        self.send_on_link(&Frame::Capabilities(capabilities));
        self.greeting = self.control.len() - before;
    }

    /// Send a heartbeat (section 5.1.3).
    fn send_heartbeat(&mut self, now: Now) {
        self.last_status_sent = now.instant;
        self.acknowledge_all();
        self.send_on_link(&Frame::heartbeat());
    }

    fn send_status(&mut self, now: Now, key: EntityKey, status: Status, depth: u8, cursor: Option<u32>) {
        self.send_status_with(now, key, status, depth, cursor, None);
    }

    fn send_status_with(
        &mut self,
        now: Now,
        key: EntityKey,
        status: Status,
        depth: u8,
        cursor: Option<u32>,
        extension: Option<Extension>,
    ) {
        self.last_status_sent = now.instant;
        self.send_frame(&Frame::Status(StatusFrame {
            status,
            entity_id: key.entity,
            scope_id: key.scope,
            depth,
            cursor,
            extension,
        }));
        self.events.push_back(Event::Status { key, status, depth, cursor, by_peer: false });
    }

    /// Send an 0xC0 ERROR frame about an entity, and report it as an event too (decision 14).
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

    fn push_layer2_event(&mut self, event: Layer2Event) {
        self.events.push_back(Event::Layer2(event));
    }

    fn stop_stream(&mut self, stream: u64, code: ErrorCode) {
        self.transmits.push_back(Transmit::StopStream { stream, code });
    }

    /// Notify callers that could not announce that they may try again.
    fn capacity_came_free(&mut self) {
        if std::mem::take(&mut self.blocked) {
            self.events.push_back(Event::Capacity);
        }
    }

    /// Take bytes of stream 0, in order. An error has closed the session: continue polling.
    pub fn handle_control(&mut self, now: Now, bytes: Bytes) -> Result<()> {
        if self.state == State::Closed {
            return Ok(());
        }
        self.last_control_received = now.instant;
        let length = bytes.len();
        self.decoder.push(bytes);
        self.take_frames(now)?;
        let acknowledged = self.acknowledge(length);
        self.guard(acknowledged)
    }

    /// Handle the complete frames.
    fn take_frames(&mut self, now: Now) -> Result<()> {
        loop {
            let aside = self.skip_bytes();
            if self.guard(aside)? {
                return Ok(());
            }
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
