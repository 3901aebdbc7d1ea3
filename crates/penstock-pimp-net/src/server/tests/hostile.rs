//! Callers that are slow, disconnected, too many, or malicious.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use tempfile::TempDir;

use super::{DiskStore, JSON, Server, Store as _, WRITER, ask, chunk, id, metadata, read, service};

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.buffer.address()).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(40))).expect("settable");
    stream
}

#[test]
fn heads_and_bodies_that_take_too_long_are_given_up() {
    let server = Server::memory();
    server.create(id(1));
    let path = format!("/pimp/{}/chunks", id(1));
    let mut head = connect(&server);
    write!(head, "GET {path} HTTP/1.1\r\nHost: x\r\n").expect("written");
    let mut body = connect(&server);
    write!(body, "POST {path} HTTP/1.1\r\nHost: x\r\n{WRITER}\r\n{JSON}\r\nContent-Length: 100\r\n\r\n{{\"chunks\"")
        .expect("written");
    let late = read(body).expect("told");
    assert_eq!((late.status, late.header("retry-after")), (503, Some("1")), "it may be tried again");
    assert!(late.json()["error"].as_str().expect("why").contains("10 s"));
    let mut rest = Vec::new();
    match head.read_to_end(&mut rest) {
        Ok(_) => assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&rest)),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    assert_eq!(server.get(&format!("/pimp/{}", id(1)), &[]).indices(), [0_u64; 0]);
}

#[test]
fn a_thousand_slow_callers_do_not_delay_other_answers() {
    let server = Server::memory();
    server.create(id(1));
    let slow: Vec<TcpStream> = (0..1_000)
        .map(|_| {
            let mut stream = connect(&server);
            stream.write_all(b"POST /pimp/").expect("written");
            stream
        })
        .collect();
    assert_eq!(server.write(id(1), &[metadata(id(1), "\"identity\"")]).status, 201);
    drop(slow);
}

#[test]
fn a_body_beyond_its_limit_is_refused_although_it_does_not_say_its_length() {
    let server = Server::memory();
    server.create(id(1));
    for (method, path, size) in [("PUT", "", 17 << 10), ("POST", "/chunks", 65 << 20)] {
        let mut stream = connect(&server);
        let path = format!("/pimp/{}{path}", id(1));
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: x\r\n{WRITER}\r\n{JSON}\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        .expect("written");
        let piece = vec![b' '; 16 << 10];
        for _ in 0..=size / piece.len() {
            let written = write!(stream, "{:x}\r\n", piece.len())
                .and_then(|()| stream.write_all(&piece))
                .and_then(|()| stream.write_all(b"\r\n"));
            // The server does not read the body to its end.
            if written.is_err() {
                break;
            }
        }
        match read(stream) {
            Ok(response) => assert_eq!(response.status, 413, "{method}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{method}"),
        }
    }
    assert_eq!(server.get(&format!("/pimp/{}", id(1)), &[]).indices(), [0_u64; 0]);
}

#[test]
fn a_poll_whose_client_has_gone_is_not_held_open() {
    let server = Server::memory();
    server.create(id(1));
    for accept in ["application/json", "text/event-stream"] {
        let mut stream = connect(&server);
        write!(stream, "GET /pimp/{}?wait=30000 HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n", id(1))
            .expect("written");
        while server.service.jobs.waiting(id(1)) == 0 {
            std::thread::yield_now();
        }
        drop(stream);
        while server.service.jobs.waiting(id(1)) > 0 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn paths_lead_nowhere_else() {
    let server = Server::disk();
    let id = id(0xAB);
    server.create(id);
    for path in [
        "/pimp/..".to_owned(),
        "/pimp/../pimp.js".to_owned(),
        "/../../etc/passwd".to_owned(),
        "//pimp.js".to_owned(),
        "/pimp.js/".to_owned(),
        "/pimp/%2e%2e/%2e%2e/etc/passwd".to_owned(),
        format!("/pimp/{}", id.to_string().to_uppercase()),
        format!("/pimp/{id}%00"),
        format!("/pimp/{id}%2fstatus"),
        format!("/pimp//{id}"),
        format!("/pimp/{id}/"),
        format!("/pimp/{id}/../status"),
        format!("/PIMP/{id}"),
        format!("/pimp/{id};/status"),
    ] {
        let answer = server.get(&path, &[]);
        assert!(matches!(answer.status, 400 | 404), "{path}: {}", answer.status);
        assert!(answer.json()["error"].is_string(), "{path}");
    }
    for target in ["http://elsewhere/pimp.js", "*"] {
        let answer = ask(server.buffer.address(), "OPTIONS", target, &[], b"").expect("answered");
        assert!(matches!(answer.status, 204 | 400), "{target}: {}", answer.status);
    }
}

#[test]
fn raw_of_a_compressed_job_goes_out_as_it_is_or_inflated() {
    for server in Server::both() {
        let (id, text) = (id(1), b"a payload ".repeat(1_000));
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&text).expect("memory");
        let packed = encoder.finish().expect("memory");
        server.create(id);
        let (first, last) = packed.split_at(packed.len() / 2 / 3 * 3);
        let values = [first, last].map(|part| STANDARD.encode(part));
        let chunks = [
            metadata(id, "\"base64\",\"compression\":\"gzip\""),
            chunk(id, 1, &values[0], false),
            chunk(id, 2, &values[1], true),
        ];
        assert_eq!(server.write(id, &chunks).status, 201);
        let raw = format!("/pimp/{id}/raw");
        let plain = server.get(&raw, &[]);
        assert_eq!((plain.status, plain.header("content-encoding")), (200, None));
        assert_eq!(plain.body, text);
        let zipped = server.get(&raw, &["Accept-Encoding: gzip"]);
        assert_eq!((zipped.status, zipped.header("content-encoding")), (200, Some("gzip")));
        assert_eq!(zipped.body, packed);
        assert!(zipped.header("vary").is_some_and(|fields| fields.contains("accept-encoding")));
        assert_ne!(plain.header("etag"), zipped.header("etag"), "they are different bytes");
        let part = server.get(&raw, &["Range: bytes=2-10"]);
        assert_eq!((part.status, part.body.as_slice()), (206, &text[2..=10]));
        assert_eq!(part.header("content-security-policy"), Some("sandbox"));
    }
}

#[test]
fn a_job_that_is_no_gzip_although_it_says_so_has_no_raw() {
    let server = Server::memory();
    server.create(id(1));
    let chunks = [metadata(id(1), "\"base64\",\"compression\":\"gzip\""), chunk(id(1), 1, "AAAA", true)];
    server.write(id(1), &chunks);
    let answer = server.get(&format!("/pimp/{}/raw", id(1)), &[]);
    assert_eq!((answer.status, &answer.json()["code"]), (409, &json!("CORRUPT")));
}

#[test]
fn a_job_that_has_lost_a_chunk_on_the_disk_is_refused_to_everybody() {
    let (folder, broken) = (TempDir::new().expect("a folder"), TempDir::new().expect("a folder"));
    let server = Server::over(service(Arc::new(DiskStore::open(folder.path()).expect("fresh"))), None);
    for number in [1, 2] {
        server.create(id(number));
        assert_eq!(server.write(id(number), &[metadata(id(number), "\"identity\"")]).status, 201);
        assert_eq!(server.write(id(number), &[chunk(id(number), 1, "x", false)]).status, 201);
    }
    let name = "00000000000000000001.chunks";
    let mut bytes = std::fs::read(folder.path().join(name)).expect("readable");
    let at = bytes.windows(8).position(|bytes| bytes == b"identity").expect("of the first job");
    bytes[at] ^= 1;
    std::fs::write(broken.path().join(name), &bytes).expect("writable");
    let store = Arc::new(DiskStore::open(broken.path()).expect("readable"));
    assert_eq!(store.usage().damaged, 1);
    let again = Server::over(service(store), None);
    let job = format!("/pimp/{}", id(1));
    let answers = [
        again.get(&job, &[]),
        again.get(&format!("{job}?from=2"), &[]),
        again.get(&format!("{job}/status"), &[]),
        again.get(&format!("{job}/raw"), &[]),
        again.get(&job, &["Accept: text/event-stream"]),
        again.write(id(1), &[chunk(id(1), 2, "y", true)]),
        again.ask("PUT", &job, &[WRITER], b""),
    ];
    for answer in answers {
        assert_eq!((answer.status, answer.json()["code"].as_str()), (410, Some("LOST")));
    }
    assert_eq!(again.write(id(2), &[chunk(id(2), 2, "y", true)]).status, 201, "the other one goes on");
    assert_eq!(again.get(&format!("/pimp/{}", id(2)), &[]).indices(), [0, 1, 2]);
}
