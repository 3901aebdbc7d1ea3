use std::sync::Arc;

use penstock_pipestream_net::port::SessionControl;
use tokio::sync::{Semaphore, mpsc};

use crate::objects::session::Message;
use crate::objects::shared::Shared;

/// A session's way into the sink, for its driver and for every upload. When the last one goes, the session ends.
#[derive(Debug, Clone)]
pub(super) struct ObjectSession {
    /// What it is called in the store.
    pub(super) name: Arc<str>,
    pub(super) shared: Arc<Shared>,
    pub(super) inbox: mpsc::UnboundedSender<Message>,
    pub(super) room: Arc<Semaphore>,
    pub(super) control: Arc<dyn SessionControl>,
}

impl ObjectSession {
    pub(super) fn tell(&self, message: Message) {
        // The session's task ends by a panic only; what it has not confirmed is not complete.
        let _ = self.inbox.send(message);
    }
}
