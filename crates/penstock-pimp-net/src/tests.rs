//! Senders and consumers over a real buffer, and over servers that are not buffers.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use penstock_io::runtime::block_on;
use penstock_io::tls::{ClientTls, Identity, ServerTls, Trust};
use penstock_pimp::{Conflict, Error as PimpError, Failure, Stalled, State};

use super::*;
use crate::{Error, Result};

const KEY: &str = "writer";

fn buffer(tls: Option<&ServerTls>) -> Buffer {
    let service = Service::new(ServiceConfig {
        store: Arc::new(MemoryStore::new()),
        limits: Limits::default(),
        jwt_secret: None,
        allow_origin: None,
    });
    Buffer::bind(&service, ([127, 0, 0, 1], 0).into(), tls, None, Buffer::CONNECTIONS).expect("bound")
}

fn id() -> JobId {
    JobId::from_random([7; 16])
}

fn client_at(address: SocketAddr) -> Arc<JobClient> {
    let url = format!("http://{address}/pimp/{}", id());
    Arc::new(JobClient::new(&url, &ClientOptions::default()).expect("valid"))
}

fn job(buffer: &Buffer) -> Arc<JobClient> {
    let client = client_at(buffer.address());
    let created = wait(client.create(KEY, None, Some("reader"))).expect("made");
    assert!(created.new && created.etag.as_deref() == Some("\"1\""));
    client
}

fn wait<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    block_on(future).expect("a runtime")
}

fn code(error: &Error) -> Code {
    match error {
        Error::Protocol(error) => error.code(),
        Error::Misuse(_) => Code::Misuse,
        Error::Local(_) => panic!("{error}"),
    }
}

/// Return whether rustls has reported a general error, as it does for a certificate with another
/// fingerprint than the pinned one.
fn is_general(error: &(dyn std::error::Error + 'static)) -> bool {
    // The source of an IO error is that of the error inside it, which may be another IO error.
    if let Some(inside) = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
        return is_general(inside);
    }
    matches!(error.downcast_ref(), Some(rustls::Error::General(_))) || error.source().is_some_and(is_general)
}

fn start(client: &Arc<JobClient>, config: SenderConfig) -> Sender {
    Sender::start(Arc::clone(client), KEY.to_owned(), None, config).expect("valid")
}

fn bytes(bytes: &[u8]) -> Piece {
    Piece::Bytes(Bytes::copy_from_slice(bytes))
}

fn text(text: &str) -> Piece {
    Piece::Text(Bytes::copy_from_slice(text.as_bytes()))
}

fn config() -> ConsumerConfig {
    ConsumerConfig { wait: Duration::from_secs(25), limit: POLL_LIMIT, ..ConsumerConfig::default() }
}

fn fetch(client: &Arc<JobClient>, config: ConsumerConfig) -> Result<(Metadata, Vec<u8>)> {
    let mut consumer = Consumer::new(Arc::clone(client), Some("reader".into()), config);
    let mut payload = Vec::new();
    while let Some(received) = wait(consumer.next())? {
        if let Received::Data(data) = received {
            payload.extend_from_slice(&data);
        }
    }
    Ok((consumer.metadata().expect("chunk 0").clone(), payload))
}

#[test]
fn every_payload_is_fetched_as_it_was_sent() {
    let noise: Vec<u8> = (0..3_000_000_u32).flat_map(|each| each.wrapping_mul(2_654_435_761).to_be_bytes()).collect();
    let cases = [
        (SenderConfig::default(), text("grüße"), ContentEncoding::Identity, "text/plain; charset=utf-8"),
        (SenderConfig::default(), bytes(&noise), ContentEncoding::Base64, "application/octet-stream"),
        (SenderConfig { gzip: true, ..SenderConfig::default() }, bytes(&noise), ContentEncoding::Base64, ""),
        (SenderConfig::default(), bytes(b""), ContentEncoding::Base64, ""),
    ];
    for (config, piece, encoding, content_type) in cases {
        let buffer = buffer(None);
        let client = job(&buffer);
        let sender = start(&client, config);
        let sent = match &piece {
            Piece::Bytes(bytes) | Piece::Text(bytes) => bytes.to_vec(),
        };
        let fetching = {
            let client = Arc::clone(&client);
            thread::spawn(move || fetch(&client, self::config()))
        };
        wait(sender.send(piece)).expect("sent");
        wait(sender.finish()).expect("finished");
        let (metadata, payload) = fetching.join().expect("no panic").expect("fetched");
        assert!(payload == sent, "{} of {} bytes", payload.len(), sent.len());
        assert_eq!(metadata.content_encoding, encoding);
        assert!(content_type.is_empty() || metadata.content_type == content_type, "{}", metadata.content_type);
        assert!(wait(client.status(Some("reader"))).expect("known").0.sha256.is_some());
        buffer.close(Duration::from_secs(10)).expect("closed");
    }
}

#[test]
fn a_flush_is_over_when_the_buffer_has_what_was_sent() {
    let buffer = buffer(None);
    let client = job(&buffer);
    let sender = start(&client, SenderConfig { flush_interval: Duration::from_secs(3_600), ..SenderConfig::default() });
    wait(sender.send(text("abc"))).expect("sent");
    wait(sender.flush()).expect("flushed");
    let (status, _) = wait(client.status(Some(KEY))).expect("known");
    assert_eq!((status.state, status.next_index), (State::Active, 2));
    assert_eq!(sender.progress().bytes, 3);
    drop(sender);
    // The holder of the key can continue, because nothing has ended the job.
    assert_eq!(wait(client.status(Some(KEY))).expect("known").0.state, State::Active);
}

#[test]
fn a_job_that_is_cancelled_stops_its_writer_and_says_so() {
    let buffer = buffer(None);
    let client = job(&buffer);
    let sender = start(&client, SenderConfig::default());
    wait(sender.send(text("abc"))).expect("sent");
    wait(sender.flush()).expect("flushed");
    assert!(wait(client.cancel("reader")).expect("taken"));
    let refused = wait(async {
        loop {
            sender.send(text("def")).await?;
            sender.flush().await?;
        }
    });
    let refused: Result<()> = refused;
    assert_eq!(code(&refused.unwrap_err()), Code::Cancelled);
    assert_eq!(code(&wait(sender.finish()).unwrap_err()), Code::Cancelled);
    assert_eq!(wait(client.status(Some(KEY))).expect("known").0.state, State::Failed);
    assert_eq!(code(&fetch(&client, config()).unwrap_err()), Code::Failed);
}

#[test]
fn a_takeover_ends_the_old_writer() {
    let buffer = buffer(None);
    let client = job(&buffer);
    let old = start(&client, SenderConfig::default());
    wait(old.send(text("abc"))).expect("sent");
    wait(old.flush()).expect("flushed");
    assert_eq!(code(&wait(client.take_over("\"9\"", KEY, "new")).unwrap_err()), Code::PreconditionFailed);
    let (_, etag) = wait(client.status(Some(KEY))).expect("known");
    let taken = wait(client.take_over(&etag.expect("an ETag"), KEY, "new")).expect("taken over");
    assert_eq!(taken.etag.as_deref(), Some("\"2\""));
    wait(old.send(text("def"))).expect("not refused yet");
    assert_eq!(code(&wait(old.flush()).unwrap_err()), Code::Unauthorized);
    let new = Sender::start(Arc::clone(&client), "new".into(), None, SenderConfig::default()).expect("valid");
    // The same chunks as before, and one more.
    wait(new.send(text("abc"))).expect("sent");
    wait(new.flush()).expect("flushed");
    wait(new.fail("it is over".into())).expect("written");
    let error = fetch(&client, config()).unwrap_err();
    assert!(matches!(&error, Error::Protocol(PimpError::Failed { reason }) if reason == "it is over"), "{error}");
}

#[test]
fn a_sender_that_takes_a_job_over_writes_the_same_or_fails_it_and_says_so() {
    // The pieces that are sent after the takeover, and whether the job is then completed.
    let cases =
        [(&["abc", "def"][..], true), (&["abc"], false), (&["abd", "def"], false), (&["abc", "def", "g"], true)];
    for (pieces, completed) in cases {
        let buffer = buffer(None);
        let client = job(&buffer);
        let old = start(&client, SenderConfig::default());
        for piece in ["abc", "def"] {
            wait(old.send(text(piece))).expect("sent");
            wait(old.flush()).expect("flushed");
        }
        wait(client.take_over("\"1\"", KEY, "new")).expect("taken over");
        let new = Sender::start(Arc::clone(&client), "new".into(), None, SenderConfig::default()).expect("valid");
        let sent = wait(async {
            for piece in pieces {
                new.send(text(piece)).await?;
                new.flush().await?;
            }
            new.finish().await
        });
        let read = fetch(&client, config());
        if completed {
            assert!(matches!(sent, Ok(())));
            assert_eq!(read.expect("whole").1, pieces.concat().into_bytes());
            continue;
        }
        let error = sent.expect_err("another payload is there");
        assert!(matches!(error, Error::Protocol(PimpError::Conflict(Conflict::Writer { .. }))), "{error}");
        assert_eq!(code(&read.expect_err("it failed")), Code::Failed);
    }
}

#[test]
fn chunk_0_waits_for_no_further_input_and_nothing_is_accepted_after_the_end() {
    let buffer = buffer(None);
    let client = job(&buffer);
    let sender = start(&client, SenderConfig::default());
    let mut consumer = Consumer::new(Arc::clone(&client), Some("reader".into()), config());
    let first = wait(consumer.next()).expect("read");
    assert!(matches!(first, Some(Received::Metadata(metadata)) if metadata.content_type == "application/octet-stream"));
    // Too late: the type has already been sent.
    wait(sender.describe("text/csv".into())).expect("taken");
    wait(sender.send(text("abc"))).expect("sent");
    wait(sender.finish()).expect("finished");
    for late in [wait(sender.send(text("d"))), wait(sender.flush()), wait(sender.describe("a/b".into()))] {
        assert_eq!(code(&late.expect_err("it has ended")), Code::Misuse);
    }
    assert_eq!(wait(consumer.next()).unwrap(), Some(Received::Data(b"abc".to_vec())));
    let buffer = self::buffer(None);
    let client = job(&buffer);
    let sender = start(&client, SenderConfig::default());
    wait(sender.describe("text/csv".into())).expect("taken");
    wait(sender.send(bytes(b"a,b"))).expect("sent");
    wait(sender.finish()).expect("finished");
    assert_eq!(fetch(&client, config()).expect("whole").0.content_type, "text/csv");
}

#[test]
fn a_type_that_was_said_in_time_counts_though_no_piece_comes_in_time() {
    let buffer = buffer(None);
    let client = job(&buffer);
    let sender = start(&client, SenderConfig::default());
    wait(sender.describe("text/csv".into())).expect("taken");
    let mut consumer = Consumer::new(Arc::clone(&client), Some("reader".into()), config());
    let first = wait(consumer.next()).expect("read");
    assert!(matches!(first, Some(Received::Metadata(metadata)) if metadata.content_type == "text/csv"));
    wait(sender.send(text("a,b"))).expect("sent");
    wait(sender.finish()).expect("finished");
    assert_eq!(wait(consumer.next()).unwrap(), Some(Received::Data(b"a,b".to_vec())));
}

/// Run a proxy in front of a buffer that loses the first response.
fn lossy(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("bound");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let (Ok(mut near), Ok(mut far)) = (stream, std::net::TcpStream::connect(to)) else { return };
            let mut bytes = vec![0; 64 << 10];
            // One request on each connection, whose head and body arrive together.
            let Ok(read) = near.read(&mut bytes) else { return };
            let asked = String::from_utf8_lossy(&bytes[..read]).replacen("\r\n", "\r\nConnection: close\r\n", 1);
            let mut answer = Vec::new();
            let done = far.write_all(asked.as_bytes()).and_then(|()| far.read_to_end(&mut answer));
            if done.is_ok() && number > 0 {
                let _ = near.write_all(&answer);
            }
        }
    });
    address
}

#[test]
fn what_was_done_before_its_answer_was_lost_is_done() {
    let buffer = buffer(None);
    let direct = job(&buffer);
    let client = client_at(lossy(buffer.address()));
    wait(client.take_over("\"1\"", KEY, "new")).expect("taken over by the request before");
    wait(direct.take_over("\"2\"", "new", "newer")).expect("once");
    let refused = wait(direct.take_over("\"2\"", "newer", "newest")).unwrap_err();
    assert_eq!(code(&refused), Code::PreconditionFailed);
    let client = client_at(lossy(buffer.address()));
    wait(client.delete("newer")).expect("deleted by the request before");
    assert_eq!(code(&wait(direct.delete("newer")).unwrap_err()), Code::NotFound);
}

#[test]
fn identity_that_turns_out_to_be_bytes_fails_the_job() {
    let buffer = buffer(None);
    let client = job(&buffer);
    let sender = start(&client, SenderConfig::default());
    wait(sender.send(text("abc"))).expect("sent");
    wait(sender.flush()).expect("flushed");
    let sent = wait(sender.send(bytes(&[0xFF]))).and_then(|()| wait(sender.finish()));
    assert_eq!(code(&sent.unwrap_err()), Code::Misuse);
    assert_eq!(code(&fetch(&client, config()).unwrap_err()), Code::Failed);
}

#[test]
fn keys_go_only_where_they_may() {
    let job = format!("pimp/{}", id());
    let none: &[String] = &[];
    let allowed: &[String] = &["buffer.example".into(), "[::1]:8443".into()];
    let cases = [
        (format!("http://buffer.example/{job}"), None),
        (format!("http://192.168.0.1/{job}"), None),
        (format!("http://127.0.0.1.example/{job}"), None),
        (format!("http://localhost.example/{job}"), None),
        (format!("ftp://127.0.0.1/{job}"), None),
        (format!("https://user:hunter2@buffer.example/{job}"), None),
        (format!("https://buffer.example@evil.example/{job}"), Some(allowed)),
        (format!("https://buffer.example.evil.example/{job}"), Some(allowed)),
        (format!("https://127.0.0.1/{job}"), Some(allowed)),
        (format!("https://[::1]/{job}"), Some(allowed)),
        (format!("https://buffer.example/{job}"), Some(none)),
        ("file:///etc/passwd".into(), None),
        (format!("https:///{job}"), Some(allowed)),
    ];
    for (url, allowed) in cases {
        let error = check_url(&url, allowed).expect_err(&url);
        assert!(code(&error) == Code::Misuse && !error.to_string().contains("hunter2"), "{error}");
    }
    check_url("https://[::1]:8443/x", Some(&["::1".to_owned()])).expect("allowed");
    for url in ["https://buffer.example/x", "https://BUFFER.example:443/x", "https://[::1]:8443/x"] {
        check_url(url, Some(allowed)).expect("allowed");
    }
    for url in ["http://localhost:1/x", "http://[::1]/x", "http://2130706433/x"] {
        check_url(url, None).expect("loopback");
    }
    for path in ["pimp/none", "", &format!("{job}/status"), &format!("{job}?a=b")] {
        let url = format!("http://127.0.0.1/{path}");
        assert_eq!(code(&JobClient::new(&url, &ClientOptions::default()).unwrap_err()), Code::Misuse, "{url}");
    }
    let chunks = JobClient::new(&format!("http://127.0.0.1/x/{job}/chunks"), &ClientOptions::default()).expect("valid");
    assert_eq!(chunks.url(), format!("http://127.0.0.1/x/{job}"));
}

#[test]
fn an_allowed_host_is_the_same_however_it_is_written() {
    for (url, host) in [
        ("https://b\u{fc}cher.example/x", "XN--bcher-kva.example"),
        ("https://xn--bcher-kva.example/x", "B\u{dc}CHER.example."),
        ("https://buffer.example./x", "buffer.example"),
        ("https://[0:0::1]:9/x", "[0::0:1]"),
        ("https://[::1]:9/x", "0::1"),
        ("https://[::1]:9/x", "[0:0::1]:9"),
        ("https://192.168.0.1/x", "192.168.1"),
        ("https://buffer.example/x", "buffer.example:443"),
        ("http://127.0.0.1/x", "127.0.0.1:80"),
    ] {
        check_url(url, Some(&[host.to_owned()])).expect(host);
    }
    for (url, host) in [
        ("https://b\u{fc}cher.example/x", "bucher.example"),
        ("https://buffer.example:444/x", "buffer.example:443"),
        ("https://buffer.example/x", "buffer.example:80"),
        ("https://[::1]:9/x", "[::1]:8"),
        ("https://buffer.example/x", "user@buffer.example"),
        ("https://buffer.example/x", "https://buffer.example"),
        ("https://buffer.example/x", "buffer.example/x"),
        ("https://buffer.example/x", ""),
        ("https://buffer.example/x", "buffer.example:x"),
        ("https://buffer.example/x", ".buffer.example"),
    ] {
        assert_eq!(code(&check_url(url, Some(&[host.to_owned()])).expect_err(host)), Code::Misuse);
    }
}

#[test]
fn only_trusted_servers_are_accepted() {
    let folder = tempfile::tempdir().expect("a folder");
    let identity = Identity::Development { dir: folder.path().to_owned() };
    let buffer = buffer(Some(&ServerTls { identity, client_ca: None }));
    let url = format!("https://{}/pimp/{}", buffer.address(), id());
    let options = |trust| ClientOptions {
        tls: Some(ClientTls { trust, identity: None }),
        retry: Duration::ZERO,
        ..ClientOptions::default()
    };
    let trusted = Trust::Fingerprint(buffer.fingerprint().expect("TLS"));
    let client = JobClient::new(&url, &options(trusted)).expect("valid");
    assert!(wait(client.create(KEY, None, None)).expect("made").new);
    let other = Trust::Fingerprint("ab".repeat(32).parse().expect("a fingerprint"));
    // Waiting does not change an identity, so this is not retried, however long the timeout is.
    let patient = ClientOptions { retry: Duration::from_secs(1_000_000), ..options(other) };
    let client = Arc::new(JobClient::new(&url, &patient).expect("valid"));
    let is_said = |error: Error| {
        let Error::Local(penstock_io::Error::Tls { source: Some(source), .. }) = error else { return false };
        is_general(&*source)
    };
    assert!(is_said(wait(client.status(None)).expect_err("another")));
    let long = Duration::from_secs(1_000_000);
    assert!(is_said(fetch(&client, ConsumerConfig { stall_timeout: long, ..config() }).expect_err("another")));
    let sender = start(&client, SenderConfig { stall_timeout: long, ..SenderConfig::default() });
    assert!(is_said(wait(sender.finish()).expect_err("another")));
    let asked = trigger(&url, &patient, None, Vec::new());
    assert!(is_said(wait(asked).expect_err("another")));
    assert_eq!(code(&JobClient::new(&url, &ClientOptions::default()).unwrap_err()), Code::Misuse);
}

/// Answer every request with these bytes, indefinitely.
fn evil(answer: Vec<u8>, more: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("bound");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 4_096]);
            let mut sent = stream.write_all(&answer);
            while sent.is_ok() && !more.is_empty() {
                sent = stream.write_all(&more);
            }
        }
    });
    address
}

fn head(status: &str, rest: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nConnection: close\r\n{rest}\r\n").into_bytes()
}

#[test]
fn an_answer_without_end_costs_bounded_memory() {
    let client = client_at(evil(head("200 OK", ""), vec![b' '; 1 << 20]));
    assert_eq!(code(&fetch(&client, config()).unwrap_err()), Code::TooLarge);
}

#[test]
fn a_redirect_is_not_followed() {
    let secret = evil(head("200 OK", "Content-Length: 2\r\n"), Vec::new());
    let location = format!("Location: http://{secret}/\r\nContent-Length: 0\r\n");
    let client = client_at(evil(head("307 Temporary Redirect", &location), Vec::new()));
    assert_eq!(code(&fetch(&client, config()).unwrap_err()), Code::UnexpectedStatus);
    let sender = start(&client, SenderConfig { encoding: Encoding::Base64, ..SenderConfig::default() });
    assert_eq!(code(&wait(sender.finish()).unwrap_err()), Code::UnexpectedStatus);
}

#[test]
fn every_wait_has_a_limit() {
    let quick = Duration::from_millis(300);
    let gone = client_at(evil(Vec::new(), Vec::new()));
    let stalled = ConsumerConfig { stall_timeout: quick, poll_interval: quick / 10, ..config() };
    let error = fetch(&gone, stalled.clone()).unwrap_err();
    let stalled_first =
        |stalled: &Stalled| matches!(stalled, Stalled::Poll { last: None, failure: Some(Failure::Request(_)), .. });
    assert!(matches!(&error, Error::Protocol(PimpError::Stalled(error)) if stalled_first(error)), "{error}");
    let sending = SenderConfig {
        stall_timeout: quick,
        encoding: Encoding::Base64,
        retry_interval: quick / 10,
        ..SenderConfig::default()
    };
    let sender = start(&gone, sending.clone());
    assert_eq!(code(&wait(sender.finish()).unwrap_err()), Code::Stalled);
    // A server that accepts requests and never answers.
    let mute = TcpListener::bind(("127.0.0.1", 0)).expect("bound");
    let sender = start(&client_at(mute.local_addr().expect("bound")), sending.clone());
    let soon = std::time::Instant::now() + Duration::from_secs(20);
    let ended = penstock_io::runtime::wait(sender.finish(), Some(soon), &mut || Ok(()));
    assert!(matches!(ended, Ok(Err(error)) if code(&error) == Code::Stalled), "longer than its time to stall");
    // A request that is being retried is not flushed.
    let sender = start(&gone, sending);
    assert_eq!(code(&wait(sender.flush()).unwrap_err()), Code::Stalled);
    // A head, and then silence.
    let silent = client_at(evil(head("200 OK", "Content-Length: 10\r\n"), Vec::new()));
    assert_eq!(code(&fetch(&silent, stalled).unwrap_err()), Code::Stalled);
    let once = ClientOptions { retry: Duration::ZERO, ..ClientOptions::default() };
    let gone = JobClient::new(gone.url(), &once).expect("valid");
    assert!(matches!(wait(gone.status(None)), Err(Error::Local(penstock_io::Error::Io { .. }))));
}

#[test]
fn the_answer_to_an_abandoned_poll_is_not_lost() {
    let buffer = buffer(None);
    let client = job(&buffer);
    let mut consumer = Consumer::new(Arc::clone(&client), Some("reader".into()), config());
    for _ in 0..3 {
        let soon = Some(std::time::Instant::now() + Duration::from_millis(20));
        let waited = penstock_io::runtime::wait(consumer.next(), soon, &mut || Ok(()));
        assert!(matches!(waited, Err(penstock_io::runtime::WaitError::Deadline)), "{waited:?}");
    }
    let sender = start(&client, SenderConfig::default());
    wait(sender.send(text("abc"))).expect("sent");
    wait(sender.finish()).expect("finished");
    assert!(matches!(wait(consumer.next()), Ok(Some(Received::Metadata(_)))));
    assert_eq!(wait(consumer.next()).unwrap(), Some(Received::Data(b"abc".to_vec())));
    assert_eq!(wait(consumer.next()).unwrap(), None);
}

mod sharing;
mod triggers;
