//! What is not committed yet of one session's entities, whatever they are stored in.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use penstock_pipestream::{EntityHeader, EntityKey, ErrorCode, Reason, Status};

use super::super::command::{Commands, Urgent};
use super::SinkEvent;
use super::counters::SinkCounters;
use super::record::{self, Placed};
use super::transaction::{Ending, Membership, is_order};

/// The list of a session's entities.
pub(crate) const LOG: &str = "entities.jsonl";

/// Headers of entities without a terminal status, for a whole session.
const MAX_HEADER_OCTETS: usize = 64 << 20;
/// FAILED lines that a full disk keeps waiting.
const MAX_WAITING_LINES: usize = 16 << 20;

/// An entity that is not terminal yet. `S`: a verified payload that has no name yet.
///
/// ```text
///  Receiving ──payload right──► Stored ──named──► Placed ──line written──► Delivered ──COMPLETE──► gone
///      └──────────── FAILED: payload removed, line FAILED ──────────────────────┘
/// ```
///
/// A container stays Placed until it has been gathered.
#[derive(Debug)]
struct Entry<S> {
    header: Arc<EntityHeader>,
    dehydrated: bool,
    gathered: Option<Status>,
    state: State<S>,
}

#[derive(Debug)]
enum State<S> {
    Receiving,
    Stored(S),
    Placed(Placed),
    Delivered(Placed),
}

/// What the sink does with a verified payload that waits for its name.
pub(super) trait Verified {
    /// Its length and digest, without a name.
    fn unnamed(&self) -> Placed;
}

/// The entities of one session.
#[derive(Debug)]
pub(super) struct Entries<S> {
    commands: Commands,
    counters: Arc<SinkCounters>,
    entries: HashMap<EntityKey, Entry<S>>,
    header_octets: usize,
    /// Files of entities that failed after they were placed.
    discarded: Vec<String>,
    /// FAILED lines to be written. They stay here while the disk is full.
    failed_lines: Vec<u8>,
    /// The log lacks a line and must not be closed.
    incomplete: bool,
    closed: Option<ErrorCode>,
    membership: Membership,
    /// How all entities of the client's root scope ended, once they have and the client has said that there are no more.
    root: Option<Status>,
}

/// An entity whose line is in the log, and not there for good yet.
pub(super) struct Delivery {
    pub(super) key: EntityKey,
    pub(super) header: Arc<EntityHeader>,
    pub(super) placed: Option<Placed>,
}

impl<S> Drop for Entries<S> {
    fn drop(&mut self) {
        SinkCounters::remove(&self.counters.header_octets, self.header_octets);
    }
}

impl<S: Verified> Entries<S> {
    pub(super) fn new(commands: Commands, counters: Arc<SinkCounters>) -> Self {
        Self {
            commands,
            counters,
            entries: HashMap::new(),
            header_octets: 0,
            discarded: Vec::new(),
            failed_lines: Vec::new(),
            incomplete: false,
            closed: None,
            membership: Membership::default(),
            root: None,
        }
    }

    /// Takes what the driver has seen. Gives the entities that have something to be committed now.
    pub(super) fn apply(&mut self, event: SinkEvent) -> Option<EntityKey> {
        match event {
            SinkEvent::Admitted { key, header, dehydrated } => {
                self.admitted(key, header, dehydrated);
                None
            }
            SinkEvent::Gathered { key: Some(key), outcome } => {
                self.entries.get_mut(&key)?.gathered = Some(outcome);
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
            SinkEvent::Resolved { key, parent_id, status, reason, header } => {
                self.failed(key, parent_id, status, reason.as_ref(), header);
                None
            }
            SinkEvent::Closed(code) => {
                self.closed = Some(code);
                None
            }
        }
    }

    fn admitted(&mut self, key: EntityKey, header: Arc<EntityHeader>, dehydrated: bool) {
        if self.entries.contains_key(&key) {
            // Another chunk of it.
            return;
        }
        let weight = weight(&header);
        self.header_octets = self.header_octets.saturating_add(weight);
        SinkCounters::add(&self.counters.header_octets, weight);
        if let Err(reason) = self.membership.admit(key, &header) {
            self.commands.urge(Urgent::Fail { key, reason });
        }
        self.entries.insert(key, Entry { header, dehydrated, gathered: None, state: State::Receiving });
        if self.header_octets > MAX_HEADER_OCTETS {
            SinkCounters::add(&self.counters.headers_exceeded, 1);
            let message = format!("the headers of open entities exceed the sink's limit of {MAX_HEADER_OCTETS} octets");
            self.commands.urge(Urgent::Fail { key, reason: Reason { code: ErrorCode::InternalError, message } });
        }
    }

    fn forget(&mut self, key: EntityKey) -> Option<Entry<S>> {
        let entry = self.entries.remove(&key)?;
        let weight = weight(&entry.header);
        self.header_octets = self.header_octets.saturating_sub(weight);
        SinkCounters::remove(&self.counters.header_octets, weight);
        Some(entry)
    }

    /// The session says that it failed: nothing of it stays but a line. What failed only because a part of it did has
    /// arrived itself, and keeps its file.
    fn failed(
        &mut self,
        key: EntityKey,
        parent_id: u32,
        status: Status,
        reason: Option<&Reason>,
        header: Option<Arc<EntityHeader>>,
    ) {
        let entry = self.forget(key);
        let arrived =
            entry.as_ref().is_some_and(|entry| entry.gathered.is_some_and(|outcome| outcome != Status::Complete))
                && reason.is_some_and(|reason| reason.code == ErrorCode::NoError);
        let payload = entry.as_ref().and_then(|entry| match &entry.state {
            State::Receiving => None,
            State::Stored(stored) => Some(stored.unnamed()),
            State::Placed(placed) | State::Delivered(placed) if arrived => Some(placed.clone()),
            State::Placed(placed) | State::Delivered(placed) => {
                self.discarded.extend(placed.file.clone());
                Some(Placed { file: None, ..*placed })
            }
        });
        let header = entry.map(|entry| entry.header).or(header);
        self.failed_lines.extend(record::failed(key, parent_id, header.as_deref(), payload.as_ref(), status, reason));
        if self.failed_lines.len() > MAX_WAITING_LINES && !self.incomplete {
            self.incomplete = true;
            SinkCounters::add(&self.counters.lines_exceeded, 1);
            let message = format!("{LOG} cannot be written");
            self.commands.urge(Urgent::Abort(Reason { code: ErrorCode::InternalError, message }));
        }
        if self.incomplete {
            self.failed_lines.clear();
        }
    }

    /// The files of entities that have failed since this was last asked, below the sink.
    pub(super) fn take_discarded(&mut self) -> Vec<String> {
        std::mem::take(&mut self.discarded)
    }

    /// A payload is whole and right. Hands it back where the entity has failed meanwhile.
    pub(super) fn stored(&mut self, key: EntityKey, stored: S) -> Result<(), S> {
        match self.entries.get_mut(&key) {
            Some(entry) if matches!(entry.state, State::Receiving) => {
                entry.state = State::Stored(stored);
                Ok(())
            }
            Some(_) | None => Err(stored),
        }
    }

    /// The payload of an entity that waits for its name.
    pub(super) fn waiting(&self, key: EntityKey) -> Option<&S> {
        match &self.entries.get(&key)?.state {
            State::Stored(stored) => Some(stored),
            State::Receiving | State::Placed(_) | State::Delivered(_) => None,
        }
    }

    /// Takes the payload of an entity to give it its name; [`Self::placed`] says which.
    pub(super) fn take_waiting(&mut self, key: EntityKey) -> Option<S> {
        let entry = self.entries.get_mut(&key)?;
        match std::mem::replace(&mut entry.state, State::Receiving) {
            State::Stored(stored) => Some(stored),
            other @ (State::Receiving | State::Placed(_) | State::Delivered(_)) => {
                entry.state = other;
                None
            }
        }
    }

    /// A payload has its name.
    pub(super) fn placed(&mut self, key: EntityKey, placed: Placed) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.state = State::Placed(placed);
        }
    }

    /// Tells the session that an entity cannot be stored.
    pub(super) fn give_up(&self, key: EntityKey, error: &io::Error) {
        self.counters.failed(error);
        let message = format!("the sink cannot store it: {error}");
        self.commands.urge(Urgent::Fail { key, reason: Reason { code: ErrorCode::InternalError, message } });
    }

    /// The entity's line, if it is time for it, appended to `lines`. A container that did not succeed is handed back
    /// without one: the session will say FAILED.
    pub(super) fn deliver(&mut self, key: EntityKey, lines: &mut Vec<u8>) -> Option<Delivery> {
        let entry = self.entries.get_mut(&key)?;
        let State::Placed(placed) = &entry.state else { return None };
        let header = Arc::clone(&entry.header);
        match (entry.dehydrated, entry.gathered) {
            (true, None) => None,
            (false, _) | (true, Some(Status::Complete)) => {
                let placed = placed.clone();
                lines.extend(record::complete(key, &header, &placed));
                entry.state = State::Delivered(placed.clone());
                Some(Delivery { key, header, placed: Some(placed) })
            }
            (true, Some(_)) => Some(Delivery { key, header, placed: None }),
        }
    }

    /// FAILED lines that are not written yet.
    pub(super) fn failed_lines(&self) -> &[u8] {
        &self.failed_lines
    }

    /// The FAILED lines are written.
    pub(super) fn clear_failed_lines(&mut self) {
        self.failed_lines.clear();
    }

    /// Tells the session that entities are safely delivered.
    pub(super) fn complete(&self, keys: Vec<EntityKey>) {
        if !keys.is_empty() {
            self.commands.urge(Urgent::Complete(keys));
        }
    }

    /// What the last line is to be.
    pub(super) fn ending(&self) -> Ending {
        match (&self.membership, self.closed) {
            (_, _) if self.incomplete => Ending::Incomplete,
            (Membership::Of(key), Some(ErrorCode::NoError)) => Ending::Prepared(Arc::clone(key)),
            // CONNECTION_CLOSE may be lost; that everything is there was said before.
            (Membership::Of(key), _) if self.root == Some(Status::Complete) => Ending::Prepared(Arc::clone(key)),
            (_, Some(code)) => Ending::Closed(code),
            (_, None) => Ending::Incomplete,
        }
    }

    /// The transaction that the session belongs to, if nothing more can come of it.
    pub(super) fn prepared(&self) -> Option<&str> {
        match &self.membership {
            Membership::Of(key) if self.root == Some(Status::Complete) => Some(key),
            Membership::Of(_) | Membership::None | Membership::Unknown => None,
        }
    }

    /// The header of an order whose payload is there.
    pub(super) fn order(&self, key: EntityKey) -> Option<Arc<EntityHeader>> {
        let entry = self.entries.get(&key).filter(|entry| is_order(&entry.header))?;
        matches!(entry.state, State::Stored(_)).then(|| Arc::clone(&entry.header))
    }

    /// An order cannot be carried out.
    pub(super) fn refuse(&self, key: EntityKey, reason: Reason) {
        self.commands.urge(Urgent::Fail { key, reason });
    }

    /// The log lacks what should be in it.
    pub(super) fn mark_incomplete(&mut self) {
        self.incomplete = true;
    }
}

/// The name of an entity's payload below its session.
pub(super) fn names(key: EntityKey) -> (String, String) {
    (reused(u32::from(key.scope), key.scope_use), reused(key.entity, key.entity_use))
}

/// An ID with the number of its earlier uses.
fn reused(id: u32, uses: u32) -> String {
    if uses == 0 { id.to_string() } else { format!("{id}.{uses}") }
}

/// About how much memory an entry takes.
fn weight(header: &EntityHeader) -> usize {
    let metadata: usize = header.metadata.iter().map(|(key, value)| key.len() + value.len() + 64).sum();
    header.content_type.len() + metadata + 256
}
