use penstock_pipestream::Frame;
use penstock_pipestream_net::Status;

use crate::raw::{self, RawClient, capabilities, header, pending, run, status};
use crate::support::{Pair, block, draft, eventually, files, id, log};

const LARGE: usize = 300_000;

fn session_folder(pair: &Pair) -> String {
    let mut names = std::fs::read_dir(pair.sink()).unwrap();
    names.next().unwrap().unwrap().file_name().into_string().unwrap()
}

/// Expect only the log to be left, with one FAILED line that has this reason, and the line that
/// closes it.
fn expect_one_failure(pair: &Pair, reason: &str) {
    let session = session_folder(pair);
    let lines = log(&pair.sink(), &session);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(lines[0]["status"], "FAILED");
    assert!(lines[0]["reason"].as_str().unwrap().starts_with(reason), "{lines:?}");
    assert_eq!(lines[0]["file"].as_str(), None);
    eventually("only the log stays", || files(&pair.sink()) == [format!("{session}/entities.jsonl")]);
}

/// Expect the server to continue: another client's entity arrives.
fn expect_undisturbed(pair: &Pair) {
    let session = pair.connect();
    let ticket = block(session.send(draft("text/plain"), penstock_pipestream_net::Payload::bytes(&b"x"[..]))).unwrap();
    assert_eq!(block(session.wait_resolved(ticket.key)).unwrap().status, Status::Complete);
    block(session.close()).unwrap();
    assert_eq!(log(&pair.sink(), &id(&session)).len(), 2);
}

#[test]
fn a_wrong_checksum_fails_the_entity_only() {
    for size in [5, LARGE] {
        let pair = Pair::with_sink();
        run(async {
            let mut peer = RawClient::agreed(&pair).await;
            let payload = vec![1; size];
            let mut wrong = header(1, &payload);
            wrong.checksum = vec![0; 32].into();
            peer.send_frames(&[pending(1)]).await;
            peer.stream(&wrong, &payload).await;
            peer.expect_failed(1, 0x04).await;
            peer.expect_open().await;
            peer.close().await;
        });
        expect_one_failure(&pair, "PIPESTREAM_INTEGRITY_ERROR: ");
        expect_undisturbed(&pair);
    }
}

#[test]
fn a_payload_longer_than_its_header_says_is_entity_invalid() {
    for size in [5, LARGE] {
        let pair = Pair::with_sink();
        run(async {
            let mut peer = RawClient::agreed(&pair).await;
            let payload = vec![1; size];
            peer.send_frames(&[pending(1)]).await;
            // The stream is not finished: the server must see the error without waiting for the
            // stream's end.
            let _stream = peer.open(&header(1, &payload[1..]), &payload).await;
            peer.expect_failed(1, 0x05).await;
            peer.close().await;
        });
        expect_one_failure(&pair, "PIPESTREAM_ENTITY_INVALID: ");
    }
}

#[test]
fn the_stream_of_a_failed_entity_is_stopped_with_its_code() {
    let pair = Pair::with_sink();
    run(async {
        let mut peer = RawClient::agreed(&pair).await;
        let payload = vec![1; LARGE];
        peer.send_frames(&[pending(1)]).await;
        let stream = peer.open(&header(1, &payload[1..]), &payload).await;
        assert_eq!(stream.stopped().await.unwrap().map(quinn::VarInt::into_inner), Some(0x05));
        peer.expect_failed(1, 0x05).await;
        peer.close().await;
    });
}

#[test]
fn a_payload_shorter_than_its_header_says_is_entity_invalid() {
    for size in [5, LARGE] {
        let pair = Pair::with_sink();
        run(async {
            let mut peer = RawClient::agreed(&pair).await;
            let payload = vec![1; size];
            peer.send_frames(&[pending(1)]).await;
            peer.stream(&header(1, &payload), &payload[1..]).await;
            peer.expect_failed(1, 0x05).await;
            peer.close().await;
        });
        expect_one_failure(&pair, "PIPESTREAM_ENTITY_INVALID: ");
    }
}

#[test]
fn a_payload_above_the_limit_is_too_large_before_it_is_read() {
    let pair = Pair::with_options(|options| options.session.session.max_payload = 1_000);
    run(async {
        let mut peer = RawClient::agreed(&pair).await;
        let payload = vec![1; 1_001];
        peer.send_frames(&[pending(1)]).await;
        let stream = peer.open(&header(1, &payload), &payload[..10]).await;
        peer.expect_failed(1, 0x06).await;
        assert_eq!(stream.stopped().await.unwrap().map(quinn::VarInt::into_inner), Some(0x06));
        peer.close().await;
    });
    expect_one_failure(&pair, "PIPESTREAM_ENTITY_TOO_LARGE: ");
    let lines = log(&pair.sink(), &session_folder(&pair));
    // The content of its header is known, though it was refused.
    assert_eq!(lines[0]["metadata"]["penstock.document"], "a.bin");
}

#[test]
fn an_entity_stream_before_capabilities_closes() {
    let pair = Pair::with_sink();
    run(async {
        let peer = RawClient::silent(&pair).await;
        peer.stream(&header(1, b"x"), b"x").await;
        assert_eq!(peer.expect_closed().await.0, 0x05);
    });
    expect_undisturbed(&pair);
}

#[test]
fn another_bidirectional_stream_closes() {
    let pair = Pair::with_sink();
    run(async {
        let peer = RawClient::agreed(&pair).await;
        let (mut send, _receive) = peer.connection.open_bi().await.unwrap();
        send.write_all(b"x").await.unwrap();
        assert_eq!(peer.expect_closed().await.0, 0x05);
    });
    expect_undisturbed(&pair);
}

#[test]
fn stream_0_finished_or_reset_is_control_reset() {
    for reset in [false, true] {
        let pair = Pair::with_sink();
        run(async {
            let mut peer = RawClient::agreed(&pair).await;
            if reset {
                peer.send.reset(7_u32.into()).unwrap();
            } else {
                peer.send.finish().unwrap();
            }
            assert_eq!(peer.expect_closed().await.0, 0x03);
        });
        let lines = log(&pair.sink(), &session_folder(&pair));
        assert_eq!(lines.last().unwrap()["closed"], 3);
    }
}

#[test]
fn a_second_capabilities_frame_closes() {
    let pair = Pair::with_sink();
    run(async {
        let mut peer = RawClient::agreed(&pair).await;
        peer.send_frames(&[Frame::Capabilities(capabilities())]).await;
        assert_eq!(peer.expect_closed().await.0, 0x05);
    });
}

#[test]
fn a_header_that_is_too_large_or_none_closes() {
    for (bytes, code) in [(&[0x00, 0x10, 0x00, 0x01][..], 0x06), (&[0, 0, 0, 2, 0xFF, 0xFF], 0x05), (&[0, 0], 0x05)] {
        let pair = Pair::with_sink();
        run(async {
            let peer = RawClient::agreed(&pair).await;
            let mut stream = peer.connection.open_uni().await.unwrap();
            stream.write_all(bytes).await.unwrap();
            let _ = stream.finish();
            assert_eq!(peer.expect_closed().await.0, code);
        });
        expect_undisturbed(&pair);
    }
}

#[test]
fn a_stream_reset_in_the_middle_fails_its_entity() {
    for size in [1_000, LARGE] {
        let pair = Pair::with_sink();
        run(async {
            let mut peer = RawClient::agreed(&pair).await;
            let payload = vec![1; size];
            peer.send_frames(&[pending(1), pending(2)]).await;
            let mut stream = peer.open(&header(1, &payload), &payload[..size / 2]).await;
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            stream.reset(0x01_u32.into()).unwrap();
            let (failed, _) = peer.hear_status().await;
            assert_eq!((failed.entity_id, failed.status), (1, Status::Failed));
            peer.stream(&header(2, b"next"), b"next").await;
            peer.expect_complete(2).await;
            peer.close().await;
        });
        let session = session_folder(&pair);
        assert_eq!(log(&pair.sink(), &session).len(), 3);
        assert_eq!(files(&pair.sink()), [format!("{session}/0/2"), format!("{session}/entities.jsonl")]);
    }
}

#[test]
fn a_connection_that_ends_in_the_middle_leaves_nothing_half_written() {
    let pair = Pair::with_sink();
    run(async {
        let mut peer = RawClient::agreed(&pair).await;
        let payload = vec![1; LARGE];
        peer.send_frames(&[pending(1), pending(2), pending(3)]).await;
        peer.stream(&header(1, &payload), &payload).await;
        peer.expect_complete(1).await;
        let _open = peer.open(&header(2, &payload), &payload[..LARGE / 2]).await;
        let receiving = || files(&pair.sink()).iter().any(|file| file.contains("/.tmp-"));
        raw::eventually("the second one is being received", receiving).await;
        peer.close_with(0x01).await;
    });
    let session = session_folder(&pair);
    let lines = log(&pair.sink(), &session);
    assert_eq!(lines.last().unwrap()["closed"], 1);
    let status = |entity| lines.iter().find(|line| line["entity"] == entity).unwrap()["status"].clone();
    assert_eq!((status(1), status(2), status(3)), ("COMPLETE".into(), "FAILED".into(), "FAILED".into()));
    assert_eq!(files(&pair.sink()), [format!("{session}/0/1"), format!("{session}/entities.jsonl")]);
}

#[test]
fn a_slow_sender_does_not_delay_others() {
    let pair = Pair::with_sink();
    run(async {
        let mut peer = RawClient::agreed(&pair).await;
        let payload = vec![1; LARGE];
        let mut slow = Vec::new();
        for entity in 1..=50 {
            peer.send_frames(&[pending(entity)]).await;
            slow.push(peer.open(&header(entity, &payload), &payload[..1]).await);
        }
        peer.expect_open().await;
        expect_undisturbed(&pair);
    });
}

#[test]
fn ten_thousand_announcements_without_streams_are_only_numbers() {
    let pair = Pair::with_sink();
    run(async {
        let mut peer = RawClient::agreed(&pair).await;
        let frames: Vec<_> = (1..=10_000).map(pending).collect();
        peer.send_frames(&frames).await;
        peer.stream(&header(10_000, b"last"), b"last").await;
        peer.expect_complete(10_000).await;
        peer.expect_open().await;
        peer.close().await;
    });
    expect_undisturbed(&pair);
    let sessions: Vec<_> = std::fs::read_dir(pair.sink()).unwrap().collect();
    let name = |entry: &std::io::Result<std::fs::DirEntry>| entry.as_ref().unwrap().file_name().into_string().unwrap();
    let lines: Vec<_> = sessions.iter().map(|entry| log(&pair.sink(), &name(entry)).len()).collect();
    assert_eq!(lines.iter().max(), Some(&10_001));
}

#[test]
fn streams_that_come_before_their_announcement_wait_for_it() {
    let pair = Pair::with_sink();
    run(async {
        let mut peer = RawClient::agreed(&pair).await;
        for entity in 1..=20 {
            peer.stream(&header(entity, b"early"), b"early").await;
        }
        peer.expect_open().await;
        peer.send_frames(&(1..=20).map(pending).collect::<Vec<_>>()).await;
        let mut complete = Vec::new();
        for _ in 0..20 {
            let (status, _) = peer.hear_status().await;
            assert_eq!(status.status, Status::Complete);
            complete.push(status.entity_id);
        }
        complete.sort_unstable();
        assert_eq!(complete, (1..=20).collect::<Vec<_>>());
        peer.close().await;
    });
}

#[test]
fn held_streams_do_not_keep_out_the_announcement_that_they_wait_for() {
    let pair = Pair::with_sink();
    run(async {
        let mut peer = RawClient::agreed(&pair).await;
        let payload = vec![1; 1_000_000];
        // The entities exceed the connection's window, and none of them is announced.
        for entity in 1..=50 {
            peer.stream(&header(entity, &payload), &payload).await;
        }
        peer.send_frames(&(1..=50).map(pending).collect::<Vec<_>>()).await;
        for _ in 1..=50 {
            assert_eq!(peer.hear_status().await.0.status, Status::Complete);
        }
        peer.close().await;
    });
}

#[test]
fn whichever_status_stands_file_and_line_agree_with_it() {
    let pair = Pair::with_sink();
    let mut stands = std::collections::HashMap::new();
    run(async {
        let mut peer = RawClient::agreed(&pair).await;
        for entity in 1..=300 {
            peer.send_frames(&[pending(entity)]).await;
            peer.stream(&header(entity, b"payload"), b"payload").await;
            // The owner changes its mind at any moment of what follows.
            tokio::time::sleep(std::time::Duration::from_micros(u64::from(entity % 30) * 60)).await;
            peer.send_frames(&[status(entity, Status::Failed)]).await;
        }
        while stands.len() < 300 {
            let (status, _) = peer.hear_status().await;
            stands.insert(u64::from(status.entity_id), status.status.name());
        }
        peer.close().await;
    });
    let session = session_folder(&pair);
    let mut written = std::collections::HashMap::new();
    for line in log(&pair.sink(), &session) {
        if let Some(entity) = line["entity"].as_u64() {
            written.insert(entity, (line["status"].as_str().unwrap().to_owned(), line["file"].is_string()));
        }
    }
    for (entity, stands) in &stands {
        let (status, file) = &written[entity];
        assert_eq!((status.as_str(), *file), (*stands, *stands == "COMPLETE"), "{entity}");
        assert_eq!(pair.sink().join(format!("{session}/0/{entity}")).exists(), *file, "{entity}");
    }
}
