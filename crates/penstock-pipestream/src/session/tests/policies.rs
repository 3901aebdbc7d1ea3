//! Retries, policies and timeouts as dialogues.

use super::resilience::{SECOND, policy, with_mode};
use super::*;
use crate::manifest::ResolutionState;
use crate::messages::{CompletionMode, CompletionPolicy, FailureAction};

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
    // Both ends fail the entity before either receives the other's frame.
    pair.server.fail(pair.now, key, reason(ErrorCode::IntegrityError));
    pair.client.fail(pair.now, children[0].key, reason(ErrorCode::InternalError));
    pair.drive();
    assert_eq!(pair.outcome(children[0].key), Some(Status::Abandoned));
    assert_eq!(pair.server_outcome(key).map(|(status, _)| status), Some(Status::Abandoned));
    // Once the failure was received no frames can cross, so FAILED is sent.
    let key = pair.open_plain(&children[1]);
    pair.fail_at_server(key);
    pair.client.fail(pair.now, children[1].key, reason(ErrorCode::InternalError));
    pair.drive();
    assert_eq!(pair.outcome(children[1].key), Some(Status::Failed));
    pair.end(&parent);
    assert_eq!(pair.released().last().map(|digest| (digest.processed, digest.failed)), Some((2, 2)));
    assert_eq!((pair.client_closed, pair.server_closed), (None, None));
}

/// Return how many attempts had failed before each end of an entity, at the client and at the server.
fn failures(pair: &Pair, key: EntityKey) -> [Vec<u32>; 2] {
    [&pair.client_events, &pair.server_events].map(|events| {
        let ends = events.iter().filter_map(|event| match event {
            Event::Resolved { key: ended, failures, .. } if *ended == key => Some(*failures),
            _ => None,
        });
        ends.collect()
    })
}

#[test]
fn an_end_says_how_many_attempts_had_failed_that_another_could_follow() {
    let mut pair = Pair::resilient();
    let (_, children) = pair.parent(&policy(FailureAction::Retry), 4);
    let keys: Vec<_> = children.iter().map(|child| pair.open_plain(child)).collect();
    pair.server.complete(pair.now, keys[0]);
    for (key, child) in keys.iter().zip(&children).skip(1).take(2) {
        pair.fail_at_server(*key);
        pair.client.retry(pair.now, child.key).expect("failed");
    }
    pair.drive();
    pair.wait(SECOND);
    pair.deliver(&children[1]);
    pair.open_plain(&children[2]);
    // The entity is given up while its failure is in flight, so no attempt follows the failure.
    pair.server.fail(pair.now, keys[3], reason(ErrorCode::IntegrityError));
    pair.client.fail(pair.now, children[3].key, reason(ErrorCode::InternalError));
    pair.client.fail(pair.now, children[2].key, reason(ErrorCode::InternalError));
    pair.drive();
    let ends: Vec<_> = children.iter().map(|child| failures(&pair, child.key)[0].clone()).collect();
    assert_eq!(ends, [[0], [1], [1], [0]]);
    assert_eq!(failures(&pair, keys[1])[1], [1]);
}

#[test]
fn nothing_is_retried_for_a_parent_that_has_failed() {
    let mut pair = Pair::resilient();
    let policy = policy(FailureAction::Retry);
    let parent = pair
        .client
        .announce_labelled(pair.now, None, true, Some(&policy), Bytes::new())
        .expect("allowed")
        .expect("window");
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
    let inner = pair
        .client
        .announce_labelled(pair.now, Some(parent.key), true, Some(&strict), Bytes::new())
        .expect("allowed")
        .expect("window");
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
    let error = pair
        .client
        .announce_labelled(pair.now, None, true, Some(&bad), Bytes::new())
        .expect_err("refused before it is sent");
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
                // The child is not retried in time, so it ends.
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
    pair.client.retry(pair.now, children[1].key).expect("a retry is allowed");
    pair.drive();
    pair.wait(SECOND);
    pair.deliver(&children[1]);
    assert_eq!(pair.outcome(children[1].key), Some(Status::Complete));
}

#[test]
fn a_refused_claim_check_that_the_receiver_wanted_fails_an_attempt_that_is_retried() {
    let mut pair = Pair::resilient();
    let (parent, children) = pair.parent(&policy(FailureAction::Retry), 1);
    let key = pair.open_plain(&children[0]);
    for _ in 0..2 {
        // The second time it waits for its retry.
        pair.server.refuse_claim(pair.now, key, reason(ErrorCode::InternalError));
        pair.drive();
        assert_eq!((pair.outcome(key), pair.server_outcome(key)), (None, None), "FAILED is not terminal");
    }
    pair.client.retry(pair.now, key).expect("an attempt has failed");
    pair.drive();
    pair.wait(SECOND);
    pair.deliver(&children[0]);
    pair.end(&parent);
    assert_eq!((pair.outcome(key), pair.outcome(parent.key)), (Some(Status::Complete), Some(Status::Complete)));
    assert_eq!((pair.client_closed, pair.server_closed), (None, None));
}

#[test]
fn a_refused_claim_check_that_the_policy_wanted_is_the_last_word_at_both_ends() {
    let mut pair = Pair::resilient();
    let timed = CompletionPolicy {
        timeout_ms: Some(5_000),
        on_timeout: Some(FailureAction::Defer.into()),
        ..policy(FailureAction::Retry)
    };
    let (parent, children) = pair.parent(&timed, 2);
    pair.deliver(&children[1]);
    pair.wait(SECOND * 5);
    assert_eq!(pair.server_saw(|event| matches!(event, Layer2Event::ClaimWanted { .. })), 1);
    // A failure with this code would be retried; a time-out is not.
    let key = children[0].key;
    pair.server.refuse_claim(pair.now, key, reason(ErrorCode::InternalError));
    pair.drive();
    assert_eq!(pair.outcome(key), Some(Status::Failed));
    assert_eq!(pair.server_outcome(key).map(|(status, _)| status), Some(Status::Failed));
    pair.end(&parent);
    assert_eq!(pair.outcome(parent.key), Some(Status::Failed));
    assert_eq!((pair.client_closed, pair.server_closed), (None, None));
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
