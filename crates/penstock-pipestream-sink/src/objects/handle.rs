use std::sync::Arc;

use penstock_pipestream_net::port::SessionControl;
use tokio::sync::{Semaphore, mpsc};

use crate::objects::session::Message;
use crate::objects::shared::Shared;

/// A session's handle of the sink, for its driver and for every upload. When the last one is dropped, the session ends.
#[derive(Debug, Clone)]
pub(super) struct ObjectSession {
    /// Its name in the store.
    pub(super) name: Arc<str>,
    pub(super) shared: Arc<Shared>,
    pub(super) inbox: mpsc::UnboundedSender<Message>,
    pub(super) batch_slots: Arc<Semaphore>,
    pub(super) control: Arc<dyn SessionControl>,
}

impl ObjectSession {
    pub(super) fn send(&self, message: Message) {
        // The session's task ends only by a panic; what it has not confirmed is not complete.
        let _ = self.inbox.send(message);
    }
}
