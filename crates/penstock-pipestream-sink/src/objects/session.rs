use std::io;
use std::sync::Arc;
use std::time::Instant;

use futures_util::stream::{self, StreamExt as _};
use object_store::ObjectStoreExt as _;
use penstock_io::storage::plain;
use penstock_pipestream::{EntityHeader, EntityKey, ErrorCode, Reason};
use penstock_pipestream_net::port::{Attempt, LogEvent, SinkEvent};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use crate::entries::{Delivery, Entries, VerifiedPayload};
use crate::format::encode::{self, PayloadProperties};
use crate::format::names::id_exhausted;
use crate::objects::list::List;
use crate::objects::shared::Shared;
use crate::objects::transactions;
use crate::transactions::{GIVEN_UP, ListEnd, MAX_ORDER, PrepareOutcome, Transaction, TransactionCommand};

/// Maximum number of messages that one commit takes together.
const BATCH: usize = 4_096;
/// Maximum number of objects of failed entities that are removed concurrently.
const REMOVALS: usize = 16;

/// A message to a session's task.
#[derive(Debug)]
pub(super) enum Message {
    /// Events of the session's driver, in order.
    Events(Vec<SinkEvent>),
    /// A verified payload is in the store.
    Stored { attempt: Attempt, stored: PayloadProperties },
}

impl VerifiedPayload for PayloadProperties {
    fn unnamed(&self) -> PayloadProperties {
        Self { file: None, ..self.clone() }
    }

    fn named_files(&self) -> Vec<String> {
        self.files().collect()
    }
}

/// The task that makes one session's entities durable. It commits everything that arrived while the
/// store was busy together.
pub(super) struct Session {
    shared: Arc<Shared>,
    id: Arc<str>,
    entries: Entries<PayloadProperties>,
    list: List,
    batch_slots: Arc<Semaphore>,
    /// Entities that the next commit handles, in the order in which they arrived.
    due: Vec<EntityKey>,
    /// Objects of entities that have failed.
    unwanted: Vec<String>,
    done: oneshot::Sender<()>,
}

impl Session {
    pub(super) fn new(
        shared: Arc<Shared>,
        id: Arc<str>,
        entries: Entries<PayloadProperties>,
        list: List,
        batch_slots: Arc<Semaphore>,
        done: oneshot::Sender<()>,
    ) -> Self {
        let (due, unwanted) = (Vec::new(), Vec::new());
        Self { shared, id, entries, list, batch_slots, due, unwanted, done }
    }

    /// Put the list's first piece, which is empty. If the store refuses all writes, the session
    /// then fails to open, instead of each entity failing.
    pub(super) async fn open(mut self) -> io::Result<Self> {
        let _permit = self.shared.admit(0).await;
        match self.list.claim(&self.id).await {
            Ok(true) => {}
            Ok(false) => return Err(id_exhausted(&self.id)),
            Err(error) => return Err(io::Error::other(plain(&error))),
        }
        Ok(self)
    }

    /// Return the session's name in the store.
    pub(super) fn name(&self) -> &Arc<str> {
        self.list.session()
    }

    /// Run until the driver and all uploads have dropped their handles, then close the session.
    pub(super) async fn run(mut self, mut messages: mpsc::UnboundedReceiver<Message>) {
        let mut batch = Vec::with_capacity(BATCH);
        while timeout(self.shared.touch, messages.recv_many(&mut batch, BATCH)).await != Ok(0) {
            let mut drivers = 0;
            for message in batch.drain(..) {
                drivers += usize::from(matches!(message, Message::Events(_)));
                self.take(message);
            }
            self.commit().await;
            self.touch().await;
            self.batch_slots.add_permits(drivers);
        }
        self.close().await;
    }

    /// Mark the session as still open by an empty piece, if nothing was written for a long time.
    async fn touch(&mut self) {
        if self.list.untouched() >= self.shared.touch
            && let Err(error) = self.append(Vec::new()).await
        {
            tracing::warn!(session = %self.id, %error, "cannot mark a session as open");
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Events(events) => {
                for event in events {
                    self.due.extend(self.entries.apply(event));
                }
                self.unwanted.extend(self.entries.take_discarded());
            }
            Message::Stored { attempt, stored } => match self.entries.stored(attempt, stored) {
                Ok(()) => self.due.push(attempt.key),
                Err(stored) => self.unwanted.extend(stored.files()),
            },
        }
    }

    /// Write the lines of entities whose payloads are stored, then report COMPLETE.
    async fn commit(&mut self) {
        let started = Instant::now();
        self.remove_unwanted().await;
        let mut lines = self.entries.failed_lines().to_vec();
        let mut deliveries = Vec::new();
        for key in std::mem::take(&mut self.due) {
            if !self.executed(key).await {
                continue;
            }
            if let Some(stored) = self.entries.take_waiting(key) {
                self.entries.placed(key, stored);
            }
            deliveries.extend(self.entries.deliver(key, &mut lines));
        }
        let written = if lines.is_empty() { Ok(()) } else { self.append(lines).await };
        match written {
            Ok(()) => self.entries.clear_failed_lines(),
            Err(error) => {
                self.shared.counters.failed(&error);
                // An entity is not complete without its line. Some deliveries, of containers that
                // failed, need none.
                let (lined, rest): (Vec<_>, Vec<_>) = deliveries.into_iter().partition(Delivery::has_line);
                lined.iter().for_each(|delivery| self.entries.give_up(delivery.key(), &error));
                deliveries = rest;
            }
        }
        if !deliveries.is_empty() {
            self.shared.counters.committed(deliveries.len(), started.elapsed());
        }
        self.report(deliveries).await;
    }

    /// Execute an entity's order, if the entity is one. Return false if the order failed.
    async fn executed(&self, key: EntityKey) -> bool {
        let Some(header) = self.entries.order(key) else { return true };
        let place = &self.shared.place;
        let done = match self.order(key, &header).await {
            Ok(order) => transactions::carry_out(place, &order).await.map_err(|refusal| refusal.reason(&order.of.key)),
            Err(reason) => Err(reason),
        };
        done.map_err(|reason| self.entries.refuse(key, reason)).is_ok()
    }

    /// Read an order from its stored payload.
    async fn order(&self, key: EntityKey, header: &EntityHeader) -> Result<TransactionCommand, Reason> {
        let failed = |code, message| Reason { code, message };
        let stored = self.entries.waiting(key);
        let bytes = stored.map_or(0, |stored| stored.bytes);
        if bytes > MAX_ORDER {
            let message = format!("an order of {bytes} bytes is more than the limit of {MAX_ORDER}");
            return Err(failed(ErrorCode::EntityTooLarge, message));
        }
        let Some(file) = stored.and_then(|stored| stored.file.as_ref()) else {
            return TransactionCommand::parse(header, b"", self.entries.certificate());
        };
        let path = self.shared.place.path(file);
        let read = async { self.shared.place.store().get(&path).await?.bytes().await };
        match read.await {
            Ok(payload) => TransactionCommand::parse(header, &payload, self.entries.certificate()),
            Err(error) => {
                Err(failed(ErrorCode::InternalError, format!("the sink cannot read the order: {}", plain(&error))))
            }
        }
    }

    async fn append(&mut self, lines: Vec<u8>) -> io::Result<()> {
        let _permit = self.shared.admit(lines.len()).await;
        self.list.append(lines).await.map_err(|error| io::Error::other(plain(&error)))
    }

    /// Prepare the session: from then on any server may close its list.
    async fn prepare(&mut self, of: &Transaction, name: &str) -> object_store::Result<PrepareOutcome> {
        self.list.seal().await?;
        transactions::prepare(&self.shared.place, of, name).await
    }

    async fn report(&self, deliveries: Vec<Delivery>) {
        if let Some(events) = &self.shared.events {
            let lines: Vec<LogEvent> = deliveries.iter().filter_map(Delivery::event).collect();
            if !lines.is_empty() {
                events.write(&self.id, lines).await;
            }
        }
        self.entries.report(deliveries);
    }

    async fn remove_unwanted(&mut self) {
        let shared = &self.shared;
        let removals = std::mem::take(&mut self.unwanted).into_iter().map(|file| async move {
            let removed = shared.place.store().delete(&shared.place.path(&file)).await;
            if let Err(error) = removed {
                tracing::warn!(file, error = plain(&error), "cannot remove the object of a failed entity");
            }
        });
        stream::iter(removals).buffer_unordered(REMOVALS).collect::<()>().await;
    }

    /// End a session whose driver and uploads are gone: write its whole list, then notify the
    /// driver.
    async fn close(mut self) {
        // Retry the FAILED lines that the store refused; without them the list must stay open.
        self.commit().await;
        if !self.entries.failed_lines().is_empty() {
            tracing::error!(session = %self.id, "cannot close the session's list: lines are missing");
            return;
        }
        let name = Arc::clone(self.list.session());
        let ended = match self.entries.ending() {
            ListEnd::Incomplete | ListEnd::Listed => Ok(()),
            ListEnd::Closed(code) => self.list.close(encode::closed(code)).await,
            ListEnd::Prepared(of) => match self.prepare(&of, &name).await {
                Ok(PrepareOutcome::Prepared) => Ok(()),
                Ok(PrepareOutcome::TooLate) => self.list.close(encode::closed(GIVEN_UP)).await,
                Err(error) => Err(error),
            },
        };
        match ended {
            Ok(()) => {
                // The receiver may have stopped waiting.
                let _ = self.done.send(());
            }
            Err(error) => tracing::error!(session = %self.id, error = plain(&error), "cannot close the session's list"),
        }
    }
}
