use std::io::{Read, Write};
use std::net::TcpStream;

use penstock_vgi::Protocol;

use super::*;
use penstock_io::runtime::block_on;

/// Return a service without methods.
fn service(change: impl FnOnce(&mut core::Config)) -> Arc<Service> {
    let mut config = core::Config::new("0123456789ab", [7; 32]);
    change(&mut config);
    let protocol = Protocol::new("Test", Vec::new()).expect("distinct names");
    Arc::new(Service::new(Arc::new(protocol), config).expect("a prefix"))
}

fn listener(service: Arc<Service>, counters: &Arc<Counters>) -> HttpListener {
    HttpListener::bind(service, ([127, 0, 0, 1], 0).into(), None, false, Arc::clone(counters)).expect("bound")
}

fn connect(listener: &HttpListener) -> TcpStream {
    let stream = TcpStream::connect(listener.address()).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
    stream
}

#[test]
fn a_call_beyond_1024_waiting_ones_is_told_to_retry() {
    // With guarded pages, requests for pages are calls too.
    let (service, peer) = (service(|config| config.guarded_pages = true), SocketAddr::from(([192, 0, 2, 1], 9)));
    let (bodies, counters) = (BodyBudget::new(1 << 10, 0), Arc::default());
    let queue = Queue::new(CALLS);
    let shared = Shared { service: Arc::clone(&service), queue, bodies, counters, authenticates: false };
    let pending = || {
        let (method, path) = ("GET".to_owned(), "/".to_owned());
        match service.begin(core::Request { method, path, headers: Headers::default(), body: Vec::new() }) {
            RequestStart::Call(pending) => pending,
            RequestStart::Done(response) => panic!("answered with {}", response.status),
        }
    };
    let ask = async {
        let asked: Vec<_> = (0..1_025).map(|_| shared.ask(pending(), Progress::Whole, peer, "", None)).collect();
        let mut refused = Vec::new();
        for (nth, ask) in asked.into_iter().enumerate() {
            // The waiting future is dropped here, and its call stays in the queue.
            if let Ok(answer) = tokio::time::timeout(Duration::ZERO, ask).await {
                refused.push((nth, answer.expect_err("nobody answers").status()));
            }
        }
        refused
    };
    assert_eq!(block_on(ask).expect("runs"), [(1_024, StatusCode::SERVICE_UNAVAILABLE)]);
    assert_eq!(unavailable().headers().get(RETRY_AFTER), Some(&HeaderValue::from_static("1")));
}

#[test]
fn a_body_whose_client_has_left_keeps_its_room_until_its_call_is_answered() {
    let listener = listener(service(|_| ()), &Arc::default());
    let (all, body) = (listener.shared.bodies.free(), vec![7_u8; 1 << 20]);
    let mut client = connect(&listener);
    let (arrow, length) = (core::ARROW, body.len());
    let head = format!("POST /any HTTP/1.1\r\nHost: x\r\nContent-Type: {arrow}\r\nContent-Length: {length}\r\n\r\n");
    client.write_all(&[head.as_bytes(), &body].concat()).expect("written");
    let waiting = listener.next_call().expect("a call");
    drop(client);
    // Wait until the connection has ended and has dropped everything it held.
    listener.close().expect("closed");
    let (pending, _, respond) = waiting.into_parts();
    assert_eq!(pending.request().body.len(), length);
    assert!(
        listener.shared.bodies.free() <= all - length as u64,
        "the body is still there, and its memory was returned"
    );
    respond(Verdict::Answered(pending.error(500, "nobody waits for it")));
    assert_eq!(listener.shared.bodies.free(), all);
}

#[test]
fn requests_that_never_come_to_a_thread_are_counted_as_refused() {
    let counters = Arc::default();
    let listener = listener(service(|config| config.max_request_bytes = Some(1_000)), &counters);
    let arrow = core::ARROW;
    let ask = |request: &str, body: &[u8]| {
        let mut client = connect(&listener);
        client.write_all(&[request.as_bytes(), body].concat()).expect("written");
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).expect("an answer, and the end");
        String::from_utf8_lossy(&answer).into_owned()
    };
    let ends = "Host: x\r\nConnection: close\r\n";
    let chunked = [b"3e9\r\n".as_slice(), &[7; 1_001], b"\r\n0\r\n\r\n"].concat();
    let refused = [
        (404, format!("GET /a/b/c HTTP/1.1\r\n{ends}\r\n"), Vec::new()),
        (405, format!("GET /any HTTP/1.1\r\n{ends}\r\n"), Vec::new()),
        (415, format!("POST /any HTTP/1.1\r\n{ends}Content-Type: text/plain\r\nContent-Length: 0\r\n\r\n"), Vec::new()),
        (413, format!("POST /any HTTP/1.1\r\n{ends}Content-Type: {arrow}\r\nContent-Length: 1001\r\n\r\n"), Vec::new()),
        (
            413,
            format!("POST /any HTTP/1.1\r\n{ends}Content-Type: {arrow}\r\nTransfer-Encoding: chunked\r\n\r\n"),
            chunked,
        ),
    ];
    for (count, (status, request, body)) in (1..).zip(refused) {
        let answer = ask(&request, &body);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
        assert_eq!(counters.refusals(), count, "{request:?}");
    }
    let health = ask(&format!("GET /health HTTP/1.1\r\n{ends}\r\n"), b"");
    assert!(health.starts_with("HTTP/1.1 200 ") && counters.refusals() == 5, "{health}");
    let asked = ask(&format!("OPTIONS /a/b/c HTTP/1.1\r\n{ends}\r\n"), b"");
    assert!(asked.starts_with("HTTP/1.1 404 ") && counters.refusals() == 5, "{asked}");
    assert!(ask("\0\u{1} this is no HTTP\r\n\r\n", b"").starts_with("HTTP/1.1 400 "));
    // Wait until the connections have ended, because a client sees the end a moment before it is
    // counted.
    listener.close().expect("closed");
    assert_eq!(counters.refusals(), 6);
    counters.admission().late();
    assert_eq!(counters.refusals(), 7, "a connection without a first byte");
}
