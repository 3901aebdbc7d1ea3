//! Clients that read or write slowly cost little memory, and delay no other client.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use penstock_io::http::Serving;
use penstock_pimp::{JobId, Limits};
use serde_json::{Value, json};

use super::super::chunk_stream::largest;
use super::super::listen::SERVING;
use super::{Buffer, JSON, MemoryStore, Server, WRITER, chunk, id, metadata, service};
use penstock_io::runtime::block_on;

const VALUE: usize = 256 << 10;

fn asking(server: &Server, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.buffer.address()).expect("connected");
    stream.write_all(request.as_bytes()).expect("written");
    stream
}

/// Return a completed job with this many chunks of 256 KiB.
fn large(server: &Server, id: JobId, count: u32) -> Vec<Value> {
    server.create(id);
    let mut chunks = vec![metadata(id, "\"identity\"")];
    chunks.extend((1..=count).map(|index| chunk(id, index, &format!("{index:06}").repeat(VALUE / 6), index == count)));
    for part in chunks.chunks(16) {
        assert_eq!(server.write(id, part).status, 201);
    }
    chunks
}

/// Wait until the memory of all responses is free again.
fn is_free(server: &Server, all: u64) {
    while server.service.chunks.memory.free() < all {
        std::thread::yield_now();
    }
}

#[test]
fn unread_answers_hold_a_piece_each_and_other_requests_are_answered() {
    for server in Server::both() {
        let chunks = large(&server, id(1), 64);
        let all = server.service.chunks.memory.free();
        let job = format!("/pimp/{}", id(1));
        let requests = [
            format!("GET {job} HTTP/1.1\r\nHost: x\r\n\r\n"),
            format!("GET {job} HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n"),
            format!("GET {job} HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n"),
            format!("GET {job}/raw HTTP/1.1\r\nHost: x\r\n\r\n"),
        ];
        let mut slow: Vec<TcpStream> =
            requests.iter().flat_map(|request| (0..8).map(|_| asking(&server, request))).collect();
        for stream in &mut slow {
            stream.read_exact(&mut [0; 64]).expect("it begins");
        }
        let poll = server.get(&job, &[]);
        assert_eq!((poll.status, &poll.json()["nextIndex"]), (200, &json!(65)));
        assert_eq!(poll.json()["chunks"], Value::from(chunks));
        // One piece is in the connection, and one may wait after it.
        assert!(all - server.service.chunks.memory.free() <= slow.len() as u64 * 3 * VALUE as u64);
        drop(slow);
        is_free(&server, all);
    }
}

#[test]
fn an_answer_that_is_not_taken_is_given_up() {
    let service = service(Arc::new(MemoryStore::new()));
    // With room for one connection, the next client is served once the first was cut off.
    let serving = Serving { stall: Duration::from_millis(200), connections: 1, ..SERVING };
    let free = ([127, 0, 0, 1], 0).into();
    let buffer = Buffer::serve(&service, free, None, None, serving).expect("bound");
    let server = Server { service, buffer, _folder: None };
    large(&server, id(1), 128);
    let all = server.service.chunks.memory.free();
    for (path, accept) in [("", "*/*"), ("", "text/event-stream"), ("/raw", "*/*")] {
        let request = format!("GET /pimp/{}{path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n", id(1));
        let mut stream = asking(&server, &request);
        stream.read_exact(&mut [0; 64]).expect("it begins");
        assert_eq!(server.get(&format!("/pimp/{}/status", id(1)), &[]).status, 200);
        is_free(&server, all);
        let mut rest = Vec::new();
        let read = stream.read_to_end(&mut rest);
        assert!(read.is_err() || rest.len() < 32 << 20, "it was cut before its end");
    }
}

#[test]
fn a_range_at_the_end_needs_room_for_one_piece_only() {
    let server = Server::memory();
    large(&server, id(1), 8);
    let raw = format!("/pimp/{}/raw", id(1));
    let (all, piece) = (server.service.chunks.memory.free(), largest(&Limits::default()).next_multiple_of(1 << 10));
    let mut held = Vec::new();
    while server.service.chunks.memory.free() > piece {
        let wanted = server.service.chunks.memory.free() - piece;
        let service = Arc::clone(&server.service);
        let permit = async move { service.chunks.memory.reserve([127, 0, 0, 1].into(), wanted).await };
        held.push(block_on(permit).expect("runs").expect("it is free"));
    }
    let last = server.get(&raw, &["Range: bytes=-10"]);
    assert_eq!((last.status, last.body.len()), (206, 10));
    drop(held);
    is_free(&server, all);
}

#[test]
fn a_poll_of_many_pieces_is_compressed_for_clients_that_accept_it() {
    for server in Server::both() {
        large(&server, id(1), 8);
        let job = format!("/pimp/{}", id(1));
        let (plain, packed) = (server.get(&job, &[]), server.get(&job, &["Accept-Encoding: gzip"]));
        assert_eq!((plain.header("content-encoding"), packed.header("content-encoding")), (None, Some("gzip")));
        let mut inflated = Vec::new();
        GzDecoder::new(packed.body.as_slice()).read_to_end(&mut inflated).expect("gzip");
        assert_eq!(inflated, plain.body);
        assert_eq!(server.get(&format!("{job}?from=3&limit=4"), &[]).indices(), [3, 4, 5, 6]);
    }
}

#[test]
fn what_is_inflated_is_never_whole_in_memory() {
    for server in Server::both() {
        let (id, length) = (id(1), 64 << 20);
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&vec![b'x'; length - 1]).expect("memory");
        encoder.write_all(b"y").expect("memory");
        let value = STANDARD.encode(encoder.finish().expect("memory"));
        server.create(id);
        let chunks = [metadata(id, "\"base64\",\"compression\":\"gzip\""), chunk(id, 1, &value, true)];
        assert_eq!(server.write(id, &chunks).status, 201);
        let all = server.service.chunks.memory.free();
        let raw = format!("/pimp/{id}/raw");
        let slow: Vec<TcpStream> = (0..16)
            .map(|_| {
                let mut stream = asking(&server, &format!("GET {raw} HTTP/1.1\r\nHost: x\r\n\r\n"));
                stream.read_exact(&mut [0; 64]).expect("it begins");
                stream
            })
            .collect();
        assert!(all - server.service.chunks.memory.free() <= slow.len() as u64 * (6 << 20));
        let last = server.get(&raw, &["Range: bytes=-2"]);
        assert_eq!((last.status, last.body.as_slice()), (206, &b"xy"[..]));
        assert_eq!(last.header("content-range"), Some(&*format!("bytes {}-{}/{length}", length - 2, length - 1)));
        assert_eq!(server.ask("HEAD", &raw, &[], b"").header("content-length"), Some(&*length.to_string()));
        assert_eq!(server.get(&raw, &[]).body.len(), length);
        drop(slow);
        is_free(&server, all);
    }
}

#[test]
fn bodies_that_do_not_come_keep_no_other_write_waiting() {
    let server = Server::memory();
    server.create(id(1));
    server.create(id(2));
    let head = format!("/pimp/{} HTTP/1.1\r\nHost: x\r\n{WRITER}\r\n{JSON}", id(1));
    let write = format!("/pimp/{}/chunks HTTP/1.1\r\nHost: x\r\n{WRITER}\r\n{JSON}", id(1));
    let requests = [
        format!("POST {write}\r\nContent-Length: 67108864\r\n\r\n{{"),
        format!("POST {write}\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{{\r\n"),
        format!("PUT {head}\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{{\r\n"),
    ];
    let mut slow: Vec<TcpStream> =
        requests.iter().flat_map(|request| (0..100).map(|_| asking(&server, request))).collect();
    assert_eq!(server.write(id(2), &[metadata(id(2), "\"identity\"")]).status, 201);
    // No slow client was abandoned meanwhile, so the write did not wait for that.
    for stream in &mut slow {
        stream.set_nonblocking(true).expect("settable");
        assert_eq!(stream.read(&mut [0]).expect_err("no answer yet").kind(), ErrorKind::WouldBlock);
    }
}
