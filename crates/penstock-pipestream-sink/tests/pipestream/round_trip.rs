use std::fs;

use penstock_pipestream_net::{ErrorCode, Payload, Status};

use crate::support::{Pair, block, container, draft, files, id, log};

#[test]
fn an_entity_becomes_a_file_and_a_line() {
    let pair = Pair::with_sink();
    let session = pair.connect();
    let ticket = block(session.send(draft("text/plain"), Payload::bytes(&b"hello"[..]))).unwrap();
    let resolution = block(session.wait_resolved(ticket.key)).unwrap();
    assert_eq!(resolution.status, Status::Complete);
    assert_eq!(block(session.close()).unwrap().code, ErrorCode::NoError);
    let session = id(&session);
    let lines = log(&pair.sink(), &session);
    assert_eq!(fs::read(pair.sink().join(&*session).join("0/1")).unwrap(), b"hello");
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["file"], format!("{session}/0/1"));
    assert_eq!(lines[0]["status"], "COMPLETE");
    assert_eq!(lines[0]["bytes"], 5);
    assert_eq!(lines[1]["closed"], 0);
    assert_eq!(files(&pair.sink()), [format!("{session}/0/1"), format!("{session}/entities.jsonl")]);
}

#[test]
fn a_container_is_complete_after_its_children() {
    let pair = Pair::with_sink();
    let session = pair.connect();
    let parent = block(session.send(container(), Payload::empty())).unwrap();
    let scope = parent.child_scope.unwrap();
    for n in 0..10_u8 {
        let mut child = draft("application/octet-stream");
        child.parent = Some(parent.key);
        block(session.send(child, Payload::bytes(vec![n; 10]))).unwrap();
    }
    block(session.end_children(parent.key)).unwrap();
    let released = block(session.wait_released(scope)).unwrap();
    assert_eq!((released.digest.processed, released.digest.succeeded), (10, 10));
    assert_eq!(block(session.wait_resolved(parent.key)).unwrap().status, Status::Complete);
    block(session.close()).unwrap();
    let lines = log(&pair.sink(), &id(&session));
    assert_eq!(lines.len(), 12);
    let line = lines.iter().find(|line| line["scope"] == 0).unwrap();
    assert_eq!((line["file"].as_str(), line["bytes"].as_u64()), (None, Some(0)));
    let children = || lines.iter().filter(|line| line["parent"] == 1);
    assert_eq!(children().count(), 10);
    assert!(children().all(|line| line["scope"] == scope.scope && line["status"] == "COMPLETE"));
}

#[test]
fn thousands_of_entities_arrive() {
    let pair = Pair::with_sink();
    let session = pair.connect();
    let mut sent = 0;
    for batch in 0..12_u32 {
        let items = (0..250_u32)
            .map(|n| (draft("application/octet-stream"), Payload::bytes((batch * 250 + n).to_be_bytes().repeat(256))))
            .collect();
        sent += block(session.send_many(items)).into_iter().filter(Result::is_ok).count();
    }
    assert_eq!(sent, 3_000);
    let mut complete = 0;
    while complete < 3_000 {
        let batch = block(session.resolutions(1_000)).unwrap();
        assert!(!batch.is_empty());
        complete += batch.iter().filter(|(_, resolution)| resolution.status == Status::Complete).count();
    }
    assert_eq!(block(session.close()).unwrap().code, ErrorCode::NoError);
    assert_eq!(log(&pair.sink(), &id(&session)).len(), 3_001);
    assert_eq!(files(&pair.sink()).len(), 3_001);
    assert_eq!(fs::read(pair.sink().join(&*id(&session)).join("0/2001")).unwrap(), 2_000_u32.to_be_bytes().repeat(256));
}
