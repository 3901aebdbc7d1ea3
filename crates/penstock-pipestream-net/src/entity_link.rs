//! The connection from an entity back to its session.

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

/// Connection of an entity to its session. All entities of a session share one.
#[derive(Debug)]
pub(crate) struct EntityLink {
    /// The process that the session lives in.
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
    /// Release the stream permit of a very small entity that arrived completely, as long as few wait for their consumer: the
    /// peer sends more while the consumer wakes up.
    pub(crate) fn park(&self, bytes: usize, permit: OwnedSemaphorePermit) -> OwnedSemaphorePermit {
        if bytes > PARKED_PAYLOAD {
            return permit;
        }
        Arc::clone(&self.parked).try_acquire_owned().unwrap_or(permit)
    }

    /// Release the permits of entities that were taken, some of which were parked.
    pub(crate) fn release_permits(&self, count: usize, parked: usize) {
        self.stream_permits.add_permits(count.saturating_sub(parked));
        self.parked.add_permits(parked);
    }

    /// Return the session's name at layer 2, or misuse for an operation that exists only there.
    pub(crate) fn layer2(&self) -> Result<SessionId> {
        self.shared.layer2().ok_or(Misuse::NoLayer2.into())
    }

    pub(crate) fn closed(&self) -> Error {
        let lost = || Reason { code: ErrorCode::InternalError, message: "the connection is lost".to_owned() };
        closed(&self.shared.closed().unwrap_or_else(lost))
    }

    /// Deliver an announced entity's ticket to its caller. If the caller has stopped waiting for it, the entity is
    /// given up.
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

/// Source of a session's handle, for a sink that hands its sessions to a caller.
#[derive(Debug)]
pub struct HandleSource {
    pub(crate) link: Arc<EntityLink>,
    pub(crate) place: Arc<Place>,
}

/// A connection's place among those of a server. It is free when the last holder drops it.
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

/// A caller that waits for the tickets of a batch. Entities announced after it has stopped waiting are given up as
/// well.
#[derive(Debug)]
pub(crate) struct PendingTickets {
    tickets: Tickets,
    link: Arc<EntityLink>,
}

impl PendingTickets {
    /// Return the replies of a batch, and the caller that waits for them.
    pub(crate) fn batch(count: usize, link: &Arc<EntityLink>) -> (impl Iterator<Item = TicketReply>, Self) {
        let (replies, tickets) = TicketReply::batch(count);
        (replies, Self { tickets, link: Arc::clone(link) })
    }

    /// Wait until every reply has arrived.
    pub(crate) async fn ready(&mut self) {
        self.tickets.ready().await;
    }

    /// Return the tickets; `None` where the session ended before there was one.
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
