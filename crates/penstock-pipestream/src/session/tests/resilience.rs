//! Layer 2 as dialogues: the session's name, retries, policies, time-outs, yields, claim checks.
//!
//! Longer than 600 lines, because its dialogues are all of the same two ends.

use super::*;
use crate::manifest::ResolutionState;
use crate::messages::{CompletionMode, CompletionPolicy, FailureAction, StoppingPointValidation};
use crate::yield_token::{StoppingPoint, TokenKey};
use crate::{ClaimResponse, Layer2Frame, SessionFrame, SessionId, YieldReason};

pub(super) const SECOND: Duration = Duration::from_secs(1);

pub(super) fn name() -> SessionId {
    SessionId::new([3; 16])
}

pub(super) fn config2(session: Option<SessionId>) -> SessionConfig {
    let mut config = config(true, 100);
    config.capabilities.layer2 = true;
    config.layer2 = Some(Layer2Config::new(session, TokenKey::new([5; 32])));
    config
}

impl Pair {
    pub(super) fn resilient() -> Self {
        let now = start();
        let client = Session::new(Role::Client, config2(Some(name())), now).expect("client");
        let server = Session::new(Role::Server, config2(None), now).expect("server");
        let pair = Self::of(client, server, now);
        assert_eq!((pair.client.id(), pair.server.id()), (Some(name()), Some(name())));
        pair
    }

    /// A session with a policy.
    fn governed(policy: CompletionPolicy) -> Self {
        let now = start();
        let mut config = config2(Some(name()));
        config.layer2 = config.layer2.map(|layer2| Layer2Config { policy: Some(policy), ..layer2 });
        let client = Session::new(Role::Client, config, now).expect("client");
        let server = Session::new(Role::Server, config2(None), now).expect("server");
        let pair = Self::of(client, server, now);
        assert_eq!(pair.client.root_policy(), pair.server.root_policy());
        assert!(pair.client.root_policy().is_some());
        pair
    }

    /// A parent under a policy, its stream delivered, and its children.
    pub(super) fn parent(&mut self, policy: &CompletionPolicy, children: usize) -> (Ticket, Vec<Ticket>) {
        let parent = self.client.announce_with_policy(self.now, None, policy).expect("allowed").expect("window");
        self.deliver(&parent);
        let children = (0..children).map(|_| self.announce(Some(parent.key), false)).collect();
        self.drive();
        (parent, children)
    }

    pub(super) fn fail_at_server(&mut self, key: EntityKey) {
        self.server.fail(self.now, key, reason(ErrorCode::IntegrityError));
        self.drive();
    }

    pub(super) fn end(&mut self, parent: &Ticket) {
        self.client.end_children(self.now, parent.key).expect("open");
        self.drive();
    }

    pub(super) fn client_saw(&self, wanted: impl Fn(&Layer2Event) -> bool) -> usize {
        self.client_events.iter().filter(|event| matches!(event, Event::Layer2(event) if wanted(event))).count()
    }

    pub(super) fn server_saw(&self, wanted: impl Fn(&Layer2Event) -> bool) -> usize {
        self.server_events.iter().filter(|event| matches!(event, Event::Layer2(event) if wanted(event))).count()
    }

    pub(super) fn token(&self) -> Bytes {
        let token = |event: &Event| match event {
            Event::Layer2(Layer2Event::Yielded { token, .. }) => Some(token.clone()),
            _ => None,
        };
        self.client_events.iter().rev().find_map(token).expect("a token")
    }

    /// What became of a parent by its policy, the same at both ends.
    fn resolution(&self) -> ResolutionState {
        let state = |events: &[Event]| {
            events.iter().rev().find_map(|event| match event {
                Event::Layer2(Layer2Event::Outcome { state, .. }) => Some(*state),
                _ => None,
            })
        };
        assert_eq!(state(&self.client_events), state(&self.server_events));
        state(&self.client_events).expect("an outcome")
    }
}

pub(super) fn policy(on_failure: FailureAction) -> CompletionPolicy {
    CompletionPolicy { on_failure: Some(on_failure.into()), timeout_ms: Some(0), ..CompletionPolicy::default() }
}

fn with_mode(mode: CompletionMode, on_failure: FailureAction) -> CompletionPolicy {
    CompletionPolicy { mode: Some(mode.into()), min_success_ratio: Some(0.5), ..policy(on_failure) }
}

pub(super) fn point() -> StoppingPoint {
    StoppingPoint {
        reason: YieldReason::AwaitingApproval,
        continuation: Bytes::from_static(b"page 3"),
        validation: StoppingPointValidation {
            state_checksum: Some(Bytes::from_static(&[1; 32])),
            is_resumable: Some(true),
            ..StoppingPointValidation::default()
        },
    }
}

/// A server that speaks layer 2, and a peer that writes frames by hand.
fn server() -> Peer {
    let now = start();
    let session = Session::new(Role::Server, config2(None), now).expect("server");
    let mut peer = Peer { now, session };
    peer.say(&Frame::Capabilities(config2(None).capabilities)).expect("capabilities");
    peer
}

fn named_server() -> Peer {
    let mut peer = server();
    peer.say(&Frame::Layer2(Layer2Frame::Session(SessionFrame::named(name())))).expect("a name");
    peer.heard();
    peer
}

pub(super) fn refused(outcome: Result<()>, code: ErrorCode, text: &str) {
    let error = outcome.expect_err(text);
    assert_eq!(error.code(), code, "{error}");
    assert!(error.message().contains(text), "{error}");
}

#[test]
fn what_layer_2_needs_must_be_configured() {
    let now = start();
    let mut nothing = config2(None);
    nothing.layer2 = None;
    let mut without_layer1 = config2(Some(name()));
    without_layer1.capabilities.layer1 = false;
    for (role, config) in [(Role::Server, nothing), (Role::Client, config2(None)), (Role::Server, without_layer1)] {
        let error = Session::new(role, config, now).expect_err("misuse");
        assert_eq!(error.kind(), penstock_wire::ErrorKind::Misuse);
    }
}

#[test]
fn a_session_is_named_before_anything_else_of_layer_2_and_once() {
    let invalid = ErrorCode::EntityInvalid;
    refused(server().say(&Frame::Layer2(Layer2Frame::ClaimQuery { claim_id: 1 })), invalid, "before SESSION");
    let mut peer = server();
    peer.status(Status::Pending, 0, 1).expect("a status of layer 0 does not wait");
    refused(peer.status(Status::Skipped, 0, 1), invalid, "before SESSION");
    let mut peer = named_server();
    refused(peer.say(&Frame::Layer2(Layer2Frame::Session(SessionFrame::named(name())))), invalid, "second SESSION");
    let mut client =
        Peer { now: start(), session: Session::new(Role::Client, config2(Some(name())), start()).expect("client") };
    client.say(&Frame::Capabilities(config2(None).capabilities)).expect("capabilities");
    assert_eq!(client.session.id(), None, "the server has not answered");
    let other = Frame::Layer2(Layer2Frame::Session(SessionFrame::named(SessionId::new([4; 16]))));
    refused(client.say(&other), invalid, "another session");
}

#[test]
fn a_stream_that_overtakes_its_ends_session_is_held() {
    for announced in [true, false] {
        let mut peer = server();
        if announced {
            peer.status(Status::Pending, 0, 1).expect("a status of layer 0 does not wait");
        }
        let header = plain_header(0, 1, 4);
        assert_eq!(peer.session.handle_header(peer.now, 4, &header), Ok(Admission::Held));
        let drain = |peer: &mut Peer| std::iter::from_fn(|| peer.session.poll_event()).collect::<Vec<_>>();
        assert!(!drain(&mut peer).iter().any(|event| matches!(event, Event::Admitted { .. })));
        peer.say(&Frame::Layer2(Layer2Frame::Session(SessionFrame::named(name())))).expect("a name");
        if !announced {
            peer.status(Status::Pending, 0, 1).expect("announced");
        }
        let told = drain(&mut peer);
        let named = told.iter().position(|event| matches!(event, Event::Layer2(Layer2Event::Named(_))));
        let admitted = told.iter().position(|event| matches!(event, Event::Admitted { stream: 4, .. }));
        assert!(named.is_some() && named < admitted, "{told:?}");
    }
}

#[test]
fn the_sessions_policy_governs_the_entities_of_its_root_scopes() {
    for (action, expected) in [
        (FailureAction::Fail, Some(Status::Failed)),
        (FailureAction::Skip, Some(Status::Skipped)),
        (FailureAction::Defer, Some(Status::Deferred)),
        (FailureAction::Retry, None),
    ] {
        let mut pair = Pair::governed(policy(action));
        let ticket = pair.announce(None, false);
        let key = pair.open_plain(&ticket);
        pair.fail_at_server(key);
        if action == FailureAction::Defer {
            assert_eq!(pair.server_saw(|event| matches!(event, Layer2Event::ClaimWanted { .. })), 1);
            assert_eq!(pair.server.defer(pair.now, key, 7, 9), Ok(true));
            pair.drive();
        }
        assert_eq!(pair.outcome(ticket.key), expected, "{action:?}");
        if action == FailureAction::Retry {
            pair.client.retry(pair.now, ticket.key).expect("it may come again");
            pair.wait(SECOND);
            let key = pair.open_plain(&ticket);
            pair.server.complete(pair.now, key);
            pair.drive();
            assert_eq!(pair.outcome(ticket.key), Some(Status::Complete));
        }
        pair.client.end_root(pair.now).expect("open");
        pair.drive();
        let ended = |event: &Event| match event {
            Event::Gathered { key: None, outcome, .. } => Some(*outcome),
            _ => None,
        };
        let whole = if action == FailureAction::Retry { Status::Complete } else { Status::Failed };
        assert_eq!(pair.server_events.iter().find_map(ended), Some(whole));
    }
}

#[test]
fn a_sessions_policy_is_in_force_only_if_both_ends_say_it() {
    let ours = policy(FailureAction::Skip);
    let mut config = config2(Some(name()));
    config.layer2 = config.layer2.map(|layer2| Layer2Config { policy: Some(ours), ..layer2 });
    for (said, known) in [(None, Some(false)), (Some(ours), Some(true)), (Some(policy(FailureAction::Retry)), None)] {
        let session = Session::new(Role::Client, config.clone(), start()).expect("client");
        let mut client = Peer { now: start(), session };
        client.say(&Frame::Capabilities(config2(None).capabilities)).expect("capabilities");
        let answer = SessionFrame { policy: said, ..SessionFrame::named(name()) };
        let outcome = client.say(&Frame::Layer2(Layer2Frame::Session(answer)));
        match known {
            Some(known) => assert_eq!((outcome, client.session.root_policy().is_some()), (Ok(()), known)),
            None => refused(outcome, ErrorCode::EntityInvalid, "another policy"),
        }
    }
    let impossible = CompletionPolicy { mode: Some(CompletionMode::Quorum.into()), ..CompletionPolicy::default() };
    let frame = SessionFrame { policy: Some(impossible), ..SessionFrame::named(name()) };
    refused(server().say(&Frame::Layer2(Layer2Frame::Session(frame))), ErrorCode::EntityInvalid, "min_success_ratio");
}

#[test]
fn commands_of_layer_2_are_misuse_where_it_was_not_agreed_on() {
    let mut pair = Pair::new(true, 10);
    let ticket = pair.announce(None, false);
    let key = pair.open_plain(&ticket);
    let now = pair.now;
    assert!(pair.client.announce_with_policy(now, None, &policy(FailureAction::Skip)).is_err());
    assert!(pair.server.skip(now, key, reason(ErrorCode::NoError)).is_err());
    assert!(pair.server.defer(now, key, 1, 2).is_err());
    assert!(pair.server.yield_entity(now, key, &point()).is_err());
    assert!(pair.client.abandon(now, ticket.key, reason(ErrorCode::IdleTimeout)).is_err());
    assert!(pair.client.ask_claim(ClaimAsk::Query { claim_id: 1 }).is_err());
    assert_eq!((pair.client.id(), pair.client_closed, pair.server_closed), (None, None, None));
}

#[test]
fn a_child_that_failed_comes_again_and_its_parent_is_complete() {
    let mut pair = Pair::resilient();
    let (parent, children) = pair.parent(&policy(FailureAction::Retry), 2);
    let key = pair.open_plain(&children[0]);
    pair.deliver(&children[1]);
    pair.fail_at_server(key);
    assert_eq!(pair.outcome(children[0].key), None, "FAILED is not terminal");
    assert_eq!(
        pair.client_saw(|event| matches!(event, Layer2Event::AttemptFailed { failures: 1, owned: true, .. })),
        1
    );
    assert_eq!(pair.client.retry(pair.now, children[0].key), Ok(()));
    assert!(pair.client.retry(pair.now, children[0].key).is_err(), "once for each failure");
    pair.drive();
    pair.wait(SECOND / 2);
    assert_eq!(pair.client_saw(|event| matches!(event, Layer2Event::SendAgain(_))), 0, "the delay is 1 s");
    pair.wait(SECOND / 2);
    assert_eq!(
        pair.client_saw(|event| matches!(event, Layer2Event::SendAgain(again) if again.key == children[0].key)),
        1
    );
    let again = header(&pair.client, &children[0], 0);
    assert_eq!(again.metadata.get("pipestream.attempt").map(String::as_str), Some("2"));
    pair.deliver(&children[0]);
    pair.end(&parent);
    assert_eq!(
        (pair.outcome(children[0].key), pair.outcome(parent.key)),
        (Some(Status::Complete), Some(Status::Complete))
    );
    assert_eq!(pair.resolution(), ResolutionState::Resolved);
    assert_eq!((pair.client_closed, pair.server_closed), (None, None));
}

#[test]
fn retries_are_used_up_and_then_failed_is_terminal_at_both_ends() {
    let mut pair = Pair::resilient();
    let (parent, children) = pair.parent(&CompletionPolicy { max_retries: Some(2), ..policy(FailureAction::Retry) }, 1);
    for attempt in 1..=3 {
        let key = pair.open_plain(&children[0]);
        pair.fail_at_server(key);
        if attempt < 3 {
            pair.client.retry(pair.now, children[0].key).expect("one more");
            pair.drive();
            pair.wait(SECOND);
        }
    }
    assert_eq!(pair.outcome(children[0].key), Some(Status::Failed));
    assert_eq!((pair.client.counters().retries, pair.server.counters().retries), (2, 2));
    pair.end(&parent);
    assert_eq!(pair.outcome(parent.key), Some(Status::Failed));
}

#[test]
fn a_stream_that_overtakes_its_retrying_waits_and_one_of_a_past_attempt_is_stopped() {
    let mut pair = Pair::resilient();
    let (_, children) = pair.parent(&policy(FailureAction::Retry), 1);
    let first = header(&pair.client, &children[0], 0);
    let key = pair.open_plain(&children[0]);
    pair.fail_at_server(key);
    assert_eq!(pair.open_with(&first), Admission::Stopped(ErrorCode::NoError), "the first attempt is over");
    pair.client.retry(pair.now, children[0].key).expect("failed");
    let second = header(&pair.client, &children[0], 0);
    assert_eq!(pair.server.handle_header(pair.now, 902, &second), Ok(Admission::Held));
    pair.drive();
    assert!(pair.server_events.iter().any(|event| matches!(event, Event::Admitted { stream: 902, .. })));
    assert_eq!(pair.open_with(&first), Admission::Stopped(ErrorCode::NoError));
    let mut third = second;
    third.metadata.insert("pipestream.attempt".to_owned(), "4".to_owned());
    assert_eq!(pair.server.handle_header(pair.now, 906, &third).expect_err("no such").code(), ErrorCode::EntityInvalid);
}

#[test]
fn an_owner_that_gives_up_while_a_failed_crosses_is_understood() {
    let mut pair = Pair::resilient();
    let (parent, children) = pair.parent(&policy(FailureAction::Retry), 2);
    let key = pair.open_plain(&children[0]);
    // Both speak before either hears the other.
    pair.server.fail(pair.now, key, reason(ErrorCode::IntegrityError));
    pair.client.fail(pair.now, children[0].key, reason(ErrorCode::InternalError));
    pair.drive();
    assert_eq!(pair.outcome(children[0].key), Some(Status::Abandoned));
    assert_eq!(pair.server_outcome(key).map(|(status, _)| status), Some(Status::Abandoned));
    // After the failure was heard nothing can cross, and FAILED says what happened.
    let key = pair.open_plain(&children[1]);
    pair.fail_at_server(key);
    pair.client.fail(pair.now, children[1].key, reason(ErrorCode::InternalError));
    pair.drive();
    assert_eq!(pair.outcome(children[1].key), Some(Status::Failed));
    pair.end(&parent);
    assert_eq!(pair.released().last().map(|digest| (digest.processed, digest.failed)), Some((2, 2)));
    assert_eq!((pair.client_closed, pair.server_closed), (None, None));
}

#[test]
fn nothing_is_retried_for_a_parent_that_has_failed() {
    let mut pair = Pair::resilient();
    let policy = policy(FailureAction::Retry);
    let parent = pair.client.announce_with_policy(pair.now, None, &policy).expect("allowed").expect("window");
    let child = pair.announce(Some(parent.key), false);
    pair.drive();
    let parent_key = pair.open_plain(&parent);
    let key = pair.open_plain(&child);
    pair.fail_at_server(parent_key);
    pair.fail_at_server(key);
    assert_eq!(pair.outcome(child.key), Some(Status::Failed));
    pair.end(&parent);
    assert_eq!(pair.outcome(parent.key), Some(Status::Failed));
}

#[test]
fn on_failure_skips_or_defers_and_the_mode_decides_on_the_parent() {
    use ResolutionState::{Failed, Partial};
    let table = [
        (CompletionMode::Strict, FailureAction::Skip, 1, Failed),
        (CompletionMode::Lenient, FailureAction::Skip, 1, Partial),
        (CompletionMode::Lenient, FailureAction::Fail, 2, Failed),
        (CompletionMode::BestEffort, FailureAction::Fail, 2, Partial),
        (CompletionMode::Quorum, FailureAction::Defer, 1, Partial),
        (CompletionMode::Quorum, FailureAction::Skip, 2, Failed),
    ];
    for (mode, action, failing, expected) in table {
        let mut pair = Pair::resilient();
        let (parent, children) = pair.parent(&with_mode(mode, action), 2);
        for (index, child) in children.iter().enumerate() {
            if index >= failing {
                pair.deliver(child);
                continue;
            }
            let key = pair.open_plain(child);
            pair.fail_at_server(key);
            if action == FailureAction::Defer {
                assert_eq!(
                    pair.server_saw(|event| matches!(event, Layer2Event::ClaimWanted { key: it, .. } if *it == key)),
                    1
                );
                assert_eq!(pair.server.defer(pair.now, key, 77, 99), Ok(true));
                assert_eq!(pair.server.defer(pair.now, key, 78, 99), Ok(false), "it has ended");
            }
        }
        pair.end(&parent);
        assert_eq!(pair.resolution(), expected, "{mode:?} {action:?}");
        assert_eq!(pair.outcome(parent.key), Some(expected.status()));
        let digest = pair.released().pop().expect("a digest");
        let failed = if action == FailureAction::Fail { failing as u64 } else { 0 };
        let deferred = if action == FailureAction::Defer { failing as u64 } else { 0 };
        assert_eq!((digest.processed, digest.failed, digest.deferred), (2, failed, deferred), "{mode:?} {action:?}");
        assert_eq!(digest.succeeded, 2 - failing as u64);
        assert_eq!((pair.client_closed, pair.server_closed), (None, None));
    }
}

#[test]
fn a_nested_parent_that_fails_by_its_mode_is_what_the_policy_above_makes_of_it() {
    let mut pair = Pair::resilient();
    let above = with_mode(CompletionMode::Lenient, FailureAction::Skip);
    let (parent, children) = pair.parent(&above, 1);
    let strict = with_mode(CompletionMode::Strict, FailureAction::Fail);
    let inner =
        pair.client.announce_with_policy(pair.now, Some(parent.key), &strict).expect("allowed").expect("window");
    pair.deliver(&inner);
    let part = pair.announce(Some(inner.key), false);
    pair.drive();
    let key = pair.open_plain(&part);
    pair.fail_at_server(key);
    pair.end(&inner);
    assert_eq!((pair.outcome(part.key), pair.outcome(inner.key)), (Some(Status::Failed), Some(Status::Skipped)));
    pair.deliver(&children[0]);
    pair.end(&parent);
    assert_eq!((pair.resolution(), pair.outcome(parent.key)), (ResolutionState::Partial, Some(Status::Complete)));
}

#[test]
fn a_policy_that_cannot_be_fails_the_parent_that_carries_it() {
    let mut pair = Pair::resilient();
    let bad = CompletionPolicy { mode: Some(CompletionMode::Quorum.into()), ..CompletionPolicy::default() };
    let error = pair.client.announce_with_policy(pair.now, None, &bad).expect_err("refused before it is sent");
    assert_eq!(error.code(), ErrorCode::EntityInvalid);
    let parent = pair.announce(None, true);
    pair.drive();
    let mut header = header(&pair.client, &parent, 0);
    header.completion_policy = Some(bad);
    assert_eq!(pair.open_with(&header), Admission::Stopped(ErrorCode::EntityInvalid));
    pair.end(&parent);
    assert_eq!((pair.outcome(parent.key), pair.server_closed), (Some(Status::Failed), None));
}

#[test]
fn what_takes_too_long_goes_by_on_timeout() {
    let table = [
        (FailureAction::Fail, Some(Status::Abandoned)),
        (FailureAction::Skip, Some(Status::Skipped)),
        (FailureAction::Defer, None),
        (FailureAction::Retry, None),
    ];
    for (on_timeout, expected) in table {
        let mut pair = Pair::resilient();
        let timed = CompletionPolicy {
            timeout_ms: Some(5_000),
            on_timeout: Some(on_timeout.into()),
            ..policy(FailureAction::Fail)
        };
        let (parent, children) = pair.parent(&timed, 2);
        pair.deliver(&children[1]);
        pair.wait(SECOND * 4);
        assert_eq!(pair.outcome(children[0].key), None);
        pair.wait(SECOND);
        assert_eq!(pair.outcome(children[0].key), expected, "{on_timeout:?}");
        match on_timeout {
            FailureAction::Defer => {
                assert_eq!(pair.server_saw(|event| matches!(event, Layer2Event::ClaimWanted { .. })), 1)
            }
            FailureAction::Retry => {
                // Nobody sends it again: then it is over.
                pair.wait(SECOND * 6);
                assert_eq!(pair.outcome(children[0].key), Some(Status::Abandoned));
            }
            _ => {}
        }
        let _ = parent;
        assert_eq!((pair.client_closed, pair.server_closed), (None, None));
    }
}

#[test]
fn a_time_out_that_is_retried_and_a_failure_that_is_not_are_told_apart() {
    let mut pair = Pair::resilient();
    let timed = CompletionPolicy {
        timeout_ms: Some(5_000),
        on_timeout: Some(FailureAction::Retry.into()),
        ..policy(FailureAction::Fail)
    };
    let (parent, children) = pair.parent(&timed, 2);
    let key = pair.open_plain(&children[0]);
    pair.fail_at_server(key);
    assert_eq!(pair.outcome(children[0].key), Some(Status::Failed), "a failure is the last word");
    pair.end(&parent);
    pair.wait(SECOND * 5);
    assert_eq!(pair.outcome(children[1].key), None, "a time-out is not");
    pair.client.retry(pair.now, children[1].key).expect("it may come again");
    pair.drive();
    pair.wait(SECOND);
    pair.deliver(&children[1]);
    assert_eq!(pair.outcome(children[1].key), Some(Status::Complete));
}

#[test]
fn an_owner_skips_and_abandons_and_the_receiver_echoes() {
    let mut pair = Pair::resilient();
    let (parent, children) = pair.parent(&with_mode(CompletionMode::BestEffort, FailureAction::Fail), 2);
    assert_eq!(pair.client.skip(pair.now, children[0].key, reason(ErrorCode::NoError)), Ok(true));
    assert_eq!(pair.client.abandon(pair.now, children[1].key, reason(ErrorCode::IdleTimeout)), Ok(true));
    pair.drive();
    assert_eq!(
        (pair.outcome(children[0].key), pair.outcome(children[1].key)),
        (Some(Status::Skipped), Some(Status::Abandoned))
    );
    assert_eq!(pair.client.skip(pair.now, children[0].key, reason(ErrorCode::NoError)), Ok(false));
    pair.end(&parent);
    let digest = pair.released().pop().expect("a digest");
    assert_eq!((digest.processed, digest.succeeded, digest.failed), (2, 0, 1));
    assert_eq!(pair.outcome(parent.key), Some(Status::Complete));
}

#[test]
fn a_token_is_good_once_for_its_entity_and_goes_on_where_it_stopped() {
    let mut pair = Pair::resilient();
    let (first, second) = (pair.announce(None, false), pair.announce(None, false));
    pair.drive();
    let (key, other) = (pair.open_plain(&first), pair.open_plain(&second));
    pair.server.yield_entity(pair.now, key, &point()).expect("being received");
    pair.server.yield_entity(pair.now, other, &point()).expect("being received");
    pair.drive();
    let of_other = pair.token();
    let refused = |pair: &Pair| {
        pair.client_saw(|event| matches!(event, Layer2Event::ResumeAnswered { refused: Some(why), .. } if why.code == ErrorCode::ClaimNotFound))
    };
    pair.client.resume(first.key, &of_other).expect("open");
    pair.drive();
    assert_eq!(refused(&pair), 1, "another entity's token");
    pair.client.resume(second.key, &of_other).expect("open");
    pair.drive();
    let resumed = |event: &Layer2Event| match event {
        Layer2Event::Resumed { key, point: Some(StoppingPoint { continuation, .. }) } => {
            *key == other && *continuation == point().continuation
        }
        _ => false,
    };
    assert_eq!(pair.server_saw(resumed), 1);
    assert_eq!(pair.client_saw(|event| matches!(event, Layer2Event::ResumeAnswered { refused: None, .. })), 1);
    pair.client.resume(second.key, &of_other).expect("open");
    pair.drive();
    assert_eq!(refused(&pair), 2, "a second time");
    // A yield that was not resumed ends with its entity.
    pair.server.complete(pair.now, key);
    pair.drive();
    assert_eq!(pair.outcome(first.key), Some(Status::Complete));
    assert!(pair.client.resume(first.key, &of_other).is_err(), "it is resolved");
    assert_eq!((pair.client_closed, pair.server_closed), (None, None));
}

#[test]
fn a_token_of_another_session_is_refused() {
    let mut pair = Pair::resilient();
    let ticket = pair.announce(None, false);
    pair.drive();
    let key = pair.open_plain(&ticket);
    pair.server.yield_entity(pair.now, key, &point()).expect("being received");
    pair.drive();
    let place = crate::yield_token::Place { session: SessionId::new([9; 16]), scope: 0, entity: key.entity };
    let foreign = crate::yield_token::seal(&TokenKey::new([5; 32]), &place, 1, &point()).expect("short");
    pair.client.resume(ticket.key, &foreign).expect("open");
    pair.drive();
    assert_eq!(pair.server_saw(|event| matches!(event, Layer2Event::Resumed { .. })), 0);
    pair.client.resume(ticket.key, &pair.token()).expect("open");
    pair.drive();
    assert_eq!(pair.server_saw(|event| matches!(event, Layer2Event::Resumed { point: Some(_), .. })), 1);
}

#[test]
fn a_state_that_has_changed_begins_anew_and_the_token_is_used_up() {
    let mut pair = Pair::resilient();
    let ticket = pair.announce(None, false);
    pair.drive();
    let key = pair.open_plain(&ticket);
    pair.server.yield_entity(pair.now, key, &point()).expect("being received");
    pair.server.note_state(key, Bytes::from_static(&[2; 32]));
    pair.drive();
    for _ in 0..2 {
        pair.client.resume(ticket.key, &pair.token()).expect("open");
        pair.drive();
    }
    assert_eq!(pair.server_saw(|event| matches!(event, Layer2Event::Resumed { point: None, .. })), 1);
    let codes: Vec<ErrorCode> = pair
        .client_events
        .iter()
        .filter_map(|event| match event {
            Event::Layer2(Layer2Event::ResumeAnswered { refused: Some(why), .. }) => Some(why.code),
            _ => None,
        })
        .collect();
    assert_eq!(codes, [ErrorCode::IntegrityError, ErrorCode::ClaimNotFound]);
    pair.server.complete(pair.now, key);
    pair.drive();
    assert_eq!(pair.outcome(ticket.key), Some(Status::Complete));
}

#[test]
fn who_owns_an_entity_says_retrying_and_who_receives_it_says_yielded_and_deferred() {
    let mut peer = named_server();
    peer.status(Status::Pending, 0, 1).expect("announced");
    refused(peer.status(Status::Retrying, 0, 1), ErrorCode::EntityInvalid, "not set aside");
    let claim = crate::Extension::Claim { claim_id: 1, expiry_micros: 2 };
    let mut peer = named_server();
    peer.status(Status::Pending, 0, 1).expect("announced");
    let frame = StatusFrame { extension: Some(claim), ..StatusFrame::new(Status::Deferred, 0, 1) };
    refused(peer.say(&Frame::Status(frame)), ErrorCode::EntityInvalid, "by the entity's own owner");
    let mut peer = named_server();
    peer.session.announce(peer.now, None, false).expect("allowed").expect("window");
    refused(peer.status(Status::Retrying, 1, 1), ErrorCode::EntityInvalid, "another than the entity's owner");
    let mut peer = named_server();
    let resume = Layer2Frame::Resume { scope_id: 1, entity_id: 1, token: Bytes::new() };
    refused(peer.say(&Frame::Layer2(resume)), ErrorCode::ScopeInvalid, "not the sender's");
}

#[test]
fn questions_about_claim_checks_are_answered_in_their_order() {
    let mut pair = Pair::resilient();
    let redeem = ClaimAsk::Redeem { claim_id: 1, session: name() };
    let query = ClaimAsk::Query { claim_id: 2 };
    pair.client.ask_claim(redeem).expect("room");
    pair.client.ask_claim(query).expect("room");
    pair.client.close(pair.now);
    pair.drive();
    assert_eq!(pair.client_closed, None, "it waits for its answers");
    let requests: Vec<u64> = pair
        .server_events
        .iter()
        .filter_map(|event| match event {
            Event::Layer2(Layer2Event::ClaimAsked { request, .. }) => Some(*request),
            _ => None,
        })
        .collect();
    let unknown = ClaimResponse { claim_id: 2, found: None };
    pair.server.answer_claim(requests[1], Ok(unknown.clone())).expect("open");
    pair.drive();
    assert_eq!(pair.client_saw(|event| matches!(event, Layer2Event::ClaimAnswered { .. })), 0, "not before the first");
    pair.server.answer_claim(requests[0], Err(reason(ErrorCode::ClaimExpired))).expect("open");
    assert!(pair.server.answer_claim(requests[0], Ok(unknown.clone())).is_err(), "once");
    pair.drive();
    let answers: Vec<_> = pair
        .client_events
        .iter()
        .filter_map(|event| match event {
            Event::Layer2(Layer2Event::ClaimAnswered { ask, answer }) => Some((*ask, answer.clone())),
            _ => None,
        })
        .collect();
    assert_eq!(answers, [(redeem, Err(reason(ErrorCode::ClaimExpired))), (query, Ok(unknown))]);
    assert_eq!(pair.client_closed, Some(ErrorCode::NoError));
}

#[test]
fn a_session_answers_what_it_was_asked_before_it_closes() {
    let mut pair = Pair::resilient();
    let sent = pair.announce(None, false);
    pair.drive();
    let key = pair.open_plain(&sent);
    pair.server.ask_claim(ClaimAsk::Query { claim_id: 7 }).expect("layer 2");
    pair.server.complete(pair.now, key);
    pair.client.close(pair.now);
    pair.drive();
    assert_eq!(pair.client_closed, None, "the question has no answer");
    let asked = pair.client_events.iter().find_map(|event| match event {
        Event::Layer2(Layer2Event::ClaimAsked { request, .. }) => Some(*request),
        _ => None,
    });
    pair.client.answer_claim(asked.expect("heard"), Ok(ClaimResponse { claim_id: 7, found: None })).expect("open");
    pair.drive();
    assert_eq!(pair.server_saw(|event| matches!(event, Layer2Event::ClaimAnswered { .. })), 1);
    assert_eq!(pair.client_closed, Some(ErrorCode::NoError));
}

#[test]
fn too_many_questions_and_an_answer_that_nobody_asked_for_are_refused() {
    let mut peer = named_server();
    for claim_id in 0..1_024 {
        peer.say(&Frame::Layer2(Layer2Frame::ClaimQuery { claim_id })).expect("room");
    }
    let one_more = Frame::Layer2(Layer2Frame::ClaimQuery { claim_id: 9 });
    refused(peer.say(&one_more), ErrorCode::WindowExceeded, "questions about claim checks");
    let answer = Frame::Layer2(Layer2Frame::ClaimResponse(ClaimResponse { claim_id: 9, found: None }));
    refused(named_server().say(&answer), ErrorCode::EntityInvalid, "not asked for");
}

/// What the validation of the last token at the client says; its HMAC stands behind the message.
fn validation(pair: &Pair) -> StoppingPointValidation {
    let token = pair.token();
    let message = token.slice(..token.len() - 32);
    crate::messages::decode_message::<crate::messages::YieldToken>(message).expect("ours").validation.expect("set")
}

#[test]
fn a_stopping_point_names_the_last_checkpoint_of_its_scope_else_of_the_session() {
    let mut pair = Pair::resilient();
    let first = pair.announce(None, false);
    pair.drive();
    let key = pair.open_plain(&first);
    pair.server.yield_entity(pair.now, key, &point()).expect("being received");
    pair.drive();
    assert_eq!(validation(&pair).checkpoint_ref, None, "none was passed");
    pair.server.complete(pair.now, key);
    pair.client.checkpoint(pair.now, 0, 0, None).expect("open");
    pair.drive();
    // It is not satisfied while an entity that it covers is open, so the one before it is still the last.
    let (parent, children) = pair.parent(&policy(FailureAction::Fail), 2);
    let open = pair.open_plain(&children[0]);
    pair.client.checkpoint(pair.now, 0, 0, None).expect("open");
    pair.drive();
    pair.server.yield_entity(pair.now, open, &point()).expect("being received");
    pair.drive();
    assert_eq!(validation(&pair).checkpoint_ref.as_deref(), Some("penstock-1"), "of the session");
    pair.deliver(&children[1]);
    let scope = u32::from(children[0].key.scope);
    pair.client.checkpoint(pair.now, scope, children[0].key.entity, None).expect("open");
    pair.server.complete(pair.now, open);
    pair.drive();
    let third = pair.announce(Some(parent.key), false);
    pair.drive();
    let third = pair.open_plain(&third);
    pair.server.yield_entity(pair.now, third, &point()).expect("being received");
    pair.drive();
    assert_eq!(validation(&pair).checkpoint_ref.as_deref(), Some("penstock-3"), "of the entity's scope");
    assert_eq!(
        pair.server.stopping_point(third, StoppingPointValidation::default()).checkpoint_ref,
        Some("penstock-3".into())
    );
    pair.server.complete(pair.now, third);
    pair.end(&parent);
    let last = pair.announce(None, false);
    pair.drive();
    let last = pair.open_plain(&last);
    pair.server.yield_entity(pair.now, last, &point()).expect("being received");
    pair.drive();
    assert_eq!(validation(&pair).checkpoint_ref.as_deref(), Some("penstock-2"), "of the root scope");
}

#[test]
fn a_token_comes_back_with_its_checkpoint_though_another_was_passed_since() {
    let mut pair = Pair::resilient();
    let done = pair.announce(None, false);
    pair.deliver(&done);
    pair.client.checkpoint(pair.now, 0, 0, None).expect("open");
    pair.drive();
    let ticket = pair.announce(None, false);
    pair.drive();
    let key = pair.open_plain(&ticket);
    pair.server.yield_entity(pair.now, key, &point()).expect("being received");
    pair.drive();
    pair.client.checkpoint(pair.now, 0, done.key.entity, None).expect("open");
    pair.drive();
    pair.client.resume(ticket.key, &pair.token()).expect("open");
    pair.drive();
    let named = |event: &Layer2Event| match event {
        Layer2Event::Resumed { point: Some(point), .. } => {
            point.validation.checkpoint_ref.as_deref() == Some("penstock-1")
        }
        _ => false,
    };
    assert_eq!(pair.server_saw(named), 1);
}

#[test]
fn a_parent_that_waits_says_how_many_of_its_children_are_complete() {
    let mut pair = Pair::resilient();
    let parent = pair.client.announce_with_policy(pair.now, None, &policy(FailureAction::Fail)).expect("allowed");
    let parent = parent.expect("window");
    let children: Vec<_> = (0..3).map(|_| pair.announce(Some(parent.key), false)).collect();
    pair.drive();
    let key = pair.open_plain(&parent);
    pair.deliver(&children[0]);
    pair.server.yield_entity(pair.now, key, &point()).expect("it is being received");
    pair.drive();
    let counts = |point: &StoppingPointValidation| (point.children_complete, point.children_total);
    assert_eq!(counts(&validation(&pair)), (Some(1), Some(3)));
    // Its children go on meanwhile.
    pair.deliver(&children[1]);
    pair.client.resume(parent.key, &pair.token()).expect("open");
    pair.drive();
    assert_eq!(pair.server_saw(|event| matches!(event, Layer2Event::Resumed { point: Some(_), .. })), 1);
    pair.deliver(&children[2]);
    pair.end(&parent);
    assert_eq!(pair.outcome(parent.key), None, "its own payload is not delivered");
    pair.server.yield_entity(pair.now, key, &point()).expect("once more, after the barrier");
    pair.drive();
    assert_eq!(counts(&validation(&pair)), (Some(3), Some(3)));
    pair.server.complete(pair.now, key);
    pair.drive();
    assert_eq!(pair.outcome(parent.key), Some(Status::Complete));
}

#[test]
fn a_parent_whose_own_payload_has_ended_does_not_go_on_by_its_token() {
    for fails in [false, true] {
        let mut pair = Pair::resilient();
        let parent = pair.client.announce_with_policy(pair.now, None, &policy(FailureAction::Fail)).expect("allowed");
        let parent = parent.expect("window");
        pair.announce(Some(parent.key), false);
        pair.drive();
        let key = pair.open_plain(&parent);
        pair.server.yield_entity(pair.now, key, &point()).expect("it is being received");
        pair.drive();
        match fails {
            true => pair.server.fail(pair.now, key, reason(ErrorCode::IntegrityError)),
            false => pair.server.complete(pair.now, key),
        }
        pair.drive();
        pair.client.resume(parent.key, &pair.token()).expect("it has no terminal status");
        pair.drive();
        assert_eq!(pair.server_saw(|event| matches!(event, Layer2Event::Resumed { .. })), 0);
    }
}
