use std::fs::File;
use std::io::Write as _;
use std::time::Duration;

use penstock_pipestream_net::{EntityDraft, Error, ErrorCode, Misuse, Payload, Reason, Status};

use crate::support::{Pair, block, container, draft, eventually, files, id, log};

/// Return a file that does not compress into one page.
fn file(dir: &std::path::Path, bytes: usize) -> std::path::PathBuf {
    let path = dir.join("source");
    let mut file = File::create(&path).unwrap();
    let block: Vec<u8> = (0..1 << 20).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for _ in 0..bytes >> 20 {
        file.write_all(&block).unwrap();
    }
    path
}

#[test]
fn every_kind_of_payload_arrives() {
    let pair = Pair::with_sink();
    let session = pair.connect();
    let source = file(pair.dir.path(), 8 << 20);
    let payloads = [
        Payload::path(&source).unwrap(),
        Payload::file(File::open(&source).unwrap()).unwrap(),
        Payload::reader(File::open(&source).unwrap()).unwrap(),
        Payload::bytes(std::fs::read(&source).unwrap()),
    ];
    let keys: Vec<_> =
        payloads.into_iter().map(|payload| block(session.send(draft("x/y"), payload)).unwrap().key).collect();
    for key in keys {
        assert_eq!(block(session.wait_resolved(key)).unwrap().status, Status::Complete);
        let path = pair.sink().join(format!("{}/0/{}", id(&session), key.entity));
        assert!(std::fs::read(path).unwrap() == std::fs::read(&source).unwrap());
    }
    block(session.close()).unwrap();
}

#[test]
fn a_source_that_changes_after_it_was_hashed_fails() {
    let pair = Pair::with_sink();
    let session = pair.connect();
    let source = file(pair.dir.path(), 2 << 20);
    let changed = Payload::path(&source).unwrap();
    std::fs::write(&source, vec![7; 2 << 20]).unwrap();
    let key = block(session.send(draft("x/y"), changed)).unwrap().key;
    let resolution = block(session.wait_resolved(key)).unwrap();
    assert_eq!(resolution.reason.unwrap().code, ErrorCode::IntegrityError);
    let shorter = Payload::path(&source).unwrap();
    File::options().write(true).open(&source).unwrap().set_len(1 << 20).unwrap();
    let key = block(session.send(draft("x/y"), shorter)).unwrap().key;
    let resolution = block(session.wait_resolved(key)).unwrap();
    assert_eq!(resolution.status, Status::Failed);
    assert_eq!(block(session.close()).unwrap().code, ErrorCode::NoError);
    // The sink's job may notice the reset after the session has ended.
    eventually("nothing is left of the file", || files(&pair.sink()) == [format!("{}/entities.jsonl", id(&session))]);
}

#[test]
fn a_part_that_cannot_be_delivered_is_counted_and_has_its_reason() {
    let pair = Pair::with_sink();
    let session = pair.connect();
    let parent = block(session.send(container(), Payload::empty())).unwrap();
    let mut part = draft("x/y");
    part.parent = Some(parent.key);
    let reason = Reason { code: ErrorCode::EntityInvalid, message: "encrypted".into() };
    let child = block(session.announce_failed(part, reason)).unwrap();
    block(session.end_children(parent.key)).unwrap();
    assert_eq!(block(session.wait_resolved(child.key)).unwrap().status, Status::Failed);
    let released = block(session.wait_released(parent.child_scope.unwrap())).unwrap();
    assert_eq!((released.digest.processed, released.digest.failed), (1, 1));
    assert_eq!(block(session.wait_resolved(parent.key)).unwrap().status, Status::Failed);
    assert_eq!(block(session.close()).unwrap().code, ErrorCode::NoError);
    let lines = log(&pair.sink(), &id(&session));
    assert!(lines.iter().any(|line| line["scope"] == child.key.scope && line["status"] == "FAILED"), "{lines:?}");
}

#[test]
fn a_small_window_holds_the_sender_back_and_loses_nothing() {
    let pair = Pair::with_options(|options| options.session.session.capabilities.max_window_size = Some(4));
    let session = pair.connect();
    let items = (0..200_u32).map(|n| (draft("x/y"), Payload::bytes(n.to_be_bytes().to_vec()))).collect();
    let tickets = block(session.send_many(items));
    assert!(tickets.iter().all(Result::is_ok));
    assert_eq!(block(session.close()).unwrap().code, ErrorCode::NoError);
    assert_eq!(log(&pair.sink(), &id(&session)).len(), 201);
}

#[test]
fn a_caller_that_stops_waiting_leaves_no_entity_open() {
    let pair = Pair::with_options(|options| options.session.session.capabilities.max_window_size = Some(1));
    let session = pair.connect();
    let soon = || Some(std::time::Instant::now() + Duration::from_micros(200));
    let mut known = 0;
    for n in 0..50_u8 {
        // A container whose children are never ended: whether it was announced or not, the session
        // can be closed.
        let sent =
            penstock_io::runtime::wait(session.send(container(), Payload::bytes(vec![n])), soon(), &mut || Ok(()));
        if let Ok(Ok(ticket)) = sent {
            known += 1;
            block(session.end_children(ticket.key)).unwrap();
        }
    }
    assert_eq!(block(session.close()).unwrap().code, ErrorCode::NoError);
    let lines = log(&pair.sink(), &id(&session));
    let given_up = lines.iter().filter(|line| line["status"] == "FAILED").count();
    assert_eq!(lines.len() - given_up, known + 1, "{lines:?}");
}

#[test]
fn payloads_never_take_the_credit_that_their_announcements_need() {
    let pair = Pair::with_sink();
    let session = pair.connect();
    // All payloads together are several times as large as the connection's window.
    let payload = Payload::bytes(vec![3; 200_000]);
    for _ in 0..500 {
        block(session.send(draft("x/y"), payload.clone())).unwrap();
    }
    assert_eq!(block(session.close()).unwrap().code, ErrorCode::NoError);
    assert_eq!(pair.server.counters().unwrap().completed, 500);
}

#[test]
fn what_the_peer_would_close_for_is_refused_before_it_is_sent() {
    type Check = fn(&Misuse) -> bool;
    let pair = Pair::with_sink();
    let session = pair.connect();
    let with = |key: &str, size: usize| {
        let metadata = [(key.to_owned(), "x".repeat(size))].into();
        EntityDraft { metadata, ..draft("x/y") }
    };
    let wrong: [(EntityDraft, Check); 4] = [
        (with("pipestream.dehydrated", 1), |misuse| matches!(misuse, Misuse::ReservedMetadata { .. })),
        (with("penstock.document", 1 << 20), |misuse| matches!(misuse, Misuse::HeaderLength { .. })),
        (EntityDraft { layer: 4, ..draft("x/y") }, |misuse| *misuse == Misuse::DataLayer { layer: 4 }),
        (EntityDraft { chunk_size: Some(0), ..draft("x/y") }, |misuse| *misuse == Misuse::ChunkSize),
    ];
    for (draft, is_expected) in wrong {
        let refused = block(session.send(draft, Payload::bytes(&b"x"[..])));
        assert!(matches!(&refused, Err(Error::Misuse(misuse)) if is_expected(misuse)), "{refused:?}");
    }
    let right = [with("penstock.document", (1 << 20) - 2_000), with("pipestream.original-length", 3)];
    for draft in right {
        block(session.send(draft, Payload::bytes(&b"x"[..]))).unwrap();
    }
    assert_eq!(block(session.close()).unwrap().code, ErrorCode::NoError);
    assert_eq!(pair.server.counters().unwrap().completed, 2);
}
