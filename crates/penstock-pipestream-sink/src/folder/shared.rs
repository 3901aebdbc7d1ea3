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
    /// Held while lines of settled claim checks are written.
    pub(super) settling: Mutex<()>,
}

/// Messages to the committing thread.
#[derive(Debug)]
pub(super) enum Message {
    /// The folder of a new session.
    Opened { session: u64, folder: Box<SessionFolder> },
    /// Events of the session's driver, in order.
    Events { session: u64, events: Vec<SinkEvent> },
    /// A verified payload in its temporary file.
    Stored { session: u64, attempt: Attempt, stored: StoredPayload },
    /// The end of all changes of a session: its last line need not wait for its end.
    CloseList { session: u64 },
    /// The end of a session: its driver and its workers are done.
    Ended { session: u64 },
    /// A request that is answered after a commit of all earlier messages. The answer tells whether
    /// all lines of the session are durable.
    Flush { session: u64, done: oneshot::Sender<bool> },
}

impl Shared {
    pub(super) fn send(&self, message: Message) {
        // The thread can have ended only by a panic; entities that it has not confirmed are not
        // complete.
        let _ = self.inbox.send(message);
    }
}
