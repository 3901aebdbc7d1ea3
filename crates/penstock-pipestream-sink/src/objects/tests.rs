//! Real sessions over a store whose requests fail one by one.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::stream::{BoxStream, TryStreamExt as _};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt as _,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use penstock_io::runtime::wait;
use penstock_io::storage::{ObjectPrefix, StorageOptions};
use penstock_io::tls::{ClientTls, Identity, ServerTls, Trust};
use penstock_pipestream::reference::{CONTENT_TYPE, Location, Reference};
use penstock_pipestream::{ErrorCode, Reason, Status};
use penstock_pipestream_net::port::{EntitySink, NewSession, OpenSession, SinkEvent};
use penstock_pipestream_net::{Client, EntityDraft, Payload, Server, ServerOptions, SessionHandle, SessionOptions};
use serde_json::Value;
use tempfile::TempDir;

use crate::folder::tests::recorded::RecordingControl;
use crate::objects::ObjectSink;
use crate::objects::list::{List, close_abandoned};
use crate::read::{ClosedSession, Journal, ObjectReader, PayloadRange, Store, closed_sessions};
use crate::references::References;

/// The kind of a request to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Put,
    /// The answer to a put that the store has carried out.
    Answer,
    Part,
    Complete,
    Get,
}

type Fault = dyn Fn(Request, &str) -> bool + Send + Sync;

/// A store in memory that refuses the requests which the fault selects.
#[derive(Clone)]
struct Faulty {
    inner: Arc<InMemory>,
    fault: Arc<Fault>,
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

impl Faulty {
    fn check(&self, request: Request, path: &Path) -> Result<()> {
        if (self.fault)(request, path.as_ref()) {
            return Err(object_store::Error::Generic { store: "test", source: "503 Slow Down".into() });
        }
        Ok(())
    }
}

#[async_trait::async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.check(Request::Put, path)?;
        let put = self.inner.put_opts(path, payload, options).await?;
        self.check(Request::Answer, path)?;
        Ok(put)
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let inner = self.inner.put_multipart_opts(path, options).await?;
        Ok(Box::new(FaultyUpload { inner, store: self.clone(), path: path.clone() }))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.check(Request::Get, path)?;
        self.inner.get_opts(path, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[derive(Debug)]
struct FaultyUpload {
    inner: Box<dyn MultipartUpload>,
    store: Faulty,
    path: Path,
}

#[async_trait::async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        match self.store.check(Request::Part, &self.path) {
            Ok(()) => self.inner.put_part(data),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.store.check(Request::Complete, &self.path)?;
        self.inner.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}

/// Return a prefix in a store in memory that refuses the requests which the fault selects.
fn faulty(fault: impl Fn(Request, &str) -> bool + Send + Sync + 'static) -> ObjectPrefix {
    ObjectPrefix::of(Arc::new(Faulty { inner: Arc::new(InMemory::new()), fault: Arc::new(fault) }), "sink")
}

fn block<F: Future>(future: F) -> F::Output {
    wait(future, Some(Instant::now() + Duration::from_secs(60)), &mut || Ok(())).expect("within a minute")
}

/// A server with a [`Faulty`] store, whose requests fail only while `broken` is set.
struct Broken {
    store: Arc<InMemory>,
    server: Server,
    client: Client,
    address: SocketAddr,
    broken: Arc<AtomicBool>,
    _state: TempDir,
}

impl Broken {
    fn at(fault: impl Fn(Request, &str) -> bool + Send + Sync + 'static) -> Self {
        Self::touching(Duration::MAX, fault)
    }

    fn touching(touch: Duration, fault: impl Fn(Request, &str) -> bool + Send + Sync + 'static) -> Self {
        Self::with(References::keep(), touch, fault)
    }

    fn with(
        references: References,
        touch: Duration,
        fault: impl Fn(Request, &str) -> bool + Send + Sync + 'static,
    ) -> Self {
        let broken = Arc::new(AtomicBool::new(false));
        let now = Arc::clone(&broken);
        let store = Arc::new(InMemory::new());
        let fault = move |request, path: &str| now.load(Ordering::SeqCst) && fault(request, path);
        let faulty = Faulty { inner: Arc::clone(&store), fault: Arc::new(fault) };
        let sink = ObjectSink::touching(ObjectPrefix::of(Arc::new(faulty), "sink"), None, references, touch).unwrap();
        let state = tempfile::tempdir().unwrap();
        let tls = ServerTls { identity: Identity::Development { dir: state.path().to_owned() }, client_ca: None };
        let server = Server::bind(ServerOptions::new((Ipv4Addr::LOCALHOST, 0).into(), tls), sink).unwrap();
        let trust = Trust::Fingerprint(server.fingerprint().unwrap());
        let client = Client::new(&ClientTls { trust, identity: None }).unwrap();
        let address = server.local_addr().unwrap();
        Self { store, server, client, address, broken, _state: state }
    }

    fn connect(&self) -> SessionHandle {
        block(self.client.connect(self.address, "localhost", SessionOptions::default())).unwrap()
    }

    fn set(&self, broken: bool) {
        self.broken.store(broken, Ordering::SeqCst);
    }

    /// Close a session, then shut down the server, which writes everything first.
    fn close(&self, session: &SessionHandle) {
        assert_eq!(block(session.close()).unwrap().code, ErrorCode::NoError);
        block(self.server.shutdown(Duration::from_secs(30))).unwrap();
    }

    fn log(&self, session: &SessionHandle) -> Option<Vec<Value>> {
        let path = Path::from(format!("sink/{}/entities.jsonl", session.id().unwrap()));
        let list = block(async { self.store.get(&path).await.ok()?.bytes().await.ok() })?;
        Some(list.split_inclusive(|byte| *byte == b'\n').map(|line| serde_json::from_slice(line).unwrap()).collect())
    }

    /// Return the payload objects of a session, and the number of pieces of all lists.
    fn objects(&self, session: &SessionHandle) -> (Vec<(String, u64)>, usize) {
        let found: Vec<ObjectMeta> = block(self.store.list(None).try_collect()).unwrap();
        let below = format!("sink/{}/", session.id().unwrap());
        let name =
            |each: &ObjectMeta| each.location.as_ref().strip_prefix(&below).map(|name| (name.to_owned(), each.size));
        let mut payloads: Vec<_> = found.iter().filter_map(name).filter(|(name, _)| name != "entities.jsonl").collect();
        payloads.sort();
        (payloads, found.iter().filter(|each| each.location.as_ref().starts_with("sink/.open/")).count())
    }
}

fn send(session: &SessionHandle, size: usize) -> (Status, Option<Reason>) {
    let ticket = block(session.send(EntityDraft::default(), Payload::bytes(vec![7; size]))).unwrap();
    let resolution = block(session.wait_resolved(ticket.key)).unwrap();
    (resolution.status, resolution.reason)
}

fn statuses(log: &[Value]) -> Vec<&str> {
    log.iter().filter_map(|line| line["status"].as_str()).collect()
}

#[test]
fn payloads_of_every_size_lie_where_a_folder_has_them() {
    let sink = Broken::at(|_, _| false);
    let session = sink.connect();
    // In memory; a stream; a spool on disk; exactly one part; two whole parts; parts and a remainder.
    let sizes = [0, 10, 300_000, 2_000_000, 8 << 20, 16 << 20, (16 << 20) + 5];
    for size in sizes {
        assert_eq!(send(&session, size).0, Status::Complete, "{size}");
    }
    let draft = EntityDraft { chunk_size: Some(3 << 20), ..EntityDraft::default() };
    let chunked = block(session.send(draft, Payload::bytes(vec![7; 10 << 20]))).unwrap();
    assert_eq!(block(session.wait_resolved(chunked.key)).unwrap().status, Status::Complete);
    sink.close(&session);
    let expected: Vec<_> =
        (1..).zip(sizes.into_iter().chain([10 << 20])).map(|(id, size)| (format!("0/{id}"), size as u64)).collect();
    assert_eq!(sink.objects(&session), (expected, 0));
    let log = sink.log(&session).unwrap();
    assert_eq!((log.len(), &log[8]["closed"]), (9, &Value::from(0)));
    for (line, size) in log.iter().zip(sizes) {
        assert_eq!((line["bytes"].as_u64(), line["status"].as_str()), (Some(size as u64), Some("COMPLETE")));
    }
}

#[test]
fn a_request_that_fails_fails_the_entity_and_nothing_else() {
    for request in [Request::Put, Request::Part, Request::Complete] {
        let size = if request == Request::Put { 10 } else { 20 << 20 };
        let sink = Broken::at(move |at, path| at == request && !path.contains(".open"));
        let session = sink.connect();
        assert_eq!(send(&session, size).0, Status::Complete);
        sink.set(true);
        let (status, reason) = send(&session, size);
        let reason = reason.unwrap();
        assert_eq!((status, reason.code), (Status::Failed, ErrorCode::InternalError), "{request:?}");
        assert!(reason.message.contains("the sink cannot store it") && reason.message.contains("503"), "{reason:?}");
        sink.set(false);
        assert_eq!(send(&session, size).0, Status::Complete);
        sink.close(&session);
        assert_eq!(sink.objects(&session), (vec![("0/1".into(), size as u64), ("0/3".into(), size as u64)], 0));
        assert_eq!(statuses(&sink.log(&session).unwrap()), ["COMPLETE", "FAILED", "COMPLETE"], "{request:?}");
    }
}

#[test]
fn a_fetched_object_that_cannot_be_put_leaves_no_message() {
    let source = tempfile::tempdir().unwrap();
    std::fs::write(source.path().join("object"), b"bytes").unwrap();
    let folder = format!("file://{}", source.path().display());
    let references = References::fetch(std::slice::from_ref(&folder), &StorageOptions::default(), 1 << 20).unwrap();
    let sink =
        Broken::with(references, Duration::MAX, |request, path| request == Request::Put && path.ends_with("/0/1"));
    let session = sink.connect();
    let object = Location::parse(&format!("{folder}/object")).unwrap();
    let message = Reference::new(object.to_message()).unwrap().encode().unwrap();
    sink.set(true);
    let draft = EntityDraft { content_type: CONTENT_TYPE.to_owned(), ..EntityDraft::default() };
    let (status, reason) = deliver(&session, draft, message.to_vec());
    assert!(status == Status::Failed && reason.unwrap().message.contains("503"));
    sink.close(&session);
    assert_eq!(sink.objects(&session), (vec![], 0));
}

#[test]
fn an_entity_whose_line_cannot_be_put_is_failed_and_leaves_no_object() {
    let sink = Broken::at(|request, path| request == Request::Put && path.contains(".open"));
    let session = sink.connect();
    sink.set(true);
    assert_eq!(send(&session, 10).0, Status::Failed);
    sink.set(false);
    assert_eq!(send(&session, 10).0, Status::Complete);
    sink.close(&session);
    assert_eq!(sink.objects(&session), (vec![("0/2".into(), 10)], 0));
    let log = sink.log(&session).unwrap();
    assert_eq!((statuses(&log), &log.last().unwrap()["closed"]), (vec!["FAILED", "COMPLETE"], &Value::from(0)));
}

#[test]
fn a_list_that_cannot_be_put_leaves_the_session_open_with_all_that_was_acknowledged() {
    for fault in [Request::Put, Request::Get] {
        let sink = Broken::at(move |request, path| {
            request == fault && (fault == Request::Get || path.ends_with("entities.jsonl"))
        });
        let session = sink.connect();
        assert_eq!(send(&session, 10).0, Status::Complete);
        sink.set(true);
        sink.close(&session);
        assert_eq!(sink.log(&session), None);
        let (payloads, pieces) = sink.objects(&session);
        assert_eq!((payloads, pieces), (vec![("0/1".into(), 10)], 2));
    }
}

#[test]
fn the_driver_hears_whether_the_list_was_put() {
    for refused in [false, true] {
        let place = faulty(move |request, path| refused && request == Request::Put && path.ends_with("entities.jsonl"));
        let sink = ObjectSink::open(place, None).unwrap();
        let session = NewSession {
            id: "11111111111111111111111111111111".into(),
            control: Arc::new(RecordingControl::default()),
            defer: None,
            certificate: None,
            handle: None,
        };
        let OpenSession { sink: session, done } = block(EntitySink::open(&*sink, session)).unwrap();
        assert!(session.observe(vec![SinkEvent::Closed(ErrorCode::NoError)]).is_none());
        drop(session);
        assert_eq!(block(done).is_err(), refused);
    }
}

#[test]
fn a_store_that_takes_nothing_refuses_the_session() {
    let sink = Broken::at(|request, _| request == Request::Put);
    sink.set(true);
    let refused = block(sink.client.connect(sink.address, "localhost", SessionOptions::default())).unwrap_err();
    let crate::Error::Closed(reason) = refused else { panic!("{refused:?}") };
    assert_eq!(reason.code, ErrorCode::InternalError);
    // The store's message is in the log; it may contain details that a peer must not see.
    assert_eq!(reason.message, "the sink cannot open the session");
    sink.set(false);
    sink.close(&sink.connect());
}

#[test]
fn a_session_that_is_aborted_has_a_list_that_says_so() {
    let sink = Broken::at(|_, _| false);
    let session = sink.connect();
    assert_eq!(send(&session, 10).0, Status::Complete);
    let reason = Reason { code: ErrorCode::InternalError, message: "gone".into() };
    session.abort(reason).unwrap();
    block(sink.server.shutdown(Duration::from_secs(30))).unwrap();
    let log = sink.log(&session).unwrap();
    assert_eq!((log.len(), &log[1]["closed"]), (2, &Value::from(ErrorCode::InternalError.code())));
}

const COMMIT: &str = "application/vnd.penstock.commit+json";

fn member(content_type: &str) -> EntityDraft {
    let metadata = BTreeMap::from([("penstock.transaction".to_owned(), "job 7".to_owned())]);
    EntityDraft { content_type: content_type.to_owned(), metadata, ..EntityDraft::default() }
}

fn deliver(session: &SessionHandle, draft: EntityDraft, data: Vec<u8>) -> (Status, Option<Reason>) {
    let ticket = block(session.send(draft, Payload::bytes(data))).unwrap();
    let resolution = block(session.wait_resolved(ticket.key)).unwrap();
    (resolution.status, resolution.reason)
}

impl Broken {
    /// Return a session of the transaction that has ended.
    fn prepared(&self) -> SessionHandle {
        let session = self.connect();
        assert_eq!(deliver(&session, member("a/b"), vec![7; 10]).0, Status::Complete);
        self.prepare(&session);
        session
    }

    /// End a session of the transaction.
    fn prepare(&self, session: &SessionHandle) {
        assert_eq!(block(session.close()).unwrap().code, ErrorCode::NoError);
        let marker = session.id().unwrap().to_string();
        let ended = |found: Vec<ObjectMeta>| found.iter().any(|each| each.location.filename() == Some(&marker));
        let since = Instant::now();
        while !ended(block(self.store.list(None).try_collect()).unwrap()) && self.log(session).is_none() {
            assert!(since.elapsed() < Duration::from_secs(60), "the session ends");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Send a commit of sessions, and retry as long as one of them has not ended.
    fn commit(&self, sessions: &[&SessionHandle]) -> (Status, Option<Reason>) {
        let ids: Vec<_> = sessions.iter().map(|session| session.id().unwrap().to_string()).collect();
        let order = serde_json::to_vec(&serde_json::json!({ "sessions": ids })).unwrap();
        let session = self.connect();
        loop {
            let (status, reason) = deliver(&session, member(COMMIT), order.clone());
            if !reason.as_ref().is_some_and(|reason| reason.message.contains("has not ended yet")) {
                block(session.close()).unwrap();
                return (status, reason);
            }
        }
    }

    fn last_line(&self, session: &SessionHandle) -> Option<Value> {
        self.log(session)?.pop()
    }
}

#[test]
fn a_transaction_s_sessions_get_their_lists_together_and_others_are_given_up() {
    let sink = Broken::at(|request, path| request == Request::Put && path.ends_with("entities.jsonl"));
    let (first, second, stray) = (sink.prepared(), sink.prepared(), sink.prepared());
    assert_eq!(sink.log(&first), None, "nobody reads it before the commit");

    // The record exists, then the store fails: the transaction is committed, and the next order completes it.
    sink.set(true);
    let (status, reason) = sink.commit(&[&first, &second]);
    assert_eq!((status, reason.unwrap().code), (Status::Failed, ErrorCode::InternalError));
    assert_eq!(sink.log(&first), None);
    sink.set(false);
    assert_eq!(sink.commit(&[&first, &second]).0, Status::Complete);
    for session in [&first, &second] {
        assert_eq!(sink.last_line(session).unwrap()["closed"], 0);
    }
    assert_eq!(sink.last_line(&stray).unwrap()["closed"], 0x41);

    // A commit of other sessions is refused; a session that arrives later is never read.
    let late = sink.prepared();
    let (status, reason) = sink.commit(&[&first, &late]);
    assert_eq!((status, reason.unwrap().code), (Status::Failed, ErrorCode::Other(0x43)));
    assert_eq!(sink.commit(&[&second, &first]).0, Status::Complete);
    block(sink.server.shutdown(Duration::from_secs(30))).unwrap();
    assert_eq!(sink.last_line(&late).unwrap()["closed"], 0x41);
    let left: Vec<ObjectMeta> = block(sink.store.list(Some(&Path::from("sink/.open"))).try_collect()).unwrap();
    let id = first.id().unwrap().to_string();
    assert!(left.iter().all(|piece| !piece.location.as_ref().contains(&id)), "no piece of its list is left");
}

#[test]
fn a_list_that_another_server_closes_lacks_the_lines_of_failed_puts() {
    let lost = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&lost);
    let place = faulty(move |request, _| request == Request::Answer && now.load(Ordering::SeqCst));
    let mut list = List::new(place.clone(), "f00".into());
    block(async {
        for (lines, is_lost) in [("1\n", false), ("2\n", true), ("3\n", true), ("4\n", false), ("5\n", true)] {
            lost.store(is_lost, Ordering::SeqCst);
            assert_eq!(list.append(lines.as_bytes().to_vec()).await.is_err(), is_lost, "{lines}");
        }
        lost.store(false, Ordering::SeqCst);
        list.seal().await.unwrap();
        // A store may carry out a request late.
        let late = place.path(".open/f00/0000000001-0000000002.jsonl");
        place.store().put(&late, PutPayload::from_static(b"3\n")).await.unwrap();
        close_abandoned(&place, "f00", b"end\n".to_vec()).await.unwrap();
        let list = place.store().get(&place.path("f00/entities.jsonl")).await.unwrap().bytes().await.unwrap();
        assert_eq!(list, "1\n4\nend\n");
    });
}

#[test]
fn a_committed_session_has_one_line_for_each_entity_even_if_answers_to_puts_are_lost() {
    let sink = Broken::at(|request, path| request == Request::Answer && path.contains(".open"));
    let session = sink.connect();
    for (is_lost, status) in [(false, Status::Complete), (true, Status::Failed), (false, Status::Complete)] {
        sink.set(is_lost);
        assert_eq!(deliver(&session, member("a/b"), vec![7; 10]).0, status);
    }
    sink.prepare(&session);
    assert_eq!(sink.commit(&[&session]).0, Status::Complete);
    assert_eq!(statuses(&sink.log(&session).unwrap()), ["COMPLETE", "FAILED", "COMPLETE"]);
}

#[test]
fn readers_see_a_transaction_s_sessions_at_once_or_not_at_all() {
    let puts = AtomicUsize::new(0);
    let sink = Broken::at(move |request, path| {
        let is_list = request == Request::Put && path.ends_with("entities.jsonl");
        is_list && puts.fetch_add(1, Ordering::SeqCst) == 1
    });
    let sessions = [sink.prepared(), sink.prepared()];
    let mut expected = sessions.each_ref().map(|session| session.id().unwrap().to_string());
    expected.sort();
    let place = ObjectPrefix::of(Arc::clone(&sink.store) as Arc<dyn ObjectStore>, "sink");
    let store: Arc<dyn Store> = Arc::new(ObjectReader::open(place).unwrap());
    let journal = Journal::new(Arc::clone(&store)).unwrap();
    let seen = || {
        let mine = |found: Vec<ClosedSession>| {
            let mut ids: Vec<_> = found.into_iter().map(|found| found.id).filter(|id| expected.contains(id)).collect();
            ids.sort();
            ids
        };
        (mine(closed_sessions(&*store).unwrap()), mine(journal.follow(0, 10).unwrap().sessions))
    };
    sink.set(true);
    assert_eq!(sink.commit(&[&sessions[0], &sessions[1]]).0, Status::Failed);
    sink.set(false);
    let closed = sessions.iter().filter(|session| sink.log(session).is_some()).count();
    assert_eq!((closed, seen()), (1, (vec![], vec![])));
    assert_eq!(sink.commit(&[&sessions[0], &sessions[1]]).0, Status::Complete);
    assert_eq!(seen(), (expected.to_vec(), expected.to_vec()));
}

#[test]
fn a_commit_of_a_session_that_the_sink_does_not_know_is_refused() {
    let sink = Broken::at(|_, _| false);
    let session = sink.connect();
    let order = format!("{{\"sessions\":[\"{}\"]}}", "0".repeat(32)).into_bytes();
    let (status, reason) = deliver(&session, member(COMMIT), order);
    assert_eq!(status, Status::Failed);
    assert!(reason.unwrap().message.contains("is not prepared"));
    sink.close(&session);
}

#[test]
fn a_start_brings_to_its_end_what_was_committed() {
    let sink = Broken::at(|request, path| request == Request::Put && path.ends_with("entities.jsonl"));
    let session = sink.prepared();
    sink.set(true);
    assert_eq!(sink.commit(&[&session]).0, Status::Failed);
    // Each start begins at a random position; a hundred of them handle everything.
    for _ in 0..100 {
        ObjectSink::open(ObjectPrefix::of(Arc::clone(&sink.store) as Arc<dyn ObjectStore>, "sink"), None).unwrap();
    }
    assert_eq!(sink.last_line(&session).unwrap()["closed"], 0);
}

#[test]
fn an_open_session_is_touched_now_and_then_and_its_list_is_as_ever() {
    let sink = Broken::touching(Duration::from_millis(10), |_, _| false);
    let session = sink.connect();
    assert_eq!(send(&session, 10).0, Status::Complete);
    let before = sink.objects(&session).1;
    let since = Instant::now();
    while sink.objects(&session).1 < before + 3 {
        assert!(since.elapsed() < Duration::from_secs(60), "an idle session is not touched");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(send(&session, 10).0, Status::Complete);
    sink.close(&session);
    assert_eq!((statuses(&sink.log(&session).unwrap()), sink.objects(&session).1), (vec!["COMPLETE", "COMPLETE"], 0));
}

#[test]
fn what_a_sink_has_written_can_be_read_and_followed() {
    let sink = Broken::at(|_, _| false);
    let session = sink.connect();
    assert_eq!(send(&session, 10).0, Status::Complete);
    assert_eq!(send(&session, 300_000).0, Status::Complete);
    sink.close(&session);
    let id = session.id().unwrap().to_string();
    let place = ObjectPrefix::of(Arc::clone(&sink.store) as Arc<dyn ObjectStore>, "sink");
    let store: Arc<dyn Store> = Arc::new(ObjectReader::open(place).unwrap());
    assert_eq!(store.sessions().unwrap(), std::slice::from_ref(&id));
    let list = store.list(&id).unwrap().unwrap();
    let bytes = store.read_list(&id, 0..list.length + 100).unwrap();
    assert!(bytes.ends_with(b"{\"closed\":0}\n") && bytes.len() as u64 == list.length);
    let wanted = [(1, 0, 10), (2, 299_990, 10)].map(|(entity, offset, length)| PayloadRange {
        file: format!("{id}/0/{entity}"),
        offset,
        length,
    });
    let mut payloads = Vec::new();
    store.read_payloads(&wanted, &mut payloads).unwrap();
    assert_eq!(payloads, vec![7; 20]);
    assert!(store.has(&format!("{id}/0/1")).unwrap() && !store.has(&format!("{id}/0/9")).unwrap());

    // Two readers that follow the same sink see the same order, whichever of them wrote it.
    let (one, two) = (Journal::new(Arc::clone(&store)).unwrap(), Journal::new(Arc::clone(&store)).unwrap());
    let followed = one.follow(0, 10).unwrap();
    assert_eq!(followed.sessions.iter().map(|session| &session.id).collect::<Vec<_>>(), [&id]);
    assert_eq!(two.follow(0, 10).unwrap(), followed);
    store.remove(&id).unwrap();
    assert_eq!(store.sessions().unwrap(), Vec::<String>::new());
}
