//! Each limit is exceeded, and only its counter changes.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use penstock_pipestream::{Checkpoint, EntityHeader, Frame, StatusFrame};
use penstock_pipestream_net::{Payload, ServerOptions, Status, channel};

use crate::raw::{RawClient, client_config, connect, eventually, header, pending, run, status};
use crate::support::{Pair, anywhere, block, draft};

fn get(pair: &Pair, path: &str) -> String {
    let mut stream = TcpStream::connect(pair.server.metrics_addr().unwrap().unwrap()).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Return the value of a line of the metrics.
fn value(pair: &Pair, series: &str) -> f64 {
    let text = get(pair, "/metrics");
    let line = text.lines().find(|line| line.rsplit_once(' ').is_some_and(|(name, _)| name == series));
    line.unwrap_or_else(|| panic!("{series} is not in\n{text}")).rsplit_once(' ').unwrap().1.parse().unwrap()
}

fn limit(pair: &Pair, name: &str) -> f64 {
    value(pair, &format!("penstock_pipestream_limit_exceeded_total{{limit=\"{name}\"}}"))
}

fn with(change: impl FnOnce(&mut ServerOptions)) -> Pair {
    Pair::with_options(|options| {
        options.metrics = Some(anywhere().into());
        change(options);
    })
}

/// Run the client, wait until a limit's counter has changed, and check that no other has.
fn drive(name: &str, change: impl FnOnce(&mut ServerOptions), client: impl AsyncFnOnce(&mut RawClient)) {
    let pair = with(change);
    run(async {
        let mut peer = RawClient::agreed(&pair).await;
        client(&mut peer).await;
        eventually(name, || limit(&pair, name) >= 1.0).await;
    });
    let text = get(&pair, "/metrics");
    let moved = text.lines().filter(|line| line.contains("limit_exceeded_total{") && !line.ends_with(" 0")).count();
    assert_eq!(moved, 1, "{text}");
}

/// Return a root entity with children in scope 2.
fn parent(entity: u32) -> EntityHeader {
    let mut header = header(entity, b"");
    header.metadata.insert("pipestream.dehydrated".into(), "1".into());
    header.metadata.insert("pipestream.child-scope".into(), "2".into());
    header
}

fn child(entity_id: u32, status: Status) -> Frame {
    let scope_id = 2;
    Frame::Status(StatusFrame { status, entity_id, scope_id, depth: 1, cursor: None, extension: None })
}

#[test]
fn limits_on_announcements_are_counted() {
    drive(
        "window",
        |options| options.session.session.capabilities.max_window_size = Some(2),
        async |peer| {
            peer.send_frames(&[pending(1), pending(2), pending(3)]).await;
        },
    );
    drive(
        "open_entities",
        |options| options.session.session.max_open_entities = 2,
        async |peer| {
            peer.send_frames(&[pending(1), pending(2), pending(3)]).await;
        },
    );
    drive(
        "scope_entities",
        |options| options.session.session.capabilities.max_entities_per_scope = Some(1),
        async |peer| {
            peer.send_frames(&[pending(1), pending(2)]).await;
        },
    );
    drive(
        "depth",
        |options| options.session.session.capabilities.max_scope_depth = Some(1),
        async |peer| {
            peer.send_frames(&[pending(1), status(1, Status::Dehydrating)]).await;
            peer.stream(&parent(1), b"").await;
            peer.send_frames(&[child(1, Status::Pending), child(1, Status::Dehydrating)]).await;
        },
    );
}

#[test]
fn limits_on_parents_and_their_children_are_counted() {
    drive(
        "children",
        |options| options.session.session.children_per_mib = 1,
        async |peer| {
            peer.send_frames(&[pending(1), status(1, Status::Dehydrating)]).await;
            peer.stream(&parent(1), b"").await;
            peer.send_frames(&[child(1, Status::Pending), child(2, Status::Pending), child(3, Status::Pending)]).await;
        },
    );
    drive(
        "children",
        |options| options.session.session.max_children = 1,
        async |peer| {
            peer.send_frames(&[pending(1), status(1, Status::Dehydrating)]).await;
            peer.stream(&parent(1), b"").await;
            peer.send_frames(&[child(1, Status::Pending), child(2, Status::Pending)]).await;
        },
    );
    drive(
        "open_parents",
        |options| options.session.session.manifest.max_entries = 1,
        async |peer| {
            peer.send_frames(&[pending(1), status(1, Status::Dehydrating), pending(2), status(2, Status::Dehydrating)])
                .await;
        },
    );
    drive(
        "parent_time",
        |options| options.session.session.manifest.max_age = Duration::from_millis(50),
        async |peer| {
            peer.send_frames(&[pending(1), status(1, Status::Dehydrating)]).await;
            peer.stream(&parent(1), b"").await;
        },
    );
}

#[test]
fn limits_on_headers_and_payloads_are_counted() {
    drive(
        "held_headers",
        |options| options.session.session.max_held_bytes = 100,
        async |peer| {
            peer.stream(&header(1, b"x"), b"x").await;
        },
    );
    drive(
        "header",
        |_| {},
        async |peer| {
            let mut stream = peer.connection.open_uni().await.unwrap();
            stream.write_all(&[0x00, 0x10, 0x00, 0x01]).await.unwrap();
            peer.expect_closed().await;
        },
    );
    drive(
        "header",
        |options| options.session.session.max_header = 1_000,
        async |peer| {
            let mut stream = peer.connection.open_uni().await.unwrap();
            stream.write_all(&[0x00, 0x00, 0x03, 0xE9]).await.unwrap();
            peer.expect_closed().await;
        },
    );
    drive(
        "metadata",
        |options| options.session.session.max_metadata = 300,
        async |peer| {
            let mut large = header(1, b"x");
            large.metadata.insert("m".into(), "m".repeat(300));
            peer.send_frames(&[pending(1)]).await;
            peer.stream(&large, b"x").await;
        },
    );
    drive(
        "payload",
        |options| options.session.session.max_payload = 10,
        async |peer| {
            peer.send_frames(&[pending(1)]).await;
            peer.stream(&header(1, &[0; 11]), &[0; 11]).await;
        },
    );
}

#[test]
fn limits_on_checkpoints_and_on_what_a_sink_keeps_are_counted() {
    let checkpoint = |timeout_ms| {
        let id = "c".to_owned();
        Frame::Checkpoint(Checkpoint {
            checkpoint_id: id,
            sequence_number: 1,
            checkpoint_entity_id: 0,
            scope_id: 0,
            flags: 0,
            timeout_ms,
        })
    };
    drive(
        "checkpoints",
        |options| options.session.session.max_open_checkpoints = 1,
        async |peer| {
            peer.send_frames(&[pending(1), checkpoint(60_000), checkpoint(60_000)]).await;
        },
    );
    drive(
        "checkpoint_time",
        |_| {},
        async |peer| {
            peer.send_frames(&[pending(1), checkpoint(10)]).await;
        },
    );
    drive(
        "checkpoint_time",
        |options| options.session.session.max_checkpoint_time = Duration::from_millis(10),
        async |peer| {
            peer.send_frames(&[pending(1), checkpoint(4_000_000_000)]).await;
        },
    );
    drive(
        "sink_headers",
        |_| {},
        async |peer| {
            // These entities are announced and never finished, and the header of each is near its
            // limit.
            for entity in 1..=72 {
                peer.send_frames(&[pending(entity)]).await;
                let mut large = header(entity, b"x");
                large.metadata.insert("m".into(), "m".repeat(1_000_000));
                let stream = peer.open(&large, b"").await;
                std::mem::forget(stream);
            }
        },
    );
}

#[test]
fn limits_on_connections_and_streams_are_counted() {
    let pair = with(|options| options.max_connections = 1);
    let session = pair.connect();
    run(async { assert!(connect(&pair, b"pipestream/1").await.is_err()) });
    assert_eq!(limit(&pair, "connections"), 1.0);
    assert_eq!(value(&pair, "penstock_pipestream_open_connections"), 1.0);
    block(session.close()).unwrap();

    drive(
        "entity_streams",
        |_| {},
        async |peer| {
            for _ in 0..256 {
                let mut stream = peer.connection.open_uni().await.unwrap();
                stream.write_all(&[0]).await.unwrap();
                std::mem::forget(stream);
            }
        },
    );

    let (consumer, _sessions) = channel(1);
    let pair = Pair::new(tempfile::tempdir().unwrap(), consumer, |options| options.metrics = Some(anywhere().into()));
    let session = pair.connect();
    for _ in 0..3 {
        block(session.send(draft("x/y"), Payload::bytes(vec![0; 2 << 20]))).unwrap();
    }
    let blocked = "penstock_pipestream_client_blocked_total{window=\"stream_bytes\"}";
    crate::support::eventually("the client says that it has to wait", || value(&pair, blocked) > 0.0);
}

#[test]
fn limits_on_time_are_counted() {
    // A client that sends nothing once the handshake is done.
    let pair = with(|options| options.session.handshake_timeout = Duration::from_secs(1));
    run(async {
        let silent = RawClient::silent(&pair).await;
        let (code, why) = silent.expect_closed().await;
        assert_eq!((code, why.as_str()), (0x02, "no CAPABILITIES within 1 s"));
    });
    assert_eq!((limit(&pair, "capabilities_time"), limit(&pair, "handshake_time")), (1.0, 0.0));

    // A client whose handshake begins and never continues: only its first datagram arrives.
    let pair = with(|options| options.session.handshake_timeout = Duration::from_millis(50));
    run(async {
        let between = tokio::net::UdpSocket::bind(anywhere()).await.unwrap();
        let endpoint = quinn::Endpoint::client(anywhere()).unwrap();
        let connecting =
            endpoint.connect_with(client_config(&pair, b"pipestream/1"), between.local_addr().unwrap(), "localhost");
        let mut datagram = [0; 2_000];
        let length = between.recv(&mut datagram).await.unwrap();
        between.send_to(&datagram[..length], pair.server.local_addr().unwrap()).await.unwrap();
        eventually("handshake_time", || limit(&pair, "handshake_time") == 1.0).await;
        drop(connecting);
    });
    assert_eq!(value(&pair, "penstock_pipestream_handshakes_failed_total"), 0.0);
    crate::support::eventually("its place is free", || value(&pair, "penstock_pipestream_open_connections") == 0.0);
}

#[test]
fn a_client_that_does_not_read_stream_0_is_counted() {
    let pair = with(|_| {});
    run(async {
        let mut peer = RawClient::agreed(&pair).await;
        // Each frame requests an answer of the same length, and in the end there is no room for
        // another answer.
        let checkpoint = Frame::Checkpoint(Checkpoint {
            checkpoint_id: "c".repeat(100_000),
            sequence_number: 1,
            checkpoint_entity_id: 0,
            scope_id: 0,
            flags: 0,
            timeout_ms: 0,
        });
        let asking = async {
            for _ in 0..1_000 {
                peer.send_frames(std::slice::from_ref(&checkpoint)).await;
            }
        };
        tokio::select! {
            () = asking => panic!("the server takes everything"),
            () = eventually("control_bytes", || limit(&pair, "control_bytes") == 1.0) => {}
        }
        assert!(value(&pair, "penstock_pipestream_control_queue_bytes") >= f64::from(4 << 20));
    });
}

#[test]
fn a_server_tells_what_it_holds_what_it_has_done_and_how_it_is() {
    let pair = with(|_| {});
    let session = pair.connect();
    let parent = block(session.send(crate::support::container(), Payload::empty())).unwrap();
    let sent = block(session.send(draft("x/y"), Payload::bytes(&b"1234"[..]))).unwrap();
    assert_eq!(block(session.wait_resolved(sent.key)).unwrap().status, Status::Complete);
    assert_eq!(value(&pair, "penstock_pipestream_open_entities"), 1.0);
    assert_eq!(value(&pair, "penstock_pipestream_manifest_entries"), 1.0);
    assert!(value(&pair, "penstock_sink_header_bytes") > 0.0);
    block(session.end_children(parent.key)).unwrap();
    block(session.close()).unwrap();
    crate::support::eventually("the connection has ended", || {
        value(&pair, "penstock_pipestream_open_connections") == 0.0
    });
    for (series, expected) in [
        ("penstock_pipestream_sessions_ended_total{code=\"PIPESTREAM_NO_ERROR\"}", 1.0),
        ("penstock_pipestream_entities_total{status=\"COMPLETE\"}", 2.0),
        ("penstock_pipestream_root_entities_total", 2.0),
        ("penstock_pipestream_payload_bytes_total", 4.0),
        ("penstock_pipestream_open_entities", 0.0),
        ("penstock_pipestream_manifest_entries", 0.0),
        ("penstock_sink_header_bytes", 0.0),
        ("penstock_sink_committed_entities_total", 2.0),
    ] {
        assert_eq!(value(&pair, series), expected, "{series}");
    }
    let commits = value(&pair, "penstock_sink_commits_total");
    assert!(commits >= 1.0 && value(&pair, "penstock_sink_commit_seconds_count") == commits);
    assert!(value(&pair, "penstock_pipestream_datagram_bytes_total{direction=\"in\"}") > 0.0);
    assert!(get(&pair, "/healthz").starts_with("HTTP/1.1 200 OK"));
    assert!(get(&pair, "/elsewhere").starts_with("HTTP/1.1 404"));
}
