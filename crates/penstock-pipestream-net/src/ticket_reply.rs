//! Delivery of the tickets of announced entities to a caller that waits for a whole batch of them.

use std::sync::{Arc, Mutex};

use penstock_io::sync::lock;
use penstock_pipestream::Ticket;
use tokio::sync::oneshot;

use crate::{Error, Result};

/// Destination of the ticket of an announced entity: a caller that waits for the tickets of a whole batch. A reply
/// that is dropped delivers no ticket, because the session is over.
#[derive(Debug)]
pub(crate) struct TicketReply {
    batch: Arc<Mutex<TicketBatch>>,
    index: usize,
    delivered: bool,
}

/// The caller's end of a batch.
#[derive(Debug)]
pub(crate) struct Tickets {
    batch: Arc<Mutex<TicketBatch>>,
    delivered: Option<oneshot::Receiver<()>>,
}

#[derive(Debug)]
struct TicketBatch {
    tickets: Vec<Option<Result<Ticket>>>,
    missing: usize,
    delivered: Option<oneshot::Sender<()>>,
    abandoned: bool,
}

impl TicketReply {
    /// Return the replies of a batch, and their caller's end.
    pub(crate) fn batch(count: usize) -> (impl Iterator<Item = Self>, Tickets) {
        let (sender, delivered) = oneshot::channel();
        let replies =
            TicketBatch { tickets: vec![None; count], missing: count, delivered: Some(sender), abandoned: false };
        let batch = Arc::new(Mutex::new(replies));
        let tickets = Tickets { batch: Arc::clone(&batch), delivered: Some(delivered) };
        ((0..count).map(move |index| Self { batch: Arc::clone(&batch), index, delivered: false }), tickets)
    }

    /// Return whether the caller has stopped waiting.
    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.batch).abandoned
    }

    /// Deliver the ticket of an announced entity. Return false if the caller has stopped waiting for it, so that
    /// nothing would ever end the entity or ask for it.
    pub(crate) fn deliver(self, ticket: Ticket) -> bool {
        self.put(Ok(ticket))
    }

    /// Deliver the error of an entity that was not announced.
    pub(crate) fn fail(self, error: Error) {
        self.put(Err(error));
    }

    fn put(mut self, ticket: Result<Ticket>) -> bool {
        self.delivered = true;
        let mut batch = lock(&self.batch);
        let taken = batch.tickets.get_mut(self.index).map(|slot| *slot = Some(ticket)).is_some();
        batch.count_down();
        taken
    }
}

impl TicketBatch {
    fn count_down(&mut self) {
        self.missing = self.missing.saturating_sub(1);
        if self.missing == 0
            && let Some(delivered) = self.delivered.take()
        {
            // An error means that the caller has stopped waiting.
            let _ = delivered.send(());
        }
    }
}

impl Drop for TicketReply {
    fn drop(&mut self) {
        if !self.delivered {
            lock(&self.batch).count_down();
        }
    }
}

impl Tickets {
    /// Wait until every reply has arrived.
    pub(crate) async fn ready(&mut self) {
        if let Some(delivered) = &mut self.delivered {
            let _ = delivered.await;
            self.delivered = None;
        }
    }

    /// Return the tickets; `None` where the session ended before there was one.
    pub(crate) fn take(&self) -> Vec<Option<Result<Ticket>>> {
        std::mem::take(&mut lock(&self.batch).tickets)
    }

    /// Stop waiting. Return the tickets that have arrived and were not taken.
    pub(crate) fn abandon(&self) -> impl Iterator<Item = Ticket> {
        let unread = {
            let mut batch = lock(&self.batch);
            // From here on tickets are refused, and the driver gives up their entities.
            batch.abandoned = true;
            std::mem::take(&mut batch.tickets)
        };
        unread.into_iter().flatten().flatten()
    }
}
