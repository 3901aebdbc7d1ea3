//! A server whose sessions become handles, and a client that trusts it.

use std::sync::Arc;

use penstock_pipestream_net::ServerOptions;
use penstock_pipestream_net::port::EntitySink;
use tempfile::TempDir;

pub(crate) use crate::common::{PATIENCE, Pair, anywhere, block, container, draft};

impl Pair {
    pub(crate) fn new(dir: TempDir, sink: Arc<dyn EntitySink>, change: impl FnOnce(&mut ServerOptions)) -> Self {
        Self::bind(dir, sink, change)
    }
}
