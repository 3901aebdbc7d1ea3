use std::fs;
use std::time::Duration;

use penstock_pipestream_net::{Error, ErrorCode, EventLog, Payload, SessionOptions, Status};
use penstock_pipestream_sink::FolderSink;
use serde_json::Value;

use crate::raw::{self, RawClient, header, pending, run};
use crate::support::{Pair, block, container, draft, eventually, files, id, log};

#[test]
fn a_server_that_goes_down_closes_an_idle_session_at_once_and_loses_no_status() {
    let pair = Pair::with_sink();
    let session = pair.connect();
    let ticket = block(session.send(draft("x/y"), Payload::bytes(&b"x"[..]))).unwrap();
    assert_eq!(block(session.wait_resolved(ticket.key)).unwrap().status, Status::Complete);
    let open = block(session.send(container(), Payload::empty())).unwrap();
    let down = penstock_io::runtime::spawn(async move {
        pair.server.shutdown(Duration::from_secs(3_600)).await.unwrap();
        pair
    });
    block(session.end_children(open.key)).unwrap();
    assert_eq!(block(session.wait_resolved(open.key)).unwrap().status, Status::Complete);
    assert_eq!(block(session.closed()).unwrap().code, ErrorCode::NoError);
    let pair = block(down.unwrap()).unwrap();
    assert_eq!(log(&pair.sink(), &id(&session)).last().unwrap()["closed"], 0);
    let options = SessionOptions { idle_timeout: Duration::from_secs(1), ..SessionOptions::default() };
    let refused = block(pair.client.connect(pair.server.local_addr().unwrap(), "localhost", options));
    assert!(refused.is_err());
}

#[test]
fn connections_beyond_the_limit_are_refused_and_come_free_again() {
    let pair = Pair::with_options(|options| options.max_connections = 2);
    let (first, _second) = (pair.connect(), pair.connect());
    let address = pair.server.local_addr().unwrap();
    let refused = block(pair.client.connect(address, "localhost", SessionOptions::default()));
    assert!(matches!(refused, Err(Error::Local(penstock_io::Error::Tls { .. }))), "{refused:?}");
    assert_eq!(pair.server.counters().unwrap().refused, 1);
    block(first.close()).unwrap();
    eventually("a place is free", || pair.server.counters().unwrap().connections_open == 1);
    pair.connect();
}

#[test]
fn a_peer_that_sends_nothing_any_more_is_an_idle_timeout() {
    let pair = Pair::with_options(|options| options.session.idle_timeout = Duration::from_secs(1));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let peer = runtime.block_on(async {
        let mut peer = RawClient::agreed(&pair).await;
        peer.send_frames(&[pending(1)]).await;
        peer.stream(&header(1, b"x"), b"x").await;
        peer.expect_complete(1).await;
        peer
    });
    // From here on the peer's tasks do not run.
    let session = fs::read_dir(pair.sink()).unwrap().next().unwrap().unwrap().file_name().into_string().unwrap();
    assert_eq!(log(&pair.sink(), &session).last().unwrap()["closed"], 2);
    drop((peer, runtime));
}

#[test]
fn a_lost_server_ends_every_wait() {
    let pair = Pair::with_sink();
    let session = pair.connect();
    let parent = block(session.send(container(), Payload::empty())).unwrap();
    let Pair { server, .. } = pair;
    drop(server);
    assert_eq!(block(session.wait_resolved(parent.key)).unwrap().status, Status::Failed);
    assert!(matches!(block(session.wait_released(parent.child_scope.unwrap())), Err(Error::Closed(_))));
    assert!(block(session.events(10_000)).is_ok());
    block(session.closed()).unwrap();
}

#[test]
fn events_are_logged_with_the_names_of_the_interface() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("events.jsonl");
    let events = EventLog::create(&path).unwrap();
    let sink = FolderSink::open(&dir.path().join("sink"), Some(events.clone())).unwrap();
    let pair = Pair::new(dir, sink, |options| options.session.events = Some(events));
    let session = pair.connect();
    let parent = block(session.send(container(), Payload::empty())).unwrap();
    let mut part = draft("text/plain");
    part.parent = Some(parent.key);
    block(session.send(part, Payload::bytes(&b"part"[..]))).unwrap();
    block(session.end_children(parent.key)).unwrap();
    assert!(block(session.checkpoint(0, 0, None)).unwrap().satisfied);
    block(session.close()).unwrap();
    let read = || fs::read_to_string(&path).unwrap();
    eventually("the end is logged", || read().contains("\"closed\""));
    let text = read();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().all(|line| line["session"] == *id(&session) && line["time"].as_str().unwrap().ends_with('Z')));
    let of = |event: &str| lines.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
    assert_eq!((of("capabilities").len(), of("digest").len(), of("checkpoint").len()), (1, 1, 1));
    assert_eq!(of("capabilities")[0]["layers"], 1);
    assert_eq!((of("entity").len(), of("barrier").len()), (2, 2));
    let part = of("entity").into_iter().find(|line| line["scope"] != 0).unwrap().clone();
    assert_eq!((part["parent"].as_u64(), part["bytes"].as_u64()), (Some(1), Some(4)));
    assert_eq!(part["path"], format!("{}/{}/1", id(&session), part["scope"]));
    assert_eq!(lines[0]["event"], "capabilities");
    let last = lines.last().unwrap();
    assert_eq!((last["event"].as_str(), last["code"].as_u64()), (Some("closed"), Some(0)));
}

#[test]
fn a_server_cleans_up_after_one_that_crashed_but_not_after_one_that_runs() {
    let pair = Pair::with_sink();
    let crashed = pair.sink().join("00000000000000000000000000000000");
    fs::create_dir(&crashed).unwrap();
    fs::write(crashed.join("entities.jsonl"), "{\"scope\":0").unwrap();
    fs::write(crashed.join(".tmp-0.0-1.0"), "half").unwrap();
    run(async {
        let mut peer = RawClient::agreed(&pair).await;
        let payload = vec![1; 300_000];
        peer.send_frames(&[pending(1)]).await;
        let mut stream = peer.open(&header(1, &payload), &payload[..200_000]).await;
        let temporary = || files(&pair.sink()).into_iter().filter(|file| file.contains("/.tmp-")).count();
        raw::eventually("it is being received", || temporary() == 2).await;
        FolderSink::open(&pair.sink(), None).unwrap();
        assert_eq!(temporary(), 1);
        stream.write_all(&payload[200_000..]).await.unwrap();
        stream.finish().unwrap();
        peer.expect_complete(1).await;
        peer.close().await;
    });
}

#[test]
fn counters_tell_what_happened() {
    let pair = Pair::with_sink();
    let session = pair.connect();
    for size in [1_u8, 2, 3] {
        block(session.send(draft("x/y"), Payload::bytes(vec![0; size.into()]))).unwrap();
    }
    let wrong = Payload::bytes_with_sha256(vec![0; 10].into(), [0; 32]);
    block(session.send(draft("x/y"), wrong)).unwrap();
    block(session.close()).unwrap();
    let counters = pair.server.counters().unwrap();
    assert_eq!((counters.entities, counters.bytes, counters.completed, counters.failed), (3, 6, 3, 1));
    assert_eq!(counters.failures, [(ErrorCode::IntegrityError, 1)]);
}
