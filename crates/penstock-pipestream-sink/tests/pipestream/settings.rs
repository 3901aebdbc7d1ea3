//! An operator's settings of a server: which of them go together, and where its claim checks and
//! readers are.

use std::path::Path;

use penstock_io::ReadKey;
use penstock_io::tls::{ClientTls, Identity, ServerTls, Trust};
use penstock_pipestream_net::{
    Client, Error, IncomingSessions, Misuse, Payload, Server, ServerOptions, SessionSettings, Status,
};
use penstock_pipestream_sink::read::{RemoteSink, SinkReader};
use penstock_pipestream_sink::{ReferenceSettings, ServerSettings, SinkPlace};
use tempfile::TempDir;

use crate::support::{anywhere, block, draft};

const KEY: &str = "a key of 16 bytes or more";

fn layers(layers: u8) -> SessionSettings {
    SessionSettings { layers, ..SessionSettings::default() }
}

/// Return settings of a server with a sink, at layer 2.
fn with_sink(dir: &Path) -> ServerSettings {
    let tls = ServerTls { identity: Identity::Development { dir: dir.join("tls") }, client_ca: None };
    let mut server = ServerOptions::new(anywhere().into(), tls);
    server.session = layers(2).options().unwrap();
    ServerSettings { sink: Some(SinkPlace::Folder(dir.join("sink"))), ..ServerSettings::new(server) }
}

fn types() -> Vec<String> {
    vec!["image/*".to_owned()]
}

fn client(server: &Server) -> (Client, ClientTls) {
    let tls = ClientTls { trust: Trust::Fingerprint(server.fingerprint().unwrap()), identity: None };
    (Client::new(&tls).unwrap(), tls)
}

#[test]
fn settings_that_do_not_go_together_are_refused_before_anything_is_opened() {
    type Change = fn(&mut ServerSettings);
    let references = || Some(ReferenceSettings::default());
    let key = || Some(ReadKey::new(KEY).unwrap());
    let cases: [(Change, Misuse); 4] = [
        (|settings| settings.sink = None, Misuse::DeferTypesSink),
        (|settings| settings.server.session = layers(1).options().unwrap(), Misuse::DeferTypesLayer { layers: 1 }),
        (|settings| settings.server.session = layers(0).options().unwrap(), Misuse::DeferTypesLayer { layers: 0 }),
        (|settings| settings.defer_types = vec!["png".into()], Misuse::DeferType { pattern: "png".into() }),
    ];
    let dir = tempfile::tempdir().unwrap();
    let refused = |settings: ServerSettings, expected: Misuse| {
        let error = settings.bind().unwrap_err();
        assert!(matches!(&error, Error::Misuse(misuse) if *misuse == expected), "{error:?}");
        assert!(!dir.path().join("sink").exists() && !dir.path().join("tls").exists(), "{expected:?}");
    };
    for (change, expected) in cases {
        let mut settings = ServerSettings { defer_types: types(), ..with_sink(dir.path()) };
        change(&mut settings);
        refused(settings, expected);
    }
    let alone = || ServerSettings { sink: None, ..with_sink(dir.path()) };
    refused(ServerSettings { read_key: key(), ..alone() }, Misuse::ReadKeySink);
    refused(ServerSettings { references: references(), ..alone() }, Misuse::ReferencesSink);
}

#[test]
fn references_that_cannot_be_handled_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for references in [
        ReferenceSettings { fetch_from: vec!["nowhere".into()], ..ReferenceSettings::default() },
        ReferenceSettings { approved_key_providers: Some(vec![String::new()]), ..ReferenceSettings::default() },
    ] {
        let settings = ServerSettings { references: Some(references.clone()), ..with_sink(dir.path()) };
        assert!(settings.bind().is_err(), "{references:?}");
    }
}

/// Send an image to a server that defers images, and return whether it was deferred under a claim check.
fn defers(settings: ServerSettings) -> bool {
    let (server, sessions) = settings.bind().unwrap();
    assert!(sessions.is_none());
    let session = layers(2).options().unwrap();
    let session = block(client(&server).0.connect(server.local_addr().unwrap(), "localhost", session)).unwrap();
    let image = block(session.send(draft("image/png"), Payload::bytes(&b"pixels"[..]))).unwrap();
    let end = block(session.wait_resolved(image.key)).unwrap();
    block(session.close()).unwrap();
    assert_eq!(server.claims().unwrap().len(), usize::from(end.claim.is_some()));
    end.status == Status::Deferred && end.claim.is_some()
}

#[test]
fn claim_checks_are_next_to_the_sink_or_in_the_folder_that_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (sink, named) = (dir.path().join("sink"), dir.path().join("claims"));
    assert!(defers(ServerSettings { defer_types: types(), claims: Some(named.clone()), ..with_sink(dir.path()) }));
    assert!(named.exists() && !sink.join(".claims").exists());
    assert!(defers(ServerSettings { defer_types: types(), ..with_sink(dir.path()) }));
    assert!(sink.join(".claims").exists());
}

#[test]
fn there_are_no_claim_checks_below_layer_2() {
    let dir = tempfile::tempdir().unwrap();
    let named = dir.path().join("claims");
    let mut settings = ServerSettings { claims: Some(named.clone()), ..with_sink(dir.path()) };
    settings.server.session = layers(1).options().unwrap();
    settings.bind().unwrap();
    assert!(!named.exists());
}

fn without_sink(dir: &TempDir, has_claims: bool) -> (Server, IncomingSessions) {
    let claims = has_claims.then(|| dir.path().join("claims"));
    let (server, sessions) = ServerSettings { sink: None, claims, ..with_sink(dir.path()) }.bind().unwrap();
    (server, sessions.unwrap())
}

#[test]
fn without_a_sink_the_caller_takes_the_sessions_and_defers_where_a_folder_for_claim_checks_is_named() {
    for has_claims in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (server, sessions) = without_sink(&dir, has_claims);
        let session = layers(2).options().unwrap();
        let session = block(client(&server).0.connect(server.local_addr().unwrap(), "localhost", session)).unwrap();
        block(session.send(draft("x/y"), Payload::empty())).unwrap();
        let taken = block(sessions.next()).unwrap();
        let entity = block(taken.next_entity()).unwrap().unwrap();
        assert_eq!(entity.check_defer().is_ok(), has_claims);
        block(entity.complete()).unwrap();
        block(session.close()).unwrap();
    }
}

#[test]
fn a_server_with_a_read_key_lets_its_readers_in_and_one_without_lets_nobody() {
    let dir = tempfile::tempdir().unwrap();
    for (key, is_open) in [(Some(ReadKey::new(KEY).unwrap()), true), (None, false)] {
        let (server, _) = ServerSettings { read_key: key, ..with_sink(dir.path()) }.bind().unwrap();
        let tls = client(&server).1;
        let reader = block(RemoteSink::connect(&tls, server.local_addr().unwrap(), "localhost", KEY));
        assert_eq!(reader.is_ok(), is_open);
        if let Ok(reader) = reader {
            assert_eq!(block(SinkReader::from(reader).sessions()).unwrap(), []);
        }
    }
}
