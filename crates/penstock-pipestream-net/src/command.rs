//! What everybody else asks of the driver, which alone owns the session.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use penstock_io::DriverError as _;
use penstock_pipestream::messages::{CompletionPolicy, StoppingPointValidation};
use penstock_pipestream::reference::check_no_data_key;
use penstock_pipestream::yield_token::StoppingPoint;
use penstock_pipestream::{
    self as core, Accepted, Checkpoint, ChunkProgress, ClaimAsk, ClaimResponse, EntityHeader, EntityKey, ErrorCode,
    MAX_HEADER_LENGTH, MAX_LABEL, PipeDoc, Reason, Ticket,
};
use quinn::{RecvStream, SendStream};
use tokio::sync::{mpsc, oneshot};

use super::claims::Details;
use super::incoming::{Arrival, Assembly, EntityLink};
use super::outcomes::lock;
use super::payload::Payload;
use super::shared::Shared;
use crate::{Error, Result};

/// One of the attempts to bring an entity of the peer. Below layer 2 there is only the first; above, what comes of one
/// that has failed is void, and must not be taken for the next one's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) key: EntityKey,
    /// How many have come to nothing before: they failed, or went with their connection.
    pub(crate) number: u32,
}

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
    StreamReset { stream: u64, attempt: Attempt, code: u64 },
    /// A chunk's stream has ended.
    ChunkFinished { attempt: Attempt, index: u32, bytes: u64, reply: oneshot::Sender<ChunkProgress> },
    /// An entity, received or sent, has failed at this end, whatever its attempt.
    Fail { key: EntityKey, reason: Reason },
    /// An attempt to receive an entity has failed.
    FailAttempt { attempt: Attempt, reason: Reason },
    /// An entity of ours was not sent to its end; `stopped`: by the peer.
    NotSent { key: EntityKey, reason: Reason, stopped: bool },
    /// Leave an entity of ours out.
    Skip { key: EntityKey, reason: Reason },
    /// Hand a yield token back; the answer is the receiver's refusal, if it is one.
    Resume { key: EntityKey, token: Bytes, reply: Reply<Option<Reason>> },
    /// Ask the peer about one of its claim checks.
    AskClaim { ask: ClaimAsk, reply: Reply<ClaimResponse> },
    /// Announce entities and send them.
    Send(Vec<SendRequest>),
    /// The last child of an entity, or of the root scope, has been announced.
    EndChildren { parent: Option<EntityKey>, reply: Reply<()> },
    /// Whether something has been announced with this label.
    Knows { label: Bytes, reply: Reply<bool> },
    /// Send a CHECKPOINT.
    Checkpoint { scope: u32, entity: u32, timeout: Option<Duration>, reply: Reply<CheckpointAnswer> },
}

/// What the driver does at once, whatever waits. Unbounded, because only few of these can exist: one for each entity
/// received, and the end.
#[derive(Debug)]
pub(crate) enum Urgent {
    /// Received entities are safely delivered.
    Complete(Vec<Attempt>),
    /// A received entity could not be delivered.
    Fail { attempt: Attempt, reason: Reason },
    /// A received entity is left out.
    Skip { attempt: Attempt, reason: Reason },
    /// A received entity waits: its owner gets a token, and `resumed` fires when that comes back.
    Yield { attempt: Attempt, point: Box<StoppingPoint>, reply: Reply<()>, resumed: oneshot::Sender<Resumed> },
    /// The consumer of a received entity that waits has gone on with it.
    NoteState { attempt: Attempt, state_checksum: Bytes, reply: oneshot::Sender<()> },
    /// What the session adds to the stopping point of a received entity.
    StoppingPoint {
        key: EntityKey,
        validation: Box<StoppingPointValidation>,
        reply: oneshot::Sender<StoppingPointValidation>,
    },
    /// The sink has stored a received entity, which is to be set aside.
    SetAside { attempt: Attempt, details: Box<Details> },
    /// A claim check has been stored.
    Defer { attempt: Attempt, claim: Issued, reply: Option<Reply<()>> },
    /// There is none for this entity.
    NoClaim { attempt: Attempt, reason: Reason },
    /// What a question about a claim check of ours is answered.
    AnswerClaim { request: u64, answer: std::result::Result<ClaimResponse, Reason>, redeemed: bool },
    /// An entity of ours is given up, and with it what would still have come below it.
    GiveUp { key: EntityKey, reason: Reason },
    /// Close gracefully.
    Close,
    /// Close gracefully as soon as nothing is open.
    CloseWhenIdle,
    /// The server does not listen any more.
    Gone(Reason),
    /// The session goes on with the next process, where its state is on disk. Elsewhere it ends now, or is closed gracefully.
    Leave(Option<Reason>),
    /// Close now.
    Abort(Reason),
}

/// Where an entity that has waited goes on; `None`: from its beginning.
pub(crate) type Resumed = Option<StoppingPoint>;

/// A claim check that is stored.
#[derive(Debug, Clone)]
pub(crate) struct Issued {
    pub(crate) id: u64,
    pub(crate) expiry_micros: u64,
    pub(crate) reason: Reason,
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
        /// How many attempts have come to nothing.
        number: u32,
        header: Arc<EntityHeader>,
        /// Fires when the session has the stream stopped.
        stop: oneshot::Receiver<ErrorCode>,
        /// To be set when all of it has come.
        whole: Arc<AtomicBool>,
        /// Where its chunk goes, if it carries one.
        assembly: Option<Arc<Assembly>>,
    },
    /// Stop it.
    Stopped(ErrorCode),
}

/// What the sender knows of an entity before it has an ID.
#[derive(Debug, Clone, Default, PartialEq)]
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
    /// Sends the payload in chunks of so many bytes, each on a stream of its own (decision 15).
    pub chunk_size: Option<u64>,
    /// What becomes of its children that fail, and of itself then; for an entity that is dehydrated, at layer 2.
    pub policy: Option<CompletionPolicy>,
    /// Which document a root entity is, and whose (section 7.1). Its `entity_id` is set when the entity has its ID.
    pub document: Option<PipeDoc>,
    /// What the sender calls it, of at most 1,024 bytes; empty: nothing. In a session whose state is on disk,
    /// an entity with a label that was announced before is not announced again, whatever process did so.
    pub label: Bytes,
}

/// What the user of a session may set in metadata among the protocol's own keys (decision 11).
const ORIGINAL_LENGTH: &str = "pipestream.original-length";
/// What names the claim check that an entity redeems, in 16 hex digits.
pub(crate) const CLAIM: &str = "pipestream.claim";
/// What the protocol itself may put into a header, at most.
const OWN_FIELDS: usize = 1_024;
/// What a metadata entry takes beyond its own bytes.
const ENTRY_OVERHEAD: usize = 20;

impl EntityDraft {
    /// Refuses what the peer would refuse, some of it by closing the connection (decision 14).
    pub(crate) fn check(&self, delivery: &Delivery) -> Result<()> {
        let misuse = |message: String| Err(Error::misuse(message));
        if let Some(key) =
            self.metadata.keys().find(|key| key.starts_with("pipestream.") && *key != ORIGINAL_LENGTH && *key != CLAIM)
        {
            return misuse(format!("metadata {key} belongs to the protocol"));
        }
        check_no_data_key("metadata", &self.metadata).map_err(|error| Error::misuse(error.message()))?;
        self.document.as_ref().map_or(Ok(()), PipeDoc::check)?;
        if let Some(value) = self.metadata.get(CLAIM).filter(|value| claim_id(value).is_none()) {
            return misuse(format!("metadata {CLAIM}={value:?}: a claim check has 16 digits of lower-case hex"));
        }
        if self.policy.is_some() && !self.dehydrate {
            return misuse("a policy is for an entity that has children: dehydrate".to_owned());
        }
        if self.label.len() > MAX_LABEL {
            return misuse(format!("a label of {} bytes is more than the limit of {MAX_LABEL}", self.label.len()));
        }
        if self.layer > 3 {
            return misuse(format!("there is no data layer {}", self.layer));
        }
        let metadata: usize = self.metadata.iter().map(|(key, value)| key.len() + value.len() + ENTRY_OVERHEAD).sum();
        let document = self.document.as_ref().map_or(0, |document| document.to_entry().len() + ENTRY_OVERHEAD);
        let size = metadata + document + self.content_type.len() + OWN_FIELDS;
        if size > usize::try_from(MAX_HEADER_LENGTH).unwrap_or(usize::MAX) {
            return misuse(format!("a header of {size} bytes is more than the limit of {MAX_HEADER_LENGTH}"));
        }
        match (self.chunk_size, delivery) {
            (Some(0), _) => misuse("chunks must have a size".to_owned()),
            (Some(size), Delivery::Payload(payload)) if payload.len().div_ceil(size) > u64::from(u32::MAX) => {
                misuse(format!("chunks of {size} bytes are too many"))
            }
            (Some(_) | None, _) => Ok(()),
        }
    }
}

/// The claim check that metadata names.
pub(crate) fn claim_id(text: &str) -> Option<u64> {
    let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    u64::from_str_radix(text, 16).ok().filter(|_| digits)
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
    /// The entity is left out.
    Skipped(Reason),
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
