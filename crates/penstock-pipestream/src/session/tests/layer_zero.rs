//! Layer 0: one level, closed by a CHECKPOINT (decision 12).

use super::*;

#[test]
fn a_checkpoint_completes_the_parents_whose_children_are_terminal() {
    let mut pair = Pair::new(false, 100);
    let root = pair.announce(None, true);
    assert_eq!(root.child_scope, None);
    pair.deliver(&root);
    let children: Vec<_> = (0..3).map(|_| pair.announce(Some(root.key), false)).collect();
    assert!(children.iter().all(|child| child.key.scope == 0 && child.parent_id == 1 && child.depth == 0));
    pair.client.end_children(pair.now, root.key).expect("ended");
    for child in &children {
        assert_eq!(pair.outcome(root.key), None);
        pair.deliver(child);
    }
    assert_eq!(pair.outcome(root.key), Some(Status::Complete));
    assert!(
        pair.client_events.iter().any(|event| matches!(event, Event::Checkpoint { satisfied: true, ours: true, .. }))
    );
    assert!(
        pair.server_events
            .iter()
            .any(|event| matches!(event, Event::Gathered { outcome: Status::Complete, digest: None, .. }))
    );
}

#[test]
fn a_failed_child_fails_its_parent() {
    let mut pair = Pair::new(false, 100);
    let root = pair.announce(None, true);
    pair.deliver(&root);
    let child = pair.announce(Some(root.key), false);
    pair.drive();
    let Admission::Accepted(accepted) = pair.open(&child, 0) else { panic!("not accepted") };
    pair.server.fail(pair.now, accepted.key, reason(ErrorCode::IntegrityError));
    pair.client.end_children(pair.now, root.key).expect("ended");
    pair.drive();
    assert_eq!(pair.outcome(root.key), Some(Status::Failed));
}

#[test]
fn a_failed_parent_does_not_wait_and_its_children_are_still_accepted() {
    let mut pair = Pair::new(false, 100);
    let root = pair.announce(None, true);
    let child = pair.announce(Some(root.key), false);
    pair.drive();
    pair.client.fail(pair.now, root.key, reason(ErrorCode::InternalError));
    pair.drive();
    assert_eq!(pair.outcome(root.key), Some(Status::Failed));
    pair.deliver(&child);
    assert_eq!(pair.outcome(child.key), Some(Status::Complete));
    pair.client.end_children(pair.now, root.key).expect("nothing is left to end");
    assert_eq!(pair.server_closed, None);
}

#[test]
fn more_children_than_the_window_fail_locally() {
    let mut pair = Pair::new(false, 4);
    let root = pair.announce(None, true);
    pair.deliver(&root);
    for _ in 0..3 {
        let child = pair.announce(Some(root.key), false);
        pair.deliver(&child);
    }
    let error = pair.client.announce(pair.now, Some(root.key), false).expect_err("the window is too small");
    assert_eq!(error.code(), ErrorCode::WindowExceeded);
    assert!(!pair.client.is_closed());
}

#[test]
fn one_level_only() {
    let mut pair = Pair::new(false, 10);
    let root = pair.announce(None, true);
    let error = pair.client.announce(pair.now, Some(root.key), true).expect_err("nested");
    assert_eq!(error.code(), ErrorCode::LayerUnsupported);
}

#[test]
fn what_belongs_to_layer_one_is_unsupported() {
    let cases: [fn(&mut Peer) -> Result<()>; 5] = [
        |peer| peer.status_at(Status::Pending, 0, 1, 1),
        |peer| peer.status(Status::Pending, 2, 1),
        |peer| peer.barrier(2, 1, false),
        |peer| peer.open(2, &plain_header(2, 1, 0)).map(drop),
        |peer| {
            peer.status(Status::Pending, 0, 1)?;
            peer.status(Status::Dehydrating, 0, 1)?;
            peer.status(Status::Pending, 0, 2)?;
            peer.status(Status::Dehydrating, 0, 2)?;
            peer.open(2, &child_header(0, 2, 1)).map(drop)
        },
    ];
    for (index, case) in cases.into_iter().enumerate() {
        let mut peer = Peer::server(false, 10);
        assert_eq!(case(&mut peer).expect_err("unsupported").code(), ErrorCode::LayerUnsupported, "case {index}");
    }
}

#[test]
fn too_many_children_fail_the_parent_at_once() {
    let mut pair = Pair::new(false, 5_000);
    let root = pair.announce(None, true);
    pair.deliver(&root);
    for _ in 0..1_001 {
        let child = pair.announce(Some(root.key), false);
        pair.deliver(&child);
        assert_eq!(pair.outcome(child.key), Some(Status::Complete));
        pair.client_events.retain(|event| matches!(event, Event::Resolved { key, .. } if *key == root.key));
    }
    assert_eq!(pair.outcome(root.key), Some(Status::Failed));
}
