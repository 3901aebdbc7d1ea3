//! The same checks for every kind of socket: limits, deadlines, a replaced certificate, and the end of a connection.

use std::fs;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::*;
use crate::admission::{Config, Counters, WhenFull};
use crate::runtime::{block_on, spawn};
use crate::tls::{ClientTls, Fingerprint, Identity, Offer, ServerTls, Trust, write_certificates};

const FIRST_BYTE_TIMEOUT: Duration = Duration::from_millis(300);
const GENEROUS: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tcp,
    Unix,
    Tls,
}

const KINDS: [Kind; 3] = [Kind::Tcp, Kind::Unix, Kind::Tls];

/// A server that echoes each byte it receives.
struct Echo {
    kind: Kind,
    folder: TempDir,
    address: SocketAddr,
    acceptor: Option<Arc<Acceptor>>,
    admission: Arc<Admission>,
    counters: Arc<Counters>,
    stop: watch::Sender<bool>,
    listening: JoinHandle<()>,
    _file: Option<SocketFile>,
}

trait Wire: Read + Write {}

impl<T: Read + Write> Wire for T {}

fn config(connections: u64) -> Config {
    Config { first_byte_timeout: FIRST_BYTE_TIMEOUT, ..Config::new("a test", connections) }
}

impl Echo {
    fn new(kind: Kind, config: Config) -> Self {
        let folder = TempDir::new().expect("a folder");
        let counters = Arc::<Counters>::default();
        let admission = Admission::new(config, Arc::clone(&counters)).expect("descriptors");
        let identity = Identity::Development { dir: folder.path().join("tls") };
        let tls = ServerTls { identity, client_ca: None };
        let tls = (kind == Kind::Tls).then_some(&tls);
        let acceptor = Acceptor::optional(tls, Offer::tcp(&[])).expect("a certificate");
        let (listener, address, file) = match kind {
            Kind::Tcp | Kind::Tls => {
                let bound = Listener::tcp((Ipv4Addr::LOCALHOST, 0).into(), acceptor.clone(), &admission);
                let (listener, address) = bound.expect("listens");
                (listener, address, None)
            }
            Kind::Unix => {
                let (listener, file) = Listener::unix(&folder.path().join("socket"), &admission).expect("listens");
                (listener, (Ipv4Addr::LOCALHOST, 0).into(), Some(file))
            }
        };
        let (stop, mut stopped) = watch::channel(false);
        let listening = spawn(async move {
            let stopped = async { drop(stopped.wait_for(|stopped| *stopped).await) };
            listener.run(stopped, |connection| drop(tokio::spawn(echo(connection)))).await;
        });
        let listening = listening.expect("runs");
        Self { kind, folder, address, acceptor, admission, counters, stop, listening, _file: file }
    }

    /// Open a socket and send nothing, not even a handshake.
    fn raw(&self) -> Box<dyn Wire> {
        if self.kind == Kind::Unix {
            let stream = std::os::unix::net::UnixStream::connect(self.folder.path().join("socket")).expect("connects");
            stream.set_read_timeout(Some(GENEROUS)).expect("set");
            return Box::new(stream);
        }
        Box::new(self.tcp())
    }

    fn tcp(&self) -> std::net::TcpStream {
        let stream = std::net::TcpStream::connect(self.address).expect("connects");
        stream.set_read_timeout(Some(GENEROUS)).expect("set");
        stream
    }

    fn connect(&self) -> Box<dyn Wire> {
        match self.kind {
            Kind::Tcp | Kind::Unix => self.raw(),
            Kind::Tls => Box::new(self.pinned(self.fingerprint())),
        }
    }

    fn fingerprint(&self) -> Fingerprint {
        self.acceptor.as_ref().expect("it speaks TLS").fingerprint()
    }

    fn pinned(&self, fingerprint: Fingerprint) -> StreamOwned<ClientConnection, std::net::TcpStream> {
        let tls = ClientTls { trust: Trust::Fingerprint(fingerprint), identity: None };
        let mut config = tls.config(b"x").expect("a configuration");
        config.alpn_protocols.clear();
        let name = ServerName::try_from("localhost").expect("a name");
        StreamOwned::new(ClientConnection::new(Arc::new(config), name).expect("a client"), self.tcp())
    }

    /// Return how many connections were counted as late. Wait for one, because a connection is
    /// closed a moment before it is counted.
    fn late(&self) -> u64 {
        let began = std::time::Instant::now();
        while self.counters.not_served() == 0 && began.elapsed() < GENEROUS {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.counters.not_served()
    }

    fn idle(&self) -> bool {
        let admission = Arc::clone(&self.admission);
        block_on(async move { tokio::time::timeout(GENEROUS, admission.idle()).await.is_ok() }).expect("runs")
    }
}

async fn echo(connection: Connection) {
    let Ok(connection) = connection.handshake().await else { return };
    let mut stream = connection.stream.first_byte(&connection.permit);
    let mut byte = [0];
    while let Ok(1) = stream.read(&mut byte).await {
        if stream.write_all(&byte).await.and(stream.flush().await).is_err() {
            return;
        }
    }
}

fn is_served(stream: &mut dyn Wire) -> bool {
    let mut byte = [0];
    let asked = stream.write_all(b"x").and_then(|()| stream.flush()).and_then(|()| stream.read_exact(&mut byte));
    asked.is_ok() && byte == *b"x"
}

/// Return whether the other end has closed the connection; a timeout does not count as closed.
fn is_closed(stream: &mut dyn Wire) -> bool {
    match stream.read(&mut [0; 1]) {
        Ok(count) => count == 0,
        Err(error) => !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
    }
}

#[test]
fn a_client_that_says_nothing_is_closed_and_one_that_spoke_may_be_silent() {
    for kind in KINDS {
        let server = Echo::new(kind, config(8));
        let mut spoke = server.connect();
        assert!(is_served(&mut *spoke), "{kind:?}");
        let mut silent = server.raw();
        assert!(is_closed(&mut *silent), "{kind:?}");
        assert_eq!(server.late(), 1, "{kind:?}");
        std::thread::sleep(FIRST_BYTE_TIMEOUT);
        assert!(is_served(&mut *spoke), "{kind:?}");
    }
}

#[test]
fn a_client_that_says_nothing_after_its_handshake_is_closed() {
    let server = Echo::new(Kind::Tls, config(8));
    let mut silent = server.pinned(server.fingerprint());
    silent.conn.complete_io(&mut silent.sock).expect("a handshake");
    assert!(is_closed(&mut silent));
    assert_eq!(server.late(), 1);
}

#[test]
fn a_connection_too_many_is_closed_at_once_or_waits_until_there_is_a_place() {
    for kind in KINDS {
        let server = Echo::new(kind, config(1));
        let mut first = server.connect();
        assert!(is_served(&mut *first), "{kind:?}");
        assert!(is_closed(&mut *server.raw()), "{kind:?}");
        assert_eq!(server.counters.refused(), 1, "{kind:?}");
        let waits = Echo::new(kind, Config { when_full: WhenFull::Wait, ..config(1) });
        let mut first = waits.connect();
        assert!(is_served(&mut *first), "{kind:?}");
        std::thread::scope(|scope| {
            let next = scope.spawn(|| is_served(&mut *waits.connect()));
            std::thread::sleep(FIRST_BYTE_TIMEOUT * 2);
            assert!(!next.is_finished(), "{kind:?}");
            drop(first);
            assert!(next.join().expect("ends"), "{kind:?}");
        });
        assert_eq!(waits.counters.not_served(), 0, "{kind:?}");
    }
}

#[test]
fn an_address_has_its_share_of_the_places_and_a_unix_socket_has_all() {
    for kind in KINDS {
        let server = Echo::new(kind, Config { per_address: Some(1), ..config(8) });
        let mut first = server.connect();
        assert!(is_served(&mut *first), "{kind:?}");
        if kind == Kind::Unix {
            assert!(is_served(&mut *server.connect()));
        } else {
            assert!(is_closed(&mut *server.raw()), "{kind:?}");
            assert_eq!(server.counters.by_limit(), [("full", 0), ("address", 1)]);
        }
    }
}

/// Replace a server's certificate files by those of another certificate, and return its
/// fingerprint.
fn replace(folder: &Path) -> Fingerprint {
    let fresh = TempDir::new_in(folder.parent().expect("a parent")).expect("a folder");
    let fingerprint = write_certificates(&fresh.path().join("new")).expect("a certificate");
    for name in ["key.pem", "cert.pem"] {
        fs::rename(fresh.path().join("new").join(name), folder.join(name)).expect("replaced");
    }
    fingerprint
}

#[test]
fn a_replaced_certificate_is_shown_to_new_connections_by_itself_and_open_ones_go_on() {
    let server = Echo::new(Kind::Tls, config(8));
    let before = server.fingerprint();
    let mut old = server.pinned(before);
    assert!(is_served(&mut old));
    let after = replace(&server.folder.path().join("tls"));
    let waiting = std::time::Instant::now();
    while server.fingerprint() == before && waiting.elapsed() < GENEROUS {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server.fingerprint(), after);
    assert!(is_served(&mut server.pinned(after)));
    assert!(!is_served(&mut server.pinned(before)), "the old one is not shown any more");
    assert!(is_served(&mut old));
}

#[test]
fn a_certificate_that_cannot_be_used_leaves_the_old_one_and_is_counted() {
    let server = Echo::new(Kind::Tls, config(8));
    let acceptor = server.acceptor.clone().expect("it speaks TLS");
    let cert = server.folder.path().join("tls/cert.pem");
    let before = fs::read(&cert).expect("a certificate");
    fs::write(&cert, "nothing").expect("written");
    assert!(server.admission.reload(&acceptor).expect_err("no certificate").to_string().contains("cert.pem"));
    assert!(is_served(&mut *server.connect()));
    fs::write(&cert, before).expect("written");
    assert!(server.admission.reload(&acceptor).expect("a certificate"));
    assert!(!server.admission.reload(&acceptor).expect("a certificate"), "nothing has changed");
    assert!(is_served(&mut *server.connect()));
}

#[test]
fn a_stopped_listener_accepts_no_connection_and_open_ones_run_to_their_end() {
    for kind in KINDS {
        let server = Echo::new(kind, config(8));
        let mut open = server.connect();
        assert!(is_served(&mut *open), "{kind:?}");
        server.stop.send_replace(true);
        let Echo { listening, .. } = &server;
        while !listening.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
        match kind {
            Kind::Tcp | Kind::Tls => drop(std::net::TcpStream::connect(server.address).expect_err("nobody listens")),
            Kind::Unix => {
                let path = server.folder.path().join("socket");
                drop(std::os::unix::net::UnixStream::connect(path).expect_err("nobody listens"));
            }
        }
        assert!(is_served(&mut *open), "{kind:?}");
        assert_eq!(server.admission.open(), 1);
        drop(open);
        assert!(server.idle(), "{kind:?}");
    }
}
