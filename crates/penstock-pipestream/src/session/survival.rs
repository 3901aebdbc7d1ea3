//! A session that outlives its connection (layer 2): stream 0 is resumed.
//!
//! Each end counts the frames that it has taken from stream 0, and keeps the bytes of those that it
//! has sent until the peer acknowledges them. On the next connection both ends state their counts
//! in SESSION, and each repeats what the other has missed. So every frame of stream 0 is taken once
//! and in order, however often the connection is lost, and the rest of the session is not affected.
//! Frames that belong to a connection are not counted: CAPABILITIES, SESSION, heartbeats.
//!
//! Entity streams are lost. Once an end has taken every frame that the peer had sent, it opens the
//! streams of its entities without a terminal status again. The receiver stops those that it does
//! not need, like late streams.
//!
//! ```text
//!           suspend()            client: reconnect()                    SESSION of the peer
//!  Up ─────────────────► Down ──────────────────────► Greeting ──────────────────────────────► Up, catching up
//!   ▲                     │ ▲                             │ suspend()                             │
//!   │                     │ └─────────────────────────────┘                                       │
//!   │                     └─ server: adopt(fresh), whose SESSION has arrived ────────────────────►│
//!   └───── Layer2Event::Reconnected: all frames that the peer's SESSION counts were taken ────────┘
//! ```

use std::collections::HashSet;

use super::Session;
use super::inbound::Payload;
use super::input::Input;
use super::link::{Link, UnacknowledgedFrames};
use super::state::State;
use super::types::{EntityKey, Event, Layer2Event, Role, Ticket};
use crate::error::{LimitError, Misuse, Result, Violation};
use crate::frame::FrameDecoder;
use crate::messages::CompletionPolicy;
use crate::time::Now;
use crate::{Capabilities, Frame, Layer2Frame, SessionFrame};

/// The number of frames, or bytes, after which they are acknowledged to the peer.
const ACKNOWLEDGE_FRAMES: u64 = 512;
const ACKNOWLEDGE_BYTES: usize = 64 << 10;

/// The most bytes that may follow a resuming SESSION before the driver has found that session; an
/// honest peer waits.
const MAX_EARLY: usize = 64 << 10;

/// Return whether a frame belongs only to its connection, and is not counted.
fn is_of_connection(frame: &Frame) -> bool {
    match frame {
        Frame::Capabilities(_) | Frame::Layer2(Layer2Frame::Session(_)) => true,
        Frame::Status(status) => status.is_of_connection(),
        Frame::ScopeDigest(_)
        | Frame::Barrier(_)
        | Frame::Checkpoint(_)
        | Frame::Error(_)
        | Frame::Layer2(_)
        | Frame::Private(_) => false,
    }
}

impl Session {
    /// Return whether both ends can resume the session after its connection is lost.
    pub fn survives(&self) -> bool {
        self.survival.agreed && self.state != State::Closed
    }

    /// Return whether the session waits for another connection.
    pub fn is_suspended(&self) -> bool {
        self.survival.link == Link::Down && self.state != State::Closed
    }

    /// Return whether a client has a new connection on which the server has not confirmed yet that the session resumes.
    pub fn is_returning(&self) -> bool {
        matches!(self.survival.link, Link::Greeting { .. }) && self.state != State::Closed
    }

    /// Return whether entity streams may be opened: not from [`suspend`](Self::suspend) until
    /// [`Layer2Event::Reconnected`], after which a [`Layer2Event::SendAgain`] follows for every one of our open
    /// entities, including those that were announced meanwhile.
    pub fn may_send(&self) -> bool {
        self.survival.is_up() && !self.survival.catching_up && self.state != State::Closed
    }

    /// Suspend the session after its connection was lost, until [`reconnect`](Self::reconnect) or
    /// [`adopt`](Self::adopt). Return `false` if it cannot be suspended; then call
    /// [`handle_connection_lost`](Self::handle_connection_lost), which also ends a suspended
    /// session. A connection that the peer closed with an application code is not lost but ended.
    ///
    /// All streams are lost with the connection. `whole` returns whether the payload of a received
    /// entity with open streams has arrived and will be completed or failed; every other entity is
    /// sent again, so drop its received bytes.
    ///
    /// Meanwhile commands are accepted as always, and time continues: call [`handle_timeout`](Self::handle_timeout).
    /// Nothing is transmitted.
    pub fn suspend(&mut self, now: Now, whole: impl Fn(EntityKey) -> bool) -> bool {
        if !self.survives() {
            return false;
        }
        let (mut keep, unreported) = (Vec::new(), self.unreported());
        for scope in self.inbound.values() {
            let receiving = scope.iter_open().filter(|(_, entity)| entity.payload == Payload::Receiving);
            keep.extend(receiving.map(|(key, _)| key).filter(|key| !unreported.contains(key) && whole(*key)));
        }
        keep.sort_unstable();
        self.note(Some(now), || Input::Suspend { keep: keep.clone() });
        self.suspend_with(&keep);
        true
    }

    /// Return the entities whose admission was not reported yet.
    fn unreported(&self) -> HashSet<EntityKey> {
        let admitted = self.events.iter().filter_map(|event| {
            let Event::Admitted { accepted, .. } = event else { return None };
            Some(accepted.key)
        });
        admitted.collect()
    }

    pub(super) fn suspend_with(&mut self, keep: &[EntityKey]) {
        self.survival.link = Link::Down;
        self.survival.catching_up = true;
        self.decoder = FrameDecoder::new();
        self.control.clear();
        self.greeting = 0;
        if let Some(pace) = &mut self.pace {
            pace.interrupt();
        }
        self.transmits.clear();
        self.held = Default::default();
        for scope in self.inbound.values_mut() {
            for (key, entity) in scope.iter_open_mut() {
                entity.lose_streams(keep.binary_search(&key).is_ok());
            }
        }
        let lost = |event: &Event| matches!(event, Event::Admitted { .. } | Event::Layer2(Layer2Event::SendAgain(_)));
        self.events.retain(|event| !lost(event));
    }

    /// Begin a client's new connection: CAPABILITIES and SESSION are sent once more, and [`Layer2Event::Reconnected`]
    /// follows.
    ///
    /// # Errors
    ///
    /// Misuse unless the session is suspended, and for a server.
    pub fn reconnect(&mut self, now: Now) -> Result<()> {
        if self.role != Role::Client || !self.is_suspended() {
            return Err(Misuse::NotSuspended.into());
        }
        self.survival.link = Link::Greeting { agreed: false };
        self.last_control_received = now.instant;
        self.send_capabilities();
        Ok(())
    }

    /// Resume, at a server, the session that [`Layer2Event::Returns`] has named. `fresh` is the
    /// session of the new connection; this session continues on that connection, with the bytes
    /// that `fresh` has taken there.
    ///
    /// # Errors
    ///
    /// Misuse unless the session is suspended and `fresh` has named it. LAYER_UNSUPPORTED if the
    /// new agreement differs from the earlier one, ENTITY_INVALID if the peer's counts contradict
    /// ours; these close the session.
    pub fn adopt(&mut self, now: Now, fresh: Self) -> Result<()> {
        let Link::Returning(frame) = fresh.survival.link else {
            return Err(Misuse::NotNamedByPeer.into());
        };
        if self.role != Role::Server || !self.is_suspended() || self.id() != Some(frame.session) {
            return Err(Misuse::NotSuspendedHere.into());
        }
        self.last_control_received = now.instant;
        self.decoder = fresh.decoder;
        self.control = fresh.control;
        self.greeting = fresh.greeting;
        let same = self.same_agreement(fresh.agreement);
        self.guard(same)?;
        self.survival.link = Link::Up;
        self.send_session(true);
        let outcome = self.resume_connection(now, frame);
        self.guard(outcome)?;
        self.take_frames(now)
    }

    /// Refuse to resume the session that [`Layer2Event::Returns`] has named, at a server that does not know it:
    /// CLAIM_NOT_FOUND closes this session.
    pub fn refuse_return(&mut self, _now: Now) {
        if let Link::Returning(frame) = self.survival.link {
            self.close_with(&Violation::UnknownSession(frame.session).into());
        }
    }

    /// Send a frame of the session, if there is a connection, and keep it until the peer has taken it.
    pub(super) fn send_frame(&mut self, frame: &Frame) {
        let before = self.control.len();
        frame.encode(&mut self.control);
        if let Some(kept) = &mut self.survival.kept {
            kept.push(self.control.get(before..).unwrap_or_default());
            if self.survival.link != Link::Up {
                self.control.truncate(before);
            }
        }
    }

    /// Send a frame of the connection, which is not repeated on another one.
    pub(super) fn send_on_link(&mut self, frame: &Frame) {
        if self.survival.link != Link::Down {
            frame.encode(&mut self.control);
        }
    }

    /// Send SESSION, with the session's `policy` if it has one.
    pub(super) fn begin_session(&mut self, policy: Option<CompletionPolicy>) {
        self.send_session_frame(false, policy);
    }

    pub(super) fn send_session(&mut self, goes_on: bool) {
        self.send_session_frame(goes_on, None);
    }

    fn send_session_frame(&mut self, goes_on: bool, policy: Option<CompletionPolicy>) {
        let Some(session) = self.resilience.name() else { return };
        let received = self.survival.received_count();
        let sent = self.survival.kept.as_ref().filter(|_| goes_on).map(UnacknowledgedFrames::sent);
        self.survival.acknowledged = self.survival.received;
        self.survival.unacknowledged_bytes = 0;
        self.send_on_link(&Frame::Layer2(Layer2Frame::Session(SessionFrame { session, received, sent, policy })));
    }

    /// Decide from the peer's first SESSION whether the session can be resumed.
    pub(super) fn settle_survival(&mut self, received: Option<u64>) -> Result<()> {
        self.survival.agreed = self.survival.kept.is_some() && received.is_some();
        match received {
            Some(received) if self.survival.agreed => {
                if let Some(journal) = &mut self.journal {
                    journal.begin();
                }
                self.handle_acknowledged(received)
            }
            Some(_) | None => {
                self.survival.kept = None;
                self.journal = None;
                Ok(())
            }
        }
    }

    /// Handle the peer's count of taken frames.
    pub(super) fn handle_acknowledged(&mut self, received: u64) -> Result<()> {
        let Some(kept) = &mut self.survival.kept else { return Ok(()) };
        if !kept.forget(received) {
            let (sent, acknowledged) = (kept.sent(), kept.first);
            return Err(Violation::SessionReceived { received, sent, acknowledged }.into());
        }
        self.capacity_came_free();
        Ok(())
    }

    /// Check that the new agreement equals the earlier one.
    fn same_agreement(&self, agreement: Option<crate::Agreement>) -> Result<()> {
        if self.agreement == agreement {
            return Ok(());
        }
        Err(Violation::Capabilities.into())
    }

    /// Handle CAPABILITIES of a later connection, at a client.
    pub(super) fn handle_capabilities_again(&mut self, offered: &Capabilities) -> Result<()> {
        let agreement = self.config.capabilities.negotiate(offered)?;
        self.same_agreement(Some(agreement))?;
        self.survival.link = Link::Greeting { agreed: true };
        self.decoder.expect_layer2();
        self.send_session(true);
        Ok(())
    }

    /// Handle SESSION of a later connection, at a client: the session resumes.
    pub(super) fn handle_session_again(&mut self, now: Now, frame: SessionFrame) -> Result<()> {
        if self.resilience.name() != Some(frame.session) {
            return Err(Violation::OtherSession.into());
        }
        self.resume_connection(now, frame)
    }

    /// Resume, now that both counts are known, and repeat what the peer has missed.
    pub(super) fn resume_connection(&mut self, now: Now, frame: SessionFrame) -> Result<()> {
        let (Some(received), Some(sent)) = (frame.received, frame.sent) else {
            return Err(Violation::NoResumption.into());
        };
        if sent < self.survival.received {
            return Err(Violation::SessionSent { sent, received: self.survival.received }.into());
        }
        self.note(Some(now), || Input::ResumeConnection { received, sent });
        self.handle_acknowledged(received)?;
        self.survival.link = Link::Up;
        self.survival.awaited = sent;
        self.last_status_sent = now.instant;
        if let Some(kept) = &self.survival.kept {
            self.control.extend_from_slice(&kept.bytes);
        }
        self.catch_up();
        Ok(())
    }

    /// Check that a frame may arrive now, before it is handled, and return whether it is counted.
    pub(super) fn count_frame(&mut self, frame: &Frame) -> Result<bool> {
        let fits = match (self.survival.link, frame) {
            (Link::Up, _) => true,
            (Link::Greeting { agreed }, Frame::Capabilities(_)) => !agreed,
            (Link::Greeting { agreed }, Frame::Layer2(Layer2Frame::Session(_))) => agreed,
            (Link::Greeting { agreed }, Frame::Status(status)) => agreed && status.is_of_connection(),
            (
                Link::Greeting { .. },
                Frame::ScopeDigest(_)
                | Frame::Barrier(_)
                | Frame::Checkpoint(_)
                | Frame::Error(_)
                | Frame::Layer2(_)
                | Frame::Private(_),
            )
            | (Link::Down | Link::Returning(_), _) => false,
        };
        if !fits {
            return Err(Violation::BeforeResumption { frame_type: frame.frame_type() }.into());
        }
        let counted = !is_of_connection(frame);
        self.survival.received += u64::from(counted);
        Ok(counted)
    }

    /// Stop catching up, after a frame, once everything has arrived that the peer sent before this
    /// connection.
    pub(super) fn catch_up(&mut self) {
        if !self.survival.catching_up || !self.survival.is_up() || self.survival.received < self.survival.awaited {
            return;
        }
        self.survival.catching_up = false;
        self.push_layer2_event(Layer2Event::Reconnected);
        for ticket in self.unsent() {
            self.send_again(ticket);
        }
        self.advance_close();
    }

    /// Return our open entities whose streams the receiver may not have, except those that wait for a decision or a
    /// delay, in the order of their IDs.
    fn unsent(&self) -> Vec<Ticket> {
        let mut tickets: Vec<Ticket> = Vec::with_capacity(self.open_owned);
        for scope in self.outbound.values() {
            let (depth, parent) = (scope.depth.unwrap_or(0), scope.parent);
            let open = scope.iter_open().filter(|(_, entity)| entity.is_to_be_sent());
            tickets.extend(open.map(|(key, entity)| Ticket {
                key,
                parent_id: parent.map_or(entity.parent_id(), |parent| parent.entity),
                depth,
                child_scope: entity.child(),
            }));
        }
        tickets.sort_unstable_by_key(|ticket| ticket.key);
        tickets
    }

    /// Acknowledge, after bytes were handled, if enough have arrived, and check that the peer
    /// acknowledges too.
    pub(super) fn acknowledge(&mut self, bytes: usize) -> Result<()> {
        let Some(layer2) = self.config.layer2.as_ref().filter(|_| self.survival.kept.is_some()) else { return Ok(()) };
        if self.survival.kept_bytes() > layer2.max_unacknowledged {
            return Err(LimitError::Unacknowledged { bytes: self.survival.kept_bytes() }.into());
        }
        if !self.survival.agreed || !self.survival.is_up() {
            return Ok(());
        }
        self.survival.unacknowledged_bytes += bytes;
        let frames = self.survival.received - self.survival.acknowledged;
        if frames >= ACKNOWLEDGE_FRAMES || (frames > 0 && self.survival.unacknowledged_bytes >= ACKNOWLEDGE_BYTES) {
            self.send_session(false);
        }
        Ok(())
    }

    /// Acknowledge all frames, together with a heartbeat.
    pub(super) fn acknowledge_all(&mut self) {
        if self.survival.agreed && self.survival.received > self.survival.acknowledged {
            self.send_session(false);
        }
    }

    /// Return whether too many bytes are unacknowledged to announce anything new.
    pub(super) fn is_unacknowledged(&self) -> bool {
        let limit = self.config.layer2.as_ref().map_or(usize::MAX, |layer2| layer2.max_unacknowledged / 2);
        self.survival.kept_bytes() > limit
    }

    /// Return whether received bytes must not be decoded now: those of a lost connection are
    /// dropped, those before [`adopt`](Self::adopt) stay buffered.
    pub(super) fn skip_bytes(&mut self) -> Result<bool> {
        match self.survival.link {
            Link::Up | Link::Greeting { .. } => Ok(false),
            // These are bytes of the lost connection.
            Link::Down => {
                self.decoder = FrameDecoder::new();
                Ok(true)
            }
            Link::Returning(_) if self.decoder.buffered() > MAX_EARLY => Err(LimitError::EarlyBytes.into()),
            Link::Returning(_) => Ok(true),
        }
    }

    /// Handle the SESSION of a client that resumes another session, which the driver must find.
    pub(super) fn handle_return(&mut self, frame: SessionFrame) -> Result<()> {
        if self.survival.kept.is_none() {
            return Err(Violation::ShortSession(frame.session).into());
        }
        if self.survival.received > 0 || self.counters.announced > 0 {
            return Err(Violation::LateResumption.into());
        }
        self.survival.link = Link::Returning(frame);
        self.push_layer2_event(Layer2Event::Returns(frame.session));
        Ok(())
    }
}
