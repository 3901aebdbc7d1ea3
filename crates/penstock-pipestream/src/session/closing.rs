//! The end of a session: graceful (decision 17), by an error (decision 14), or because the connection is lost (decision
//! 4, section 5.4).

use super::Session;
use super::input::Input;
use super::state::State;
use super::types::{Event, Reason, Role, Transmit};
use crate::error::{Error, ErrorCode, Malformed, Result, StreamEnd, Violation};
use crate::status::Status;
use crate::time::Now;

impl Session {
    /// Close gracefully. A client announces nothing more and closes with NO_ERROR once every
    /// entity, including the peer's, is terminal; if it has received entities, a CHECKPOINT ensures
    /// that its last statuses have arrived. A server, whose clients do that, closes immediately. It
    /// uses NO_ERROR only if nothing is open, so that a session that was cut off is not taken for
    /// one that ended well.
    pub fn close(&mut self, now: Now) {
        self.note(Some(now), || Input::Close);
        match (self.state, self.role) {
            (State::Closed, _) | (State::Draining { .. }, Role::Client) => {}
            (State::Open | State::Draining { .. }, Role::Server) if self.open_owned + self.open_received > 0 => {
                let message = format!("the server stops with {} entities open", self.open_owned + self.open_received);
                self.finish(Reason { code: ErrorCode::InternalError, message }, false, true);
            }
            (State::Negotiating, _) | (State::Open | State::Draining { .. }, Role::Server) => {
                self.finish(Reason { code: ErrorCode::NoError, message: String::new() }, false, true);
            }
            (State::Open, Role::Client) => {
                self.state = State::Draining { awaiting: None };
                self.advance_close();
            }
        }
    }

    /// Close with NO_ERROR as soon as nothing is open, for a server that shuts down; return whether closing has begun.
    /// As for a client (decision 17), a CHECKPOINT precedes the close if entities have arrived, because a close
    /// discards what stream 0 has not delivered. Call this again after every input; [`Session::close`] ends the wait.
    pub fn close_when_idle(&mut self, now: Now) -> bool {
        match self.state {
            State::Negotiating => self.close(now),
            State::Open if self.open_owned + self.open_received == 0 && !self.may_send() => {}
            State::Open if self.open_owned + self.open_received == 0 => {
                self.note(Some(now), || Input::CloseWhenIdle);
                self.state = State::Draining { awaiting: None };
                self.advance_close();
            }
            State::Open | State::Draining { .. } | State::Closed => {}
        }
        self.state != State::Open
    }

    /// Close immediately with an error of this end.
    pub fn abort(&mut self, _now: Now, reason: Reason) {
        self.finish(reason, false, true);
    }

    /// Handle a lost connection. Every entity without a terminal status fails here (section 5.4).
    pub fn handle_connection_lost(&mut self, _now: Now, reason: Reason, by_peer: bool) {
        self.finish(reason, by_peer, false);
    }

    /// Handle the end or the reset of stream 0 (decision 4).
    pub fn handle_control_end(&mut self, _now: Now, reset: bool) -> Result<()> {
        if self.state == State::Closed {
            return Ok(());
        }
        let how = if reset { StreamEnd::Reset } else { StreamEnd::Finished };
        let error: Error = match self.decoder.is_mid_frame() {
            true => Malformed::ControlEnd { how }.into(),
            false => Violation::ControlEnd { how }.into(),
        };
        self.guard(Err(error))
    }

    pub(super) fn close_with(&mut self, error: &Error) {
        if self.state == State::Closed {
            return;
        }
        self.events.push_back(Event::Error {
            reason: Reason { code: error.code(), message: error.message() },
            scope: error.scope(),
            entity: error.entity(),
            by_peer: false,
        });
        self.finish(Reason { code: error.code(), message: error.to_string() }, false, true);
    }

    /// Continue a graceful close once nothing is open.
    pub(super) fn advance_close(&mut self) {
        let State::Draining { awaiting } = self.state else { return };
        if self.open_owned > 0
            || self.open_received > 0
            || awaiting.is_some()
            || self.resilience.has_open_claim_requests()
        {
            return;
        }
        if !self.may_send() {
            // The connection must be resumed first, so that the peer receives everything.
            return;
        }
        // A close discards what stream 0 has not delivered, so a CHECKPOINT comes first if there
        // may be claim answers, or statuses of the peer's entities.
        if self.counters.received == 0 && !self.resilience.has_received_claim_requests() {
            self.finish(Reason { code: ErrorCode::NoError, message: String::new() }, false, true);
            return;
        }
        let sequence = self.ask_checkpoint(u32::from(self.role.root_scope()), 0, None);
        self.state = State::Draining { awaiting: Some(sequence) };
    }

    pub(super) fn checkpoint_answered(&mut self, sequence: u64) {
        if (self.state == State::Draining { awaiting: Some(sequence) }) {
            // Entities may have arrived meanwhile; if not, this was the last frame.
            self.state = State::Draining { awaiting: None };
            if self.open_owned == 0 && self.open_received == 0 && !self.resilience.has_open_claim_requests() {
                self.finish(Reason { code: ErrorCode::NoError, message: String::new() }, false, true);
            } else {
                self.advance_close();
            }
        }
    }

    fn finish(&mut self, reason: Reason, by_peer: bool, close_connection: bool) {
        if self.state == State::Closed {
            return;
        }
        self.state = State::Closed;
        self.resilience.end();
        self.fail_open_entities(&reason);
        if close_connection {
            self.transmits.push_back(Transmit::Close { code: reason.code, message: reason.message.clone() });
        }
        self.events.push_back(Event::Closed { reason: reason.clone(), by_peer });
        self.ended = Some(reason);
    }

    fn fail_open_entities(&mut self, reason: &Reason) {
        let message = match reason.message.as_str() {
            "" => "the connection was closed".to_owned(),
            message => format!("the connection was closed: {message}"),
        };
        let reason = Reason { code: reason.code, message };
        let mut open = Vec::with_capacity(self.open_owned + self.open_received);
        for scope in self.outbound.values() {
            let parent_id = scope.parent.map_or(0, |parent| parent.entity);
            open.extend(scope.iter_open().map(|(key, entity)| {
                (key, parent_id.max(entity.parent_id()), entity.failures(), entity.attempts(), true)
            }));
        }
        for scope in self.inbound.values() {
            let parent_id = scope.parent.map_or(0, |parent| parent.entity);
            open.extend(scope.iter_open().map(|(key, entity)| {
                let failures = entity.failures();
                (key, parent_id.max(entity.parent_id), failures, failures.saturating_add(1), false)
            }));
        }
        open.sort_unstable_by_key(|(key, ..)| *key);
        for (key, parent_id, failures, attempts, owned) in open {
            let (status, reason) = (Status::Failed, Some(reason.clone()));
            self.events.push_back(Event::Resolved { key, parent_id, status, reason, failures, attempts, owned });
        }
        self.outbound.clear();
        self.inbound.clear();
        self.open_owned = 0;
        self.open_received = 0;
    }
}
