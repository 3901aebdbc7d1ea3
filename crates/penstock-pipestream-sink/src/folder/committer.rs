use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use penstock_io::DriverError as _;
use penstock_pipestream::{EntityKey, Reason};
use penstock_pipestream_net::EventLog;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::counters::SinkCounters;
use crate::entries::Delivery;
use crate::folder::disk::Disk;
use crate::folder::session_folder::SessionFolder;
use crate::folder::shared::{Message, Shared};
use crate::folder::transactions::TransactionLog;
use crate::format::{LOG, encode};
use crate::transactions::{GIVEN_UP, ListEnd, PrepareOutcome, Transaction, TransactionAction, TransactionCommand};
use crate::{Error, Result};

/// Maximum number of messages in one commit.
const BATCH: usize = 4_096;

/// The thread that makes entities durable, for all sessions of a sink.
pub(super) struct Committer {
    disk: Disk,
    records: TransactionLog,
    batch_slots: Arc<Semaphore>,
    events: Option<EventLog>,
    folders: HashMap<u64, SessionFolder>,
    /// Entities for the next commit, in the order of arrival.
    due: Vec<(u64, EntityKey)>,
    /// Sessions that may have FAILED lines to write.
    changed: HashSet<u64>,
    /// Sessions that cannot change any more.
    closable: Vec<u64>,
    ended: Vec<u64>,
    /// The callers that wait for the next commit, with their sessions.
    flushes: Vec<(u64, oneshot::Sender<bool>)>,
    counters: Arc<SinkCounters>,
}

impl Committer {
    pub(super) fn new(shared: &Shared) -> Result<Self> {
        let disk = Disk::new(&shared.dir, shared.faults.clone(), Arc::clone(&shared.counters))
            .map_err(|error| Error::file("cannot open the sink's folder", &shared.dir, error))?;
        Ok(Self {
            disk,
            records: TransactionLog::new(&shared.dir, shared.faults.clone()),
            batch_slots: Arc::clone(&shared.batch_slots),
            events: shared.events.clone(),
            folders: HashMap::new(),
            due: Vec::new(),
            changed: HashSet::new(),
            closable: Vec::new(),
            ended: Vec::new(),
            flushes: Vec::new(),
            counters: Arc::clone(&shared.counters),
        })
    }

    /// Run until the sink and all sessions are dropped.
    pub(super) fn run(mut self, mut messages: mpsc::UnboundedReceiver<Message>) {
        let mut batch = Vec::with_capacity(BATCH);
        while messages.blocking_recv_many(&mut batch, BATCH) > 0 {
            let mut drivers = 0;
            for message in batch.drain(..) {
                drivers += usize::from(matches!(message, Message::Events { .. }));
                self.take(message);
            }
            self.commit();
            for (session, done) in self.flushes.drain(..) {
                let durable = self.folders.get(&session).is_some_and(|folder| folder.entries.has_all_lines());
                // The caller may have stopped waiting.
                let _ = done.send(durable);
            }
            self.batch_slots.add_permits(drivers);
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Opened { session, folder } => {
                self.folders.insert(session, *folder);
            }
            Message::Events { session, events } => {
                let Some(folder) = self.folders.get_mut(&session) else { return };
                self.due.extend(events.into_iter().filter_map(|event| folder.apply(event)).map(|key| (session, key)));
                self.changed.insert(session);
            }
            Message::Stored { session, attempt, stored } => {
                if self.folders.get_mut(&session).is_some_and(|folder| folder.entries.stored(attempt, stored).is_ok()) {
                    self.due.push((session, attempt.key));
                }
            }
            Message::CloseList { session } => self.closable.push(session),
            Message::Ended { session } => self.ended.push(session),
            Message::Flush { session, done } => {
                // Lines that could not be written before are retried.
                self.changed.insert(session);
                self.flushes.push((session, done));
            }
        }
    }

    fn commit(&mut self) {
        let due = std::mem::take(&mut self.due);
        let is_order = |(session, key): &(u64, EntityKey)| {
            self.folders.get(session).is_some_and(|folder| folder.entries.order(*key).is_some())
        };
        let (orders, due) = due.into_iter().partition(is_order);
        self.write(due);
        for session in std::mem::take(&mut self.closable) {
            self.close_list(session);
        }
        for session in std::mem::take(&mut self.ended) {
            self.end(session);
        }
        // Execute orders last, because they concern sessions that have ended by now.
        let executed: Vec<_> =
            Vec::into_iter(orders).filter(|(session, key)| self.execute_order(*session, *key)).collect();
        if !executed.is_empty() {
            self.write(executed);
        }
    }

    /// Make payloads durable, then name them, then make their lines durable, then report COMPLETE.
    fn write(&mut self, due: Vec<(u64, EntityKey)>) {
        let begun = Instant::now();
        let due = self.make_payloads_durable(due);
        let mut by_session: HashMap<u64, Vec<EntityKey>> = HashMap::new();
        for session in self.changed.drain() {
            by_session.entry(session).or_default();
        }
        for (session, key) in due {
            by_session.entry(session).or_default().push(key);
        }
        let mut written = Vec::new();
        for (session, keys) in by_session {
            if let Some(folder) = self.folders.get_mut(&session) {
                let deliveries = write_session(folder, keys, &self.disk);
                written.push((session, deliveries));
            }
        }
        let entities = self.make_lines_durable(written);
        if entities > 0 {
            self.counters.committed(entities, begun.elapsed());
        }
    }

    /// Execute an order. If it fails, refuse its entity and return false.
    fn execute_order(&mut self, session: u64, key: EntityKey) -> bool {
        let Some(order) = self.folders.get(&session).and_then(|folder| folder.order(key)) else { return false };
        let done = order.and_then(|order| self.carry_out(&order));
        match (done, self.folders.get(&session)) {
            (Ok(()), _) => true,
            (Err(reason), Some(folder)) => {
                folder.entries.refuse(key, reason);
                false
            }
            (Err(_), None) => false,
        }
    }

    fn carry_out(&mut self, order: &TransactionCommand) -> std::result::Result<(), Reason> {
        let TransactionCommand { of, act } = order;
        let named = order.sessions();
        // All entities of these sessions are stored, so the order need not wait until their clients
        // have disconnected.
        let is_prepared = |folder: &SessionFolder| {
            folder.entries.prepared().as_ref() == Some(of)
                && named.is_none_or(|named| named.iter().any(|session| **session == *folder.id))
        };
        let checked = order.check();
        let prepared: Vec<u64> = match &checked {
            Ok(()) => {
                self.folders.iter().filter(|(_, folder)| is_prepared(folder)).map(|(session, _)| *session).collect()
            }
            Err(_) => Vec::new(),
        };
        for session in prepared {
            self.end(session);
        }
        let done = checked.and_then(|()| match act {
            TransactionAction::Commit { sessions, exclusive } => self.records.commit(of, sessions, *exclusive),
            TransactionAction::Abort(sessions) => self.records.abort(of, sessions.as_deref()),
        });
        done.map_err(|refusal| refusal.reason(&of.key))
    }

    /// Make the payloads of entities durable. Return the entities that can be named.
    fn make_payloads_durable(&mut self, due: Vec<(u64, EntityKey)>) -> Vec<(u64, EntityKey)> {
        let unsynced = |(session, key): &(u64, EntityKey)| self.folders.get(session)?.unsynced(*key);
        let (paths, waiting): (Vec<PathBuf>, Vec<_>) =
            due.iter().filter_map(|entry| Some((unsynced(entry)?, *entry))).unzip();
        let mut failed = HashSet::new();
        for (result, (session, key)) in self.disk.sync(&paths).into_iter().zip(waiting) {
            if let Err(error) = result {
                self.give_up(session, key, &error);
                failed.insert((session, key));
            }
        }
        due.into_iter().filter(|entry| !failed.contains(entry)).collect()
    }

    /// Make the lines of entities durable, and report these. Return their number.
    fn make_lines_durable(&mut self, written: Vec<(u64, Vec<Delivery>)>) -> usize {
        let mut entities = 0;
        let mut paths = Vec::new();
        let mut ranges = Vec::new();
        for (session, _) in &written {
            let start = paths.len();
            if let Some(folder) = self.folders.get_mut(session) {
                paths.extend(folder.take_touched());
            }
            ranges.push(start..paths.len());
        }
        let results = self.disk.sync(&paths);
        for ((session, deliveries), range) in written.into_iter().zip(ranges) {
            let failure = results.get(range).unwrap_or_default().iter().find_map(|result| result.as_ref().err());
            match failure {
                None => {
                    entities += deliveries.len();
                    self.report(session, deliveries);
                }
                Some(error) => {
                    for delivery in deliveries {
                        self.give_up(session, delivery.key(), error);
                    }
                    tracing::error!(session, %error, "cannot sync a session's list: the session is aborted");
                    // Some lines may be lost, and a later sync would succeed without reporting it.
                    if let Some(folder) = self.folders.get_mut(&session) {
                        folder.entries.mark_incomplete(format!("{LOG} cannot be made durable: {error}"));
                    }
                }
            }
        }
        entities
    }

    fn report(&self, session: u64, deliveries: Vec<Delivery>) {
        let Some(folder) = self.folders.get(&session) else { return };
        if let Some(events) = &self.events {
            let lines: Vec<_> = deliveries.iter().filter_map(Delivery::event).collect();
            if !lines.is_empty() {
                events.write_blocking(&folder.id, lines);
            }
        }
        folder.entries.report(deliveries);
    }

    fn give_up(&self, session: u64, key: EntityKey, error: &io::Error) {
        if let Some(folder) = self.folders.get(&session) {
            folder.entries.give_up(key, error);
        }
    }

    /// Write the last line of a session that cannot change any more, if that is possible now.
    fn close_list(&mut self, session: u64) {
        let Some(folder) = self.folders.get_mut(&session).filter(|folder| folder.entries.can_close_list()) else {
            return;
        };
        let closed = folder.close_list(&self.disk);
        let synced = closed.and_then(|before| match self.disk.sync(&folder.take_touched()).into_iter().collect() {
            Ok::<(), _>(()) => Ok(()),
            Err(error) => {
                folder.reopen_list(before);
                Err(error)
            }
        });
        match synced {
            Ok(()) => folder.entries.mark_listed(),
            // A full disk may have space when the session ends.
            Err(error) => {
                tracing::warn!(session = %folder.id, %error, "cannot close the session's list yet: retried when the session ends");
            }
        }
    }

    /// End a session for which no task works any more, and write its last line. Dropping the folder
    /// unlocks it, and tells the driver if there is no last line.
    fn end(&mut self, session: u64) {
        let Some(mut folder) = self.folders.remove(&session) else { return };
        if folder.entries.is_incomplete() {
            folder.finish();
            return;
        }
        // First write the FAILED lines that a full disk refused; without them the list must stay
        // open.
        let ended = folder.append(&[], &self.disk).and_then(|()| match folder.entries.ending() {
            ListEnd::Incomplete | ListEnd::Listed => Ok(()),
            ListEnd::Closed(code) => folder.append(&encode::closed(code), &self.disk),
            ListEnd::Prepared(of) => self.prepare(&mut folder, &of),
        });
        let synced = ended.and_then(|()| self.disk.sync(&folder.take_touched()).into_iter().collect());
        match synced {
            Ok::<(), _>(()) => folder.finish(),
            Err(error) => tracing::error!(session = %folder.id, %error, "cannot close the session's list"),
        }
    }

    /// Prepare a session. Its list gets no last line, because it must not be read before its
    /// transaction is committed.
    fn prepare(&mut self, folder: &mut SessionFolder, of: &Transaction) -> io::Result<()> {
        self.disk.sync(&folder.take_touched()).into_iter().collect::<io::Result<()>>()?;
        match self.records.prepare(of, &folder.name)? {
            PrepareOutcome::Prepared => Ok(()),
            PrepareOutcome::TooLate => folder.append(&encode::closed(GIVEN_UP), &self.disk),
        }
    }
}

/// Name the payloads and write the lines of one session. Return the entities to report once that is
/// durable.
fn write_session(folder: &mut SessionFolder, keys: Vec<EntityKey>, disk: &Disk) -> Vec<Delivery> {
    if folder.entries.is_incomplete() {
        // The session is being aborted, and its list is never read, so no other entity of it may
        // become COMPLETE.
        return Vec::new();
    }
    let mut lines = Vec::new();
    let mut deliveries = Vec::new();
    for key in keys {
        match folder.place(key, disk) {
            Ok(()) => deliveries.extend(folder.entries.deliver(key, &mut lines)),
            Err(error) => folder.entries.give_up(key, &error),
        }
    }
    match folder.append(&lines, disk) {
        Ok(()) => deliveries,
        Err(error) => {
            // An entity with a line is not complete without it; the others have no line here.
            let (lined, rest): (Vec<_>, Vec<_>) = deliveries.into_iter().partition(Delivery::has_line);
            lined.iter().for_each(|delivery| folder.entries.give_up(delivery.key(), &error));
            rest
        }
    }
}
