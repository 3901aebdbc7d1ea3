//! Sessions of layer 2 that survive their process: both ends are started again from the records on
//! disk.

use std::collections::HashSet;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use penstock_io::tls::{ClientTls, Identity, ServerTls, Trust};
use penstock_pipestream_net::Error;
use penstock_pipestream_net::{
    Client, EntityDraft, ErrorCode, Payload, Reason, SentEntity, Server, ServerOptions, SessionHandle, SessionOptions,
    Status,
};
use penstock_pipestream_sink::FolderSink;
use serde_json::Value;
use tempfile::TempDir;

use crate::logged::count;
use crate::support::{PATIENCE, anywhere, block, container, draft, eventually, id, log};
use crate::survival::Wire;

/// A server that can be started again in place, and a client that trusts it.
pub(crate) struct Home {
    pub(crate) dir: TempDir,
    pub(crate) server: Option<Server>,
    address: SocketAddr,
    survives: Duration,
    idle: Duration,
    client: Client,
}

/// Retry while the dropped object still holds its resources.
pub(crate) fn again<T>(mut attempt: impl FnMut() -> Result<T, Error>) -> T {
    let since = Instant::now();
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(error) => assert!(since.elapsed() < PATIENCE, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Home {
    pub(crate) fn new(survives: Duration) -> Self {
        Self::with_idle_timeout(survives, Duration::from_secs(30))
    }

    fn with_idle_timeout(survives: Duration, idle: Duration) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = serve(dir.path().to_owned(), anywhere(), survives, idle).unwrap();
        let trust = Trust::Fingerprint(server.fingerprint().unwrap());
        let client = Client::new(&ClientTls { trust, identity: None }).unwrap();
        let address = server.local_addr().unwrap();
        Self { dir, server: Some(server), address, survives, idle, client }
    }

    /// Kill the server without a goodbye, and start another one.
    pub(crate) fn restart(&mut self) {
        self.server = None;
        self.start();
    }

    pub(crate) fn start(&mut self) {
        let (dir, address) = (self.dir.path().to_owned(), self.address);
        self.server = Some(again(|| serve(dir.clone(), address, self.survives, self.idle)));
    }

    fn options(&self) -> SessionOptions {
        let kept = SessionOptions { survives: Some(PATIENCE), ..SessionOptions::default() };
        let mut options = SessionOptions { idle_timeout: self.idle, ..kept };
        options.session.capabilities.layer2 = true;
        options
    }

    pub(crate) fn connect(&self) -> SessionHandle {
        block(self.client.connect(self.address, "localhost", self.options())).unwrap()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.dir.path().join("sender")
    }

    pub(crate) fn try_connect_with_state(&self) -> Result<SessionHandle, Error> {
        let options = SessionOptions { state: Some(self.state()), ..self.options() };
        block(self.client.connect(self.address, "localhost", options))
    }

    pub(crate) fn connect_with_state(&self) -> SessionHandle {
        again(|| self.try_connect_with_state())
    }

    pub(crate) fn sink(&self) -> PathBuf {
        self.dir.path().join("sink")
    }

    pub(crate) fn server_state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// Return how many sessions the server has stored.
    pub(crate) fn sessions(&self) -> usize {
        count(&self.server_state())
    }
}

fn serve(dir: PathBuf, address: SocketAddr, survives: Duration, idle: Duration) -> Result<Server, Error> {
    let tls = ServerTls { identity: Identity::Development { dir: dir.join("tls") }, client_ca: None };
    let mut options = ServerOptions { state: Some(dir.join("state")), ..ServerOptions::new(address.into(), tls) };
    options.session.session.capabilities.layer2 = true;
    (options.session.survives, options.session.idle_timeout) = (Some(survives), idle);
    Server::bind(options, FolderSink::open(&dir.join("sink"), None)?)
}

pub(crate) fn payload(number: usize) -> Vec<u8> {
    let length = if number % 10 == 3 { 300_000 } else { 1_000 + number };
    (0..length).map(|at| u8::try_from((at * 7 + number) % 251).unwrap()).collect()
}

pub(crate) fn part(parent: &SentEntity, number: usize) -> (EntityDraft, Payload) {
    let chunk_size = (number % 50 == 3).then_some(100_000);
    let label = Bytes::from(format!("part {number}"));
    let draft = EntityDraft { parent: Some(parent.key), chunk_size, label, ..draft("x/y") };
    (draft, Payload::bytes(payload(number)))
}

pub(crate) fn whole() -> EntityDraft {
    EntityDraft { label: Bytes::from_static(b"the whole"), ..container() }
}

/// Check that each entity has one line, COMPLETE, and the bytes that were sent.
fn check_sink(home: &Home, session: &str, parts: usize) {
    let lines = log(&home.sink(), session);
    let (closed, lines) = lines.split_last().unwrap();
    assert_eq!(closed["closed"], 0);
    assert_eq!(lines.len(), parts + 1, "{lines:?}");
    let mut sizes: Vec<usize> = (0..parts).map(|number| payload(number).len()).collect();
    sizes.push(0);
    let mut found: Vec<usize> =
        lines.iter().map(|line| usize::try_from(line["bytes"].as_u64().unwrap()).unwrap()).collect();
    sizes.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, sizes);
    for line in lines {
        assert_eq!(line["status"], "COMPLETE");
        let Value::String(file) = &line["file"] else { continue };
        assert_eq!(fs::metadata(home.sink().join(file)).unwrap().len(), line["bytes"].as_u64().unwrap());
    }
    let hidden: Vec<_> =
        fs::read_dir(home.sink().join(session)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(hidden.iter().all(|name| !name.to_string_lossy().starts_with('.')), "{hidden:?}");
}

pub(crate) const PARTS: usize = 120;

#[test]
fn a_server_that_is_started_again_goes_on_and_nothing_is_stored_twice() {
    let mut home = Home::new(PATIENCE);
    let client = home.connect();
    let parent = block(client.send(container(), Payload::empty())).unwrap();
    let mut sent = Vec::new();
    for number in 0..PARTS {
        let (draft, payload) = part(&parent, number);
        sent.push(block(client.send(draft, payload)).unwrap());
        if number % 50 == 20 {
            home.restart();
        }
    }
    block(client.end_children(parent.key)).unwrap();
    for ticket in sent.iter().chain([&parent]) {
        assert_eq!(block(client.wait_resolved(ticket.key)).unwrap().status, Status::Complete);
    }
    let released = block(client.wait_released(parent.child_scope.unwrap())).unwrap();
    assert_eq!((released.digest.processed, released.digest.succeeded), (PARTS as u64, PARTS as u64));
    let session = client.id().unwrap().to_string();
    assert_eq!(block(client.close()).unwrap().code, ErrorCode::NoError);
    check_sink(&home, &session, PARTS);
    eventually("the folder of a session that has ended is there", || home.sessions() == 0);
    assert!(!client.resumed().unwrap());
}

/// Send the whole again, as every process does, and wait for `wait_for` parts.
pub(crate) fn send_again(client: &SessionHandle, wait_for: usize) -> (SentEntity, Vec<SentEntity>) {
    let parent = block(client.send(whole(), Payload::empty())).unwrap();
    let parts = (0..PARTS).map(|number| part(&parent, number)).collect();
    let sent: Vec<SentEntity> = block(client.send_many(parts)).into_iter().map(Result::unwrap).collect();
    for ticket in sent.iter().take(wait_for) {
        assert_eq!(block(client.wait_resolved(ticket.key)).unwrap().status, Status::Complete);
    }
    (parent, sent)
}

fn finish(home: &Home, client: &SessionHandle, parent: &SentEntity, sent: &[SentEntity]) {
    block(client.end_children(parent.key)).unwrap();
    for ticket in sent {
        assert_eq!(block(client.wait_resolved(ticket.key)).unwrap().status, Status::Complete);
    }
    let released = block(client.wait_released(parent.child_scope.unwrap())).unwrap();
    assert_eq!((released.digest.processed, released.digest.succeeded), (PARTS as u64, PARTS as u64));
    assert_eq!(block(client.wait_resolved(parent.key)).unwrap().status, Status::Complete);
    let session = client.id().unwrap().to_string();
    assert_eq!(block(client.close()).unwrap().code, ErrorCode::NoError);
    check_sink(home, &session, PARTS);
    eventually("the folder of a session that has ended is there", || home.sessions() == 0);
}

#[test]
fn a_client_that_is_started_again_sends_only_what_is_not_terminal() {
    let home = Home::new(PATIENCE);
    let client = home.connect_with_state();
    assert!(!client.resumed().unwrap());
    let session = client.id().unwrap();
    let (parent, sent) = send_again(&client, PARTS / 2);
    drop(client);

    let client = home.connect_with_state();
    assert!(client.resumed().unwrap());
    assert_eq!(client.id().unwrap(), session);
    let before = home.server.as_ref().unwrap().counters().unwrap().entities;
    assert!(before >= PARTS as u64 / 2);
    let (parent_again, sent_again) = send_again(&client, 0);
    assert_eq!((parent_again.key, sent_again.len()), (parent.key, sent.len()));
    let keys: HashSet<_> = sent.iter().zip(&sent_again).map(|(one, other)| (one.key, other.key)).collect();
    assert!(keys.iter().all(|(one, other)| one == other));
    finish(&home, &client, &parent, &sent_again);
    let received = home.server.as_ref().unwrap().counters().unwrap().entities;
    // Terminal entities were not sent again.
    assert!(received <= PARTS as u64 + 1 + PARTS as u64 / 2, "{received}");
    // The client's session has ended, so the next one is new.
    let client = home.connect_with_state();
    assert!(!client.resumed().unwrap());
    assert_ne!(client.id().unwrap(), session);
}

#[test]
fn outcomes_are_known_to_the_next_process_with_their_reasons_and_digests() {
    let home = Home::new(PATIENCE);
    let client = home.connect_with_state();
    let (parent, sent) = send_again(&client, PARTS);
    block(client.end_children(parent.key)).unwrap();
    assert_eq!(block(client.wait_resolved(parent.key)).unwrap().status, Status::Complete);
    let lost = EntityDraft { label: Bytes::from_static(b"lost"), ..draft("x/y") };
    let why = Reason { code: ErrorCode::IntegrityError, message: "the member is damaged".into() };
    let failed = block(client.announce_failed(lost.clone(), why)).unwrap();
    let outcome = block(client.wait_resolved(failed.key)).unwrap();
    drop(client);

    let client = home.connect_with_state();
    let failed_again = block(client.send(lost, Payload::empty())).unwrap();
    assert_eq!(failed_again, failed);
    assert_eq!(block(client.wait_resolved(failed.key)).unwrap(), outcome);
    let (parent_again, sent_again) = send_again(&client, 0);
    assert_eq!((parent_again, sent_again), (parent, sent.clone()));
    block(client.end_children(parent.key)).unwrap();
    for ticket in &sent {
        assert_eq!(block(client.wait_resolved(ticket.key)).unwrap().status, Status::Complete);
    }
    let released = block(client.wait_released(parent.child_scope.unwrap())).unwrap();
    assert_eq!(released.digest.succeeded, PARTS as u64);
    assert_eq!(block(client.close()).unwrap().code, ErrorCode::NoError);
    assert_eq!(home.server.as_ref().unwrap().counters().unwrap().entities, PARTS as u64 + 1);
}

#[test]
fn both_ends_are_started_again_and_again() {
    let mut home = Home::new(PATIENCE);
    let mut session = None;
    for round in 0..4 {
        let client = home.connect_with_state();
        let id = client.id().unwrap();
        assert_eq!(*session.get_or_insert_with(|| id.clone()), id);
        assert_eq!(client.resumed().unwrap(), round > 0);
        send_again(&client, PARTS / 5 * round);
        if round % 2 == 0 {
            home.server = None;
            drop(client);
            home.start();
        } else {
            drop(client);
            home.restart();
        }
    }
    let client = home.connect_with_state();
    let (parent, sent) = send_again(&client, 0);
    finish(&home, &client, &parent, &sent);
}

#[test]
fn a_session_whose_client_does_not_return_ends_after_its_time() {
    let mut home = Home::new(Duration::from_millis(200));
    let client = home.connect_with_state();
    let session = client.id().unwrap().to_string();
    let parent = block(client.send(whole(), Payload::empty())).unwrap();
    let (first, bytes) = part(&parent, 1);
    let first = block(client.send(first, bytes)).unwrap();
    assert_eq!(block(client.wait_resolved(first.key)).unwrap().status, Status::Complete);
    // Both ends are killed together.
    home.server = None;
    drop(client);
    home.start();
    let lines = log(&home.sink(), &session);
    assert_eq!(lines.last().unwrap()["closed"], ErrorCode::IdleTimeout.code());
    let complete = lines.iter().filter(|line| line["status"] == "COMPLETE").count();
    assert_eq!(complete, 1, "{lines:?}");
    eventually("the folder of a session that has ended is there", || home.sessions() == 0);
    // The server reports this to the client, which begins a new session.
    let refused = again(|| match home.try_connect_with_state() {
        Err(error @ Error::Closed(_)) => Ok(error),
        Err(error) => Err(error),
        Ok(client) => panic!("{client:?}"),
    });
    assert_eq!(refused.code(), Some(ErrorCode::ClaimNotFound));
    assert!(!home.connect_with_state().resumed().unwrap());
}

#[test]
fn a_server_that_is_started_again_tells_the_clients_of_the_one_that_died() {
    // With this idle timeout, neither end notices a lost connection during the test by itself.
    let mut home = Home::with_idle_timeout(PATIENCE, Duration::from_secs(3_600));
    let wire = Wire::to(home.address);
    let client = block(home.client.connect(wire.address, "localhost", home.options())).unwrap();
    let send = || {
        let sent = block(client.send(draft("x/y"), Payload::bytes(b"bytes".to_vec()))).unwrap();
        block(client.wait_resolved(sent.key)).unwrap().status
    };
    assert_eq!(send(), Status::Complete);
    // The path is cut, so nothing that the server sends when it ends arrives.
    wire.cut();
    (home.server, home.address) = (None, anywhere());
    home.start();
    wire.redirect(home.server.as_ref().unwrap().local_addr().unwrap());
    wire.restore();
    assert_eq!(send(), Status::Complete);
    let session = id(&client);
    assert_eq!(block(client.close()).unwrap().code, ErrorCode::NoError);
    assert_eq!(log(&home.sink(), &session).len(), 3);
}

#[test]
fn a_session_goes_on_in_its_own_folder_whatever_other_folders_of_its_id_are_there() {
    let mut home = Home::new(PATIENCE);
    let client = home.connect();
    let parent = block(client.send(container(), Payload::empty())).unwrap();
    let session = client.id().unwrap().to_string();
    // An earlier session of the ID had a number; an operator removed the folder without one, so
    // this session got its name.
    let earlier = home.sink().join(format!("{session}.1"));
    fs::create_dir(&earlier).unwrap();
    fs::write(earlier.join("entities.jsonl"), "{\"closed\":0}\n").unwrap();
    let mut sent = Vec::new();
    for number in 0..PARTS {
        if number == 1 {
            home.restart();
        }
        let (draft, payload) = part(&parent, number);
        sent.push(block(client.send(draft, payload)).unwrap());
        let list = home.sink().join(&session).join("entities.jsonl");
        eventually("the part is in the list", || {
            fs::read_to_string(&list).is_ok_and(|text| text.lines().count() > number)
        });
    }
    finish(&home, &client, &parent, &sent);
    assert_eq!(fs::read_to_string(earlier.join("entities.jsonl")).unwrap(), "{\"closed\":0}\n");
}
