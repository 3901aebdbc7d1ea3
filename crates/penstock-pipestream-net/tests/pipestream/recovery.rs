//! Sessions that outlive their process, with a sink that refuses and delays: a process must keep
//! them for the next one.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use penstock_io::DriverError as _;
use penstock_io::tls::{ClientTls, Identity, ServerTls, Trust};
use penstock_pipestream_net::port::{
    Attempt, BoxFuture, EntityBatch, EntitySink, NewSession, OpenSession, RecoveredSession, SessionControl,
    SessionRecovery, SinkEvent, SinkSession, Spool,
};
use penstock_pipestream_net::{
    Client, CompletionMode, CompletionPolicy, EntityDraft, EntityHeader, EntityKey, Error, ErrorCode, FailureAction,
    Payload, Reason, Result, Server, ServerOptions, SessionHandle, SessionOptions, Status,
};
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::common::{PATIENCE, anywhere, block, container, draft, eventually};

/// What a sink does with a payload instead of completing it.
#[derive(Debug)]
enum Verdict {
    Fail,
    Wait,
}

/// The sink of one server, which records its calls.
#[derive(Debug, Default)]
struct Memory {
    told: Mutex<Vec<String>>,
    /// Whether it refuses to open sessions of earlier servers.
    refuses: bool,
    /// Whether it cannot write the last line of a session's list.
    is_full: bool,
    /// The verdicts on the next payloads of parts. All other payloads are COMPLETE.
    verdicts: Mutex<VecDeque<Verdict>>,
}

impl Memory {
    fn note(&self, what: impl Into<String>) {
        self.told.lock().unwrap().push(what.into());
    }

    fn has(&self, what: &str) -> bool {
        self.told.lock().unwrap().iter().any(|told| told == what)
    }
}

#[derive(Debug)]
struct Handle(Arc<Memory>);

/// One session's place in the sink.
#[derive(Debug)]
struct Place {
    sink: Arc<Memory>,
    control: Arc<dyn SessionControl>,
    done: Mutex<Option<oneshot::Sender<()>>>,
}

/// A session of an earlier server.
#[derive(Debug)]
struct Earlier(Arc<Memory>);

fn open(sink: &Arc<Memory>, session: NewSession) -> BoxFuture<'static, Result<OpenSession>> {
    let (done, ended) = oneshot::channel();
    let place = Place { sink: Arc::clone(sink), control: session.control, done: Mutex::new(Some(done)) };
    Box::pin(std::future::ready(Ok(OpenSession { sink: Arc::new(place), done: ended })))
}

impl EntitySink for Handle {
    fn open(&self, session: NewSession) -> BoxFuture<'static, Result<OpenSession>> {
        open(&self.0, session)
    }

    fn recovery(&self) -> Option<&dyn SessionRecovery> {
        Some(self)
    }
}

impl SessionRecovery for Handle {
    fn find(&self, _: &str, _: Option<&str>, _: &HashSet<EntityKey>) -> io::Result<Box<dyn RecoveredSession>> {
        self.0.note("found");
        Ok(Box::new(Earlier(Arc::clone(&self.0))))
    }
}

impl RecoveredSession for Earlier {
    fn has(&self, _key: EntityKey) -> bool {
        false
    }

    fn entities(&self) -> Vec<(EntityKey, Arc<EntityHeader>)> {
        Vec::new()
    }

    fn is_closed(&self) -> bool {
        false
    }

    fn close_list(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn open(self: Box<Self>, session: NewSession) -> BoxFuture<'static, Result<OpenSession>> {
        if self.0.refuses {
            self.0.note("refused");
            return Box::pin(std::future::ready(Err(Error::io("cannot open the session's place", "the disk is gone"))));
        }
        open(&self.0, session)
    }
}

impl SinkSession for Place {
    fn deliver(&self, entities: EntityBatch<'_>) {
        for entity in entities {
            let is_part = entity.header().content_type == "x/y";
            let Some(parts) = entity.into_parts() else { continue };
            match is_part.then(|| self.sink.verdicts.lock().unwrap().pop_front()).flatten() {
                None => self.control.complete(vec![parts.attempt]),
                Some(Verdict::Wait) => {}
                Some(Verdict::Fail) => {
                    let reason = Reason { code: ErrorCode::EntityInvalid, message: "unreadable".to_owned() };
                    self.control.fail(parts.attempt, reason);
                }
            }
        }
    }

    fn observe(&self, events: Vec<SinkEvent>) -> Option<BoxFuture<'_, ()>> {
        for event in events {
            match event {
                SinkEvent::Admitted { attempt, dehydrated: false, .. } => {
                    self.sink.note(format!("a part after {}", attempt.failures));
                }
                SinkEvent::Resolved { status, parent_id, failures, .. } if parent_id != 0 => {
                    self.sink.note(format!("{status} after {failures}"));
                }
                SinkEvent::Closed(code) => self.sink.note(format!("closed {}", code.code())),
                SinkEvent::Admitted { .. }
                | SinkEvent::Resolved { .. }
                | SinkEvent::AttemptFailed { .. }
                | SinkEvent::Gathered { .. } => {}
            }
        }
        None
    }

    fn spool(&self, _attempt: Attempt) -> io::Result<Spool> {
        tempfile::tempfile().map(Spool::anonymous)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(done) = self.done.lock().unwrap().take().filter(|_| !self.sink.is_full) {
            let _ = done.send(());
        }
    }
}

/// A folder that servers use one after another.
struct Home {
    dir: TempDir,
    server: Option<Server>,
    address: SocketAddr,
    client: Client,
}

fn serve(dir: &Path, address: SocketAddr, sink: &Arc<Memory>) -> Result<Server> {
    let tls = ServerTls { identity: Identity::Development { dir: dir.join("tls") }, client_ca: None };
    let mut options = ServerOptions { state: Some(dir.join("state")), ..ServerOptions::new(address.into(), tls) };
    options.session.session.capabilities.layer2 = true;
    options.session.survives = Some(PATIENCE);
    Server::bind(options, Arc::new(Handle(Arc::clone(sink))))
}

/// Try again while an earlier server or client still has its folder.
fn again<T>(mut attempt: impl FnMut() -> Result<T>) -> T {
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
    fn new(sink: Memory) -> (Self, Arc<Memory>) {
        let (dir, sink) = (tempfile::tempdir().unwrap(), Arc::new(sink));
        let server = serve(dir.path(), anywhere(), &sink).unwrap();
        let trust = Trust::Fingerprint(server.fingerprint().unwrap());
        let client = Client::new(&ClientTls { trust, identity: None }).unwrap();
        let address = server.local_addr().unwrap();
        (Self { dir, server: Some(server), address, client }, sink)
    }

    /// Drop the server, and start another one with this sink.
    fn restart(&mut self, sink: Memory) -> Arc<Memory> {
        let sink = Arc::new(sink);
        self.server = None;
        self.server = Some(again(|| serve(self.dir.path(), self.address, &sink)));
        sink
    }

    /// Connect a client whose session is in a folder, and survives without a connection for this
    /// long.
    fn connect(&self, survives: Duration) -> SessionHandle {
        let mut options = SessionOptions { survives: Some(survives), ..SessionOptions::default() };
        options.state = Some(self.dir.path().join("sender"));
        options.session.capabilities.layer2 = true;
        again(|| block(self.client.connect(self.address, "localhost", options.clone())))
    }
}

/// Send an entity, and wait until it is COMPLETE.
fn deliver(client: &SessionHandle) {
    let sent = block(client.send(draft("x/y"), Payload::empty())).unwrap();
    assert_eq!(block(client.wait_resolved(sent.key)).unwrap().status, Status::Complete);
}

#[test]
fn a_session_that_the_sink_does_not_open_again_is_tried_again_at_the_next_start() {
    let (mut home, _) = Home::new(Memory::default());
    let client = home.connect(PATIENCE);
    deliver(&client);
    let sink = home.restart(Memory { refuses: true, ..Memory::default() });
    assert_eq!(block(client.closed()).unwrap().code, ErrorCode::InternalError);
    assert!(sink.has("found") && sink.has("refused"));
    assert!(home.restart(Memory::default()).has("found"));
}

#[test]
fn a_session_whose_list_cannot_be_closed_is_closed_at_the_next_start_and_its_records_go_then() {
    let (mut home, first) = Home::new(Memory { is_full: true, ..Memory::default() });
    let client = home.connect(PATIENCE);
    deliver(&client);
    assert_eq!(block(client.close()).unwrap().code, ErrorCode::NoError);
    eventually("the server has not heard of the end", || first.has("closed 0"));
    let second = home.restart(Memory::default());
    assert!(second.has("found"));
    eventually("its list is not closed", || second.has("closed 0"));
    assert!(!home.restart(Memory::default()).has("found"));
}

#[test]
fn a_client_whose_server_is_away_for_too_long_keeps_its_session_for_the_next_process() {
    let (mut home, _) = Home::new(Memory::default());
    let client = home.connect(Duration::from_millis(200));
    let session = client.id().unwrap();
    deliver(&client);
    home.server = None;
    assert_eq!(block(client.closed()).unwrap().code, ErrorCode::IdleTimeout);
    drop(client);
    home.restart(Memory::default());
    let client = home.connect(PATIENCE);
    assert!(client.resumed().unwrap());
    assert_eq!(client.id().unwrap(), session);
    deliver(&client);
    assert_eq!(block(client.close()).unwrap().code, ErrorCode::NoError);
    assert!(!home.connect(PATIENCE).resumed().unwrap());
}

#[test]
fn how_often_a_part_has_failed_is_known_to_the_next_server() {
    let policy = CompletionPolicy {
        mode: Some(CompletionMode::Lenient.into()),
        max_retries: Some(1),
        retry_delay_ms: Some(0),
        timeout_ms: Some(0),
        on_failure: Some(FailureAction::Retry.into()),
        ..CompletionPolicy::default()
    };
    for next in [None, Some(Verdict::Fail)] {
        // The last attempt that the policy allows is under way when the server is dropped.
        let verdicts = Mutex::new([Verdict::Fail, Verdict::Wait].into());
        let (mut home, first) = Home::new(Memory { verdicts, ..Memory::default() });
        let client = home.connect(PATIENCE);
        let whole = block(client.send(EntityDraft { policy: Some(policy), ..container() }, Payload::empty())).unwrap();
        let part = EntityDraft { parent: Some(whole.key), ..draft("x/y") };
        let part = block(client.send(part, Payload::bytes(&b"part"[..]))).unwrap();
        eventually("it is not sent again", || first.has("a part after 1"));
        let expected = if next.is_some() { Status::Failed } else { Status::Complete };
        let second = home.restart(Memory { verdicts: Mutex::new(next.into_iter().collect()), ..Memory::default() });
        let end = block(client.wait_resolved(part.key)).unwrap();
        assert_eq!((end.status, end.attempts), (expected, 2));
        assert!(second.has("a part after 1"));
        eventually("the sink is not told of its end", || second.has(&format!("{expected} after 1")));
        block(client.end_children(whole.key)).unwrap();
        assert_eq!(block(client.close()).unwrap().code, ErrorCode::NoError);
    }
}
