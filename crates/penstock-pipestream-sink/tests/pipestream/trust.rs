use std::path::Path;
use std::sync::Arc;

use penstock_io::ReadKey;
use penstock_io::tls::{ClientCertificates, ClientTls, Fingerprint, Trust, write_certificates};
use penstock_pipestream_net::{Client, Error, Result, SessionOptions};
use penstock_pipestream_sink::FolderSink;
use penstock_pipestream_sink::read::{FolderStore, ReadOptions, RemoteSink};

use crate::raw::{connect, run};
use crate::support::{Pair, block};

fn try_connect(pair: &Pair, name: &str, tls: &ClientTls) -> Result<()> {
    let client = Client::new(tls)?;
    let address = pair.server.local_addr().unwrap();
    let session = block(client.connect(address, name, SessionOptions::default()))?;
    block(session.close()).map(|_| ())
}

fn ca(path: &Path) -> ClientTls {
    ClientTls { trust: Trust::Ca(path.to_owned()), identity: None }
}

#[test]
fn a_ca_is_trusted_for_the_names_it_has_signed() {
    let pair = Pair::with_sink();
    let file = pair.dir.path().join("tls/ca.pem");
    for name in ["localhost", "127.0.0.1", "::1"] {
        assert!(try_connect(&pair, name, &ca(&file)).is_ok(), "{name}");
    }
    assert!(matches!(try_connect(&pair, "example.org", &ca(&file)), Err(Error::Local(penstock_io::Error::Tls { .. }))));
}

#[test]
fn a_ca_that_has_not_signed_is_not_trusted() {
    let pair = Pair::with_sink();
    let other = tempfile::tempdir().unwrap();
    write_certificates(other.path()).unwrap();
    assert!(matches!(
        try_connect(&pair, "localhost", &ca(&other.path().join("ca.pem"))),
        Err(Error::Local(penstock_io::Error::Tls { .. }))
    ));
    let system = ClientTls { trust: Trust::System, identity: None };
    assert!(matches!(try_connect(&pair, "localhost", &system), Err(Error::Local(penstock_io::Error::Tls { .. }))));
}

#[test]
fn only_the_pinned_certificate_is_trusted() {
    let pair = Pair::with_sink();
    let pinned = |fingerprint| ClientTls { trust: Trust::Fingerprint(fingerprint), identity: None };
    assert!(try_connect(&pair, "whatever", &pinned(pair.server.fingerprint().unwrap())).is_ok());
    let refused = try_connect(&pair, "localhost", &pinned(Fingerprint::of(b"another")));
    assert!(matches!(refused, Err(Error::Local(penstock_io::Error::Tls { .. }))), "{refused:?}");
}

#[test]
fn a_client_without_the_required_certificate_is_refused() {
    let clients = tempfile::tempdir().unwrap();
    write_certificates(clients.path()).unwrap();
    let others = tempfile::tempdir().unwrap();
    write_certificates(others.path()).unwrap();
    let pair = Pair::with_options(|options| options.tls.client_ca = Some(clients.path().join("ca.pem")));
    let trust = Trust::Fingerprint(pair.server.fingerprint().unwrap());
    let with = |identity: Option<&Path>| ClientTls {
        trust: trust.clone(),
        identity: identity.map(|dir| (dir.join("cert.pem"), dir.join("key.pem"))),
    };
    for tls in [with(None), with(Some(others.path()))] {
        let refused = try_connect(&pair, "localhost", &tls);
        assert!(matches!(refused, Err(Error::Local(penstock_io::Error::Tls { .. }))), "{refused:?}");
    }
    assert!(try_connect(&pair, "localhost", &with(Some(clients.path()))).is_ok());
}

#[test]
fn readers_have_a_certificate_where_clients_must_unless_the_key_is_enough() {
    const KEY: &str = "a key of 16 bytes or more";
    let clients = tempfile::tempdir().unwrap();
    write_certificates(clients.path()).unwrap();
    for certificates in [ClientCertificates::Required, ClientCertificates::Optional] {
        let dir = tempfile::tempdir().unwrap();
        let sink = FolderSink::open(&dir.path().join("sink"), None).unwrap();
        let store = FolderStore::open(&dir.path().join("sink")).unwrap();
        let reading = ReadOptions { certificates, ..ReadOptions::new(ReadKey::new(KEY).unwrap(), Arc::new(store)) };
        let pair = Pair::new(dir, sink, |options| {
            options.tls.client_ca = Some(clients.path().join("ca.pem"));
            options.service = Some(reading.service(Arc::clone(&options.claims)).unwrap());
        });
        let trust = Trust::Fingerprint(pair.server.fingerprint().unwrap());
        let with = |identity| ClientTls { trust: trust.clone(), identity };
        let certified = with(Some((clients.path().join("cert.pem"), clients.path().join("key.pem"))));
        let read = |tls: &ClientTls| {
            let address = pair.server.local_addr().unwrap();
            block(async { RemoteSink::connect(tls, address, "localhost", KEY).await?.sessions(0, 1).await })
        };
        assert!(read(&certified).is_ok());
        assert_eq!(read(&with(None)).is_ok(), certificates == ClientCertificates::Optional);
        // A sender needs a certificate in any case.
        assert!(try_connect(&pair, "localhost", &certified).is_ok());
        assert!(try_connect(&pair, "localhost", &with(None)).is_err());
    }
}

#[test]
fn another_protocol_is_refused() {
    let pair = Pair::with_sink();
    assert!(run(connect(&pair, b"pipestream/2")).is_err());
    assert!(run(connect(&pair, b"pipestream/1")).is_ok());
}

#[test]
fn an_absent_server_is_reported_within_the_handshake_timeout() {
    let dir = tempfile::tempdir().unwrap();
    let sink = FolderSink::open(&dir.path().join("sink"), None).unwrap();
    let pair = Pair::new(dir, sink, |_| {});
    let silent = std::net::UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let options = SessionOptions { idle_timeout: std::time::Duration::from_secs(1), ..SessionOptions::default() };
    let refused = block(pair.client.connect(silent.local_addr().unwrap(), "localhost", options));
    assert!(matches!(refused, Err(Error::Local(penstock_io::Error::Deadline(_)))), "{refused:?}");
}
