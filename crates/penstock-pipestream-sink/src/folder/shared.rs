//! The state that the sessions, the workers and the committing thread of a sink share.

use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use penstock_pipestream_net::EventLog;
use penstock_pipestream_net::port::{Attempt, SinkEvent};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::counters::SinkCounters;
use crate::folder::disk::Faults;
use crate::folder::session_folder::SessionFolder;
use crate::folder::stored::StoredPayload;
use crate::references::References;

/// State that sessions, workers and the committing thread share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) dir: PathBuf,
    pub(super) inbox: mpsc::UnboundedSender<Message>,
    pub(super) batch_slots: Arc<Semaphore>,
    pub(super) events: Option<EventLog>,
    pub(super) faults: Faults,
    pub(super) sessions: AtomicU64,
    pub(super) counters: Arc<SinkCounters>,
    pub(super) references: References,
    /// Held while settled claim checks are written.
    pub(super) settling: Mutex<()>,
}

/// Messages to the committing thread.
#[derive(Debug)]
pub(super) enum Message {
    /// A session's folder exists.
    Opened { session: u64, folder: Box<SessionFolder> },
    /// Events of its driver, in order.
    Events { session: u64, events: Vec<SinkEvent> },
    /// A verified payload is in its temporary file.
    Stored { session: u64, attempt: Attempt, stored: StoredPayload },
    /// The session cannot change any more: its last line need not wait for its end.
    CloseList { session: u64 },
    /// Driver and workers of the session are done.
    Ended { session: u64 },
    /// Fires once everything before it was to be made durable, with whether all lines of the session are.
    Flush { session: u64, done: oneshot::Sender<bool> },
}

impl Shared {
    pub(super) fn send(&self, message: Message) {
        // The thread ends only by a panic; what it has not confirmed is not complete.
        let _ = self.inbox.send(message);
    }
}
