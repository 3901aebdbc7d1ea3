//! The session's name and claim checks on the wire (decisions 18 and 20). The claim checks themselves are in a
//! [`ClaimBook`](crate::claims::ClaimBook), which outlives the session; this module tracks the queries and their order.

use super::Session;
use super::input::Input;
use super::layer2::ClaimRequest;
use super::state::State;
use super::types::{ClaimAsk, Layer2Event, Reason, Role};
use crate::error::{Early, ErrorCode, LimitError, Misuse, Result, Violation};
use crate::messages::CompletionPolicy;
use crate::policy::Policy;
use crate::session_id::SessionId;
use crate::time::Now;
use crate::{ClaimResponse, ErrorFrame, Frame, Layer2Frame, SessionFrame};

impl Session {
    /// Return the session's name at layer 2, once both ends know it.
    pub fn id(&self) -> Option<SessionId> {
        self.resilience.name.filter(|_| self.resilience.session_received)
    }

    /// Return the session's name, if frames of layer 2 may be sent.
    pub(super) fn named(&self) -> Result<SessionId> {
        let name = self.resilience.name.filter(|_| self.state != State::Closed);
        name.ok_or(Misuse::NotNamed.into())
    }

    /// Begin layer 2, on which both ends have agreed: a client sends its name first (decision 18).
    pub(super) fn begin_layer2(&mut self) {
        self.decoder.expect_layer2();
        let name = self.config.layer2.as_ref().and_then(|layer2| layer2.session).filter(|_| self.role == Role::Client);
        if let Some(name) = name {
            self.resilience.name = Some(name);
            self.begin_session(self.config.layer2.as_ref().and_then(|layer2| layer2.policy));
        }
    }

    /// Return whether the peer's SESSION is still to come. Streams are not ordered against stream 0 (decision 7), so a
    /// stream may have overtaken it.
    pub(super) fn awaits_name(&self) -> bool {
        self.layer() == 2 && !self.resilience.session_received
    }

    /// Check that no other frame of layer 2 arrives before SESSION (decision 18).
    pub(super) fn check_named(&self, what: Early) -> Result<()> {
        if self.resilience.session_received {
            return Ok(());
        }
        Err(Violation::BeforeSession { what }.into())
    }

    pub(super) fn handle_layer2(&mut self, now: Now, frame: Layer2Frame) -> Result<()> {
        if self.layer() < 2 {
            return self.handle_private(frame.frame_type());
        }
        if let Layer2Frame::Session(session) = frame {
            return self.handle_session(now, session);
        }
        self.check_named(Early::Frame(frame.frame_type()))?;
        match frame {
            Layer2Frame::Session(_) => Ok(()),
            Layer2Frame::ClaimQuery { claim_id } => self.handle_ask(ClaimAsk::Query { claim_id }),
            Layer2Frame::ClaimRedeem { claim_id, session } => self.handle_ask(ClaimAsk::Redeem { claim_id, session }),
            Layer2Frame::ClaimResponse(response) => self.handle_claim_response(response),
            Layer2Frame::Resume { scope_id, entity_id, token } => self.handle_resume(now, scope_id, entity_id, &token),
        }
    }

    fn handle_session(&mut self, now: Now, frame: SessionFrame) -> Result<()> {
        if !self.survival.is_up() {
            return self.handle_session_again(now, frame);
        }
        let name = frame.session;
        if self.resilience.session_received {
            return match frame.received {
                Some(received)
                    if self.survival.agreed && self.resilience.name == Some(name) && frame.sent.is_none() =>
                {
                    self.note(Some(now), || Input::Acknowledged { received });
                    self.handle_acknowledged(received)
                }
                Some(_) | None => Err(Violation::SecondSession.into()),
            };
        }
        match (self.role, self.resilience.name) {
            (Role::Client, Some(ours)) if ours != name => return Err(Violation::OtherSession.into()),
            (Role::Client, _) if frame.sent.is_some() => return Err(Violation::EarlyResumption.into()),
            (Role::Client, _) => {
                self.settle_survival(frame.received)?;
                self.apply_session_policy(frame.policy)?;
            }
            (Role::Server, _) if frame.sent.is_some() => return self.handle_return(frame),
            (Role::Server, _) => {
                self.resilience.name = Some(name);
                self.settle_survival(frame.received)?;
                self.apply_session_policy(frame.policy)?;
                self.begin_session(frame.policy);
            }
        }
        self.resilience.session_received = true;
        self.push_layer2_event(Layer2Event::Named(name));
        self.admit_early_streams(now)
    }

    /// Apply the session's policy to both root scopes (decision 19). A server that states no policy
    /// does not support policies, so its client's policy does not apply either.
    fn apply_session_policy(&mut self, stated: Option<CompletionPolicy>) -> Result<()> {
        let Some(stated) = stated else { return Ok(()) };
        let ours = self.config.layer2.as_ref().and_then(|layer2| layer2.policy);
        if self.role == Role::Client && ours != Some(stated) {
            return Err(Violation::SessionPolicy.into());
        }
        let policy = Policy::of(&stated)?;
        let root = self.role.root_scope();
        if let Some(scope) = self.outbound.get_mut(&root) {
            scope.policy = Some(Box::new(policy));
        }
        if let Some(scope) = self.inbound.get_mut(&(1 - root)) {
            scope.policy = Some(Box::new(policy));
        }
        Ok(())
    }

    /// Return the policy for the entities of our root scope, if the session has one and the peer knows it.
    pub fn root_policy(&self) -> Option<&Policy> {
        self.outbound.get(&self.role.root_scope()).and_then(|scope| scope.policy.as_deref())
    }

    /// Ask the peer about one of its claim checks: [`Layer2Event::ClaimAnswered`] follows, in the order of the queries.
    ///
    /// # Errors
    ///
    /// Misuse without layer 2; WINDOW_EXCEEDED while as many queries are open as the configuration allows.
    pub fn ask_claim(&mut self, ask: ClaimAsk) -> Result<()> {
        self.note(None, || Input::AskClaim { ask });
        self.named()?;
        let limit = self.max_claim_requests();
        if self.resilience.sent_claim_requests.len() >= limit {
            return Err(LimitError::SentClaimRequests { limit }.into());
        }
        self.resilience.sent_claim_requests.push_back(ask);
        self.send_frame(&Frame::Layer2(match ask {
            ClaimAsk::Query { claim_id } => Layer2Frame::ClaimQuery { claim_id },
            ClaimAsk::Redeem { claim_id, session } => Layer2Frame::ClaimRedeem { claim_id, session },
        }));
        Ok(())
    }

    fn max_claim_requests(&self) -> usize {
        self.config.layer2.as_ref().map_or(0, |layer2| layer2.max_claim_requests)
    }

    fn handle_ask(&mut self, ask: ClaimAsk) -> Result<()> {
        let limit = self.max_claim_requests();
        if self.resilience.received_claim_requests.len() >= limit {
            return Err(LimitError::ReceivedClaimRequests { limit }.into());
        }
        self.resilience.next_request += 1;
        let request = self.resilience.next_request;
        self.resilience.received_claim_requests.push_back(ClaimRequest { request, ask, answer: None });
        self.push_layer2_event(Layer2Event::ClaimAsked { request, ask });
        Ok(())
    }

    /// Answer a query of the peer; the content of the answer must be stored before. Answers are sent in the order of
    /// the queries.
    ///
    /// # Errors
    ///
    /// Misuse for a query that is not open.
    pub fn answer_claim(&mut self, request: u64, answer: Result<ClaimResponse, Reason>) -> Result<()> {
        self.note(None, || Input::AnswerClaim { request, answer: answer.clone() });
        let open = self
            .resilience
            .received_claim_requests
            .iter_mut()
            .find(|open| open.request == request && open.answer.is_none());
        let Some(open) = open else { return Err(Misuse::ClaimRequest(request).into()) };
        open.answer = Some(answer);
        while let Some(ClaimRequest { ask, answer: Some(answer), .. }) =
            self.resilience.received_claim_requests.pop_front_if(|first| first.answer.is_some())
        {
            self.send_answer(ask, answer);
        }
        if let State::Draining { awaiting } = &mut self.state {
            // The CHECKPOINT in flight was sent before the answer, so another one must follow the
            // answer.
            *awaiting = None;
            self.advance_close();
        }
        Ok(())
    }

    fn send_answer(&mut self, ask: ClaimAsk, answer: Result<ClaimResponse, Reason>) {
        let claim_id = ask.claim_id();
        let frame = match (ask, answer) {
            (_, Ok(response)) => Frame::Layer2(Layer2Frame::ClaimResponse(ClaimResponse { claim_id, ..response })),
            (ClaimAsk::Query { .. }, Err(_)) => {
                Frame::Layer2(Layer2Frame::ClaimResponse(ClaimResponse { claim_id, found: None }))
            }
            (ClaimAsk::Redeem { .. }, Err(reason)) => {
                // A redemption can be refused with two codes.
                let expired = reason.code == ErrorCode::ClaimExpired;
                let code = if expired { ErrorCode::ClaimExpired } else { ErrorCode::ClaimNotFound };
                let code = u32::try_from(code.code()).unwrap_or_default();
                Frame::Error(ErrorFrame { code, scope_id: 0, entity_id: 0, message: reason.message })
            }
        };
        self.send_frame(&frame);
    }

    fn handle_claim_response(&mut self, response: ClaimResponse) -> Result<()> {
        let front = self.resilience.sent_claim_requests.pop_front_if(|ask| ask.claim_id() == response.claim_id);
        let Some(ask) = front else {
            return Err(Violation::UnexpectedClaimResponse { id: response.claim_id }.into());
        };
        self.push_layer2_event(Layer2Event::ClaimAnswered { ask, answer: Ok(response) });
        self.advance_close();
        Ok(())
    }

    /// Handle an 0xC0 about no entity, which may refuse a redemption.
    pub(super) fn handle_refusal(&mut self, entity_id: u32, reason: &Reason) {
        if entity_id != 0 || !matches!(reason.code, ErrorCode::ClaimExpired | ErrorCode::ClaimNotFound) {
            return;
        }
        if let Some(ask) =
            self.resilience.sent_claim_requests.pop_front_if(|ask| matches!(ask, ClaimAsk::Redeem { .. }))
        {
            self.push_layer2_event(Layer2Event::ClaimAnswered { ask, answer: Err(reason.clone()) });
            self.advance_close();
        }
    }
}
