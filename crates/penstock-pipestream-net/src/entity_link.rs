//! The link from an entity back to its session.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use penstock_io::admission::Permit;
use penstock_pipestream::{ErrorCode, Reason, SessionId, Ticket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::command::{Commands, Urgent, closed};
use crate::counters::Counters;
use crate::events::EventLog;
use crate::limits::PARKED_PAYLOAD;
use crate::port::ClaimChecks;
use crate::shared::Shared;
use crate::ticket_reply::{TicketReply, Tickets};
use crate::{Error, Misuse, Result};

/// The link of an entity to its session. All entities of a session share one.
#[derive(Debug)]
pub(crate) struct EntityLink {
    /// The ID of the session's process.
    pub(crate) process: u32,
    pub(crate) shared: Arc<Shared>,
    pub(crate) commands: Commands,
    pub(crate) log: Option<EventLog>,
    /// The claim checks that this end has issued.
    pub(crate) claims: Arc<dyn ClaimChecks>,
    /// One permit for each entity stream that is being received or waits for its consumer.
    pub(crate) stream_permits: Arc<Semaphore>,
    /// One permit for each very small entity that arrived completely and waits without a stream permit.
    pub(crate) parked: Arc<Semaphore>,
}

impl EntityLink {
    /// Exchange the stream permit of a very small entity that arrived completely for a parking
    /// permit, if one is free: the peer sends more while the consumer wakes up.
    pub(crate) fn park(&self, bytes: usize, permit: OwnedSemaphorePermit) -> OwnedSemaphorePermit {
        if bytes > PARKED_PAYLOAD {
            return permit;
        }
        Arc::clone(&self.parked).try_acquire_owned().unwrap_or(permit)
    }

    /// Release the permits of entities that were taken, `parked` of which were parked.
    pub(crate) fn release_permits(&self, count: usize, parked: usize) {
        self.stream_permits.add_permits(count.saturating_sub(parked));
        self.parked.add_permits(parked);
    }

    /// Return the session's name at layer 2. Below layer 2, return misuse.
    pub(crate) fn layer2(&self) -> Result<SessionId> {
        self.shared.layer2().ok_or(Misuse::NoLayer2.into())
    }

    pub(crate) fn closed(&self) -> Error {
        let lost = || Reason { code: ErrorCode::InternalError, message: "the connection is lost".to_owned() };
        closed(&self.shared.closed().unwrap_or_else(lost))
    }

    /// Deliver the ticket of an announced entity to its caller. Give the entity up if the caller
    /// has stopped waiting.
    pub(crate) fn deliver_ticket(&self, reply: TicketReply, ticket: Ticket) {
        if !reply.deliver(ticket) {
            self.abandon(&ticket);
        }
    }

    /// Give up an announced entity that has no owner, because its sender was stopped before it received the ticket.
    fn abandon(&self, ticket: &Ticket) {
        self.shared.forget(ticket);
        let message = "the sender was stopped before it received the ticket".to_owned();
        let reason = Reason { code: ErrorCode::InternalError, message };
        self.commands.send_urgent(Urgent::GiveUp { key: ticket.key, reason });
    }
}

/// The source of a session's handle, for a sink that hands its sessions to a caller.
#[derive(Debug)]
pub struct HandleSource {
    pub(crate) link: Arc<EntityLink>,
    pub(crate) place: Arc<Place>,
}

/// A connection's place among a server's connections, which is free when its last holder drops it.
#[derive(Debug)]
pub(crate) struct Place {
    counters: Arc<Counters>,
    _permit: Permit,
}

impl Place {
    pub(crate) fn new(permit: Permit, counters: &Arc<Counters>) -> Arc<Self> {
        Arc::new(Self { counters: Arc::clone(counters), _permit: permit })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.counters.connections_open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The tickets of a batch that a caller waits for. Dropping this gives up the batch's entities
/// whose tickets were not taken, including those that are announced later.
#[derive(Debug)]
pub(crate) struct PendingTickets {
    tickets: Tickets,
    link: Arc<EntityLink>,
}

impl PendingTickets {
    /// Return the replies of a batch, and the end of the caller that waits for them.
    pub(crate) fn batch(count: usize, link: &Arc<EntityLink>) -> (impl Iterator<Item = TicketReply>, Self) {
        let (replies, tickets) = TicketReply::batch(count);
        (replies, Self { tickets, link: Arc::clone(link) })
    }

    /// Wait until every reply has arrived.
    pub(crate) async fn ready(&mut self) {
        self.tickets.ready().await;
    }

    /// Return the tickets; `None` for an entity whose session ended before it had a ticket.
    pub(crate) fn take(self) -> Vec<Option<Result<Ticket>>> {
        self.tickets.take()
    }
}

impl Drop for PendingTickets {
    fn drop(&mut self) {
        for ticket in self.tickets.abandon() {
            self.link.abandon(&ticket);
        }
    }
}
