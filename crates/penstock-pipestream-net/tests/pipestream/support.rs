//! A server with a folder sink, a client, and what lies in the sink afterwards.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_io::runtime::wait;
use penstock_io::tls::{ClientTls, Identity, ServerTls, Trust};
use penstock_pipestream_net::{
    Claims, Client, Consumer, EntityDraft, FolderSink, Server, ServerOptions, SessionHandle, SessionOptions,
};
use serde_json::Value;
use tempfile::TempDir;

/// Longer than anything here takes, even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits on the test's own thread, as Python does.
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
    pub(crate) fn with_sink() -> Self {
        Self::with_options(|_| {})
    }

    pub(crate) fn with_options(change: impl FnOnce(&mut ServerOptions)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sink = FolderSink::open(&dir.path().join("sink"), None).unwrap();
        Self::new(dir, sink, change)
    }

    pub(crate) fn new(dir: TempDir, consumer: impl Into<Consumer>, change: impl FnOnce(&mut ServerOptions)) -> Self {
        let tls = ServerTls { identity: Identity::Development { dir: dir.path().join("tls") }, client_ca: None };
        let mut options = ServerOptions::new(anywhere(), tls);
        options.claims = Claims::beside(&dir.path().join("sink"));
        change(&mut options);
        let server = Server::bind(options, consumer).unwrap();
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

    pub(crate) fn sink(&self) -> std::path::PathBuf {
        self.dir.path().join("sink")
    }
}

pub(crate) fn draft(content_type: &str) -> EntityDraft {
    EntityDraft { content_type: content_type.into(), ..EntityDraft::default() }
}

pub(crate) fn container() -> EntityDraft {
    EntityDraft { dehydrate: true, ..draft("application/zip") }
}

/// The lines of a session's log, once it is closed.
pub(crate) fn log(sink: &Path, session: &str) -> Vec<Value> {
    let path = sink.join(session).join("entities.jsonl");
    let since = Instant::now();
    loop {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        if lines.last().is_some_and(|line| line.get("closed").is_some()) {
            return lines;
        }
        assert!(since.elapsed() < PATIENCE, "the log is not closed: {text}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Every file below a folder, as paths relative to it, sorted.
pub(crate) fn files(dir: &Path) -> Vec<String> {
    fn walk(dir: &Path, root: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, root, found);
            } else {
                found.push(path.strip_prefix(root).unwrap().to_string_lossy().into_owned());
            }
        }
    }
    let mut found = Vec::new();
    walk(dir, dir, &mut found);
    found.sort();
    found
}

/// Waits until something is so.
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
