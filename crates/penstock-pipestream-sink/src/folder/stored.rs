use std::sync::Arc;

use penstock_pipestream_net::port::TempFile;

use crate::references::ReferenceFields;

/// A verified payload.
#[derive(Debug)]
pub(super) struct StoredPayload {
    /// Its file; none for a container without any bytes.
    pub(super) temp: Option<TempFile>,
    pub(super) bytes: u64,
    pub(super) sha256: [u8; 32],
    /// Whether the file's bytes are durable.
    pub(super) synced: bool,
    /// The object that it refers to, if it refers to one.
    pub(super) reference: Option<Arc<ReferenceFields>>,
}
