//! The delivery of the tickets of announced entities to a caller that waits for a whole batch.

use std::sync::{Arc, Mutex};

use penstock_io::sync::lock;
use penstock_pipestream::Ticket;
use tokio::sync::oneshot;

use crate::{Error, Result};

/// Destination of the ticket of one entity of a batch. A reply is dropped without a ticket only if
/// the session is over.
#[derive(Debug)]
pub(crate) struct TicketReply {
    batch: Arc<Mutex<TicketBatch>>,
    index: usize,
    state: ReplyState,
}

/// The state of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReplyState {
    /// No ticket is delivered yet: the batch counts the reply when it is dropped.
    Pending,
    /// The batch has the ticket or the error, and has counted the reply.
    Delivered,
}

/// The caller's end of a batch.
#[derive(Debug)]
pub(crate) struct Tickets {
    batch: Arc<Mutex<TicketBatch>>,
    /// `None` once every reply has arrived, because a channel must not be polled again.
    complete: Option<oneshot::Receiver<()>>,
}

/// The state of a batch.
///
/// ```text
///  Waiting ── the last reply arrives ──► Complete ── the caller takes the tickets ──► Closed
///     └───────────────── the caller stops waiting ──────┴─────────────────────────────┘
/// ```
#[derive(Debug)]
enum TicketBatch {
    /// Some replies are missing; `complete` fires when the last one has arrived.
    Waiting { tickets: Vec<Option<Result<Ticket>>>, missing: usize, complete: oneshot::Sender<()> },
    /// Every reply has arrived.
    Complete { tickets: Vec<Option<Result<Ticket>>> },
    /// The caller no longer waits: a ticket that arrives is refused, and the driver gives up its entity.
    Closed,
}

impl TicketReply {
    /// Return the replies of a batch, and their caller's end.
    pub(crate) fn batch(count: usize) -> (impl Iterator<Item = Self>, Tickets) {
        let (complete, completed) = oneshot::channel();
        let waiting = TicketBatch::Waiting { tickets: vec![None; count], missing: count, complete };
        let batch = Arc::new(Mutex::new(waiting));
        let tickets = Tickets { batch: Arc::clone(&batch), complete: Some(completed) };
        let reply = move |index| Self { batch: Arc::clone(&batch), index, state: ReplyState::Pending };
        ((0..count).map(reply), tickets)
    }

    /// Return whether the caller has stopped waiting.
    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.batch).is_closed()
    }

    /// Deliver the ticket of an announced entity. Return false if the caller has stopped waiting
    /// for it: then no caller would ever end the entity or ask for its outcome.
    pub(crate) fn deliver(self, ticket: Ticket) -> bool {
        self.put(Ok(ticket))
    }

    /// Deliver the error of an entity that was not announced.
    pub(crate) fn fail(self, error: Error) {
        self.put(Err(error));
    }

    fn put(mut self, ticket: Result<Ticket>) -> bool {
        self.state = ReplyState::Delivered;
        let mut batch = lock(&self.batch);
        let taken = batch.put(self.index, ticket);
        batch.count_down();
        taken
    }
}

impl TicketBatch {
    fn is_closed(&self) -> bool {
        match self {
            Self::Waiting { .. } | Self::Complete { .. } => false,
            Self::Closed => true,
        }
    }

    /// Keep a ticket for the caller. Return false if the caller has stopped waiting for it.
    fn put(&mut self, index: usize, ticket: Result<Ticket>) -> bool {
        match self {
            Self::Waiting { tickets, .. } => tickets.get_mut(index).map(|slot| *slot = Some(ticket)).is_some(),
            Self::Complete { .. } | Self::Closed => false,
        }
    }

    fn count_down(&mut self) {
        let Self::Waiting { missing, .. } = self else { return };
        *missing = missing.saturating_sub(1);
        if *missing == 0
            && let Self::Waiting { tickets, complete, .. } = self.close()
        {
            *self = Self::Complete { tickets };
            // An error means that the caller has stopped waiting.
            let _ = complete.send(());
        }
    }

    /// Close the batch, and return its previous state.
    fn close(&mut self) -> Self {
        std::mem::replace(self, Self::Closed)
    }

    fn into_tickets(self) -> Vec<Option<Result<Ticket>>> {
        match self {
            Self::Waiting { tickets, .. } | Self::Complete { tickets } => tickets,
            Self::Closed => Vec::new(),
        }
    }
}

impl Drop for TicketReply {
    fn drop(&mut self) {
        match self.state {
            ReplyState::Pending => lock(&self.batch).count_down(),
            ReplyState::Delivered => {}
        }
    }
}

impl Tickets {
    /// Wait until every reply has arrived.
    pub(crate) async fn ready(&mut self) {
        if let Some(complete) = &mut self.complete {
            let _ = complete.await;
            self.complete = None;
        }
    }

    /// Return the tickets; `None` for an entity whose session ended before it had a ticket.
    pub(crate) fn take(&self) -> Vec<Option<Result<Ticket>>> {
        let batch = lock(&self.batch).close();
        batch.into_tickets()
    }

    /// Stop waiting. Return the tickets that have arrived and were not taken.
    pub(crate) fn abandon(&self) -> impl Iterator<Item = Ticket> {
        let batch = lock(&self.batch).close();
        batch.into_tickets().into_iter().flatten().flatten()
    }
}
