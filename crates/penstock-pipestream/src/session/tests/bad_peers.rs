//! Each rule that a peer can break, with the code that the decisions specify.

use super::*;

type Case = fn(&mut Peer) -> Result<()>;
type HeaderCase = (ErrorCode, fn(&mut EntityHeader));

fn expect(code: ErrorCode, rule: &str, case: impl FnOnce(&mut Peer) -> Result<()>) {
    let mut peer = Peer::server(true, 4);
    expect_at(&mut peer, code, rule, case);
}

fn expect_at(peer: &mut Peer, code: ErrorCode, rule: &str, case: impl FnOnce(&mut Peer) -> Result<()>) {
    let error = case(peer).expect_err(rule);
    assert_eq!(error.code(), code, "{rule}: {error}");
    assert!(peer.session.is_closed(), "{rule}");
    let closes = std::iter::from_fn(|| peer.session.poll_transmit(usize::MAX))
        .filter(|transmit| matches!(transmit, Transmit::Close { code: sent, .. } if *sent == code));
    assert_eq!(closes.count(), 1, "{rule}");
    assert!(matches!(drain(&mut peer.session).last(), Some(Event::Closed { .. })), "{rule}");
}

#[test]
fn nothing_comes_before_capabilities() {
    let now = start();
    let cases: [Case; 4] = [
        |peer| peer.status(Status::Pending, 0, 1),
        |peer| peer.say(&Frame::Private(0xC7)),
        |peer| peer.session.handle_stream_opened(peer.now),
        |peer| peer.checkpoint(0, 0, 0),
    ];
    for case in cases {
        let mut peer = Peer { now, session: Session::new(Role::Server, config(true, 4), now).expect("server") };
        expect_at(&mut peer, ErrorCode::EntityInvalid, "before CAPABILITIES", case);
    }
    expect(ErrorCode::EntityInvalid, "a second CAPABILITIES", |peer| {
        peer.say(&Frame::Capabilities(config(true, 4).capabilities))
    });
    let mut peer = Peer { now, session: Session::new(Role::Server, config(true, 4), now).expect("server") };
    expect_at(&mut peer, ErrorCode::LayerUnsupported, "no layer 0", |peer| {
        peer.say(&Frame::Capabilities(Capabilities { layer0: false, ..config(true, 4).capabilities }))
    });
}

#[test]
fn the_control_stream_must_stay() {
    expect(ErrorCode::ControlReset, "finished", |peer| peer.session.handle_control_end(peer.now, false));
    expect(ErrorCode::ControlReset, "reset", |peer| peer.session.handle_control_end(peer.now, true));
    expect(ErrorCode::EntityInvalid, "inside a frame", |peer| {
        peer.session.handle_control(peer.now, Bytes::from_static(&[0x50, 0x10]))?;
        peer.session.handle_control_end(peer.now, false)
    });
    expect(ErrorCode::EntityInvalid, "another bidirectional stream", |peer| {
        peer.session.handle_bidirectional(peer.now)
    });
    expect(ErrorCode::EntityInvalid, "an unknown type", |peer| {
        peer.session.handle_control(peer.now, Bytes::from_static(&[0x4F]))
    });
}

#[test]
fn ids_are_consecutive_inside_the_window_and_used_once() {
    expect(ErrorCode::EntityInvalid, "not the next", |peer| peer.status(Status::Pending, 0, 2));
    expect(ErrorCode::EntityInvalid, "used twice", |peer| {
        peer.status(Status::Pending, 0, 1)?;
        peer.status(Status::Pending, 0, 1)
    });
    expect(ErrorCode::EntityInvalid, "used twice, behind the cursor", |peer| {
        peer.status(Status::Pending, 0, 1)?;
        peer.status(Status::Failed, 0, 1)?;
        peer.status(Status::Pending, 0, 1)
    });
    for reserved in [0, 0xFFFF_FFFD, 0xFFFF_FFFE, 0xFFFF_FFFF] {
        expect(ErrorCode::EntityInvalid, "reserved", |peer| peer.status(Status::Pending, 0, reserved));
    }
    expect(ErrorCode::WindowExceeded, "outside the window", |peer| {
        for id in 1..=4 {
            peer.status(Status::Pending, 0, id)?;
        }
        peer.status(Status::Pending, 0, 5)
    });
    expect(ErrorCode::WindowExceeded, "a stream outside the window", |peer| {
        peer.open(2, &plain_header(0, 5, 0)).map(drop)
    });
    expect(ErrorCode::EntityInvalid, "a reserved ID in a header", |peer| {
        peer.open(2, &plain_header(0, 0, 0)).map(drop)
    });
}

#[test]
fn scopes_belong_to_one_end() {
    expect(ErrorCode::ScopeInvalid, "PENDING in our scope, never opened", |peer| peer.status(Status::Pending, 3, 1));
    expect(ErrorCode::ScopeInvalid, "PENDING in our root scope", |peer| peer.status(Status::Pending, 1, 1));
    expect(ErrorCode::ScopeInvalid, "an unknown scope", |peer| peer.status(Status::Failed, 6, 1));
    expect(ErrorCode::ScopeInvalid, "a header in our scope", |peer| peer.open(2, &plain_header(1, 1, 0)).map(drop));
    expect(ErrorCode::ScopeInvalid, "a scope above 65535", |peer| peer.open(2, &plain_header(65_536, 1, 0)).map(drop));
    expect(ErrorCode::ScopeInvalid, "a checkpoint of an unknown scope", |peer| peer.checkpoint(8, 0, 0));
    expect(ErrorCode::ScopeInvalid, "our scope's BARRIER S=0", |peer| peer.barrier(3, 1, false));
    expect(ErrorCode::EntityInvalid, "its own BARRIER S=1", |peer| peer.barrier(2, 1, true));
    expect(ErrorCode::EntityInvalid, "its own COMPLETE", |peer| {
        peer.status(Status::Pending, 0, 1)?;
        peer.status(Status::Complete, 0, 1)
    });
    expect(ErrorCode::EntityInvalid, "never announced", |peer| peer.status(Status::Failed, 0, 1));
    expect(ErrorCode::EntityInvalid, "PROCESSING, never announced", |peer| peer.status(Status::Processing, 0, 1));
}

fn dehydrate(peer: &mut Peer) -> Result<()> {
    peer.status(Status::Pending, 0, 1)?;
    peer.status(Status::Dehydrating, 0, 1)
}

fn dehydrate_another(peer: &mut Peer) -> Result<()> {
    peer.status(Status::Pending, 0, 2)?;
    peer.status(Status::Dehydrating, 0, 2)
}

/// No later frame can bind these scopes (decisions 10 and 14).
#[test]
fn a_scope_that_no_parent_can_have_closes_at_once() {
    let pending: Case = |peer| peer.status_at(Status::Pending, 2, 1, 1);
    let barrier: Case = |peer| peer.barrier(2, 1, false);
    let without: [(&str, Case); 4] = [
        ("nothing was announced", |_| Ok(())),
        ("the entity is not DEHYDRATING", |peer| peer.status(Status::Pending, 0, 1)),
        ("the parent has another scope", |peer| {
            dehydrate(peer)?;
            peer.open(2, &parent_header(0, 1, "4")).map(drop)
        }),
        ("the parent has ended", |peer| {
            dehydrate(peer)?;
            peer.open(2, &parent_header(0, 1, "4"))?;
            peer.session.fail(peer.now, peer_entity(1), reason(ErrorCode::IntegrityError));
            peer.barrier(4, 1, false)
        }),
    ];
    for (rule, before) in without {
        for case in [pending, barrier] {
            let mut peer = Peer::server(true, 4);
            before(&mut peer).expect(rule);
            expect_at(&mut peer, ErrorCode::ScopeInvalid, rule, case);
        }
        // A header that overtakes its PENDING is checked when the PENDING has arrived.
        let mut peer = Peer::server(true, 4);
        before(&mut peer).expect(rule);
        assert_eq!(peer.open(6, &child_header(2, 1, 1)), Ok(Admission::Held), "{rule}");
        expect_at(&mut peer, ErrorCode::ScopeInvalid, rule, pending);
    }
    expect(ErrorCode::ScopeInvalid, "a BARRIER of another entity", |peer| {
        dehydrate(peer)?;
        peer.barrier(2, 7, false)
    });
    expect(ErrorCode::ScopeInvalid, "a BARRIER of another entity, after a child", |peer| {
        dehydrate(peer)?;
        peer.status_at(Status::Pending, 2, 1, 1)?;
        peer.barrier(2, 7, false)
    });
}

fn peer_entity(entity: u32) -> EntityKey {
    EntityKey { scope: 0, scope_use: 0, entity, entity_use: 0 }
}

#[test]
fn two_scopes_for_one_parent_close_at_once() {
    let second: [(&str, Case); 4] = [
        ("PENDING", |peer| peer.status_at(Status::Pending, 4, 1, 1)),
        ("BARRIER", |peer| peer.barrier(4, 1, false)),
        ("the parent's header names the other", |peer| peer.open(2, &parent_header(0, 1, "4")).map(drop)),
        ("BARRIER, with another parent", |peer| {
            dehydrate_another(peer)?;
            peer.barrier(2, 1, false)?;
            peer.barrier(4, 1, false)
        }),
    ];
    for (rule, case) in second {
        expect(ErrorCode::ScopeInvalid, rule, |peer| {
            dehydrate(peer)?;
            peer.status_at(Status::Pending, 2, 1, 1)?;
            case(peer)
        });
    }
    expect(ErrorCode::ScopeInvalid, "three for two, once a header tells", |peer| {
        dehydrate(peer)?;
        dehydrate_another(peer)?;
        peer.status_at(Status::Pending, 2, 1, 1)?;
        peer.status_at(Status::Pending, 4, 1, 1)?;
        peer.open(2, &parent_header(0, 1, "6")).map(drop)
    });
    let mut peer = Peer::server(true, 4);
    let legal: [Case; 6] = [
        dehydrate,
        dehydrate_another,
        |peer| peer.status_at(Status::Pending, 4, 1, 1),
        |peer| peer.barrier(2, 2, false),
        |peer| peer.open(2, &parent_header(0, 1, "4")).map(drop),
        |peer| peer.open(6, &parent_header(0, 2, "2")).map(drop),
    ];
    for step in legal {
        step(&mut peer).expect("one for each");
    }
}

#[test]
fn a_parent_whose_stream_is_reset_before_its_dehydrating_came_still_has_its_scope() {
    let mut peer = Peer::server(true, 4);
    dehydrate(&mut peer).expect("fine");
    peer.status_at(Status::Pending, 2, 1, 1).expect("fine");
    let mut inner = parent_header(2, 1, "4");
    inner.parent_id = 1;
    assert_eq!(peer.open(6, &inner), Ok(Admission::Held), "its scope is not bound yet");
    peer.session.handle_stream_reset(peer.now, 6, None, 5);
    let rest: [Case; 5] = [
        |peer| peer.status_at(Status::Dehydrating, 2, 1, 1),
        |peer| peer.status_at(Status::Pending, 4, 1, 2),
        |peer| peer.barrier(4, 1, false),
        |peer| peer.barrier(2, 1, false),
        |peer| peer.open(2, &parent_header(0, 1, "2")).map(drop),
    ];
    for step in rest {
        step(&mut peer).expect("legal");
    }
    // Its header has arrived, so its children are accepted although it has failed.
    let mut leaf = child_header(4, 1, 1);
    leaf.metadata.insert("pipestream.parent-scope".to_owned(), "2".to_owned());
    let Ok(Admission::Accepted(leaf)) = peer.open(10, &leaf) else { panic!("not accepted") };
    peer.session.complete(peer.now, leaf.key);
    peer.session.complete(peer.now, peer_entity(1));
    let failed = |event: &Event| matches!(event, Event::Resolved { status: Status::Failed, .. });
    assert_eq!(drain(&mut peer.session).iter().filter(|event| failed(event)).count(), 2);
    assert_eq!(peer.session.open_received(), 0);
}

#[test]
fn a_dehydrated_entity_names_its_childrens_scope() {
    for named in ["", "x", "02", "-2", "65536", "1", "0", "3"] {
        expect(ErrorCode::ScopeInvalid, named, |peer| {
            dehydrate(peer)?;
            peer.open(2, &parent_header(0, 1, named)).map(drop)
        });
    }
    expect(ErrorCode::ScopeInvalid, "missing", |peer| {
        dehydrate(peer)?;
        peer.open(2, &plain_header(0, 1, 0)).map(drop)
    });
    expect(ErrorCode::ScopeInvalid, "two parents for one scope", |peer| {
        dehydrate(peer)?;
        peer.open(2, &parent_header(0, 1, "2"))?;
        peer.status(Status::Pending, 0, 2)?;
        peer.status(Status::Dehydrating, 0, 2)?;
        peer.open(6, &parent_header(0, 2, "2")).map(drop)
    });
    expect(ErrorCode::ScopeInvalid, "another parent in a child's header", |peer| {
        dehydrate(peer)?;
        peer.open(2, &parent_header(0, 1, "2"))?;
        peer.status_at(Status::Pending, 2, 1, 1)?;
        peer.open(6, &child_header(2, 1, 9)).map(drop)
    });
    expect(ErrorCode::ScopeInvalid, "another parent scope in a child's header", |peer| {
        dehydrate(peer)?;
        peer.open(2, &parent_header(0, 1, "2"))?;
        peer.status_at(Status::Pending, 2, 1, 1)?;
        let mut header = child_header(2, 1, 1);
        header.metadata.insert("pipestream.parent-scope".to_owned(), "4".to_owned());
        peer.open(6, &header).map(drop)
    });
    expect(ErrorCode::ScopeInvalid, "another parent in the BARRIER", |peer| {
        dehydrate(peer)?;
        peer.open(2, &parent_header(0, 1, "2"))?;
        peer.barrier(2, 7, false)
    });
    expect(ErrorCode::ScopeInvalid, "another parent in a BARRIER that came first", |peer| {
        dehydrate(peer)?;
        dehydrate_another(peer)?;
        peer.barrier(2, 2, false)?;
        peer.open(2, &parent_header(0, 1, "2")).map(drop)
    });
    expect(ErrorCode::EntityInvalid, "DEHYDRATING after a plain header", |peer| {
        peer.status(Status::Pending, 0, 1)?;
        peer.open(2, &plain_header(0, 1, 9))?;
        peer.status(Status::Dehydrating, 0, 1)
    });
}

#[test]
fn depth_is_that_of_the_scope() {
    expect(ErrorCode::EntityInvalid, "a depth in the root scope", |peer| peer.status_at(Status::Pending, 0, 1, 1));
    expect(ErrorCode::EntityInvalid, "two depths in a scope that waits", |peer| {
        dehydrate(peer)?;
        peer.status_at(Status::Pending, 2, 1, 1)?;
        peer.status_at(Status::Pending, 2, 2, 2)
    });
    for depth in [0, 2, 3, 7] {
        expect(ErrorCode::EntityInvalid, "another depth than the parent's gives, before its header", |peer| {
            dehydrate(peer)?;
            peer.status_at(Status::Pending, 2, 1, depth)
        });
        expect(ErrorCode::EntityInvalid, "another depth than the binding gives", |peer| {
            dehydrate(peer)?;
            peer.open(2, &parent_header(0, 1, "2"))?;
            peer.status_at(Status::Pending, 2, 1, depth)
        });
    }
    expect(ErrorCode::DepthExceeded, "too deep, at the DEHYDRATING", |peer| {
        dehydrate(peer)?;
        for depth in 1..=7 {
            peer.status_at(Status::Pending, u16::from(depth) * 2, 1, depth)?;
            peer.status_at(Status::Dehydrating, u16::from(depth) * 2, 1, depth)?;
        }
        Ok(())
    });
}

#[test]
fn a_barrier_ends_a_scope() {
    let closed = |peer: &mut Peer| {
        dehydrate(peer)?;
        peer.open(2, &parent_header(0, 1, "2"))?;
        peer.status_at(Status::Pending, 2, 1, 1)?;
        peer.barrier(2, 1, false)
    };
    expect(ErrorCode::EntityInvalid, "a child after the BARRIER", |peer| {
        closed(peer)?;
        peer.status_at(Status::Pending, 2, 2, 1)
    });
    expect(ErrorCode::EntityInvalid, "a child after a BARRIER that came before the binding", |peer| {
        dehydrate(peer)?;
        peer.status_at(Status::Pending, 2, 1, 1)?;
        peer.barrier(2, 1, false)?;
        peer.status_at(Status::Pending, 2, 2, 1)
    });
    expect(ErrorCode::EntityInvalid, "a second BARRIER", |peer| {
        closed(peer)?;
        peer.barrier(2, 1, false)
    });
    expect(ErrorCode::EntityInvalid, "a child after the release", |peer| {
        closed(peer)?;
        peer.status_at(Status::Failed, 2, 1, 1)?;
        peer.status_at(Status::Pending, 2, 2, 1)
    });
    let mut peer = Peer::server(true, 4);
    closed(&mut peer).expect("fine");
    peer.status_at(Status::Failed, 2, 1, 1).expect("fine");
    peer.status_at(Status::Failed, 2, 1, 1).expect("a terminal STATUS for a released scope is ignored");
    assert_eq!(
        peer.open(6, &child_header(2, 1, 1)),
        Ok(Admission::Stopped(ErrorCode::NoError)),
        "and so is a late stream"
    );
}

#[test]
fn a_second_stream_needs_chunk_info() {
    expect(ErrorCode::EntityInvalid, "a second stream", |peer| {
        peer.status(Status::Pending, 0, 1)?;
        peer.open(2, &plain_header(0, 1, 3))?;
        peer.open(6, &plain_header(0, 1, 3)).map(drop)
    });
}

#[test]
fn layer_two_was_not_negotiated() {
    for status in [Status::Retrying, Status::Skipped, Status::Abandoned] {
        expect(ErrorCode::LayerUnsupported, "status", |peer| peer.status(status, 0, 1));
    }
    for frame_type in 0xC1..=0xC5 {
        expect(ErrorCode::LayerUnsupported, "frame", |peer| peer.say(&Frame::Private(frame_type)));
    }
    let mut peer = Peer::server(true, 4);
    peer.say(&Frame::Private(0xC6)).expect("skipped");
    peer.status(Status::Checkpoint, 0, 99).expect("ignored");
    assert_eq!(peer.session.counters().skipped_frames, 1);
}

#[test]
fn only_the_entity_fails_by_a_bad_header() {
    let cases: [HeaderCase; 5] = [
        (ErrorCode::EntityInvalid, |header| header.checksum = Bytes::from_static(b"short")),
        (ErrorCode::EntityInvalid, |header| header.layer = 4),
        (ErrorCode::EntityTooLarge, |header| header.payload_length = u64::MAX),
        (ErrorCode::EntityInvalid, |header| {
            header.chunk_info = Some(crate::ChunkInfo { total_chunks: 0, chunk_index: 0, chunk_offset: 0 });
        }),
        (ErrorCode::EntityInvalid, |header| {
            header.chunk_info = Some(crate::ChunkInfo { total_chunks: 2, chunk_index: 2, chunk_offset: 0 });
        }),
    ];
    for (code, change) in cases {
        let mut peer = Peer::server(true, 4);
        peer.status(Status::Pending, 0, 1).expect("pending");
        let mut header = plain_header(0, 1, 8);
        change(&mut header);
        assert_eq!(peer.open(2, &header), Ok(Admission::Stopped(code)));
        let frames = peer.received_frames();
        assert!(
            matches!(&frames[0], Frame::Error(error) if u64::from(error.code) == code.code() && error.entity_id == 1)
        );
        assert!(
            matches!(&frames[1], Frame::Status(status) if status.status == Status::Failed && status.cursor == Some(2))
        );
        assert!(!peer.session.is_closed());
    }
}

/// Return a client with one announced entity, dehydrated if requested.
fn client(dehydrated: bool) -> (Peer, Ticket) {
    let mut peer = Peer::new(Role::Client, true, 4);
    let ticket = peer.session.announce(peer.now, None, dehydrated).expect("allowed").expect("window");
    (peer, ticket)
}

#[test]
fn a_receiver_may_not_say_more_than_it_knows() {
    let cases: [(ErrorCode, bool, Case); 9] = [
        (ErrorCode::EntityInvalid, false, |peer| peer.status(Status::Complete, 0, 2)),
        (ErrorCode::ScopeInvalid, false, |peer| peer.status(Status::Pending, 0, 1)),
        (ErrorCode::EntityInvalid, true, |peer| peer.status(Status::Complete, 0, 1)),
        (ErrorCode::ScopeInvalid, false, |peer| peer.status_at(Status::Complete, 4, 1, 1)),
        (ErrorCode::EntityInvalid, true, |peer| peer.barrier(2, 1, true)),
        (ErrorCode::ScopeInvalid, true, |peer| peer.barrier(2, 9, true)),
        (ErrorCode::ScopeInvalid, true, |peer| peer.barrier(6, 1, true)),
        (ErrorCode::EntityInvalid, true, |peer| {
            let digest = ScopeDigest {
                scope_id: 2,
                processed: 0,
                succeeded: 0,
                failed: 0,
                deferred: 0,
                merkle_root: crate::merkle_root([]),
            };
            peer.say(&Frame::ScopeDigest(digest))
        }),
        (ErrorCode::EntityInvalid, false, |peer| peer.status_at(Status::Complete, 0, 1, 3)),
    ];
    for (index, (code, dehydrated, case)) in cases.into_iter().enumerate() {
        let (mut peer, _) = client(dehydrated);
        expect_at(&mut peer, code, &format!("case {index}"), case);
    }
}

#[test]
fn a_cursor_lies_between_ours_and_the_next_id() {
    for cursor in [0, 1, 2, 3, 0xFFFF_FFFC, 0xFFFF_FFFD, 0xFFFF_FFFE, 0xFFFF_FFFF] {
        let (mut peer, _) = client(false);
        let frame = StatusFrame {
            status: Status::Processing,
            entity_id: 1,
            scope_id: 0,
            depth: 0,
            cursor: Some(cursor),
            extension: None,
        };
        let fine = cursor == 1 || cursor == 2;
        assert_eq!(peer.say(&Frame::Status(frame)).is_ok(), fine, "{cursor}");
    }
}

#[test]
fn a_digest_that_differs_closes_with_integrity_error() {
    let (mut peer, ticket) = client(true);
    peer.session.end_children(peer.now, ticket.key).expect("ended");
    let digest = ScopeDigest { scope_id: 2, processed: 1, succeeded: 1, failed: 0, deferred: 0, merkle_root: [0; 32] };
    expect_at(&mut peer, ErrorCode::IntegrityError, "digest", |peer| peer.say(&Frame::ScopeDigest(digest)));
}

#[test]
fn what_a_peer_makes_us_keep_is_bounded() {
    let now = start();
    let mut small = config(true, 1_000);
    small.max_open_entities = 10;
    small.max_open_checkpoints = 3;
    small.max_held_bytes = 4_000;
    let new = || {
        let mut peer = Peer { now, session: Session::new(Role::Server, small.clone(), now).expect("server") };
        peer.say(&Frame::Capabilities(config(true, 1_000).capabilities)).expect("capabilities");
        peer
    };
    expect_at(&mut new(), ErrorCode::WindowExceeded, "open entities", |peer| {
        (1..=11).try_for_each(|id| peer.status(Status::Pending, 0, id))
    });
    expect_at(&mut new(), ErrorCode::WindowExceeded, "checkpoints", |peer| {
        peer.status(Status::Pending, 0, 1)?;
        (0..4).try_for_each(|_| peer.checkpoint(0, 0, 0))
    });
    expect_at(&mut new(), ErrorCode::WindowExceeded, "held headers", |peer| {
        (1..=20).try_for_each(|id| peer.open(2 + u64::from(id) * 4, &plain_header(0, id, 0)).map(drop))
    });
}

/// Return a server with stricter limits, which has negotiated with a client.
fn stricter(change: impl FnOnce(&mut SessionConfig)) -> Peer {
    let now = start();
    let mut strict = config(true, 1_000);
    change(&mut strict);
    let mut peer = Peer { now, session: Session::new(Role::Server, strict, now).expect("server") };
    peer.say(&Frame::Capabilities(config(true, 1_000).capabilities)).expect("capabilities");
    peer
}

fn errors(peer: &mut Peer) -> Vec<ErrorCode> {
    let found = drain(&mut peer.session).into_iter().filter_map(|event| match event {
        Event::Error { reason, entity: Some(_), by_peer: false, .. } => Some(reason.code),
        _ => None,
    });
    found.collect()
}

#[test]
fn metadata_beyond_the_limit_fails_its_entity_and_no_other() {
    let mut peer = stricter(|strict| strict.max_metadata = 300);
    let mut large = plain_header(0, 1, 0);
    large.metadata.insert("m".to_owned(), "m".repeat(300));
    peer.status(Status::Pending, 0, 1).expect("announced");
    assert!(matches!(peer.open(2, &large), Ok(Admission::Stopped(ErrorCode::EntityTooLarge))));
    assert_eq!(errors(&mut peer), [ErrorCode::EntityTooLarge]);
    large.metadata.insert("m".to_owned(), "m".repeat(299));
    large.entity_id = 2;
    peer.status(Status::Pending, 0, 2).expect("announced");
    assert!(matches!(peer.open(6, &large), Ok(Admission::Accepted(_))));
    assert_eq!(peer.session.counters().limit(Limit::Metadata), 1);
}

#[test]
fn a_parent_beyond_those_that_may_be_open_fails_with_window_exceeded() {
    let mut peer = stricter(|strict| strict.manifest.max_entries = 1);
    for entity in [1, 2] {
        peer.status(Status::Pending, 0, entity).expect("announced");
        peer.status(Status::Dehydrating, 0, entity).expect("dehydrated");
    }
    assert_eq!(errors(&mut peer), [ErrorCode::WindowExceeded]);
    assert_eq!(peer.session.counters().limit(Limit::OpenParents), 1);
    assert!(!peer.session.is_closed());
}

#[test]
fn the_stricter_of_both_limits_on_children_counts() {
    for (max_children, per_mib, mib, allowed) in [(10, 1_000, 4, 10), (10, 2, 1, 2), (10, 3, 3, 9), (u64::MAX, 5, 0, 5)]
    {
        let peer = stricter(|strict| (strict.max_children, strict.children_per_mib) = (max_children, per_mib));
        assert_eq!(peer.session.max_children(mib.max(1)), allowed);
    }
}

#[test]
fn a_checkpoint_has_no_more_time_than_an_operator_allows() {
    let mut peer = stricter(|strict| strict.max_checkpoint_time = Duration::from_secs(2));
    peer.status(Status::Pending, 0, 1).expect("announced");
    for asked in [0, 60_000] {
        peer.checkpoint(0, 0, asked).expect("asked");
        drain(&mut peer.session);
        peer.now = later(peer.now, Duration::from_secs(2));
        peer.session.handle_timeout(peer.now);
        let late = drain(&mut peer.session);
        assert!(
            late.iter().any(|event| matches!(event, Event::Checkpoint { satisfied: false, ours: false, .. })),
            "{asked}"
        );
    }
}
