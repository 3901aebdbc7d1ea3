//! An entity that waits, and the token that resumes it.

use bytes::Bytes;
use penstock_pipestream::messages;
use penstock_pipestream_net::{Error, ErrorCode, Layer2Event, Status, YieldReason};

use crate::layer2::{bad, both, close, dehydrate, event, next, send, status, token};
use crate::support::block;

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
    // With the bytes received since then, the entity is in a different state.
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
    // The token's HMAC follows its message.
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
    // A claim check names the checkpoint, too, at its issuer and at the peer that requests it.
    let aside = send(&client, None, *b"later");
    let claim = block(next(&server).defer(bad(), None)).unwrap();
    assert_eq!(status(&client, &aside), Status::Deferred);
    let asked = block(client.claim(claim.id)).unwrap().validation;
    assert_eq!(asked, claim.validation);
    assert_eq!(asked.unwrap().checkpoint_ref, Some(checkpoint.checkpoint.checkpoint_id));
    close(&client);
}
