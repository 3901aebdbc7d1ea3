//! Requests to the driver, the only owner of the session.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use penstock_pipestream::messages::StoppingPointValidation;
use penstock_pipestream::yield_token::StoppingPoint;
use penstock_pipestream::{
    self as core, Accepted, Attempt, Checkpoint, ChunkProgress, ClaimAsk, ClaimResponse, EntityHeader, EntityKey,
    ErrorCode, Reason,
};
use quinn::{RecvStream, SendStream};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::claim_checks::Details;
use crate::draft::{Delivery, EntityDraft};
use crate::incoming::Assembly;
use crate::ticket_reply::TicketReply;
use crate::types::{IssuedClaim, Resumed};
use crate::{Error, Result};

/// Maximum number of commands in the driver's queue; senders wait while it is full.
const WAITING_COMMANDS: usize = 1_024;

/// Commands that the driver handles in order. The channel is bounded, so that a driver that cannot
/// write stream 0 blocks the tasks that would make it write more.
#[derive(Debug)]
pub(crate) enum Command {
    /// The peer opened stream 0.
    Control(SendStream, RecvStream),
    /// The peer opened another bidirectional stream.
    Bidirectional,
    /// The peer opened an entity stream before its capabilities arrived.
    StreamOpened,
    /// An entity stream's header is complete.
    Header { stream: u64, header: Box<EntityHeader>, reply: oneshot::Sender<Verdict> },
    /// Entity streams that have arrived completely.
    Arrived(Vec<BufferedEntity>),
    /// An entity stream's header is malformed.
    HeaderError(core::Error),
    /// The peer reset an admitted entity stream.
    StreamReset { stream: u64, attempt: Attempt, code: u64 },
    /// A chunk's stream has ended.
    ChunkFinished { attempt: Attempt, index: u32, bytes: u64, reply: oneshot::Sender<ChunkProgress> },
    /// A received or sent entity has failed at this end, whichever attempt is current.
    Fail { key: EntityKey, reason: Reason },
    /// An attempt to receive an entity has failed.
    FailAttempt { attempt: Attempt, reason: Reason },
    /// An entity of ours was not sent completely; `stopped` is true if the peer stopped its stream.
    NotSent { key: EntityKey, reason: Reason, stopped: bool },
    /// Skip an entity of ours.
    Skip { key: EntityKey, reason: Reason },
    /// Return a yield token to the receiver; the answer is the receiver's refusal, if it refuses.
    Resume { key: EntityKey, token: Bytes, reply: Reply<Option<Reason>> },
    /// Ask the peer about one of its claim checks.
    AskClaim { ask: ClaimAsk, reply: Reply<ClaimResponse> },
    /// Announce entities and send them.
    Send(Vec<SendRequest>),
    /// The last child of an entity, or of the root scope, has been announced.
    EndChildren { parent: Option<EntityKey>, reply: Reply<()> },
    /// Return whether an entity has been announced with this label.
    Knows { label: Bytes, reply: Reply<bool> },
    /// Send a CHECKPOINT.
    Checkpoint { scope: u32, entity: u32, timeout: Option<Duration>, reply: Reply<CheckpointAnswer> },
}

/// Commands that the driver handles immediately, whatever is queued. The channel is unbounded,
/// because few such commands can exist: one for each received entity, and the end.
#[derive(Debug)]
pub(crate) enum Urgent {
    /// Received entities are safely delivered.
    Complete(Vec<Attempt>),
    /// A received entity could not be delivered.
    Fail { attempt: Attempt, reason: Reason },
    /// A received entity is skipped.
    Skip { attempt: Attempt, reason: Reason },
    /// A received entity has to wait: its sender gets a token, and `resumed` fires when the sender
    /// returns it.
    Yield { attempt: Attempt, point: Box<StoppingPoint>, reply: Reply<()>, resumed: oneshot::Sender<Resumed> },
    /// The consumer of a received entity that waits takes more bytes, so the state differs from its
    /// token's.
    NoteState { attempt: Attempt, state_checksum: Bytes, reply: oneshot::Sender<()> },
    /// Return the session's part of the stopping point of a received entity.
    StoppingPoint {
        key: EntityKey,
        validation: Box<StoppingPointValidation>,
        reply: oneshot::Sender<StoppingPointValidation>,
    },
    /// The sink has stored a received entity, which must now be deferred.
    SetAside { attempt: Attempt, details: Box<Details> },
    /// A claim check has been stored.
    Defer { attempt: Attempt, claim: IssuedClaim, reply: Option<Reply<()>> },
    /// No claim check was issued for this entity.
    NoClaim { attempt: Attempt, reason: Reason },
    /// The answer to a question about a claim check of ours.
    AnswerClaim { request: u64, answer: std::result::Result<ClaimResponse, Reason>, redeemed: bool },
    /// Give up an entity of ours, and everything below it that is not announced yet.
    GiveUp { key: EntityKey, reason: Reason },
    /// Close gracefully.
    Close,
    /// Close gracefully as soon as nothing is open.
    CloseWhenIdle,
    /// The server does not listen any more.
    ServerGone(Reason),
    /// Leave the session to the next process, if its state is on disk. Otherwise end it now with
    /// the reason, or, without a reason, close it gracefully.
    Leave(Option<Reason>),
    /// Close now.
    Abort(Reason),
}

/// The two command channels of a driver.
#[derive(Debug, Clone)]
pub(crate) struct Commands {
    pub(crate) ordered: mpsc::Sender<Command>,
    pub(crate) urgent: mpsc::UnboundedSender<Urgent>,
}

impl Commands {
    /// Send a command without waiting for its reply; return false when the session is over.
    pub(crate) async fn send(&self, command: Command) -> bool {
        self.ordered.send(command).await.is_ok()
    }

    /// Send an urgent command, without waiting.
    pub(crate) fn send_urgent(&self, command: Urgent) -> bool {
        self.urgent.send(command).is_ok()
    }
}

/// The driver's ends of [`Commands`].
pub(crate) struct Inbox {
    pub(crate) ordered: mpsc::Receiver<Command>,
    pub(crate) urgent: mpsc::UnboundedReceiver<Urgent>,
}

/// Return both ends of the command channels of a driver.
pub(crate) fn inbox() -> (Commands, Inbox) {
    let (ordered, ordered_receiver) = mpsc::channel(WAITING_COMMANDS);
    let (urgent, urgent_receiver) = mpsc::unbounded_channel();
    (Commands { ordered, urgent }, Inbox { ordered: ordered_receiver, urgent: urgent_receiver })
}

/// Sender of a reply.
pub(crate) type Reply<T> = oneshot::Sender<Result<T>>;

/// An entity stream that arrived completely before it was admitted.
#[derive(Debug)]
pub(crate) struct BufferedEntity {
    pub(crate) stream: u64,
    pub(crate) header: Arc<EntityHeader>,
    pub(crate) bytes: Bytes,
    pub(crate) permit: OwnedSemaphorePermit,
}

/// Decision about an entity stream.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Receive the stream.
    Accepted {
        accepted: Accepted,
        header: Arc<EntityHeader>,
        /// Fires when the stream must be stopped.
        stop: oneshot::Receiver<ErrorCode>,
        /// Set when the whole stream has arrived.
        whole: Arc<AtomicBool>,
        /// Destination of the stream's chunk, if it carries one.
        assembly: Option<Arc<Assembly>>,
    },
    /// Stop the stream.
    Stopped(ErrorCode),
}

/// An entity to be announced.
#[derive(Debug)]
pub(crate) struct SendRequest {
    pub(crate) draft: EntityDraft,
    pub(crate) delivery: Delivery,
    pub(crate) reply: TicketReply,
}

/// The answer to a CHECKPOINT of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointAnswer {
    /// The CHECKPOINT frame.
    pub checkpoint: Checkpoint,
    /// True if satisfied, false if it timed out.
    pub satisfied: bool,
}

/// Return the error for a caller whose session has ended for this reason.
pub(crate) fn closed(reason: &Reason) -> Error {
    Error::Closed(reason.clone())
}
