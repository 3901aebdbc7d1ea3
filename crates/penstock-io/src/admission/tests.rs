use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::permits::Refused;
use super::*;
use crate::listener::Stream;
use crate::{Error, Misuse};

fn admission(connections: u64, per_address: Option<u64>) -> std::sync::Arc<Admission> {
    Admission::new(Config { per_address, ..Config::new("a test", connections) }, std::sync::Arc::default()).unwrap()
}

fn v4(last: u8) -> Option<std::net::IpAddr> {
    Some(Ipv4Addr::new(192, 0, 2, last).into())
}

#[test]
fn an_address_has_its_share_and_gives_it_back() {
    let admission = admission(3, Some(2));
    let one = admission.admit(v4(1)).unwrap();
    let _two = admission.admit(v4(1)).unwrap();
    assert_eq!(admission.admit(v4(1)).unwrap_err(), Refused::Address(2));
    let _other = admission.admit(v4(2)).unwrap();
    assert_eq!(admission.admit(v4(3)).unwrap_err(), Refused::Full(3));
    drop(one);
    assert_eq!(admission.open(), 2);
    admission.admit(v4(1)).unwrap();
    assert_eq!(admission.counters().refused(), 2);
}

#[test]
fn an_ipv6_network_is_one_address_and_a_mapped_one_is_of_ipv4() {
    let admission = admission(8, Some(1));
    let of = |last| Some(Ipv6Addr::new(0x2001, 0xdb8, 0, 7, 1, 2, 3, last).into());
    let _one = admission.admit(of(1)).unwrap();
    assert_eq!(admission.admit(of(2)).unwrap_err(), Refused::Address(1));
    let _next = admission.admit(Some(Ipv6Addr::new(0x2001, 0xdb8, 0, 8, 1, 2, 3, 1).into())).unwrap();
    let _mapped = admission.admit(Some(Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped().into())).unwrap();
    assert_eq!(admission.admit(v4(1)).unwrap_err(), Refused::Address(1));
    // A connection without an address counts only against the total limit.
    let _local: Vec<_> = (0..5).map(|_| admission.admit(None).unwrap()).collect();
    assert_eq!(admission.admit(None).unwrap_err(), Refused::Full(8));
}

#[test]
fn without_a_word_an_address_leaves_an_eighth_and_of_a_handful_nothing() {
    for (connections, share) in [(4, 4), (70, 64), (1_000, 875)] {
        let admission = admission(connections, None);
        let held: Vec<_> = std::iter::from_fn(|| admission.admit(v4(1)).ok()).collect();
        assert_eq!(held.len() as u64, share, "{connections}");
    }
}

#[test]
fn loopback_has_no_share_where_a_proxy_may_stand_there() {
    let config = Config { loopback: LoopbackShare::All, per_address: Some(2), ..Config::new("a test", 8) };
    let admission = Admission::new(config, std::sync::Arc::default()).unwrap();
    for local in [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.to_ipv6_mapped().into()] {
        let _held: Vec<_> = (0..8).map(|_| admission.admit(Some(local)).unwrap()).collect();
        assert_eq!(admission.admit(Some(local)).unwrap_err(), Refused::Full(8));
    }
    let _two = [admission.admit(v4(1)).unwrap(), admission.admit(v4(1)).unwrap()];
    assert_eq!(admission.admit(v4(1)).unwrap_err(), Refused::Address(2));
}

#[test]
fn a_limit_of_nothing_is_a_misuse() {
    let zero = |connections, per_address| {
        let config = Config { per_address, ..Config::new("a test", connections) };
        Admission::new(config, std::sync::Arc::default()).unwrap_err()
    };
    for (error, name) in [(zero(0, None), "connections"), (zero(4, Some(0)), "connections of one address")] {
        let expected = Misuse::ConnectionLimit { name, server: "a test" };
        assert!(matches!(&error, Error::Misuse(misuse) if *misuse == expected), "{error:?}");
    }
}

#[tokio::test]
async fn a_place_in_the_system_is_taken_when_another_ends() {
    let config = Config { when_full: WhenFull::Wait, ..Config::new("a test", 1) };
    let admission = Admission::new(config, std::sync::Arc::default()).unwrap();
    let permit = admission.admit(v4(1)).unwrap();
    let waiting = tokio::spawn({
        let admission = std::sync::Arc::clone(&admission);
        async move { admission.capacity().await }
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    drop(permit);
    waiting.await.unwrap();
    admission.idle().await;
}

#[tokio::test]
async fn a_connection_that_says_nothing_ends_and_one_that_spoke_may_be_silent() {
    let config = Config { first_byte_timeout: Duration::from_millis(100), ..Config::new("a test", 4) };
    let admission = Admission::new(config, std::sync::Arc::default()).unwrap();
    let (near, _far) = tokio::io::duplex(64);
    let mut silent = FirstByte::new(near, &admission.admit(None).unwrap());
    let error = silent.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    let (near, mut far) = tokio::io::duplex(64);
    let mut spoke = FirstByte::new(near, &admission.admit(None).unwrap());
    far.write_u8(1).await.unwrap();
    assert_eq!(spoke.read_u8().await.unwrap(), 1);
    let more = tokio::time::timeout(Duration::from_millis(300), spoke.read_u8()).await;
    assert!(more.is_err(), "it is still waited for");
}

/// Errors of the system itself: EMFILE, ENFILE, ENOBUFS, ENOMEM, EPERM and ENETDOWN.
const LASTING: [i32; 6] = [24, 23, 105, 12, 1, 100];
/// Errors of one client: ECONNABORTED, ECONNRESET, ETIMEDOUT and EHOSTUNREACH.
const OF_THE_PEER: [i32; 4] = [103, 104, 110, 113];

/// A listener whose accept fails in all of these ways before it returns a connection.
struct Exhausted(TcpListener, std::sync::atomic::AtomicU32);

impl Accept for Exhausted {
    async fn accept(&self) -> std::io::Result<(Stream, Option<std::net::SocketAddr>)> {
        let attempt = self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed) as usize;
        match LASTING.iter().chain(&OF_THE_PEER).nth(attempt) {
            Some(code) => Err(std::io::Error::from_raw_os_error(*code)),
            None => self.0.accept().await.map(|(stream, peer)| (Stream::Tcp(stream), Some(peer))),
        }
    }
}

#[tokio::test]
async fn no_trouble_of_accept_ends_a_server_and_only_the_systems_own_make_it_wait() {
    let began = std::time::Instant::now();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let counters = std::sync::Arc::<Counters>::default();
    let admission = Admission::new(Config::new("a test", 4), std::sync::Arc::clone(&counters)).unwrap();
    let (sender, mut taken) = tokio::sync::mpsc::unbounded_channel();
    let listener = Exhausted(listener, 0.into());
    let accepting = tokio::spawn(async move {
        admission.accept(&listener, |stream, _, permit| drop(sender.send((stream, permit)))).await
    });
    let _client = TcpStream::connect(address).await.unwrap();
    let (stream, _permit) = taken.recv().await.unwrap();
    assert!(socket2::SockRef::from(&stream).keepalive().unwrap());
    assert!(socket2::SockRef::from(&stream).tcp_nodelay().unwrap());
    assert_eq!(counters.accept_failures.load(std::sync::atomic::Ordering::Relaxed), 10);
    let waited = began.elapsed();
    assert!(waited >= Duration::from_millis(600) && waited < Duration::from_secs(5), "{waited:?}");
    accepting.abort();
}
