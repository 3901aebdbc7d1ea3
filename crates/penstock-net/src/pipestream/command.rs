//! What everybody else asks of the driver, which alone owns the session.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use penstock_pipestream::{
    self as core, Accepted, Checkpoint, ChunkProgress, EntityHeader, EntityKey, ErrorCode, MAX_HEADER_LENGTH, Reason,
    Ticket,
};
use quinn::{RecvStream, SendStream};
use tokio::sync::{mpsc, oneshot};

use super::incoming::{Arrival, Assembly, EntityLink};
use super::outcomes::lock;
use super::payload::Payload;
use super::shared::Shared;
use crate::{Error, Result};

/// What the driver does when it gets to it. The channel is bounded, so a driver that cannot write stream 0 holds up
/// whoever would make it write more.
#[derive(Debug)]
pub(crate) enum Command {
    /// The peer opened stream 0.
    Control(SendStream, RecvStream),
    /// The peer opened another bidirectional stream.
    Bidirectional,
    /// The peer opened an entity stream, and its capabilities are not known yet.
    StreamOpened,
    /// An entity stream's header is complete.
    Header { stream: u64, header: Box<EntityHeader>, reply: oneshot::Sender<Verdict> },
    /// Entity streams that came whole.
    Arrived(Vec<Arrival>),
    /// An entity stream's header is none.
    HeaderError(core::Error),
    /// The peer reset an admitted entity stream.
    StreamReset { stream: u64, key: EntityKey, code: u64 },
    /// A chunk's stream has ended.
    ChunkFinished { key: EntityKey, index: u32, octets: u64, reply: oneshot::Sender<ChunkProgress> },
    /// An entity, received or sent, has failed at this end.
    Fail { key: EntityKey, reason: Reason },
    /// Announce entities and send them.
    Send(Vec<SendRequest>),
    /// The last child of an entity, or of the root scope, has been announced.
    EndChildren { parent: Option<EntityKey>, reply: Reply<()> },
    /// Send a CHECKPOINT.
    Checkpoint { scope: u32, entity: u32, timeout: Option<Duration>, reply: Reply<CheckpointAnswer> },
}

/// What the driver does at once, whatever waits. Unbounded, because only few of these can exist: one for each entity
/// received, and the end.
#[derive(Debug)]
pub(crate) enum Urgent {
    /// Received entities are safely delivered.
    Complete(Vec<EntityKey>),
    /// A received entity could not be delivered.
    Fail { key: EntityKey, reason: Reason },
    /// An entity of ours is given up, and with it what would still have come below it.
    GiveUp { key: EntityKey, reason: Reason },
    /// Close gracefully.
    Close,
    /// Close gracefully as soon as nothing is open.
    CloseWhenIdle,
    /// Close now.
    Abort(Reason),
}

/// The two ways to the driver.
#[derive(Debug, Clone)]
pub(crate) struct Commands {
    pub(crate) ordered: mpsc::Sender<Command>,
    pub(crate) urgent: mpsc::UnboundedSender<Urgent>,
}

impl Commands {
    /// Asks and does not wait for the answer; false when the session is over.
    pub(crate) async fn tell(&self, command: Command) -> bool {
        self.ordered.send(command).await.is_ok()
    }

    /// Asks without waiting for room.
    pub(crate) fn urge(&self, command: Urgent) -> bool {
        self.urgent.send(command).is_ok()
    }
}

/// Where an answer goes.
pub(crate) type Reply<T> = oneshot::Sender<Result<T>>;

/// What becomes of an entity stream.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Receive it.
    Accepted {
        accepted: Accepted,
        header: Arc<EntityHeader>,
        /// Fires when the session has the stream stopped.
        stop: oneshot::Receiver<ErrorCode>,
        /// Where its chunk goes, if it carries one.
        assembly: Option<Arc<Assembly>>,
    },
    /// Stop it.
    Stopped(ErrorCode),
}

/// What the sender knows of an entity before it has an ID.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EntityDraft {
    /// Its parent, one of ours that was announced as dehydrated; `None` for a root.
    pub parent: Option<EntityKey>,
    /// Whether it will have children.
    pub dehydrate: bool,
    /// The data layer (0 to 3, section 7).
    pub layer: u32,
    /// MIME type of the payload.
    pub content_type: String,
    /// The header's metadata; keys that begin with `pipestream.` belong to the protocol.
    pub metadata: BTreeMap<String, String>,
    /// Sends the payload in chunks of so many octets, each on a stream of its own (decision 15).
    pub chunk_size: Option<u64>,
}

/// What the user of a session may set in metadata among the protocol's own keys (decision 11).
const ORIGINAL_LENGTH: &str = "pipestream.original-length";
/// What the protocol itself may put into a header, at most.
const OWN_FIELDS: usize = 1_024;
/// What a metadata entry takes beyond its own octets.
const ENTRY_OVERHEAD: usize = 20;

impl EntityDraft {
    /// Refuses what the peer would refuse, some of it by closing the connection (decision 14).
    pub(crate) fn check(&self, delivery: &Delivery) -> Result<()> {
        let misuse = |message: String| Err(Error::Misuse(message));
        if let Some(key) = self.metadata.keys().find(|key| key.starts_with("pipestream.") && *key != ORIGINAL_LENGTH) {
            return misuse(format!("metadata {key} belongs to the protocol"));
        }
        if self.layer > 3 {
            return misuse(format!("there is no data layer {}", self.layer));
        }
        let metadata: usize = self.metadata.iter().map(|(key, value)| key.len() + value.len() + ENTRY_OVERHEAD).sum();
        let size = metadata + self.content_type.len() + OWN_FIELDS;
        if size > usize::try_from(MAX_HEADER_LENGTH).unwrap_or(usize::MAX) {
            return misuse(format!("a header of {size} octets is more than the limit of {MAX_HEADER_LENGTH}"));
        }
        match (self.chunk_size, delivery) {
            (Some(0), _) => misuse("chunks must have a size".to_owned()),
            (Some(size), Delivery::Payload(payload)) if payload.len().div_ceil(size) > u64::from(u32::MAX) => {
                misuse(format!("chunks of {size} octets are too many"))
            }
            (Some(_) | None, _) => Ok(()),
        }
    }
}

/// An entity to be announced.
#[derive(Debug)]
pub(crate) struct SendRequest {
    pub(crate) draft: EntityDraft,
    pub(crate) delivery: Delivery,
    pub(crate) answer: Answer,
}

/// Where the ticket of an announced entity goes: to a caller that waits until it has those of a whole batch. One that is
/// dropped has no ticket, because the session is over.
#[derive(Debug)]
pub(crate) struct Answer {
    batch: Arc<Mutex<Answers>>,
    index: usize,
    given: bool,
}

/// Who waits for a batch. Whoever does not wait to its end leaves it to nobody: what is announced nevertheless is given
/// up.
#[derive(Debug)]
pub(crate) struct Asked {
    batch: Arc<Mutex<Answers>>,
    given: Option<oneshot::Receiver<()>>,
    link: Arc<EntityLink>,
}

#[derive(Debug)]
struct Answers {
    tickets: Vec<Option<Result<Ticket>>>,
    missing: usize,
    given: Option<oneshot::Sender<()>>,
    abandoned: bool,
}

impl Answer {
    /// The answers of a batch, and who waits for them.
    pub(crate) fn batch(count: usize, link: Arc<EntityLink>) -> (impl Iterator<Item = Self>, Asked) {
        let (sender, given) = oneshot::channel();
        let answers = Answers { tickets: vec![None; count], missing: count, given: Some(sender), abandoned: false };
        let batch = Arc::new(Mutex::new(answers));
        let asked = Asked { batch: Arc::clone(&batch), given: Some(given), link };
        ((0..count).map(move |index| Self { batch: Arc::clone(&batch), index, given: false }), asked)
    }

    /// Whether nobody waits any more.
    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.batch).abandoned
    }

    /// The entity is announced. Where nobody waits for its ticket any more, nobody would ever end it, or ask for it.
    pub(crate) fn give(self, ticket: Ticket, link: &EntityLink) {
        if !self.put(Ok(ticket)) {
            abandon(&ticket, &link.shared, &link.commands);
        }
    }

    /// It is not.
    pub(crate) fn fail(self, error: Error) {
        self.put(Err(error));
    }

    fn put(mut self, ticket: Result<Ticket>) -> bool {
        self.given = true;
        let mut batch = lock(&self.batch);
        let taken = batch.tickets.get_mut(self.index).map(|slot| *slot = Some(ticket)).is_some();
        batch.count_down();
        taken
    }
}

impl Answers {
    fn count_down(&mut self) {
        self.missing = self.missing.saturating_sub(1);
        if self.missing == 0
            && let Some(given) = self.given.take()
        {
            // Whoever does not wait any more has said so.
            let _ = given.send(());
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.given {
            lock(&self.batch).count_down();
        }
    }
}

impl Asked {
    /// Waits until every answer is there.
    pub(crate) async fn ready(&mut self) {
        if let Some(given) = &mut self.given {
            let _ = given.await;
            self.given = None;
        }
    }

    /// The tickets; `None` where the session ended before there was one.
    pub(crate) fn take(self) -> Vec<Option<Result<Ticket>>> {
        std::mem::take(&mut lock(&self.batch).tickets)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let unread = {
            let mut batch = lock(&self.batch);
            // From here on there is no place for a ticket, and whoever has one gives its entity up.
            batch.abandoned = true;
            std::mem::take(&mut batch.tickets)
        };
        for ticket in unread.into_iter().flatten().flatten() {
            abandon(&ticket, &self.link.shared, &self.link.commands);
        }
    }
}

/// What follows the announcement.
#[derive(Debug)]
pub(crate) enum Delivery {
    /// A stream.
    Payload(Payload),
    /// The entity cannot be delivered.
    Failed(Reason),
}

/// The answer to a CHECKPOINT of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointAnswer {
    /// The frame.
    pub checkpoint: Checkpoint,
    /// True if satisfied, false if it timed out.
    pub satisfied: bool,
}

/// A reason in the form of an error, for whoever waits.
pub(crate) fn closed(reason: &Reason) -> Error {
    Error::Closed(reason.clone())
}

/// Gives up an announced entity that nobody knows of, because whoever sent it was stopped before it learnt the ticket.
pub(crate) fn abandon(ticket: &Ticket, shared: &Shared, commands: &Commands) {
    shared.forget(ticket);
    let message = "the sender was stopped while it sent this".to_owned();
    commands.urge(Urgent::GiveUp { key: ticket.key, reason: Reason { code: ErrorCode::InternalError, message } });
}
