//! A buffer over real sockets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_io::Addresses;
use penstock_io::tls::{ClientTls, Identity, ServerTls, Trust};
use penstock_pimp::{JobId, Limits};
use serde_json::{Value, json};
use tempfile::TempDir;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;

use super::{Buffer, Service, ServiceConfig};
use crate::{DiskStore, MemoryStore, Store};

mod hostile;
mod keys;
mod odd;
mod redis;
mod slow;

struct Server {
    service: Arc<Service>,
    buffer: Buffer,
    _folder: Option<TempDir>,
}

struct Response {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Response {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&self.body)))
    }

    fn indices(&self) -> Vec<u64> {
        let body = self.json();
        body["chunks"].as_array().expect("chunks").iter().map(|chunk| chunk["index"].as_u64().expect("index")).collect()
    }
}

fn service(store: Arc<dyn Store>) -> Arc<Service> {
    let (limits, allow_origin) = (Limits::default(), Some("https://page.example".parse().expect("valid")));
    Service::new(ServiceConfig { store, limits, jwt_secret: None, allow_origin })
}

impl Server {
    fn over(service: Arc<Service>, folder: Option<TempDir>) -> Self {
        let buffer =
            Buffer::bind(&service, ([127, 0, 0, 1], 0).into(), None, None, Buffer::CONNECTIONS).expect("bound");
        Self { service, buffer, _folder: folder }
    }

    fn memory() -> Self {
        Self::over(service(Arc::new(MemoryStore::new())), None)
    }

    fn disk() -> Self {
        let folder = TempDir::new().expect("a folder");
        Self::over(service(Arc::new(DiskStore::open(folder.path()).expect("fresh"))), Some(folder))
    }

    fn both() -> [Self; 2] {
        [Self::memory(), Self::disk()]
    }

    fn ask(&self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Response {
        ask(self.buffer.address(), method, path, headers, body).expect("answered")
    }

    fn create(&self, id: JobId) {
        assert_eq!(self.ask("PUT", &format!("/pimp/{id}"), &[WRITER], b"").status, 201);
    }

    fn write(&self, id: JobId, chunks: &[Value]) -> Response {
        self.ask(
            "POST",
            &format!("/pimp/{id}/chunks"),
            &[WRITER, JSON],
            json!({"chunks": chunks}).to_string().as_bytes(),
        )
    }

    fn get(&self, path: &str, headers: &[&str]) -> Response {
        self.ask("GET", path, headers, b"")
    }
}

const GRACE: Duration = Duration::from_secs(10);
const WRITER: &str = "Authorization: Bearer writer";
const JSON: &str = "Content-Type: application/json";

fn ask(address: SocketAddr, method: &str, path: &str, headers: &[&str], body: &[u8]) -> std::io::Result<Response> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(40)))?;
    let mut head =
        format!("{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    for header in headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    stream.write_all(head.as_bytes())?;
    stream.write_all(b"\r\n")?;
    stream.write_all(body)?;
    read(stream)
}

fn read(stream: TcpStream) -> std::io::Result<Response> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status =
        line.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let mut headers = Vec::new();
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut body = Vec::new();
    reader.read_to_end(&mut body)?;
    if headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked") {
        body = unchunked(&body).ok_or(std::io::ErrorKind::UnexpectedEof)?;
    }
    Ok(Response { status, headers, body })
}

/// Return a body from its chunked encoding, if the last chunk has arrived.
fn unchunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..end]).ok()?, 16).ok()?;
        rest = &rest[end + 2..];
        if length == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(..length)?);
        rest = rest.get(length + 2..)?;
    }
}

fn id(number: u8) -> JobId {
    JobId::from_random([number; 16])
}

fn chunk(id: JobId, index: u32, value: &str, done: bool) -> Value {
    json!({"jobId": id.to_string(), "index": index, "value": value, "done": done, "error": null, "createdAt": 1})
}

fn metadata(id: JobId, fields: &str) -> Value {
    chunk(id, 0, &format!(r#"{{"contentType":"text/plain","contentEncoding":{fields}}}"#), false)
}

#[test]
fn a_job_is_made_written_polled_and_deleted() {
    for server in Server::both() {
        let id = id(1);
        let job = format!("/pimp/{id}");
        assert_eq!(server.get(&job, &[]).status, 404);
        assert_eq!(server.write(id, &[metadata(id, "\"identity\"")]).status, 404);
        server.create(id);
        assert_eq!(server.ask("PUT", &job, &[WRITER], b"").status, 200);
        assert_eq!(server.ask("PUT", &job, &["Authorization: Bearer other"], b"").status, 409);
        assert_eq!(server.ask("PUT", &job, &[], b"").status, 401);
        let poll = server.get(&format!("{job}?from=0"), &[]);
        assert_eq!((poll.status, poll.json()), (200, json!({"chunks": [], "nextIndex": 0})));
        let chunks = [metadata(id, "\"identity\""), chunk(id, 1, "a", false)];
        let written = server.write(id, &chunks);
        assert_eq!((written.status, written.json()), (201, json!({"written": 2})));
        let again = server.write(id, &chunks);
        assert_eq!((again.status, again.json()), (200, json!({"written": 0, "duplicates": 2})));
        assert_eq!(server.write(id, &[chunk(id, 2, "b", true)]).status, 201);
        assert_eq!(server.write(id, &[chunk(id, 3, "c", false)]).status, 409);
        let poll = server.get(&format!("{job}?from=1"), &[]).json();
        assert_eq!(poll, json!({"chunks": [chunk(id, 1, "a", false), chunk(id, 2, "b", true)], "nextIndex": 3}));
        assert_eq!(server.get(&format!("{job}?limit=1"), &[]).indices(), [0]);
        let status = server.get(&format!("{job}/status"), &[]);
        assert_eq!((&status.json()["state"], &status.json()["chunks"]), (&json!("COMPLETED"), &json!(3)));
        assert_eq!(status.header("etag"), Some("\"1\""));
        assert_eq!(server.ask("DELETE", &job, &[], b"").status, 401);
        assert_eq!(server.ask("DELETE", &job, &[WRITER], b"").status, 204);
        assert_eq!(server.get(&job, &[]).status, 404);
    }
}

#[test]
fn requests_that_are_wrong_have_their_statuses() {
    let server = Server::memory();
    let id = id(1);
    server.create(id);
    let (job, chunks) = (format!("/pimp/{id}"), format!("/pimp/{id}/chunks"));
    let body = json!({"chunks": [metadata(id, "\"identity\"")]}).to_string();
    let body = body.as_bytes();
    for (method, path, headers, body, status) in [
        ("POST", "/", &[][..], &b""[..], 405),
        ("GET", "/pimp", &[], b"", 404),
        ("GET", "/page.html", &[], b"", 404),
        ("GET", "/pimp/nothing", &[], b"", 400),
        ("GET", "/pimp/../etc/passwd", &[], b"", 404),
        ("GET", &format!("{job}?from=-1"), &[], b"", 400),
        ("GET", &format!("{job}?limit=0"), &[], b"", 400),
        ("GET", &format!("{job}/nothing"), &[], b"", 404),
        ("GET", &format!("{job}/status/x"), &[], b"", 404),
        ("PATCH", &job, &[], b"", 405),
        ("GET", &chunks, &[], b"", 405),
        ("POST", &chunks, &[JSON], body, 401),
        ("POST", &chunks, &["Authorization: Bearer other", JSON], body, 401),
        ("POST", &chunks, &[WRITER, "Content-Type: text/plain"], body, 415),
        ("POST", &chunks, &[WRITER, JSON], b"{", 400),
        ("POST", &format!("{job}/cancel"), &[], b"", 401),
        ("PUT", &job, &[WRITER, "If-Match: \"7\""], br#"{"writeKey":"new"}"#, 412),
        ("PUT", &job, &[WRITER], br#"{"writeKey":"new"}"#, 400),
        ("GET", &format!("{job}/raw"), &[], b"", 409),
    ] {
        let response = server.ask(method, path, headers, body);
        assert_eq!(response.status, status, "{method} {path} {headers:?}");
        assert!(response.json()["error"].is_string(), "{method} {path}");
    }
    let mut stream = TcpStream::connect(server.buffer.address()).expect("connected");
    let head = format!("POST {chunks} HTTP/1.1\r\nHost: x\r\n{WRITER}\r\n{JSON}\r\nContent-Length: 1000000000\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("written");
    assert_eq!(read(stream).expect("before the body").status, 413);
}

#[test]
fn a_poll_that_waits_is_answered_when_something_comes_or_its_time_is_over() {
    for server in Server::both() {
        let id = id(1);
        server.create(id);
        let address = server.buffer.address();
        let began = Instant::now();
        let waiting = std::thread::spawn(move || ask(address, "GET", &format!("/pimp/{id}?wait=30000"), &[], b""));
        server.write(id, &[metadata(id, "\"identity\""), chunk(id, 1, "a", true)]);
        let response = waiting.join().expect("asked").expect("answered");
        assert_eq!(response.indices(), [0, 1]);
        assert_eq!(server.get(&format!("/pimp/{id}?from=2&wait=30000"), &[]).indices(), [0_u64; 0]);
        assert!(began.elapsed() < Duration::from_secs(20), "neither was held open for all its time");
    }
    let server = Server::memory();
    server.create(id(2));
    let poll = server.get(&format!("/pimp/{}?wait=50", id(2)), &[]);
    assert_eq!((poll.status, poll.indices().len()), (200, 0));
}

#[test]
fn a_wait_ends_with_the_life_of_its_job() {
    let server = Server::memory();
    let job = format!("/pimp/{}", id(1));
    assert_eq!(server.ask("PUT", &job, &[WRITER, JSON], br#"{"ttlMs":300}"#).status, 201);
    let response = server.get(&format!("{job}?wait=30000"), &[]);
    assert_eq!((response.status, &response.json()["state"]), (410, &json!("EXPIRED")));
    assert_eq!(server.ask("DELETE", &job, &["Authorization: Bearer other"], b"").status, 401);
}

#[test]
fn a_read_key_guards_all_reading() {
    let server = Server::memory();
    let job = format!("/pimp/{}", id(1));
    assert_eq!(server.ask("PUT", &job, &[WRITER, JSON], br#"{"readKey":"reader"}"#).status, 201);
    for path in ["", "/status", "/raw"] {
        let path = format!("{job}{path}");
        assert_eq!(server.get(&path, &[]).status, 401, "{path}");
        assert_eq!(server.get(&path, &["Authorization: Bearer other"]).status, 401, "{path}");
        assert_ne!(server.get(&path, &["Authorization: Bearer reader"]).status, 401, "{path}");
        assert_ne!(server.get(&path, &[WRITER]).status, 401, "{path}");
    }
    assert_eq!(server.get(&job, &["Accept: text/event-stream"]).status, 401);
    let cancel = server.ask("POST", &format!("{job}/cancel"), &["Authorization: Bearer reader"], b"");
    assert_eq!((cancel.status, cancel.json()), (200, json!({"cancelled": true})));
    let written = server.write(id(1), &[metadata(id(1), "\"identity\"")]);
    assert_eq!(written.json(), json!({"written": 1, "cancelled": true}));
}

#[test]
fn a_takeover_ends_the_old_key() {
    let server = Server::memory();
    let (id, job) = (id(1), format!("/pimp/{}", id(1)));
    server.create(id);
    let taken = server.ask("PUT", &job, &[WRITER, JSON, "If-Match: \"1\""], br#"{"writeKey":"new"}"#);
    assert_eq!((taken.status, taken.header("etag")), (200, Some("\"2\"")));
    assert_eq!(server.write(id, &[metadata(id, "\"identity\"")]).status, 401);
}

#[test]
fn events_come_without_a_gap_and_resume() {
    for server in Server::both() {
        let id = id(1);
        let job = format!("/pimp/{id}");
        server.create(id);
        server.write(id, &[metadata(id, "\"identity\""), chunk(id, 2, "b", false)]);
        let address = server.buffer.address();
        let path = job.clone();
        let waiting = std::thread::spawn(move || ask(address, "GET", &path, &["Accept: text/event-stream"], b""));
        server.write(id, &[chunk(id, 1, "a", false)]);
        server.write(id, &[chunk(id, 3, "line\nline", true)]);
        let response = waiting.join().expect("asked").expect("answered");
        assert_eq!(response.header("content-type"), Some("text/event-stream"));
        let text = String::from_utf8(response.body).expect("text");
        let ids: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
        assert_eq!(ids, ["0", "1", "2", "3"], "{text}");
        let resumed = server.get(&job, &["Accept: text/event-stream", "Last-Event-ID: 2"]);
        assert!(String::from_utf8_lossy(&resumed.body).contains("id: 3\n"));
        assert!(!String::from_utf8_lossy(&resumed.body).contains("id: 2\n"));
        assert_eq!(server.get(&job, &["Accept: text/event-stream", "Last-Event-ID: 3"]).status, 204);
        assert_eq!(server.get(&job, &["Accept: text/event-stream", "Last-Event-ID: x"]).status, 400);
    }
}

#[test]
fn events_of_a_job_that_failed_say_so_although_chunks_are_missing() {
    let server = Server::memory();
    let (id, job, events) = (id(1), format!("/pimp/{}", id(1)), "Accept: text/event-stream");
    server.create(id);
    let mut failed = chunk(id, 3, "", true);
    failed["error"] = json!("no more");
    server.write(id, &[metadata(id, "\"identity\""), failed]);
    let text = String::from_utf8(server.get(&job, &[events]).body).expect("text");
    let ids: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    assert_eq!(ids, ["0", "3"], "{text}");
    assert_eq!(server.get(&job, &[events, "Last-Event-ID: 3"]).status, 204);
    let refused = server.get(&job, &["Accept: application/json, text/event-stream; q=0.0"]);
    assert_eq!(refused.header("content-type"), Some("application/json"));
}

#[test]
fn raw_is_the_payload_in_ranges_and_as_it_was_tagged() {
    for server in Server::both() {
        let id = id(1);
        let raw = format!("/pimp/{id}/raw");
        server.create(id);
        server.write(id, &[metadata(id, "\"base64\""), chunk(id, 1, "YWJj", false), chunk(id, 2, "ZGVmZw==", true)]);
        let whole = server.get(&raw, &[]);
        assert_eq!(
            (whole.status, whole.body.as_slice(), whole.header("content-type")),
            (200, &b"abcdefg"[..], Some("text/plain"))
        );
        let tag = whole.header("etag").expect("a tag").to_owned();
        let part = server.get(&raw, &["Range: bytes=2-4", &format!("If-Range: {tag}")]);
        assert_eq!(
            (part.status, part.body.as_slice(), part.header("content-range")),
            (206, &b"cde"[..], Some("bytes 2-4/7"))
        );
        assert_eq!(server.get(&raw, &["Range: bytes=2-4", "If-Range: \"other\""]).status, 200);
        assert_eq!(server.get(&raw, &["Range: bytes=7-"]).status, 416);
        assert_eq!(server.get(&raw, &[&format!("If-None-Match: {tag}")]).status, 304);
        for headers in [&[][..], &["Range: bytes=2-4"]] {
            let head = server.ask("HEAD", &raw, headers, b"");
            assert_eq!((head.status, head.header("content-length")), (200, Some("7")), "a range is for GET");
        }
    }
}

#[test]
fn pages_of_the_origin_may_ask_and_large_answers_are_packed() {
    let server = Server::memory();
    let (id, job) = (id(1), format!("/pimp/{}", id(1)));
    let before = server.ask("OPTIONS", &job, &["Origin: https://page.example"], b"");
    assert_eq!((before.status, before.header("access-control-allow-origin")), (204, Some("https://page.example")));
    server.create(id);
    server.write(id, &[metadata(id, "\"identity\""), chunk(id, 1, &"x".repeat(10_000), true)]);
    let packed = server.get(&job, &["Accept-Encoding: gzip, br"]);
    assert_eq!((packed.header("content-encoding"), packed.body.len() < 1_000), (Some("gzip"), true));
    assert_eq!(server.get(&job, &["Accept-Encoding: gzip;q=0"]).header("content-encoding"), None);
}

#[test]
fn the_page_runs_its_own_scripts_alone_and_nothing_of_a_job() {
    let server = Server::memory();
    let policy = |page: &Response| page.header("content-security-policy").expect("a policy").to_owned();
    let (page, again) = (server.get("/", &[]), server.get("/", &[]));
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert_ne!(policy(&page), policy(&again));
    let policy = policy(&page);
    let nonce = policy.split("script-src 'nonce-").nth(1).and_then(|rest| rest.split('\'').next()).expect("a number");
    let html = String::from_utf8(page.body).expect("text");
    assert_eq!(html.matches(&format!("nonce=\"{nonce}\"")).count(), 2, "{html}");
    let limits = html.split("name=\"limits\" content='").nth(1).and_then(|rest| rest.split('\'').next()).expect("told");
    let told: Value = serde_json::from_str(limits).expect("JSON");
    assert_eq!(told, json!({"job": 50 << 20, "chunks": 4_096, "value": 256 << 10}), "it takes what the buffer does");
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    for (path, kind) in [("/pimp.js", "text/javascript"), ("/page.js", "text/javascript"), ("/page.css", "text/css")] {
        let file = server.get(path, &[]);
        assert!(file.header("content-type").is_some_and(|found| found.starts_with(kind)), "{path}");
        assert_eq!(file.header("x-content-type-options"), Some("nosniff"));
        assert!(!file.body.is_empty());
        assert_eq!(server.ask("PUT", path, &[], b"").status, 405);
    }
    assert!(server.ask("HEAD", "/", &[], b"").body.is_empty());
}

#[test]
fn a_buffer_that_ends_answers_the_polls_that_it_holds_open() {
    let server = Server::memory();
    server.create(id(1));
    let address = server.buffer.address();
    let path = format!("/pimp/{}", id(1));
    let held: Vec<_> = [("?wait=30000", "Accept: */*"), ("", "Accept: text/event-stream")]
        .into_iter()
        .map(|(query, accept)| {
            let path = format!("{path}{query}");
            std::thread::spawn(move || ask(address, "GET", &path, &[accept], b""))
        })
        .collect();
    while server.service.jobs.waiting(id(1)) < 2 {
        std::thread::yield_now();
    }
    assert!(matches!(server.buffer.close(GRACE), Ok(())));
    // Polls that are cut off would have no answer.
    for held in held {
        assert_eq!(held.join().expect("asked").expect("answered").status, 200);
    }
}

#[test]
fn a_buffer_that_is_closed_cuts_what_runs_after_its_grace() {
    let server = Server::memory();
    server.create(id(1));
    let mut slow = TcpStream::connect(server.buffer.address()).expect("connected");
    write!(slow, "POST /pimp/{}/chunks HTTP/1.1\r\nHost: x\r\n{WRITER}\r\n{JSON}\r\nContent-Length: 9\r\n\r\n", id(1))
        .expect("written");
    assert_eq!(server.get(&format!("/pimp/{}", id(1)), &[]).status, 200);
    assert!(matches!(server.buffer.close(Duration::ZERO), Ok(())));
    // Shorter than the time after which the body would be abandoned.
    slow.set_read_timeout(Some(Duration::from_secs(8))).expect("settable");
    let mut rest = Vec::new();
    assert!(slow.read_to_end(&mut rest).is_ok_and(|read| read == 0) || rest.is_empty(), "it is answered");
}

#[test]
fn settings_that_could_not_work_are_refused() {
    let check = |limits: Limits, secret: Option<&[u8]>, origin: Option<&str>| {
        let allow_origin = origin.map(|origin| origin.parse().expect("a header"));
        let (store, jwt_secret) = (Arc::new(MemoryStore::new()), secret.map(<[u8]>::to_vec));
        ServiceConfig { store, limits, jwt_secret, allow_origin }.check()
    };
    for origin in ["*", "https://app.example", "http://localhost:8080", "http://[::1]:8080"] {
        assert!(matches!(check(Limits::default(), Some(b"secret"), Some(origin)), Ok(())), "{origin}");
    }
    for origin in ["https://app.example/", "https://a/b", "nonsense", "null", "https://App.example", "https://a:443"] {
        assert!(check(Limits::default(), None, Some(origin)).is_err(), "{origin}");
    }
    assert!(check(Limits::default(), Some(b""), None).is_err());
    assert!(check(Limits { job: 0, ..Limits::default() }, None, None).is_err());
    assert!(check(Limits { ttl: 0, ..Limits::default() }, None, None).is_err());
}

#[test]
fn metrics_count_answers_and_what_is_stored() {
    let service = service(Arc::new(MemoryStore::new()));
    // No other test uses this address, so the port is free once the server is closed.
    let free: Addresses = ([127, 0, 0, 7], 0).into();
    let buffer = Buffer::bind(&service, free.clone(), None, Some(free), Buffer::CONNECTIONS).expect("bound");
    let server = Server { service, buffer, _folder: None };
    server.create(id(1));
    server.write(id(1), &[metadata(id(1), "\"identity\"")]);
    let address = server.buffer.metrics_address().expect("served");
    let page = ask(address, "GET", "/metrics", &[], b"").expect("answered");
    let page = String::from_utf8(page.body).expect("text");
    for line in
        ["penstock_pimp_answers_total{status=\"201\"} 2", "penstock_pimp_chunks_total 1", "penstock_pimp_jobs 1"]
    {
        assert!(page.contains(line), "{line} in {page}");
    }
    assert_eq!(ask(address, "GET", "/healthz", &[], b"").expect("answered").status, 200);
    assert!(matches!(server.buffer.close(GRACE), Ok(())));
    assert!(ask(server.buffer.address(), "GET", "/", &[], b"").is_err());
}

#[test]
fn https_is_spoken_with_the_certificate_that_is_told() {
    let folder = TempDir::new().expect("a folder");
    let tls = ServerTls { identity: Identity::Development { dir: folder.path().to_owned() }, client_ca: None };
    let service = service(Arc::new(MemoryStore::new()));
    let buffer =
        Buffer::bind(&service, ([127, 0, 0, 1], 0).into(), Some(&tls), None, Buffer::CONNECTIONS).expect("bound");
    let trust = Trust::Fingerprint(buffer.fingerprint().expect("of its certificate"));
    let config = ClientTls { trust, identity: None }.config(b"http/1.1").expect("valid");
    let address = buffer.address();
    let asking = async move {
        let stream = tokio::net::TcpStream::connect(address).await?;
        let host = rustls_pki_types::ServerName::from(address.ip());
        let mut stream = TlsConnector::from(Arc::new(config)).connect(host, stream).await?;
        let head = format!("PUT /pimp/{} HTTP/1.1\r\nHost: x\r\n{WRITER}\r\nConnection: close\r\n\r\n", id(1));
        stream.write_all(head.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = penstock_io::runtime::block_on(asking).expect("runs").expect("answered");
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}

#[test]
fn without_tls_it_listens_on_loopback_only() {
    let error =
        Buffer::bind(&service(Arc::new(MemoryStore::new())), ([0, 0, 0, 0], 0).into(), None, None, Buffer::CONNECTIONS)
            .expect_err("open to all");
    assert!(matches!(error, crate::Error::Misuse(_)), "{error}");
}

const CHILD: &str = "PENSTOCK_TEST_PIMP_STORE";

/// The process that the next test kills; without that test it does nothing.
#[test]
fn a_buffer_of_its_own_process() {
    let Ok(folder) = std::env::var(CHILD) else { return };
    let store = DiskStore::open(Path::new(&folder)).expect("free");
    let buffer = Buffer::bind(&service(Arc::new(store)), ([127, 0, 0, 1], 0).into(), None, None, Buffer::CONNECTIONS)
        .expect("bound");
    let mut out = std::io::stdout();
    writeln!(out, "\nlistening {}", buffer.address()).and_then(|()| out.flush()).expect("a pipe");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn what_was_answered_with_201_is_there_after_a_kill() {
    let folder = TempDir::new().expect("a folder");
    let mut answered = 0;
    for round in 0..3_u64 {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "server::tests::a_buffer_of_its_own_process", "--nocapture"])
            .env(CHILD, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut addresses = lines
            .map_while(|line| line.ok()?.strip_prefix("listening ").map_or(Some(None), |at| Some(Some(at.to_owned()))));
        let address: SocketAddr = addresses.find_map(|at| at).expect("ready").parse().expect("an address");
        let writers: Vec<_> = (0..4_u8)
            .map(|number| {
                let id = id(number + 4 * u8::try_from(round).expect("few"));
                std::thread::spawn(move || {
                    let put = ask(address, "PUT", &format!("/pimp/{id}"), &[WRITER], b"");
                    let mut taken = 0;
                    if !put.is_ok_and(|response| response.status == 201) {
                        return (id, None);
                    }
                    for index in 1.. {
                        let body = json!({"chunks": [chunk(id, index, "x", false)]}).to_string();
                        match ask(address, "POST", &format!("/pimp/{id}/chunks"), &[WRITER, JSON], body.as_bytes()) {
                            Ok(response) if response.status == 201 => taken = index,
                            _ => break,
                        }
                    }
                    (id, Some(taken))
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(150 + 90 * round));
        child.kill().expect("killed");
        child.wait().expect("dead");
        let store = DiskStore::open(folder.path()).expect("free again");
        for writer in writers {
            let (id, taken) = writer.join().expect("wrote");
            let Some(taken) = taken else { continue };
            answered += taken;
            let job = penstock_io::runtime::block_on(store.load(id))
                .expect("runs")
                .expect("readable")
                .expect("answered with 201");
            assert!(job.indices().first_missing(1) > taken, "{id}: {taken} were answered for");
            let chunks = store.read(id, (1..=taken).collect(), u64::MAX);
            assert_eq!(penstock_io::runtime::block_on(chunks).expect("runs").expect("readable").len(), taken as usize);
        }
    }
    assert!(answered > 0, "nothing was answered for");
}
