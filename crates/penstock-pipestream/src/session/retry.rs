//! Layer 2 at the owner (decision 19): retries of entities, and yield tokens that are returned.
//!
//! ```text
//!          FAILED, retries left         retry(): RETRYING          after retry_delay
//!  open ────────────────────────► failed ────────────────► waiting ───────────────► open: Layer2Event::SendAgain
//!                                    └─ fail(): FAILED
//! ```
//!
//! Whether a FAILED of the receiver is final is not on the wire. Both ends compute it from the parent's policy, the
//! number of failures of the entity, the code of the preceding 0xC0, and whether the parent has failed. An owner that
//! gives up while the receiver may still offer another attempt sends ABANDONED, so that the receiver's crossing FAILED
//! is not taken for an echo.

use bytes::Bytes;
use penstock_wire::later;

use super::Session;
use super::input::Input;
use super::outbound::NextAttempt;
use super::state::State;
use super::types::{EntityKey, Layer2Event, Reason, Ticket};
use crate::error::{ErrorCode, Misuse, Result};
use crate::policy::Fate;
use crate::status::Status;
use crate::time::Now;
use crate::{Frame, Layer2Frame, YieldReason};

/// The most bytes of a token that is stored with the session.
const MAX_TOKEN: usize = 64 << 10;

impl Session {
    /// Retry a failed entity: STATUS RETRYING immediately, [`Layer2Event::SendAgain`] after its policy's delay.
    ///
    /// # Errors
    ///
    /// Misuse unless [`Layer2Event::AttemptFailed`] has reported that the entity may be retried, and nothing was
    /// decided since.
    pub fn retry(&mut self, now: Now, key: EntityKey) -> Result<()> {
        self.named()?;
        self.note(Some(now), || Input::Retry { key });
        let policy = self.outbound.get(&key.scope).and_then(|scope| scope.policy.as_deref()).copied();
        let depth = self.outbound.get(&key.scope).and_then(|scope| scope.depth).unwrap_or(0);
        let layer2 = self.outbound_mut(key).and_then(|entity| entity.layer2.as_mut()).filter(|layer2| layer2.failed);
        let (Some(policy), Some(layer2)) = (policy, layer2) else {
            return Err(Misuse::NotFailed.into());
        };
        let due = later(now.instant, policy.retry_delay);
        layer2.failed = false;
        layer2.due = Some(due);
        self.resilience.resends.insert((due, key));
        self.send_status(now, key, Status::Retrying, depth, None);
        Ok(())
    }

    pub(super) fn expire_resends(&mut self, now: Now) {
        while let Some((at, key)) = self.resilience.resends.first().copied().filter(|(at, _)| *at <= now.instant) {
            self.resilience.resends.remove(&(at, key));
            let depth = self.outbound.get(&key.scope).and_then(|scope| scope.depth).unwrap_or(0);
            let parent = self.outbound.get(&key.scope).and_then(|scope| scope.parent);
            let Some(entity) = self.outbound_mut(key) else { continue };
            entity.layer2_mut().due = None;
            if !self.may_send() {
                // The next connection sends it, with all other open entities.
                continue;
            }
            let Some(entity) = self.outbound(key) else { continue };
            let parent_id = parent.map_or(entity.parent_id(), |parent| parent.entity);
            self.send_again(Ticket::again(key, parent_id, depth));
        }
    }

    /// Ask for a new stream for one of our entities.
    pub(super) fn send_again(&mut self, ticket: Ticket) {
        if let Some(layer2) = self.outbound_mut(ticket.key).and_then(|entity| entity.layer2.as_mut()) {
            layer2.next_attempt = NextAttempt::Requested;
        }
        self.push_layer2_event(Layer2Event::SendAgain(ticket));
    }

    pub(super) fn stop_resend(&mut self, key: EntityKey) {
        let due = self.outbound_mut(key).and_then(|entity| entity.layer2.as_mut()).and_then(|layer2| layer2.due.take());
        if let Some(due) = due {
            self.resilience.resends.remove(&(due, key));
        }
    }

    /// Handle the receiver's FAILED and return `true` if it is not final. Unless the entity was
    /// given up, an event then tells the caller that it may be retried.
    pub(super) fn handle_failed_attempt(&mut self, key: EntityKey) -> bool {
        let Some(scope) = self.outbound.get(&key.scope) else { return false };
        let Some(policy) = scope.policy.as_deref().copied() else { return false };
        let parent = scope.parent.and_then(|parent| self.outbound(parent)).and_then(|parent| parent.layer2.as_ref());
        let parent_failed = parent.is_some_and(|parent| parent.last_code.is_some());
        let Some(entity) = self.outbound_mut(key).filter(|entity| !entity.is_dehydrated()) else { return false };
        let layer2 = entity.layer2_mut();
        let code = layer2.last_code.unwrap_or(ErrorCode::NoError);
        let last = layer2.failed || layer2.given_up_status.is_some_and(|status| status == Status::Failed);
        if last || policy.fate(code, layer2.failures, !parent_failed) != Fate::Retry {
            return false;
        }
        layer2.last_code = None;
        layer2.token = None;
        if layer2.given_up_status.is_some() {
            // The FAILED crossed our status, so no attempt follows it; the echo is still to come.
            return true;
        }
        layer2.failures += 1;
        (layer2.failed, layer2.next_attempt) = (true, NextAttempt::Missing);
        let failures = layer2.failures;
        let reason = entity.reason.take().map(|reason| *reason);
        let reason = reason.unwrap_or(Reason { code, message: String::new() });
        self.counters.retries += 1;
        self.push_layer2_event(Layer2Event::AttemptFailed { key, failures, reason, owned: true });
        true
    }

    /// Return the status with which one of our entities can be given up unambiguously.
    pub(super) fn give_up_status(&mut self, key: EntityKey) -> Status {
        let policy = self.outbound.get(&key.scope).and_then(|scope| scope.policy.as_deref()).copied();
        let Some(policy) = policy else { return Status::Failed };
        let Some(entity) = self.outbound_mut(key).filter(|entity| !entity.is_dehydrated()) else {
            return Status::Failed;
        };
        let layer2 = entity.layer2_mut();
        if policy.retries(layer2.failures) && !layer2.failed { Status::Abandoned } else { Status::Failed }
    }

    /// Record the status with which an entity was given up.
    pub(super) fn note_given_up(&mut self, key: EntityKey, status: Status) {
        if self.layer() < 2 {
            return;
        }
        self.stop_resend(key);
        if let Some(entity) = self.outbound_mut(key) {
            let layer2 = entity.layer2_mut();
            layer2.given_up_status = Some(status);
            layer2.failed = false;
        }
    }

    /// Give up one of our entities that was just announced and of which nothing was sent: STATUS FAILED, whatever its
    /// policy, because the receiver cannot have reported anything about it. The receiver echoes it. An entity that was
    /// already given up is not changed.
    pub fn fail_unsent(&mut self, now: Now, key: EntityKey, reason: Reason) {
        if self.state != State::Closed && self.role.owns(key.scope) {
            self.note(Some(now), || Input::FailUnsent { key, reason: reason.clone() });
            self.give_up_as(now, key, Status::Failed, reason);
        }
    }

    /// Give up one of our entities because its time is over: STATUS ABANDONED, which the receiver echoes.
    ///
    /// # Errors
    ///
    /// Misuse without layer 2, and for an entity of the peer.
    pub fn abandon(&mut self, now: Now, key: EntityKey, reason: Reason) -> Result<bool> {
        self.named()?;
        self.note(Some(now), || Input::Abandon { key, reason: reason.clone() });
        if !self.role.owns(key.scope) {
            return Err(Misuse::NotOwner.into());
        }
        Ok(self.give_up_as(now, key, Status::Abandoned, reason))
    }

    /// Return a yield token, so that the receiver resumes the entity: [`Layer2Event::ResumeAnswered`] follows.
    ///
    /// # Errors
    ///
    /// Misuse without layer 2, and for an entity that is not open or not ours.
    pub fn resume(&mut self, key: EntityKey, token: &Bytes) -> Result<()> {
        self.named()?;
        self.note(None, || Input::Resume { key, token: token.clone() });
        let entity = self.outbound_mut(key).ok_or(Misuse::NotOurs)?;
        let layer2 = entity.layer2_mut();
        layer2.resuming += 1;
        layer2.token.take_if(|(_, kept)| kept == token);
        self.send_frame(&Frame::Layer2(Layer2Frame::Resume {
            scope_id: key.scope,
            entity_id: key.entity,
            token: token.clone(),
        }));
        Ok(())
    }

    /// Store a received token, so that a restarted caller has it too. A token longer than
    /// [`MAX_TOKEN`] is only passed on in its event.
    pub(super) fn keep_token(&mut self, key: EntityKey, reason: YieldReason, token: &Bytes) {
        let stored = self.config.layer2.as_ref().is_some_and(|layer2| layer2.survives && layer2.journal);
        if let Some(entity) = self.outbound_mut(key).filter(|_| stored) {
            entity.layer2_mut().token = Some((reason, token.clone())).filter(|_| token.len() <= MAX_TOKEN);
        }
    }

    /// Handle PROCESSING for one of our entities, which may answer a RESUME.
    pub(super) fn resume_accepted(&mut self, key: EntityKey) {
        let layer2 = self.outbound_mut(key).and_then(|entity| entity.layer2.as_mut());
        if let Some(layer2) = layer2.filter(|layer2| layer2.resuming > 0) {
            layer2.resuming -= 1;
            self.push_layer2_event(Layer2Event::ResumeAnswered { key, refused: None });
        }
    }

    /// Handle the receiver's 0xC0 about one of our entities: why it fails, or why its RESUME is refused.
    pub(super) fn handle_reason(&mut self, scope_id: u16, entity_id: u32, reason: &Reason) {
        if self.layer() < 2 || self.state == State::Closed {
            return;
        }
        let Some(key) = self.outbound.get(&scope_id).map(|scope| scope.entity_key(entity_id)) else { return };
        let Some(entity) = self.outbound_mut(key) else { return };
        if !entity.has_given_up() {
            // The latest reason belongs to the next status.
            entity.reason = Some(Box::new(reason.clone()));
        }
        entity.layer2_mut().last_code = Some(reason.code);
    }

    /// Handle an 0xC0 that may refuse a token of one of our entities. Return whether it is about
    /// the token alone: then the entity has not failed, and its children may still be retried.
    pub(super) fn handle_refused_resume(&mut self, scope_id: u16, entity_id: u32, reason: &Reason) -> bool {
        if self.state == State::Closed || !matches!(reason.code, ErrorCode::ClaimNotFound | ErrorCode::IntegrityError) {
            return false;
        }
        let Some(key) = self.outbound.get(&scope_id).map(|scope| scope.entity_key(entity_id)) else { return false };
        let Some(entity) = self.outbound_mut(key) else { return false };
        let dehydrated = entity.is_dehydrated();
        let Some(layer2) = entity.layer2.as_mut().filter(|layer2| layer2.resuming > 0) else { return false };
        layer2.resuming -= 1;
        self.push_layer2_event(Layer2Event::ResumeAnswered { key, refused: Some(reason.clone()) });
        // For an entity without children it may also be the reason for the FAILED that follows.
        dehydrated
    }
}
