use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::thread::{JoinHandle, spawn};

use arrow_schema::{Schema, SchemaRef};

use super::*;

/// Serve these responses, one per connection; the thread returns the request lines.
fn serve(answers: Vec<String>) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("bound");
    let base = format!("http://{}", listener.local_addr().expect("an address"));
    let serving = spawn(move || {
        let serve = |answer: String| {
            let (mut stream, _) = listener.accept().expect("a caller");
            let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
            let (mut first, mut length) = (String::new(), 0);
            reader.read_line(&mut first).expect("a request");
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).expect("a field");
                if let Some(stated) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = stated.trim().parse().expect("a number");
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            reader.read_exact(&mut vec![0; length]).expect("a body");
            stream.write_all(answer.as_bytes()).expect("written");
            first.trim().to_owned()
        };
        answers.into_iter().map(serve).collect()
    });
    (base, serving)
}

fn answer(status: u16, field: &str) -> String {
    format!("HTTP/1.1 {status} x\r\n{field}Content-Length: 0\r\nConnection: close\r\n\r\n")
}

fn client(base: &str, prefix: Option<&str>, retry: Option<Retry>) -> HttpClient {
    let (prefix, limits, headers) = (prefix.map(str::to_owned), Limits::default(), Headers::new());
    let options = ClientOptions { prefix, compression_level: None, retry, limits, headers };
    let client = HttpClient::connect(base, None, options).expect("a client");
    // If the client connected elsewhere, it would wait there for a response.
    client.set_timeout(Some(Duration::from_secs(5)));
    client
}

fn call(client: &HttpClient) -> Result<ResponseContent> {
    let nothing = Batch::new(SchemaRef::new(Schema::empty()), Vec::new(), 1);
    client.call("add", nothing, Metadata::new(), &mut || Ok(()))
}

#[test]
fn a_redirect_is_an_error_and_nothing_goes_where_it_leads() {
    for status in [301, 302, 303, 307, 308] {
        let elsewhere = TcpListener::bind(("127.0.0.1", 0)).expect("bound");
        elsewhere.set_nonblocking(true).expect("set");
        let there = format!("http://{}/add", elsewhere.local_addr().expect("an address"));
        let (base, serving) = serve(vec![answer(status, &format!("Location: {there}?signature=secret\r\n"))]);
        let error = call(&client(&base, Some(""), None)).expect_err("a redirect");
        let Error::Location(fault) = error else { panic!("{error}") };
        let (request, to) = ("POST /add".to_owned(), there);
        assert_eq!(fault, LocationFault::CallRedirect { request, status, to }, "without the signature");
        assert!(elsewhere.accept().is_err(), "somebody was sent there");
        assert_eq!(serving.join().expect("served"), ["POST /add HTTP/1.1"]);
    }
}

#[test]
fn a_server_that_redirects_the_request_for_the_prefix_has_its_methods_at_the_root() {
    let (base, serving) = serve(vec![answer(302, "Location: /login\r\n"), answer(401, "")]);
    let answered = call(&client(&base, None, None)).expect("an answer");
    assert!(
        matches!(answered.answers.front(), Some(Answer::Failed(failure)) if failure.error_type == "AuthenticationError")
    );
    let asked = serving.join().expect("served");
    assert_eq!(asked, ["OPTIONS /vgi/__capabilities__ HTTP/1.1", "POST /add HTTP/1.1"]);
}

#[test]
fn a_request_is_not_sent_again_where_the_time_of_its_answer_ends_before() {
    // The second pause is beyond the clock's range.
    for (requested, backoff_max) in [(3_600, Duration::from_secs(7_200)), (u64::MAX, Duration::MAX)] {
        let (base, serving) = serve(vec![answer(503, &format!("Retry-After: {requested}\r\n"))]);
        let retry = Retry {
            max_retries: 3,
            backoff_base: Duration::from_millis(1),
            backoff_max,
            status_codes: vec![503],
            connection_errors: false,
            retry_after: true,
        };
        let answered = call(&client(&base, Some(""), Some(retry))).expect("the answer that there is");
        let failed = answered.answers.front();
        assert!(matches!(failed, Some(Answer::Failed(failure)) if failure.error_type == "HttpTransientError"));
        assert_eq!(serving.join().expect("served").len(), 1);
    }
}
