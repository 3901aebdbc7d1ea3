//! Documents in parts by gRPC: tonic over TLS, one bidirectional call for each document.
//!
//! `grpc document --size N --part N --count N`: the sender hashes each part and sends it with its SHA-256; the receiver
//! hashes it, compares, and answers for each part; a document has ended when all of its parts are answered.

mod service;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use bytes::Bytes;
use peers_common::{Arguments, Mark, Receiver, end_with_parent, noise, say};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity, Server, ServerTlsConfig};

use service::{Answer, Documents, Part, call};

fn main() {
    let arguments = Arguments::read();
    // penstock has one thread for IO and one for its caller; so has this.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    match arguments.command.as_str() {
        "receive" => runtime.block_on(receive()),
        "document" => println!("{}", runtime.block_on(send(&arguments))),
        other => panic!("{other:?} is no command"),
    }
}

async fn receive() {
    end_with_parent();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.expect("a port");
    say(&json!({
        "address": listener.local_addr().expect("an address").to_string(),
        "certificate": made.cert.pem(),
    }));
    let tls = ServerTlsConfig::new().identity(Identity::from_pem(made.cert.pem(), made.signing_key.serialize_pem()));
    let incoming = TcpListenerStream::new(listener)
        .map(|stream| stream.and_then(|stream| stream.set_nodelay(true).map(|()| stream)));
    Server::builder()
        .tls_config(tls)
        .expect("TLS")
        // HTTP/2's own windows of 64 KiB would make it wait for every part.
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(32 << 20)
        .add_service(Documents)
        .serve_with_incoming(incoming)
        .await
        .expect("it serves");
}

async fn send(arguments: &Arguments) -> Value {
    let receiver = Receiver::start(arguments);
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(receiver.text("certificate")))
        .domain_name("localhost");
    let channel = Channel::from_shared(format!("https://{}", receiver.text("address")))
        .expect("an address")
        .tls_config(tls)
        .expect("TLS")
        .tcp_nodelay(true)
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(32 << 20)
        .connect()
        .await
        .expect("a connection");
    let (size, part) = (arguments.get("size", 8_usize << 20), arguments.get("part", 64_usize << 10));
    let bytes = Bytes::from(noise(part));
    document(&channel, size, &bytes).await;
    let count = arguments.get("count", 1_u64);
    let mark = Mark::now(&receiver);
    let mut seconds = Vec::new();
    for _ in 0..count {
        let began = Instant::now();
        document(&channel, size, &bytes).await;
        seconds.push(began.elapsed().as_secs_f64());
    }
    let mut report = mark.report(count, count * size as u64);
    report["each"] = json!(seconds);
    report
}

async fn document(channel: &Channel, size: usize, bytes: &Bytes) {
    let (sender, parts) = tokio::sync::mpsc::channel(32);
    let bytes = bytes.clone();
    tokio::spawn(async move {
        let mut left = size;
        while left > 0 {
            let data = bytes.slice(..left.min(bytes.len()));
            left -= data.len();
            let sha256 = Bytes::copy_from_slice(&Sha256::digest(&data));
            if sender.send(Part { data, sha256 }).await.is_err() {
                return;
            }
        }
    });
    let mut answers = call(channel, ReceiverStream::new(parts)).await;
    let mut received = 0;
    while let Some(Answer { bytes }) = answers.message().await.expect("an answer") {
        received += bytes;
    }
    assert_eq!(received, size as u64, "not every part was answered");
}
