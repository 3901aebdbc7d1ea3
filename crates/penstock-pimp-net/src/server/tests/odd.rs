//! Stores that are slow, fail, or lose chunks: responses must not claim anything untrue.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::Full;
use hyper::Request;
use penstock_io::Addresses;
use penstock_pimp::{Job, JobId};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::Semaphore;

use super::{
    Buffer, DiskStore, GRACE, JSON, MemoryStore, Server, Store, WRITER, ask, chunk, id, metadata, read, service,
};
use crate::{Change, Usage};
use penstock_io::runtime::{block_on, spawn};

/// A store in memory that counts commits, lets a number of them through, and loses chunks on demand.
#[derive(Debug)]
struct Odd {
    memory: MemoryStore,
    begun: AtomicU64,
    gate: Semaphore,
    loses: AtomicBool,
}

impl Odd {
    fn new(commits: usize) -> Arc<Self> {
        let (begun, gate, loses) = (AtomicU64::new(0), Semaphore::new(commits), AtomicBool::new(false));
        Arc::new(Self { memory: MemoryStore::new(), begun, gate, loses })
    }

    fn begun(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }
}

impl Store for Odd {
    fn load(&self, id: JobId) -> BoxFuture<'_, crate::Result<Option<Job>>> {
        self.memory.load(id)
    }

    fn commit(&self, id: JobId, change: Change) -> BoxFuture<'_, crate::Result<bool>> {
        Box::pin(async move {
            self.begun.fetch_add(1, Ordering::SeqCst);
            self.gate.acquire().await.expect("open").forget();
            self.memory.commit(id, change).await
        })
    }

    fn read(&self, id: JobId, indices: Vec<u32>, most: u64) -> BoxFuture<'_, crate::Result<Vec<Bytes>>> {
        let indices = if self.loses.load(Ordering::SeqCst) { Vec::new() } else { indices };
        self.memory.read(id, indices, most)
    }

    fn sweep(&self, now: u64) -> BoxFuture<'_, crate::Result<()>> {
        self.memory.sweep(now)
    }

    fn usage(&self) -> Usage {
        self.memory.usage()
    }
}

fn request(method: &str, path: &str, body: &str) -> Request<Full<Bytes>> {
    let request = Request::builder().method(method).uri(path).header("authorization", "Bearer writer");
    request.header("content-type", "application/json").body(Full::from(body.to_owned())).expect("valid")
}

#[test]
fn a_write_whose_client_goes_is_stored_before_the_next_change_is_decided() {
    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let store = Odd::new(1);
    let service = service(Arc::clone(&store) as Arc<dyn Store>);
    let job = format!("/pimp/{}", id(1));
    let chunks = json!({"chunks": [metadata(id(1), "\"identity\""), chunk(id(1), 1, &"x".repeat(100_000), false)]});
    let changing = async move {
        let all = service.changes.bodies.free();
        assert_eq!(service.respond(request("PUT", &job, ""), LOCAL).await.status(), 201);
        let mut write =
            Box::pin(service.respond(request("POST", &format!("{job}/chunks"), &chunks.to_string()), LOCAL));
        while store.begun() < 2 {
            tokio::select! {
                biased;
                _ = &mut write => panic!("the store has not answered"),
                () = tokio::task::yield_now() => {}
            }
        }
        drop(write);
        let (other, path) = (Arc::clone(&service), format!("{job}/cancel"));
        let cancel = spawn(async move { other.respond(request("POST", &path, ""), LOCAL).await.status() })?;
        let held = service.changes.bodies.free() < all;
        store.gate.add_permits(2);
        let status = cancel.await.expect("answered");
        let stored = store.load(id(1)).await?.expect("made");
        Ok::<_, crate::Error>((held, status, stored.indices().count(), service.changes.bodies.free() == all))
    };
    let (held, status, chunks, free) = block_on(changing).expect("runs").expect("stored");
    assert!(held, "what is on its way to the store is counted");
    assert_eq!((status.as_u16(), chunks, free), (200, 2, true));
}

#[test]
fn cancelling_again_or_too_late_writes_nothing() {
    let store = Odd::new(100);
    let server = Server::over(service(Arc::clone(&store) as Arc<dyn Store>), None);
    for (number, done) in [(1, false), (2, true)] {
        server.create(id(number));
        let chunks = [metadata(id(number), "\"identity\""), chunk(id(number), 1, "x", done)];
        assert_eq!(server.write(id(number), &chunks).status, 201);
    }
    let before = store.begun();
    for (number, cancelled) in [(1, true), (1, true), (2, false)] {
        let answer = server.ask("POST", &format!("/pimp/{}/cancel", id(number)), &[WRITER], b"");
        assert_eq!((answer.status, answer.json()), (200, json!({"cancelled": cancelled})));
    }
    assert_eq!(store.begun() - before, 1);
}

#[test]
fn a_job_whose_chunk_the_store_has_lost_is_lost() {
    let store = Odd::new(100);
    let server = Server::over(service(Arc::clone(&store) as Arc<dyn Store>), None);
    server.create(id(1));
    assert_eq!(server.write(id(1), &[metadata(id(1), "\"identity\"")]).status, 201);
    let job = format!("/pimp/{}", id(1));
    store.loses.store(true, Ordering::SeqCst);
    let poll = server.get(&job, &[]);
    assert_eq!((poll.status, &poll.json()["code"]), (410, &json!("LOST")));
    assert!(poll.json()["error"].as_str().is_some_and(|why| why.contains("chunk 0")), "it says which");
    store.loses.store(false, Ordering::SeqCst);
    let write = server.write(id(1), &[chunk(id(1), 1, "x", true)]);
    assert_eq!((write.status, &write.json()["code"]), (410, &json!("LOST")), "the writer is told as well");
}

fn health(server: &Server) -> (u16, String) {
    let address = server.buffer.metrics_address().expect("served");
    let answer = ask(address, "GET", "/healthz", &[], b"").expect("answered");
    (answer.status, String::from_utf8(answer.body).expect("text"))
}

fn with_metrics(store: Arc<dyn Store>) -> Server {
    let (service, free) = (service(store), Addresses::from(([127, 0, 0, 1], 0)));
    let buffer = Buffer::bind(&service, free.clone(), None, Some(free), Buffer::CONNECTIONS).expect("bound");
    Server { service, buffer, _folder: None }
}

#[test]
fn health_says_why_the_store_takes_nothing_and_when_it_does_again() {
    let parent = TempDir::new().expect("a folder");
    let (folder, away) = (parent.path().join("store"), parent.path().join("away"));
    let store = Arc::new(DiskStore::open(&folder).expect("fresh"));
    let server = with_metrics(Arc::clone(&store) as Arc<dyn Store>);
    assert_eq!(health(&server), (200, "ok\n".to_owned()));
    std::fs::rename(&folder, &away).expect("moved");
    assert_eq!(server.ask("PUT", &format!("/pimp/{}", id(1)), &[WRITER], b"").status, 503);
    let (status, why) = health(&server);
    assert!(status == 503 && why.contains("the store takes no writes") && why.contains("No such file"), "{why}");
    let address = server.buffer.metrics_address().expect("served");
    let page = ask(address, "GET", "/metrics", &[], b"").expect("answered");
    assert!(String::from_utf8_lossy(&page.body).contains("penstock_pimp_store_failing 1"));
    std::fs::rename(&away, &folder).expect("moved");
    block_on(async move { store.sweep(0).await }).expect("runs").expect("swept");
    assert_eq!(health(&server), (200, "ok\n".to_owned()));
    server.create(id(1));
}

#[test]
fn health_says_that_the_buffer_ends_while_requests_still_run() {
    let server = with_metrics(Arc::new(MemoryStore::new()));
    server.create(id(1));
    let body = json!({"chunks": [metadata(id(1), "\"identity\"")]}).to_string();
    let mut slow = TcpStream::connect(server.buffer.address()).expect("connected");
    let head = format!("POST /pimp/{}/chunks HTTP/1.1\r\nHost: x\r\n{WRITER}\r\n{JSON}", id(1));
    write!(slow, "{head}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len()).expect("written");
    // The head was read by then, because connections are accepted in order.
    assert_eq!(server.get(&format!("/pimp/{}", id(1)), &[]).status, 200);
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| server.buffer.close(GRACE));
        while health(&server) != (503, "stopping\n".to_owned()) {
            std::thread::yield_now();
        }
        slow.write_all(body.as_bytes()).expect("written");
        assert_eq!(read(slow).expect("answered").status, 201);
        assert!(closing.join().expect("closed").is_ok());
    });
}
