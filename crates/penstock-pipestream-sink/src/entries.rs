//! The uncommitted entities of one session, for every kind of sink.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use penstock_io::hex;
use penstock_pipestream::{EntityHeader, EntityKey, ErrorCode, Reason, Status};
use penstock_pipestream_net::DeferTypes;
use penstock_pipestream_net::port::{Attempt, Details, LogEvent, SessionControl, SinkEvent, header_weight};

use crate::counters::SinkCounters;
use crate::format::LOG;
use crate::format::encode::{self, End, PayloadProperties};
use crate::transactions::{ListEnd, Membership, Transaction, is_order};

/// Maximum number of bytes of the headers of a session's open entities, together.
const MAX_HEADER_BYTES: usize = 64 << 20;
/// Maximum number of bytes of FAILED lines that wait, because the disk is full, to be written.
const MAX_WAITING_LINES: usize = 16 << 20;

/// An entity that is not terminal yet. `S` is a verified payload that has no name yet.
///
/// ```text
///  Receiving ──payload right──► Stored ──named──► Placed ──line written──► Delivered ──COMPLETE──► gone
///      └──────────── FAILED: payload removed, line FAILED ──────────────────────┘
/// ```
///
/// A container stays Placed until all its descendants are terminal.
#[derive(Debug)]
struct Entry<S> {
    attempt: Attempt,
    header: Arc<EntityHeader>,
    kind: EntityKind,
    gathered: Option<Status>,
    state: State<S>,
}

#[derive(Debug)]
enum State<S> {
    Receiving,
    Stored(S),
    Placed(PayloadProperties),
    Delivered(PayloadProperties),
    /// The attempt has failed. Its header is kept for the FAILED line, which is written if no other
    /// attempt follows.
    Failed,
}

impl<S: VerifiedPayload> State<S> {
    /// Return the payload's files that have a name.
    fn files(&self) -> Vec<String> {
        match self {
            Self::Receiving | Self::Failed => Vec::new(),
            Self::Stored(stored) => stored.named_files(),
            Self::Placed(placed) | Self::Delivered(placed) => placed.files().collect(),
        }
    }
}

/// A verified payload that waits for its name.
pub(crate) trait VerifiedPayload {
    /// Return the payload's properties, without a name.
    fn unnamed(&self) -> PayloadProperties;

    /// Return the payload's files, relative to the sink, that already have a name.
    fn named_files(&self) -> Vec<String>;
}

/// An entity that is stored and has its line.
#[derive(Debug)]
pub(crate) struct StoredEntity {
    pub(crate) key: EntityKey,
    pub(crate) header: Arc<EntityHeader>,
    pub(crate) placed: PayloadProperties,
}

/// The kind of an entity, which decides how the sink handles it.
#[derive(Debug, Clone, Copy)]
enum EntityKind {
    /// An entity that is COMPLETE once it has its line.
    Whole,
    /// An entity with children, which gets its line only once they are terminal.
    Dehydrated,
    /// An entity that is deferred once it is stored: its line is written with its claim check.
    SetAside,
}

/// The state of a session's list.
///
/// ```text
///  Open ── the session is over ──► Over
///   └──── nothing can change any more, and the last line is durable ────┴──► Listed
///
///  any ── a line is missing ──► Incomplete
/// ```
#[derive(Debug, Clone, Copy)]
enum List {
    /// More lines may follow.
    Open,
    /// The session is over, and the list gets a last line with this code.
    Over(ErrorCode),
    /// The list has its last line.
    Listed,
    /// The list lacks a line and must not be closed.
    Incomplete,
}

/// The entities of one session.
#[derive(Debug)]
pub(crate) struct Entries<S> {
    control: Arc<dyn SessionControl>,
    counters: Arc<SinkCounters>,
    /// Types of the entities that are stored and deferred.
    defer: Option<Arc<DeferTypes>>,
    /// The SHA-256 of the client's certificate, if the client has shown one.
    certificate: Option<[u8; 32]>,
    entries: HashMap<EntityKey, Entry<S>>,
    header_bytes: usize,
    /// Files to remove: their entities failed after the files had a name.
    discarded: Vec<String>,
    /// FAILED lines to be written. They stay here while the disk is full.
    failed_lines: Vec<u8>,
    list: List,
    membership: Membership,
    /// The outcome of the client's root scope, once all its entities have ended and the client has
    /// declared that no more follow.
    root: Option<Status>,
    /// Outcomes of containers that were gathered before the client sent them again, in a session that
    /// continues from an earlier process.
    gathered: HashMap<EntityKey, Status>,
}

/// An entity whose line is in the log but not durable yet.
pub(crate) struct Delivery {
    attempt: Attempt,
    header: Arc<EntityHeader>,
    handover: Handover,
}

/// The report about an entity to its session.
enum Handover {
    /// The entity is delivered, and its line is in the log.
    Lined(PayloadProperties),
    /// The entity is stored and to be deferred: its line is written with its claim check.
    SetAside(PayloadProperties),
    /// The container is delivered without a line: the session will report FAILED, because a part
    /// has failed.
    Unlined,
}

impl Delivery {
    pub(crate) const fn key(&self) -> EntityKey {
        self.attempt.key
    }

    /// Return whether the entity must not be reported unless its line is durable.
    pub(crate) fn has_line(&self) -> bool {
        match self.handover {
            Handover::Lined(_) => true,
            Handover::SetAside(_) | Handover::Unlined => false,
        }
    }

    /// Return the entity's line for the event log, with the name of its stored payload.
    pub(crate) fn event(&self) -> Option<LogEvent> {
        let placed = match &self.handover {
            Handover::Lined(placed) | Handover::SetAside(placed) => placed,
            Handover::Unlined => return None,
        };
        let sha256 = hex::encode(placed.sha256);
        Some(LogEvent::entity(self.key(), &self.header, placed.file.clone(), placed.bytes, &sha256))
    }
}

impl<S> Drop for Entries<S> {
    fn drop(&mut self) {
        SinkCounters::remove(&self.counters.header_bytes, self.header_bytes);
    }
}

impl<S: VerifiedPayload> Entries<S> {
    pub(crate) fn new(
        control: Arc<dyn SessionControl>,
        counters: Arc<SinkCounters>,
        defer: Option<Arc<DeferTypes>>,
        certificate: Option<[u8; 32]>,
    ) -> Self {
        Self {
            control,
            counters,
            defer,
            certificate,
            entries: HashMap::new(),
            header_bytes: 0,
            discarded: Vec::new(),
            failed_lines: Vec::new(),
            list: List::Open,
            membership: Membership::default(),
            root: None,
            gathered: HashMap::new(),
        }
    }

    /// Restore the session's open entities, which an earlier process has stored.
    pub(crate) fn restore(&mut self, membership: Membership, entities: impl Iterator<Item = StoredEntity>) {
        self.membership = membership;
        for StoredEntity { key, header, placed } in entities {
            let weight = header_weight(&header);
            self.header_bytes = self.header_bytes.saturating_add(weight);
            SinkCounters::add(&self.counters.header_bytes, weight);
            // The attempt's number does not matter: an entity with a line is not stored or refused.
            let (attempt, state) = (Attempt::first(key), State::Delivered(placed));
            self.entries.insert(key, Entry { attempt, header, kind: EntityKind::Whole, gathered: None, state });
        }
    }

    /// Apply an event of the driver. Return the entity for which the next commit has work.
    pub(crate) fn apply(&mut self, event: SinkEvent) -> Option<EntityKey> {
        match event {
            SinkEvent::Admitted { attempt, header, dehydrated, redeems } => {
                // An entity that is sent under its claim check is not deferred again, because it
                // would be redeemed and deferred forever.
                let defers = |types: &Arc<DeferTypes>| !redeems && types.matches(&header);
                let kind = match dehydrated {
                    true => EntityKind::Dehydrated,
                    false if self.defer.as_ref().is_some_and(defers) => EntityKind::SetAside,
                    false => EntityKind::Whole,
                };
                self.admitted(attempt, header, kind);
                None
            }
            SinkEvent::AttemptFailed { key } => {
                let entry = self.entries.get_mut(&key)?;
                self.discarded.extend(std::mem::replace(&mut entry.state, State::Failed).files());
                None
            }
            SinkEvent::Gathered { key: Some(key), outcome } => {
                match self.entries.get_mut(&key) {
                    Some(entry) => entry.gathered = Some(outcome),
                    None => drop(self.gathered.insert(key, outcome)),
                }
                Some(key)
            }
            SinkEvent::Gathered { key: None, outcome } => {
                self.root = Some(outcome);
                None
            }
            SinkEvent::Resolved { key, status: Status::Complete, .. } => {
                self.forget(key);
                None
            }
            SinkEvent::Resolved { key, parent_id, status, reason, failures, claim, header } => {
                let end = End { parent_id, status, reason: reason.as_ref(), failures, claim };
                self.failed(key, &end, header);
                None
            }
            SinkEvent::Closed(code) => {
                self.list = match self.list {
                    List::Open | List::Over(_) => List::Over(code),
                    kept @ (List::Listed | List::Incomplete) => kept,
                };
                None
            }
        }
    }

    fn admitted(&mut self, attempt: Attempt, header: Arc<EntityHeader>, kind: EntityKind) {
        let key = attempt.key;
        let mut gathered = self.gathered.remove(&key);
        if let Some(known) = self.entries.get(&key) {
            if !matches!(known.state, State::Failed) {
                // This is another chunk of the same attempt.
                return;
            }
            // The children may have ended before the entity was sent again.
            gathered = self.forget(key).and_then(|known| known.gathered);
        }
        let weight = header_weight(&header);
        self.header_bytes = self.header_bytes.saturating_add(weight);
        SinkCounters::add(&self.counters.header_bytes, weight);
        if let Err(reason) = self.membership.admit(key, &header) {
            self.control.fail(attempt, reason);
        }
        self.entries.insert(key, Entry { attempt, header, kind, gathered, state: State::Receiving });
        if self.header_bytes > MAX_HEADER_BYTES {
            SinkCounters::add(&self.counters.headers_exceeded, 1);
            let message = format!("the headers of open entities exceed the sink's limit of {MAX_HEADER_BYTES} bytes");
            self.control.fail(attempt, Reason { code: ErrorCode::InternalError, message });
        }
    }

    fn forget(&mut self, key: EntityKey) -> Option<Entry<S>> {
        self.gathered.remove(&key);
        let entry = self.entries.remove(&key)?;
        let weight = header_weight(&entry.header);
        self.header_bytes = self.header_bytes.saturating_sub(weight);
        SinkCounters::remove(&self.counters.header_bytes, weight);
        Some(entry)
    }

    /// Handle an entity that the session reports as not complete: only a line remains of it. An
    /// entity that failed only because a part of it failed has itself arrived, and keeps its file;
    /// so does a deferred entity.
    fn failed(&mut self, key: EntityKey, end: &End<'_>, header: Option<Arc<EntityHeader>>) {
        let entry = self.forget(key);
        let arrived = end.status == Status::Deferred
            || entry.as_ref().is_some_and(|entry| entry.gathered.is_some_and(|outcome| outcome != Status::Complete))
                && end.reason.is_some_and(|reason| reason.code == ErrorCode::NoError);
        let payload = entry.as_ref().and_then(|entry| match &entry.state {
            State::Receiving | State::Failed => None,
            State::Stored(stored) => {
                self.discarded.extend(stored.named_files());
                Some(stored.unnamed())
            }
            State::Placed(placed) | State::Delivered(placed) if arrived => Some(placed.clone()),
            State::Placed(placed) | State::Delivered(placed) => {
                self.discarded.extend(placed.files());
                Some(PayloadProperties { file: None, ..placed.clone() })
            }
        });
        let header = entry.map(|entry| entry.header).or(header);
        if self.is_incomplete() {
            return;
        }
        self.failed_lines.extend(encode::failed(key, end, header.as_deref(), payload.as_ref()));
        if self.failed_lines.len() > MAX_WAITING_LINES {
            SinkCounters::add(&self.counters.lines_exceeded, 1);
            self.mark_incomplete(format!("{LOG} cannot be written: {MAX_WAITING_LINES} bytes of FAILED lines wait"));
        }
    }

    /// Return the files of entities that have failed since the last call, relative to the sink.
    pub(crate) fn take_discarded(&mut self) -> Vec<String> {
        std::mem::take(&mut self.discarded)
    }

    /// Record a payload that is complete and verified. Return it if its attempt has failed in the
    /// meantime.
    pub(crate) fn stored(&mut self, attempt: Attempt, stored: S) -> Result<(), S> {
        match self.entries.get_mut(&attempt.key) {
            Some(entry) if entry.attempt == attempt && matches!(entry.state, State::Receiving) => {
                entry.state = State::Stored(stored);
                Ok(())
            }
            Some(_) | None => Err(stored),
        }
    }

    /// Return an entity's payload, if it waits for its name.
    pub(crate) fn waiting(&self, key: EntityKey) -> Option<&S> {
        match &self.entries.get(&key)?.state {
            State::Stored(stored) => Some(stored),
            State::Receiving | State::Placed(_) | State::Delivered(_) | State::Failed => None,
        }
    }

    /// Take an entity's payload to name it; [`Self::placed`] records the name.
    pub(crate) fn take_waiting(&mut self, key: EntityKey) -> Option<S> {
        let entry = self.entries.get_mut(&key)?;
        match std::mem::replace(&mut entry.state, State::Receiving) {
            State::Stored(stored) => Some(stored),
            other @ (State::Receiving | State::Placed(_) | State::Delivered(_) | State::Failed) => {
                entry.state = other;
                None
            }
        }
    }

    /// Record the name of a payload.
    pub(crate) fn placed(&mut self, key: EntityKey, placed: PayloadProperties) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.state = State::Placed(placed);
        }
    }

    /// Notify the session that an entity cannot be stored.
    pub(crate) fn give_up(&self, key: EntityKey, error: &io::Error) {
        self.counters.failed(error);
        let message = format!("the sink cannot store it: {error}");
        self.refuse(key, Reason { code: ErrorCode::InternalError, message });
    }

    /// Append the entity's line to `lines`, if it is due. Return a container that did not succeed
    /// without a line: the session will report FAILED.
    pub(crate) fn deliver(&mut self, key: EntityKey, lines: &mut Vec<u8>) -> Option<Delivery> {
        let entry = self.entries.get_mut(&key)?;
        let State::Placed(placed) = &entry.state else { return None };
        let (attempt, header) = (entry.attempt, Arc::clone(&entry.header));
        let handover = match (entry.kind, entry.gathered) {
            (EntityKind::Dehydrated, None) => return None,
            (EntityKind::Whole, _) | (EntityKind::Dehydrated, Some(Status::Complete)) => {
                lines.extend(encode::complete(key, attempt.failures, &header, placed));
                Handover::Lined(placed.clone())
            }
            (EntityKind::SetAside, _) => Handover::SetAside(placed.clone()),
            (EntityKind::Dehydrated, Some(_)) => Handover::Unlined,
        };
        if let Handover::Lined(placed) | Handover::SetAside(placed) = &handover {
            entry.state = State::Delivered(placed.clone());
        }
        Some(Delivery { attempt, header, handover })
    }

    /// Return the FAILED lines that are not written yet.
    pub(crate) fn failed_lines(&self) -> &[u8] {
        &self.failed_lines
    }

    /// Forget the FAILED lines after they were written.
    pub(crate) fn clear_failed_lines(&mut self) {
        self.failed_lines.clear();
    }

    /// Put back FAILED lines that have to be written again.
    pub(crate) fn requeue_failed_lines(&mut self, lines: Vec<u8>) {
        if !self.is_incomplete() {
            drop(self.failed_lines.splice(0..0, lines));
        }
    }

    /// Notify the session that entities are safely delivered, or stored to be deferred.
    pub(crate) fn report(&self, deliveries: Vec<Delivery>) {
        let mut complete = Vec::with_capacity(deliveries.len());
        for Delivery { attempt, header, handover } in deliveries {
            match handover {
                Handover::Lined(_) | Handover::Unlined => complete.push(attempt),
                Handover::SetAside(placed) => {
                    let message = format!("{} is set aside here", header.content_type);
                    let reason = Reason { code: ErrorCode::NoError, message };
                    let details = Details {
                        bytes: Some(placed.bytes),
                        sha256: Some(hex::encode(placed.sha256)),
                        file: placed.file,
                        ..Details::of(&header, &reason)
                    };
                    self.control.set_aside(attempt, details);
                }
            }
        }
        if !complete.is_empty() {
            self.control.complete(complete);
        }
    }

    /// Return how the list has to end.
    pub(crate) fn ending(&self) -> ListEnd {
        let code = match self.list {
            List::Listed => return ListEnd::Listed,
            List::Incomplete => return ListEnd::Incomplete,
            List::Over(code) => Some(code),
            List::Open => None,
        };
        match (self.membership.transaction(self.certificate), code) {
            (Some(of), Some(ErrorCode::NoError)) => ListEnd::Prepared(of),
            // CONNECTION_CLOSE may be lost, but the driver has reported that everything has
            // arrived.
            (Some(of), _) if self.root == Some(Status::Complete) => ListEnd::Prepared(of),
            (_, Some(code)) => ListEnd::Closed(code),
            (_, None) => ListEnd::Incomplete,
        }
    }

    /// Return whether the session cannot change any more, its list lacks only its last line, and
    /// the list need not wait for a transaction.
    pub(crate) fn can_close_list(&self) -> bool {
        let is_alone = match &self.membership {
            Membership::Unknown | Membership::None => true,
            Membership::Of { .. } => false,
        };
        let is_unfinished = match self.list {
            List::Open | List::Over(_) => true,
            List::Listed | List::Incomplete => false,
        };
        is_alone && self.root.is_some() && is_unfinished
    }

    /// Record that the list has its last line.
    pub(crate) fn mark_listed(&mut self) {
        self.list = List::Listed;
    }

    /// Return the session's transaction, if all entities of the session have arrived and are
    /// complete.
    pub(crate) fn prepared(&self) -> Option<Transaction> {
        self.membership.transaction(self.certificate).filter(|_| self.root == Some(Status::Complete))
    }

    /// Return the SHA-256 of the client's certificate, if the client has shown one.
    pub(crate) const fn certificate(&self) -> Option<[u8; 32]> {
        self.certificate
    }

    /// Return an entity's header, if it is an order whose payload has arrived.
    pub(crate) fn order(&self, key: EntityKey) -> Option<Arc<EntityHeader>> {
        let entry = self.entries.get(&key).filter(|entry| is_order(&entry.header))?;
        matches!(entry.state, State::Stored(_)).then(|| Arc::clone(&entry.header))
    }

    /// Fail the current attempt of an entity.
    pub(crate) fn refuse(&self, key: EntityKey, reason: Reason) {
        let attempt = self.entries.get(&key).map_or(Attempt::first(key), |entry| entry.attempt);
        self.control.fail(attempt, reason);
    }

    /// Mark the list as incomplete, so that it is never read. The session is aborted, and its
    /// client sends again.
    pub(crate) fn mark_incomplete(&mut self, why: String) {
        self.failed_lines.clear();
        if !self.is_incomplete() {
            self.list = List::Incomplete;
            self.control.abort(Reason { code: ErrorCode::InternalError, message: why });
        }
    }

    /// Return whether the list lacks a line.
    pub(crate) const fn is_incomplete(&self) -> bool {
        match self.list {
            List::Incomplete => true,
            List::Open | List::Over(_) | List::Listed => false,
        }
    }

    /// Return whether no line is missing or waits to be written.
    pub(crate) fn has_all_lines(&self) -> bool {
        self.failed_lines.is_empty() && !self.is_incomplete()
    }
}
