//! Scopes, barriers and digests at layer 1.

use super::*;
use crate::header_key::{HeaderKeys, refused};
use crate::session_id::SessionId;

#[test]
fn a_tree_is_gathered_from_the_leaves_up_and_its_digests_agree() {
    let mut pair = Pair::new(true, 100);
    let root = pair.announce(None, true);
    pair.deliver(&root);
    let child_scope = root.child_scope.expect("layer 1");
    assert_eq!((child_scope.scope, root.depth), (2, 0));
    let leaf = pair.announce(Some(root.key), false);
    let inner = pair.announce(Some(root.key), true);
    assert_eq!((leaf.depth, leaf.parent_id, inner.child_scope.map(|key| key.scope)), (1, 1, Some(4)));
    pair.deliver(&inner);
    let deepest = pair.announce(Some(inner.key), false);
    pair.deliver(&deepest);
    pair.client.end_children(pair.now, inner.key).expect("ended");
    pair.drive();
    assert_eq!(pair.outcome(inner.key), Some(Status::Complete));
    assert_eq!(pair.outcome(root.key), None);
    pair.client.end_children(pair.now, root.key).expect("ended");
    pair.deliver(&leaf);
    assert_eq!(pair.outcome(root.key), Some(Status::Complete));
    let digests = pair.released();
    assert_eq!(digests.iter().map(|digest| (digest.scope_id, digest.processed)).collect::<Vec<_>>(), [(4, 1), (2, 2)]);
    assert_eq!(digests[0].merkle_root, crate::merkle_root([(1, Status::Complete)]));
    assert_eq!((pair.client.open_owned(), pair.server.open_received()), (0, 0));
}

#[test]
fn a_child_that_is_not_complete_fails_its_parents() {
    let mut pair = Pair::new(true, 100);
    let root = pair.announce(None, true);
    pair.deliver(&root);
    let good = pair.announce(Some(root.key), false);
    let bad = pair.announce(Some(root.key), false);
    pair.deliver(&good);
    pair.client.fail(pair.now, bad.key, reason(ErrorCode::EntityInvalid));
    pair.client.end_children(pair.now, root.key).expect("ended");
    pair.drive();
    assert_eq!(pair.outcome(root.key), Some(Status::Failed));
    let digest = &pair.released()[0];
    assert_eq!((digest.processed, digest.succeeded, digest.failed, digest.deferred), (2, 1, 1, 0));
    assert_eq!(digest.merkle_root, crate::merkle_root([(1, Status::Complete), (2, Status::Failed)]));
}

#[test]
fn an_empty_scope_has_the_digest_of_nothing() {
    let mut pair = Pair::new(true, 100);
    let root = pair.announce(None, true);
    pair.deliver(&root);
    pair.client.end_children(pair.now, root.key).expect("ended");
    pair.drive();
    assert_eq!(pair.outcome(root.key), Some(Status::Complete));
    assert_eq!(pair.released()[0].merkle_root, crate::merkle_root([]));
}

#[test]
fn children_that_overtake_their_parents_header_wait_for_it() {
    let mut pair = Pair::new(true, 100);
    let root = pair.announce(None, true);
    let child = pair.announce(Some(root.key), false);
    pair.client.end_children(pair.now, root.key).expect("ended");
    pair.drive();
    assert_eq!(pair.open(&child, 0), Admission::Held);
    let Admission::Accepted(parent) = pair.open(&root, 0) else { panic!("not accepted") };
    assert!(parent.dehydrated);
    let admitted = pair.server_events.iter().find_map(|event| match event {
        Event::Admitted { accepted, .. } => Some(*accepted),
        _ => None,
    });
    let admitted = admitted.expect("the binding lets the child in");
    assert_eq!((admitted.key, admitted.depth, admitted.parent), (child.key, 1, Some(root.key)));
    pair.server.complete(pair.now, parent.key);
    pair.server.complete(pair.now, admitted.key);
    pair.drive();
    assert_eq!(pair.outcome(root.key), Some(Status::Complete));
}

#[test]
fn a_parent_that_fails_before_its_header_takes_its_children_with_it() {
    let mut pair = Pair::new(true, 100);
    let root = pair.announce(None, true);
    let children: Vec<_> = (0..2).map(|_| pair.announce(Some(root.key), false)).collect();
    let inner = pair.announce(Some(root.key), true);
    let deep = pair.announce(Some(inner.key), false);
    pair.client.fail(pair.now, root.key, reason(ErrorCode::InternalError));
    pair.drive();
    assert_eq!(pair.outcome(root.key), None, "its STATUS waits for the barrier");
    pair.client.end_children(pair.now, root.key).expect("ended");
    pair.drive();
    pair.client.end_children(pair.now, inner.key).expect("ended");
    pair.drive();
    for ticket in children.iter().chain([&inner, &deep, &root]) {
        assert_eq!(pair.outcome(ticket.key), Some(Status::Failed), "{:?}", ticket.key);
    }
    assert_eq!((pair.client_closed, pair.server_closed), (None, None));
    assert_eq!(pair.released().len(), 2);
}

#[test]
fn a_dehydrated_parents_failure_is_reported_at_once_and_its_status_waits() {
    let mut peer = Peer::server(true, 10);
    peer.status(Status::Pending, 0, 1).expect("pending");
    peer.status(Status::Dehydrating, 0, 1).expect("dehydrating");
    let Ok(Admission::Accepted(parent)) = peer.open(2, &parent_header(0, 1, "2")) else { panic!("not accepted") };
    peer.session.fail(peer.now, parent.key, reason(ErrorCode::IntegrityError));
    let frames = peer.received_frames();
    assert!(matches!(frames.as_slice(), [Frame::Error(error)] if error.code == 4), "{frames:?}");
    peer.status_at(Status::Pending, 2, 1, 1).expect("its children are still accepted");
    let Ok(Admission::Accepted(child)) = peer.open(6, &child_header(2, 1, 1)) else { panic!("not accepted") };
    peer.session.complete(peer.now, child.key);
    peer.barrier(2, 1, false).expect("barrier");
    let kinds: Vec<u8> = peer.received_frames().iter().map(Frame::frame_type).collect();
    assert_eq!(kinds, [0x50, 0x54, 0x55, 0x50]);
}

#[test]
fn depth_is_limited() {
    let mut pair = Pair::new(true, 100);
    let mut parent = None;
    for depth in 0..7 {
        let ticket = pair.announce(parent, true);
        assert_eq!(ticket.depth, depth);
        pair.deliver(&ticket);
        parent = Some(ticket.key);
    }
    let error = pair.client.announce(pair.now, parent, true).expect_err("too deep");
    assert_eq!(error.code(), ErrorCode::DepthExceeded);
    assert_eq!(pair.announce(parent, false).depth, 7);
}

#[test]
fn more_children_than_the_original_explains_fail_the_parent() {
    let mut pair = Pair::new(true, 5_000);
    let root = pair.announce(None, true);
    pair.drive();
    let mut head = header(&pair.client, &root, 0);
    head.metadata.insert("pipestream.original-length".to_owned(), ((1 << 20) + 1).to_string());
    let Admission::Accepted(parent) = pair.open_with(&head) else { panic!("not accepted") };
    pair.server.complete(pair.now, parent.key);
    for _ in 0..2_001 {
        let child = pair.announce(Some(root.key), false);
        pair.deliver(&child);
    }
    pair.client.end_children(pair.now, root.key).expect("ended");
    pair.drive();
    assert_eq!(pair.outcome(root.key), Some(Status::Failed));
    let (_, why) = pair.server_outcome(root.key).expect("resolved");
    assert_eq!(why.map(|why| why.code), Some(ErrorCode::EntityInvalid));
    assert_eq!(pair.released()[0].succeeded, 2_001);
}

#[test]
fn a_root_scopes_barrier_is_answered_and_ends_its_announcements() {
    let mut pair = Pair::new(true, 10);
    let ticket = pair.announce(None, false);
    pair.client.end_root(pair.now).expect("ended");
    pair.deliver(&ticket);
    let digest = &pair.released()[0];
    assert_eq!((digest.scope_id, digest.processed), (0, 1));
    assert!(pair.client.announce(pair.now, None, false).is_err());
    pair.client.close(pair.now);
    pair.drive();
    assert_eq!(pair.client_closed, Some(ErrorCode::NoError));
}

#[test]
fn an_entry_that_stays_open_for_an_hour_fails_and_the_barrier_still_comes() {
    let mut pair = Pair::new(true, 10);
    let root = pair.announce(None, true);
    pair.deliver(&root);
    let child = pair.announce(Some(root.key), false);
    pair.drive();
    pair.wait(Duration::from_secs(3_601));
    assert_eq!(pair.outcome(child.key), Some(Status::Failed));
    assert_eq!(pair.outcome(root.key), None);
    pair.client.end_children(pair.now, root.key).expect("ended");
    pair.drive();
    assert_eq!(pair.outcome(root.key), Some(Status::Failed));
    assert_eq!((pair.client_closed, pair.server_closed), (None, None));
}

#[test]
fn scopes_are_used_again_after_wrapping() {
    let mut pair = Pair::new(true, 10);
    for round in 0..32_768_u32 {
        let root = pair.announce(None, true);
        let scope = root.child_scope.expect("layer 1");
        assert_eq!(u32::from(scope.scope), 2 + 2 * (round % 32_767));
        assert_eq!(scope.scope_use, round / 32_767);
        pair.deliver(&root);
        pair.client.end_children(pair.now, root.key).expect("ended");
        pair.drive();
        assert_eq!(pair.outcome(root.key), Some(Status::Complete));
        pair.client_events.clear();
        pair.server_events.clear();
    }
}

/// Seal a header with a key that the server does not have.
fn sealed_with_unknown_key(header: &EntityHeader) -> EntityHeader {
    let keys =
        HeaderKeys::parse(&"5a".repeat(32)).expect("a key").for_session(SessionId::new([1; 16])).expect("derived");
    keys.seal(header, [0; 12]).expect("sealed")
}

#[test]
fn headers_that_are_not_opened_fail_their_entities_and_leave_the_session_as_it_is() {
    // The headers are sealed with another key, or unencrypted where a key is required. There are
    // more children than the window holds.
    for hidden in [sealed_with_unknown_key, refused] {
        let mut pair = Pair::new(true, 4);
        let root = pair.announce(None, true);
        // The header arrives before DEHYDRATING, because streams may overtake stream 0.
        let head = hidden(&header(&pair.client, &root, 0));
        assert_eq!(pair.open_with(&head), Admission::Held);
        pair.drive();
        let failing = |pair: &mut Pair, parent| {
            for _ in 0..6 {
                let child = pair.announce(Some(parent), false);
                pair.drive();
                let head = hidden(&header(&pair.client, &child, 3));
                assert!(matches!(pair.open_with(&head), Admission::Stopped(_)));
                assert_eq!(pair.outcome(child.key), Some(Status::Failed), "its window moves on");
            }
        };
        failing(&mut pair, root.key);
        let inner = pair.announce(Some(root.key), true);
        pair.drive();
        let head = hidden(&header(&pair.client, &inner, 0));
        assert!(matches!(pair.open_with(&head), Admission::Stopped(_)));
        failing(&mut pair, inner.key);
        for parent in [inner.key, root.key] {
            pair.client.end_children(pair.now, parent).expect("ended");
            pair.drive();
            assert_eq!(pair.outcome(parent), Some(Status::Failed));
        }
        assert_eq!((pair.client_closed, pair.server_closed), (None, None));
        let (_, why) = pair.server_outcome(root.key).expect("resolved");
        assert!(matches!(why.map(|why| why.code), Some(ErrorCode::IntegrityError | ErrorCode::EntityInvalid)));
        pair.client.close(pair.now);
        pair.drive();
        assert_eq!(pair.client_closed, Some(ErrorCode::NoError));
    }
}
