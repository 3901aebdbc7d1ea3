//! Callers of a trigger that send more than its memory has room for.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::mpsc as channel;
use std::thread;
use std::time::Instant;

use penstock_io::runtime::block_on;
use tokio::time::timeout;

use super::*;

const LARGEST: usize = 2 << 20;

fn server() -> TriggerServer {
    TriggerServer::bind(([127, 0, 0, 1], 0).into(), None, LARGEST as u64).expect("bound")
}

/// Send a request with a body, and return the answer.
fn ask(address: SocketAddr, framing: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    let head = format!("POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{framing}\r\n\r\n");
    stream.write_all(&[head.as_bytes(), body].concat()).expect("written");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer, and the end");
    String::from_utf8(answer).expect("text").to_ascii_lowercase()
}

/// Return the next request, if one comes within 50 ms.
fn next(server: &TriggerServer) -> Option<PendingReply> {
    block_on(async { timeout(Duration::from_millis(50), server.next()).await.ok().flatten() }).expect("runs")
}

#[test]
fn a_body_beyond_the_limit_is_413_whether_or_not_its_length_is_stated() {
    let server = server();
    let body = vec![b'x'; LARGEST + 1];
    let chunked = [format!("{:x}\r\n", body.len()).as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
    for (framing, body) in
        [(format!("Content-Length: {}", body.len()), &body), ("Transfer-Encoding: chunked".to_owned(), &chunked)]
    {
        let answer = ask(server.address(), &framing, body);
        assert!(answer.starts_with("http/1.1 413 ") && answer.contains("too_large"), "{framing}: {answer}");
    }
    assert!(next(&server).is_none());
}

#[test]
fn many_bodies_at_once_take_no_more_memory_than_a_few_and_the_others_are_told_to_retry() {
    const CALLERS: usize = 24;
    // Three in the part for large bodies, one beyond the limit, one in the rest.
    const MOST: usize = 5;
    let (server, body) = (server(), vec![b'x'; LARGEST]);
    let (answers, answered) = channel::channel();
    let (address, framing) = (server.address(), format!("Content-Length: {LARGEST}"));
    thread::scope(|scope| {
        for _ in 0..CALLERS {
            let (answers, body, framing) = (answers.clone(), &body, &framing);
            scope.spawn(move || answers.send(ask(address, framing, body)).expect("awaited"));
        }
        let (mut held, mut refused, began) = (Vec::new(), 0, Instant::now());
        while held.len() + refused < CALLERS {
            assert!(began.elapsed() < Duration::from_secs(60), "{} held, {refused} refused", held.len());
            held.extend(next(&server));
            assert!(held.len() <= MOST);
            for answer in answered.try_iter() {
                assert!(answer.starts_with("http/1.1 503 ") && answer.contains("\r\nretry-after: 1\r\n"), "{answer}");
                refused += 1;
            }
        }
        assert!(!held.is_empty());
        for request in held.drain(..) {
            assert_eq!(request.body.len(), LARGEST);
            request.answer(200, Vec::new(), Vec::new());
            assert!(answered.recv().expect("an answer").starts_with("http/1.1 200 "));
        }
    });
    // Their memory was returned: the next body finds room at once.
    thread::scope(|scope| {
        let asking = scope.spawn(|| ask(address, &framing, &body));
        let request = block_on(server.next()).expect("runs").expect("a request");
        request.answer(200, Vec::new(), Vec::new());
        assert!(asking.join().expect("answered").starts_with("http/1.1 200 "));
    });
}
