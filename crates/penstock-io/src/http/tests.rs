//! Connections over raw sockets: the request after a refused one, and the end of a connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, StatusCode};
use rustls::pki_types::ServerName;
use tempfile::TempDir;

use super::*;
use crate::tls::{Acceptor, ClientTls, Identity, ServerTls, Trust};

const SERVING: Serving = Serving {
    what: "a test",
    connections: 4,
    per_address: None,
    descriptors: 1,
    keep_alive: true,
    header_timeout: Duration::from_millis(500),
    stall: Duration::from_secs(5),
    unsent: None,
    grace: Duration::from_secs(5),
};

/// A handler that reads only the body of `/taken`.
struct Picky;

impl Handler for Picky {
    type Body = Full<Bytes>;

    async fn answer(self: Arc<Self>, request: Request<RequestBody>, _: SocketAddr) -> Response<Full<Bytes>> {
        let (parts, mut body) = request.into_parts();
        let (status, text) = match parts.uri.path() {
            "/taken" => (StatusCode::OK, body.collect().await.map(|body| body.to_bytes()).unwrap_or_default()),
            "/begun" => {
                let _ = body.frame().await;
                (StatusCode::PAYLOAD_TOO_LARGE, Bytes::from_static(b"too large"))
            }
            _ => (StatusCode::UNAUTHORIZED, Bytes::from_static(b"no")),
        };
        let mut response = Response::new(Full::new(text));
        *response.status_mut() = status;
        response
    }
}

fn server(tls: Option<&ServerTls>) -> HttpServer {
    let acceptor = Acceptor::optional(tls, HTTPS).expect("a certificate");
    HttpServer::bind(Arc::new(Picky), ([127, 0, 0, 1], 0).into(), acceptor, SERVING, Arc::default()).expect("bound")
}

/// Read the head of a response, and a body of the length in Content-Length.
fn answer(stream: &mut impl Read) -> (String, Vec<u8>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("text").to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
    let mut body = vec![0; length.parse().expect("a number")];
    stream.read_exact(&mut body).expect("a body");
    (head, body)
}

fn connect(server: &HttpServer) -> TcpStream {
    let stream = TcpStream::connect(server.address()).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
    stream
}

fn post(stream: &mut impl Write, path: &str, framing: &str, body: &[u8]) {
    let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n");
    stream.write_all(&[head.as_bytes(), body].concat()).expect("written");
}

fn is_usable(stream: &mut (impl Read + Write)) {
    post(stream, "/taken", "Content-Length: 5", b"hello");
    let (head, body) = answer(stream);
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert_eq!(body, b"hello");
}

fn chunked(length: usize) -> Vec<u8> {
    [format!("{length:x}\r\n").as_bytes(), &vec![7; length], b"\r\n0\r\n\r\n"].concat()
}

#[test]
fn a_connection_is_usable_after_a_refused_request_with_a_short_body() {
    let server = server(None);
    for path in ["/refused", "/begun"] {
        for length in [0, 1, 4_096, 64 << 10] {
            let mut stream = connect(&server);
            post(&mut stream, path, &format!("Content-Length: {length}"), &vec![7; length]);
            assert!(!answer(&mut stream).0.contains("connection: close"), "{path} {length}");
            is_usable(&mut stream);
        }
        let mut stream = connect(&server);
        post(&mut stream, path, "Transfer-Encoding: chunked", &chunked(40_000));
        assert!(!answer(&mut stream).0.contains("connection: close"), "{path}");
        is_usable(&mut stream);
    }
}

#[test]
fn an_answer_to_a_long_body_says_that_the_connection_ends_and_arrives_whole() {
    let server = server(None);
    for (framing, body) in [
        ("Content-Length: 8000000".to_owned(), vec![7; 8_000_000]),
        ("Transfer-Encoding: chunked".to_owned(), chunked(8_000_000)),
    ] {
        let mut stream = connect(&server);
        // The request is sent completely first, as simple clients do: a reset would lose the response.
        post(&mut stream, "/refused", &framing, &body);
        let (head, body) = answer(&mut stream);
        assert!(head.starts_with("http/1.1 401") && head.contains("connection: close"), "{head}");
        assert_eq!(body, b"no");
        assert_eq!(stream.read(&mut [0; 1]).expect("an end, not a reset"), 0);
    }
}

#[test]
fn a_client_that_expects_100_continue_is_answered_at_once() {
    let server = server(None);
    let mut stream = connect(&server);
    post(&mut stream, "/refused", "Content-Length: 10\r\nExpect: 100-continue", b"");
    let (head, _) = answer(&mut stream);
    assert!(head.starts_with("http/1.1 401") && head.contains("connection: close"), "{head}");
}

#[test]
fn a_body_that_does_not_come_holds_its_answer_up_for_a_second_at_most() {
    let server = server(None);
    let mut stream = connect(&server);
    let began = Instant::now();
    post(&mut stream, "/refused", "Content-Length: 10", b"short");
    assert!(answer(&mut stream).0.contains("connection: close"));
    assert!(began.elapsed() < Duration::from_secs(8));
}

#[test]
fn a_connection_that_says_nothing_ends_and_its_place_is_free() {
    let server = server(None);
    let mut silent: Vec<_> = (0..4).map(|_| connect(&server)).collect();
    // All places are taken: the connection waits in the backlog until one is free.
    let mut waiting = connect(&server);
    is_usable(&mut waiting);
    for stream in &mut silent {
        assert_eq!(stream.read(&mut [0; 1]).expect("an end"), 0);
    }
}

fn over_tls(server: &HttpServer) -> rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
    let trust = Trust::Fingerprint(server.fingerprint().expect("it has one"));
    let mut config = ClientTls { trust, identity: None }.config(b"http/1.1").expect("a configuration");
    config.alpn_protocols.clear();
    let name = ServerName::try_from("localhost").expect("a name");
    let client = rustls::ClientConnection::new(Arc::new(config), name).expect("a client");
    rustls::StreamOwned::new(client, connect(server))
}

#[test]
fn tls_ends_with_close_notify_after_a_refusal_a_silence_and_a_bad_head() {
    let folder = TempDir::new().expect("a folder");
    let identity = Identity::Development { dir: folder.path().to_owned() };
    let server = server(Some(&ServerTls { identity, client_ca: None }));
    // rustls reports UnexpectedEof where close_notify is missing, and returns 0 where it arrived.
    let mut refused = over_tls(&server);
    post(&mut refused, "/refused", "Content-Length: 1000000", &vec![7; 1_000_000]);
    assert!(answer(&mut refused).0.contains("connection: close"));
    assert_eq!(refused.read(&mut [0; 1]).expect("close_notify"), 0);
    let mut silent = over_tls(&server);
    is_usable(&mut silent);
    assert_eq!(silent.read(&mut [0; 1]).expect("close_notify"), 0);
    let mut wrong = over_tls(&server);
    wrong.write_all(b"\x00\x01 nothing\r\n\r\n").expect("written");
    let mut rest = Vec::new();
    wrong.read_to_end(&mut rest).expect("close_notify");
    let mut usable = over_tls(&server);
    post(&mut usable, "/refused", "Content-Length: 4096", &vec![7; 4_096]);
    assert!(!answer(&mut usable).0.contains("connection: close"));
    is_usable(&mut usable);
    usable.write_all(b"GET /refused HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("written");
    answer(&mut usable);
    assert_eq!(usable.read(&mut [0; 1]).expect("close_notify"), 0);
}
