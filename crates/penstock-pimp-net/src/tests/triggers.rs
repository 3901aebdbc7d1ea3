//! The server of a trigger, and its end.

use std::net::TcpStream;

use super::*;

#[test]
fn a_wait_for_a_request_ends_when_the_server_is_closed_and_requests_that_came_before_are_answered() {
    let server = TriggerServer::bind(([127, 0, 0, 1], 0).into(), None, 1 << 10).expect("bound");
    let mut caller = TcpStream::connect(server.address()).expect("connected");
    caller.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nok").expect("sent");
    let request = block_on(server.next()).expect("a runtime").expect("a request");
    let server = Arc::new(server);
    let waiting = Arc::clone(&server);
    let waiting = penstock_io::runtime::spawn(async move { waiting.next().await }).expect("a runtime");
    let closing = Arc::clone(&server);
    let closing = thread::spawn(move || closing.close(Duration::from_secs(10)));
    // The request still runs, so the server is not closed yet.
    thread::sleep(Duration::from_millis(100));
    assert!(!waiting.is_finished());
    request.answer(200, Vec::new(), b"done".to_vec());
    closing.join().expect("ended").expect("closed");
    assert!(block_on(waiting).expect("a runtime").expect("ended").is_none());
    assert!(block_on(server.next()).expect("a runtime").is_none());
    let mut answer = String::new();
    caller.read_to_string(&mut answer).expect("read");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("done"), "{answer}");
}
