//! A session of layer 2: its agreement, its name, its pace.

use std::time::Duration;

use bytes::Bytes;
use penstock_pipestream::{Capabilities, Frame, Layer2Frame, SessionFrame, StatusFrame};
use penstock_pipestream_net::{
    CompletionMode, CompletionPolicy, EntityDraft, Error, ErrorCode, FailureAction, Misuse, Payload, SessionId,
    SessionOptions, Status, YieldReason, channel,
};

use crate::layer2::{both, close, dehydrate, next, options, pair, policy, send, status, token};
use crate::raw::{RawClient, capabilities, header, pending, run};
use crate::support::{Pair, block, container, id, log};

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
    // The session's folder exists already, so a later session of the same ID gets a different
    // folder.
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
    assert!(matches!(block(client.claim(1)), Err(Error::Misuse(Misuse::NoLayer2))));
    close(&client);
    let with_policy = SessionOptions { policy: Some(CompletionPolicy::default()), ..options() };
    let server = pair.server.local_addr().unwrap();
    let refused = block(pair.client.connect(server, "localhost", with_policy)).unwrap_err();
    assert!(matches!(&refused, Error::Misuse(Misuse::PeerLayer { address }) if *address == server), "{refused:?}");
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
        let (Ok(reason) | Err(Error::Closed(reason))) = ended else { panic!("{ended:?}") };
        assert_eq!(reason.code, ErrorCode::EntityInvalid);
        assert!(reason.message.contains("already has an open session of that ID"), "{reason:?}");
        assert_eq!(first.is_closed().unwrap(), None);
        let other = pair.connect_with(named([8; 16]));
        close(&other);
        close(&first);
    }
}

#[test]
fn what_overtakes_the_sessions_name_waits_for_it() {
    let pair = Pair::with_options(|server| server.session = options());
    let name = SessionId::new([0xCD; 16]);
    run(async {
        let mut peer = RawClient::silent(&pair).await;
        peer.send_frames(&[Frame::Capabilities(Capabilities { layer2: true, ..capabilities() })]).await;
        assert!(matches!(peer.next_frame().await, Frame::Capabilities(_)));
        peer.stream(&header(1, b"x"), b"x").await;
        peer.send_frames(&[pending(1), pending(2)]).await;
        // An owner that gives up does not wait for a name either.
        peer.send_frames(&[Frame::Status(StatusFrame::new(Status::Failed, 0, 2))]).await;
        let failed = peer.next_frame().await;
        assert!(
            matches!(failed, Frame::Status(StatusFrame { status: Status::Failed, entity_id: 2, .. })),
            "{failed:?}"
        );
        peer.send_frames(&[Frame::Layer2(Layer2Frame::Session(SessionFrame::named(name)))]).await;
        // The peer reads frames of layer 2 as frames of an unknown type.
        assert!(matches!(peer.next_frame().await, Frame::Private(_)));
        peer.expect_complete(1).await;
    });
    let lines = log(&pair.sink(), &name.to_string());
    let statuses: Vec<_> = lines.iter().filter_map(|line| line["status"].as_str()).collect();
    assert_eq!(statuses, ["FAILED", "COMPLETE"]);
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
