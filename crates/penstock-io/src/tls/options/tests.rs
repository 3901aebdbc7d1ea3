use super::*;
use crate::Error;

const OFF: &str = "which is off";

fn path(name: &str) -> Option<PathBuf> {
    Some(name.into())
}

fn certified() -> ServerTlsOptions {
    ServerTlsOptions { cert: path("c"), key: path("k"), development: "dev".into(), client_ca: None }
}

fn pinned() -> ClientTlsOptions {
    ClientTlsOptions { fingerprint: Some(Fingerprint::of(b"leaf").to_string()), ..ClientTlsOptions::default() }
}

/// Return the misuse that a result must have.
fn misuse<T: std::fmt::Debug>(result: Result<T>) -> Misuse {
    match result {
        Err(Error::Misuse(misuse)) => misuse,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_shows_its_files_or_else_the_development_certificate() {
    let files = Identity::Files { cert: "c".into(), key: "k".into() };
    let own = certified().required().unwrap();
    assert_eq!(own, ServerTls { identity: files, client_ca: None });
    let development = Identity::Development { dir: "dev".into() };
    let options = ServerTlsOptions { cert: None, key: None, client_ca: path("ca"), ..certified() };
    assert_eq!(options.clone().required().unwrap(), ServerTls { identity: development, client_ca: path("ca") });
    assert_eq!(options.clone().optional(true, OFF).unwrap(), Some(options.required().unwrap()));
}

#[test]
fn a_certificate_and_its_key_go_together_at_both_ends() {
    for (cert, key) in [(path("c"), None), (None, path("k"))] {
        let server = ServerTlsOptions { cert: cert.clone(), key: key.clone(), ..ServerTlsOptions::default() };
        let client = ClientTlsOptions { cert, key, ..ClientTlsOptions::default() };
        let pinned = ClientTlsOptions { cert: client.cert.clone(), key: client.key.clone(), ..pinned() };
        for found in [
            misuse(server.clone().required()),
            misuse(server.clone().optional(true, OFF)),
            misuse(server.optional(false, OFF)),
            misuse(client.clone().optional()),
            misuse(client.clone().for_url("https://host/")),
            misuse(client.for_url("http://host/")),
            misuse(pinned.clone().required()),
            misuse(pinned.clone().optional()),
            misuse(pinned.for_url("https://host/")),
        ] {
            assert_eq!(found, Misuse::CertificatePair);
        }
    }
}

#[test]
fn a_server_without_tls_has_neither_a_certificate_nor_a_ca_for_clients() {
    let only_ca = ServerTlsOptions { client_ca: path("ca"), ..ServerTlsOptions::default() };
    for options in [certified(), only_ca.clone(), ServerTlsOptions { client_ca: path("ca"), ..certified() }] {
        assert_eq!(misuse(options.optional(false, OFF)), Misuse::ServerTls { off: OFF.to_owned() });
    }
    assert_eq!(ServerTlsOptions::default().optional(false, OFF).unwrap(), None);
}

#[test]
fn a_client_trusts_one_fingerprint_or_one_ca_or_the_system() {
    let fingerprint = Fingerprint::of(b"leaf");
    let ca = ClientTlsOptions { ca: path("ca"), ..ClientTlsOptions::default() };
    let system = ClientTlsOptions { system_ca: true, ..ClientTlsOptions::default() };
    for (options, trust) in
        [(pinned(), Trust::Fingerprint(fingerprint)), (ca, Trust::Ca("ca".into())), (system, Trust::System)]
    {
        let tls = ClientTls { trust, identity: None };
        assert_eq!(options.clone().required().unwrap(), tls);
        assert_eq!(options.clone().optional().unwrap(), Some(tls.clone()));
        assert_eq!(options.for_url("https://host/").unwrap(), Some(tls));
    }
    let both = ClientTlsOptions { cert: path("c"), key: path("k"), ..pinned() };
    assert_eq!(both.required().unwrap().identity, Some(("c".into(), "k".into())));
}

#[test]
fn nothing_and_several_are_no_trust() {
    assert_eq!(misuse(ClientTlsOptions::default().required()), Misuse::Trust);
    for options in [
        ClientTlsOptions { ca: path("ca"), ..pinned() },
        ClientTlsOptions { system_ca: true, ..pinned() },
        ClientTlsOptions { ca: path("ca"), system_ca: true, ..ClientTlsOptions::default() },
        ClientTlsOptions { ca: path("ca"), system_ca: true, ..pinned() },
    ] {
        assert_eq!(misuse(options.clone().required()), Misuse::Trust);
        assert_eq!(misuse(options.clone().optional()), Misuse::Trust);
        assert_eq!(misuse(options.for_url("https://host/")), Misuse::Trust);
    }
}

#[test]
fn an_invalid_fingerprint_is_named() {
    let options = ClientTlsOptions { fingerprint: Some("sha256:x".to_owned()), ..ClientTlsOptions::default() };
    let found = misuse(options.required());
    assert!(
        matches!(&found, Misuse::Fingerprint { reason } if reason.starts_with("\"sha256:x\" is no fingerprint")),
        "{found:?}"
    );
}

#[test]
fn a_client_without_trust_is_plain_and_shows_no_certificate() {
    assert_eq!(ClientTlsOptions::default().optional().unwrap(), None);
    let options = ClientTlsOptions { cert: path("c"), key: path("k"), ..ClientTlsOptions::default() };
    assert_eq!(misuse(options.optional()), Misuse::ClientTls);
}

#[test]
fn a_client_of_a_url_trusts_the_system_unless_an_option_says_otherwise() {
    let system = |identity| Some(ClientTls { trust: Trust::System, identity });
    let none = ClientTlsOptions::default();
    assert_eq!(none.clone().for_url("https://host/").unwrap(), system(None));
    assert_eq!(none.clone().for_url(" HTTPS://host/").unwrap(), system(None));
    assert_eq!(none.clone().for_url("http://host/").unwrap(), None);
    assert_eq!(none.clone().for_url("").unwrap(), None);
    let own = ClientTlsOptions { cert: path("c"), key: path("k"), ..none };
    assert_eq!(own.for_url("http://host/").unwrap(), system(Some(("c".into(), "k".into()))));
    assert_eq!(pinned().for_url("http://host/").unwrap(), Some(pinned().required().unwrap()));
}

#[test]
fn whether_clients_need_a_certificate_is_one_of_two_words() {
    assert_eq!(ClientCertificates::parse("o", "required").unwrap(), ClientCertificates::Required);
    assert_eq!(ClientCertificates::parse("o", "optional").unwrap(), ClientCertificates::Optional);
    let expected = Misuse::ClientCertificates { option: "o".to_owned(), value: "never".to_owned() };
    assert_eq!(misuse(ClientCertificates::parse("o", "never")), expected);
}
