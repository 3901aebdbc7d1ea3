//! Layer 2 between two real ends: a part that fails, takes too long, waits, or is deferred.

mod claims;
mod policies;
mod sessions;
mod tokens;

use bytes::Bytes;
use penstock_pipestream_net::{
    CompletionMode, CompletionPolicy, ErrorCode, Event, FailureAction, IncomingEntity, IncomingSessions, Layer2Event,
    Payload, Reason, SentEntity, SessionHandle, SessionOptions, Status, channel,
};

use crate::support::{Pair, block, container, draft};

fn options() -> SessionOptions {
    let mut options = SessionOptions::default();
    options.session.capabilities.layer2 = true;
    options
}

fn pair() -> (Pair, IncomingSessions) {
    let (consumer, sessions) = channel(4);
    (Pair::new(tempfile::tempdir().unwrap(), consumer, |server| server.session = options()), sessions)
}

fn both() -> (Pair, SessionHandle, SessionHandle) {
    let (pair, sessions) = pair();
    let client = pair.connect_with(options());
    let server = block(sessions.next()).unwrap();
    (pair, client, server)
}

/// Return a policy with one retry, without delay and without a timeout.
fn policy(mode: CompletionMode, on_failure: FailureAction) -> CompletionPolicy {
    CompletionPolicy {
        mode: Some(mode.into()),
        min_success_ratio: (mode == CompletionMode::Quorum).then_some(0.5),
        max_retries: Some(1),
        retry_delay_ms: Some(0),
        timeout_ms: Some(0),
        on_failure: Some(on_failure.into()),
        on_timeout: None,
    }
}

fn send(client: &SessionHandle, parent: Option<&SentEntity>, payload: impl Into<Vec<u8>>) -> SentEntity {
    let mut part = draft("x/y");
    part.parent = parent.map(|parent| parent.key);
    block(client.send(part, Payload::bytes(payload.into()))).unwrap()
}

fn dehydrate(client: &SessionHandle, parent: Option<&SentEntity>, policy: Option<CompletionPolicy>) -> SentEntity {
    let mut whole = container();
    (whole.parent, whole.policy) = (parent.map(|parent| parent.key), policy);
    block(client.send(whole, Payload::empty())).unwrap()
}

fn next(server: &SessionHandle) -> IncomingEntity {
    block(server.next_entity()).unwrap().unwrap()
}

fn bad() -> Reason {
    Reason { code: ErrorCode::EntityInvalid, message: "unreadable".into() }
}

fn status(client: &SessionHandle, sent: &SentEntity) -> Status {
    block(client.wait_resolved(sent.key)).unwrap().status
}

/// Return the next event of this kind.
fn event<T>(session: &SessionHandle, find: impl Fn(&Layer2Event) -> Option<T>) -> T {
    loop {
        let events = block(session.events(1)).unwrap().events;
        assert!(!events.is_empty(), "the session is over");
        let found = events.iter().find_map(|event| if let Event::Layer2(event) = event { find(event) } else { None });
        if let Some(found) = found {
            return found;
        }
    }
}

fn close(client: &SessionHandle) {
    assert_eq!(block(client.close()).unwrap().code, ErrorCode::NoError);
}

/// Complete an entity, or fail it.
fn decide(entity: IncomingEntity, fails: bool) {
    let decided = if fails { block(entity.fail(bad())) } else { block(entity.complete()) };
    decided.unwrap();
}

fn token(client: &SessionHandle) -> Bytes {
    event(client, |event| if let Layer2Event::Yielded { token, .. } = event { Some(token.clone()) } else { None })
}
