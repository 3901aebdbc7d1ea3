//! Reading a sink: which sessions, which rows, in which order, from the folder and over the server's port.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use penstock_io::ReadKey;
use penstock_io::tls::{ClientTls, Trust};
use penstock_pipestream_net::{Error, Misuse, Payload, Result};
use penstock_pipestream_sink::read::{
    Batch, BatchLimits, FolderStore, Journal, Piece, PlanLimits, ReadOptions, Refiner, RemoteSink, Selection, Store,
    examine, plan, read_batch,
};

use crate::raw::{connect, run};
use crate::support::{Pair, block, container, draft, eventually, id, log};

pub(crate) const KEY: &str = "a key of 16 bytes or more";
const ALL: PlanLimits = PlanLimits { bytes: u64::MAX, rows: u64::MAX, pieces: usize::MAX };

fn line(entity: u32, status: &str, bytes: u64, file: Option<&str>) -> String {
    let (sha, file) = ("ab".repeat(32), file.map_or("null".to_owned(), |file| format!("\"{file}\"")));
    format!(
        "{{\"scope\":0,\"entity\":{entity},\"parent\":null,\"layer\":0,\"content_type\":\"text/plain\",\"bytes\":{bytes},\
         \"sha256\":\"{sha}\",\"metadata\":{{\"penstock.document\":\"d{entity}\"}},\"status\":\"{status}\",\
         \"reason\":null,\"file\":{file}}}\n"
    )
}

/// Write a session as a sink leaves it; every entity has `bytes` bytes of its own ID.
pub(crate) fn session(sink: &Path, name: &str, entities: u32, bytes: usize, last: &str) {
    fs::create_dir_all(sink.join(name).join("0")).unwrap();
    let mut list = String::new();
    for entity in 1..=entities {
        fs::write(sink.join(format!("{name}/0/{entity}")), vec![entity as u8; bytes]).unwrap();
        list += &line(entity, "COMPLETE", bytes as u64, Some(&format!("{name}/0/{entity}")));
    }
    fs::write(sink.join(name).join("entities.jsonl"), list + last).unwrap();
}

fn folder(dir: &Path) -> Arc<dyn Store> {
    Arc::new(FolderStore::open(dir).unwrap())
}

/// Return the entities and contents of pieces, read batch by batch.
fn rows(
    session: &str,
    pieces: &[Piece],
    mut read: impl FnMut(u64, u64) -> Result<Batch>,
) -> Vec<(u32, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    for piece in pieces {
        let mut start = Some(piece.start);
        while let Some(at) = start {
            let batch = read(at, piece.end).unwrap();
            let mut rest = batch.content.as_slice();
            let each = |line: penstock_pipestream_sink::read::Line<'_>, size: Option<u64>| -> Result<()> {
                found.push((line.entity, size.map(|size| rest.split_off(..size as usize).unwrap().to_vec())));
                Ok(())
            };
            batch.rows(session, each).unwrap();
            start = batch.next;
        }
    }
    found
}

fn all(store: &dyn Store, name: &str, limits: PlanLimits, batches: BatchLimits) -> Vec<(u32, Option<Vec<u8>>)> {
    let planned = plan(store, &examine(store, name).unwrap().unwrap(), 0, limits).unwrap();
    rows(name, &planned.pieces, |start, end| read_batch(store, name, start, end, batches))
}

#[test]
fn only_sessions_closed_with_0_are_read() {
    let dir = tempfile::tempdir().unwrap();
    session(dir.path(), "whole", 2, 3, "{\"closed\":0}\n");
    for (name, last) in [("open", ""), ("failed", "{\"closed\":1}\n"), ("half", "{\"closed\":0}"), ("torn", "{\"clo")] {
        session(dir.path(), name, 2, 3, last);
        assert_eq!(examine(&*folder(dir.path()), name).unwrap(), None, "{name}");
    }
    let found = examine(&*folder(dir.path()), "whole").unwrap().unwrap();
    assert_eq!((found.rows, found.bytes, found.superseded.len()), (2, 6, 0));
    let followed = Journal::new(folder(dir.path())).unwrap().follow(0, 10).unwrap();
    assert_eq!(followed.sessions.iter().map(|session| session.id.as_str()).collect::<Vec<_>>(), ["whole"]);
}

#[test]
fn pieces_and_batches_of_any_size_give_the_same_rows() {
    let dir = tempfile::tempdir().unwrap();
    session(dir.path(), "s", 50, 1000, "{\"closed\":0}\n");
    let store = folder(dir.path());
    let expected: Vec<_> = (1..=50).map(|entity| (entity, Some(vec![entity as u8; 1000]))).collect();
    for bytes in [1, 1500, 10_000, 1 << 20] {
        for batch in [1, 3000, 1 << 20] {
            let limits = BatchLimits { bytes: batch, ..BatchLimits::default() };
            assert_eq!(all(&*store, "s", PlanLimits { bytes, ..ALL }, limits), expected, "{bytes} {batch}");
        }
    }
    let by_rows = plan(&*store, &examine(&*store, "s").unwrap().unwrap(), 0, PlanLimits { rows: 7, ..ALL }).unwrap();
    assert_eq!(by_rows.pieces.iter().map(|piece| piece.rows).collect::<Vec<_>>(), [7, 7, 7, 7, 7, 7, 7, 1]);
    assert!(by_rows.pieces.iter().all(|piece| piece.bytes == piece.rows * 1000));
}

#[test]
fn a_plan_goes_on_where_the_last_one_ended() {
    let dir = tempfile::tempdir().unwrap();
    session(dir.path(), "s", 10, 10, "{\"closed\":0}\n");
    let store = folder(dir.path());
    let found = examine(&*store, "s").unwrap().unwrap();
    let (mut start, mut pieces) = (Some(0), Vec::new());
    while let Some(at) = start {
        let planned = plan(&*store, &found, at, PlanLimits { rows: 3, pieces: 1, ..ALL }).unwrap();
        assert!(planned.pieces.len() <= 1);
        pieces.extend(planned.pieces);
        start = planned.next;
    }
    assert_eq!(pieces, plan(&*store, &found, 0, PlanLimits { rows: 3, ..ALL }).unwrap().pieces);
    let end = pieces.last().unwrap().end;
    assert_eq!(plan(&*store, &found, end, ALL).unwrap().pieces, []);
}

#[test]
fn contents_are_left_out_when_they_are_too_large_or_not_wanted() {
    let dir = tempfile::tempdir().unwrap();
    session(dir.path(), "s", 3, 100, "{\"closed\":0}\n");
    let store = folder(dir.path());
    for limits in [
        BatchLimits { content: false, ..BatchLimits::default() },
        BatchLimits { max_content: 99, ..BatchLimits::default() },
    ] {
        assert_eq!(all(&*store, "s", ALL, limits), [(1, None), (2, None), (3, None)]);
    }
}

#[test]
fn commits_are_no_rows_and_a_second_line_takes_the_place_of_the_first() {
    let dir = tempfile::tempdir().unwrap();
    session(dir.path(), "s", 1, 4, "");
    let commit = line(2, "COMPLETE", 4, Some("s/0/2")).replace("text/plain", "application/vnd.penstock.commit+json");
    // Entity 3 was COMPLETE and then failed: its file is gone. ID 1 was used again and failed: its
    // first use stays.
    let list = [
        fs::read_to_string(dir.path().join("s/entities.jsonl")).unwrap(),
        commit,
        line(3, "COMPLETE", 4, Some("s/0/3")),
        line(4, "FAILED", 0, None),
        line(3, "FAILED", 4, None),
        line(1, "FAILED", 4, None),
        "{\"closed\":0}\n".to_owned(),
    ];
    fs::write(dir.path().join("s/entities.jsonl"), list.concat()).unwrap();
    fs::write(dir.path().join("s/0/2"), "{}  ").unwrap();
    let store = folder(dir.path());
    let found = examine(&*store, "s").unwrap().unwrap();
    assert_eq!((found.rows, found.bytes, found.superseded.len()), (4, 4, 1));
    let read = all(&*store, "s", ALL, BatchLimits::default());
    assert_eq!(read, [(1, Some(vec![1; 4])), (4, None), (3, None), (1, None)]);
}

#[test]
fn a_line_is_replaced_only_by_a_later_line_of_the_same_use_of_the_ids() {
    let dir = tempfile::tempdir().unwrap();
    session(dir.path(), "s", 0, 0, "");
    let list = [
        line(1, "COMPLETE", 0, None),
        line(1, "FAILED", 0, None).replace("\"entity\":1", "\"entity\":1,\"entity_use\":1"),
        line(2, "COMPLETE", 0, None),
        line(2, "FAILED", 0, None).replace("\"scope\":0", "\"scope\":0,\"scope_use\":1"),
        line(3, "FAILED", 0, None),
        line(3, "COMPLETE", 0, None),
        line(4, "COMPLETE", 0, None),
        line(4, "FAILED", 0, None),
        "{\"closed\":0}\n".to_owned(),
    ];
    fs::write(dir.path().join("s/entities.jsonl"), list.concat()).unwrap();
    let store = folder(dir.path());
    let found = examine(&*store, "s").unwrap().unwrap();
    // Only the fourth entity's first line is replaced.
    assert_eq!((found.rows, found.superseded), (7, vec![list[..6].concat().len() as u64]));
}

#[test]
fn rows_are_chosen_by_document_and_by_name() {
    let dir = tempfile::tempdir().unwrap();
    session(dir.path(), "s", 6, 4, "{\"closed\":0}\n");
    let store = folder(dir.path());
    let pieces = plan(&*store, &examine(&*store, "s").unwrap().unwrap(), 0, ALL).unwrap().pieces;
    let set = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<HashSet<_>>());
    for (selection, expected) in [
        (Selection { documents: set(&["d2", "d3", "d6"]), names: None }, vec![2, 3, 6]),
        (Selection { documents: None, names: set(&["s/0/1", "s/0/5", "other/0/6"]) }, vec![1, 5]),
        (Selection { documents: set(&["d2"]), names: set(&["s/0/1"]) }, vec![]),
    ] {
        let mut refiner = Refiner::new("s", &selection, ALL);
        for piece in &pieces {
            refiner
                .take(
                    piece.start,
                    &read_batch(&*store, "s", piece.start, piece.end, BatchLimits::default()).unwrap().lines,
                )
                .unwrap();
        }
        let chosen = refiner.finish();
        let read = rows("s", &chosen, |start, end| read_batch(&*store, "s", start, end, BatchLimits::default()));
        assert_eq!(read.into_iter().map(|(entity, _)| entity).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn the_journal_keeps_its_order_whoever_writes_it() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (Journal::new(folder(dir.path())).unwrap(), Journal::new(folder(dir.path())).unwrap());
    assert_eq!(one.follow(0, 10).unwrap().length, 0);
    let mut expected = Vec::new();
    for (number, name) in ["m", "z", "a", "k"].into_iter().enumerate() {
        session(dir.path(), name, 1, 1, "{\"closed\":0}\n");
        expected.push(name.to_owned());
        let writer = if number % 2 == 0 { &one } else { &two };
        assert_eq!(writer.follow(0, 0).unwrap().length, number as u64 + 1);
    }
    let ids = |journal: &Journal, after| -> Vec<String> {
        journal.follow(after, 10).unwrap().sessions.into_iter().map(|session| session.id).collect()
    };
    let third = Journal::new(folder(dir.path())).unwrap();
    for journal in [&one, &two, &third] {
        assert_eq!(ids(journal, 0), expected);
        assert_eq!(ids(journal, 3), expected[3..]);
        assert_eq!(ids(journal, 9), [""; 0]);
        assert_eq!(journal.follow(0, 1).unwrap().journal, one.follow(0, 1).unwrap().journal);
    }
    // An incomplete line, whose writer crashed, was not reported to any reader.
    let file = dir.path().join("closed.jsonl");
    let whole = fs::read_to_string(&file).unwrap();
    fs::write(&file, whole.clone() + "{\"session\":\"xx").unwrap();
    session(dir.path(), "b", 1, 1, "{\"closed\":0}\n");
    expected.push("b".into());
    assert_eq!(ids(&one, 0), expected);
    assert!(fs::read_to_string(&file).unwrap().starts_with(&whole));
    assert_eq!(ids(&Journal::new(folder(dir.path())).unwrap(), 0), expected);
}

#[test]
fn a_list_that_is_broken_does_not_keep_others_from_being_followed() {
    let dir = tempfile::tempdir().unwrap();
    session(dir.path(), "good", 1, 1, "{\"closed\":0}\n");
    session(dir.path(), "bad", 1, 1, "no JSON\n{\"closed\":0}\n");
    let journal = Journal::new(folder(dir.path())).unwrap();
    assert_eq!(journal.follow(0, 10).unwrap().length, 1);
    assert!(examine(&*folder(dir.path()), "bad").is_err());
}

#[test]
fn nothing_outside_of_the_sink_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let sink = dir.path().join("sink");
    session(&sink, "s", 0, 0, "");
    fs::write(dir.path().join("secret"), "secret").unwrap();
    fs::create_dir_all(dir.path().join("elsewhere/0")).unwrap();
    fs::write(dir.path().join("elsewhere/0/1"), "secret").unwrap();
    std::os::unix::fs::symlink(dir.path().join("secret"), sink.join("s/0/1")).unwrap();
    std::os::unix::fs::symlink(dir.path().join("elsewhere"), sink.join("link")).unwrap();
    for file in ["../secret/1/1", "s/0/../../../secret", "/etc/passwd", "s/0/1", "link/0/1", "s/0/2"] {
        fs::write(sink.join("s/entities.jsonl"), line(1, "COMPLETE", 6, Some(file)) + "{\"closed\":0}\n").unwrap();
        let store = folder(&sink);
        let found = examine(&*store, "s").unwrap().unwrap();
        let piece = plan(&*store, &found, 0, ALL).unwrap().pieces[0];
        let read = read_batch(&*store, "s", piece.start, piece.end, BatchLimits::default());
        assert!(matches!(read, Err(Error::Local(penstock_io::Error::Io { .. }))), "{file}: {read:?}");
    }
    for name in ["..", "../elsewhere", "s/0", "", "link/../s"] {
        assert!(examine(&*folder(&sink), name).is_err(), "{name}");
    }
}

#[test]
fn a_payload_that_is_too_short_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    session(dir.path(), "s", 2, 10, "{\"closed\":0}\n");
    fs::write(dir.path().join("s/0/2"), "short").unwrap();
    let store = folder(dir.path());
    let piece = plan(&*store, &examine(&*store, "s").unwrap().unwrap(), 0, ALL).unwrap().pieces[0];
    let read = read_batch(&*store, "s", piece.start, piece.end, BatchLimits::default());
    assert!(matches!(
        &read,
        Err(Error::Local(penstock_io::Error::Io { source, .. })) if source.to_string().contains("5 bytes fewer")
    ));
}

pub(crate) fn readable() -> Pair {
    readable_by(|_| {})
}

fn readable_by(change: impl FnOnce(&mut ReadOptions)) -> Pair {
    let dir = tempfile::tempdir().unwrap();
    let sink = dir.path().join("sink");
    fs::create_dir(&sink).unwrap();
    let mut reading = ReadOptions::new(ReadKey::new(KEY).unwrap(), folder(&sink));
    change(&mut reading);
    let consumer = penstock_pipestream_sink::FolderSink::open(&sink, None).unwrap();
    Pair::new(dir, consumer, |options| options.service = Some(reading.service(Arc::clone(&options.claims)).unwrap()))
}

pub(crate) fn open(pair: &Pair, key: &str) -> Result<RemoteSink> {
    let tls = ClientTls { trust: Trust::Fingerprint(pair.server.fingerprint().unwrap()), identity: None };
    block(RemoteSink::connect(&tls, pair.server.local_addr().unwrap(), "localhost", key))
}

#[test]
fn a_server_sends_its_closed_sessions_to_a_reader_with_the_key() {
    let pair = readable();
    let (done, going) = (pair.connect(), pair.connect());
    let payloads = [vec![1; 10], vec![2; 70_000], vec![3; 5_000_000], vec![]];
    for payload in &payloads {
        let ticket = block(done.send(draft("text/plain"), Payload::bytes(payload.clone()))).unwrap();
        block(done.wait_resolved(ticket.key)).unwrap();
    }
    let parent = block(going.send(container(), Payload::bytes(vec![]))).unwrap();
    block(done.close()).unwrap();
    log(&pair.sink(), &id(&done));
    let remote = open(&pair, KEY).unwrap();
    let followed = block(remote.sessions(0, 10)).unwrap();
    assert_eq!(followed.sessions.iter().map(|session| &*session.id).collect::<Vec<_>>(), [&*id(&done)]);
    assert_eq!((followed.sessions[0].rows, followed.sessions[0].bytes), (4, 5_070_010));
    let planned = block(remote.plan(&id(&done), 0, PlanLimits { bytes: 100_000, ..ALL })).unwrap();
    assert!(planned.pieces.len() > 1 && planned.next.is_none());
    let read = rows(&id(&done), &planned.pieces, |start, end| {
        block(remote.batch(&id(&done), start, end, BatchLimits::default()))
    });
    assert_eq!(read.into_iter().map(|(_, content)| content.unwrap()).collect::<Vec<_>>(), payloads);
    // No request can read any part of a session that is still open.
    let refused = block(remote.plan(&id(&going), 0, ALL)).unwrap_err();
    assert!(
        matches!(
            &refused,
            Error::Local(penstock_io::Error::Io { source, .. }) if source.to_string().contains("there is no closed session")
        ),
        "{refused:?}"
    );
    for (name, start, end) in [(&*id(&going), 0, 1), ("../sink", 0, 1), (&*id(&done), 1, 50)] {
        assert!(block(remote.batch(name, start, end, BatchLimits::default())).is_err(), "{name} {start} {end}");
    }
    assert_eq!(block(remote.sessions(0, 10)).unwrap().length, 1, "the connection goes on");
    block(going.end_children(parent.key)).unwrap();
    block(going.close()).unwrap();
    eventually("the other session is there, too", || block(remote.sessions(1, 10)).unwrap().sessions.len() == 1);
}

#[test]
fn a_reader_without_the_key_is_refused() {
    let pair = readable();
    for key in ["another key of 16 bytes or more", "", &KEY[1..]] {
        let refused = open(&pair, key).unwrap_err();
        assert!(
            matches!(&refused, Error::Misuse(Misuse::ReadKey { reason, .. }) if reason == "the read key is wrong"),
            "{refused:?}"
        );
    }
    open(&pair, KEY).unwrap();
    let pair = Pair::with_sink();
    let refused = open(&pair, KEY).unwrap_err();
    let Error::Local(penstock_io::Error::Tls { source: Some(source), .. }) = &refused else { panic!("{refused:?}") };
    // RFC 9001, section 4.8: the alert "no_application_protocol".
    let is_alert = |close: &quinn::ConnectionClose| u64::from(close.error_code) == 0x178;
    assert!(
        matches!(source.downcast_ref(), Some(quinn::ConnectionError::ConnectionClosed(close)) if is_alert(close)),
        "{refused:?}"
    );
}

/// Send one raw request on a separate stream, which [`RemoteSink`] would not send.
async fn ask(connection: &quinn::Connection, request: &[u8]) -> std::result::Result<Vec<u8>, quinn::ReadToEndError> {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let _ = send.write_all(request).await;
    let _ = send.finish();
    receive.read_to_end(1 << 20).await
}

fn hello() -> Vec<u8> {
    format!("{{\"request\":\"hello\",\"key\":\"{KEY}\"}}").into_bytes()
}

#[test]
fn a_request_before_the_key_is_refused() {
    let pair = readable();
    for first in [&b"{\"request\":\"sessions\",\"after\":0,\"max\":1}"[..], b"", b"{", b"\xFF\x00", &[b'x'; 100_000]] {
        run(async {
            let (_endpoint, connection) = connect(&pair, b"penstock-sink/1").await.unwrap();
            assert!(ask(&connection, first).await.is_err());
            let quinn::ConnectionError::ApplicationClosed(close) = connection.closed().await else {
                panic!("not closed")
            };
            assert_eq!((u64::from(close.error_code), &close.reason[..]), (2, &b"the read key is wrong"[..]));
        });
    }
}

#[test]
fn requests_that_make_no_sense_are_refused_and_the_connection_goes_on() {
    let pair = readable();
    session(&pair.sink(), "s", 2, 10, "{\"closed\":0}\n");
    let wrong: [(&[u8], &str); 7] = [
        (b"{", "no request"),
        (b"{\"request\":\"remove\",\"session\":\"s\"}", "no request"),
        (b"{\"request\":\"sessions\",\"after\":-1,\"max\":1}", "no request"),
        (&[b' '; 70_000], "at most 65536 bytes"),
        (b"{\"request\":\"plan\",\"session\":\"../s\",\"start\":0,\"octets\":1,\"rows\":1,\"pieces\":1}", "no closed session"),
        (
            b"{\"request\":\"rows\",\"session\":\"s\",\"start\":5,\"end\":99,\"octets\":1,\"rows\":1,\"content\":true,\"max_content\":9}",
            "cannot be read",
        ),
        (
            b"{\"request\":\"rows\",\"session\":\"s\",\"start\":0,\"end\":99999,\"octets\":9999,\"rows\":9,\"content\":true,\"max_content\":9}",
            "cannot be read",
        ),
    ];
    run(async {
        let (_endpoint, connection) = connect(&pair, b"penstock-sink/1").await.unwrap();
        assert_eq!(ask(&connection, &hello()).await.unwrap(), b"\0{\"version\":1}");
        for (request, why) in wrong {
            let answer = ask(&connection, request).await.unwrap();
            let said = String::from_utf8_lossy(&answer[1..]).into_owned();
            assert!(answer[0] == 1 && said.contains(why), "{said}");
        }
        let answer = ask(&connection, b"{\"request\":\"sessions\",\"after\":0,\"max\":1}").await.unwrap();
        assert_eq!(answer[0], 0);
    });
}

/// Create a session of 32 MiB, and return a request for it.
fn large_request(pair: &Pair) -> String {
    session(&pair.sink(), "s", 8, 4 << 20, "{\"closed\":0}\n");
    let end = fs::metadata(pair.sink().join("s/entities.jsonl")).unwrap().len() - 13;
    format!(
        "{{\"request\":\"rows\",\"session\":\"s\",\"start\":0,\"end\":{end},\"octets\":67108864,\"rows\":9,\"content\":true,\
         \"max_content\":99999999}}"
    )
}

#[test]
fn a_reader_that_takes_nothing_is_cut_off_and_may_ask_again() {
    let pair = readable_by(|reading| reading.write_timeout = Duration::from_millis(300));
    let request = large_request(&pair);
    run(async {
        let (_endpoint, connection) = connect(&pair, b"penstock-sink/1").await.unwrap();
        ask(&connection, &hello()).await.unwrap();
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        send.write_all(request.as_bytes()).await.unwrap();
        send.finish().unwrap();
        // CODE_SLOW.
        assert_eq!(receive.received_reset().await.unwrap(), Some(3_u32.into()));
        let answer = ask(&connection, b"{\"request\":\"sessions\",\"after\":0,\"max\":1}").await.unwrap();
        assert!(answer[0] == 0 && String::from_utf8_lossy(&answer).contains("\"session\":\"s\""));
    });
}

#[test]
fn a_reader_that_does_not_read_does_not_delay_other_readers() {
    let pair = readable();
    let request = large_request(&pair);
    run(async {
        let (_endpoint, idle) = connect(&pair, b"penstock-sink/1").await.unwrap();
        ask(&idle, &hello()).await.unwrap();
        let mut unread = Vec::new();
        for _ in 0..3 {
            let (mut send, receive) = idle.open_bi().await.unwrap();
            send.write_all(request.as_bytes()).await.unwrap();
            send.finish().unwrap();
            unread.push(receive);
        }
        let (_endpoint, busy) = connect(&pair, b"penstock-sink/1").await.unwrap();
        ask(&busy, &hello()).await.unwrap();
        let (mut send, mut receive) = busy.open_bi().await.unwrap();
        send.write_all(request.as_bytes()).await.unwrap();
        send.finish().unwrap();
        assert!(receive.read_to_end(64 << 20).await.unwrap().len() > 32 << 20);
    });
    // The slow reader does not block the sink either.
    let session = pair.connect();
    let ticket = block(session.send(draft("text/plain"), Payload::bytes(vec![1; 100_000]))).unwrap();
    assert_eq!(block(session.wait_resolved(ticket.key)).unwrap().status, penstock_pipestream::Status::Complete);
    block(session.close()).unwrap();
}
