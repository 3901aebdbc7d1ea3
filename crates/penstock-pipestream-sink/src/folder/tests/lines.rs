//! Tests of lines that a disk refuses or may have lost: how they are reported, and how their
//! session ends.

use super::*;
use crate::folder::stored::StoredPayload;
use crate::references::ReferenceFields;

#[path = "../../../tests/pipestream/logged.rs"]
mod logged;

const ID: &str = "11111111111111111111111111111111";

fn attempt(entity: u32) -> Attempt {
    Attempt::first(EntityKey { scope: 0, scope_use: 0, entity, entity_use: 0 })
}

/// A session of a sink, without a driver.
struct SingleSession {
    dir: TempDir,
    session: FolderSession,
    recorded: Arc<RecordingControl>,
    ended: oneshot::Receiver<()>,
    _sink: Arc<FolderSink>,
}

impl SingleSession {
    fn with(fault: impl Fn(Step, &Path) -> io::Result<()> + Send + Sync + 'static) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sink = FolderSink::with_faults(dir.path(), None, References::keep(), Faults::new(fault)).unwrap();
        let recorded = Arc::<RecordingControl>::default();
        let control: Arc<dyn SessionControl> = Arc::<RecordingControl>::clone(&recorded);
        let session = NewSession { id: ID.into(), control, defer: None, certificate: None, handle: None };
        let (session, ended) = open(sink.shared.get().unwrap(), session, None).unwrap();
        Self { dir, session, recorded, ended, _sink: sink }
    }

    /// Store a payload that is complete and has the expected checksum.
    fn store(&self, entity: u32) {
        self.store_referred(entity, None);
    }

    /// Store the object to which an entity refers, if `reference` says so.
    fn store_referred(&self, entity: u32, reference: Option<ReferenceFields>) {
        let header = Arc::new(EntityHeader { entity_id: entity, ..EntityHeader::default() });
        let admitted = SinkEvent::Admitted { attempt: attempt(entity), header, dehydrated: false, redeems: false };
        assert!(self.session.observe(vec![admitted]).is_none());
        let (mut file, temp) = self.session.create(attempt(entity)).unwrap();
        file.write_all(b"bytes").unwrap();
        let reference = reference.map(Arc::new);
        let stored = StoredPayload { temp: Some(temp), bytes: 6, sha256: [7; 32], synced: false, reference };
        self.session.stored(attempt(entity), stored);
    }

    fn fail(&self, entity: u32) {
        let reason = Some(Reason { code: ErrorCode::IntegrityError, message: "why".to_owned() });
        let resolved = SinkEvent::Resolved {
            key: attempt(entity).key,
            parent_id: 0,
            status: Status::Failed,
            reason,
            failures: 0,
            claim: None,
            header: None,
        };
        assert!(self.session.observe(vec![resolved]).is_none());
    }

    fn recorded(&self) -> Vec<String> {
        std::mem::take(&mut *penstock_io::sync::lock(&self.recorded.0))
    }

    /// Return the names of the files in the root scope's folder.
    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path().join(ID).join("0")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn list(&self) -> String {
        fs::read_to_string(self.dir.path().join(ID).join(LOG)).unwrap()
    }
}

/// Return a switch, and a fault that the list has at one step while the switch is on.
fn list_fails_at(
    step: Step,
) -> (Arc<AtomicBool>, impl Fn(Step, &Path) -> io::Result<()> + Send + Sync + Clone + 'static) {
    let broken = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&broken);
    let fault = move |at: Step, path: &Path| {
        let hit = at == step && path.ends_with(LOG) && now.load(Ordering::SeqCst);
        if hit { Err(full()) } else { Ok(()) }
    };
    (broken, fault)
}

#[test]
fn nothing_is_complete_behind_lines_that_could_not_be_made_durable() {
    let (broken, fault) = list_fails_at(Step::Sync);
    let alone = SingleSession::with(fault);
    alone.store(1);
    assert!(block(alone.session.flush()));
    assert!(alone.recorded()[0].starts_with("Complete("));
    broken.store(true, Ordering::SeqCst);
    alone.store(2);
    assert!(!block(alone.session.flush()));
    let recorded = alone.recorded();
    assert!(recorded[0].starts_with("Fail") && recorded[1].starts_with("Abort"), "{recorded:?}");
    assert!(recorded[1].contains("entities.jsonl cannot be made durable"), "{recorded:?}");
    // A sync that succeeds does not report what an earlier one has lost.
    broken.store(false, Ordering::SeqCst);
    alone.store(3);
    assert!(!block(alone.session.flush()));
    assert_eq!(alone.recorded(), [""; 0]);
}

/// Return the fields of the line of an entity that refers to a fetched object.
fn fetched() -> Option<ReferenceFields> {
    ReferenceFields::of_line(br#"{"reference":{"stored":"object"}}"#)
}

#[test]
fn a_failed_attempt_leaves_no_file_of_a_fetched_object() {
    let alone = SingleSession::with(all_is_well);
    alone.store_referred(1, fetched());
    assert!(block(alone.session.flush()));
    assert_eq!(alone.files(), ["1", "1.reference"]);
    assert!(alone.session.observe(vec![SinkEvent::AttemptFailed { key: attempt(1).key }]).is_none());
    assert!(block(alone.session.flush()));
    assert_eq!(alone.files(), [""; 0]);
}

#[test]
fn a_fetched_object_that_cannot_be_named_leaves_no_file() {
    let alone = SingleSession::with(|step, _: &Path| if step == Step::Rename { Err(full()) } else { Ok(()) });
    alone.store_referred(1, fetched());
    assert!(block(alone.session.flush()));
    assert!(alone.recorded()[0].starts_with("Fail"));
    assert_eq!(alone.files(), [""; 0]);
}

#[test]
fn entities_whose_lines_could_not_be_made_durable_are_not_counted_as_committed() {
    let (broken, fault) = list_fails_at(Step::Sync);
    let alone = SingleSession::with(fault);
    alone.store(1);
    assert!(block(alone.session.flush()));
    broken.store(true, Ordering::SeqCst);
    alone.store(2);
    assert!(!block(alone.session.flush()));
    let counters = &alone.session.guard.shared.counters;
    assert_eq!((counters.commits.load(Ordering::SeqCst), counters.committed.load(Ordering::SeqCst)), (1, 1));
}

#[test]
fn a_flush_tells_whether_the_failed_lines_are_written() {
    let (broken, fault) = list_fails_at(Step::Append);
    let alone = SingleSession::with(fault);
    broken.store(true, Ordering::SeqCst);
    alone.fail(1);
    assert!(!block(alone.session.flush()));
    assert_eq!(alone.list(), "");
    broken.store(false, Ordering::SeqCst);
    // The lines are retried.
    assert!(block(alone.session.flush()));
    assert!(alone.list().contains("\"status\":\"FAILED\""), "{}", alone.list());
}

#[test]
fn a_last_line_that_could_not_be_made_durable_is_written_again_at_the_end() {
    let (broken, fault) = list_fails_at(Step::Sync);
    let SingleSession { dir, session, recorded: _recorded, ended, _sink } = SingleSession::with(fault);
    let list = || fs::read_to_string(dir.path().join(ID).join(LOG)).unwrap();
    assert!(session.observe(vec![SinkEvent::Gathered { key: None, outcome: Status::Complete }]).is_none());
    broken.store(true, Ordering::SeqCst);
    block(session.close_list());
    assert_eq!(list(), "");
    broken.store(false, Ordering::SeqCst);
    assert!(session.observe(vec![SinkEvent::Closed(ErrorCode::NoError)]).is_none());
    drop(session);
    block(ended).unwrap();
    assert_eq!(list(), "{\"closed\":0}\n");
}

#[test]
fn the_driver_hears_whether_the_list_has_its_last_line() {
    for refused in [false, true] {
        let (broken, fault) = list_fails_at(Step::Append);
        let SingleSession { dir, session, recorded: _recorded, ended, _sink } = SingleSession::with(fault);
        assert!(session.observe(vec![SinkEvent::Closed(ErrorCode::NoError)]).is_none());
        assert!(block(session.flush()));
        broken.store(refused, Ordering::SeqCst);
        drop(session);
        assert_eq!(block(ended).is_err(), refused);
        let list = fs::read_to_string(dir.path().join(ID).join(LOG)).unwrap();
        assert_eq!(list.contains("closed"), !refused);
    }
}

#[test]
fn a_session_whose_list_could_not_be_made_durable_ends_and_its_client_hears_why() {
    let (broken, fault) = list_fails_at(Step::Sync);
    let disk = Broken::with(broken, fault);
    let session = disk.connect();
    disk.set(true);
    let ticket = block(session.send(EntityDraft::default(), Payload::bytes(vec![7; 10]))).unwrap();
    // The client may not learn how the entity ended.
    if let Ok(resolution) = block(session.wait_resolved(ticket.key)) {
        assert_eq!(resolution.status, Status::Failed);
    }
    let end = block(session.closed()).unwrap();
    assert_eq!(end.code, ErrorCode::InternalError);
    assert!(end.message.contains("entities.jsonl cannot be made durable"), "{end:?}");
    disk.set(false);
    disk.settled();
    assert!(disk.payloads(&session).is_empty());
    assert!(disk.log(&session).iter().all(|line| line.get("closed").is_none()));
}

/// Return a server that stores its sessions on disk.
fn serve(dir: &Path, fault: impl Fn(Step, &Path) -> io::Result<()> + Send + Sync + Clone + 'static) -> Server {
    let since = Instant::now();
    loop {
        let tls = ServerTls { identity: Identity::Development { dir: dir.join("tls") }, client_ca: None };
        let listen = (Ipv4Addr::LOCALHOST, 0).into();
        let mut options = ServerOptions { state: Some(dir.join("state")), ..ServerOptions::new(listen, tls) };
        options.session.session.capabilities.layer2 = true;
        options.session.survives = Some(Duration::from_millis(200));
        let faults = Faults::new(fault.clone());
        let sink = FolderSink::with_faults(&dir.join("sink"), None, References::keep(), faults).unwrap();
        // The dropped server may still hold the lock of the state folder.
        match Server::bind(options, sink) {
            Ok(server) => return server,
            Err(error) => assert!(since.elapsed() < Duration::from_secs(60), "{error}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn connect(server: &Server) -> SessionHandle {
    let trust = Trust::Fingerprint(server.fingerprint().unwrap());
    let client = Client::new(&ClientTls { trust, identity: None }).unwrap();
    let mut options = SessionOptions { survives: Some(Duration::from_secs(60)), ..SessionOptions::default() };
    options.session.capabilities.layer2 = true;
    block(client.connect(server.local_addr().unwrap(), "localhost", options)).unwrap()
}

fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is() {
        assert!(since.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn kept(dir: &Path) -> usize {
    logged::count(&dir.join("state"))
}

fn list_of(dir: &Path, session: &str) -> String {
    fs::read_to_string(dir.join("sink").join(session).join(LOG)).unwrap()
}

fn all_is_well(_: Step, _: &Path) -> io::Result<()> {
    Ok(())
}

#[test]
fn a_list_that_a_full_disk_has_left_open_is_closed_by_the_next_server() {
    let dir = tempfile::tempdir().unwrap();
    let (broken, fault) = list_fails_at(Step::Append);
    let server = serve(dir.path(), fault);
    let session = connect(&server);
    let id = session.id().unwrap().to_string();
    assert_eq!(send(&session, 10).0, Status::Complete);
    broken.store(true, Ordering::SeqCst);
    close_gracefully(&session);
    eventually("the server goes on", || server.counters().unwrap().connections_open == 0);
    assert!(!list_of(dir.path(), &id).contains("closed"));
    assert_eq!(kept(dir.path()), 1, "its records are what the list can be closed with");
    drop(server);
    let server = serve(dir.path(), all_is_well);
    eventually("the session has not ended", || kept(dir.path()) == 0);
    let list = list_of(dir.path(), &id);
    assert_eq!((list.lines().count(), list.ends_with("{\"closed\":0}\n")), (2, true), "{list}");
    drop(server);
}

#[test]
fn a_session_on_disk_ends_where_its_failed_lines_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let broken = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&broken);
    let server = serve(dir.path(), move |step, _: &Path| {
        let hit = matches!(step, Step::Write | Step::Append) && now.load(Ordering::SeqCst);
        if hit { Err(full()) } else { Ok(()) }
    });
    let session = connect(&server);
    let id = session.id().unwrap().to_string();
    assert_eq!(send(&session, 10).0, Status::Complete);
    broken.store(true, Ordering::SeqCst);
    block(session.send(EntityDraft::default(), Payload::bytes(vec![7; 10]))).unwrap();
    let end = block(session.closed()).unwrap();
    assert_eq!(end.code, ErrorCode::InternalError);
    assert!(end.message.contains("cannot write the outcomes of its entities"), "{end:?}");
    eventually("the server goes on", || server.counters().unwrap().connections_open == 0);
    assert_eq!(kept(dir.path()), 1);
    drop(server);
    let server = serve(dir.path(), all_is_well);
    eventually("the session has not ended", || kept(dir.path()) == 0);
    let list = list_of(dir.path(), &id);
    let statuses = ["COMPLETE", "FAILED"].map(|status| list.matches(&format!("\"status\":\"{status}\"")).count());
    assert_eq!(statuses, [1, 1], "{list}");
    assert!(list.ends_with(&format!("{{\"closed\":{}}}\n", ErrorCode::IdleTimeout.code())), "{list}");
    drop(server);
}
