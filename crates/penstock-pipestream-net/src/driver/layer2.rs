//! Layer 2: attempts, entities that wait, and claim checks. Below it, and where nothing of it is used, none of these maps
//! is ever filled, and nothing is looked up in them.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use penstock_pipestream::claims::{Claim, ClaimTerms};
use penstock_pipestream::messages::{CompletionPolicy, FailureAction, StoppingPointValidation};
use penstock_pipestream::{
    ClaimAsk, ClaimResponse, EntityHeader, EntityKey, ErrorCode, Layer2Event, Policy, Reason, Role, SessionId, Status,
    Ticket,
};
use penstock_wire::FastMap;
use tokio::sync::oneshot;

use super::super::claims::{Claims, Details};
use super::super::command::{
    Attempt, CLAIM, Commands, Delivery, EntityDraft, Issued, Reply, Resumed, SendRequest, Urgent, claim_id,
};
use super::super::payload::Payload;
use super::super::shared::now;
use super::super::sink::{SinkEvent, weight};
use super::{Driver, Road};
use crate::Error;

/// What may be kept to be sent again: a payload in memory counts with its bytes, one in a file for what it takes while it
/// is sent. Beyond it announcements wait until something kept is terminal.
const KEPT: usize = 64 << 20;
const LEAST_KEPT: usize = 16 << 10;
/// Bytes of headers that are kept for claim checks; beyond it a claim check does not say what it stands for.
const HEADERS: usize = 64 << 20;

/// What the driver keeps for layer 2.
#[derive(Debug, Default)]
pub(super) struct Layer2 {
    /// How often entities have failed that may come again, ours and the peer's.
    failures: FastMap<EntityKey, u32>,
    /// How often what has come of a received entity was void: it had failed, or its connection was lost.
    voids: FastMap<EntityKey, u32>,
    /// Parents of ours whose children may be sent again.
    retrying: HashSet<EntityKey>,
    /// Those children, as long as they are not terminal.
    kept: FastMap<EntityKey, Kept>,
    kept_bytes: usize,
    /// Whether an announcement waits for what is kept.
    kept_full: bool,
    /// Received entities that wait.
    waiting: FastMap<EntityKey, oneshot::Sender<Resumed>>,
    /// Tokens that were handed back.
    resuming: FastMap<EntityKey, VecDeque<Reply<Option<Reason>>>>,
    /// Questions of ours about claim checks, in order.
    asked: VecDeque<Reply<ClaimResponse>>,
    /// Whether a policy of the peer's may set entities aside, and the headers of those that are open since.
    defers: bool,
    headers: FastMap<EntityKey, Arc<EntityHeader>>,
    header_bytes: usize,
    /// The claim checks of received entities whose DEFERRED is on its way.
    deferring: FastMap<EntityKey, Issued>,
    /// The claim checks of entities of ours whose DEFERRED has come.
    deferred: FastMap<EntityKey, u64>,
    /// Claim checks that this session has redeemed, and whose entities have not come.
    redeemed: HashSet<u64>,
    /// Those whose entities have come.
    settling: FastMap<EntityKey, u64>,
}

/// An entity of ours that may be sent again.
#[derive(Debug)]
struct Kept {
    draft: EntityDraft,
    payload: Payload,
}

impl Kept {
    /// What it counts for. What has children does not: they could wait for ever for the end of what waits for them.
    fn weight(&self) -> usize {
        if self.draft.dehydrate { 0 } else { self.payload.footprint().max(LEAST_KEPT) }
    }
}

impl Layer2 {
    /// How often an entity has failed that may come again.
    pub(super) fn failures(&self, key: EntityKey) -> u32 {
        if self.failures.is_empty() { 0 } else { self.failures.get(&key).copied().unwrap_or_default() }
    }

    /// The number of the attempt at a received entity that counts.
    pub(super) fn present(&self, key: EntityKey) -> u32 {
        if self.voids.is_empty() { 0 } else { self.voids.get(&key).copied().unwrap_or_default() }
    }

    /// Whether what came of an attempt still counts.
    pub(super) fn is_present(&self, attempt: Attempt) -> bool {
        self.present(attempt.key) == attempt.number
    }

    /// The session is of an earlier process: it has redeemed these claim checks, and may have parents with any policy.
    pub(super) fn resumed(&mut self, redeemed: HashSet<u64>) {
        (self.defers, self.redeemed) = (true, redeemed);
    }

    /// What has come of a received entity counts no more.
    pub(super) fn void(&mut self, key: EntityKey) {
        let voids = self.voids.entry(key).or_default();
        *voids = voids.saturating_add(1);
    }

    /// Whether an entity of ours may be sent again as it is.
    fn keeps(&self, key: EntityKey) -> bool {
        !self.kept.is_empty() && self.kept.contains_key(&key)
    }

    /// Keeps a header for the claim check that its entity may get, unless there are too many.
    fn keep_header(&mut self, key: EntityKey, header: &Arc<EntityHeader>) {
        let bytes = self.header_bytes.saturating_add(weight(header));
        if bytes > HEADERS {
            return;
        }
        self.header_bytes = bytes;
        if let Some(old) = self.headers.insert(key, Arc::clone(header)) {
            self.header_bytes = self.header_bytes.saturating_sub(weight(&old));
        }
    }

    fn drop_header(&mut self, key: EntityKey) -> Option<Arc<EntityHeader>> {
        let header = self.headers.remove(&key)?;
        self.header_bytes = self.header_bytes.saturating_sub(weight(&header));
        Some(header)
    }

    fn drop_kept(&mut self, key: EntityKey) {
        if let Some(kept) = self.kept.remove(&key) {
            self.kept_bytes = self.kept_bytes.saturating_sub(kept.weight());
        }
    }
}

impl Driver {
    /// Whether a child has to wait because too much is kept already.
    pub(super) fn keeps_too_much(&mut self, request: &SendRequest) -> bool {
        let survives = self.session.survives();
        if self.layer2.kept_bytes < KEPT
            || request.draft.dehydrate
            || !(survives || self.may_come_again(&request.draft))
        {
            return false;
        }
        self.layer2.kept_full = true;
        true
    }

    /// Whether a client sends before the server's SESSION has come: that says whether the session survives its connection, and
    /// whether its policy is in force.
    pub(super) fn begins_at_once(&self) -> bool {
        matches!(self.road, Road::Ends) && self.policy.is_none()
    }

    /// Whether an entity of ours may come again by its parent's policy, or the session's.
    fn may_come_again(&self, draft: &EntityDraft) -> bool {
        match draft.parent {
            Some(parent) => !self.layer2.retrying.is_empty() && self.layer2.retrying.contains(&parent),
            None => self.session.root_policy().is_some_and(|policy| policy.retries(0)),
        }
    }

    /// The policy that an entity is announced with.
    pub(super) fn policy_of(&self, draft: &EntityDraft) -> Option<CompletionPolicy> {
        let default = || self.policy.filter(|_| draft.dehydrate && draft.parent.is_none());
        draft.policy.or_else(default)
    }

    /// Notes what may have to be sent again.
    pub(super) fn keep(&mut self, ticket: &Ticket, policy: Option<&CompletionPolicy>, request: &SendRequest) {
        let survives = self.session.survives();
        if policy.and_then(|policy| Policy::of(policy).ok()).is_some_and(|policy| policy.retries(0)) {
            self.layer2.retrying.insert(ticket.key);
        }
        if !survives && (request.draft.dehydrate || !self.may_come_again(&request.draft)) {
            return;
        }
        let layer2 = &mut self.layer2;
        if let Delivery::Payload(payload) = &request.delivery {
            let draft = request.draft.clone();
            let kept = Kept { draft, payload: payload.clone() };
            layer2.kept_bytes = layer2.kept_bytes.saturating_add(kept.weight());
            layer2.kept.insert(ticket.key, kept);
        }
    }

    /// One of ours was not sent to its end. What the peer has stopped may come again: it says so by a STATUS.
    pub(super) fn not_sent(&mut self, key: EntityKey, reason: Reason, stopped: bool) {
        if !(stopped && self.layer2.keeps(key)) {
            self.session.fail(now(), key, reason);
        }
    }

    /// A received entity is admitted, maybe again. True: it is what the session has redeemed a claim check for. That its
    /// header names one is not enough, and one redemption is good for one entity.
    pub(super) fn note_admitted(&mut self, key: EntityKey, header: &Arc<EntityHeader>) -> bool {
        let layer2 = &mut self.layer2;
        if let Some(policy) = &header.completion_policy {
            let defer = Some(FailureAction::Defer.into());
            layer2.defers |= policy.on_failure == defer || policy.on_timeout == defer;
        }
        if layer2.defers {
            layer2.keep_header(key, header);
        }
        if !layer2.redeemed.is_empty()
            && let Some(claim) = header.metadata.get(CLAIM).and_then(|text| claim_id(text))
            && layer2.redeemed.remove(&claim)
        {
            layer2.settling.insert(key, claim);
        }
        !layer2.settling.is_empty() && layer2.settling.contains_key(&key)
    }

    /// The session is over: what it has redeemed and not sent has failed, like all that has come to no end.
    pub(super) fn fail_redeemed(&mut self) {
        let Some(by) = self.link.shared.layer2() else { return };
        for claim in self.layer2.redeemed.drain() {
            self.link.entity.claims.settle(claim, by, Status::Failed);
        }
    }

    /// An entity of ours is terminal. Gives how often it had failed before, and the receiver's claim check.
    pub(super) fn forget_sent(&mut self, key: EntityKey) -> (u32, Option<u64>) {
        let layer2 = &mut self.layer2;
        let failures = if layer2.failures.is_empty() { None } else { layer2.failures.remove(&key) };
        let claim = if layer2.deferred.is_empty() { None } else { layer2.deferred.remove(&key) };
        if !layer2.resuming.is_empty() {
            for reply in layer2.resuming.remove(&key).into_iter().flatten() {
                let _ = reply.send(Err(Error::Ended("the entity came to its end before it went on")));
            }
        }
        if !layer2.retrying.is_empty() {
            layer2.retrying.remove(&key);
        }
        if !layer2.kept.is_empty() {
            layer2.drop_kept(key);
            if layer2.kept_bytes < KEPT && std::mem::take(&mut layer2.kept_full) {
                self.retry_waiting();
            }
        }
        (failures.unwrap_or_default(), claim)
    }

    /// A received entity is terminal. Gives how often it had failed before, its claim check, and its header, if that was
    /// kept.
    pub(super) fn forget_received(
        &mut self,
        key: EntityKey,
        status: Status,
    ) -> (u32, Option<Issued>, Option<Arc<EntityHeader>>) {
        let layer2 = &mut self.layer2;
        let failures = if layer2.failures.is_empty() { None } else { layer2.failures.remove(&key) };
        if !layer2.voids.is_empty() {
            layer2.voids.remove(&key);
        }
        if !layer2.waiting.is_empty() {
            layer2.waiting.remove(&key);
        }
        let header = if layer2.headers.is_empty() { None } else { layer2.drop_header(key) };
        let claim = if layer2.deferring.is_empty() { None } else { layer2.deferring.remove(&key) };
        if !layer2.settling.is_empty()
            && let Some((claim, by)) = layer2.settling.remove(&key).zip(self.link.shared.layer2())
        {
            self.link.entity.claims.settle(claim, by, status);
        }
        (failures.unwrap_or_default(), claim, header)
    }

    pub(super) fn handle_layer2(&mut self, event: &Layer2Event) {
        match event {
            Layer2Event::Named(name) => self.handle_named(*name),
            Layer2Event::AttemptFailed { key, failures, reason, owned: true } => {
                self.attempt_of_ours_failed(*key, *failures, reason);
            }
            Layer2Event::AttemptFailed { key, failures, owned: false, .. } => {
                self.layer2.failures.insert(*key, *failures);
                self.layer2.void(*key);
                self.layer2.waiting.remove(key);
                self.streams.let_go(*key);
                self.batches.sink(SinkEvent::AttemptFailed { key: *key });
            }
            Layer2Event::SendAgain(ticket) => self.send_again(ticket),
            Layer2Event::Returns(session) => self.returns = Some(*session),
            Layer2Event::Reconnected => {
                tracing::info!(session = %self.link.shared.id(), "both ends have said what the other had missed");
                // A client's of an earlier process has what it needs.
                self.opening |= !self.open;
            }
            Layer2Event::ResumeAnswered { key, refused } => {
                if let Some(reply) = self.layer2.resuming.get_mut(key).and_then(VecDeque::pop_front) {
                    let _ = reply.send(Ok(refused.clone()));
                }
            }
            Layer2Event::Resumed { key, point } => {
                if let Some(resumed) = self.layer2.waiting.remove(key) {
                    // Nobody may be waiting for it any more.
                    let _ = resumed.send(point.clone());
                }
            }
            Layer2Event::ClaimWanted { key, reason } => self.claim_wanted(*key, reason),
            Layer2Event::ClaimAsked { request, ask } => self.answer_claim(*request, *ask),
            Layer2Event::ClaimAnswered { answer, .. } => {
                if let Some(reply) = self.layer2.asked.pop_front() {
                    let answer = answer.clone().map_err(Error::Refused);
                    let _ = reply.send(answer);
                }
            }
            Layer2Event::Deferred { key, claim_id, .. } => {
                self.layer2.deferred.insert(*key, *claim_id);
            }
            // Of interest to the session's user.
            Layer2Event::Yielded { .. } | Layer2Event::Outcome { .. } => {}
        }
    }

    /// Both ends know the session's name, and whether its policy is in force.
    fn handle_named(&mut self, name: SessionId) {
        let defers = |policy: &Policy| [policy.on_failure, policy.on_timeout].contains(&FailureAction::Defer);
        self.layer2.defers |= self.session.root_policy().is_some_and(defers);
        if !self.register(name) {
            // It has no list, and no answer but this.
            self.mute = true;
            let message = "this server has a session of that ID, which has not ended".to_owned();
            self.session.abort(now(), Reason { code: ErrorCode::EntityInvalid, message });
            return;
        }
        match self.link.shared.role {
            Role::Server => {
                self.link.shared.set_name(name);
                self.opening = true;
            }
            Role::Client if self.durable.is_some() && !self.session.survives() => {
                let message = "a session with a state folder needs a server that lets sessions survive".to_owned();
                self.session.abort(now(), Reason { code: ErrorCode::LayerUnsupported, message });
            }
            Role::Client => self.opening |= !self.begins_at_once(),
        }
    }

    fn claim_wanted(&mut self, key: EntityKey, reason: &Reason) {
        let header = self.layer2.headers.get(&key).cloned().or_else(|| self.refused_header(key));
        let details = match header {
            Some(header) => {
                let details = Details::of(&header, reason);
                self.layer2.keep_header(key, &header);
                details
            }
            None => Details::why(reason),
        };
        let number = self.layer2.present(key);
        self.issue(Attempt { key, number }, reason.clone(), details);
    }

    pub(super) fn attempt_of_ours_failed(&mut self, key: EntityKey, failures: u32, reason: &Reason) {
        self.layer2.failures.insert(key, failures);
        self.stop_outgoing(key, reason.code);
        if self.durable.as_mut().is_some_and(|durable| durable.failed(key, failures, reason)) {
            return;
        }
        let again = self.layer2.keeps(key) && self.session.retry(now(), key).is_ok();
        if !again {
            self.session.fail(now(), key, reason.clone());
        }
    }

    fn send_again(&mut self, ticket: &Ticket) {
        let Some(kept) = self.layer2.kept.get(&ticket.key) else {
            let wanted = self.durable.as_mut().is_some_and(|durable| durable.wants(ticket.key));
            if wanted && self.session.label(ticket.key).is_none() {
                let message = "the process that has announced it has died, and it has no label".to_owned();
                self.session.fail(now(), ticket.key, Reason { code: ErrorCode::InternalError, message });
            }
            return;
        };
        let (draft, payload) = (kept.draft.clone(), kept.payload.clone());
        self.queue(*ticket, draft, payload, None);
    }

    /// A claim check, stored, then [`Urgent::Defer`].
    pub(super) fn issue(&mut self, attempt: Attempt, reason: Reason, details: Details) {
        let Some(session) = self.link.shared.layer2() else { return };
        let key = attempt.key;
        let validation = Some(self.session.stopping_point(key, Claim::untouched()));
        let terms = ClaimTerms { session, scope: key.scope, entity: key.entity, life: None, validation };
        let (claims, commands) = (Arc::clone(&self.link.entity.claims), self.link.commands.clone());
        if claims.check_kept().is_err() {
            // A policy of the sender's asks for it; what has failed stays FAILED, for its own reason.
            let message = format!("{}; it is not set aside, because this end keeps no claim checks", reason.message);
            commands.urge(Urgent::NoClaim { attempt, reason: Reason { message, ..reason } });
            return;
        }
        tokio::spawn(async move {
            let command = match claims.issue(&terms, details).await {
                Ok(claim) => {
                    let claim = Issued { id: claim.id, expiry_micros: claim.expiry_micros, reason };
                    Urgent::Defer { attempt, claim, reply: None }
                }
                Err(error) => {
                    let code = error.code().unwrap_or(ErrorCode::InternalError);
                    Urgent::NoClaim { attempt, reason: Reason { code, message: error.to_string() } }
                }
            };
            commands.urge(command);
        });
    }

    /// What the session adds to the stopping point of a received entity.
    pub(super) fn stopping_point(
        &self,
        key: EntityKey,
        validation: StoppingPointValidation,
        reply: oneshot::Sender<StoppingPointValidation>,
    ) {
        // Whoever asks may be gone.
        let _ = reply.send(self.session.stopping_point(key, validation));
    }

    /// Sets a received entity aside under a claim check that is stored.
    pub(super) fn defer(&mut self, attempt: Attempt, claim: Issued, reply: Option<Reply<()>>) {
        let (id, key) = (claim.id, attempt.key);
        let deferred = if self.layer2.is_present(attempt) {
            self.layer2.deferring.insert(key, claim.clone());
            self.session.defer(now(), key, id, claim.expiry_micros).map_err(Error::from)
        } else {
            Ok(false)
        };
        if !matches!(deferred, Ok(true)) {
            self.layer2.deferring.remove(&key);
        }
        let ended = || Err(Error::Ended("the entity came to its end before it was set aside"));
        let deferred = deferred.and_then(|deferred| if deferred { Ok(()) } else { ended() });
        let failed = deferred.is_err();
        let heard = reply.is_some_and(|reply| reply.send(deferred).is_ok());
        if failed && !heard {
            // Whoever hears of it takes the claim check back.
            self.link.entity.claims.void(id);
        }
    }

    fn answer_claim(&mut self, request: u64, ask: ClaimAsk) {
        let (claims, commands): (Arc<Claims>, Commands) =
            (Arc::clone(&self.link.entity.claims), self.link.commands.clone());
        let Some(by) = self.link.shared.layer2() else { return };
        tokio::spawn(async move {
            let (answer, redeemed) = match ask {
                ClaimAsk::Query { claim_id } => (claims.query(claim_id).await, false),
                ClaimAsk::Redeem { claim_id, session } => (claims.redeem(claim_id, session, by).await, true),
            };
            let answer = answer.map_err(|error| {
                let code = error.code().unwrap_or(ErrorCode::InternalError);
                let message = if let Error::Protocol(error) = &error { error.message() } else { error.to_string() };
                Reason { code, message }
            });
            commands.urge(Urgent::AnswerClaim { request, redeemed: redeemed && answer.is_ok(), answer });
        });
    }

    /// Commands about layer 2 that do not wait.
    pub(super) fn answered_claim(
        &mut self,
        request: u64,
        answer: std::result::Result<ClaimResponse, Reason>,
        redeemed: bool,
    ) {
        if let Ok(response) = answer.as_ref()
            && redeemed
        {
            self.layer2.redeemed.insert(response.claim_id);
        }
        if let Err(error) = self.session.answer_claim(request, answer) {
            // The session has ended meanwhile.
            tracing::debug!(%error, "nobody waits for the answer about a claim check");
        }
    }

    pub(super) fn wait_for_owner(
        &mut self,
        attempt: Attempt,
        point: &penstock_pipestream::yield_token::StoppingPoint,
        reply: Reply<()>,
        resumed: oneshot::Sender<Resumed>,
    ) {
        let yielded = if self.layer2.is_present(attempt) {
            self.session.yield_entity(now(), attempt.key, point).map_err(Error::from)
        } else {
            Err(Error::Ended("the attempt has failed meanwhile"))
        };
        if yielded.is_ok() {
            self.layer2.waiting.insert(attempt.key, resumed);
        }
        let _ = reply.send(yielded);
    }

    pub(super) fn resume(&mut self, key: EntityKey, token: &bytes::Bytes, reply: Reply<Option<Reason>>) {
        match self.session.resume(key, token) {
            Ok(()) => self.layer2.resuming.entry(key).or_default().push_back(reply),
            Err(error) => drop(reply.send(Err(error.into()))),
        }
    }

    pub(super) fn ask_claim(&mut self, ask: ClaimAsk, reply: Reply<ClaimResponse>) {
        match self.session.ask_claim(ask) {
            Ok(()) => self.layer2.asked.push_back(reply),
            Err(error) => drop(reply.send(Err(error.into()))),
        }
    }
}
