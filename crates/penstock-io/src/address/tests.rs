use std::error::Error as _;
use std::future::pending;
use std::net::TcpListener;
use std::time::Instant;

use super::*;
use crate::runtime::block_on;

fn several(addresses: &[&str]) -> Addresses {
    Addresses::new("host:1", addresses.iter().map(|address| address.parse().unwrap())).unwrap()
}

/// An address that no machine has, because it is reserved for documentation (RFC 5737).
const NOWHERE: &str = "192.0.2.1:0";

#[test]
fn an_address_is_host_and_port_and_an_error_names_it() {
    type Wrong = fn(String) -> Misuse;
    let no_port: Wrong = |name| Misuse::NoPort { name };
    let wrong_port: Wrong = |name| Misuse::Port { name };
    let no_host: Wrong = |name| Misuse::NoHost { name };
    for (name, expected) in [
        ("localhost", no_port),
        ("", no_port),
        ("localhost:", wrong_port),
        ("localhost:http", wrong_port),
        ("127.0.0.1:65536", wrong_port),
        (":80", no_host),
    ] {
        let Err(Error::Misuse(misuse)) = Addresses::resolve(name) else { panic!("{name}") };
        assert_eq!(misuse, expected(name.to_owned()));
    }
    let unknown = Addresses::resolve("no such host:80").unwrap_err();
    assert!(matches!(unknown, Error::Io { .. }) && unknown.to_string().contains("no such host:80"), "{unknown}");
    let nothing = Addresses::new("host:1", [].into_iter()).unwrap_err();
    assert_eq!(nothing.to_string(), "cannot resolve host:1: it has no address");
}

#[test]
fn a_host_is_named_as_certificates_do() {
    for (name, host) in [("127.0.0.1:80", "127.0.0.1"), ("[::1]:80", "::1")] {
        let addresses = Addresses::resolve(name).unwrap();
        assert_eq!((addresses.host(), addresses.port(), addresses.to_string()), (host, 80, name.to_owned()));
    }
    assert_eq!(super::host("example.org:5044"), "example.org");
    assert_eq!(super::host("example.org"), "example.org");
}

#[test]
fn a_server_listens_on_the_first_address_that_works() {
    let addresses = several(&[NOWHERE, "127.0.0.1:0", "127.0.0.2:0"]);
    let bound = addresses.bind(TcpListener::bind).unwrap();
    assert_eq!(bound.local_addr().unwrap().ip().to_string(), "127.0.0.1");
}

#[test]
fn an_error_names_the_address_that_was_tried_last() {
    let error =
        several(&["127.0.0.1:0", NOWHERE]).bind(|_| -> io::Result<()> { Err(ErrorKind::AddrNotAvailable.into()) });
    assert!(error.unwrap_err().to_string().starts_with("cannot listen on 192.0.2.1:0: "));
}

#[test]
fn a_server_does_not_listen_beside_another_one_of_the_same_name() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap();
    let addresses = several(&[NOWHERE, &taken.to_string(), "127.0.0.2:0"]);
    let error = addresses.bind(TcpListener::bind).unwrap_err();
    assert!(error.to_string().starts_with(&format!("cannot listen on {taken}: ")), "{error}");
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    assert_eq!(source.map(io::Error::kind), Some(ErrorKind::AddrInUse));
}

#[test]
fn a_name_is_loopback_if_each_of_its_addresses_is() {
    assert!(several(&["127.0.0.1:1", "[::1]:1"]).is_loopback());
    assert!(!several(&["127.0.0.1:1", "192.0.2.1:1"]).is_loopback());
}

#[test]
fn a_client_takes_the_address_that_answers_first() {
    let addresses = several(&["127.0.0.1:1", "127.0.0.2:1", "127.0.0.3:1"]);
    let began = Instant::now();
    let connected = block_on(addresses.connect(|address| async move {
        match address.ip().to_string().as_str() {
            "127.0.0.1" => pending().await,
            "127.0.0.2" => Err(Error::misuse("refused".to_owned())),
            _ => Ok(address),
        }
    }));
    assert_eq!(connected.unwrap().unwrap().to_string(), "127.0.0.3:1");
    assert!(began.elapsed() >= 2 * ATTEMPT_DELAY);
}

#[test]
fn a_client_that_reaches_no_address_gets_the_last_error() {
    let addresses = several(&["127.0.0.1:1", "127.0.0.2:1"]);
    let failed = block_on(addresses.connect(|address| async move { Err::<(), _>(Error::misuse(address.to_string())) }));
    assert_eq!(failed.unwrap().unwrap_err().to_string(), "127.0.0.2:1");
}
