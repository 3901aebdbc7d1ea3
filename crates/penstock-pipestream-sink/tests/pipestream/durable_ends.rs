//! The ends of sessions that survive their process: if either process dies while a session is being
//! closed, the list is correct. Also the remains of a process that dies while it writes a record.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use penstock_pipestream_net::{EntityDraft, ErrorCode, Payload, ScopeKey, SentEntity, SessionHandle, Status};

use crate::durable::{Home, part, whole};
use crate::logged::segments;
use crate::state::wait_until_free;
use crate::support::{PATIENCE, block, draft, eventually, log};

const ROOT: ScopeKey = ScopeKey { scope: 0, scope_use: 0 };
/// The number of parts of the whole.
const PARTS: usize = 5;

/// Send the whole, and check that all of it is COMPLETE.
fn deliver(client: &SessionHandle) -> SentEntity {
    let parent = block(client.send(whole(), Payload::empty())).unwrap();
    for number in 0..PARTS {
        let (draft, payload) = part(&parent, number);
        block(client.send(draft, payload)).unwrap();
    }
    block(client.end_children(parent.key)).unwrap();
    assert_eq!(block(client.wait_resolved(parent.key)).unwrap().status, Status::Complete);
    parent
}

fn list(home: &Home, session: &str) -> PathBuf {
    home.sink().join(session).join("entities.jsonl")
}

fn lines(home: &Home, session: &str) -> Vec<String> {
    fs::read_to_string(list(home, session)).unwrap().lines().map(str::to_owned).collect()
}

/// Check that the list has one line for each entity, and one last line.
fn check_closed_in_order(home: &Home, session: &str) {
    let lines = lines(home, session);
    assert_eq!(lines.len(), PARTS + 2, "{lines:?}");
    assert_eq!(lines.last().unwrap(), "{\"closed\":0}");
    assert_eq!(lines.iter().filter(|line| line.contains("closed\":")).count(), 1, "{lines:?}");
}

#[test]
fn a_server_that_never_hears_of_the_close_has_the_list_closed_before() {
    let mut home = Home::new(Duration::from_millis(200));
    let client = home.connect_with_state();
    let session = client.id().unwrap().to_string();
    deliver(&client);
    block(client.end_root()).unwrap();
    let released = block(client.wait_released(ROOT)).unwrap();
    assert_eq!((released.parent, released.digest.succeeded), (None, 1));
    // A client that sees its root scope released may exit: nothing else has to be confirmed.
    check_closed_in_order(&home, &session);
    home.server = None;
    drop(client);
    home.start();
    eventually("the folder of a session that has ended is there", || home.sessions() == 0);
    check_closed_in_order(&home, &session);
}

#[test]
fn a_list_that_its_server_could_not_close_is_closed_at_the_next_start() {
    let mut home = Home::new(PATIENCE);
    let client = home.connect_with_state();
    let session = client.id().unwrap().to_string();
    deliver(&client);
    block(client.end_root()).unwrap();
    block(client.wait_released(ROOT)).unwrap();
    home.server = None;
    // The server was killed between writing the record and the line, of which the list has only
    // half.
    eventually("the sink is open", || fs::File::open(list(&home, &session)).unwrap().try_lock().is_ok());
    let text = fs::read_to_string(list(&home, &session)).unwrap();
    fs::write(list(&home, &session), text.strip_suffix("osed\":0}\n").unwrap()).unwrap();
    home.start();
    // The list is closed immediately, before any client has returned.
    assert_eq!(home.sessions(), 1);
    check_closed_in_order(&home, &session);
    // Its client still finds it, and closes it.
    assert_eq!(block(client.close()).unwrap().code, ErrorCode::NoError);
    eventually("the folder of a session that has ended is there", || home.sessions() == 0);
    check_closed_in_order(&home, &session);
}

#[test]
fn a_client_that_dies_while_it_closes_reports_that_after_its_restart() {
    let home = Home::new(PATIENCE);
    let client = home.connect_with_state();
    let session = client.id().unwrap();
    let parent = deliver(&client);
    assert!(!client.closing().unwrap());
    block(client.end_root()).unwrap();
    block(client.wait_released(ROOT)).unwrap();
    drop(client);

    let client = home.connect_with_state();
    assert_eq!((client.resumed().unwrap(), client.closing().unwrap()), (true, true));
    assert_eq!(client.id().unwrap(), session);
    // The announced entity is found by its label, with its outcome.
    assert_eq!(block(client.send(whole(), Payload::empty())).unwrap().key, parent.key);
    assert_eq!(block(client.wait_resolved(parent.key)).unwrap().status, Status::Complete);
    block(client.end_root()).unwrap();
    assert_eq!(block(client.wait_released(ROOT)).unwrap().digest.succeeded, 1);
    let fresh = EntityDraft { label: Bytes::from_static(b"new"), ..draft("x/y") };
    assert!(block(client.send(fresh, Payload::empty())).is_err());
    assert_eq!(block(client.close()).unwrap().code, ErrorCode::NoError);
    check_closed_in_order(&home, &session);
    assert!(!home.connect_with_state().resumed().unwrap());
}

#[test]
fn a_close_waits_for_a_server_that_is_started_again() {
    let mut home = Home::new(PATIENCE);
    let client = home.connect_with_state();
    let session = client.id().unwrap().to_string();
    deliver(&client);
    home.server = None;
    let closing = std::thread::spawn(move || block(client.close()).unwrap());
    home.start();
    assert_eq!(closing.join().unwrap().code, ErrorCode::NoError);
    check_closed_in_order(&home, &session);
    eventually("the folder of a session that has ended is there", || home.sessions() == 0);
}

#[test]
fn a_session_ends_in_order_only_if_its_client_has_closed_it() {
    let mut home = Home::new(Duration::from_millis(200));
    let client = home.connect_with_state();
    let session = client.id().unwrap().to_string();
    // All entities are terminal, but the client may have planned more.
    deliver(&client);
    home.server = None;
    drop(client);
    home.start();
    eventually("the folder of a session that has ended is there", || home.sessions() == 0);
    let lines = log(&home.sink(), &session);
    assert_eq!(lines.last().unwrap()["closed"], ErrorCode::IdleTimeout.code());
}

#[test]
fn what_the_next_process_does_not_send_again_has_failed() {
    let mut home = Home::new(PATIENCE);
    let client = home.connect_with_state();
    let session = client.id().unwrap().to_string();
    let parent = block(client.send(whole(), Payload::empty())).unwrap();
    let (first, bytes) = part(&parent, 1);
    let first = block(client.send(first, bytes)).unwrap();
    assert_eq!(block(client.wait_resolved(first.key)).unwrap().status, Status::Complete);
    // No server is running to receive these.
    home.server = None;
    let sent: Vec<SentEntity> = (2..5)
        .map(|number| {
            let (draft, payload) = part(&parent, number);
            block(client.send(draft, payload)).unwrap()
        })
        .collect();
    drop(client);
    home.start();

    // The next process has lost all sources but one.
    let client = home.connect_with_state();
    let (again, bytes) = part(&parent, 3);
    assert_eq!(block(client.send(again, bytes)).unwrap().key, sent[1].key);
    assert_eq!(block(client.wait_resolved(sent[1].key)).unwrap().status, Status::Complete);
    assert_eq!(block(client.close()).unwrap().code, ErrorCode::NoError);
    let lines = log(&home.sink(), &session);
    assert_eq!(lines.last().unwrap()["closed"], 0);
    let status = |key: u32, scope: u16| {
        let of = |line: &&serde_json::Value| line["entity"] == key && line["scope"] == scope;
        lines.iter().find(of).unwrap()["status"].as_str().unwrap().to_owned()
    };
    let scope = first.key.scope;
    let found: Vec<String> = [&first, &sent[0], &sent[1], &sent[2]].map(|it| status(it.key.entity, scope)).into();
    assert_eq!(found, ["COMPLETE", "FAILED", "COMPLETE", "FAILED"]);
    // The whole, whose last child was not announced, has failed, too.
    assert_eq!(status(parent.key.entity, 0), "FAILED");
    assert_eq!(lines.len(), 6, "{lines:?}");
}

/// Append the beginning of a record, as a process that dies while writing does.
fn tear(file: &Path, bytes: &[u8]) {
    OpenOptions::new().append(true).open(file).unwrap().write_all(bytes).unwrap();
}

/// Append the first `length` bytes of a record after the last record in a folder.
fn tear_last(folder: &Path, length: usize) {
    wait_until_free(folder);
    let file = segments(folder).pop().unwrap();
    let bytes = fs::read(&file).unwrap();
    tear(&file, &bytes[penstock_log::HEADER..][..length]);
}

#[test]
fn a_record_that_was_cut_off_is_as_if_it_had_not_been_begun() {
    // Half a head; a whole head; a head and part of the body.
    let torn = [2, 32, 43];
    let mut home = Home::new(PATIENCE);
    let mut ids = std::collections::HashSet::new();
    for (number, length) in torn.into_iter().enumerate() {
        let client = home.connect_with_state();
        assert_eq!(client.resumed().unwrap(), number > 0);
        let session = client.id().unwrap().to_string();
        let parent = block(client.send(whole(), Payload::empty())).unwrap();
        for number in 0..=number {
            let (draft, payload) = part(&parent, number);
            let sent = block(client.send(draft, payload)).unwrap();
            assert_eq!(block(client.wait_resolved(sent.key)).unwrap().status, Status::Complete);
        }
        home.server = None;
        drop(client);
        eventually("the sink is open", || fs::File::open(list(&home, &session)).unwrap().try_lock().is_ok());
        for folder in [home.server_state(), home.state()] {
            tear_last(&folder, length);
        }
        tear(&list(&home, &session), b"{\"scope\":2,\"ent");
        ids.insert(session);
        home.start();
    }
    assert_eq!(ids.len(), 1);
    let session = ids.into_iter().next().unwrap();
    let client = home.connect_with_state();
    let parent = block(client.send(whole(), Payload::empty())).unwrap();
    for number in 0..PARTS {
        let (draft, payload) = part(&parent, number);
        block(client.send(draft, payload)).unwrap();
    }
    block(client.end_children(parent.key)).unwrap();
    assert_eq!(block(client.wait_resolved(parent.key)).unwrap().status, Status::Complete);
    assert_eq!(block(client.close()).unwrap().code, ErrorCode::NoError);
    check_closed_in_order(&home, &session);
}
