use std::sync::Arc;

use penstock_pipestream_net::port::SessionControl;
use tokio::sync::{Semaphore, mpsc};

use crate::objects::session::Message;
use crate::objects::shared::Shared;

/// The handle of a session, which its driver and every upload hold. When the last one is dropped,
/// the session ends.
#[derive(Debug, Clone)]
pub(super) struct ObjectSession {
    /// The session's name in the store.
    pub(super) name: Arc<str>,
    pub(super) shared: Arc<Shared>,
    pub(super) inbox: mpsc::UnboundedSender<Message>,
    pub(super) batch_slots: Arc<Semaphore>,
    pub(super) control: Arc<dyn SessionControl>,
}

impl ObjectSession {
    pub(super) fn send(&self, message: Message) {
        // The session's task can have ended only by a panic; entities that it has not confirmed are
        // not complete.
        let _ = self.inbox.send(message);
    }
}
