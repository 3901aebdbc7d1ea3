//! Helpers that the tests of the driver share, whatever their sink is: a server, and a client that
//! trusts it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_io::runtime::wait;
use penstock_io::tls::{ClientTls, Identity, ServerTls, Trust};
use penstock_pipestream_net::port::EntitySink;
use penstock_pipestream_net::{Client, EntityDraft, Server, ServerOptions, SessionHandle, SessionOptions};
use tempfile::TempDir;

/// Longer than any test here takes, even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Wait on the test's own thread, as Python does.
pub(crate) fn block<F: Future>(future: F) -> F::Output {
    wait(future, Some(Instant::now() + PATIENCE), &mut || Ok(())).expect("within a minute")
}

pub(crate) fn anywhere() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// A server, its folder, and a client that trusts it.
pub(crate) struct Pair {
    pub(crate) dir: TempDir,
    pub(crate) server: Server,
    pub(crate) client: Client,
}

impl Pair {
    /// Create a server in its own folder, which contains its certificate.
    pub(crate) fn bind(dir: TempDir, sink: Arc<dyn EntitySink>, change: impl FnOnce(&mut ServerOptions)) -> Self {
        let tls = ServerTls { identity: Identity::Development { dir: dir.path().join("tls") }, client_ca: None };
        let mut options = ServerOptions::new(anywhere().into(), tls);
        change(&mut options);
        let server = Server::bind(options, sink).unwrap();
        let trust = Trust::Fingerprint(server.fingerprint().unwrap());
        let client = Client::new(&ClientTls { trust, identity: None }).unwrap();
        Self { dir, server, client }
    }

    pub(crate) fn connect(&self) -> SessionHandle {
        self.connect_with(SessionOptions::default())
    }

    pub(crate) fn connect_with(&self, options: SessionOptions) -> SessionHandle {
        block(self.client.connect(self.server.local_addr().unwrap(), "localhost", options)).unwrap()
    }
}

pub(crate) fn draft(content_type: &str) -> EntityDraft {
    EntityDraft { content_type: content_type.into(), ..EntityDraft::default() }
}

pub(crate) fn container() -> EntityDraft {
    EntityDraft { dehydrate: true, ..draft("application/zip") }
}

/// Wait until a condition is true.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn id(session: &SessionHandle) -> Arc<str> {
    session.id().unwrap()
}
