//! The steps of layer 2 in the dialogues: attempts, yields, claim checks, policies.

use bytes::Bytes;
use penstock_pipestream::messages::{CompletionPolicy, FailureAction, StoppingPointValidation};
use penstock_pipestream::yield_token::StoppingPoint;
use penstock_pipestream::{
    ErrorCode, Event, Extension, Layer2Event, Role, Session, Status, StatusFrame, Transmit, YieldReason,
};

use super::{CLIENT, Choices, Dialogue, End, SERVER, config, reason};

impl End {
    pub(super) fn learn_of_layer2(&mut self, event: Layer2Event) {
        match event {
            Layer2Event::AttemptFailed { key, owned: true, .. } => self.failed.push(key),
            Layer2Event::AttemptFailed { key, owned: false, .. } => {
                self.accepted.retain(|(_, accepted)| *accepted != key)
            }
            Layer2Event::SendAgain(ticket) => self.again.push(ticket),
            Layer2Event::Yielded { key, token, .. } => self.tokens.push((key, token)),
            Layer2Event::ClaimWanted { key, .. } => self.wanted.push(key),
            Layer2Event::Named(_)
            | Layer2Event::Returns(_)
            | Layer2Event::Reconnected
            | Layer2Event::ResumeAnswered { .. }
            | Layer2Event::Resumed { .. }
            | Layer2Event::Deferred { .. }
            | Layer2Event::ClaimAsked { .. }
            | Layer2Event::ClaimAnswered { .. }
            | Layer2Event::Outcome { .. } => {}
        }
    }
}

impl Dialogue {
    /// Perform a step of layer 2.
    pub(super) fn step_of_layer2(&mut self, choice: u8, at: usize, choices: &mut Choices<'_>) {
        let now = self.now;
        if choice >= 0x3C {
            self.lose(at, choice);
            return;
        }
        let end = &mut self.ends[at];
        let session = &mut end.session;
        match choice % 6 {
            0 => {
                if let Some(index) = choices.below(end.failed.len()) {
                    let key = end.failed.swap_remove(index);
                    // The entity may have ended meanwhile.
                    let _late = session.retry(now, key);
                }
            }
            1 => {
                if let Some(index) = choices.below(end.failed.len()) {
                    session.fail(now, end.failed.swap_remove(index), reason(ErrorCode::InternalError));
                }
            }
            2 => {
                if let Some(index) = choices.below(end.accepted.len()) {
                    let point = StoppingPoint {
                        reason: YieldReason::RateLimited,
                        continuation: Bytes::from_static(b"here"),
                        validation: StoppingPointValidation::default(),
                    };
                    let _dehydrated = session.yield_entity(now, end.accepted[index].1, &point);
                }
            }
            3 => {
                if let Some(index) = choices.below(end.tokens.len()) {
                    let (key, token) = end.tokens[index].clone();
                    let _ended = session.resume(key, &token);
                }
            }
            4 => {
                let wanted = choices.below(end.wanted.len()).map(|index| end.wanted.swap_remove(index));
                let accepted = choices.below(end.accepted.len()).map(|index| end.accepted[index].1);
                if let Some(key) = wanted.or(accepted) {
                    if choice % 12 == 4 {
                        let _has_children = session.defer(now, key, 7, now.unix_micros + 1);
                    } else {
                        session.refuse_claim(now, key, reason(ErrorCode::InternalError));
                    }
                }
            }
            _ => {
                let ours = choices.below(end.announced.len()).map(|index| end.announced[index].0.key);
                let theirs = choices.below(end.accepted.len()).map(|index| end.accepted[index].1);
                match (ours, theirs, choices.small() % 3) {
                    (Some(key), _, 0) => drop(session.abandon(now, key, reason(ErrorCode::IdleTimeout))),
                    (Some(key), _, 1) | (_, Some(key), _) | (Some(key), None, _) => {
                        drop(session.skip(now, key, reason(ErrorCode::NoError)));
                    }
                    (None, None, _) => {}
                }
            }
        }
    }
}

impl Dialogue {
    /// Lose the connection with everything in flight; if `choice` is even, also kill the process of the end `at` and
    /// restore it from its records. The client opens another connection.
    fn lose(&mut self, at: usize, choice: u8) {
        let (now, killed) = (self.now, choice.is_multiple_of(2).then_some(at));
        self.fresh = None;
        for (role, end) in [Role::Client, Role::Server].into_iter().zip(&mut self.ends) {
            end.learn();
            end.control.clear();
            end.headers.clear();
            end.again.clear();
            if killed == Some(usize::from(role == Role::Server)) {
                let records = end.records.iter().map(|record| record.as_ref());
                let restored = Session::restore(role, config(2), records, now, |_| false).expect("our own records");
                let mut lost = std::mem::replace(&mut end.session, restored.session);
                assert!(lost.suspend(now, |_| false));
                assert!(lost.fingerprint(0) == end.session.fingerprint(0), "{role:?} is another after its restart");
                end.accepted.clear();
                end.wanted.clear();
                end.failed.clear();
                end.tokens.clear();
                continue;
            }
            // Some of the payloads in flight have arrived; the others are lost.
            end.accepted.retain(|(_, key)| key.entity % 3 != u32::from(choice) % 3);
            let whole = |key| end.accepted.iter().any(|(_, accepted)| *accepted == key);
            assert!(end.session.suspend(now, whole));
        }
        // At arbitrary times a snapshot replaces all records before it.
        for end in self.ends.iter_mut().filter(|_| choice.is_multiple_of(3)) {
            end.learn();
            end.records = end.session.snapshot().into_iter().collect();
        }
        self.ends[CLIENT].session.reconnect(now).expect("suspended");
        self.fresh = Some(Session::new(Role::Server, config(2), now).expect("a valid configuration"));
    }

    /// Find the session that a new connection resumes, as the server does.
    pub(super) fn greet(&mut self) {
        let Some(fresh) = &mut self.fresh else { return };
        let returns = std::iter::from_fn(|| fresh.poll_event())
            .any(|event| matches!(event, Event::Layer2(Layer2Event::Returns(_))));
        while let Some(Transmit::Control(bytes)) = fresh.poll_transmit(19) {
            self.ends[CLIENT].control.push_back(bytes);
        }
        if let Some(fresh) = self.fresh.take_if(|_| returns) {
            self.ends[SERVER].session.adopt(self.now, fresh).expect("an honest peer");
        }
    }
}

/// Add to a STATUS the extension that it requires.
pub(super) fn with_extension(mut frame: StatusFrame) -> StatusFrame {
    if frame.status == Status::Yielded {
        let token = Bytes::from_static(b"token");
        frame.extension = Some(Extension::Yield { reason: YieldReason::RateLimited, token });
    } else if frame.status == Status::Deferred {
        frame.extension = Some(Extension::Claim { claim_id: 7, expiry_micros: 1 });
    }
    frame
}

/// Return a valid policy.
pub(super) fn policy(choices: &mut Choices<'_>) -> CompletionPolicy {
    CompletionPolicy {
        mode: Some((choices.small() % 5) as i32),
        max_retries: Some(choices.small() % 3),
        retry_delay_ms: Some(choices.small() % 2 * 1_000),
        timeout_ms: Some(choices.small() % 3 * 20_000),
        min_success_ratio: Some((choices.small() % 11) as f32 / 10.0),
        on_timeout: Some(action(choices)),
        on_failure: Some(action(choices)),
    }
}

/// Return an action, RETRY in half of the cases, because it has the most cases to test.
fn action(choices: &mut Choices<'_>) -> i32 {
    let choice = (choices.small() % 8) as i32;
    if choice > 4 { FailureAction::Retry.into() } else { choice }
}
