//! Layer 2 at the receiver (decision 19): entities that fail and are retried, that take too long, that wait under a
//! yield token, and that are deferred under a claim check.
//!
//! ```text
//!              fail(), a time-out: FAILED           owner's RETRYING
//!  receiving ─────────────────────────► retryable ───────────────────► announced, as at first
//!      │ ▲                                  └─ time-out ─► ABANDONED, SKIPPED or DEFERRED
//!      │ └── RESUME with its token: PROCESSING
//!      └─yield_entity(): YIELDED─► waiting, which ends by complete(), fail(), defer(), skip() too
//! ```

use bytes::Bytes;

use super::Session;
use super::inbound::{Inbound, NamedAttempt, Payload, Yielded};
use super::input::Input;
use super::state::State;
use super::types::{EntityKey, Layer2Event, Reason};
use crate::error::{Error, ErrorCode, Misuse, Result, Violation};
use crate::frame::ATTEMPT;
use crate::messages::StoppingPointValidation;
use crate::policy::{Fate, Policy};
use crate::scope::{Place, Scope};
use crate::status::Status;
use crate::time::Now;
use crate::yield_token::{self, StoppingPoint};
use crate::{EntityHeader, Extension, StatusFrame};

impl Session {
    /// Return the fate of a received entity that fails with a code; `last` if it cannot be retried
    /// anyway.
    fn fate_of_received(&self, key: EntityKey, code: ErrorCode, last: bool) -> Fate {
        let Some(scope) = self.inbound.get(&key.scope) else { return Fate::Ends(Status::Failed) };
        let (Some(policy), Some(entity)) = (scope.policy.as_deref(), self.inbound(key)) else {
            return Fate::Ends(Status::Failed);
        };
        // Children of a failed parent are not retried; its owner knows of the failure by a
        // preceding 0xC0.
        let parent_failed = scope
            .parent
            .and_then(|parent| self.inbound(parent))
            .is_some_and(|parent| parent.payload == Payload::Failed);
        let again = !last && !entity.dehydrated && entity.payload != Payload::SetAside && !parent_failed;
        policy.fate(code, entity.failures(), again)
    }

    /// Let a failed entity wait for its owner's RETRYING, if its failure is not final; return
    /// whether it waits.
    pub(super) fn await_retry(&mut self, now: Now, key: EntityKey, reason: &Reason) -> bool {
        if self.fate_of_received(key, reason.code, false) != Fate::Retry {
            return false;
        }
        self.drop_streams(key, reason.code);
        let delay =
            self.inbound.get(&key.scope).and_then(|scope| scope.policy.as_deref()).map(|policy| policy.retry_delay);
        let Some(entity) = self.inbound_mut(key) else { return false };
        entity.payload = Payload::SetAside;
        entity.header_seen = false;
        entity.reason = None;
        let layer2 = entity.layer2_mut();
        layer2.failures += 1;
        layer2.yielded = None;
        let failures = layer2.failures;
        self.counters.retries += 1;
        self.send_error(key, reason);
        let depth = self.inbound.get(&key.scope).and_then(|scope| scope.depth).unwrap_or(0);
        self.send_status(now, key, Status::Failed, depth, None);
        self.start_timer(now, key, delay.unwrap_or_default());
        self.push_layer2_event(Layer2Event::AttemptFailed { key, failures, reason: reason.clone(), owned: false });
        true
    }

    /// End a received entity that has failed and is not retried.
    pub(super) fn end_failed(&mut self, now: Now, key: EntityKey, reason: Option<Reason>) {
        let owner_status =
            self.inbound(key).and_then(|entity| entity.layer2.as_ref()).and_then(|layer2| layer2.owner_status);
        if let Some(status) = owner_status {
            self.resolve_received(now, key, status, reason);
            return;
        }
        let code = reason.as_ref().map_or(ErrorCode::NoError, |reason| reason.code);
        match self.fate_of_received(key, code, true) {
            Fate::Ends(status) => self.resolve_received(now, key, status, reason),
            // The entity cannot be retried, so the failure is final.
            Fate::Retry => self.resolve_received(now, key, Status::Failed, reason),
            Fate::Defer => self.want_claim(key, reason),
        }
    }

    fn want_claim(&mut self, key: EntityKey, reason: Option<Reason>) {
        let Some(entity) = self.inbound_mut(key) else { return };
        entity.reason = reason.clone().map(Box::new);
        if !std::mem::replace(&mut entity.layer2_mut().claim_wanted, true) {
            let reason = reason.unwrap_or(Reason { code: ErrorCode::NoError, message: String::new() });
            self.push_layer2_event(Layer2Event::ClaimWanted { key, reason });
        }
    }

    /// Handle RETRYING: the owner sends an entity again.
    pub(super) fn handle_retrying(&mut self, now: Now, frame: &StatusFrame, place: Place) -> Result<()> {
        self.log_status(frame);
        if place == Place::Resolved {
            self.counters.late_statuses += 1;
            return Ok(());
        }
        let Some(key) = self.inbound.get(&frame.scope_id).map(|scope| scope.entity_key(frame.entity_id)) else {
            return Ok(());
        };
        let claimed = |entity: &Inbound| entity.layer2.as_ref().is_some_and(|layer2| layer2.claim_wanted);
        if self.inbound(key).is_some_and(claimed) {
            // The RETRYING came too late: the entity only waits for its claim check.
            self.counters.late_statuses += 1;
            return Ok(());
        }
        let set_aside = self.inbound_mut(key).filter(|entity| entity.payload == Payload::SetAside);
        let Some(entity) = set_aside else {
            return Err(Violation::NotSetAside.into());
        };
        entity.payload = Payload::Awaited;
        self.start_timer(now, key, std::time::Duration::ZERO);
        self.admit_held(now, key)
    }

    /// Return the attempt to which a stream belongs. A header without the metadata belongs to the
    /// next possible attempt.
    pub(super) fn attempt_of(&self, key: EntityKey, header: &EntityHeader) -> Result<NamedAttempt> {
        let Some(entity) = self.inbound(key).filter(|_| self.layer() == 2) else { return Ok(NamedAttempt::Present) };
        let set_aside = entity.payload == Payload::SetAside;
        let next = entity.attempt() + u32::from(set_aside);
        let Some(named) = header.metadata.get(ATTEMPT) else {
            return Ok(if set_aside { NamedAttempt::Early } else { NamedAttempt::Present });
        };
        // In its canonical form: from 1, without a sign or leading zeros.
        let number = named.parse::<u32>().ok().filter(|number| *number > 0 && number.to_string() == *named);
        match number {
            Some(number) if number < next => Ok(NamedAttempt::Past),
            Some(number) if number == next => Ok(if set_aside { NamedAttempt::Early } else { NamedAttempt::Present }),
            Some(_) | None => Err(Violation::Attempt { named: named.clone(), next }.into()),
        }
    }

    /// Restart an entity's timer, if its policy has one.
    pub(super) fn start_timer(&mut self, now: Now, key: EntityKey, more: std::time::Duration) {
        let timeout =
            self.inbound.get(&key.scope).and_then(|scope| scope.policy.as_deref()).and_then(|policy| policy.timeout);
        let Some(timeout) = timeout else { return };
        self.stop_timer(key);
        let Some(deadline) = now.instant.checked_add(timeout.saturating_add(more)) else { return };
        if let Some(entity) = self.inbound_mut(key) {
            entity.layer2_mut().deadline = Some(deadline);
            self.resilience.deadlines.insert((deadline, key));
        }
    }

    pub(super) fn stop_timer(&mut self, key: EntityKey) {
        let deadline =
            self.inbound_mut(key).and_then(|entity| entity.layer2.as_mut()).and_then(|layer2| layer2.deadline.take());
        if let Some(deadline) = deadline {
            self.resilience.deadlines.remove(&(deadline, key));
        }
    }

    /// Fail the entities whose time under their policy is over.
    pub(super) fn expire_children(&mut self, now: Now) {
        while let Some((_, key)) = self.resilience.deadlines.first().copied().filter(|(at, _)| *at <= now.instant) {
            self.stop_timer(key);
            let Some(entity) = self.inbound(key) else { continue };
            // A parent whose own bytes have arrived is limited by its children's times, and an entity that waits for a
            // claim check has ended.
            if matches!(entity.payload, Payload::Delivered | Payload::Failed) {
                continue;
            }
            let message = match entity.payload {
                Payload::SetAside => "it was not sent again in the time of its policy",
                Payload::Awaited | Payload::Receiving | Payload::Delivered | Payload::Failed => {
                    "it took longer than its policy allows"
                }
            };
            self.reject(now, key, Reason { code: ErrorCode::IdleTimeout, message: message.to_owned() });
        }
    }

    /// Suspend a received entity and send its owner the token for resuming it: STATUS YIELDED.
    /// [`Layer2Event::Resumed`] reports that it resumes, from this point only if the point has a
    /// state_checksum that is still the entity's: until [`note_state`](Self::note_state) states
    /// another one, or the entity's bytes are sent again. Ending the entity meanwhile voids the
    /// token.
    ///
    /// # Errors
    ///
    /// Misuse without layer 2, for an entity that is not being received, and for a state that does not
    /// fit into a token.
    pub fn yield_entity(&mut self, now: Now, key: EntityKey, point: &StoppingPoint) -> Result<()> {
        self.note(Some(now), || Input::Yield { key, point: point.clone() });
        let place = yield_token::Place { session: self.named()?, scope: key.scope, entity: key.entity };
        let number = self.resilience.yields + 1;
        let token_key = self.config.layer2.as_ref().map(|layer2| layer2.token_key.clone());
        let token_key = token_key.ok_or(Misuse::NoLayer2)?;
        let validation = self.stopping_point(key, point.validation.clone());
        let entity =
            self.inbound_mut(key).filter(|entity| entity.payload == Payload::Receiving).ok_or(Misuse::NotReceiving)?;
        let state_checksum = validation.state_checksum.clone().unwrap_or_default();
        let checkpoint = validation.checkpoint_ref.clone();
        let point = StoppingPoint { validation, ..point.clone() };
        let token = yield_token::seal(&token_key, &place, number, &point)?;
        entity.layer2_mut().yielded = Some(Yielded { number, state_checksum, checkpoint });
        self.resilience.yields = number;
        self.counters.yields += 1;
        let depth = self.inbound.get(&key.scope).and_then(|scope| scope.depth).unwrap_or(0);
        let extension = Some(Extension::Yield { reason: point.reason, token });
        self.send_status_with(now, key, Status::Yielded, depth, None, extension);
        Ok(())
    }

    /// Add to a stopping point of a received entity what the session knows (section 9.6): how many of the entity's
    /// children are COMPLETE and how many were announced so far, and the last satisfied checkpoint in the entity's
    /// scope or, if there is none, in the session. The other fields stay as the caller set them.
    pub fn stopping_point(&self, key: EntityKey, validation: StoppingPointValidation) -> StoppingPointValidation {
        let entity = self.inbound(key);
        let gathered = entity.and_then(|entity| entity.layer2.as_ref()).and_then(|layer2| layer2.children);
        let open = || entity.and_then(|entity| entity.child).and_then(|child| self.inbound.get(&child)).map(count);
        let (complete, total) = gathered.or_else(open).unwrap_or_default();
        StoppingPointValidation {
            children_complete: Some(complete),
            children_total: Some(total),
            checkpoint_ref: self.checkpoints.reference(key.scope),
            ..validation
        }
    }

    /// Record the counts of a parent whose children are gathered, before their scope is removed.
    pub(super) fn note_children(&mut self, parent: EntityKey, scope: u16) {
        if self.layer() < 2 {
            return;
        }
        let children = self.inbound.get(&scope).map(count);
        if let Some(parent) = self.inbound_mut(parent) {
            parent.layer2_mut().children = children;
        }
    }

    /// Record that the state of a waiting entity has changed since its yield: its token is valid only for the state for
    /// which it was made (section 9.6). Nothing happens if the entity does not wait.
    pub fn note_state(&mut self, key: EntityKey, state_checksum: Bytes) {
        self.note(None, || Input::NoteState { key, state_checksum: state_checksum.clone() });
        let yielded =
            self.inbound_mut(key).and_then(|entity| entity.layer2.as_mut()).and_then(|layer2| layer2.yielded.as_mut());
        if let Some(yielded) = yielded {
            yielded.state_checksum = state_checksum;
        }
    }

    /// Handle the owner's 0xC4 RESUME: answer with PROCESSING, or with an 0xC0 that says why not. The entity stays open
    /// either way.
    pub(super) fn handle_resume(&mut self, now: Now, scope_id: u16, entity_id: u32, token: &Bytes) -> Result<()> {
        if self.role.owns(scope_id) {
            return Err(Error::from(Violation::ResumeScope).at(u32::from(scope_id), entity_id));
        }
        let key = EntityKey { scope: scope_id, scope_use: 0, entity: entity_id, entity_use: 0 };
        let key = self.inbound.get(&scope_id).map_or(key, |scope| scope.entity_key(entity_id));
        let outcome = self.open_token(key, token);
        match outcome {
            Ok(Some(point)) => {
                let depth = self.inbound.get(&scope_id).and_then(|scope| scope.depth).unwrap_or(0);
                self.send_status(now, key, Status::Processing, depth, None);
                self.push_layer2_event(Layer2Event::Resumed { key, point: Some(point) });
            }
            Ok(None) => {
                let message = "the state has changed since the yield: processing starts again".to_owned();
                self.send_error(key, &Reason { code: ErrorCode::IntegrityError, message });
                self.push_layer2_event(Layer2Event::Resumed { key, point: None });
            }
            Err(error) => {
                self.send_error(key, &Reason { code: error.code(), message: error.message() });
            }
        }
        Ok(())
    }

    /// Consume a token and return its stopping point; `None` if the token is valid, but processing
    /// cannot resume from its state.
    fn open_token(&mut self, key: EntityKey, token: &Bytes) -> Result<Option<StoppingPoint>> {
        let place = yield_token::Place { session: self.named()?, scope: key.scope, entity: key.entity };
        let token_key = self.config.layer2.as_ref().map(|layer2| layer2.token_key.clone());
        let token_key = token_key.ok_or(Misuse::NoLayer2)?;
        let (number, point) = yield_token::open(&token_key, &place, token)?;
        let yielded = self.inbound_mut(key).and_then(|entity| entity.layer2.as_mut()).map(|layer2| &mut layer2.yielded);
        let out = yielded.and_then(|yielded| yielded.take_if(|yielded| yielded.number == number));
        let Some(out) = out else {
            return Err(Violation::SpentToken.into());
        };
        let previous = point.validation.state_checksum.as_deref().unwrap_or_default();
        let unchanged = !previous.is_empty()
            && previous == out.state_checksum.as_ref()
            && point.validation.checkpoint_ref == out.checkpoint;
        Ok(Some(point).filter(|point| unchanged && point.validation.is_resumable.unwrap_or_default()))
    }

    /// Defer a received entity for good under a claim check: STATUS DEFERRED, which is terminal. The claim check must
    /// be stored before. Return whether the entity was still open; if not, the caller must void the claim check.
    ///
    /// # Errors
    ///
    /// Misuse without layer 2, and for a dehydrated entity whose children are not all terminal.
    pub fn defer(&mut self, now: Now, key: EntityKey, claim_id: u64, expiry_micros: u64) -> Result<bool> {
        self.named()?;
        self.note(Some(now), || Input::Defer { key, claim_id, expiry_micros });
        let Some(reason) = self.ready_to_end(key)? else { return Ok(false) };
        self.drop_streams(key, ErrorCode::NoError);
        let extension = Some(Extension::Claim { claim_id, expiry_micros });
        self.resolve_with(now, key, Status::Deferred, reason, extension);
        Ok(true)
    }

    /// Fail a received entity for this reason, because the claim check for deferring it was refused. FAILED is final,
    /// unless nothing but the caller wanted the claim check and the entity's policy allows a retry. Nothing happens if
    /// the entity is already resolved or waits for a retry, or its children are not all terminal.
    pub fn refuse_claim(&mut self, now: Now, key: EntityKey, reason: Reason) {
        let Ok(Some(known)) = self.ready_to_end(key) else { return };
        let Some(entity) = self.inbound(key).filter(|entity| entity.payload != Payload::SetAside) else { return };
        let wanted = entity.layer2.as_ref().is_some_and(|layer2| layer2.claim_wanted);
        self.note(Some(now), || Input::RefuseClaim { key, reason: reason.clone() });
        // The owner decides by the code whether FAILED is final. It is with the code for which the policy wanted the
        // claim check, but perhaps not with that of the refusal.
        let code = known.filter(|_| wanted).map_or(reason.code, |known| known.code);
        let reason = Reason { code, ..reason };
        if !wanted && self.await_retry(now, key, &reason) {
            return;
        }
        self.drop_streams(key, code);
        self.send_error(key, &reason);
        self.resolve_received(now, key, Status::Failed, Some(reason));
    }

    /// Skip an entity: STATUS SKIPPED, which is terminal. The receiver's echo resolves one of ours. Return
    /// whether the entity was still open.
    ///
    /// # Errors
    ///
    /// Misuse without layer 2, and for a received, dehydrated entity whose children are not all terminal.
    pub fn skip(&mut self, now: Now, key: EntityKey, reason: Reason) -> Result<bool> {
        self.named()?;
        self.note(Some(now), || Input::Skip { key, reason: reason.clone() });
        if self.role.owns(key.scope) {
            return Ok(self.give_up_as(now, key, Status::Skipped, reason));
        }
        if self.ready_to_end(key)?.is_none() {
            return Ok(false);
        }
        self.drop_streams(key, ErrorCode::NoError);
        self.resolve_received(now, key, Status::Skipped, Some(reason));
        Ok(true)
    }

    /// Return the reason known so far of an entity that may end now; `None` if it has a terminal status.
    fn ready_to_end(&self, key: EntityKey) -> Result<Option<Option<Reason>>> {
        let Some(entity) = self.inbound(key).filter(|_| self.state != State::Closed) else { return Ok(None) };
        if entity.dehydrated && entity.gathered.is_none() {
            return Err(Misuse::ChildrenOpen.into());
        }
        Ok(Some(entity.reason.as_deref().cloned()))
    }

    /// Return the policy that a header carries for the entity's children, at layer 2.
    pub(super) fn policy_of_header(&self, header: &EntityHeader) -> Result<Option<Policy>> {
        match header.completion_policy.as_ref().filter(|_| self.layer() == 2) {
            Some(message) => Policy::of(message).map(Some),
            None => Ok(None),
        }
    }
}

fn count(scope: &Scope<Inbound>) -> (u32, u32) {
    let (complete, total) = scope.progress();
    let number = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    (number(complete), number(total))
}
