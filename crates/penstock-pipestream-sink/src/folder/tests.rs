//! Real sessions on a disk that fails at one step or another.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use penstock_io::Addresses;
use penstock_io::runtime::wait;
use penstock_io::tls::{ClientTls, Identity, ServerTls, Trust};
use penstock_pipestream::{ErrorCode, Reason, Status};
use penstock_pipestream_net::port::SessionControl;
use penstock_pipestream_net::{
    Client, CompletionPolicy, EntityDraft, FailureAction, Payload, Server, ServerOptions, SessionHandle, SessionOptions,
};
use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::folder::disk::Step;
use crate::folder::tests::recorded::RecordingControl;
use crate::format::LOG;
use crate::format::names::session_folders;

mod lines;
pub(crate) mod recorded;
#[cfg(target_os = "linux")]
mod small_file_system;

fn block<F: Future>(future: F) -> F::Output {
    wait(future, Some(Instant::now() + Duration::from_secs(60)), &mut || Ok(())).expect("within a minute")
}

/// A server whose disk fails at one step while a switch is on.
struct Broken {
    dir: TempDir,
    server: Server,
    client: Client,
    address: std::net::SocketAddr,
    broken: Arc<AtomicBool>,
}

impl Broken {
    fn at(step: Step) -> Self {
        let broken = Arc::new(AtomicBool::new(false));
        let now = Arc::clone(&broken);
        Self::with(broken, move |at, path| {
            let spared = step == Step::Sync && path.ends_with(LOG);
            if at == step && !spared && now.load(Ordering::SeqCst) { Err(full()) } else { Ok(()) }
        })
    }

    fn with(broken: Arc<AtomicBool>, fault: impl Fn(Step, &Path) -> io::Result<()> + Send + Sync + 'static) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sink =
            FolderSink::with_faults(&dir.path().join("sink"), None, References::keep(), Faults::new(fault)).unwrap();
        let tls = ServerTls { identity: Identity::Development { dir: dir.path().join("tls") }, client_ca: None };
        let anywhere = Addresses::from((Ipv4Addr::LOCALHOST, 0));
        let mut options = ServerOptions { metrics: Some(anywhere.clone()), ..ServerOptions::new(anywhere, tls) };
        options.session.session.capabilities.layer2 = true;
        let server = Server::bind(options, sink).unwrap();
        let trust = Trust::Fingerprint(server.fingerprint().unwrap());
        let client = Client::new(&ClientTls { trust, identity: None }).unwrap();
        let address = server.local_addr().unwrap();
        Self { dir, server, client, address, broken }
    }

    fn connect(&self) -> SessionHandle {
        block(self.client.connect(self.address, "localhost", SessionOptions::default())).unwrap()
    }

    fn set(&self, broken: bool) {
        self.broken.store(broken, Ordering::SeqCst);
    }

    /// Close a session and wait until the server has written all its lines.
    fn close(&self, session: &SessionHandle) {
        close_gracefully(session);
        self.settled();
    }

    /// Wait until no client is connected and the server has written all lines.
    fn settled(&self) {
        let since = Instant::now();
        while self.server.counters().unwrap().connections_open > 0 {
            assert!(since.elapsed() < Duration::from_secs(60), "the server goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Return the value of a series of the metrics.
    fn metric(&self, series: &str) -> u64 {
        let mut stream = TcpStream::connect(self.server.metrics_addr().unwrap().unwrap()).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{series} is not in\n{page}")).parse().unwrap()
    }

    fn log(&self, session: &SessionHandle) -> Vec<Value> {
        let path = self.dir.path().join("sink").join(&*session.id().unwrap()).join(LOG);
        let text = fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Return the names in a session's folder, without the list.
    fn payloads(&self, session: &SessionHandle) -> Vec<String> {
        let folder = self.dir.path().join("sink").join(&*session.id().unwrap());
        let mut found: Vec<_> = [folder.clone(), folder.join("0")]
            .iter()
            .filter_map(|dir| fs::read_dir(dir).ok())
            .flatten()
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.file_type().unwrap().is_file() && entry.file_name() != LOG)
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        found.sort();
        found
    }
}

fn full() -> io::Error {
    io::Error::from(io::ErrorKind::StorageFull)
}

fn send(session: &SessionHandle, size: usize) -> (Status, Option<Reason>) {
    let payload = Payload::bytes(vec![7; size]);
    let ticket = block(session.send(EntityDraft::default(), payload)).unwrap();
    let resolution = block(session.wait_resolved(ticket.key)).unwrap();
    (resolution.status, resolution.reason)
}

#[test]
fn a_step_that_fails_fails_the_entity_and_nothing_else() {
    for step in [Step::Create, Step::Write, Step::Rename, Step::Append] {
        for bytes in [10, 300_000] {
            let disk = Broken::at(step);
            let session = disk.connect();
            assert_eq!(send(&session, bytes).0, Status::Complete);
            disk.set(true);
            let (status, reason) = send(&session, bytes);
            let reason = reason.unwrap();
            assert_eq!((status, reason.code), (Status::Failed, ErrorCode::InternalError), "{step:?}");
            assert!(reason.message.contains("no storage space"), "{reason:?}");
            disk.set(false);
            assert_eq!(send(&session, bytes).0, Status::Complete);
            disk.close(&session);
            assert_eq!(disk.payloads(&session), ["1", "3"], "{step:?}");
            let lines = disk.log(&session);
            let statuses: Vec<_> = lines.iter().filter_map(|line| line["status"].as_str()).collect();
            assert_eq!(statuses, ["COMPLETE", "FAILED", "COMPLETE"], "{step:?}");
            assert_eq!(lines.last().unwrap()["closed"], 0);
        }
    }
}

#[test]
fn a_step_that_fails_once_costs_an_attempt_where_the_policy_has_more() {
    for step in [Step::Create, Step::Write, Step::Sync, Step::Rename, Step::Append] {
        let (disk, failed) = (Broken::at(Step::Write), Arc::new(AtomicBool::new(false)));
        let once = Arc::clone(&failed);
        let disk = Broken::with(Arc::clone(&disk.broken), move |at, path| {
            let path = path.to_string_lossy();
            let part = step == Step::Append || path.contains(".tmp-2.0-1.0") || path.ends_with("/2/1");
            let hit = at == step && part;
            if hit && !once.swap(true, Ordering::SeqCst) { Err(full()) } else { Ok(()) }
        });
        // Hold back the failure of an append, which must not hit the list's first line.
        failed.store(step == Step::Append, Ordering::SeqCst);
        let mut options = SessionOptions::default();
        options.session.capabilities.layer2 = true;
        let retries = FailureAction::Retry;
        options.policy = Some(CompletionPolicy {
            on_failure: Some(retries.into()),
            retry_delay_ms: Some(0),
            ..CompletionPolicy::default()
        });
        let session = block(disk.client.connect(disk.address, "localhost", options)).unwrap();
        let whole = EntityDraft { dehydrate: true, ..EntityDraft::default() };
        let parent = block(session.send(whole, Payload::empty())).unwrap();
        failed.store(false, Ordering::SeqCst);
        let part = EntityDraft { parent: Some(parent.key), ..EntityDraft::default() };
        let part = block(session.send(part, Payload::bytes(vec![7; 300_000]))).unwrap();
        let end = block(session.wait_resolved(part.key)).unwrap();
        assert_eq!((end.status, end.attempts), (Status::Complete, 2), "{step:?}");
        block(session.end_children(parent.key)).unwrap();
        assert_eq!(block(session.wait_resolved(parent.key)).unwrap().status, Status::Complete, "{step:?}");
        disk.close(&session);
        let lines = disk.log(&session);
        let line = lines.iter().rfind(|line| line["scope"] == 2).unwrap();
        assert_eq!((&line["status"], &line["attempts"]), (&"COMPLETE".into(), &2.into()), "{step:?}");
        assert!(lines.iter().filter(|line| line["scope"] == 0).all(|line| line.get("attempts").is_none()));
        assert!(disk.dir.path().join("sink").join(line["file"].as_str().unwrap()).exists(), "{step:?}");
        assert_eq!(lines.last().unwrap()["closed"], 0);
    }
}

#[test]
fn a_payload_that_cannot_be_made_durable_is_not_complete() {
    let disk = Broken::at(Step::Sync);
    let session = disk.connect();
    disk.set(true);
    assert_eq!(send(&session, 10).0, Status::Failed);
    disk.set(false);
    assert_eq!(send(&session, 10).0, Status::Complete);
    disk.close(&session);
    assert_eq!(disk.payloads(&session), ["2"]);
}

#[test]
fn lines_that_a_full_disk_refused_are_written_later() {
    let disk = Broken::at(Step::Append);
    let session = disk.connect();
    disk.set(true);
    for _ in 0..5 {
        assert_eq!(send(&session, 10).0, Status::Failed);
    }
    disk.set(false);
    disk.close(&session);
    let lines = disk.log(&session);
    assert_eq!(lines.iter().filter(|line| line["status"] == "FAILED").count(), 5);
    assert_eq!(lines.last().unwrap()["closed"], 0);
}

#[test]
fn a_session_whose_lines_wait_for_too_much_room_is_ended_and_counted() {
    let disk = Broken::at(Step::Append);
    let session = disk.connect();
    disk.set(true);
    let metadata = [("m".to_owned(), "m".repeat(1_000_000))].into();
    let draft = EntityDraft { metadata, ..EntityDraft::default() };
    let mut failed = 0;
    // The client may not learn how the last entity ended.
    while let Ok(ticket) = block(session.send(draft.clone(), Payload::empty()))
        && let Ok(resolution) = block(session.wait_resolved(ticket.key))
    {
        assert_eq!(resolution.status, Status::Failed);
        failed += 1;
        assert!(failed < 40, "the session goes on");
    }
    assert!(failed >= 16, "{failed}");
    assert_eq!(block(session.closed()).unwrap().code, ErrorCode::InternalError);
    disk.settled();
    assert_eq!(disk.metric("penstock_pipestream_limit_exceeded_total{limit=\"sink_lines\"}"), 1);
    assert!(disk.metric("penstock_sink_errors_total{kind=\"no_space\"}") >= 16);
    disk.set(false);
    // The list lacks lines, so it must not look complete.
    assert_eq!(last(&disk, &session), None);
}

#[test]
fn one_session_s_trouble_is_not_another_s() {
    let disk = Broken::at(Step::Write);
    let victim: Arc<Mutex<String>> = Arc::default();
    let named = Arc::clone(&victim);
    let disk = Broken::with(Arc::clone(&disk.broken), move |step, path| {
        let hit = path.to_string_lossy().contains(&*named.lock().unwrap());
        if step == Step::Write && hit { Err(full()) } else { Ok(()) }
    });
    victim.lock().unwrap().push_str("nobody");
    let (first, second) = (disk.connect(), disk.connect());
    *victim.lock().unwrap() = first.id().unwrap().to_string();
    assert_eq!(send(&first, 10).0, Status::Failed);
    assert_eq!(send(&second, 10).0, Status::Complete);
    block(first.close()).unwrap();
    disk.close(&second);
}

#[test]
fn a_folder_that_cannot_be_made_refuses_the_session() {
    let disk = Broken::at(Step::Create);
    disk.set(true);
    let refused = block(disk.client.connect(disk.address, "localhost", SessionOptions::default()));
    assert_eq!(refused.unwrap_err().code(), Some(ErrorCode::InternalError));
    disk.set(false);
    disk.close(&disk.connect());
}

const KEY: &str = "penstock.transaction";

/// Send an entity of a transaction.
fn send_in(
    session: &SessionHandle,
    key: Option<&str>,
    content_type: &str,
    payload: Vec<u8>,
) -> (Status, Option<Reason>) {
    let metadata = key.map(|key| (KEY.to_owned(), key.to_owned())).into_iter().collect();
    let draft = EntityDraft { content_type: content_type.to_owned(), metadata, ..EntityDraft::default() };
    let ticket = block(session.send(draft, Payload::bytes(payload))).unwrap();
    let resolution = block(session.wait_resolved(ticket.key)).unwrap();
    (resolution.status, resolution.reason)
}

/// Send the order that a job's driver sends at its end.
fn order(disk: &Broken, kind: &str, key: &str, sessions: &[&SessionHandle]) -> (Status, Option<Reason>) {
    let sessions: Vec<_> = sessions.iter().map(|session| session.id().unwrap().to_string()).collect();
    let session = disk.connect();
    let payload = serde_json::to_vec(&serde_json::json!({ "sessions": sessions })).unwrap();
    let done = send_in(&session, Some(key), &format!("application/vnd.penstock.{kind}+json"), payload);
    block(session.close()).unwrap();
    done
}

fn last(disk: &Broken, session: &SessionHandle) -> Option<u64> {
    disk.log(session).last().and_then(|line| line["closed"].as_u64())
}

#[test]
fn sessions_of_a_transaction_are_readable_once_it_is_committed() {
    let disk = Broken::at(Step::Write);
    let (one, two, other) = (disk.connect(), disk.connect(), disk.connect());
    for session in [&one, &two, &other] {
        assert_eq!(send_in(session, Some("k"), "", b"row".to_vec()).0, Status::Complete);
        close_gracefully(session);
    }
    disk.settled();
    assert_eq!([&one, &two, &other].map(|session| last(&disk, session)), [None; 3]);
    assert_eq!(order(&disk, "commit", "k", &[&one, &two]).0, Status::Complete);
    assert_eq!([&one, &two, &other].map(|session| last(&disk, session)), [Some(0), Some(0), Some(0x41)]);
    // Another attempt of the same job is too late: its commit is refused, and a repetition of the
    // first commit changes nothing.
    let late = disk.connect();
    assert_eq!(send_in(&late, Some("k"), "", b"row".to_vec()).0, Status::Complete);
    close_gracefully(&late);
    disk.settled();
    assert_eq!(last(&disk, &late), Some(0x41));
    let (refused, reason) = order(&disk, "commit", "k", &[&late]);
    assert_eq!((refused, reason.unwrap().code), (Status::Failed, ErrorCode::Other(0x43)));
    assert_eq!(order(&disk, "commit", "k", &[&two, &one]).0, Status::Complete);
    assert_eq!([&one, &late].map(|session| last(&disk, session)), [Some(0), Some(0x41)]);
}

const TOKEN: &str = "penstock.transaction-token";
const OWNER: &str = "penstock.transaction-owner";

/// Send an entity with other metadata than the transaction's name alone.
fn send_with(session: &SessionHandle, content_type: &str, pairs: &[(&str, &str)], payload: Vec<u8>) -> Status {
    let metadata = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let draft = EntityDraft { content_type: content_type.to_owned(), metadata, ..EntityDraft::default() };
    let ticket = block(session.send(draft, Payload::bytes(payload))).unwrap();
    block(session.wait_resolved(ticket.key)).unwrap().status
}

/// Send orders with a guessed name, without sessions, and for the sessions of other clients.
#[test]
fn orders_of_others_are_refused_and_the_owner_s_are_obeyed() {
    let disk = Broken::at(Step::Write);
    let (token, hash) = ("a token of the owner's", penstock_io::hex::encode(sha(b"a token of the owner's")));
    let says = [(KEY, "k"), (OWNER, hash.as_str())];
    assert_eq!(order(&disk, "commit", "k", &[]).1.unwrap().code, ErrorCode::Other(0x44));
    assert_eq!(order(&disk, "abort", "k", &[]).0, Status::Complete, "of no session");
    let honest = disk.connect();
    assert_eq!(send_with(&honest, "a/b", &says, b"row".to_vec()), Status::Complete);
    // Later entities need not name the owner again.
    assert_eq!(send_in(&honest, Some("k"), "", b"row".to_vec()).0, Status::Complete);
    block(honest.end_root()).unwrap();
    for kind in ["commit", "abort"] {
        let (status, reason) = order(&disk, kind, "k", &[&honest]);
        if kind == "commit" {
            let code = reason.unwrap().code;
            assert!(status == Status::Failed && matches!(code, ErrorCode::Other(0x40 | 0x44)), "{code:?}");
        }
    }
    close_gracefully(&honest);
    disk.settled();
    for kind in ["commit", "abort"] {
        let (status, reason) = order(&disk, kind, "k", &[&honest]);
        assert_eq!((status, reason.unwrap().code), (Status::Failed, ErrorCode::Other(0x44)), "{kind}");
        let attacker = disk.connect();
        let orders = format!("application/vnd.penstock.{kind}+json");
        let named = format!("{{\"sessions\":[\"{}\"]}}", honest.id().unwrap()).into_bytes();
        for shown in ["the token of another client", hash.as_str()] {
            let pairs = [(KEY, "k"), (TOKEN, shown), ("penstock.transaction-proof", hash.as_str())];
            assert_eq!(send_with(&attacker, &orders, &pairs, named.clone()), Status::Failed, "{kind}");
        }
        close_gracefully(&attacker);
    }
    // A transaction of another client under the same name does not interfere either.
    let stranger = disk.connect();
    assert_eq!(send_in(&stranger, Some("k"), "", b"row".to_vec()).0, Status::Complete);
    close_gracefully(&stranger);
    disk.settled();
    assert_eq!(order(&disk, "commit", "k", &[&stranger]).0, Status::Complete);
    assert_eq!((last(&disk, &honest), last(&disk, &stranger)), (None, Some(0)));
    let driver = disk.connect();
    let named = format!("{{\"sessions\":[\"{}\"]}}", honest.id().unwrap()).into_bytes();
    for _ in 0..2 {
        let pairs = [(KEY, "k"), (TOKEN, token)];
        let commit = "application/vnd.penstock.commit+json";
        assert_eq!(send_with(&driver, commit, &pairs, named.clone()), Status::Complete);
    }
    close_gracefully(&driver);
    disk.settled();
    assert_eq!(last(&disk, &honest), Some(0));
    let kept = everything(&disk.dir.path().join("sink"));
    assert!(!kept.contains(token), "the token is nowhere");
    assert!(kept.lines().filter(|line| line.contains("\"metadata\"")).all(|line| {
        let metadata = &line[line.find("\"metadata\"").unwrap()..line.find("\"status\"").unwrap()];
        !metadata.contains(&hash)
    }));
}

fn sha(bytes: &[u8]) -> Vec<u8> {
    use sha2::Digest as _;
    sha2::Sha256::digest(bytes).to_vec()
}

/// Return the text of all files below a folder.
fn everything(dir: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text += &everything(&path);
        } else {
            text += &String::from_utf8_lossy(&fs::read(&path).unwrap());
        }
    }
    text
}

/// End a session gracefully.
fn close_gracefully(session: &SessionHandle) {
    assert_eq!(block(session.close()).unwrap().code, ErrorCode::NoError);
}

#[test]
fn a_session_whose_root_scope_has_ended_is_committed_though_its_client_is_still_there() {
    let disk = Broken::at(Step::Write);
    let session = disk.connect();
    assert_eq!(send_in(&session, Some("k"), "", b"row".to_vec()).0, Status::Complete);
    let (early, reason) = order(&disk, "commit", "k", &[&session]);
    assert_eq!((early, reason.unwrap().code), (Status::Failed, ErrorCode::Other(0x40)));
    block(session.end_root()).unwrap();
    block(session.wait_released(penstock_pipestream::ScopeKey { scope: 0, scope_use: 0 })).unwrap();
    assert_eq!(order(&disk, "commit", "k", &[&session]).0, Status::Complete);
    assert_eq!(last(&disk, &session), Some(0));
    session.abort(Reason { code: ErrorCode::InternalError, message: "killed".into() }).unwrap();
    disk.settled();
    assert_eq!(disk.log(&session).len(), 2);
}

#[test]
fn a_client_that_is_lost_after_its_root_scope_has_ended_leaves_a_prepared_session() {
    let disk = Broken::at(Step::Write);
    let (whole, half) = (disk.connect(), disk.connect());
    for session in [&whole, &half] {
        assert_eq!(send_in(session, Some("k"), "", b"row".to_vec()).0, Status::Complete);
    }
    block(whole.end_root()).unwrap();
    block(whole.wait_released(penstock_pipestream::ScopeKey { scope: 0, scope_use: 0 })).unwrap();
    for session in [&whole, &half] {
        session.abort(Reason { code: ErrorCode::InternalError, message: "killed".into() }).unwrap();
    }
    disk.settled();
    assert_eq!([&whole, &half].map(|session| last(&disk, session)), [None, Some(1)]);
    let (refused, reason) = order(&disk, "commit", "k", &[&whole, &half]);
    assert_eq!((refused, reason.unwrap().code), (Status::Failed, ErrorCode::EntityInvalid));
    assert_eq!(order(&disk, "abort", "k", &[&whole]).0, Status::Complete);
    assert_eq!(last(&disk, &whole), Some(0x41));
}

#[test]
fn an_entity_of_another_transaction_fails() {
    let disk = Broken::at(Step::Write);
    let session = disk.connect();
    assert_eq!(send_in(&session, Some("k"), "", b"row".to_vec()).0, Status::Complete);
    for key in [Some("other"), None] {
        let (status, reason) = send_in(&session, key, "", b"row".to_vec());
        assert_eq!((status, reason.unwrap().code), (Status::Failed, ErrorCode::EntityInvalid), "{key:?}");
    }
    disk.close(&session);
    assert_eq!(disk.payloads(&session), ["1"]);
}

#[test]
fn a_disk_that_fails_during_a_commit_fails_the_commit_which_may_be_said_again() {
    for step in [Step::Create, Step::Write, Step::Sync, Step::Rename, Step::Append] {
        let broken = Arc::new(AtomicBool::new(false));
        let now = Arc::clone(&broken);
        let disk = Broken::with(broken, move |at, path| {
            let own = path.components().any(|part| part.as_os_str() == ".transactions") || at == Step::Append;
            if at == step && own && now.load(Ordering::SeqCst) { Err(full()) } else { Ok(()) }
        });
        let session = disk.connect();
        assert_eq!(send_in(&session, Some("k"), "", b"row".to_vec()).0, Status::Complete);
        disk.close(&session);
        disk.set(true);
        let (status, reason) = order(&disk, "commit", "k", &[&session]);
        assert_eq!((status, reason.unwrap().code), (Status::Failed, ErrorCode::InternalError), "{step:?}");
        disk.set(false);
        assert_eq!(order(&disk, "commit", "k", &[&session]).0, Status::Complete, "{step:?}");
        assert_eq!(last(&disk, &session), Some(0), "{step:?}");
    }
}

#[test]
fn a_client_that_the_window_of_its_connection_keeps_waiting_is_counted() {
    // While the switch is on, the disk blocks each append, so the session waits for the sink and
    // admits no stream.
    let broken = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&broken);
    let disk = Broken::with(broken, move |step, _| {
        while step == Step::Append && now.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    });
    let session = disk.connect();
    assert_eq!(send(&session, 2 << 20).0, Status::Complete);
    let until = |series: &str, mut act: Box<dyn FnMut() + '_>| {
        let since = Instant::now();
        while disk.metric(series) == 0 {
            assert!(since.elapsed() < Duration::from_secs(60), "{series}");
            act();
        }
    };
    let blocked = "penstock_pipestream_client_blocked_total{window=\"connection_bytes\"}";
    assert_eq!(disk.metric(blocked), 0);
    disk.set(true);
    let mut tickets = Vec::new();
    let mut start = |data: bytes::Bytes| {
        tickets.push(block(session.send(EntityDraft::default(), Payload::bytes(data))).unwrap());
    };
    until("penstock_sink_waits_total", Box::new(|| start(bytes::Bytes::from_static(b"row"))));
    // Each payload fits into the window of its stream, but all together do not fit into the
    // connection's.
    let large = bytes::Bytes::from(vec![7; 900 << 10]);
    let sending = (0..60).map(|_| {
        let (session, payload) = (session.clone(), Payload::bytes(large.clone()));
        async move { session.send(EntityDraft::default(), payload).await }
    });
    let sending = penstock_io::runtime::spawn(futures_util::future::try_join_all(sending)).unwrap();
    until(blocked, Box::new(|| thread::sleep(Duration::from_millis(1))));
    disk.set(false);
    tickets.extend(block(sending).unwrap().unwrap());
    for ticket in tickets {
        assert_eq!(block(session.wait_resolved(ticket.key)).unwrap().status, Status::Complete);
    }
    disk.close(&session);
}

#[test]
fn a_session_whose_id_was_used_too_often_is_refused_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let sink = FolderSink::open(dir.path(), None).unwrap();
    let id = "11111111111111111111111111111111";
    session_folders(id).for_each(|name| fs::create_dir(dir.path().join(name)).unwrap());
    let session = NewSession {
        id: id.into(),
        control: Arc::new(RecordingControl::default()),
        defer: None,
        certificate: None,
        handle: None,
    };
    let refused = open(sink.shared.get().unwrap(), session, None).unwrap_err();
    let reason = format!("the session ID {id} was used 1000 times");
    let expected = penstock_pipestream::Error::from(penstock_pipestream::LimitError::SessionFolder { reason });
    assert_eq!(expected.code(), ErrorCode::EntityInvalid);
    assert!(matches!(&refused, crate::Error::Protocol(error) if *error == expected), "{refused:?}");
}
