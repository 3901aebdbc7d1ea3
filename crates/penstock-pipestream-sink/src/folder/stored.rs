use std::sync::Arc;

use penstock_pipestream_net::port::TempFile;

use crate::references::Referred;

/// A verified payload.
#[derive(Debug)]
pub(super) struct Stored {
    /// Its file; none for a container without bytes of its own.
    pub(super) temp: Option<TempFile>,
    pub(super) bytes: u64,
    pub(super) sha256: [u8; 32],
    /// Whether the file's bytes are on disk for good.
    pub(super) synced: bool,
    /// What it refers to, if it does.
    pub(super) reference: Option<Arc<Referred>>,
}
