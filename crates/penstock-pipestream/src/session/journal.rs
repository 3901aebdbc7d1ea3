//! A session that outlives its process (layer 2): each input is recorded before the peer learns of its effects.
//!
//! The session depends only on its inputs and their order. So a record contains the inputs since the previous one:
//! frames, headers, commands, timeouts; with the same inputs the session reaches the same state, including what it has
//! sent. The first record, and any later one at the caller's choice, is a snapshot: the complete state of the session,
//! which replaces all records before it.
//!
//! ```text
//!  record    version 2   kind 1
//!  kind 1    snapshot: role, Unix microseconds of its beginning, nanoseconds since then, the state field after field
//!  kind 2    inputs:   (nanoseconds since the one before, number of the input, its fields) ...
//! ```
//!
//! The encoding of fields is explained in `stored.rs`. The store adds length and checksum. The
//! caller has acted on an event before the record is written, or gets the event again after the
//! restart.

use std::time::Duration;

use bytes::Bytes;

use super::Session;
use super::binding::Unbound;
use super::input::{Input, Journal, Phase};
use super::outbound::NextAttempt;
use super::types::{EntityKey, Layer2Event, Role, SentOpen, SessionConfig, Ticket};
use crate::error::{Misuse, Result, StoredError};
use crate::manifest::Manifest;
use crate::scope::Scope;
use crate::status::Status;
use crate::stored::{RecordReader, RecordWriter, by_key, duration_nanos};
use crate::time::Now;
use crate::{EntityHeader, SessionFrame};

const VERSION: u8 = 2;
const SNAPSHOT: u8 = 1;
const INPUTS: u8 = 2;

/// A suspended session of an earlier process.
#[derive(Debug)]
pub struct Restored {
    /// The session. Its events are those that the caller must still answer.
    pub session: Session,
    /// Our labelled entities whose terminal status has arrived since the last snapshot.
    pub resolved: Vec<(Bytes, EntityKey, Status)>,
}

impl Session {
    /// Return bytes that must be stored before anything more is transmitted, if the configuration asks for a journal
    /// and both ends can resume the session. Events come first: `None` while there are any. While there is a record,
    /// [`poll_transmit`](Self::poll_transmit) returns nothing.
    pub fn poll_record(&mut self) -> Option<Bytes> {
        if !self.events.is_empty() || !self.owes_record() {
            return None;
        }
        let journal = self.journal.as_mut()?;
        match journal.phase {
            Phase::Unnamed | Phase::Named => return self.snapshot(),
            Phase::Recorded => {}
        }
        let inputs = std::mem::take(&mut journal.inputs.bytes);
        let mut record = Vec::with_capacity(inputs.len() + 2);
        record.extend_from_slice(&[VERSION, INPUTS]);
        record.extend_from_slice(&inputs);
        Some(record.into())
    }

    /// Return a record that replaces all earlier ones, which may be removed once it is stored.
    /// `None` while there are events, and if the session is not recorded.
    pub fn snapshot(&mut self) -> Option<Bytes> {
        if !self.events.is_empty() || self.is_closed() {
            return None;
        }
        let journal = self.journal.as_mut()?;
        match journal.phase {
            Phase::Unnamed => return None,
            Phase::Named | Phase::Recorded => journal.phase = Phase::Recorded,
        }
        journal.inputs.bytes.clear();
        let last = journal.last;
        let mut record = RecordWriter { bytes: vec![VERSION, SNAPSHOT], epoch: self.epoch.instant };
        record.put(&(self.role, self.epoch.unix_micros, duration_nanos(&last)));
        self.put_state(&mut record);
        record.put(&(&self.counters, &self.survival));
        Some(record.bytes.into())
    }

    /// Return whether there is a record that must be stored first.
    pub(super) fn owes_record(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| match journal.phase {
            Phase::Unnamed => false,
            Phase::Named => !self.is_closed(),
            Phase::Recorded => !journal.inputs.bytes.is_empty(),
        })
    }

    /// Record an input.
    pub(super) fn note(&mut self, now: Option<Now>, input: impl FnOnce() -> Input) {
        let Some(journal) = &mut self.journal else { return };
        match journal.phase {
            Phase::Unnamed | Phase::Named => return,
            Phase::Recorded => {}
        }
        let at = now.map_or(journal.last, |now| now.instant.saturating_duration_since(self.epoch.instant));
        journal.inputs.put(&(duration_nanos(&at.saturating_sub(journal.last)), input()));
        journal.last = journal.last.max(at);
    }

    /// Record the fields of a header that the session reads. A chunk's header is recorded
    /// completely, because it is compared with those of its siblings.
    pub(super) fn note_header(&mut self, now: Now, stream: u64, header: &EntityHeader) {
        self.note(Some(now), || {
            let mut header = header.clone();
            if header.chunk_info.is_none() {
                header.content_type.clear();
                header.metadata.retain(|key, _| key.starts_with("pipestream."));
            }
            Input::Header { stream, header }
        });
    }

    /// Restore the session that has written these records, in order. It is suspended: a client calls
    /// [`reconnect`](Self::reconnect), a server [`adopt`](Self::adopt)s its client's new connection. `whole` is the
    /// argument of [`suspend`](Self::suspend). `config` must be as before, including the key of the tokens.
    ///
    /// Earlier events are not repeated, except those that the caller must answer: a failed attempt,
    /// a token, a claim check that is wanted or queried, a parent whose children are gathered. As
    /// always, a record follows the events.
    ///
    /// # Errors
    ///
    /// INTERNAL_ERROR for invalid records, records of another version, or without a snapshot at the beginning; misuse
    /// for a configuration that is not the session's, and for a session that has ended.
    pub fn restore<'a>(
        role: Role,
        config: SessionConfig,
        records: impl IntoIterator<Item = &'a [u8]>,
        now: Now,
        whole: impl Fn(EntityKey) -> bool,
    ) -> Result<Restored> {
        config.check()?;
        if !config.layer2.as_ref().is_some_and(|layer2| layer2.survives && layer2.journal) {
            return Err(Misuse::NotStored.into());
        }
        let mut restoring: Option<(Self, Duration)> = None;
        for record in records {
            let mut from = RecordReader { bytes: record, epoch: now.instant };
            match (from.take()?, from.take()?, restoring.take()) {
                (VERSION, SNAPSHOT, _) => restoring = Some(Self::take_snapshot(role, &config, &mut from, now)?),
                (VERSION, INPUTS, Some((mut session, last))) => {
                    let last = session.take_inputs(&mut from, last)?;
                    restoring = Some((session, last));
                }
                (VERSION, INPUTS, None) => return Err(StoredError::NoSnapshot.into()),
                (VERSION, kind, _) => return Err(StoredError::Kind(kind).into()),
                (version, ..) => return Err(StoredError::Version { found: version, expected: VERSION }.into()),
            }
        }
        let (mut session, last) = restoring.ok_or(StoredError::Empty)?;
        let mut journal = Journal::new(now);
        (journal.last, journal.phase) = (last, Phase::Recorded);
        journal.inputs.epoch = session.epoch.instant;
        session.journal = Some(journal);
        session.last_status_sent = now.instant;
        session.suspend(now, whole);
        session.repeat_owed_events();
        let resolved = session.replayed_outcomes.take().unwrap_or_default();
        Ok(Restored { session, resolved })
    }

    fn take_snapshot(
        role: Role,
        config: &SessionConfig,
        from: &mut RecordReader<'_>,
        now: Now,
    ) -> Result<(Self, Duration)> {
        if from.take::<Role>()? != role {
            return Err(Misuse::OtherRole.into());
        }
        let unix_micros: u64 = from.take()?;
        let age = Duration::from_micros(now.unix_micros.saturating_sub(unix_micros));
        from.epoch = now.instant.checked_sub(age).unwrap_or(now.instant);
        let last = Duration::from_nanos(from.take()?);
        let mut session = Self::new(role, config.clone(), now)?;
        session.epoch = Now { instant: from.epoch, unix_micros };
        session.journal = None;
        session.take_state(from)?;
        (session.counters, session.survival) = from.take()?;
        let configured = config.layer2.as_ref().and_then(|layer2| layer2.session);
        if configured.is_some() && configured != session.resilience.name() {
            return Err(Misuse::OtherName.into());
        }
        if !from.bytes.is_empty() {
            return Err(StoredError::Trailing.into());
        }
        session.forget_outputs();
        session.replayed_outcomes = Some(Vec::new());
        Ok((session, last))
    }

    fn take_inputs(&mut self, from: &mut RecordReader<'_>, mut last: Duration) -> Result<Duration> {
        from.epoch = self.epoch.instant;
        while !from.bytes.is_empty() {
            let (after, input) = from.take()?;
            last = last.saturating_add(Duration::from_nanos(after));
            let micros = u64::try_from(last.as_micros()).unwrap_or(u64::MAX);
            let now = Now {
                instant: self.epoch.instant.checked_add(last).ok_or(StoredError::Moment)?,
                unix_micros: self.epoch.unix_micros.saturating_add(micros),
            };
            self.replay(now, input)?;
            self.forget_outputs();
            if self.is_closed() {
                return Err(Misuse::SessionEnded.into());
            }
        }
        Ok(last)
    }

    fn forget_outputs(&mut self) {
        self.control.clear();
        self.greeting = 0;
        self.transmits.clear();
        self.events.clear();
    }

    /// Apply a recorded input. A command that was refused at first is refused again, and changes nothing again.
    fn replay(&mut self, now: Now, input: Input) -> Result<()> {
        match input {
            Input::Reserved => return Err(StoredError::ReservedInput.into()),
            Input::Frame { frame } => return self.handle_frame(now, frame),
            Input::Header { stream, header } => {
                let _admission = self.handle_header(now, stream, &header)?;
            }
            Input::ChunkFinished { key, index, bytes } => {
                let _progress = self.chunk_finished(now, key, index, bytes);
            }
            Input::Complete { key } => self.complete(now, key),
            Input::Fail { key, reason } => self.fail(now, key, reason),
            Input::Defer { key, claim_id, expiry_micros } => drop(self.defer(now, key, claim_id, expiry_micros)),
            Input::Skip { key, reason } => drop(self.skip(now, key, reason)),
            Input::Yield { key, point } => drop(self.yield_entity(now, key, &point)),
            Input::NoteState { key, state_checksum } => self.note_state(key, state_checksum),
            Input::Announce { parent, dehydrate, policy, label } => {
                let announced = self.announce_labelled(now, parent, dehydrate, policy.as_ref(), label)?;
                announced.map(drop).ok_or(StoredError::Announcement)?;
            }
            Input::EndChildren { parent } => drop(self.end_children(now, parent)),
            Input::EndRoot => drop(self.end_root(now)),
            Input::Checkpoint { scope, entity, timeout } => drop(self.checkpoint(now, scope, entity, timeout)),
            Input::Retry { key } => drop(self.retry(now, key)),
            Input::Abandon { key, reason } => drop(self.abandon(now, key, reason)),
            Input::Resume { key, token } => drop(self.resume(key, &token)),
            Input::AskClaim { ask } => drop(self.ask_claim(ask)),
            Input::AnswerClaim { request, answer } => drop(self.answer_claim(request, answer)),
            Input::Close => self.close(now),
            Input::CloseWhenIdle => drop(self.close_when_idle(now)),
            Input::Timeout => self.expire(now)?,
            Input::Suspend { keep } => self.suspend_with(&keep),
            Input::ResumeConnection { received, sent } => {
                let session = self.named()?;
                self.resume_connection(
                    now,
                    SessionFrame { received: Some(received), sent: Some(sent), ..SessionFrame::named(session) },
                )?;
            }
            Input::Acknowledged { received } => self.handle_acknowledged(received)?,
            Input::FailUnsent { key, reason } => self.fail_unsent(now, key, reason),
            Input::RefuseClaim { key, reason } => self.refuse_claim(now, key, reason),
        }
        Ok(())
    }

    /// Repeat the events from before the restart that the caller must still answer.
    fn repeat_owed_events(&mut self) {
        let mut owed = Vec::new();
        for scope in self.outbound.values() {
            let open = scope.iter_open().filter_map(|(key, entity)| Some((key, entity.layer2.as_deref()?)));
            owed.extend(open.flat_map(|(key, layer2)| layer2.owed(key).into_iter().map(move |event| (key, event))));
        }
        for scope in self.inbound.values() {
            let open = scope.iter_open().filter_map(|(key, entity)| Some((key, entity.owed(key, &self.peer_scopes)?)));
            owed.extend(open);
        }
        owed.sort_by_key(|(key, _)| *key);
        self.events.extend(owed.into_iter().map(|(_, event)| event));
        for (request, ask) in self.resilience.unanswered() {
            self.push_layer2_event(Layer2Event::ClaimAsked { request, ask });
        }
    }

    /// Return our entities without a terminal status, in the order of their IDs, so that a
    /// restarted caller can find their sources.
    pub fn sent_open(&self) -> Vec<SentOpen> {
        let mut open: Vec<SentOpen> = Vec::with_capacity(self.open_owned);
        for scope in self.outbound.values() {
            let (depth, parent) = (scope.depth.unwrap_or(0), scope.parent);
            open.extend(scope.iter_open().map(|(key, entity)| SentOpen {
                ticket: Ticket {
                    key,
                    parent_id: parent.map_or(entity.parent_id(), |parent| parent.entity),
                    depth,
                    child_scope: entity.child(),
                },
                label: entity.layer2.as_ref().and_then(|layer2| layer2.label.clone()),
                dehydrated: entity.is_dehydrated(),
                ended: entity.is_ended(),
            }));
        }
        open.sort_unstable_by_key(|open| open.ticket.key);
        open
    }

    /// Return the received entities without a terminal status, in the order of their IDs.
    pub fn received_open(&self) -> Vec<EntityKey> {
        let mut open: Vec<EntityKey> =
            self.inbound.values().flat_map(|scope| scope.iter_open().map(|(key, _)| key)).collect();
        open.sort_unstable();
        open
    }

    /// Return how the entities of the peer's root scope ended, once the peer has ended it and all of them are terminal:
    /// the session cannot receive anything more.
    pub fn received_all(&self) -> Option<Status> {
        let root = self.inbound.get(&(1 - self.role.root_scope()))?;
        // A root scope is never removed; its `digest_agreed` means that its BARRIER was answered.
        (root.ended && root.digest_agreed).then(|| root.outcome().status())
    }

    /// Return whether our root scope's announcements have been ended.
    pub fn root_ended(&self) -> bool {
        self.outbound.get(&self.role.root_scope()).is_some_and(|root| root.ended)
    }

    /// Return the label of one of our entities, while it has no terminal status.
    pub fn label(&self, key: EntityKey) -> Option<Bytes> {
        self.outbound(key).and_then(|entity| entity.layer2.as_ref()).and_then(|layer2| layer2.label.clone())
    }

    /// Return the state on which the session's future depends, if the peer has taken this many of
    /// its frames. Sessions with the same state are indistinguishable, whatever their history. For
    /// simulations.
    #[doc(hidden)]
    pub fn fingerprint(&self, taken: u64) -> Vec<u8> {
        let mut record = RecordWriter { bytes: Vec::new(), epoch: self.epoch.instant };
        self.put_state(&mut record);
        self.survival.write_fingerprint(taken, &mut record);
        record.bytes
    }

    /// Return how many of the peer's frames the session has taken.
    #[doc(hidden)]
    pub fn taken(&self) -> u64 {
        self.survival.received
    }

    fn put_state(&self, record: &mut RecordWriter) {
        let Self { state, agreement, outbound, own_scopes, sent, inbound, peer_scopes, gathering, held, .. } = self;
        // The rest belongs to the connection, to layer 0, to the configuration or to pending output, or is stored
        // separately.
        let Self { orphans, checkpoints, resilience, open_owned, open_received, .. } = self;
        let (outbound, inbound) = (by_key(outbound), by_key(inbound));
        record.put(&(state, agreement, outbound, own_scopes, sent, inbound, peer_scopes, gathering, held));
        record.put(&(orphans, checkpoints, resilience, open_owned, open_received));
    }

    /// Reject restored state with inconsistent numbers, which no session writes.
    fn check_state(&self) -> Result<()> {
        let root = self.role.root_scope();
        let roots = self.outbound.contains_key(&root) && self.inbound.contains_key(&(1 - root));
        let sound = self.outbound.values().all(Scope::is_sound) && self.inbound.values().all(Scope::is_sound);
        let owned: u64 = self.outbound.values().map(Scope::open).sum();
        let received: u64 = self.inbound.values().map(Scope::open).sum();
        match roots && sound && owned == self.open_owned as u64 && received == self.open_received as u64 {
            true => Ok(()),
            false => Err(StoredError::Scopes.into()),
        }
    }

    fn take_state(&mut self, from: &mut RecordReader<'_>) -> Result<()> {
        let manifest = self.config.manifest;
        let (sent, gathering): (Manifest, Manifest);
        (
            self.state,
            self.agreement,
            self.outbound,
            self.own_scopes,
            sent,
            self.inbound,
            self.peer_scopes,
            gathering,
            self.held,
        ) = from.take()?;
        (self.sent, self.gathering) = (sent.with_limits(manifest.for_sent()), gathering.with_limits(manifest));
        (self.orphans, self.checkpoints, self.resilience, self.open_owned, self.open_received) = from.take()?;
        self.check_state()?;
        for entity in self.outbound.values_mut().flat_map(Scope::iter_open_mut).map(|(_, entity)| entity) {
            if let Some(layer2) = &mut entity.layer2 {
                layer2.next_attempt = if layer2.waits() { NextAttempt::Missing } else { NextAttempt::Requested };
            }
        }
        if self.layer() > 0 {
            self.unbound = Unbound::count(self.inbound.values());
        }
        Ok(())
    }
}
