//! Suspended entities, and their tokens.

use super::resilience::{point, policy};
use super::*;
use crate::SessionId;
use crate::messages::{FailureAction, StoppingPointValidation};
use crate::yield_token::{StoppingPoint, TokenKey};

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
fn processing_starts_again_after_a_change_of_state_and_the_token_is_used_up() {
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

/// Return the validation in the last token at the client; its HMAC follows the message.
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
    // The second checkpoint is not satisfied while an entity that it covers is open, so the first
    // one is still the last.
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
    let parent = pair
        .client
        .announce_labelled(pair.now, None, true, Some(&policy(FailureAction::Fail)), Bytes::new())
        .expect("allowed");
    let parent = parent.expect("window");
    let children: Vec<_> = (0..3).map(|_| pair.announce(Some(parent.key), false)).collect();
    pair.drive();
    let key = pair.open_plain(&parent);
    pair.deliver(&children[0]);
    pair.server.yield_entity(pair.now, key, &point()).expect("it is being received");
    pair.drive();
    let counts = |point: &StoppingPointValidation| (point.children_complete, point.children_total);
    assert_eq!(counts(&validation(&pair)), (Some(1), Some(3)));
    // The parent's children continue meanwhile.
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
        let parent = pair
            .client
            .announce_labelled(pair.now, None, true, Some(&policy(FailureAction::Fail)), Bytes::new())
            .expect("allowed");
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
