//! Queries about claim checks, and their answers.

use super::resilience::{name, named_server, refused};
use super::*;
use crate::error::{LimitError, Violation};
use crate::{ClaimResponse, Layer2Frame};

#[test]
fn claim_requests_are_answered_in_their_order() {
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
fn a_session_answers_claim_requests_before_it_closes() {
    let mut pair = Pair::resilient();
    let sent = pair.announce(None, false);
    pair.drive();
    let key = pair.open_plain(&sent);
    pair.server.ask_claim(ClaimAsk::Query { claim_id: 7 }).expect("layer 2");
    pair.server.complete(pair.now, key);
    pair.client.close(pair.now);
    pair.drive();
    assert_eq!(pair.client_closed, None, "the request has no answer");
    let asked = pair.client_events.iter().find_map(|event| match event {
        Event::Layer2(Layer2Event::ClaimAsked { request, .. }) => Some(*request),
        _ => None,
    });
    pair.client.answer_claim(asked.expect("a request"), Ok(ClaimResponse { claim_id: 7, found: None })).expect("open");
    pair.drive();
    assert_eq!(pair.server_saw(|event| matches!(event, Layer2Event::ClaimAnswered { .. })), 1);
    assert_eq!(pair.client_closed, Some(ErrorCode::NoError));
}

#[test]
fn too_many_claim_requests_and_an_unexpected_response_are_refused() {
    let mut peer = named_server();
    for claim_id in 0..1_024 {
        peer.say(&Frame::Layer2(Layer2Frame::ClaimQuery { claim_id })).expect("room");
    }
    let one_more = Frame::Layer2(Layer2Frame::ClaimQuery { claim_id: 9 });
    refused(peer.say(&one_more), LimitError::ReceivedClaimRequests { limit: 1_024 });
    let answer = Frame::Layer2(Layer2Frame::ClaimResponse(ClaimResponse { claim_id: 9, found: None }));
    refused(named_server().say(&answer), Violation::UnexpectedClaimResponse { id: 9 });
}
