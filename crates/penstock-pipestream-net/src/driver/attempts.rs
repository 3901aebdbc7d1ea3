//! The driver's handling of layer 2: attempts, and entities that wait ([`Layer2`](crate::driver::layer2::Layer2)).

use std::collections::VecDeque;
use std::sync::Arc;

use penstock_pipestream::messages::{CompletionPolicy, FailureAction};
use penstock_pipestream::{
    Attempt, EntityHeader, EntityKey, ErrorCode, Layer2Event, Policy, Reason, Role, SessionId, Status, Ticket,
};
use tokio::sync::oneshot;

use crate::Error;
use crate::clock::now;
use crate::command::{Reply, SendRequest};
use crate::draft::{CLAIM, Delivery, EntityDraft, claim_id};
use crate::driver::Driver;
use crate::driver::layer2::{HeaderUse, KeptEntity, KeptRoom, MAX_KEPT_BYTES};
use crate::driver::reconnect::Reconnect;
use crate::driver::stage::Stage;
use crate::port::SinkEvent;
use crate::types::{IssuedClaim, Resumed};

impl Driver {
    /// Return whether a child has to wait because the limit of kept payloads is reached.
    pub(super) fn exceeds_kept_limit(&mut self, request: &SendRequest) -> bool {
        let survives = self.session.survives();
        if self.layer2.kept_bytes < MAX_KEPT_BYTES
            || request.draft.dehydrate
            || !(survives || self.may_retry(&request.draft))
        {
            return false;
        }
        self.layer2.kept_room = KeptRoom::Awaited;
        true
    }
    /// Return whether a client sends before the server's SESSION has arrived: SESSION states whether the session
    /// survives its connection, and whether its policy is in force.
    pub(super) fn begins_before_session(&self) -> bool {
        matches!(self.reconnect, Reconnect::Never) && self.policy.is_none()
    }
    /// Return whether an entity of ours may be sent again under its parent's policy, or the session's.
    fn may_retry(&self, draft: &EntityDraft) -> bool {
        match draft.parent {
            Some(parent) => {
                !self.layer2.retryable_parents.is_empty() && self.layer2.retryable_parents.contains(&parent)
            }
            None => self.session.root_policy().is_some_and(|policy| policy.retries(0)),
        }
    }
    /// Return the policy that an entity is announced with.
    pub(super) fn policy_of(&self, draft: &EntityDraft) -> Option<CompletionPolicy> {
        let default = || self.policy.filter(|_| draft.dehydrate && draft.parent.is_none());
        draft.policy.or_else(default)
    }
    /// Keep an entity that may have to be sent again.
    pub(super) fn keep(&mut self, ticket: &Ticket, policy: Option<&CompletionPolicy>, request: &SendRequest) {
        let survives = self.session.survives();
        if policy.and_then(|policy| Policy::of(policy).ok()).is_some_and(|policy| policy.retries(0)) {
            self.layer2.retryable_parents.insert(ticket.key);
        }
        if !survives && (request.draft.dehydrate || !self.may_retry(&request.draft)) {
            return;
        }
        let layer2 = &mut self.layer2;
        if let Delivery::Payload(payload) = &request.delivery {
            let draft = request.draft.clone();
            let kept = KeptEntity { draft, payload: payload.clone() };
            layer2.kept_bytes = layer2.kept_bytes.saturating_add(kept.weight());
            layer2.kept.insert(ticket.key, kept);
        }
    }
    /// Handle an entity of ours that was not sent completely. An entity that the peer has stopped may be sent again:
    /// the peer requests that by a STATUS.
    pub(super) fn handle_not_sent(&mut self, key: EntityKey, reason: Reason, stopped: bool) {
        if !(stopped && self.layer2.keeps(key)) {
            self.session.fail(now(), key, reason);
        }
    }
    /// Record a received entity that is admitted, perhaps again. Return whether the session has
    /// redeemed a claim check for it: a header that names one is not enough, and one redemption is
    /// valid for one entity.
    pub(super) fn note_admitted(&mut self, key: EntityKey, header: &Arc<EntityHeader>) -> bool {
        let layer2 = &mut self.layer2;
        if let Some(policy) = &header.completion_policy {
            let defer = Some(FailureAction::Defer.into());
            if policy.on_failure == defer || policy.on_timeout == defer {
                layer2.header_use = HeaderUse::ClaimChecks;
            }
        }
        match layer2.header_use {
            HeaderUse::Admission => {}
            HeaderUse::ClaimChecks => layer2.keep_header(key, header),
        }
        if !layer2.redeemed.is_empty()
            && let Some(claim) = header.metadata.get(CLAIM).and_then(|text| claim_id(text))
            && layer2.redeemed.remove(&claim)
        {
            layer2.settling.insert(key, claim);
        }
        !layer2.settling.is_empty() && layer2.settling.contains_key(&key)
    }
    /// Forget an entity of ours that is terminal; return the receiver's claim check.
    pub(super) fn forget_sent(&mut self, key: EntityKey) -> Option<u64> {
        let layer2 = &mut self.layer2;
        let claim = if layer2.deferred.is_empty() { None } else { layer2.deferred.remove(&key) };
        if !layer2.resume_replies.is_empty() {
            for reply in layer2.resume_replies.remove(&key).into_iter().flatten() {
                let _ = reply.send(Err(Error::Ended("the entity ended before it was resumed")));
            }
        }
        if !layer2.retryable_parents.is_empty() {
            layer2.retryable_parents.remove(&key);
        }
        if !layer2.kept.is_empty() {
            layer2.drop_kept(key);
            if layer2.kept_bytes < MAX_KEPT_BYTES {
                match std::mem::take(&mut layer2.kept_room) {
                    KeptRoom::Unclaimed => {}
                    KeptRoom::Awaited => self.retry_waiting(),
                }
            }
        }
        claim
    }
    /// Forget a received entity that is terminal; return its claim check, and its header if that was kept.
    pub(super) fn forget_received(
        &mut self,
        key: EntityKey,
        status: Status,
    ) -> (Option<IssuedClaim>, Option<Arc<EntityHeader>>) {
        let layer2 = &mut self.layer2;
        if !layer2.yielded.is_empty() {
            layer2.yielded.remove(&key);
        }
        let header = if layer2.headers.is_empty() { None } else { layer2.drop_header(key) };
        let claim = if layer2.deferring.is_empty() { None } else { layer2.deferring.remove(&key) };
        if !layer2.settling.is_empty()
            && let Some((claim, by)) = layer2.settling.remove(&key).zip(self.link.shared.layer2())
        {
            self.link.entity.claims.settle(claim, by, status);
        }
        (claim, header)
    }
    pub(super) fn handle_layer2(&mut self, event: &Layer2Event) {
        match event {
            Layer2Event::Named(name) => self.handle_named(*name),
            Layer2Event::AttemptFailed { key, reason, owned: true, .. } => {
                self.handle_sent_attempt_failed(*key, reason);
            }
            Layer2Event::AttemptFailed { key, owned: false, .. } => {
                self.layer2.yielded.remove(key);
                self.streams.remove_assembly(*key);
                self.batches.sink(SinkEvent::AttemptFailed { key: *key });
            }
            Layer2Event::SendAgain(ticket) => self.send_again(ticket),
            Layer2Event::Returns(session) => self.resume_target = Some(*session),
            Layer2Event::Reconnected => {
                tracing::info!(session = %self.link.shared.id(), "the session is synchronized after a reconnect");
                // This identifies a client's session of an earlier process, which already has its
                // name.
                self.stage.identify();
            }
            Layer2Event::ResumeAnswered { key, refused } => {
                if let Some(reply) = self.layer2.resume_replies.get_mut(key).and_then(VecDeque::pop_front) {
                    let _ = reply.send(Ok(refused.clone()));
                }
            }
            Layer2Event::Resumed { key, point } => {
                if let Some(resumed) = self.layer2.yielded.remove(key) {
                    // The receiver may have stopped waiting.
                    let _ = resumed.send(point.clone());
                }
            }
            Layer2Event::ClaimWanted { key, reason } => self.claim_wanted(*key, reason),
            Layer2Event::ClaimAsked { request, ask } => self.answer_claim(*request, *ask),
            Layer2Event::ClaimAnswered { answer, .. } => {
                if let Some(reply) = self.layer2.claim_requests.pop_front() {
                    let answer = answer.clone().map_err(Error::Refused);
                    let _ = reply.send(answer);
                }
            }
            Layer2Event::Deferred { key, claim_id, .. } => {
                self.layer2.deferred.insert(*key, *claim_id);
            }
            // Only the session's user needs these events.
            Layer2Event::Yielded { .. } | Layer2Event::Outcome { .. } => {}
        }
    }
    /// Handle SESSION: both ends know the session's name, and whether its policy is in force.
    fn handle_named(&mut self, name: SessionId) {
        let defers = |policy: &Policy| [policy.on_failure, policy.on_timeout].contains(&FailureAction::Defer);
        if self.session.root_policy().is_some_and(defers) {
            self.layer2.header_use = HeaderUse::ClaimChecks;
        }
        if !self.register(name) {
            // The session gets no list, and its peer gets only this error.
            self.stage = Stage::Mute;
            let message = "this server already has an open session of that ID".to_owned();
            self.session.abort(now(), Reason { code: ErrorCode::EntityInvalid, message });
            return;
        }
        match self.link.shared.role {
            Role::Server => {
                self.link.shared.set_name(name);
                self.stage.identify();
            }
            Role::Client if self.durable.is_some() && !self.session.survives() => {
                let message =
                    "a session with a state folder needs a server that supports resumable sessions".to_owned();
                self.session.abort(now(), Reason { code: ErrorCode::LayerUnsupported, message });
            }
            Role::Client => self.stage.identify(),
        }
    }
    pub(super) fn handle_sent_attempt_failed(&mut self, key: EntityKey, reason: &Reason) {
        self.stop_outgoing(key, reason.code);
        if self.durable.as_mut().is_some_and(|durable| durable.failed(key, reason)) {
            return;
        }
        let again = self.layer2.keeps(key) && self.session.retry(now(), key).is_ok();
        if !again {
            self.session.fail(now(), key, reason.clone());
        }
    }
    fn send_again(&mut self, ticket: &Ticket) {
        let Some(kept) = self.layer2.kept.get(&ticket.key) else {
            let wanted = self.durable.as_mut().is_some_and(|durable| durable.mark_wanted(ticket.key));
            if wanted && self.session.label(ticket.key).is_none() {
                let message = "the process that announced the entity has ended, and the entity has no label".to_owned();
                self.session.fail(now(), ticket.key, Reason { code: ErrorCode::InternalError, message });
            }
            return;
        };
        let (draft, payload) = (kept.draft.clone(), kept.payload.clone());
        self.queue(*ticket, draft, payload, None);
    }
    pub(super) fn wait_for_owner(
        &mut self,
        attempt: Attempt,
        point: &penstock_pipestream::yield_token::StoppingPoint,
        reply: Reply<()>,
        resumed: oneshot::Sender<Resumed>,
    ) {
        let yielded = if self.session.is_current(attempt) {
            self.session.yield_entity(now(), attempt.key, point).map_err(Error::from)
        } else {
            Err(Error::Ended("the attempt has failed in the meantime"))
        };
        if yielded.is_ok() {
            self.layer2.yielded.insert(attempt.key, resumed);
        }
        let _ = reply.send(yielded);
    }
    pub(super) fn resume(&mut self, key: EntityKey, token: &bytes::Bytes, reply: Reply<Option<Reason>>) {
        match self.session.resume(key, token) {
            Ok(()) => self.layer2.resume_replies.entry(key).or_default().push_back(reply),
            Err(error) => drop(reply.send(Err(error.into()))),
        }
    }
}
