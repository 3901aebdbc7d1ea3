use std::time::{Duration, Instant};

use penstock_io::runtime::{spawn, wait};
use penstock_pipestream::header_key::HeaderKeys;
use penstock_pipestream_net::{
    Error, ErrorCode, Event, IncomingSessions, Payload, Reason, SessionHandle, SessionOptions, Status, channel,
};

use crate::raw::{RawClient, header, pending, run};
use crate::support::{Pair, block, container, draft};

fn pair() -> (Pair, IncomingSessions) {
    let (consumer, sessions) = channel(4);
    (Pair::new(tempfile::tempdir().unwrap(), consumer, |_| {}), sessions)
}

fn both() -> (Pair, SessionHandle, SessionHandle) {
    let (pair, sessions) = pair();
    let client = pair.connect();
    let server = block(sessions.next()).unwrap();
    (pair, client, server)
}

#[test]
fn both_ends_have_the_same_session() {
    let (_pair, client, server) = both();
    assert_eq!(client.id().unwrap(), server.id().unwrap());
    assert_eq!(client.agreement().unwrap(), server.agreement().unwrap());
}

#[test]
fn many_are_sent_taken_and_completed_together() {
    let (_pair, client, server) = both();
    let payload = |n: u32| Payload::bytes(n.to_be_bytes().repeat(1 + n as usize % 5_000));
    let mut items: Vec<_> = (0..600).map(|n| (draft("x/y"), payload(n))).collect();
    // This draft is refused before its announcement: it takes no ID, and the others keep their
    // order.
    items[300].0.layer = 9;
    let sending = spawn({
        let client = client.clone();
        async move { client.send_many(items).await }
    })
    .unwrap();
    let mut taken = 0;
    while taken < 599 {
        let entities = block(server.next_entities(50)).unwrap();
        assert!((1..=50).contains(&entities.len()));
        taken += entities.len();
        assert!(block(server.complete_many(entities)).unwrap().is_empty());
    }
    let tickets = block(sending).unwrap();
    let ids: Vec<_> = tickets.iter().map(|ticket| ticket.as_ref().map(|ticket| ticket.key.entity).ok()).collect();
    let expected = (1..=300).map(Some).chain([None]).chain((301..=599).map(Some));
    assert_eq!(ids, expected.collect::<Vec<_>>());
    assert_eq!(block(client.close()).unwrap().code, ErrorCode::NoError);
    assert_eq!(block(client.resolutions(1_000)).unwrap().len(), 599);
    assert!(block(server.next_entities(1)).unwrap().is_empty());
}

#[test]
fn of_a_batch_that_is_sent_whole_the_announced_entities_are_given_up_after_an_error() {
    let (_pair, client, server) = both();
    let items = |count| (0..count).map(|_| (draft("x/y"), Payload::bytes(&b"x"[..]))).collect::<Vec<_>>();
    // The refused draft is in the second batch, after the first 256 entities.
    let mut wrong = items(300);
    wrong[280].0.layer = 9;
    block(client.send_all(wrong)).unwrap_err();
    let mut given_up = 0;
    while given_up < 299 {
        for event in block(client.events(100)).unwrap().events {
            if let Event::Resolved { status, reason, .. } = event {
                let message = reason.map(|reason| reason.message).unwrap_or_default();
                assert_eq!((status, &*message), (Status::Failed, "another entity of the same batch could not be sent"));
                given_up += 1;
            }
        }
    }
    let tickets = block(client.send_all(items(3))).unwrap();
    assert_eq!(tickets.iter().map(|ticket| ticket.key.entity).collect::<Vec<_>>(), [300, 301, 302]);
    let taking = spawn(async move {
        while let Some(entity) = server.next_entity().await.unwrap() {
            // An error means that the entity was given up.
            let _ = entity.complete().await;
        }
    });
    for ticket in tickets {
        assert_eq!(block(client.wait_resolved(ticket.key)).unwrap().status, Status::Complete);
    }
    assert_eq!(block(client.close()).unwrap().code, ErrorCode::NoError);
    block(taking.unwrap()).unwrap();
}

#[test]
fn a_caller_takes_entities_and_decides() {
    let (_pair, client, server) = both();
    let large = vec![3; 5 << 20];
    let kept = block(client.send(draft("x/y"), Payload::bytes(&b"small"[..]))).unwrap();
    let streamed = block(client.send(draft("x/y"), Payload::bytes(large.clone()))).unwrap();
    let refused = block(client.send(draft("x/y"), Payload::bytes(&b"no"[..]))).unwrap();
    for _ in 0..3 {
        let mut entity = block(server.next_entity()).unwrap().unwrap();
        match entity.key().entity {
            1 => {
                assert_eq!(&block(entity.read_to_end(10)).unwrap()[..], b"small");
                block(entity.complete()).unwrap();
            }
            2 => {
                let mut data = Vec::new();
                while let Some(piece) = block(entity.chunk()).unwrap() {
                    data.extend_from_slice(&piece);
                }
                assert!(data == large);
                block(entity.complete()).unwrap();
            }
            _ => {
                let reason = Reason { code: ErrorCode::EntityInvalid, message: "not wanted".into() };
                block(entity.fail(reason)).unwrap();
            }
        }
    }
    assert_eq!(block(client.wait_resolved(kept.key)).unwrap().status, Status::Complete);
    assert_eq!(block(client.wait_resolved(streamed.key)).unwrap().status, Status::Complete);
    let reason = block(client.wait_resolved(refused.key)).unwrap().reason.unwrap();
    assert_eq!((reason.code, reason.message.as_str()), (ErrorCode::EntityInvalid, "not wanted"));
    assert_eq!(block(client.close()).unwrap().code, ErrorCode::NoError);
    assert!(block(server.next_entity()).unwrap().is_none());
    assert_eq!(block(server.closed()).unwrap().code, ErrorCode::NoError);
}

#[test]
fn a_wrong_payload_is_an_error_for_its_reader() {
    let (pair, sessions) = pair();
    // The larger payload is not collected in memory, and fits into the stream's window.
    for size in [5, 100_000] {
        run(async {
            let mut peer = RawClient::agreed(&pair).await;
            let payload = vec![1; size];
            let mut wrong = header(1, &payload);
            wrong.checksum = vec![0; 32].into();
            peer.send_frames(&[pending(1)]).await;
            peer.stream(&wrong, &payload).await;
            let session = sessions.next().await.unwrap();
            let mut entity = session.next_entity().await.unwrap().unwrap();
            let error = loop {
                match entity.chunk().await {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("passed"),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.code(), Some(ErrorCode::IntegrityError));
            assert!(matches!(entity.chunk().await, Err(Error::Ended(_))));
            peer.expect_failed(1, 0x04).await;
        });
    }
}

#[test]
fn an_entity_whose_stream_was_reset_stays_failed() {
    let (pair, sessions) = pair();
    run(async {
        let mut peer = RawClient::agreed(&pair).await;
        let payload = vec![1; 100_000];
        peer.send_frames(&[pending(1)]).await;
        let mut stream = peer.open(&header(1, &payload), &payload[..70_000]).await;
        let session = sessions.next().await.unwrap();
        let mut entity = session.next_entity().await.unwrap().unwrap();
        assert!(entity.chunk().await.unwrap().is_some());
        stream.reset(0x02_u32.into()).unwrap();
        let error = loop {
            if let Err(error) = entity.chunk().await {
                break error;
            }
        };
        assert!(matches!(error, Error::Protocol(_)), "{error}");
        assert!(matches!(entity.chunk().await, Err(Error::Ended(_))));
        assert!(matches!(entity.complete().await, Err(Error::Ended(_))));
    });
}

#[test]
fn a_header_that_is_too_long_when_it_is_sealed_fails_its_entity_and_not_the_session() {
    let keys = HeaderKeys::parse(&"ab".repeat(32)).unwrap();
    let (consumer, sessions) = channel(4);
    let theirs = Some(keys.clone());
    let pair = Pair::new(tempfile::tempdir().unwrap(), consumer, |options| options.session.header_keys = theirs);
    let client = pair.connect_with(SessionOptions { header_keys: Some(keys), ..SessionOptions::default() });
    let server = block(sessions.next()).unwrap();
    let mut long = draft("x/y");
    long.metadata.insert("note".into(), "n".repeat(800 << 10));
    for size in [5, 300_000] {
        let ticket = block(client.send(long.clone(), Payload::bytes(vec![1; size]))).unwrap();
        let reason = block(client.wait_resolved(ticket.key)).unwrap().reason.unwrap();
        assert_eq!(reason.code, ErrorCode::EntityTooLarge, "{}", reason.message);
    }
    let ticket = block(client.send(draft("x/y"), Payload::bytes(&b"x"[..]))).unwrap();
    block(block(server.next_entity()).unwrap().unwrap().complete()).unwrap();
    assert_eq!(block(client.wait_resolved(ticket.key)).unwrap().status, Status::Complete);
}

#[test]
fn an_entity_that_is_dropped_has_failed() {
    let (_pair, client, server) = both();
    let ticket = block(client.send(draft("x/y"), Payload::bytes(vec![1; 300_000]))).unwrap();
    drop(block(server.next_entity()).unwrap());
    let reason = block(client.wait_resolved(ticket.key)).unwrap().reason.unwrap();
    assert_eq!(reason.code, ErrorCode::InternalError);
}

#[test]
fn results_come_back_before_their_source_is_resolved() {
    let (_pair, client, server) = both();
    let source = block(client.send(draft("x/y"), Payload::bytes(&b"question"[..]))).unwrap();
    let mut question = block(server.next_entity()).unwrap().unwrap();
    assert_eq!(&block(question.read_to_end(100)).unwrap()[..], b"question");
    let result = block(server.send(draft("x/y"), Payload::bytes(&b"answer"[..]))).unwrap();
    assert_eq!(result.key.scope, 1);
    block(question.complete()).unwrap();
    assert_eq!(block(client.wait_resolved(source.key)).unwrap().status, Status::Complete);
    let mut answer = block(client.next_entity()).unwrap().unwrap();
    assert_eq!(&block(answer.read_to_end(100)).unwrap()[..], b"answer");
    block(answer.complete()).unwrap();
    assert_eq!(block(client.close()).unwrap().code, ErrorCode::NoError);
    assert_eq!(block(server.wait_resolved(result.key)).unwrap().status, Status::Complete);
}

#[test]
fn a_container_is_completed_at_any_time_and_resolved_after_its_children() {
    let (_pair, client, server) = both();
    let parent = block(client.send(container(), Payload::empty())).unwrap();
    block(block(server.next_entity()).unwrap().unwrap().complete()).unwrap();
    let mut part = draft("x/y");
    part.parent = Some(parent.key);
    let child = block(client.send(part, Payload::bytes(&b"part"[..]))).unwrap();
    block(client.end_children(parent.key)).unwrap();
    block(block(server.next_entity()).unwrap().unwrap().complete()).unwrap();
    assert_eq!(block(client.wait_resolved(child.key)).unwrap().status, Status::Complete);
    assert_eq!(block(client.wait_resolved(parent.key)).unwrap().status, Status::Complete);
}

#[test]
fn a_caller_that_takes_nothing_holds_the_sender_back_but_not_stream_0() {
    let (_pair, client, server) = both();
    let payload = vec![5; 400_000];
    let mut sent = 0;
    let deadline = Instant::now() + Duration::from_secs(3);
    // Send more than all windows and queues together hold.
    while wait(client.send(draft("x/y"), Payload::bytes(payload.clone())), Some(deadline), &mut || Ok(())).is_ok() {
        sent += 1;
        assert!(sent < 500, "nothing held the sender back");
    }
    // Control frames are still exchanged.
    let answer = block(client.checkpoint(0, 0, Some(Duration::from_millis(100)))).unwrap();
    assert!(!answer.satisfied);
    let mut taken = 0;
    while taken < sent {
        let entity = block(server.next_entity()).unwrap().unwrap();
        block(entity.complete()).unwrap();
        taken += 1;
    }
}

#[test]
fn a_session_that_is_dropped_is_aborted() {
    let (_pair, client, server) = both();
    drop(client);
    assert_eq!(block(server.closed()).unwrap().code, ErrorCode::InternalError);
    assert!(matches!(server.agreement(), Err(Error::Closed(_))));
}

#[test]
fn what_is_unresolved_at_the_end_has_failed() {
    let (_pair, client, server) = both();
    let ticket = block(client.send(draft("x/y"), Payload::bytes(&b"x"[..]))).unwrap();
    let entity = block(server.next_entity()).unwrap().unwrap();
    server.abort(Reason { code: ErrorCode::InternalError, message: "enough".into() }).unwrap();
    assert_eq!(block(client.wait_resolved(ticket.key)).unwrap().status, Status::Failed);
    assert_eq!(block(client.closed()).unwrap().message, "enough");
    assert!(matches!(block(client.send(draft("x/y"), Payload::empty())), Err(Error::Closed(_))));
    block(server.closed()).unwrap();
    assert!(matches!(block(entity.complete()), Err(Error::Closed(_))));
}

#[test]
fn an_entity_that_fails_with_its_session_shows_that_the_session_is_closed() {
    let (_pair, client, server) = both();
    let tickets: Vec<_> = (0..50).map(|_| block(client.send(draft("x/y"), Payload::empty())).unwrap()).collect();
    let _entity = block(server.next_entity()).unwrap().unwrap();
    // penstock's server does not do this with open entities, but another one may.
    server.abort(Reason { code: ErrorCode::NoError, message: String::new() }).unwrap();
    assert_eq!(block(client.wait_resolved(tickets[0].key)).unwrap().status, Status::Failed);
    assert_eq!(client.is_closed().unwrap().map(|reason| reason.code), Some(ErrorCode::NoError));
}
