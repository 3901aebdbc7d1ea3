use std::sync::Arc;

use penstock_pipestream_net::port::TempFile;

use crate::references::ReferenceFields;

/// A verified payload.
#[derive(Debug)]
pub(super) struct StoredPayload {
    /// The payload's file; `None` for a container without bytes.
    pub(super) temp: Option<TempFile>,
    pub(super) bytes: u64,
    pub(super) sha256: [u8; 32],
    /// Whether the file's bytes are durable.
    pub(super) synced: bool,
    /// The object that the payload refers to, if any.
    pub(super) reference: Option<Arc<ReferenceFields>>,
}
