//! Dialogues at layer 2: what the tests share, and the session's name and policy.

use super::*;
use crate::error::{Early, Error, Violation};
use crate::manifest::ResolutionState;
use crate::messages::{CompletionMode, CompletionPolicy, FailureAction, StoppingPointValidation};
use crate::yield_token::{StoppingPoint, TokenKey};
use crate::{Layer2Frame, SessionFrame, SessionId, YieldReason};

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

    /// Make both ends of a session with a policy.
    pub(super) fn governed(policy: CompletionPolicy) -> Self {
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

    /// Announce a parent under a policy and deliver its stream; return it with its children.
    pub(super) fn parent(&mut self, policy: &CompletionPolicy, children: usize) -> (Ticket, Vec<Ticket>) {
        let parent = self
            .client
            .announce_labelled(self.now, None, true, Some(policy), Bytes::new())
            .expect("allowed")
            .expect("window");
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

    /// Return the latest outcome of a parent under its policy, which is the same at both ends.
    pub(super) fn resolution(&self) -> ResolutionState {
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

pub(super) fn with_mode(mode: CompletionMode, on_failure: FailureAction) -> CompletionPolicy {
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

/// Return a server with layer 2, whose peer sends hand-written frames.
pub(super) fn server() -> Peer {
    let now = start();
    let session = Session::new(Role::Server, config2(None), now).expect("server");
    let mut peer = Peer { now, session };
    peer.say(&Frame::Capabilities(config2(None).capabilities)).expect("capabilities");
    peer
}

pub(super) fn named_server() -> Peer {
    let mut peer = server();
    peer.say(&Frame::Layer2(Layer2Frame::Session(SessionFrame::named(name())))).expect("a name");
    peer.received_frames();
    peer
}

pub(super) fn refused(outcome: Result<()>, expected: impl Into<Error>) {
    let (error, expected) = (outcome.expect_err("refused"), expected.into());
    let expected = error.subject().map_or(expected.clone(), |subject| expected.at(subject.scope, subject.entity));
    assert_eq!(error, expected);
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
    let early = |what| Violation::BeforeSession { what };
    refused(server().say(&Frame::Layer2(Layer2Frame::ClaimQuery { claim_id: 1 })), early(Early::Frame(0xC1)));
    let mut peer = server();
    peer.status(Status::Pending, 0, 1).expect("a status of layer 0 does not wait");
    refused(peer.status(Status::Skipped, 0, 1), early(Early::Status(Status::Skipped)));
    let mut peer = named_server();
    refused(peer.say(&Frame::Layer2(Layer2Frame::Session(SessionFrame::named(name())))), Violation::SecondSession);
    let mut client =
        Peer { now: start(), session: Session::new(Role::Client, config2(Some(name())), start()).expect("client") };
    client.say(&Frame::Capabilities(config2(None).capabilities)).expect("capabilities");
    assert_eq!(client.session.id(), None, "the server has not answered");
    let other = Frame::Layer2(Layer2Frame::Session(SessionFrame::named(SessionId::new([4; 16]))));
    refused(client.say(&other), Violation::OtherSession);
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
        let events = drain(&mut peer);
        let named = events.iter().position(|event| matches!(event, Event::Layer2(Layer2Event::Named(_))));
        let admitted = events.iter().position(|event| matches!(event, Event::Admitted { stream: 4, .. }));
        assert!(named.is_some() && named < admitted, "{events:?}");
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
            pair.client.retry(pair.now, ticket.key).expect("a retry is allowed");
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
    for (stated, known) in [(None, Some(false)), (Some(ours), Some(true)), (Some(policy(FailureAction::Retry)), None)] {
        let session = Session::new(Role::Client, config.clone(), start()).expect("client");
        let mut client = Peer { now: start(), session };
        client.say(&Frame::Capabilities(config2(None).capabilities)).expect("capabilities");
        let answer = SessionFrame { policy: stated, ..SessionFrame::named(name()) };
        let outcome = client.say(&Frame::Layer2(Layer2Frame::Session(answer)));
        match known {
            Some(known) => assert_eq!((outcome, client.session.root_policy().is_some()), (Ok(()), known)),
            None => refused(outcome, Violation::SessionPolicy),
        }
    }
    let impossible = CompletionPolicy { mode: Some(CompletionMode::Quorum.into()), ..CompletionPolicy::default() };
    let frame = SessionFrame { policy: Some(impossible), ..SessionFrame::named(name()) };
    let quorum = Violation::Quorum { ratio: "None".to_owned() };
    refused(server().say(&Frame::Layer2(Layer2Frame::Session(frame))), quorum);
}

#[test]
fn commands_of_layer_2_are_misuse_where_it_was_not_agreed_on() {
    let mut pair = Pair::new(true, 10);
    let ticket = pair.announce(None, false);
    let key = pair.open_plain(&ticket);
    let now = pair.now;
    assert!(pair.client.announce_labelled(now, None, true, Some(&policy(FailureAction::Skip)), Bytes::new()).is_err());
    assert!(pair.server.skip(now, key, reason(ErrorCode::NoError)).is_err());
    assert!(pair.server.defer(now, key, 1, 2).is_err());
    assert!(pair.server.yield_entity(now, key, &point()).is_err());
    assert!(pair.client.abandon(now, ticket.key, reason(ErrorCode::IdleTimeout)).is_err());
    assert!(pair.client.ask_claim(ClaimAsk::Query { claim_id: 1 }).is_err());
    assert_eq!((pair.client.id(), pair.client_closed, pair.server_closed), (None, None, None));
}

#[test]
fn who_owns_an_entity_says_retrying_and_who_receives_it_says_yielded_and_deferred() {
    let mut peer = named_server();
    peer.status(Status::Pending, 0, 1).expect("announced");
    refused(peer.status(Status::Retrying, 0, 1), Violation::NotSetAside);
    let claim = crate::Extension::Claim { claim_id: 1, expiry_micros: 2 };
    let mut peer = named_server();
    peer.status(Status::Pending, 0, 1).expect("announced");
    let frame = StatusFrame { extension: Some(claim), ..StatusFrame::new(Status::Deferred, 0, 1) };
    refused(peer.say(&Frame::Status(frame)), Violation::OwnStatus { status: Status::Deferred });
    let mut peer = named_server();
    peer.session.announce(peer.now, None, false).expect("allowed").expect("window");
    refused(peer.status(Status::Retrying, 1, 1), Violation::ForeignRetrying);
    let mut peer = named_server();
    let resume = Layer2Frame::Resume { scope_id: 1, entity_id: 1, token: Bytes::new() };
    refused(peer.say(&Frame::Layer2(resume)), Violation::ResumeScope);
}
