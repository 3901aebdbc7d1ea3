use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use penstock_io::runtime::block_on;
use penstock_io::tls::{ClientTls, Fingerprint, Identity, ServerTls, Trust};

use super::*;
use crate::{Discard, Receiver, ReceiverOptions};

fn receiver(tls: Option<ServerTls>) -> Receiver {
    let options = ReceiverOptions { tls, ..ReceiverOptions::new(([127, 0, 0, 1], 0).into()) };
    Receiver::bind(options, Arc::new(Discard)).unwrap()
}

fn identity(dir: &Path) -> Identity {
    Identity::Development { dir: dir.to_owned() }
}

/// Check the error message of a sender that tries once.
fn fails(to: SocketAddr, fingerprint: Option<Fingerprint>, words: &[&str]) {
    let tls = fingerprint.map(|pinned| ClientTls { trust: Trust::Fingerprint(pinned), identity: None });
    let options = SenderOptions { tls, give_up: Some(Duration::ZERO), ..SenderOptions::new(vec![to.to_string()]) };
    let sender = Sender::new(options).unwrap();
    let mut chunk = Chunk::default();
    chunk.push_json(b"{}");
    let error = block_on(async {
        sender.send(&chunk).await?;
        sender.flush().await
    });
    let error = error.unwrap().unwrap_err().to_string();
    for word in [to.to_string().as_str()].iter().chain(words) {
        assert!(error.contains(word), "{word:?} is not in {error:?}");
    }
}

/// Start a host that accepts one connection, reads some bytes, and sends this answer.
fn answers(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 100]).unwrap();
        stream.write_all(answer).unwrap();
    });
    address
}

#[test]
fn an_error_says_which_receiver_what_happened_and_what_to_do() {
    let trust = "say whom to trust: fingerprint, ca or system_ca";
    fails(answers(&[0x15, 3, 3, 0, 2, 2, 80]), None, &["answers in TLS", trust]);
    fails(answers(b"HTTP/1.1 400 Bad Request\r\n\r\n"), None, &["it answers in HTTP"]);
    fails(answers(b""), None, &["it closed the connection", trust]);
    fails(answers(b"1A\0\0\0\x09"), None, &["event 9 is acknowledged, which was not sent"]);
    let folder = tempfile::tempdir().unwrap();
    let own = Some(ServerTls { identity: identity(folder.path()), client_ca: None });
    let encrypted = receiver(own.clone());
    fails(encrypted.local_addr().unwrap(), None, &[trust]);
    let pinned = encrypted.fingerprint().unwrap();
    fails(receiver(None).local_addr().unwrap(), pinned, &["if it does not speak TLS, leave fingerprint"]);
    let asks = own.map(|tls| ServerTls { client_ca: Some(folder.path().join("ca.pem")), ..tls });
    fails(receiver(asks).local_addr().unwrap(), pinned, &["it wants a client certificate: cert and key"]);
}

#[test]
fn what_no_receiver_takes_is_refused_and_what_compresses_well_arrives() {
    let receiver = receiver(None);
    let address = receiver.local_addr().unwrap().to_string();
    let sender =
        Sender::new(SenderOptions { give_up: Some(Duration::ZERO), ..SenderOptions::new(vec![address]) }).unwrap();
    let send = |lengths: &[usize]| {
        let mut chunk = Chunk::default();
        lengths.iter().for_each(|length| chunk.push_json(&vec![b'x'; *length]));
        block_on(sender.send(&chunk)).unwrap()
    };
    let error = send(&[9, (16 << 20) + 1]).unwrap_err();
    let crate::Error::Protocol(penstock_lumberjack::Error::Limit(exceeded, None)) = error else { panic!("{error}") };
    assert_eq!((exceeded.limit, exceeded.actual), (16 << 20, (16 << 20) + 1));
    assert_eq!(send(&[9, 9 << 20, 9]).unwrap(), 3, "nothing was given before");
    block_on(sender.flush()).unwrap().unwrap();
    assert_eq!(receiver.counters().unwrap().acknowledged, 3);
}
