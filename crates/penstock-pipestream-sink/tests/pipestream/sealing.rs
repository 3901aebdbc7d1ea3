//! Headers that are sealed with a header key (section 10.6): their bytes on the wire, and sessions that use them.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::thread::{sleep, spawn};
use std::time::Duration;

use bytes::BytesMut;
use penstock_io::tls::{ClientTls, Trust};
use penstock_pipestream::header_key::HeaderKeys;
use penstock_pipestream::{Frame, FrameDecoder, HeaderDecoder, Layer2Frame, PipeDoc, SessionFrame};
use penstock_pipestream_net::{
    Capabilities, Client, EntityDraft, EntityHeader, ErrorCode, Payload, SessionId, SessionOptions, Status, channel,
};
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, ServerConfig};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::raw::{RawClient, capabilities, header, pending, run};
use crate::support::{Pair, anywhere, block, container, draft, id, log};
use crate::survival::Wire;

const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const SECRETS: [&str; 6] = ["salaries", "board meeting", "application/vnd.secret", "alice", "penstock.", "child-scope"];

fn keys(text: &str) -> Option<HeaderKeys> {
    Some(HeaderKeys::parse(text).unwrap())
}

fn options(layers: u8) -> SessionOptions {
    let mut options = SessionOptions { header_keys: keys(KEY), ..SessionOptions::default() };
    options.session.capabilities.layer1 = layers > 0;
    options.session.capabilities.layer2 = layers > 1;
    options
}

fn secret_draft() -> EntityDraft {
    let metadata = [("penstock.document", "salaries.zip"), ("penstock.path", "[\"board meeting\"]")];
    let ownership = penstock_pipestream::OwnershipContext { owner_id: Some("alice".to_owned()), ..Default::default() };
    EntityDraft {
        metadata: metadata.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        document: Some(PipeDoc { doc_id: "d".to_owned(), entity_id: 0, ownership: Some(ownership) }),
        ..draft("application/vnd.secret")
    }
}

/// Run a server of bare quinn, which answers CAPABILITIES, and return the bytes of `count` entity streams.
async fn streams_of(endpoint: &Endpoint, count: usize) -> Vec<Vec<u8>> {
    let connection = endpoint.accept().await.unwrap().await.unwrap();
    let (mut send, mut receive) = connection.accept_bi().await.unwrap();
    let mut decoder = FrameDecoder::new();
    while !matches!(decoder.next_frame().unwrap(), Some(Frame::Capabilities(_))) {
        decoder.push(receive.read_chunk(usize::MAX, true).await.unwrap().unwrap().bytes);
    }
    let mut bytes = BytesMut::new();
    Frame::Capabilities(capabilities()).encode(&mut bytes);
    send.write_all(&bytes).await.unwrap();
    let mut streams = Vec::new();
    while streams.len() < count {
        streams.push(connection.accept_uni().await.unwrap().read_to_end(1 << 20).await.unwrap());
    }
    streams
}

/// Read every header of a small entity, of a file's chunks and of a container, as a tap behind TLS
/// would.
#[test]
fn the_wire_shows_no_metadata_and_no_type_of_any_header() {
    let pair = Pair::with_sink();
    let tls = pair.dir.path().join("tls");
    let certificate = CertificateDer::from_pem_file(tls.join("cert.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(tls.join("key.pem")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = vec![b"pipestream/1".to_vec()];
    let config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(config).unwrap()));
    let trust = Trust::Fingerprint(pair.server.fingerprint().unwrap());
    let (address_sender, address_receiver) = std::sync::mpsc::channel();
    let tap = spawn(move || {
        run(async {
            let endpoint = Endpoint::server(config, anywhere()).unwrap();
            address_sender.send(endpoint.local_addr().unwrap()).unwrap();
            streams_of(&endpoint, 1 + 3 + 1).await
        })
    });
    let client = Client::new(&ClientTls { trust, identity: None }).unwrap();
    let session = block(client.connect(address_receiver.recv().unwrap(), "localhost", options(1))).unwrap();
    block(session.send(secret_draft(), Payload::bytes(b"small".to_vec()))).unwrap();
    let chunked = EntityDraft { chunk_size: Some(4), ..secret_draft() };
    block(session.send(chunked, Payload::bytes(b"in 3 chunks".to_vec()))).unwrap();
    block(session.send(EntityDraft { dehydrate: true, ..secret_draft() }, Payload::empty())).unwrap();
    let streams = tap.join().unwrap();
    let mut entries = HashSet::new();
    for stream in &streams {
        let shown = String::from_utf8_lossy(stream);
        assert!(SECRETS.iter().all(|secret| !shown.contains(secret)), "{shown}");
        let header = HeaderDecoder::new().push(stream.clone().into()).unwrap().unwrap();
        assert_eq!(header.content_type, "application/octet-stream");
        assert_eq!(header.metadata.keys().collect::<Vec<_>>(), ["pipestream.sealed"]);
        entries.insert(header.metadata["pipestream.sealed"].clone());
    }
    assert_eq!(entries.len(), streams.len(), "each header is sealed under a nonce of its own, chunks included");
}

#[test]
fn the_sink_has_at_every_layer_what_the_sender_said() {
    for layers in 0..=2 {
        let pair = Pair::with_options(|server| server.session = options(layers));
        let client = pair.connect_with(options(layers));
        let parent = block(client.send(EntityDraft { dehydrate: true, ..secret_draft() }, Payload::empty())).unwrap();
        let part = EntityDraft { parent: Some(parent.key), document: None, ..secret_draft() };
        let chunked = EntityDraft { chunk_size: Some(50_000), ..part.clone() };
        let parts = [
            block(client.send(part, Payload::bytes(b"small".to_vec()))).unwrap(),
            block(client.send(chunked, Payload::bytes(vec![7; 200_000]))).unwrap(),
        ];
        block(client.end_children(parent.key)).unwrap();
        for sent in [parent, parts[0], parts[1]] {
            assert_eq!(block(client.wait_resolved(sent.key)).unwrap().status, Status::Complete, "layer {layers}");
        }
        let session = id(&client);
        assert_eq!(block(client.close()).unwrap().code, ErrorCode::NoError);
        for line in log(&pair.sink(), &session).iter().filter(|line| line.get("closed").is_none()) {
            assert_eq!(line["content_type"], "application/vnd.secret");
            assert_eq!(line["metadata"]["penstock.document"], "salaries.zip");
            assert!(line["metadata"].get("pipestream.sealed").is_none());
            assert_eq!(line["parent"].is_null(), line["owner"]["owner_id"] == "alice", "{line}");
        }
    }
}

#[test]
fn results_are_sealed_as_well() {
    let (consumer, sessions) = channel(4);
    let pair = Pair::new(tempfile::tempdir().unwrap(), consumer, |server| server.session = options(2));
    let client = pair.connect_with(options(2));
    let server = block(sessions.next()).unwrap();
    let result = block(server.send(secret_draft(), Payload::bytes(b"result".to_vec()))).unwrap();
    let received = block(client.next_entity()).unwrap().unwrap();
    assert_eq!(received.header().content_type, "application/vnd.secret");
    assert_eq!(block(received.complete()).unwrap(), ());
    assert_eq!(block(server.wait_resolved(result.key)).unwrap().status, Status::Complete);
    assert_eq!(block(client.close()).unwrap().code, ErrorCode::NoError);
}

#[test]
fn a_session_that_goes_on_over_another_connection_seals_on() {
    let surviving = || {
        let mut options = options(2);
        options.survives = Some(Duration::from_secs(60));
        options.idle_timeout = Duration::from_secs(1);
        options.mtu = Some(1_452);
        options
    };
    let pair = Pair::with_options(|server| server.session = surviving());
    let wire = Arc::new(Wire::to(pair.server.local_addr().unwrap()));
    let client = block(pair.client.connect(wire.address, "localhost", surviving())).unwrap();
    let parent = block(client.send(container(), Payload::empty())).unwrap();
    let mut sent = vec![parent];
    for number in 0..40 {
        if number == 20 {
            wire.cut();
            let restored_wire = Arc::clone(&wire);
            spawn(move || {
                sleep(Duration::from_secs(2));
                restored_wire.restore();
            });
        }
        let part = EntityDraft { parent: Some(parent.key), document: None, ..secret_draft() };
        sent.push(block(client.send(part, Payload::bytes(vec![number; 2_000]))).unwrap());
    }
    block(client.end_children(parent.key)).unwrap();
    for ticket in sent {
        assert_eq!(block(client.wait_resolved(ticket.key)).unwrap().status, Status::Complete);
    }
    let session = id(&client);
    assert_eq!(block(client.close()).unwrap().code, ErrorCode::NoError);
    assert!(pair.server.counters().unwrap().reconnects >= 1);
    let lines = log(&pair.sink(), &session);
    assert_eq!(lines.iter().filter(|line| line["metadata"]["penstock.document"] == "salaries.zip").count(), 40);
}

/// Return the sealed header of a raw client's entity in a session of this name.
fn sealed(name: SessionId, entity: u32, payload: &[u8]) -> EntityHeader {
    keys(KEY).unwrap().for_session(name).unwrap().seal(&header(entity, payload), [entity as u8; 12]).unwrap()
}

#[test]
fn a_sealed_header_that_overtakes_the_sessions_name_waits_for_it() {
    let pair = Pair::with_options(|server| server.session = options(2));
    let name = SessionId::new([0xCD; 16]);
    run(async {
        let mut peer = RawClient::silent(&pair).await;
        peer.send_frames(&[Frame::Capabilities(Capabilities { layer2: true, ..capabilities() })]).await;
        assert!(matches!(peer.next_frame().await, Frame::Capabilities(_)));
        peer.stream(&sealed(name, 1, b"x"), b"x").await;
        let large = vec![7; 100_000];
        peer.stream(&sealed(name, 2, &large), &large).await;
        peer.send_frames(&[pending(1), pending(2)]).await;
        peer.expect_open().await;
        peer.send_frames(&[Frame::Layer2(Layer2Frame::Session(SessionFrame::named(name)))]).await;
        assert!(matches!(peer.next_frame().await, Frame::Private(_)));
        let mut ended = [peer.hear_status().await.0, peer.hear_status().await.0];
        ended.sort_by_key(|status| status.entity_id);
        assert!(ended.iter().all(|status| status.status == Status::Complete), "{ended:?}");
    });
    let lines = log(&pair.sink(), &name.to_string());
    assert_eq!(lines.iter().filter(|line| line["metadata"]["penstock.document"] == "a.bin").count(), 2);
}

#[test]
fn headers_that_wait_for_the_sessions_name_are_bounded() {
    let pair = Pair::with_options(|server| {
        server.session = options(2);
        server.session.session.max_held_bytes = 8 << 10;
    });
    run(async {
        let mut peer = RawClient::silent(&pair).await;
        peer.send_frames(&[Frame::Capabilities(Capabilities { layer2: true, ..capabilities() })]).await;
        assert!(matches!(peer.next_frame().await, Frame::Capabilities(_)));
        let metadata = BTreeMap::from([("m".to_owned(), "m".repeat(5_000))]);
        for entity in 1..=3 {
            peer.stream(&EntityHeader { metadata: metadata.clone(), ..header(entity, b"x") }, b"x").await;
        }
        let (code, reason) = peer.expect_closed().await;
        assert_eq!(code, ErrorCode::WindowExceeded.code(), "{reason}");
    });
}

#[test]
fn what_is_not_sealed_with_the_servers_key_fails_its_entity_and_nothing_else() {
    let pair = Pair::with_options(|server| server.session = options(1));
    for (other, code, why) in [
        (None, "PIPESTREAM_ENTITY_INVALID", "in the clear"),
        (keys(&"ab".repeat(32)), "PIPESTREAM_INTEGRITY_ERROR", "no key of this end opens it"),
    ] {
        let client = pair.connect_with(SessionOptions { header_keys: other, ..SessionOptions::default() });
        let parent = block(client.send(EntityDraft { dehydrate: true, ..secret_draft() }, Payload::empty())).unwrap();
        let part = EntityDraft { parent: Some(parent.key), document: None, ..secret_draft() };
        let part = block(client.send(part, Payload::bytes(b"part".to_vec()))).unwrap();
        block(client.end_children(parent.key)).unwrap();
        for sent in [parent, part] {
            let ended = block(client.wait_resolved(sent.key)).unwrap();
            let reason = ended.reason.unwrap();
            assert_eq!((ended.status, reason.code.name()), (Status::Failed, code));
            assert!(reason.message.contains(why), "{}", reason.message);
        }
        let session = id(&client);
        assert_eq!(block(client.close()).unwrap().code, ErrorCode::NoError);
        let lines = log(&pair.sink(), &session);
        let text = serde_json::to_string(&lines).unwrap();
        assert!(SECRETS[..4].iter().all(|secret| !text.contains(secret)), "nothing in the clear is kept: {text}");
    }
}

#[test]
fn an_end_without_a_key_fails_what_is_sealed() {
    let pair = Pair::with_sink();
    let client = pair.connect_with(options(1));
    let sent = block(client.send(secret_draft(), Payload::bytes(b"x".to_vec()))).unwrap();
    let ended = block(client.wait_resolved(sent.key)).unwrap();
    assert_eq!((ended.status, ended.reason.unwrap().code), (Status::Failed, ErrorCode::IntegrityError));
    assert_eq!(block(client.close()).unwrap().code, ErrorCode::NoError);
}

#[test]
fn an_envelope_that_is_not_valid_fails_its_entity_and_nothing_else() {
    let pair = Pair::with_sink();
    let with = |entity: u32, entry: &str| {
        let mut header = header(entity, b"x");
        header.metadata.insert("pipestream.doc".to_owned(), entry.to_owned());
        header
    };
    let doc = |doc_id: &str, entity_id| PipeDoc { doc_id: doc_id.to_owned(), entity_id, ownership: None }.to_entry();
    run(async {
        let mut peer = RawClient::agreed(&pair).await;
        let entries = [doc("", 1), "no base64".to_owned(), "/w==".to_owned(), doc("d", 9), doc("d", 5)];
        for (entity, entry) in (1..).zip(entries) {
            peer.send_frames(&[pending(entity)]).await;
            peer.stream(&with(entity, &entry), b"x").await;
            match entity {
                5 => peer.expect_complete(entity).await,
                _ => peer.expect_failed(entity, 5).await,
            }
        }
        peer.close().await;
    });
}
