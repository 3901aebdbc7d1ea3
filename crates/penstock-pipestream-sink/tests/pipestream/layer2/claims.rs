//! Claim checks: entities that are deferred, and callers that take them over.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_io::ReadKey;
use penstock_io::runtime::wait;
use penstock_io::tls::{ClientTls, Trust};
use penstock_pipestream_net::{
    ClaimCheck, ClaimRow, CompletionMode, DeferTypes, Error, ErrorCode, FailureAction, Misuse, Payload, SessionId,
    Status, YieldReason, channel,
};
use penstock_pipestream_sink::read::{FolderStore, ReadOptions, RemoteSink};
use penstock_pipestream_sink::{Claims, FolderSink, read_claims};

use crate::layer2::{bad, both, close, decide, dehydrate, next, options, pair, policy, send, status};
use crate::support::{Pair, block, draft, id, log};

const KEY: &str = "a key of 16 bytes or more";

#[test]
fn an_entity_that_is_set_aside_is_taken_over_once_in_another_session() {
    let (pair, sessions) = pair();
    let client = pair.connect_with(options());
    let server = block(sessions.next()).unwrap();
    let sent = send(&client, None, *b"scan");
    let check = block(next(&server).defer(bad(), None)).unwrap();
    let end = block(client.wait_resolved(sent.key)).unwrap();
    assert_eq!((end.status, end.claim), (Status::Deferred, Some(check.id)));
    let asked = block(client.claim(check.id)).unwrap();
    assert_eq!(asked, ClaimCheck { session: None, ..check.clone() });
    close(&client);
    let by = pair.connect_with(options());
    let worker = block(sessions.next()).unwrap();
    let session = check.session.unwrap();
    assert_eq!(session.to_string(), *id(&client));
    assert_eq!(block(by.redeem(check.id, session)).unwrap().status, Status::Processing);
    let refused =
        [by.redeem(check.id, session), by.redeem(check.id ^ 1, session), by.redeem(check.id, SessionId::new([1; 16]))];
    for refused in refused {
        assert_eq!(block(refused).unwrap_err().code(), Some(ErrorCode::ClaimNotFound));
    }
    assert_eq!(block(by.claim(check.id ^ 1)).unwrap_err().code(), Some(ErrorCode::ClaimNotFound));
    let mut again = draft("x/y");
    again.metadata.insert("pipestream.claim".into(), format!("{:X}", check.id | 0xF000_0000_0000_0000));
    let refused = block(by.send(again.clone(), Payload::empty()));
    assert!(matches!(&refused, Err(Error::Misuse(Misuse::ClaimMetadata { .. }))), "{refused:?}");
    again.metadata.insert("pipestream.claim".into(), format!("{:016x}", check.id));
    let again = block(by.send(again, Payload::bytes(&b"text"[..]))).unwrap();
    block(next(&worker).complete()).unwrap();
    assert_eq!(status(&by, &again), Status::Complete);
    assert_eq!(block(by.claim(check.id)).unwrap().status, Status::Complete);
    close(&by);
    let rows = pair.server.claims().unwrap();
    assert_eq!((rows.len(), rows[0].check.status), (1, Status::Complete));
    assert_eq!(rows[0].details.content_type.as_deref(), Some("x/y"));
    assert_eq!(rows[0].details.reason, "PIPESTREAM_ENTITY_INVALID: unreadable");
    let counters = pair.server.counters().unwrap();
    assert_eq!((counters.deferred, counters.failed, counters.claims), (1, 0, 1));
}

#[test]
fn the_claim_check_of_a_container_tells_of_its_children() {
    let (_pair, client, server) = both();
    let outer = dehydrate(&client, None, Some(policy(CompletionMode::BestEffort, FailureAction::Defer)));
    let inner = dehydrate(&client, Some(&outer), None);
    let parts = [send(&client, Some(&inner), *b"a"), send(&client, Some(&inner), *b"b")];
    for parent in [&inner, &outer] {
        block(client.end_children(parent.key)).unwrap();
    }
    for _ in 0..4 {
        let entity = next(&server);
        let fails = entity.key() == parts[0].key;
        decide(entity, fails);
    }
    let end = block(client.wait_resolved(inner.key)).unwrap();
    assert_eq!((end.status, status(&client, &outer)), (Status::Deferred, Status::Complete));
    let validation = block(client.claim(end.claim.unwrap())).unwrap().validation.unwrap();
    assert_eq!((validation.children_complete, validation.children_total), (Some(1), Some(2)));
    close(&client);
}

/// Return another folder with a folder's files as a crash would leave them.
fn copied(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.path().join(path.file_name().unwrap())).unwrap();
    }
    to
}

#[test]
fn what_a_session_had_redeemed_when_the_servers_process_died_has_failed() {
    let folder = tempfile::tempdir().unwrap();
    let (consumer, sessions) = channel(4);
    let pair = Pair::new(tempfile::tempdir().unwrap(), consumer, |server| {
        server.session = options();
        server.claims = Claims::open(folder.path()).unwrap();
    });
    let client = pair.connect_with(options());
    let server = block(sessions.next()).unwrap();
    let checks = ["redeemed", "open"].map(|text| {
        send(&client, None, text.as_bytes());
        block(next(&server).defer(bad(), None)).unwrap()
    });
    let worker = pair.connect_with(options());
    block(worker.redeem(checks[0].id, checks[0].session.unwrap())).unwrap();
    let left = copied(folder.path());
    let (consumer, _sessions) = channel(4);
    let pair = Pair::new(tempfile::tempdir().unwrap(), consumer, |server| {
        server.session = options();
        server.claims = Claims::open(left.path()).unwrap();
    });
    let client = pair.connect_with(options());
    let status = |check: &ClaimCheck| block(client.claim(check.id)).unwrap().status;
    assert_eq!([status(&checks[0]), status(&checks[1])], [Status::Failed, Status::Deferred]);
    block(client.redeem(checks[1].id, checks[1].session.unwrap())).unwrap();
    close(&client);
}

#[test]
fn entities_are_left_out_by_either_end() {
    let (_pair, client, server) = both();
    let theirs = send(&client, None, *b"a");
    block(next(&server).skip(bad())).unwrap();
    assert_eq!(status(&client, &theirs), Status::Skipped);
    let ours = send(&client, None, vec![1; 300_000]);
    block(client.skip(ours.key, bad())).unwrap();
    assert_eq!(status(&client, &ours), Status::Skipped);
    close(&client);
}

#[test]
fn what_has_children_or_is_below_layer_2_is_not_set_aside() {
    let (_pair, client, server) = both();
    let whole = dehydrate(&client, None, None);
    let entity = next(&server);
    assert!(matches!(entity.check_layer2(), Err(Error::Misuse(Misuse::Dehydrated))));
    block(entity.complete()).unwrap();
    block(client.end_children(whole.key)).unwrap();
    assert_eq!(status(&client, &whole), Status::Complete);
    let (pair, sessions) = pair();
    let client = pair.connect();
    let server = block(sessions.next()).unwrap();
    let sent = send(&client, None, *b"x");
    let mut entity = next(&server);
    assert!(matches!(entity.check_layer2(), Err(Error::Misuse(Misuse::NoLayer2))));
    assert!(block(entity.wait(YieldReason::AwaitingApproval, b"".as_slice().into())).is_err());
    block(entity.complete()).unwrap();
    assert_eq!(status(&client, &sent), Status::Complete);
    close(&client);
}

#[test]
fn a_sink_stores_what_is_deferred_by_its_type_and_says_so_in_its_list() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("sink");
    let sink = FolderSink::open(&folder, None).unwrap();
    let store = Arc::new(FolderStore::open(&folder).unwrap());
    let pair = Pair::new(dir, sink, |server| {
        server.session = options();
        server.claims = Claims::beside(&folder);
        server.defer_types = DeferTypes::new(["image/*".to_owned()]).unwrap();
        let options = ReadOptions::new(ReadKey::new(KEY).unwrap(), store);
        server.service = Some(options.service(Arc::clone(&server.claims)).unwrap());
    });
    assert!(read_claims(&folder).unwrap().is_empty() && !folder.join(".claims").exists());
    let client = pair.connect_with(options());
    let parent = dehydrate(&client, None, Some(policy(CompletionMode::Lenient, FailureAction::Fail)));
    let mut image = draft("image/png");
    image.parent = Some(parent.key);
    let image = block(client.send(image, Payload::bytes(&b"pixels"[..]))).unwrap();
    let text = send(&client, Some(&parent), *b"text");
    block(client.end_children(parent.key)).unwrap();
    let end = block(client.wait_resolved(image.key)).unwrap();
    assert_eq!(
        (end.status, status(&client, &text), status(&client, &parent)),
        (Status::Deferred, Status::Complete, Status::Complete)
    );
    let claim = end.claim.unwrap();
    let fresh = block(pair.server.fresh_claims()).unwrap();
    assert_eq!((fresh.len(), fresh[0].check.id, fresh[0].check.status), (1, claim, Status::Deferred));
    // An entity whose claim check was redeemed is not deferred again.
    let by = pair.connect_with(options());
    block(by.redeem(claim, fresh[0].check.session.unwrap())).unwrap();
    let mut again = draft("image/png");
    again.metadata.insert("pipestream.claim".into(), format!("{claim:016x}"));
    let again = block(by.send(again, Payload::bytes(&b"pixels"[..]))).unwrap();
    assert_eq!(status(&by, &again), Status::Complete);
    close(&by);
    assert_eq!(block(client.claim(claim)).unwrap().status, Status::Complete);
    let another = block(client.send(draft("Image/Tiff"), Payload::bytes(&b"more"[..]))).unwrap();
    let another = block(client.wait_resolved(another.key)).unwrap().claim.unwrap();
    assert_eq!(block(pair.server.fresh_claims()).unwrap()[0].check.id, another);
    for _ in 0..2 {
        block(pair.server.settle(another, Status::Failed)).unwrap();
    }
    assert_eq!(block(client.claim(another)).unwrap().status, Status::Failed);
    close(&client);
    let tls = ClientTls { trust: Trust::Fingerprint(pair.server.fingerprint().unwrap()), identity: None };
    let reader = block(RemoteSink::connect(&tls, pair.server.local_addr().unwrap(), "localhost", KEY)).unwrap();
    let rows = block(reader.claims()).unwrap();
    assert_eq!(rows, pair.server.claims().unwrap());
    assert_eq!(rows, read_claims(&folder).unwrap());
    assert_eq!(rows.iter().map(|row| row.check.status).collect::<Vec<_>>(), [Status::Complete, Status::Failed]);
    let lines = log(&pair.sink(), &id(&client));
    let line = lines.iter().find(|line| line["status"] == "DEFERRED").unwrap();
    assert_eq!(line["claim"], format!("{claim:016x}"));
    let file = line["file"].as_str().unwrap();
    assert_eq!(std::fs::read(pair.sink().join(file)).unwrap(), b"pixels");
    let details = pair.server.claims().unwrap().remove(0).details;
    assert_eq!((details.file.as_deref(), details.bytes), (Some(file), Some(6)));
}

#[test]
fn callers_that_wait_at_the_same_time_get_each_claim_check_once() {
    let pair = Pair::with_options(|server| {
        server.session = options();
        server.defer_types = DeferTypes::new(["image/*".to_owned()]).unwrap();
    });
    let client = pair.connect_with(options());
    let defer = || {
        let image = block(client.send(draft("image/png"), Payload::bytes(&b"pixels"[..]))).unwrap();
        block(client.wait_resolved(image.key)).unwrap().claim.unwrap()
    };
    let ids = |rows: &[ClaimRow]| rows.iter().map(|row| row.check.id).collect::<Vec<_>>();
    let first = defer();
    let mut both = pin!(async { tokio::try_join!(pair.server.fresh_claims(), pair.server.fresh_claims()) });
    // One caller gets the first claim check, and the other waits.
    let looked = wait(both.as_mut(), Some(Instant::now() + Duration::from_millis(50)), &mut || Ok(()));
    assert!(looked.is_err(), "both callers have got claim checks: {looked:?}");
    let second = defer();
    let (one, other) = block(both).unwrap();
    assert_eq!((ids(&one), ids(&other)), (vec![first], vec![second]));
    // A caller that gives up leaves the next claim checks to other callers.
    assert!(wait(pair.server.fresh_claims(), Some(Instant::now()), &mut || Ok(())).is_err());
    let third = defer();
    assert_eq!(ids(&block(pair.server.fresh_claims()).unwrap()), [third]);
    close(&client);
}

#[test]
fn a_part_that_is_refused_at_its_header_is_set_aside_with_what_the_header_says() {
    let pair = Pair::with_options(|server| {
        server.session = options();
        server.session.session.max_payload = 10;
    });
    let client = pair.connect_with(options());
    let parent = dehydrate(&client, None, Some(policy(CompletionMode::BestEffort, FailureAction::Defer)));
    let large = send(&client, Some(&parent), vec![1; 11]);
    block(client.end_children(parent.key)).unwrap();
    let end = block(client.wait_resolved(large.key)).unwrap();
    assert_eq!((end.status, status(&client, &parent)), (Status::Deferred, Status::Complete));
    close(&client);
    let row = pair.server.claims().unwrap().remove(0);
    assert_eq!((Some(row.check.id), row.details.content_type.as_deref()), (end.claim, Some("x/y")));
    let lines = log(&pair.sink(), &id(&client));
    let line = lines.iter().find(|line| line["status"] == "DEFERRED").unwrap();
    assert_eq!((&line["content_type"], &line["file"]), (&"x/y".into(), &serde_json::Value::Null));
}
