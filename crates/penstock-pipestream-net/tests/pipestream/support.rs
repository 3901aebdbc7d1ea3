//! A server whose sessions become handles, and a client that trusts it.

use penstock_pipestream_net::{Consumer, ServerOptions};
use tempfile::TempDir;

pub(crate) use crate::common::{PATIENCE, Pair, anywhere, block, container, draft};

impl Pair {
    pub(crate) fn new(dir: TempDir, consumer: impl Into<Consumer>, change: impl FnOnce(&mut ServerOptions)) -> Self {
        Self::bind(dir, consumer, change)
    }
}
