//! A session as its user sees it, from any thread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use penstock_pipestream::{Agreement, EntityKey, ErrorCode, Event, Reason, Role, ScopeKey, Ticket};
use tokio::sync::{Mutex, mpsc, oneshot};

use super::command::{
    CheckpointAnswer, Command, Commands, Delivery, EntityDraft, SendRequest, Urgent, abandon, closed,
};
use super::incoming::IncomingEntity;
use super::outcomes::Missing;
use super::payload::Payload;
use super::shared::{Phase, Released, Resolution, Shared};
use crate::runtime::PerProcess;
use crate::{Error, Result};

/// A session. Clones are the same session; when the last one is dropped before the end, it is aborted.
///
/// Futures may be dropped at any time: an entity whose ticket nobody waits for is given up. Outcomes of entities and scopes
/// of ours are kept, about 100 octets each, until they are taken.
#[derive(Debug, Clone)]
pub struct SessionHandle(Arc<PerProcess<Inner>>);

/// What has happened in a session.
#[derive(Debug, Clone, PartialEq)]
pub struct EventBatch {
    /// In order; empty when the session is over.
    pub events: Vec<Event>,
    /// How many before these were dropped, because nobody took them.
    pub lost: u64,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    commands: Commands,
    entities: Mutex<mpsc::Receiver<IncomingEntity>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let message = "the session was dropped without being closed".to_owned();
        // After the end nobody listens any more.
        self.commands.urge(Urgent::Abort(Reason { code: ErrorCode::InternalError, message }));
    }
}

impl SessionHandle {
    pub(crate) fn new(shared: Arc<Shared>, commands: Commands, entities: mpsc::Receiver<IncomingEntity>) -> Self {
        Self(Arc::new(PerProcess::new(Inner { shared, commands, entities: Mutex::new(entities) })))
    }

    fn inner(&self) -> Result<&Inner> {
        self.0.get()
    }

    fn shared(&self) -> Result<&Shared> {
        Ok(&self.inner()?.shared)
    }

    /// The session's ID: 32 hex digits, the same at both ends (decision 18).
    pub fn id(&self) -> Result<Arc<str>> {
        Ok(Arc::clone(&self.shared()?.id))
    }

    /// Which end this is.
    pub fn role(&self) -> Result<Role> {
        Ok(self.shared()?.role)
    }

    /// The peer's address when the connection was made.
    pub fn peer_address(&self) -> Result<SocketAddr> {
        Ok(self.shared()?.peer)
    }

    /// What both ends have agreed on. An error before they have, and after the end.
    pub fn agreement(&self) -> Result<Agreement> {
        match &*self.shared()?.phase.borrow() {
            Phase::Open(agreement) => Ok(*agreement),
            Phase::Negotiating => Err(Error::Misuse("the capabilities are not agreed yet".into())),
            Phase::Ending(reason) | Phase::Closed(reason) => Err(closed(reason)),
        }
    }

    /// Why the session is over, if it is.
    pub fn is_closed(&self) -> Result<Option<Reason>> {
        Ok(self.shared()?.closed())
    }

    /// Announces an entity and sends it. Waits while the window is full or too much waits to be sent, and so holds the
    /// caller back. Ok: it is announced, and if it is to have children, its header is on its way before theirs.
    pub async fn send(&self, draft: EntityDraft, payload: Payload) -> Result<Ticket> {
        self.begin(draft, Delivery::Payload(payload)).await?.ticket().await
    }

    /// [`send`](Self::send) for many, in order, with one crossing of threads for all that the window allows.
    pub async fn send_many(&self, items: Vec<(EntityDraft, Payload)>) -> Vec<Result<Ticket>> {
        let mut announcing = Vec::with_capacity(items.len());
        for (draft, payload) in items {
            announcing.push(self.begin(draft, Delivery::Payload(payload)).await);
        }
        for each in announcing.iter_mut().flatten() {
            each.ready().await;
        }
        // No wait in between: whoever gives up waiting gives all of them up, or none.
        announcing.into_iter().map(|each| each.and_then(Announcing::take)).collect()
    }

    /// Announces an entity that cannot be delivered, so that it is counted and its reason is known.
    pub async fn announce_failed(&self, draft: EntityDraft, reason: Reason) -> Result<Ticket> {
        self.begin(draft, Delivery::Failed(reason)).await?.ticket().await
    }

    async fn begin(&self, draft: EntityDraft, delivery: Delivery) -> Result<Announcing> {
        draft.check(&delivery)?;
        let (reply, answer) = oneshot::channel();
        let announcing = Announcing { handle: self.clone(), answer: Some(answer), ticket: None };
        self.tell(Command::Send(Box::new(SendRequest { draft, delivery, reply }))).await?;
        Ok(announcing)
    }

    /// [`give_up`](Self::give_up) for one that nobody will ask for.
    pub fn abandon(&self, ticket: &Ticket, message: String) -> Result<()> {
        self.shared()?.forget(ticket);
        self.give_up(ticket.key, Reason { code: ErrorCode::InternalError, message })
    }

    /// Gives up an entity of ours, and with it what would still have come below it. Never waits.
    pub fn give_up(&self, key: EntityKey, reason: Reason) -> Result<()> {
        // After the end of the session it has failed anyway.
        self.inner()?.commands.urge(Urgent::GiveUp { key, reason });
        Ok(())
    }

    /// Fails an entity: one of ours, whose stream is then reset, or a received one.
    pub async fn fail(&self, key: EntityKey, reason: Reason) -> Result<()> {
        self.tell(Command::Fail { key, reason }).await
    }

    /// The last child of an entity has been announced.
    pub async fn end_children(&self, parent: EntityKey) -> Result<()> {
        self.ask(|reply| Command::EndChildren { parent: Some(parent), reply }).await
    }

    /// The last entity of our root scope has been announced.
    pub async fn end_root(&self) -> Result<()> {
        self.ask(|reply| Command::EndChildren { parent: None, reply }).await
    }

    /// Asks the peer whether everything up to an entity is terminal, and waits for the answer.
    pub async fn checkpoint(&self, scope: u32, entity: u32, timeout: Option<Duration>) -> Result<CheckpointAnswer> {
        self.ask(|reply| Command::Checkpoint { scope, entity, timeout, reply }).await
    }

    /// Waits for an entity of ours to end, and takes its outcome.
    pub async fn wait_resolved(&self, key: EntityKey) -> Result<Resolution> {
        let outcome = self.shared()?.resolutions.wait(key).await;
        outcome.map_err(|missing| self.missing(missing, "entity"))
    }

    /// Waits until entities of ours have ended and takes the outcomes of at most `max`. Empty: the session is over and
    /// all are taken.
    pub async fn resolutions(&self, max: usize) -> Result<Vec<(EntityKey, Resolution)>> {
        Ok(self.shared()?.resolutions.wait_any(max).await)
    }

    /// Waits for a scope of ours to be released, and takes its digest. An entity's scope is released before the entity
    /// itself ends.
    pub async fn wait_released(&self, scope: ScopeKey) -> Result<Released> {
        let outcome = self.shared()?.releases.wait(scope).await;
        outcome.map_err(|missing| self.missing(missing, "scope"))
    }

    /// Waits for events and takes at most `max`.
    pub async fn events(&self, max: usize) -> Result<EventBatch> {
        let (events, lost) = self.shared()?.events.wait(max).await;
        Ok(EventBatch { events, lost })
    }

    /// The peer's next entity; `None` when the session is over. As long as nobody takes them, the peer is held back.
    pub async fn next_entity(&self) -> Result<Option<IncomingEntity>> {
        let mut entity = self.inner()?.entities.lock().await.recv().await;
        if let Some(entity) = &mut entity {
            entity.release_place();
        }
        Ok(entity)
    }

    /// Ends the session: a client waits until everything is terminal (decision 17), a server does not wait. Returns
    /// once CONNECTION_CLOSE is out, with the reason that the session ended for.
    pub async fn close(&self) -> Result<Reason> {
        self.inner()?.commands.urge(Urgent::Close);
        self.closed().await
    }

    /// Ends the session now.
    pub fn abort(&self, reason: Reason) -> Result<()> {
        self.inner()?.commands.urge(Urgent::Abort(reason));
        Ok(())
    }

    /// Waits for the end of the session.
    pub async fn closed(&self) -> Result<Reason> {
        let shared = self.shared()?;
        let mut phase = shared.phase.subscribe();
        // The sender is in `shared`, so it is there.
        let _ = phase.wait_for(|phase| matches!(phase, Phase::Closed(_))).await;
        Ok(self.reason())
    }

    async fn tell(&self, command: Command) -> Result<()> {
        if self.inner()?.commands.tell(command).await { Ok(()) } else { Err(closed(&self.reason())) }
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<Result<T>>) -> Command) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.tell(command(reply)).await?;
        self.answered(answer).await
    }

    async fn answered<T>(&self, answer: oneshot::Receiver<Result<T>>) -> Result<T> {
        answer.await.unwrap_or_else(|_| Err(closed(&self.reason())))
    }

    fn missing(&self, missing: Missing, what: &str) -> Error {
        match missing {
            Missing::Unknown => Error::Misuse(format!("no such {what} of ours, or its outcome was taken already")),
            Missing::Closed => closed(&self.reason()),
        }
    }

    /// Why the session is over, for those who find it so.
    fn reason(&self) -> Reason {
        let ending = || Reason { code: ErrorCode::InternalError, message: "the session is ending".to_owned() };
        self.shared().ok().and_then(Shared::closed).unwrap_or_else(ending)
    }
}

/// An entity that is being announced. Whoever does not wait for its ticket leaves it to nobody: if it is announced
/// nevertheless, it is given up.
struct Announcing {
    handle: SessionHandle,
    answer: Option<oneshot::Receiver<Result<Ticket>>>,
    ticket: Option<Result<Ticket>>,
}

impl Announcing {
    async fn ticket(mut self) -> Result<Ticket> {
        self.ready().await;
        self.take()
    }

    /// Waits for the ticket and keeps it.
    async fn ready(&mut self) {
        if let Some(answer) = &mut self.answer {
            let ticket = answer.await.unwrap_or_else(|_| Err(closed(&self.handle.reason())));
            self.answer = None;
            self.ticket = Some(ticket);
        }
    }

    fn take(mut self) -> Result<Ticket> {
        self.ticket.take().unwrap_or_else(|| Err(closed(&self.handle.reason())))
    }
}

impl Drop for Announcing {
    fn drop(&mut self) {
        let unread = self.answer.take().and_then(|mut answer| {
            // From here on the driver sees that nobody waits, and gives the entity up itself.
            answer.close();
            answer.try_recv().ok()
        });
        if let Some(Ok(ticket)) = unread.or_else(|| self.ticket.take())
            && let Ok(inner) = self.handle.inner()
        {
            abandon(&ticket, &inner.shared, &inner.commands);
        }
    }
}
