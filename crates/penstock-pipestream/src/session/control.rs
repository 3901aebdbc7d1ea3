//! The input of stream 0: negotiation (decisions 1 to 3), and the dispatch of each frame to the
//! handlers of the owner's or the receiver's side.

use std::time::Duration;

use super::Session;
use super::input::Input;
use super::link::Link;
use super::state::State;
use super::types::{EntityKey, Event, Reason, Role};
use crate::entity_id::is_assignable;
use crate::error::{Early, Error, ErrorCode, Result, Violation};
use crate::status::Status;
use crate::time::Now;
use crate::{Barrier, Capabilities, ErrorFrame, Frame, ScopeDigest, StatusFrame};

/// The most bytes of a peer's error message that are kept.
const MAX_MESSAGE: usize = 4_096;

/// Return whether the frame is the owner's reason for giving up an entity that it has just
/// announced. The FAILED that follows ends the entity, so its timer need not start.
fn is_about(frame: &Frame, key: EntityKey) -> bool {
    matches!(frame, Frame::Error(error) if (error.scope_id, error.entity_id) == (u32::from(key.scope), key.entity))
}

impl Session {
    pub(super) fn handle_frame(&mut self, now: Now, frame: Frame) -> Result<()> {
        if self.agreement.is_none() && !matches!(frame, Frame::Capabilities(_)) {
            return Err(Violation::BeforeCapabilities { frame_type: frame.frame_type() }.into());
        }
        let counted = self.count_frame(&frame)?;
        // Frames that begin a new connection may come between PENDING and its DEHYDRATING.
        let follows =
            counted || matches!(&frame, Frame::Status(status) if self.survival.is_up() && status.is_of_connection());
        let last_pending = self.resilience.last_pending.take_if(|key| follows && !is_about(&frame, *key));
        let recorded = counted || last_pending.is_some();
        if recorded {
            self.note(Some(now), || Input::Frame { frame: frame.clone() });
        }
        self.dispatch(now, frame)?;
        if let Some(last_pending) = last_pending {
            self.start_timer(now, last_pending, Duration::ZERO);
        }
        if recorded || self.orphans.unchecked.is_empty() {
            self.follow_up(now)?;
        } else {
            // The frame is not recorded, so its consequences are recorded as those of a timeout.
            self.expire_due(now)?;
        }
        self.catch_up();
        Ok(())
    }

    fn dispatch(&mut self, now: Now, frame: Frame) -> Result<()> {
        match frame {
            Frame::Capabilities(capabilities) => self.handle_capabilities(now, &capabilities),
            Frame::Status(status) => self.handle_status(now, &status),
            Frame::ScopeDigest(digest) => self.handle_scope_digest(&digest),
            Frame::Barrier(barrier) => self.handle_barrier(now, barrier),
            Frame::Checkpoint(checkpoint) => self.handle_checkpoint(now, checkpoint),
            Frame::Error(error) => {
                self.handle_error_frame(error);
                Ok(())
            }
            Frame::Layer2(frame) => self.handle_layer2(now, frame),
            Frame::Private(frame_type) => self.handle_private(frame_type),
        }
    }

    fn handle_capabilities(&mut self, now: Now, offered: &Capabilities) -> Result<()> {
        if matches!(self.survival.link, Link::Greeting { .. }) {
            return self.handle_capabilities_again(offered);
        }
        if self.agreement.is_some() {
            return Err(Violation::SecondCapabilities.into());
        }
        let agreement = self.config.capabilities.negotiate(offered)?;
        if self.role == Role::Server {
            self.send_capabilities();
        }
        self.agreement = Some(agreement);
        if self.state == State::Negotiating {
            self.state = State::Open;
        }
        self.events.push_back(Event::Agreed(agreement));
        if agreement.layer == 2 {
            self.begin_layer2();
        } else {
            self.survival.kept = None;
            self.journal = None;
        }
        self.admit_early_streams(now)?;
        self.advance_close();
        Ok(())
    }

    fn handle_status(&mut self, now: Now, frame: &StatusFrame) -> Result<()> {
        self.check_layer(frame)?;
        if frame.status == Status::Checkpoint {
            return Ok(());
        }
        if frame.is_of_connection() {
            self.counters.heartbeats += 1;
            return Ok(());
        }
        let (scope, entity) = (u32::from(frame.scope_id), frame.entity_id);
        if !is_assignable(entity) {
            return Err(Error::from(Violation::ReservedEntity).at(scope, entity));
        }
        let outcome = if self.role.owns(frame.scope_id) {
            self.handle_receiver_status(now, frame)
        } else {
            self.handle_owner_status(now, frame)
        };
        outcome.map_err(|error| if error.scope().is_some() { error } else { error.at(scope, entity) })
    }

    /// Reject frames of a layer that was not negotiated (decision 3).
    fn check_layer(&self, frame: &StatusFrame) -> Result<()> {
        let layer = self.agreed()?.layer;
        let unsupported =
            |violation: Violation| Err(Error::from(violation).at(u32::from(frame.scope_id), frame.entity_id));
        if layer < 2 && frame.status.is_layer2() {
            return unsupported(Violation::Layer2Status { status: frame.status });
        }
        if frame.status.is_layer2() {
            self.check_named(Early::Status(frame.status))?;
        }
        if layer < 1 && (frame.depth != 0 || frame.scope_id > 1) {
            return unsupported(Violation::Layer1Status { depth: frame.depth, scope: frame.scope_id });
        }
        Ok(())
    }

    fn check_child_scope_layer(&self, scope: u16, frame: &'static str) -> Result<()> {
        if self.layer() < 1 && scope > 1 {
            return Err(Error::from(Violation::Layer1Frame { frame, scope }).at(u32::from(scope), 0));
        }
        Ok(())
    }

    fn handle_scope_digest(&mut self, digest: &ScopeDigest) -> Result<()> {
        self.check_child_scope_layer(digest.scope_id, "SCOPE_DIGEST")?;
        self.events.push_back(Event::Digest { digest: digest.clone(), by_peer: true });
        self.handle_receiver_digest(digest)
    }

    fn handle_barrier(&mut self, now: Now, barrier: Barrier) -> Result<()> {
        self.check_child_scope_layer(barrier.barrier_id, "BARRIER")?;
        self.events.push_back(Event::Barrier {
            barrier_id: barrier.barrier_id,
            parent_id: barrier.parent_id,
            released: barrier.released,
            by_peer: true,
        });
        match (self.role.owns(barrier.barrier_id), barrier.released) {
            (true, true) => self.handle_release(now, barrier),
            (false, false) => self.handle_end_of_scope(now, barrier),
            (true, false) => {
                Err(Error::from(Violation::ForeignBarrier).at(u32::from(barrier.barrier_id), barrier.parent_id))
            }
            (false, true) => {
                Err(Error::from(Violation::OwnRelease).at(u32::from(barrier.barrier_id), barrier.parent_id))
            }
        }
    }

    /// Record the peer's reason for a failure (decision 14); the terminal STATUS follows.
    fn handle_error_frame(&mut self, frame: ErrorFrame) {
        let mut message = frame.message;
        if message.len() > MAX_MESSAGE {
            let end = (0..=MAX_MESSAGE).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
            message.truncate(end);
        }
        let reason = Reason { code: ErrorCode::from_code(u64::from(frame.code)), message };
        if let Ok(scope) = u16::try_from(frame.scope_id)
            && !self.handle_refused_resume(scope, frame.entity_id, &reason)
        {
            self.remember_reason(scope, frame.entity_id, &reason);
            self.handle_reason(scope, frame.entity_id, &reason);
        }
        self.handle_refusal(frame.entity_id, &reason);
        let entity = Some(frame.entity_id).filter(|entity| is_assignable(*entity));
        self.events.push_back(Event::Error { reason, scope: entity.map(|_| frame.scope_id), entity, by_peer: true });
    }

    /// Keep a peer's reason for the entity whose terminal STATUS follows, whichever end owns it.
    fn remember_reason(&mut self, scope: u16, entity: u32, reason: &Reason) {
        let slot = if self.role.owns(scope) {
            self.outbound.get_mut(&scope).and_then(|scope| scope.get_mut(entity)).map(|entity| &mut entity.reason)
        } else {
            self.inbound.get_mut(&scope).and_then(|scope| scope.get_mut(entity)).map(|entity| &mut entity.reason)
        };
        if let Some(slot @ None) = slot {
            *slot = Some(Box::new(reason.clone()));
        }
    }

    /// Handle a private frame: 0xC1 to 0xC5 belong to layer 2; the rest of the range is skipped (decision 3).
    pub(super) fn handle_private(&mut self, frame_type: u8) -> Result<()> {
        if (0xC1..=0xC5).contains(&frame_type) && self.layer() < 2 {
            return Err(Violation::Layer2Frame { frame_type }.into());
        }
        self.counters.skipped_frames += 1;
        Ok(())
    }
}
