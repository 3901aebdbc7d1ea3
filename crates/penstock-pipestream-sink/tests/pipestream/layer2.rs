//! Layer 2 between two real ends: a part that fails, takes too long, waits, or is deferred.
//!
//! Longer than 600 lines, because all tests use the same two ends.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use penstock_io::ReadKey;
use penstock_io::runtime::wait;
use penstock_io::tls::{ClientTls, Trust};
use penstock_pipestream::{Capabilities, Frame, Layer2Frame, SessionFrame, StatusFrame, messages};
use penstock_pipestream_net::Error;
use penstock_pipestream_net::{
    ClaimCheck, CompletionMode, CompletionPolicy, DeferTypes, EntityDraft, ErrorCode, Event, FailureAction,
    IncomingEntity, IncomingSessions, Layer2Event, Payload, Reason, SentEntity, SessionHandle, SessionId,
    SessionOptions, Status, YieldReason, channel,
};
use penstock_pipestream_sink::read::{FolderStore, ReadOptions, RemoteSink};
use penstock_pipestream_sink::{Claims, FolderSink, read_claims};

use crate::raw::{RawClient, capabilities, header, pending, run};
use crate::support::{Pair, block, container, draft, id, log};

const KEY: &str = "a key of 16 bytes or more";

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

#[test]
fn the_clients_name_is_the_sessions_id_at_both_ends_and_in_the_sink() {
    let (pair, client, server) = both();
    assert_eq!((client.agreement().unwrap().layer, server.agreement().unwrap().layer), (2, 2));
    assert_eq!(client.id().unwrap(), server.id().unwrap());
    let other = pair.connect_with(options());
    assert_ne!(id(&client), id(&other));
    let pair = Pair::with_options(|server| server.session = options());
    let mut named = options();
    let config = penstock_pipestream::Layer2Config::new(
        Some(SessionId::new([0xAB; 16])),
        penstock_pipestream::yield_token::TokenKey::new([1; 32]),
    );
    named.session.layer2 = Some(config);
    let client = pair.connect_with(named.clone());
    assert_eq!(&*id(&client), "ab".repeat(16));
    assert_eq!(status(&client, &send(&client, None, *b"x")), Status::Complete);
    close(&client);
    assert_eq!(log(&pair.sink(), &"ab".repeat(16)).len(), 2);
    // Its folder exists already: a session that has the same ID later gets a different one.
    let again = pair.connect_with(named);
    assert_eq!(id(&again), id(&client));
    assert_eq!(status(&again, &send(&again, None, *b"y")), Status::Complete);
    close(&again);
    let lines = log(&pair.sink(), &format!("{}.1", "ab".repeat(16)));
    assert_eq!(lines[0]["file"], format!("{}.1/0/1", "ab".repeat(16)));
    assert_eq!(log(&pair.sink(), &"ab".repeat(16)).len(), 2);
}

#[test]
fn without_layer_2_at_the_other_end_a_policy_is_refused_and_everything_else_works() {
    let pair = Pair::with_sink();
    let client = pair.connect_with(options());
    assert_eq!(client.agreement().unwrap().layer, 1);
    let with_policy = EntityDraft { policy: Some(policy(CompletionMode::Lenient, FailureAction::Fail)), ..container() };
    assert!(block(client.send(with_policy, Payload::empty())).is_err());
    assert_eq!(status(&client, &send(&client, None, *b"x")), Status::Complete);
    assert!(matches!(block(client.claim(1)), Err(Error::Local(penstock_io::Error::Misuse(_)))));
    close(&client);
    let with_policy = SessionOptions { policy: Some(CompletionPolicy::default()), ..options() };
    let refused = block(pair.client.connect(pair.server.local_addr().unwrap(), "localhost", with_policy));
    assert!(refused.unwrap_err().to_string().contains("has not agreed on it"));
}

#[test]
fn every_mode_makes_of_a_part_that_fails_what_it_says() {
    use CompletionMode::{BestEffort, Lenient, Quorum, Strict};
    use FailureAction::{Defer, Fail, Retry, Skip};
    let (_pair, client, server) = both();
    for mode in [Strict, Lenient, BestEffort, Quorum] {
        for (action, expected, attempts) in [
            (Fail, Status::Failed, 1),
            (Skip, Status::Skipped, 1),
            (Retry, Status::Failed, 2),
            (Defer, Status::Deferred, 1),
        ] {
            let parent = dehydrate(&client, None, Some(policy(mode, action)));
            block(next(&server).complete()).unwrap();
            let (good, poor) = (send(&client, Some(&parent), *b"good"), send(&client, Some(&parent), *b"bad"));
            block(client.end_children(parent.key)).unwrap();
            for _ in 0..1 + attempts {
                let entity = next(&server);
                let fails = entity.key() != good.key;
                decide(entity, fails);
            }
            assert_eq!(status(&client, &good), Status::Complete, "{mode:?} {action:?}");
            let end = block(client.wait_resolved(poor.key)).unwrap();
            assert_eq!((end.status, end.attempts), (expected, attempts), "{mode:?} {action:?}");
            assert_eq!(end.claim.is_some(), expected == Status::Deferred, "{mode:?} {action:?}");
            assert_eq!(end.reason.unwrap().message, "unreadable");
            let content = if mode == Strict { Status::Failed } else { Status::Complete };
            assert_eq!(status(&client, &parent), content, "{mode:?} {action:?}");
            let digest = block(client.wait_released(parent.child_scope.unwrap())).unwrap().digest;
            let deferred = u64::from(expected == Status::Deferred);
            assert_eq!((digest.processed, digest.succeeded, digest.deferred), (2, 1, deferred));
        }
    }
    close(&client);
}

/// Complete an entity, or fail it.
fn decide(entity: IncomingEntity, fails: bool) {
    let decided = if fails { block(entity.fail(bad())) } else { block(entity.complete()) };
    decided.unwrap();
}

#[test]
fn a_part_that_takes_too_long_is_what_on_timeout_says() {
    use FailureAction::{Defer, Fail, Retry, Skip};
    let (_pair, client, server) = both();
    for (action, expected, attempts) in [
        (Fail, Status::Abandoned, 1),
        (Skip, Status::Skipped, 1),
        (Retry, Status::Abandoned, 2),
        (Defer, Status::Deferred, 1),
    ] {
        let policy = CompletionPolicy {
            timeout_ms: Some(30),
            on_timeout: Some(action.into()),
            ..policy(CompletionMode::BestEffort, FailureAction::Fail)
        };
        let parent = dehydrate(&client, None, Some(policy));
        block(next(&server).complete()).unwrap();
        let part = send(&client, Some(&parent), *b"slow");
        block(client.end_children(parent.key)).unwrap();
        let late: Vec<_> = (0..attempts).map(|_| next(&server)).collect();
        let end = block(client.wait_resolved(part.key)).unwrap();
        assert_eq!((end.status, end.attempts), (expected, attempts), "{action:?}");
        assert_eq!(end.reason.unwrap().code, ErrorCode::IdleTimeout);
        assert_eq!(status(&client, &parent), Status::Complete);
        // A receiver that took so long is not notified, and changes nothing.
        late.into_iter().for_each(|entity| block(entity.complete()).unwrap());
    }
    close(&client);
}

#[test]
fn a_part_comes_again_whatever_its_payload_is_and_succeeds() {
    let (_pair, client, server) = both();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, &[6; 300_000]).unwrap();
    let parent = dehydrate(&client, None, Some(policy(CompletionMode::Strict, FailureAction::Retry)));
    block(next(&server).complete()).unwrap();
    let mut chunked = draft("x/y");
    (chunked.parent, chunked.chunk_size) = (Some(parent.key), Some(70_000));
    let mut whole = draft("x/y");
    whole.parent = Some(parent.key);
    let items = vec![
        (whole.clone(), Payload::bytes(vec![1; 10])),
        (whole.clone(), Payload::bytes(vec![2; 300_000])),
        (chunked, Payload::bytes(vec![3; 300_000])),
        (whole, Payload::path(file.path()).unwrap()),
    ];
    let lengths = items.iter().map(|(_, payload)| payload.len()).collect::<Vec<_>>();
    let sent: Vec<_> = block(client.send_many(items)).into_iter().map(Result::unwrap).collect();
    block(client.end_children(parent.key)).unwrap();
    for _ in 0..2 * sent.len() {
        let mut entity = next(&server);
        if entity.header().metadata["pipestream.attempt"] == "1" {
            block(entity.fail(bad())).unwrap();
        } else {
            let index = sent.iter().position(|sent| sent.key == entity.key()).unwrap();
            let data = block(entity.read_to_end(1 << 20)).unwrap();
            assert_eq!(data.len() as u64, lengths[index]);
            block(entity.complete()).unwrap();
        }
    }
    for sent in &sent {
        let end = block(client.wait_resolved(sent.key)).unwrap();
        assert_eq!((end.status, end.attempts, end.reason), (Status::Complete, 2, None));
    }
    assert_eq!(status(&client, &parent), Status::Complete);
    close(&client);
    let counters = _pair.server.counters().unwrap();
    assert_eq!((counters.retries, counters.failed, counters.completed), (4, 0, 5));
}

#[test]
fn an_attempt_counts_once_it_is_made() {
    let (_pair, client, server) = both();
    let late =
        CompletionPolicy { retry_delay_ms: Some(60_000), ..policy(CompletionMode::Lenient, FailureAction::Retry) };
    for (policy, attempts) in [(policy(CompletionMode::Lenient, FailureAction::Retry), 2), (late, 1)] {
        let parent = dehydrate(&client, None, Some(policy));
        block(next(&server).complete()).unwrap();
        let sent = send(&client, Some(&parent), *b"part");
        block(next(&server).fail(bad())).unwrap();
        event(&client, |event| {
            matches!(event, Layer2Event::AttemptFailed { failures: 1, owned: true, .. }).then_some(())
        });
        // The second one is there, or has not begun.
        let _second = (attempts == 2).then(|| next(&server));
        block(client.fail(sent.key, bad())).unwrap();
        let end = block(client.wait_resolved(sent.key)).unwrap();
        assert_eq!((end.status == Status::Complete, end.attempts), (false, attempts));
        block(client.end_children(parent.key)).unwrap();
    }
}

#[test]
fn what_comes_of_a_failed_attempt_is_not_taken_for_the_next_ones() {
    let (_pair, client, server) = both();
    let policy = CompletionPolicy {
        timeout_ms: Some(50),
        on_timeout: Some(FailureAction::Retry.into()),
        max_retries: Some(50),
        ..policy(CompletionMode::Strict, FailureAction::Fail)
    };
    let parent = dehydrate(&client, None, Some(policy));
    block(next(&server).complete()).unwrap();
    // One whose payload has arrived completely, and one whose payload is still arriving.
    for bytes in [10, 5 << 20] {
        let part = send(&client, Some(&parent), vec![1; bytes]);
        let old = next(&server);
        let mut present = next(&server);
        assert_eq!(present.key(), old.key());
        drop(old);
        // On a slow machine even this one may be too late.
        while block(present.read_to_end(1 << 30)).is_err() {
            present = next(&server);
        }
        block(present.complete()).unwrap();
        loop {
            let end =
                wait(client.wait_resolved(part.key), Some(Instant::now() + Duration::from_millis(20)), &mut || Ok(()));
            match end {
                Ok(end) => {
                    let end = end.unwrap();
                    assert!(end.status == Status::Complete && end.attempts > 1, "{end:?}");
                    break;
                }
                Err(_) => {
                    let again = wait(server.next_entity(), Some(Instant::now()), &mut || Ok(()));
                    if let Ok(Ok(Some(entity))) = again {
                        block(entity.complete()).ok();
                    }
                }
            }
        }
    }
    block(client.end_children(parent.key)).unwrap();
    assert_eq!(status(&client, &parent), Status::Complete);
    close(&client);
}

#[test]
fn each_scope_has_its_own_policy_and_a_root_without_one_the_sessions() {
    let (_pair, sessions) = pair();
    let mut lenient = options();
    lenient.policy = Some(policy(CompletionMode::Lenient, FailureAction::Skip));
    let client = _pair.connect_with(lenient);
    let server = block(sessions.next()).unwrap();
    let outer = dehydrate(&client, None, None);
    let inner = dehydrate(&client, Some(&outer), Some(policy(CompletionMode::BestEffort, FailureAction::Fail)));
    let strict = dehydrate(&client, Some(&outer), None);
    let (tolerated, fatal) = (send(&client, Some(&inner), *b"a"), send(&client, Some(&strict), *b"b"));
    let good = send(&client, Some(&outer), *b"c");
    for parent in [&inner, &strict, &outer] {
        block(client.end_children(parent.key)).unwrap();
    }
    for _ in 0..6 {
        let entity = next(&server);
        let fails = [tolerated.key, fatal.key].contains(&entity.key());
        assert_eq!(entity.header().completion_policy.is_some(), [outer.key, inner.key].contains(&entity.key()));
        decide(entity, fails);
    }
    assert_eq!([&tolerated, &fatal].map(|part| status(&client, part)), [Status::Failed, Status::Failed]);
    assert_eq!([&inner, &good].map(|part| status(&client, part)), [Status::Complete, Status::Complete]);
    // Its own children are all or nothing; its parent decides about the entity itself.
    assert_eq!(status(&client, &strict), Status::Skipped);
    assert_eq!(status(&client, &outer), Status::Complete);
    close(&client);
}

#[test]
fn the_sessions_policy_is_that_of_root_entities() {
    for (action, expected) in [
        (FailureAction::Fail, (Status::Failed, 1)),
        (FailureAction::Skip, (Status::Skipped, 1)),
        (FailureAction::Defer, (Status::Deferred, 1)),
        (FailureAction::Retry, (Status::Complete, 2)),
    ] {
        let (pair, sessions) = pair();
        let mut governed = options();
        governed.policy = Some(policy(CompletionMode::Strict, action));
        let client = pair.connect_with(governed);
        let server = block(sessions.next()).unwrap();
        let sent = send(&client, None, *b"page");
        decide(next(&server), true);
        if action == FailureAction::Retry {
            decide(next(&server), false);
        }
        let end = block(client.wait_resolved(sent.key)).unwrap();
        assert_eq!((end.status, end.attempts), expected);
        assert_eq!(end.claim.is_some(), action == FailureAction::Defer);
        close(&client);
    }
}

#[test]
fn an_entity_waits_until_its_token_comes_back() {
    let (_pair, client, server) = both();
    let sent = send(&client, None, *b"contract");
    let mut entity = next(&server);
    block(entity.wait(YieldReason::AwaitingApproval, b"page 3".as_slice().into())).unwrap();
    let (key, reason, token) = event(&client, |event| {
        let Layer2Event::Yielded { key, reason, token } = event else { return None };
        Some((*key, *reason, token.clone()))
    });
    assert_eq!((key, reason), (sent.key, YieldReason::AwaitingApproval));
    assert_eq!(block(client.resume(key, token.clone())).unwrap(), None);
    assert_eq!(block(entity.resumed()).unwrap().as_deref(), Some(b"page 3".as_slice()));
    // A token is valid once.
    assert_eq!(block(client.resume(key, token)).unwrap().unwrap().code, ErrorCode::ClaimNotFound);
    block(entity.complete()).unwrap();
    assert_eq!(status(&client, &sent), Status::Complete);
    assert_eq!(_pair.server.counters().unwrap().yields, 1);
    let sent = send(&client, None, *b"other");
    let mut entity = next(&server);
    block(entity.wait(YieldReason::AwaitingApproval, b"".as_slice().into())).unwrap();
    block(client.fail(sent.key, bad())).unwrap();
    assert!(matches!(block(entity.resumed()), Err(Error::Ended(_))));
    drop(entity);
    assert_eq!(status(&client, &sent), Status::Failed);
    close(&client);
}

fn token(client: &SessionHandle) -> Bytes {
    event(client, |event| if let Layer2Event::Yielded { token, .. } = event { Some(token.clone()) } else { None })
}

#[test]
fn a_token_is_good_only_for_the_bytes_that_it_was_made_after() {
    let (_pair, client, server) = both();
    let payload: Vec<u8> = (0..200_000_u32).map(|byte| byte as u8).collect();
    let sent = send(&client, None, payload.clone());
    let mut entity = next(&server);
    let first = block(entity.chunk()).unwrap().unwrap();
    assert!(first.len() < payload.len());
    block(entity.wait(YieldReason::ResourceBusy, Bytes::from_static(b"page 3"))).unwrap();
    let stale = token(&client);
    let more = block(entity.chunk()).unwrap().unwrap();
    let refused = block(client.resume(sent.key, stale.clone())).unwrap().unwrap();
    assert_eq!(refused.code, ErrorCode::IntegrityError, "{}", refused.message);
    assert_eq!(block(entity.resumed()).unwrap(), None, "its state is not the entity's any more");
    assert_eq!(block(client.resume(sent.key, stale)).unwrap().unwrap().code, ErrorCode::ClaimNotFound);
    // The bytes that it has by now make a different state.
    block(entity.wait(YieldReason::ResourceBusy, Bytes::from_static(b"page 3"))).unwrap();
    assert_eq!(block(client.resume(sent.key, token(&client))).unwrap(), None);
    assert_eq!(block(entity.resumed()).unwrap().as_deref(), Some(b"page 3".as_slice()));
    let rest = block(entity.read_to_end(payload.len())).unwrap();
    assert_eq!([first, more, rest].concat(), payload);
    block(entity.complete()).unwrap();
    assert_eq!(status(&client, &sent), Status::Complete);
    close(&client);
}

#[test]
fn a_stopping_point_tells_how_far_processing_is_and_bytes_that_came_back_are_not_processed() {
    let (_pair, client, server) = both();
    send(&client, None, *b"a line of text");
    let mut entity = next(&server);
    let all = block(entity.chunk()).unwrap().unwrap();
    entity.unread(all.slice(6..)).unwrap();
    block(entity.wait(YieldReason::ResourceBusy, Bytes::from_static(b"a line"))).unwrap();
    let sealed = token(&client);
    // Its HMAC follows it.
    let message = sealed.slice(..sealed.len() - 32);
    let validation = messages::decode_message::<messages::YieldToken>(message).unwrap().validation.unwrap();
    assert_eq!((validation.bytes_processed, validation.is_resumable), (Some(6), Some(true)));
    assert_eq!((validation.children_complete, validation.children_total), (Some(0), Some(0)));
    assert_eq!(block(entity.chunk()).unwrap().unwrap(), " of text");
    let claim = block(entity.defer(bad(), None)).unwrap();
    let asked = block(client.claim(claim.id)).unwrap().validation.unwrap();
    assert_eq!((asked.bytes_processed, asked.is_resumable), (Some(14), Some(false)));
    assert!(asked.state_checksum.is_some());
    let untouched = send(&client, None, *b"x");
    let claim = block(next(&server).defer(bad(), None)).unwrap();
    assert_eq!(status(&client, &untouched), Status::Deferred);
    let asked = block(client.claim(claim.id)).unwrap().validation;
    assert_eq!(asked, claim.validation);
    assert_eq!(asked.unwrap().bytes_processed, Some(0));
    close(&client);
}

#[test]
fn an_entity_that_is_set_aside_is_taken_over_once_in_another_session() {
    let (pair, sessions) = pair();
    let client = pair.connect_with(options());
    let server = block(sessions.next()).unwrap();
    let sent = send(&client, None, *b"scan");
    let check = block(next(&server).defer(bad(), None)).unwrap();
    let end = block(client.wait_resolved(sent.key)).unwrap();
    assert_eq!((end.status, end.claim), (Status::Deferred, Some(check.id)));
    let asked = block(client.claim(check.id)).unwrap();
    assert_eq!(asked, ClaimCheck { session: None, ..check.clone() });
    close(&client);
    let by = pair.connect_with(options());
    let worker = block(sessions.next()).unwrap();
    let session = check.session.unwrap();
    assert_eq!(session.to_string(), *id(&client));
    assert_eq!(block(by.redeem(check.id, session)).unwrap().status, Status::Processing);
    let refused =
        [by.redeem(check.id, session), by.redeem(check.id ^ 1, session), by.redeem(check.id, SessionId::new([1; 16]))];
    for refused in refused {
        assert_eq!(block(refused).unwrap_err().code(), Some(ErrorCode::ClaimNotFound));
    }
    assert_eq!(block(by.claim(check.id ^ 1)).unwrap_err().code(), Some(ErrorCode::ClaimNotFound));
    let mut again = draft("x/y");
    again.metadata.insert("pipestream.claim".into(), format!("{:X}", check.id | 0xF000_0000_0000_0000));
    assert!(matches!(
        block(by.send(again.clone(), Payload::empty())),
        Err(Error::Local(penstock_io::Error::Misuse(_)))
    ));
    again.metadata.insert("pipestream.claim".into(), format!("{:016x}", check.id));
    let again = block(by.send(again, Payload::bytes(&b"text"[..]))).unwrap();
    block(next(&worker).complete()).unwrap();
    assert_eq!(status(&by, &again), Status::Complete);
    assert_eq!(block(by.claim(check.id)).unwrap().status, Status::Complete);
    close(&by);
    let rows = pair.server.claims().unwrap();
    assert_eq!((rows.len(), rows[0].check.status), (1, Status::Complete));
    assert_eq!(rows[0].details.content_type.as_deref(), Some("x/y"));
    assert_eq!(rows[0].details.reason, "PIPESTREAM_ENTITY_INVALID: unreadable");
    let counters = pair.server.counters().unwrap();
    assert_eq!((counters.deferred, counters.failed, counters.claims), (1, 0, 1));
}

#[test]
fn a_server_has_one_session_of_a_name_at_a_time() {
    let named = |name: [u8; 16]| {
        let mut named = options();
        let key = penstock_pipestream::yield_token::TokenKey::new([1; 32]);
        named.session.layer2 = Some(penstock_pipestream::Layer2Config::new(Some(SessionId::new(name)), key));
        named
    };
    let (without_sink, _sessions) = pair();
    for pair in [without_sink, Pair::with_options(|server| server.session = options())] {
        let first = pair.connect_with(named([7; 16]));
        let second = block(pair.client.connect(pair.server.local_addr().unwrap(), "localhost", named([7; 16])));
        let ended = second.and_then(|session| block(session.closed()));
        let ended =
            ended.map_or_else(|error| error.to_string(), |reason| format!("{} {}", reason.code, reason.message));
        assert!(ended.contains("ENTITY_INVALID") && ended.contains("has a session of that ID"), "{ended}");
        assert_eq!(first.is_closed().unwrap(), None);
        let other = pair.connect_with(named([8; 16]));
        close(&other);
        close(&first);
    }
}

#[test]
fn what_could_not_be_obtained_has_failed_whatever_comes_again() {
    let (_pair, client, server) = both();
    let parent = dehydrate(&client, None, Some(policy(CompletionMode::Lenient, FailureAction::Retry)));
    let damaged = EntityDraft { parent: Some(parent.key), ..draft("x/y") };
    let ticket = block(client.announce_failed(damaged, bad())).unwrap();
    let end = block(client.wait_resolved(ticket.key)).unwrap();
    assert_eq!((end.status, end.attempts), (Status::Failed, 1));
    let good = send(&client, Some(&parent), *b"good");
    block(client.end_children(parent.key)).unwrap();
    for _ in 0..2 {
        block(next(&server).complete()).unwrap();
    }
    assert_eq!((status(&client, &good), status(&client, &parent)), (Status::Complete, Status::Complete));
    close(&client);
}

#[test]
fn the_claim_check_of_a_container_tells_of_its_children() {
    let (_pair, client, server) = both();
    let outer = dehydrate(&client, None, Some(policy(CompletionMode::BestEffort, FailureAction::Defer)));
    let inner = dehydrate(&client, Some(&outer), None);
    let parts = [send(&client, Some(&inner), *b"a"), send(&client, Some(&inner), *b"b")];
    for parent in [&inner, &outer] {
        block(client.end_children(parent.key)).unwrap();
    }
    for _ in 0..4 {
        let entity = next(&server);
        let fails = entity.key() == parts[0].key;
        decide(entity, fails);
    }
    let end = block(client.wait_resolved(inner.key)).unwrap();
    assert_eq!((end.status, status(&client, &outer)), (Status::Deferred, Status::Complete));
    let validation = block(client.claim(end.claim.unwrap())).unwrap().validation.unwrap();
    assert_eq!((validation.children_complete, validation.children_total), (Some(1), Some(2)));
    close(&client);
}

/// Return the files of a folder as a crash would leave them, in another one.
fn copied(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.path().join(path.file_name().unwrap())).unwrap();
    }
    to
}

#[test]
fn what_a_session_had_redeemed_when_the_servers_process_died_has_failed() {
    let folder = tempfile::tempdir().unwrap();
    let (consumer, sessions) = channel(4);
    let pair = Pair::new(tempfile::tempdir().unwrap(), consumer, |server| {
        server.session = options();
        server.claims = Claims::open(folder.path()).unwrap();
    });
    let client = pair.connect_with(options());
    let server = block(sessions.next()).unwrap();
    let checks = ["redeemed", "open"].map(|text| {
        send(&client, None, text.as_bytes());
        block(next(&server).defer(bad(), None)).unwrap()
    });
    let worker = pair.connect_with(options());
    block(worker.redeem(checks[0].id, checks[0].session.unwrap())).unwrap();
    let left = copied(folder.path());
    let (consumer, _sessions) = channel(4);
    let pair = Pair::new(tempfile::tempdir().unwrap(), consumer, |server| {
        server.session = options();
        server.claims = Claims::open(left.path()).unwrap();
    });
    let client = pair.connect_with(options());
    let status = |check: &ClaimCheck| block(client.claim(check.id)).unwrap().status;
    assert_eq!([status(&checks[0]), status(&checks[1])], [Status::Failed, Status::Deferred]);
    block(client.redeem(checks[1].id, checks[1].session.unwrap())).unwrap();
    close(&client);
}

#[test]
fn entities_are_left_out_by_either_end() {
    let (_pair, client, server) = both();
    let theirs = send(&client, None, *b"a");
    block(next(&server).skip(bad())).unwrap();
    assert_eq!(status(&client, &theirs), Status::Skipped);
    let ours = send(&client, None, vec![1; 300_000]);
    block(client.skip(ours.key, bad())).unwrap();
    assert_eq!(status(&client, &ours), Status::Skipped);
    close(&client);
}

#[test]
fn what_has_children_or_is_below_layer_2_is_not_set_aside() {
    let (_pair, client, server) = both();
    let whole = dehydrate(&client, None, None);
    let entity = next(&server);
    assert!(matches!(entity.check_layer2(), Err(Error::Local(penstock_io::Error::Misuse(_)))));
    block(entity.complete()).unwrap();
    block(client.end_children(whole.key)).unwrap();
    assert_eq!(status(&client, &whole), Status::Complete);
    let (pair, sessions) = pair();
    let client = pair.connect();
    let server = block(sessions.next()).unwrap();
    let sent = send(&client, None, *b"x");
    let mut entity = next(&server);
    assert!(entity.check_layer2().unwrap_err().to_string().contains("layer 2"));
    assert!(block(entity.wait(YieldReason::AwaitingApproval, b"".as_slice().into())).is_err());
    block(entity.complete()).unwrap();
    assert_eq!(status(&client, &sent), Status::Complete);
    close(&client);
}

#[test]
fn a_sink_stores_what_is_deferred_by_its_type_and_says_so_in_its_list() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("sink");
    let sink = FolderSink::open(&folder, None).unwrap();
    let store = Arc::new(FolderStore::open(&folder).unwrap());
    let pair = Pair::new(dir, sink, |server| {
        server.session = options();
        server.claims = Claims::beside(&folder);
        server.defer_types = DeferTypes::new(["image/*".to_owned()]).unwrap();
        let options = ReadOptions::new(ReadKey::new(KEY).unwrap(), store);
        server.service = Some(options.service(Arc::clone(&server.claims)).unwrap());
    });
    assert!(read_claims(&folder).unwrap().is_empty() && !folder.join(".claims").exists());
    let client = pair.connect_with(options());
    let parent = dehydrate(&client, None, Some(policy(CompletionMode::Lenient, FailureAction::Fail)));
    let mut image = draft("image/png");
    image.parent = Some(parent.key);
    let image = block(client.send(image, Payload::bytes(&b"pixels"[..]))).unwrap();
    let text = send(&client, Some(&parent), *b"text");
    block(client.end_children(parent.key)).unwrap();
    let end = block(client.wait_resolved(image.key)).unwrap();
    assert_eq!(
        (end.status, status(&client, &text), status(&client, &parent)),
        (Status::Deferred, Status::Complete, Status::Complete)
    );
    let claim = end.claim.unwrap();
    let (fresh, last) = block(pair.server.fresh_claims(0)).unwrap();
    assert_eq!((fresh.len(), fresh[0].check.id, fresh[0].check.status), (1, claim, Status::Deferred));
    // One that is redeemed is not deferred again.
    let by = pair.connect_with(options());
    block(by.redeem(claim, fresh[0].check.session.unwrap())).unwrap();
    let mut again = draft("image/png");
    again.metadata.insert("pipestream.claim".into(), format!("{claim:016x}"));
    let again = block(by.send(again, Payload::bytes(&b"pixels"[..]))).unwrap();
    assert_eq!(status(&by, &again), Status::Complete);
    close(&by);
    assert_eq!(block(client.claim(claim)).unwrap().status, Status::Complete);
    let another = block(client.send(draft("Image/Tiff"), Payload::bytes(&b"more"[..]))).unwrap();
    let another = block(client.wait_resolved(another.key)).unwrap().claim.unwrap();
    assert_eq!(block(pair.server.fresh_claims(last)).unwrap().0[0].check.id, another);
    for _ in 0..2 {
        block(pair.server.settle(another, Status::Failed)).unwrap();
    }
    assert_eq!(block(client.claim(another)).unwrap().status, Status::Failed);
    close(&client);
    let tls = ClientTls { trust: Trust::Fingerprint(pair.server.fingerprint().unwrap()), identity: None };
    let reader = block(RemoteSink::connect(&tls, pair.server.local_addr().unwrap(), "localhost", KEY)).unwrap();
    let rows = block(reader.claims()).unwrap();
    assert_eq!(rows, pair.server.claims().unwrap());
    assert_eq!(rows, read_claims(&folder).unwrap());
    assert_eq!(rows.iter().map(|row| row.check.status).collect::<Vec<_>>(), [Status::Complete, Status::Failed]);
    let lines = log(&pair.sink(), &id(&client));
    let line = lines.iter().find(|line| line["status"] == "DEFERRED").unwrap();
    assert_eq!(line["claim"], format!("{claim:016x}"));
    let file = line["file"].as_str().unwrap();
    assert_eq!(std::fs::read(pair.sink().join(file)).unwrap(), b"pixels");
    let details = pair.server.claims().unwrap().remove(0).details;
    assert_eq!((details.file.as_deref(), details.bytes), (Some(file), Some(6)));
}

#[test]
fn a_part_that_is_refused_at_its_header_is_set_aside_with_what_the_header_says() {
    let pair = Pair::with_options(|server| {
        server.session = options();
        server.session.session.max_payload = 10;
    });
    let client = pair.connect_with(options());
    let parent = dehydrate(&client, None, Some(policy(CompletionMode::BestEffort, FailureAction::Defer)));
    let large = send(&client, Some(&parent), vec![1; 11]);
    block(client.end_children(parent.key)).unwrap();
    let end = block(client.wait_resolved(large.key)).unwrap();
    assert_eq!((end.status, status(&client, &parent)), (Status::Deferred, Status::Complete));
    close(&client);
    let row = pair.server.claims().unwrap().remove(0);
    assert_eq!((Some(row.check.id), row.details.content_type.as_deref()), (end.claim, Some("x/y")));
    let lines = log(&pair.sink(), &id(&client));
    let line = lines.iter().find(|line| line["status"] == "DEFERRED").unwrap();
    assert_eq!((&line["content_type"], &line["file"]), (&"x/y".into(), &serde_json::Value::Null));
}

#[test]
fn what_overtakes_the_sessions_name_waits_for_it() {
    let pair = Pair::with_options(|server| server.session = options());
    let name = SessionId::new([0xCD; 16]);
    run(async {
        let mut peer = RawClient::silent(&pair).await;
        peer.tell(&[Frame::Capabilities(Capabilities { layer2: true, ..capabilities() })]).await;
        assert!(matches!(peer.hear().await, Frame::Capabilities(_)));
        peer.stream(&header(1, b"x"), b"x").await;
        peer.tell(&[pending(1), pending(2)]).await;
        // An owner that gives up does not wait for a name either.
        peer.tell(&[Frame::Status(StatusFrame::new(Status::Failed, 0, 2))]).await;
        let failed = peer.hear().await;
        assert!(
            matches!(failed, Frame::Status(StatusFrame { status: Status::Failed, entity_id: 2, .. })),
            "{failed:?}"
        );
        peer.tell(&[Frame::Layer2(Layer2Frame::Session(SessionFrame::named(name)))]).await;
        // It reads frames of layer 2 as those of an unknown type.
        assert!(matches!(peer.hear().await, Frame::Private(_)));
        peer.expect_complete(1).await;
    });
    let lines = log(&pair.sink(), &name.to_string());
    let statuses: Vec<_> = lines.iter().filter_map(|line| line["status"].as_str()).collect();
    assert_eq!(statuses, ["FAILED", "COMPLETE"]);
}

/// Return the content of the last token; its HMAC follows the message.
fn validation(token: &Bytes) -> messages::StoppingPointValidation {
    let message = token.slice(..token.len() - 32);
    messages::decode_message::<messages::YieldToken>(message).unwrap().validation.unwrap()
}

#[test]
fn a_container_that_waits_says_what_has_become_of_its_children_and_which_checkpoint_was_the_last() {
    let (_pair, client, server) = both();
    let before = send(&client, None, *b"before");
    block(next(&server).complete()).unwrap();
    assert_eq!(status(&client, &before), Status::Complete);
    let checkpoint = block(client.checkpoint(0, 0, None)).unwrap();
    let parent = dehydrate(&client, None, None);
    let mut whole = next(&server);
    let parts = [send(&client, Some(&parent), *b"a"), send(&client, Some(&parent), *b"b")];
    block(next(&server).complete()).unwrap();
    assert_eq!(status(&client, &parts[0]), Status::Complete);
    let other = next(&server);
    block(whole.wait(YieldReason::AwaitingSibling, Bytes::from_static(b"one of two"))).unwrap();
    let sealed = token(&client);
    let said = validation(&sealed);
    assert_eq!((said.children_complete, said.children_total), (Some(1), Some(2)));
    assert_eq!(said.checkpoint_ref, Some(checkpoint.checkpoint.checkpoint_id.clone()));
    block(other.complete()).unwrap();
    block(client.end_children(parent.key)).unwrap();
    assert_eq!(block(client.resume(parent.key, sealed)).unwrap(), None);
    assert_eq!(block(whole.resumed()).unwrap().as_deref(), Some(b"one of two".as_slice()));
    block(whole.complete()).unwrap();
    assert_eq!(status(&client, &parent), Status::Complete);
    // A claim check names it too, at its issuer and at the peer that asks.
    let aside = send(&client, None, *b"later");
    let claim = block(next(&server).defer(bad(), None)).unwrap();
    assert_eq!(status(&client, &aside), Status::Deferred);
    let asked = block(client.claim(claim.id)).unwrap().validation;
    assert_eq!(asked, claim.validation);
    assert_eq!(asked.unwrap().checkpoint_ref, Some(checkpoint.checkpoint.checkpoint_id));
    close(&client);
}

#[test]
fn sessions_at_fixed_intervals_do_all_that_others_do() {
    let (consumer, sessions) = channel(4);
    let paced = || {
        let mut options = options();
        options.session.status_interval = Some(Duration::from_millis(5));
        options
    };
    let pair = Pair::new(tempfile::tempdir().unwrap(), consumer, |server| server.session = paced());
    let client = pair.connect_with(paced());
    let server = block(sessions.next()).unwrap();
    let parent = dehydrate(&client, None, None);
    block(next(&server).complete()).unwrap();
    let parts: Vec<_> = (0..300_u32).map(|part| send(&client, Some(&parent), part.to_be_bytes())).collect();
    block(client.end_children(parent.key)).unwrap();
    for _ in &parts {
        block(next(&server).complete()).unwrap();
    }
    assert!(parts.iter().all(|part| status(&client, part) == Status::Complete));
    assert_eq!(status(&client, &parent), Status::Complete);
    let waits = send(&client, None, *b"waits");
    let mut entity = next(&server);
    block(entity.wait(YieldReason::RateLimited, Bytes::from_static(b"state"))).unwrap();
    assert_eq!(block(client.resume(waits.key, token(&client))).unwrap(), None);
    assert_eq!(block(entity.resumed()).unwrap().as_deref(), Some(b"state".as_slice()));
    block(entity.complete()).unwrap();
    assert_eq!(status(&client, &waits), Status::Complete);
    close(&client);
}
