//! The driver's handling of claim checks: ours, which the peer queries and redeems, and the peer's.

use std::sync::Arc;

use penstock_pipestream::claims::{Claim, ClaimTerms};
use penstock_pipestream::messages::StoppingPointValidation;
use penstock_pipestream::{Attempt, ClaimAsk, ClaimResponse, EntityKey, ErrorCode, Reason, Status};
use tokio::sync::oneshot;

use crate::Error;
use crate::claim_checks::Details;
use crate::clock::now;
use crate::command::{Reply, Urgent};
use crate::driver::Driver;
use crate::types::IssuedClaim;

impl Driver {
    /// Settle the claim checks that an ended session has redeemed and whose entities have not
    /// arrived: they fail, like all other open entities.
    pub(super) fn fail_redeemed(&mut self) {
        let Some(by) = self.link.shared.layer2() else { return };
        for claim in self.layer2.redeemed.drain() {
            self.link.entity.claims.settle(claim, by, Status::Failed);
        }
    }
    pub(super) fn claim_wanted(&mut self, key: EntityKey, reason: &Reason) {
        let header = self.layer2.headers.get(&key).cloned().or_else(|| self.refused_header(key));
        let details = match header {
            Some(header) => {
                let details = Details::of(&header, reason);
                self.layer2.keep_header(key, &header);
                details
            }
            None => Details::why(reason),
        };
        self.issue(self.session.attempt(key), reason.clone(), details);
    }
    /// Issue and store a claim check, then send [`Urgent::Defer`].
    pub(super) fn issue(&mut self, attempt: Attempt, reason: Reason, details: Details) {
        let Some(session) = self.link.shared.layer2() else { return };
        let key = attempt.key;
        let validation = Some(self.session.stopping_point(key, Claim::untouched()));
        let terms = ClaimTerms { session, scope: key.scope, entity: key.entity, life: None, validation };
        let claims = Arc::clone(&self.link.entity.claims);
        let commands = self.link.commands.clone();
        if claims.check_kept().is_err() {
            // The sender's policy requested a claim check; the entity stays FAILED, for its own
            // reason.
            let message =
                format!("{}; the entity is not deferred, because this end stores no claim checks", reason.message);
            commands.send_urgent(Urgent::NoClaim { attempt, reason: Reason { message, ..reason } });
            return;
        }
        tokio::spawn(async move {
            let command = match claims.issue(terms, details).await {
                Ok(claim) => {
                    let claim = IssuedClaim { id: claim.id, expiry_micros: claim.expiry_micros, reason };
                    Urgent::Defer { attempt, claim, reply: None }
                }
                Err(error) => {
                    let code = error.code().unwrap_or(ErrorCode::InternalError);
                    Urgent::NoClaim { attempt, reason: Reason { code, message: error.to_string() } }
                }
            };
            commands.send_urgent(command);
        });
    }
    /// Add the session's part to the stopping point of a received entity, and reply with it.
    pub(super) fn stopping_point(
        &self,
        key: EntityKey,
        validation: StoppingPointValidation,
        reply: oneshot::Sender<StoppingPointValidation>,
    ) {
        // The task that asks may be gone.
        let _ = reply.send(self.session.stopping_point(key, validation));
    }
    /// Defer a received entity under a claim check that is stored.
    pub(super) fn defer(&mut self, attempt: Attempt, claim: IssuedClaim, reply: Option<Reply<()>>) {
        let (id, key) = (claim.id, attempt.key);
        let deferred = if self.session.is_current(attempt) {
            self.layer2.deferring.insert(key, claim.clone());
            self.session.defer(now(), key, id, claim.expiry_micros).map_err(Error::from)
        } else {
            Ok(false)
        };
        if !matches!(deferred, Ok(true)) {
            self.layer2.deferring.remove(&key);
        }
        let ended = || Err(Error::Ended("the entity ended before it was deferred"));
        let deferred = deferred.and_then(|deferred| if deferred { Ok(()) } else { ended() });
        let failed = deferred.is_err();
        let delivered = reply.is_some_and(|reply| reply.send(deferred).is_ok());
        if failed && !delivered {
            // Otherwise the receiver of the error revokes the claim check.
            self.link.entity.claims.void(id);
        }
    }
    pub(super) fn answer_claim(&mut self, request: u64, ask: ClaimAsk) {
        let claims = Arc::clone(&self.link.entity.claims);
        let commands = self.link.commands.clone();
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
            commands.send_urgent(Urgent::AnswerClaim { request, redeemed: redeemed && answer.is_ok(), answer });
        });
    }
    /// Pass on the answer to a question of the peer about a claim check.
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
            tracing::debug!(%error, "discarded a response about a claim check: the session has ended");
        }
    }
    pub(super) fn ask_claim(&mut self, ask: ClaimAsk, reply: Reply<ClaimResponse>) {
        match self.session.ask_claim(ask) {
            Ok(()) => self.layer2.claim_requests.push_back(reply),
            Err(error) => drop(reply.send(Err(error.into()))),
        }
    }
}
