//! Negotiation, plain entities, windows, checkpoints, heartbeats, closing.

use super::*;

#[test]
fn both_ends_agree_on_the_minimum() {
    let now = start();
    let mut client = Session::new(Role::Client, config(true, 100), now).expect("client");
    let mut peer = Peer { now, session: Session::new(Role::Server, config(true, 7), now).expect("server") };
    let Some(Transmit::Control(bytes)) = client.poll_transmit(usize::MAX) else { panic!("no CAPABILITIES") };
    peer.session.handle_control(now, bytes).expect("capabilities");
    let agreement = peer.session.agreement().expect("agreed");
    assert_eq!((agreement.layer, agreement.max_scope_depth, agreement.max_window_size), (1, 7, 7));
}

#[test]
fn an_entity_is_announced_received_and_completed_with_the_cursor() {
    let mut pair = Pair::new(true, 100);
    let first = pair.announce(None, false);
    let second = pair.announce(None, false);
    assert_eq!((first.key.entity, second.key.entity, first.depth), (1, 2, 0));
    pair.deliver(&second);
    pair.deliver(&first);
    assert_eq!(pair.outcome(first.key), Some(Status::Complete));
    let cursors: Vec<_> = pair
        .server_events
        .iter()
        .filter_map(|event| match event {
            Event::Status { status: Status::Complete, key, cursor, by_peer: false, .. } => Some((key.entity, *cursor)),
            _ => None,
        })
        .collect();
    assert_eq!(cursors, [(2, None), (1, Some(3))]);
}

#[test]
fn a_stream_that_overtakes_its_pending_waits_for_it() {
    let mut pair = Pair::new(true, 100);
    let ticket = pair.announce(None, false);
    // The header arrives before the control bytes are delivered.
    let header = header(&pair.client, &ticket, 5);
    assert_eq!(pair.server.handle_header(pair.now, 2, &header), Ok(Admission::Held));
    pair.drive();
    assert!(pair.server_events.iter().any(|event| matches!(event, Event::Admitted { stream: 2, .. })));
    assert_eq!(pair.server.counters().held_streams, 1);
}

#[test]
fn a_full_window_blocks_and_the_cursor_opens_it() {
    let mut pair = Pair::new(true, 3);
    let tickets: Vec<_> = (0..3).map(|_| pair.announce(None, false)).collect();
    assert_eq!(pair.client.announce(pair.now, None, false), Ok(None));
    pair.deliver(&tickets[1]);
    assert_eq!(pair.client.announce(pair.now, None, false), Ok(None), "the cursor has not moved");
    pair.deliver(&tickets[0]);
    assert!(pair.client_events.contains(&Event::Capacity));
    assert_eq!(pair.announce(None, false).key.entity, 4);
}

#[test]
fn no_more_entities_than_agreed_in_a_scope() {
    let now = start();
    let mut offered = config(true, 10);
    offered.capabilities.max_entities_per_scope = Some(2);
    let mut peer = Peer { now, session: Session::new(Role::Server, offered, now).expect("server") };
    peer.say(&Frame::Capabilities(config(true, 10).capabilities)).expect("capabilities");
    for id in 1..=2 {
        peer.status(Status::Pending, 0, id).expect("allowed");
    }
    assert_eq!(peer.status(Status::Pending, 0, 3).expect_err("too many").code(), ErrorCode::WindowExceeded);

    let mut pair = Pair::new(true, 10);
    pair.client.agreement.as_mut().expect("agreed").max_entities_per_scope = 1;
    pair.announce(None, false);
    let error = pair.client.announce(pair.now, None, false).expect_err("too many");
    assert_eq!((error.code(), pair.client.is_closed()), (ErrorCode::WindowExceeded, false));
}

#[test]
fn ids_and_their_cursor_go_round() {
    let mut pair = Pair::new(true, 8);
    let ids = u64::from(crate::entity_id::MODULUS) - 1;
    let key = ScopeKey { scope: 0, scope_use: 0 };
    pair.client.outbound.insert(0, Scope::starting_at(key, Some(0), None, ids - 3));
    pair.server.inbound.insert(0, Scope::starting_at(key, Some(0), None, ids - 3));
    let tickets: Vec<_> = (0..6).map(|_| pair.announce(None, false)).collect();
    let named: Vec<_> = tickets.iter().map(|ticket| (ticket.key.entity, ticket.key.entity_use)).collect();
    assert_eq!(named, [(0xFFFF_FFFA, 0), (0xFFFF_FFFB, 0), (0xFFFF_FFFC, 0), (1, 1), (2, 1), (3, 1)]);
    for ticket in tickets.iter().rev() {
        pair.deliver(ticket);
        assert_eq!(pair.outcome(ticket.key), Some(Status::Complete));
    }
    assert_eq!((pair.client_closed, pair.server_closed), (None, None));
}

#[test]
fn the_owners_failure_is_echoed() {
    let mut pair = Pair::new(true, 10);
    let ticket = pair.announce(None, false);
    pair.drive();
    pair.client.fail(pair.now, ticket.key, reason(ErrorCode::EntityInvalid));
    pair.drive();
    assert_eq!(pair.outcome(ticket.key), Some(Status::Failed));
    let (status, why) = pair.server_outcome(ticket.key).expect("resolved");
    assert_eq!((status, why), (Status::Failed, Some(reason(ErrorCode::EntityInvalid))));
}

#[test]
fn the_receivers_first_terminal_status_stands_when_statuses_cross() {
    let mut pair = Pair::new(true, 10);
    let ticket = pair.announce(None, false);
    pair.drive();
    let Admission::Accepted(accepted) = pair.open(&ticket, 0) else { panic!("not accepted") };
    pair.client.fail(pair.now, ticket.key, reason(ErrorCode::InternalError));
    pair.server.complete(pair.now, accepted.key);
    pair.drive();
    assert_eq!(pair.outcome(ticket.key), Some(Status::Complete));
    assert_eq!(pair.server.counters().late_statuses, 1);
    // A late stream of the entity is stopped and dropped, too.
    assert_eq!(pair.open(&ticket, 0), Admission::Stopped(ErrorCode::NoError));
}

#[test]
fn a_rejected_entity_is_stopped_and_the_reason_reaches_the_owner() {
    let mut pair = Pair::new(true, 10);
    let ticket = pair.announce(None, false);
    pair.drive();
    let Admission::Accepted(accepted) = pair.open(&ticket, 9) else { panic!("not accepted") };
    pair.server.fail(pair.now, accepted.key, reason(ErrorCode::IntegrityError));
    pair.drive();
    assert_eq!(pair.stopped, [(2, ErrorCode::IntegrityError)]);
    let resolved = pair.client_events.iter().find_map(|event| match event {
        Event::Resolved { reason, status: Status::Failed, .. } => reason.clone(),
        _ => None,
    });
    assert_eq!(resolved, Some(reason(ErrorCode::IntegrityError)));
}

#[test]
fn a_checkpoint_is_answered_when_what_it_covers_is_terminal() {
    let mut pair = Pair::new(true, 10);
    let tickets: Vec<_> = (0..3).map(|_| pair.announce(None, false)).collect();
    let sequence = pair.client.checkpoint(pair.now, 0, 2, None).expect("asked");
    pair.deliver(&tickets[0]);
    let answered = |pair: &Pair| {
        pair.client_events.iter().any(|event| matches!(event, Event::Checkpoint { satisfied: true, ours: true, checkpoint } if checkpoint.sequence_number == sequence))
    };
    assert!(!answered(&pair));
    pair.deliver(&tickets[1]);
    assert!(answered(&pair), "entity 3 is not covered");
}

#[test]
fn a_checkpoint_times_out_and_the_session_goes_on() {
    let mut pair = Pair::new(true, 10);
    let ticket = pair.announce(None, false);
    pair.client.checkpoint(pair.now, 0, 0, None).expect("asked");
    pair.drive();
    pair.wait(Duration::from_secs(29));
    assert!(!pair.client_events.iter().any(|event| matches!(event, Event::Checkpoint { .. })));
    pair.wait(Duration::from_secs(1));
    assert!(
        pair.client_events.iter().any(|event| matches!(event, Event::Checkpoint { satisfied: false, ours: true, .. }))
    );
    pair.deliver(&ticket);
    assert_eq!(pair.outcome(ticket.key), Some(Status::Complete));
}

#[test]
fn a_nested_checkpoint_comes_before_the_one_around_it() {
    let mut peer = Peer::server(true, 10);
    peer.status(Status::Pending, 0, 1).expect("pending");
    peer.status(Status::Pending, 0, 2).expect("pending");
    peer.status(Status::Dehydrating, 0, 2).expect("dehydrating");
    peer.open(2, &parent_header(0, 2, "2")).expect("parent");
    peer.status_at(Status::Pending, 2, 1, 1).expect("child");
    peer.checkpoint(2, 0, 0).expect("nested");
    peer.checkpoint(0, 1, 0).expect("outer");
    let Ok(Admission::Accepted(first)) = peer.open(6, &plain_header(0, 1, 0)) else { panic!("not accepted") };
    peer.session.complete(peer.now, first.key);
    let answers = |peer: &mut Peer| {
        peer.received_frames().into_iter().filter(|frame| matches!(frame, Frame::Checkpoint(_))).count()
    };
    assert_eq!(answers(&mut peer), 0, "the nested one is open");
    let Ok(Admission::Accepted(child)) = peer.open(10, &child_header(2, 1, 2)) else { panic!("not accepted") };
    peer.session.complete(peer.now, child.key);
    assert_eq!(answers(&mut peer), 2);
}

#[test]
fn heartbeats_go_out_when_nothing_else_does_and_change_nothing() {
    let mut pair = Pair::new(true, 10);
    pair.wait(Duration::from_secs(30));
    assert_eq!((pair.client.counters().heartbeats, pair.server.counters().heartbeats), (1, 1));
    pair.wait(Duration::from_secs(10));
    assert_eq!(pair.client.counters().heartbeats, 1);
}

#[test]
fn an_idle_limit_closes_with_idle_timeout() {
    let now = start();
    let mut offered = config(true, 10);
    offered.idle_timeout = Some(Duration::from_secs(90));
    let mut session = Session::new(Role::Server, offered, now).expect("server");
    session.handle_timeout(later(now, Duration::from_secs(89)));
    assert!(!session.is_closed());
    session.handle_timeout(later(now, Duration::from_secs(90)));
    assert!(matches!(session.poll_transmit(9), Some(Transmit::Close { code: ErrorCode::IdleTimeout, .. })));
}

#[test]
fn limits_beyond_the_clock_are_never_reached() {
    let now = start();
    let mut offered = config(true, 10);
    (offered.keepalive, offered.idle_timeout) = (Some(Duration::MAX), Some(Duration::MAX));
    let mut session = Session::new(Role::Server, offered, now).expect("server");
    let later = later(now, Duration::from_secs(1_000_000));
    assert!(session.poll_timeout().is_some_and(|due| due > later.instant));
    session.handle_timeout(later);
    assert!(!session.is_closed());
}

#[test]
fn a_client_closes_when_everything_is_terminal() {
    let mut pair = Pair::new(true, 10);
    let ticket = pair.announce(None, false);
    pair.client.close(pair.now);
    pair.drive();
    assert_eq!(pair.client_closed, None);
    assert!(pair.client.announce(pair.now, None, false).is_err(), "nothing new while draining");
    pair.deliver(&ticket);
    assert_eq!(pair.client_closed, Some(ErrorCode::NoError));
    assert!(
        matches!(pair.server_events.last(), Some(Event::Closed { reason, by_peer: true }) if reason.code == ErrorCode::NoError)
    );
}

#[test]
fn a_client_that_received_entities_sends_a_checkpoint_before_it_closes() {
    let mut pair = Pair::new(true, 10);
    let result = pair.server.announce(pair.now, None, false).expect("allowed").expect("window");
    assert_eq!((result.key.scope, result.key.entity), (1, 1));
    let header = header(&pair.server, &result, 0);
    pair.drive();
    let Ok(Admission::Accepted(accepted)) = pair.client.handle_header(pair.now, 3, &header) else {
        panic!("not accepted")
    };
    pair.client.close(pair.now);
    pair.drive();
    assert_eq!(pair.client_closed, None);
    pair.client.complete(pair.now, accepted.key);
    pair.drive();
    assert_eq!(pair.client_closed, Some(ErrorCode::NoError));
    assert!(
        pair.server_events.iter().any(|event| matches!(event, Event::Checkpoint { ours: false, satisfied: true, .. }))
    );
    assert!(
        pair.server_events
            .iter()
            .any(|event| matches!(event, Event::Resolved { owned: true, status: Status::Complete, .. }))
    );
}

#[test]
fn a_lost_connection_fails_what_is_open() {
    let mut pair = Pair::new(true, 10);
    let done = pair.announce(None, false);
    let open = pair.announce(None, true);
    pair.deliver(&done);
    pair.client.handle_connection_lost(pair.now, reason(ErrorCode::IdleTimeout), true);
    pair.drive();
    assert_eq!(pair.outcome(open.key), Some(Status::Failed));
    assert_eq!(pair.outcome(done.key), Some(Status::Complete));
    assert_eq!(pair.client.open_owned(), 0);
    assert!(pair.client.is_closed() && pair.client_closed.is_none());
}

#[test]
fn a_servers_streams_may_overtake_its_capabilities() {
    let now = start();
    let mut client = Session::new(Role::Client, config(true, 10), now).expect("client");
    assert_eq!(client.handle_header(now, 3, &plain_header(1, 1, 0)), Ok(Admission::Held));
    let mut bytes = BytesMut::new();
    Frame::Capabilities(config(true, 10).capabilities).encode(&mut bytes);
    let pending =
        StatusFrame { status: Status::Pending, entity_id: 1, scope_id: 1, depth: 0, cursor: None, extension: None };
    Frame::Status(pending).encode(&mut bytes);
    client.handle_control(now, bytes.freeze()).expect("fine");
    assert!(drain(&mut client).iter().any(|event| matches!(event, Event::Admitted { stream: 3, .. })));
}

#[test]
fn chunks_in_any_order_make_one_entity() {
    let mut pair = Pair::new(true, 10);
    let ticket = pair.announce(None, false);
    pair.drive();
    let mut whole = header(&pair.client, &ticket, 10);
    let mut keys = Vec::new();
    for (index, offset) in [(1, 4), (0, 0)] {
        whole.chunk_info = Some(crate::ChunkInfo { total_chunks: 2, chunk_index: index, chunk_offset: offset });
        let Admission::Accepted(accepted) = pair.open_with(&whole) else { panic!("not accepted") };
        assert_eq!(accepted.chunk, Some(AcceptedChunk { index, offset }));
        keys.push(accepted.key);
    }
    assert_eq!(pair.server.chunk_finished(pair.now, keys[0], 1, 6), ChunkProgress::Waiting);
    assert_eq!(pair.server.chunk_finished(pair.now, keys[0], 0, 4), ChunkProgress::Whole);
    pair.server.complete(pair.now, keys[1]);
    pair.drive();
    assert_eq!(pair.outcome(ticket.key), Some(Status::Complete));
}

#[test]
fn a_gap_between_chunks_fails_the_entity_only() {
    let mut pair = Pair::new(true, 10);
    let ticket = pair.announce(None, false);
    pair.drive();
    let mut whole = header(&pair.client, &ticket, 10);
    for (index, offset) in [(0, 0), (1, 6)] {
        whole.chunk_info = Some(crate::ChunkInfo { total_chunks: 2, chunk_index: index, chunk_offset: offset });
        pair.open_with(&whole);
    }
    pair.server.chunk_finished(pair.now, ticket.key, 0, 4);
    pair.server.chunk_finished(pair.now, ticket.key, 1, 4);
    pair.drive();
    assert_eq!(pair.outcome(ticket.key), Some(Status::Failed));
    assert_eq!(pair.server_closed, None);
}

#[test]
fn a_server_that_stops_says_whether_it_cut_something_off() {
    for open in [false, true] {
        let mut pair = Pair::new(true, 10);
        let ticket = pair.announce(None, false);
        pair.drive();
        if !open {
            pair.deliver(&ticket);
        }
        pair.server.close(pair.now);
        pair.drive();
        assert_eq!(pair.server_closed, Some(if open { ErrorCode::InternalError } else { ErrorCode::NoError }));
        assert_eq!(pair.outcome(ticket.key), Some(if open { Status::Failed } else { Status::Complete }));
    }
}
