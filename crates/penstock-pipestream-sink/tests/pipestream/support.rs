//! A server with a folder sink, a client, and the content of the sink afterwards.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_pipestream_net::ServerOptions;
use penstock_pipestream_net::port::EntitySink;
use penstock_pipestream_sink::{Claims, FolderSink};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) use crate::common::{PATIENCE, Pair, anywhere, block, container, draft, eventually, id};

impl Pair {
    pub(crate) fn with_sink() -> Self {
        Self::with_options(|_| {})
    }

    pub(crate) fn with_options(change: impl FnOnce(&mut ServerOptions)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sink = FolderSink::open(&dir.path().join("sink"), None).unwrap();
        Self::new(dir, sink, change)
    }

    pub(crate) fn new(dir: TempDir, sink: Arc<dyn EntitySink>, change: impl FnOnce(&mut ServerOptions)) -> Self {
        let claims = Claims::beside(&dir.path().join("sink"));
        Self::bind(dir, sink, |options| {
            options.claims = claims;
            change(options);
        })
    }

    pub(crate) fn sink(&self) -> std::path::PathBuf {
        self.dir.path().join("sink")
    }
}

/// Return the lines of a session's log, once it is closed.
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

/// Return every file below a folder, as paths relative to it, sorted.
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
