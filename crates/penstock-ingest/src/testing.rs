//! Helpers of this crate's tests: a workspace in memory, parts, zips, and a server with a client
//! that trusts it.

use std::io::{self, Cursor, Write as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_documents::{Limits, Part, PdfLimits, PdfPages, Source, Spool, Workspace};
use penstock_io::runtime::{Interrupted, wait};
use penstock_io::tls::{ClientTls, Identity as TlsIdentity, ServerTls, Trust};
use penstock_pipestream_net::port::EntitySink;
use penstock_pipestream_net::{
    Client, EntityKey, ErrorCode, Payload, Reason, Resolution, ScopeKey, SentEntity, Server, ServerOptions,
    SessionHandle, SessionOptions, Status,
};
use penstock_pipestream_sink::{Claims, FolderSink};
use serde_json::Value;
use tempfile::TempDir;

use crate::ledger::{Ledger, RowContent};
use crate::outcome::DocumentOutcome;
use crate::{Document, DocumentOptions, Identity, Interrupts, PreviousReceipt, Privacy};

/// The session of ledgers without a server.
pub(crate) const SESSION: &str = "0123456789abcdef0123456789abcdef";

/// A time longer than any step of a test takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A workspace in memory, without a reader of PDFs.
#[derive(Default)]
pub(crate) struct Memory;

impl Workspace for Memory {
    fn spool(&mut self) -> io::Result<Box<dyn Spool>> {
        Ok(Box::new(Cursor::new(Vec::new())))
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn pdf(&mut self, _: &mut dyn Source, _: &PdfLimits) -> Result<Box<dyn PdfPages>, String> {
        Err("there is no reader".to_owned())
    }
}

/// Interrupts that are always pending, or never.
pub(crate) struct Signal(pub(crate) bool);

impl Interrupts for Signal {
    fn pending(&self) -> bool {
        self.0
    }

    fn check(&self) -> Result<(), Interrupted> {
        if self.0 { Err(Interrupted) } else { Ok(()) }
    }
}

pub(crate) const NEVER: Signal = Signal(false);

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    Payload::bytes(bytes.to_vec()).sha256()
}

/// Return a part with these bytes.
pub(crate) fn part(path: &[&str], media_type: &str, bytes: &[u8]) -> Part {
    Part {
        path: path.iter().map(|&step| step.to_owned()).collect(),
        depth: path.len() as u32,
        media_type: media_type.to_owned(),
        sha256: Some(sha256(bytes)),
        bytes: Some(bytes.len() as u64),
        ..Part::default()
    }
}

pub(crate) fn zip(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, bytes) in members {
        writer.start_file(*name, options).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

pub(crate) fn key(scope: u16, entity: u32) -> EntityKey {
    EntityKey { scope, scope_use: 0, entity, entity_use: 0 }
}

/// Return the answer to an announcement.
pub(crate) fn ticket(scope: u16, entity: u32, child_scope: Option<u16>) -> SentEntity {
    let child_scope = child_scope.map(|scope| ScopeKey { scope, scope_use: 0 });
    SentEntity { key: key(scope, entity), parent_id: 0, depth: 0, child_scope }
}

pub(crate) fn resolution(status: Status) -> Resolution {
    Resolution { status, reason: None, attempts: 1, claim: None }
}

pub(crate) fn failed(code: ErrorCode, message: &str) -> Resolution {
    Resolution { reason: Some(Reason { code, message: message.to_owned() }), ..resolution(Status::Failed) }
}

/// Return the empty ledger of a document.
pub(crate) fn ledger(document: &str) -> Ledger {
    Ledger::new(document.to_owned(), SESSION.into(), RowContent { text: true, max_content: 100 }, None)
}

/// Return the ledger of `a.zip` with `x.txt` and `y.txt`, all announced: the zip as 0/1, its children in scope 2.
pub(crate) fn announced_zip() -> Ledger {
    let mut ledger = ledger("in/a.zip");
    ledger.add(&part(&[], "application/zip", b"the zip"), None, true);
    ledger.announce(0, &ticket(0, 1, Some(2)));
    for (index, name) in ["x.txt", "y.txt"].into_iter().enumerate() {
        ledger.add(&part(&[name], "text/plain", name.as_bytes()), Some(0), false);
        ledger.announce(index + 1, &ticket(2, index as u32 + 1, None));
    }
    ledger
}

/// Return the receipt of a document that has ended.
pub(crate) fn receipt(ledger: Ledger) -> Value {
    let outcome = DocumentOutcome::new(ledger).unwrap();
    serde_json::from_str(&outcome.receipt(true).unwrap()).unwrap()
}

/// Wait on the test's own thread, as a caller without a runtime does.
pub(crate) fn block<F: Future>(future: F) -> F::Output {
    wait(future, Some(Instant::now() + PATIENCE), &mut || Ok(())).expect("within a minute")
}

/// A server with a folder sink, and a client that trusts it.
pub(crate) struct Pair {
    dir: TempDir,
    server: Server,
    client: Client,
}

impl Pair {
    /// Create both ends with layers up to this one.
    pub(crate) fn new(layer: u8) -> Self {
        Self::with_consumer(layer, |sink| FolderSink::open(sink, None).unwrap())
    }

    /// Create both ends with another sink.
    pub(crate) fn with_consumer(layer: u8, consumer: impl FnOnce(&Path) -> Arc<dyn EntitySink>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sink = dir.path().join("sink");
        let identity = TlsIdentity::Development { dir: dir.path().join("tls") };
        let tls = ServerTls { identity, client_ca: None };
        let mut options = ServerOptions::new((Ipv4Addr::LOCALHOST, 0).into(), tls);
        options.claims = Claims::beside(&sink);
        options.session = session_options(layer);
        let server = Server::bind(options, consumer(&sink)).unwrap();
        let trust = Trust::Fingerprint(server.fingerprint().unwrap());
        let client = Client::new(&ClientTls { trust, identity: None }).unwrap();
        Self { dir, server, client }
    }

    pub(crate) fn connect(&self, layer: u8) -> SessionHandle {
        let address = self.server.local_addr().unwrap();
        block(self.client.connect(address, "localhost", session_options(layer))).unwrap()
    }

    pub(crate) fn sink(&self) -> PathBuf {
        self.dir.path().join("sink")
    }

    /// Return the lines of a session's log, once it is closed.
    pub(crate) fn log(&self, session: &Arc<str>) -> Vec<Value> {
        let path = self.sink().join(&**session).join("entities.jsonl");
        let since = Instant::now();
        loop {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            if lines.last().is_some_and(|line| line.get("closed").is_some()) {
                return lines;
            }
            assert!(since.elapsed() < PATIENCE, "the log is not closed: {text}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn session_options(layer: u8) -> SessionOptions {
    let mut options = SessionOptions::default();
    let capabilities = &mut options.session.capabilities;
    (capabilities.layer1, capabilities.layer2) = (layer >= 1, layer >= 2);
    options
}

pub(crate) fn document_options() -> DocumentOptions {
    DocumentOptions {
        dehydrate: true,
        limits: Limits::default(),
        in_flight: 4,
        row_content: RowContent { text: true, max_content: 1000 },
        privacy: Privacy::default(),
        policy: None,
        authority: None,
        labels: false,
    }
}

pub(crate) fn document(name: &str) -> Document {
    Document { name: name.to_owned(), identity: Identity::default(), previous: PreviousReceipt::default() }
}
