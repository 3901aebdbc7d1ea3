//! Policies: a part that fails, takes too long, or comes again.

use std::time::{Duration, Instant};

use penstock_io::runtime::wait;
use penstock_pipestream_net::{
    CompletionMode, CompletionPolicy, EntityDraft, ErrorCode, FailureAction, Layer2Event, Payload, Status,
};

use crate::layer2::{bad, both, close, decide, dehydrate, event, next, options, pair, policy, send, status};
use crate::support::{block, draft};

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
        // A receiver that took too long is not notified, and changes nothing.
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
        // The second attempt has arrived, or has not begun.
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
        timeout_ms: Some(200),
        on_timeout: Some(FailureAction::Retry.into()),
        max_retries: Some(250),
        ..policy(CompletionMode::Strict, FailureAction::Fail)
    };
    let parent = dehydrate(&client, None, Some(policy));
    block(next(&server).complete()).unwrap();
    // One part whose payload has arrived completely, and one whose payload is still arriving.
    for bytes in [10, 5 << 20] {
        let part = send(&client, Some(&parent), vec![1; bytes]);
        let old = next(&server);
        let mut present = next(&server);
        assert_eq!(present.key(), old.key());
        drop(old);
        // On a slow machine even this attempt may be too late.
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
    // The strict container needs all of its children; its parent decides about the container
    // itself.
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
