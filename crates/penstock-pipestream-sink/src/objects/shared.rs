use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use penstock_io::storage::ObjectPrefix;
use penstock_pipestream_net::EventLog;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::counters::SinkCounters;
use crate::references::References;

/// Maximum number of bytes of concurrent requests to the store, for all sessions.
pub(super) const IN_FLIGHT: usize = 128 << 20;
/// Minimum weight of one request, so that there are never more than 128 requests.
pub(super) const REQUEST: usize = 1 << 20;

/// The state that all sessions of a sink share.
pub(super) struct Shared {
    pub(super) place: ObjectPrefix,
    pub(super) events: Option<EventLog>,
    pub(super) touch: Duration,
    pub(super) counters: Arc<SinkCounters>,
    pub(super) requests: Arc<Semaphore>,
    pub(super) runtime: Handle,
    pub(super) references: References,
    /// Keeps the sink's thread running as long as the sink and its sessions exist.
    pub(super) _alive: mpsc::Sender<()>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shared").field(&self.place).finish()
    }
}

impl Shared {
    /// Wait until a request of this many bytes may be sent.
    pub(super) async fn admit(&self, bytes: usize) -> OwnedSemaphorePermit {
        let units = bytes.div_ceil(REQUEST).clamp(1, IN_FLIGHT / REQUEST);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        match Arc::clone(&self.requests).acquire_many_owned(units).await {
            Ok(permit) => permit,
            // The semaphore is never closed.
            Err(_) => std::future::pending().await,
        }
    }
}
