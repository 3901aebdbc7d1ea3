//! A session as its callers see it, on any thread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use penstock_io::runtime::PerProcess;
use penstock_pipestream::{
    self as core, Agreement, ClaimAsk, EntityKey, ErrorCode, Event, Reason, Role, ScopeKey, SessionId, Ticket,
};
use tokio::sync::oneshot;

use crate::batch_channel::BatchReceiver;
use crate::claim_checks::ClaimCheck;
use crate::command::{CheckpointAnswer, Command, Commands, SendRequest, Urgent, closed};
use crate::draft::{Delivery, EntityDraft};
use crate::entity_link::{EntityLink, PendingTickets};
use crate::incoming::{IncomingEntity, QueuedEntity};
use crate::outcomes::Missing;
use crate::payload::Payload;
use crate::shared::{Phase, Shared};
use crate::types::{Released, Resolution};
use crate::{Error, Misuse, Result};

/// Maximum number of entities that are handed to the driver together.
const MAX_BATCH: usize = 256;

/// A session. Clones refer to the same session; when the last one is dropped before the end, the session is aborted.
///
/// Futures may be dropped at any time: an entity whose ticket is not awaited is given up. Outcomes
/// of our entities and scopes are kept until they are taken. Each takes one byte for an entity that
/// is COMPLETE, and about 100 bytes for other entities and for scopes.
#[derive(Debug, Clone)]
pub struct SessionHandle(Arc<PerProcess<Inner>>);

/// Events of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct EventBatch {
    /// The events in order; empty when the session is over.
    pub events: Vec<Event>,
    /// Number of earlier events that were dropped because they were not taken.
    pub lost: u64,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    commands: Commands,
    /// Contains the two fields above, and is needed to give up entities and to release permits.
    link: Arc<EntityLink>,
    entities: BatchReceiver<QueuedEntity>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let message = "the session was dropped without being closed".to_owned();
        // After the end of the session nothing receives the command.
        self.commands.send_urgent(Urgent::Leave(Some(Reason { code: ErrorCode::InternalError, message })));
    }
}

impl SessionHandle {
    pub(crate) fn new(link: Arc<EntityLink>, entities: BatchReceiver<QueuedEntity>) -> Self {
        let (shared, commands) = (Arc::clone(&link.shared), link.commands.clone());
        Self(Arc::new(PerProcess::new(Inner { shared, commands, link, entities })))
    }

    fn inner(&self) -> Result<&Inner> {
        Ok(self.0.get()?)
    }

    fn shared(&self) -> Result<&Shared> {
        Ok(&self.inner()?.shared)
    }

    /// Return the session's ID: 32 hex digits, the same at both ends (decision 18).
    pub fn id(&self) -> Result<Arc<str>> {
        Ok(Arc::clone(self.shared()?.id()))
    }

    /// Return whether this end is the client or the server.
    pub fn role(&self) -> Result<Role> {
        Ok(self.shared()?.role)
    }

    /// Return whether this process continues a session from disk that an earlier process began.
    pub fn resumed(&self) -> Result<bool> {
        Ok(self.shared()?.origin.is_resumed())
    }

    /// Return whether the earlier process had begun to close the session, or had ended its root
    /// scope: its entities can be found by their labels, and nothing else can be announced. Close
    /// the session, and connect again for new entities.
    pub fn closing(&self) -> Result<bool> {
        Ok(self.shared()?.origin.has_ended_root())
    }

    /// Return the peer's address at the time of the first connection.
    pub fn peer_address(&self) -> Result<SocketAddr> {
        Ok(self.shared()?.peer)
    }

    /// Return what both ends have agreed on. Before the agreement and after the session's end,
    /// return an error.
    pub fn agreement(&self) -> Result<Agreement> {
        match &*self.shared()?.phase.borrow() {
            Phase::Open(agreement) => Ok(*agreement),
            Phase::Negotiating => Err(Error::Negotiating),
            Phase::Ending(reason) | Phase::Closed(reason) => Err(closed(reason)),
        }
    }

    /// Return the reason for which the session is over, if it is.
    pub fn is_closed(&self) -> Result<Option<Reason>> {
        Ok(self.shared()?.closed())
    }

    /// Announce an entity and send it. Wait while the window is full or too many bytes wait to be
    /// sent, which holds the caller back. `Ok` means that the entity is announced and, if it will
    /// have children, that its header is sent before theirs.
    pub async fn send(&self, draft: EntityDraft, payload: Payload) -> Result<Ticket> {
        self.announce_one(draft, Delivery::Payload(payload)).await
    }

    /// Announce and send many entities in order, as [`send`](Self::send) does, but cross to the IO
    /// thread once for many.
    pub async fn send_many(&self, items: Vec<(EntityDraft, Payload)>) -> Vec<Result<Ticket>> {
        let items = items.into_iter().map(|(draft, payload)| (draft, Delivery::Payload(payload)));
        self.announce_all(items).await
    }

    /// Announce and send all entities or none, as [`send_many`](Self::send_many) does: after an
    /// error give up the entities that were announced.
    pub async fn send_all(&self, items: Vec<(EntityDraft, Payload)>) -> Result<Vec<Ticket>> {
        let tickets = self.send_many(items).await;
        let Some(error) = tickets.iter().find_map(|ticket| ticket.as_ref().err().cloned()) else {
            return Ok(tickets.into_iter().flatten().collect());
        };
        for ticket in tickets.into_iter().flatten() {
            self.abandon(&ticket, "another entity of the same batch could not be sent".to_owned())?;
        }
        Err(error)
    }

    /// Announce an entity that cannot be delivered, so that the peer counts it and learns the
    /// reason.
    pub async fn announce_failed(&self, draft: EntityDraft, reason: Reason) -> Result<Ticket> {
        self.announce_one(draft, Delivery::Failed(reason)).await
    }

    /// Announce an entity that is skipped, so that the peer counts it as SKIPPED and learns the
    /// reason. Needs layer 2.
    pub async fn announce_skipped(&self, draft: EntityDraft, reason: Reason) -> Result<Ticket> {
        self.layer2()?;
        self.announce_one(draft, Delivery::Skipped(reason)).await
    }

    async fn announce_one(&self, draft: EntityDraft, delivery: Delivery) -> Result<Ticket> {
        let tickets = self.announce_all(std::iter::once((draft, delivery))).await;
        tickets.into_iter().next().unwrap_or_else(|| Err(closed(&self.reason())))
    }

    /// Announce entities in order; a draft that is refused does not affect the others.
    async fn announce_all(&self, items: impl ExactSizeIterator<Item = (EntityDraft, Delivery)>) -> Vec<Result<Ticket>> {
        let Ok(inner) = self.inner() else { return items.map(|_| Err(penstock_io::Error::Forked.into())).collect() };
        let link = &inner.link;
        let mut batches = Vec::new();
        let mut items = items.peekable();
        while items.peek().is_some() {
            let batch: Vec<_> = items.by_ref().take(MAX_BATCH).collect();
            let (replies, waiting) = PendingTickets::batch(batch.len(), link);
            let mut requests = Vec::with_capacity(batch.len());
            for ((draft, delivery), reply) in batch.into_iter().zip(replies) {
                match draft.check(&delivery) {
                    Ok(()) => requests.push(SendRequest { draft, delivery, reply }),
                    Err(error) => reply.fail(error),
                }
            }
            batches.push(waiting);
            // After the session's end nothing takes the command, and the replies report that.
            let _ = self.send_command(Command::Send(requests)).await;
        }
        for waiting in &mut batches {
            waiting.ready().await;
        }
        // From here on there is no wait: a caller that stops waiting gives up all entities, or
        // none.
        let tickets = batches.into_iter().flat_map(PendingTickets::take);
        tickets.map(|ticket| ticket.unwrap_or_else(|| Err(closed(&self.reason())))).collect()
    }

    /// Give up an entity whose outcome is not needed, as [`give_up`](Self::give_up) does.
    pub fn abandon(&self, ticket: &Ticket, message: String) -> Result<()> {
        self.shared()?.forget(ticket);
        self.give_up(ticket.key, Reason { code: ErrorCode::InternalError, message })
    }

    /// Give up an entity of ours, and everything below it that is not announced yet. This never
    /// waits.
    pub fn give_up(&self, key: EntityKey, reason: Reason) -> Result<()> {
        // After the end of the session the entity has failed anyway.
        self.inner()?.commands.send_urgent(Urgent::GiveUp { key, reason });
        Ok(())
    }

    /// Fail an entity: one of ours, whose stream is then reset, or a received one.
    pub async fn fail(&self, key: EntityKey, reason: Reason) -> Result<()> {
        self.send_command(Command::Fail { key, reason }).await
    }

    /// Skip an entity of ours with a reason, so that it counts as SKIPPED and not as failed. Needs
    /// layer 2.
    pub async fn skip(&self, key: EntityKey, reason: Reason) -> Result<()> {
        self.layer2()?;
        self.send_command(Command::Skip { key, reason }).await
    }

    /// Send the yield token of an entity of ours back to the receiver, so that the entity
    /// continues. Return the receiver's reason if the entity does not continue from where it was.
    /// Needs layer 2.
    pub async fn resume(&self, key: EntityKey, token: Bytes) -> Result<Option<Reason>> {
        self.layer2()?;
        self.request(|reply| Command::Resume { key, token, reply }).await
    }

    /// Return the state of one of the peer's claim checks. Needs layer 2.
    ///
    /// # Errors
    ///
    /// CLAIM_NOT_FOUND, also after the claim check has expired.
    pub async fn claim(&self, claim_id: u64) -> Result<ClaimCheck> {
        self.ask_claim(ClaimAsk::Query { claim_id }).await
    }

    /// Redeem, once, the claim check of an entity that the peer has deferred in another session.
    /// Then send the entity again in this session, with the metadata `pipestream.claim`. Needs
    /// layer 2.
    ///
    /// # Errors
    ///
    /// CLAIM_EXPIRED, and CLAIM_NOT_FOUND, also for a claim check of another session or one that
    /// was redeemed before.
    pub async fn redeem(&self, claim_id: u64, session: SessionId) -> Result<ClaimCheck> {
        let check = self.ask_claim(ClaimAsk::Redeem { claim_id, session }).await?;
        Ok(ClaimCheck { session: Some(session), ..check })
    }

    async fn ask_claim(&self, ask: ClaimAsk) -> Result<ClaimCheck> {
        self.layer2()?;
        let response = self.request(|reply| Command::AskClaim { ask, reply }).await?;
        let not_found = || Error::Protocol(core::Violation::UnknownClaim { id: ask.claim_id() }.into());
        response.found.map(|found| ClaimCheck::found(ask.claim_id(), found)).ok_or_else(not_found)
    }

    /// Check that both ends have agreed on layer 2.
    fn layer2(&self) -> Result<()> {
        self.inner()?.link.layer2().map(drop)
    }

    /// Return whether this process or an earlier one has announced an entity with this label.
    /// Without a state folder, return an error.
    pub async fn knows(&self, label: Bytes) -> Result<bool> {
        self.request(|reply| Command::Knows { label, reply }).await
    }

    /// Report that the last child of an entity has been announced.
    pub async fn end_children(&self, parent: EntityKey) -> Result<()> {
        self.request(|reply| Command::EndChildren { parent: Some(parent), reply }).await
    }

    /// Report that the last entity of this end's root scope has been announced.
    pub async fn end_root(&self) -> Result<()> {
        self.request(|reply| Command::EndChildren { parent: None, reply }).await
    }

    /// Ask the peer whether everything up to an entity is terminal, and wait for the answer.
    pub async fn checkpoint(&self, scope: u32, entity: u32, timeout: Option<Duration>) -> Result<CheckpointAnswer> {
        self.request(|reply| Command::Checkpoint { scope, entity, timeout, reply }).await
    }

    /// Wait for an entity of ours to end, and take its outcome.
    pub async fn wait_resolved(&self, key: EntityKey) -> Result<Resolution> {
        let outcome = self.shared()?.resolutions.wait(key).await;
        outcome.map_err(|missing| self.missing(missing, "entity"))
    }

    /// Wait until entities of ours have ended, and take the outcomes of at most `max`, in no
    /// particular order. Return none when the session is over and all are taken.
    pub async fn resolutions(&self, max: usize) -> Result<Vec<(EntityKey, Resolution)>> {
        Ok(self.shared()?.resolutions.wait_any(max).await)
    }

    /// Wait for a scope of ours to be released, and take its digest. An entity's scope is released before the entity
    /// itself ends.
    pub async fn wait_released(&self, scope: ScopeKey) -> Result<Released> {
        let outcome = self.shared()?.releases.wait(scope).await;
        outcome.map_err(|missing| self.missing(missing, "scope"))
    }

    /// Wait for events, and take at most `max`.
    pub async fn events(&self, max: usize) -> Result<EventBatch> {
        let (events, lost) = self.shared()?.events.wait(max).await;
        Ok(EventBatch { events, lost })
    }

    /// Return the peer's next entity; `None` when the session is over. The peer is held back while
    /// entities are not taken.
    pub async fn next_entity(&self) -> Result<Option<IncomingEntity>> {
        Ok(self.next_entities(1).await?.pop())
    }

    /// Wait for entities of the peer, and take at most `max`; none when the session is over. Taking
    /// several at a time costs less than taking one after another.
    pub async fn next_entities(&self, max: usize) -> Result<Vec<IncomingEntity>> {
        let inner = self.inner()?;
        let taken = inner.entities.recv(max).await;
        inner.link.release_permits(taken.len(), taken.iter().filter(|queued| queued.parked).count());
        let entity = |queued| IncomingEntity::new(queued, Arc::clone(&inner.link), None);
        Ok(taken.into_iter().map(entity).collect())
    }

    /// Complete many entities of this session, as [`IncomingEntity::complete`] does. Return an
    /// error for each entity that failed.
    pub async fn complete_many(&self, entities: Vec<IncomingEntity>) -> Result<Vec<(EntityKey, Error)>> {
        let inner = self.inner()?;
        let mut complete = Vec::with_capacity(entities.len());
        let mut failed = Vec::new();
        let (mut whole_count, mut bytes) = (0, 0);
        for mut entity in entities {
            let attempt = entity.attempt();
            let finished = match entity.finish_now() {
                Some(finished) => finished.map(|length| {
                    whole_count += 1;
                    bytes += length;
                }),
                None => entity.finish().await,
            };
            match finished {
                Ok(()) => complete.push(attempt),
                Err(error) => failed.push((attempt.key, error)),
            }
        }
        inner.shared.counters.arrived(whole_count, bytes);
        if complete.is_empty() || inner.commands.send_urgent(Urgent::Complete(complete)) {
            return Ok(failed);
        }
        Err(closed(&self.reason()))
    }

    /// End the session: a client waits until everything is terminal (decision 17), a server does
    /// not wait. Once CONNECTION_CLOSE is sent, return the reason for which the session ended.
    pub async fn close(&self) -> Result<Reason> {
        self.inner()?.commands.send_urgent(Urgent::Close);
        self.closed().await
    }

    /// Leave the session: if its state is on disk, the next process continues it; otherwise it ends
    /// now.
    pub fn leave(&self, reason: Reason) -> Result<()> {
        self.inner()?.commands.send_urgent(Urgent::Leave(Some(reason)));
        Ok(())
    }

    /// End the session now.
    pub fn abort(&self, reason: Reason) -> Result<()> {
        self.inner()?.commands.send_urgent(Urgent::Abort(reason));
        Ok(())
    }

    /// Wait for the end of the session.
    pub async fn closed(&self) -> Result<Reason> {
        let shared = self.shared()?;
        let mut phase = shared.phase.subscribe();
        // `shared` holds the sender, so this cannot fail.
        let _ = phase.wait_for(|phase| matches!(phase, Phase::Closed(_))).await;
        Ok(self.reason())
    }

    async fn send_command(&self, command: Command) -> Result<()> {
        if self.inner()?.commands.send(command).await { Ok(()) } else { Err(closed(&self.reason())) }
    }

    async fn request<T>(&self, command: impl FnOnce(oneshot::Sender<Result<T>>) -> Command) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.send_command(command(reply)).await?;
        self.receive_reply(answer).await
    }

    async fn receive_reply<T>(&self, answer: oneshot::Receiver<Result<T>>) -> Result<T> {
        answer.await.unwrap_or_else(|_| Err(closed(&self.reason())))
    }

    fn missing(&self, missing: Missing, what: &'static str) -> Error {
        match missing {
            Missing::Unknown => Misuse::NoOutcome { what }.into(),
            Missing::Closed => closed(&self.reason()),
        }
    }

    /// Return the reason for an operation that found the session over.
    fn reason(&self) -> Reason {
        let ending = || Reason { code: ErrorCode::InternalError, message: "the session is ending".to_owned() };
        self.shared().ok().and_then(Shared::closed).unwrap_or_else(ending)
    }
}
