//! Small entities of ours. The driver itself writes them one after another, because a task, a
//! channel and two locks for each would cost more than the entity.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use penstock_pipestream::{EntityKey, ErrorCode, Reason, Ticket};
use quinn::{SendStream, WriteError};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::entity_link::EntityLink;
use crate::link::Link;
use crate::ticket_reply::TicketReply;
use crate::transport::quic_code;

/// Number of bytes that may wait to be sent; beyond it callers wait for their tickets.
const CREDIT: usize = 16 << 20;
/// The least credit that an entity takes.
const LEAST_CREDIT: usize = 4 << 10;
/// Number of entities that are written before the driver handles anything else.
const BATCH: usize = 256;

/// An announced entity whose payload is in memory.
#[derive(Debug)]
pub(crate) struct Small {
    pub(crate) ticket: Ticket,
    /// The encoded header.
    pub(crate) head: Bytes,
    pub(crate) bytes: Bytes,
    pub(crate) dehydrated: bool,
    pub(crate) reply: Option<TicketReply>,
}

/// The entities that wait, and the one that is being written.
#[derive(Debug, Default)]
pub(crate) struct Pump {
    waiting: VecDeque<Small>,
    /// Number of entities at the front whose callers were notified, and the credit that they take.
    notified: usize,
    notified_bytes: usize,
    current: Option<Current>,
    turn: Turn,
}

/// The driver's place in the queue of tasks that wait to open a stream. It is kept when a run is
/// cancelled; otherwise larger entities would always go first.
#[derive(Default)]
enum Turn {
    #[default]
    None,
    Awaited(Pin<Box<dyn Future<Output = OwnedMutexGuard<()>> + Send>>),
    Ours {
        _guard: OwnedMutexGuard<()>,
    },
}

impl Turn {
    /// Wait for our turn.
    async fn take(&mut self, opening: &Arc<Mutex<()>>) {
        if matches!(self, Self::None) {
            *self = match Arc::clone(opening).try_lock_owned() {
                Ok(_guard) => Self::Ours { _guard },
                Err(_) => Self::Awaited(Box::pin(Arc::clone(opening).lock_owned())),
            };
        }
        if let Self::Awaited(lock) = self {
            *self = Self::Ours { _guard: lock.await };
        }
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Awaited(_) => "Awaited",
            Self::Ours { .. } => "Ours",
        })
    }
}

#[derive(Debug)]
struct Current {
    ticket: Ticket,
    stream: SendStream,
    rest: [Bytes; 2],
    reply: Option<TicketReply>,
}

impl Small {
    fn credit(&self) -> usize {
        self.bytes.len().max(LEAST_CREDIT)
    }

    /// Notify the caller, once.
    pub(crate) fn notify_caller(&mut self, link: &EntityLink) {
        if let Some(reply) = self.reply.take() {
            link.deliver_ticket(reply, self.ticket);
        }
    }
}

impl Pump {
    /// Queue an entity. Notify its caller immediately if there is credit, unless its children could
    /// overtake its header.
    pub(crate) fn push(&mut self, small: Small, link: &EntityLink) {
        self.waiting.push_back(small);
        self.notify_more(link);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.current.is_none() && self.waiting.is_empty()
    }

    /// Notify the callers for which there is credit now.
    fn notify_more(&mut self, link: &EntityLink) {
        while self.notified_bytes < CREDIT
            && let Some(next) = self.waiting.get_mut(self.notified)
        {
            self.notified_bytes = self.notified_bytes.saturating_add(next.credit());
            if !next.dehydrated {
                next.notify_caller(link);
            }
            self.notified += 1;
        }
    }

    /// Write a batch, and return the entities that the peer has stopped. Safe to cancel at any
    /// time, because the position in the stream is kept.
    pub(crate) async fn run(&mut self, link: &Arc<Link>) -> Vec<(EntityKey, Reason)> {
        let mut stopped = Vec::new();
        for _ in 0..BATCH {
            if self.current.is_none() && !self.open(link).await {
                break;
            }
            let Some(current) = &mut self.current else { break };
            match current.write().await {
                Ok(()) => {}
                Err(WriteError::Stopped(code)) => {
                    let code = ErrorCode::from_code(code.into_inner());
                    stopped.push((current.ticket.key, Reason { code, message: STOPPED.to_owned() }));
                    let _ = current.stream.reset(quic_code(code));
                }
                // The driver detects the loss elsewhere.
                Err(WriteError::ConnectionLost(_) | WriteError::ClosedStream | WriteError::ZeroRttRejected) => {
                    break;
                }
            }
            if let Some(Current { ticket, reply: Some(reply), .. }) = self.current.take() {
                link.entity.deliver_ticket(reply, ticket);
            }
            if !stopped.is_empty() {
                break;
            }
        }
        stopped
    }

    /// Open a stream for the next entity, when it is our turn and the peer allows one more. Return
    /// whether one was opened.
    async fn open(&mut self, link: &Link) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        self.turn.take(&link.opening).await;
        let opened = link.connection.open_uni().await;
        self.turn = Turn::None;
        let Ok(stream) = opened else { return false };
        let Some(small) = self.waiting.pop_front() else { return false };
        self.notified = self.notified.saturating_sub(1);
        self.notified_bytes = self.notified_bytes.saturating_sub(small.credit());
        self.notify_more(&link.entity);
        let Small { ticket, head, bytes, reply, .. } = small;
        self.current = Some(Current { ticket, stream, rest: [head, bytes], reply });
        true
    }

    /// Stop sending an entity that was resolved.
    pub(crate) fn stop(&mut self, key: EntityKey, code: ErrorCode, link: &EntityLink) {
        if let Some(mut current) = self.current.take_if(|current| current.ticket.key == key) {
            // Dropping the stream would finish it, as if the payload were complete.
            let _ = current.stream.reset(quic_code(code));
            if let Some(reply) = current.reply.take() {
                link.deliver_ticket(reply, current.ticket);
            }
        }
        if let Some(index) = self.waiting.iter().position(|small| small.ticket.key == key)
            && let Some(mut small) = self.waiting.remove(index)
        {
            if index < self.notified {
                self.notified -= 1;
                self.notified_bytes = self.notified_bytes.saturating_sub(small.credit());
            }
            small.notify_caller(link);
            self.notify_more(link);
        }
        if self.waiting.is_empty() {
            self.turn = Turn::None;
        }
    }

    /// Handle the loss of the connection: notify the callers that wait. The entities are sent again
    /// over another connection.
    pub(crate) fn handle_connection_lost(&mut self, link: &EntityLink) {
        let Self { waiting, current, .. } = std::mem::take(self);
        waiting.into_iter().for_each(|mut small| small.notify_caller(link));
        if let Some(Current { ticket, reply: Some(reply), .. }) = current {
            link.deliver_ticket(reply, ticket);
        }
    }
}

/// The message of the reason if the peer stops a stream of ours.
pub(crate) const STOPPED: &str = "the peer stopped the entity's stream";

impl Current {
    async fn write(&mut self) -> Result<(), WriteError> {
        while self.rest.iter().any(|piece| !piece.is_empty()) {
            self.stream.write_chunks(&mut self.rest).await?;
        }
        // An error means that the peer has stopped the stream, which loses nothing.
        let _ = self.stream.finish();
        Ok(())
    }
}
