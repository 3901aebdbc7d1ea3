//! The peer's entity streams: their headers, those that arrived too early, and chunks (decisions 7, 9, 10, 14, 15).

use std::time::Duration;

use super::Session;
use super::counters::Limit;
use super::inbound::{Inbound, NamedAttempt, Payload, Streams};
use super::input::Input;
use super::state::State;
use super::types::{Accepted, AcceptedChunk, Admission, ChunkProgress, EntityKey, Event, Reason, Role};
use crate::chunk::ChunkTracker;
use crate::entity_id::{distance, is_assignable};
use crate::error::{Error, ErrorCode, LimitError, Result, Violation};
use crate::frame::{ORIGINAL_LENGTH, PARENT_SCOPE, decimal_scope};
use crate::header_key::{Outside, check_open};
use crate::scope::Place;
use crate::time::Now;
use crate::{ChunkInfo, EntityHeader};

impl Session {
    /// Handle a unidirectional stream that the peer has opened; its header is still to come.
    pub fn handle_stream_opened(&mut self, _now: Now) -> Result<()> {
        if self.role == Role::Server && self.agreement.is_none() && self.state != State::Closed {
            let error = Error::from(Violation::EarlyStream);
            return self.guard(Err(error));
        }
        Ok(())
    }

    /// Handle a bidirectional stream of the peer other than stream 0, which is an error (decision 4).
    pub fn handle_bidirectional(&mut self, _now: Now) -> Result<()> {
        let error = Error::from(Violation::BidirectionalStream);
        self.guard(Err(error))
    }

    /// Handle an error of an entity stream's header: it is malformed, too large, or incomplete when
    /// the stream ends (decision 14), or too many headers wait at the driver.
    pub fn handle_header_error(&mut self, _now: Now, error: Error) -> Result<()> {
        if error.code() == ErrorCode::EntityTooLarge {
            self.counters.exceeded(Limit::Header, 1);
        }
        if error.code() == ErrorCode::WindowExceeded {
            self.counters.exceeded(Limit::HeldHeaders, 1);
        }
        self.guard(Err(error))
    }

    /// Handle the complete header of an entity stream. An error has closed the session.
    pub fn handle_header(&mut self, now: Now, stream: u64, header: &EntityHeader) -> Result<Admission> {
        if self.state == State::Closed {
            return Ok(Admission::Stopped(ErrorCode::NoError));
        }
        self.note_header(now, stream, header);
        let place =
            |error: Error| if error.scope().is_some() { error } else { error.at(header.scope_id, header.entity_id) };
        let admission = self.place_stream(now, stream, header).map_err(place);
        let admission = self.guard(admission)?;
        if admission == Admission::Held {
            self.counters.held_streams += 1;
        }
        if let Some(last_pending) =
            self.resilience.last_pending.filter(|key| self.inbound(*key).is_some_and(|entity| entity.header_seen))
        {
            // The header states whether the entity has children.
            self.resilience.last_pending = None;
            self.start_timer(now, last_pending, Duration::ZERO);
        }
        let followed = self.follow_up(now);
        self.guard(followed)?;
        Ok(admission)
    }

    fn hold(&mut self, header: &EntityHeader) -> Result<()> {
        self.held.bytes += header.weight();
        if self.held.bytes > self.config.max_held_bytes {
            self.counters.exceeded(Limit::HeldHeaders, 1);
            return Err(LimitError::HeldHeaders { bytes: self.config.max_held_bytes }.into());
        }
        Ok(())
    }

    fn place_stream(&mut self, now: Now, stream: u64, header: &EntityHeader) -> Result<Admission> {
        let Some(agreement) = self.agreement.filter(|_| !self.awaits_name()) else {
            self.hold(header)?;
            self.held.early.push((stream, header.clone()));
            return Ok(Admission::Held);
        };
        let Ok(scope_id) = u16::try_from(header.scope_id) else {
            return Err(Violation::HeaderScope { scope: header.scope_id }.into());
        };
        if agreement.layer == 0 && scope_id > 1 {
            return Err(Violation::Layer1Stream { scope: scope_id }.into());
        }
        if self.role.owns(scope_id) {
            return Err(Violation::ForeignStream { scope: scope_id }.into());
        }
        if !is_assignable(header.entity_id) {
            return Err(Violation::ReservedEntity.into());
        }
        let late = match self.inbound.get(&scope_id) {
            None if distance(1, header.entity_id) >= agreement.max_window_size => {
                return Err(Violation::NewScopeWindow.into());
            }
            None => self.peer_scopes.is_released(scope_id),
            Some(scope) => match scope.place(header.entity_id) {
                Place::Resolved => true,
                Place::Open if scope.is_bound() => {
                    let key = scope.entity_key(header.entity_id);
                    match self.attempt_of(key, header)? {
                        NamedAttempt::Present => return self.admit(now, stream, key, header),
                        NamedAttempt::Past => true,
                        NamedAttempt::Early => false,
                    }
                }
                Place::Open => false,
                Place::Ahead => {
                    let outside = distance(scope.cursor(), header.entity_id) >= agreement.max_window_size;
                    if outside {
                        return Err(Violation::StreamWindow.into());
                    }
                    if scope.is_ended() {
                        return Err(Violation::StreamBehindEnd.into());
                    }
                    false
                }
            },
        };
        if late {
            self.counters.late_streams += 1;
            return Ok(Admission::Stopped(ErrorCode::NoError));
        }
        self.hold(header)?;
        self.held.by_entity.entry((scope_id, header.entity_id)).or_default().push((stream, header.clone()));
        Ok(Admission::Held)
    }

    /// Admit streams that overtook the server's CAPABILITIES, or their sender's SESSION.
    pub(super) fn admit_early_streams(&mut self, now: Now) -> Result<()> {
        for (stream, header) in std::mem::take(&mut self.held.early) {
            self.held.bytes -= header.weight();
            let admission = self.place_stream(now, stream, &header)?;
            self.report_admission(stream, admission);
        }
        Ok(())
    }

    /// Admit streams that waited for this entity's PENDING, or for its scope.
    pub(super) fn admit_held(&mut self, now: Now, key: EntityKey) -> Result<()> {
        if !self.inbound.get(&key.scope).is_some_and(|scope| scope.is_bound()) {
            return Ok(());
        }
        for (stream, header) in self.held.take(key.scope, key.entity) {
            let admission = self.place_stream(now, stream, &header).map_err(|error| {
                if error.scope().is_some() { error } else { error.at(header.scope_id, header.entity_id) }
            })?;
            self.report_admission(stream, admission);
        }
        Ok(())
    }

    fn report_admission(&mut self, stream: u64, admission: Admission) {
        match admission {
            Admission::Accepted(accepted) => self.events.push_back(Event::Admitted { stream, accepted }),
            Admission::Stopped(code) => self.stop_stream(stream, code),
            Admission::Held => {}
        }
    }

    pub(super) fn stop_held(&mut self, key: EntityKey, code: ErrorCode) {
        for (stream, _) in self.held.take(key.scope, key.entity) {
            self.stop_stream(stream, code);
        }
    }

    /// Admit a stream of an announced entity in a bound scope.
    fn admit(&mut self, now: Now, stream: u64, key: EntityKey, header: &EntityHeader) -> Result<Admission> {
        let Some(entity) = self.inbound_mut(key) else { return Ok(Admission::Stopped(ErrorCode::NoError)) };
        if entity.header_seen {
            return self.admit_further(now, stream, key, header);
        }
        entity.header_seen = true;
        entity.parent_id = header.parent_id;
        let failed = entity.payload == Payload::Failed;
        self.check_parent(now, key, header)?;
        self.check_dehydration(now, key, header)?;
        let Some(entity) = self.inbound_mut(key) else { return Ok(Admission::Stopped(ErrorCode::NoError)) };
        if failed || entity.payload == Payload::Failed {
            return Ok(Admission::Stopped(entity.reason.as_ref().map_or(ErrorCode::NoError, |reason| reason.code)));
        }
        let checked =
            header.check(self.config.max_payload).and_then(|()| header.check_metadata(self.config.max_metadata));
        let tracker = checked.and_then(|()| match header.chunk_info {
            Some(_) => ChunkTracker::new(header).and_then(|mut tracker| {
                tracker.admit(header)?;
                Ok(Some(Box::new(tracker)))
            }),
            None => Ok(None),
        });
        match tracker {
            Ok(tracker) => Ok(self.accept(stream, key, header, tracker)),
            Err(error) => {
                let code = error.code();
                if header.payload_length > self.config.max_payload {
                    self.counters.exceeded(Limit::Payload, 1);
                } else if code == ErrorCode::EntityTooLarge {
                    self.counters.exceeded(Limit::Metadata, 1);
                }
                self.reject(now, key, Reason { code, message: error.message() });
                Ok(Admission::Stopped(code))
            }
        }
    }

    fn accept(
        &mut self,
        stream: u64,
        key: EntityKey,
        header: &EntityHeader,
        tracker: Option<Box<ChunkTracker>>,
    ) -> Admission {
        if let Some(entity) = self.inbound_mut(key) {
            entity.payload = Payload::Receiving;
            entity.streams = match tracker {
                Some(tracker) => Streams::Chunks { tracker, streams: vec![stream] },
                None => Streams::Whole(stream),
            };
        }
        self.accepted(key, header.chunk_info.as_ref())
    }

    fn accepted(&self, key: EntityKey, chunk: Option<&ChunkInfo>) -> Admission {
        let scope = self.inbound.get(&key.scope);
        let entity = self.inbound(key);
        let child_scope =
            entity.and_then(|entity| entity.child).and_then(|child| self.inbound.get(&child)).map(|scope| scope.key());
        let parent_id = entity.map_or(0, |entity| entity.parent_id);
        let parent = match scope.and_then(|scope| scope.parent) {
            Some(parent) => Some(parent),
            None => scope.filter(|_| parent_id != 0 && self.layer() == 0).map(|scope| scope.entity_key(parent_id)),
        };
        Admission::Accepted(Accepted {
            key,
            depth: scope.and_then(|scope| scope.depth).unwrap_or(0),
            dehydrated: entity.is_some_and(|entity| entity.dehydrated),
            child_scope,
            parent,
            chunk: chunk.map(|chunk| AcceptedChunk { index: chunk.chunk_index, offset: chunk.chunk_offset }),
            failures: entity.map_or(0, Inbound::failures),
            losses: entity.map_or(0, |entity| entity.losses),
        })
    }

    /// Admit a further stream: another chunk of the same payload, or a violation of the one-stream
    /// rule (decision 14).
    fn admit_further(&mut self, now: Now, stream: u64, key: EntityKey, header: &EntityHeader) -> Result<Admission> {
        let Some(entity) = self.inbound_mut(key) else { return Ok(Admission::Stopped(ErrorCode::NoError)) };
        let outcome = match (&mut entity.streams, header.chunk_info) {
            (Streams::Former, _) => {
                self.counters.late_streams += 1;
                return Ok(Admission::Stopped(ErrorCode::NoError));
            }
            (_, Some(_)) if entity.payload == Payload::Failed => return Ok(Admission::Stopped(ErrorCode::NoError)),
            (Streams::Chunks { tracker, streams }, Some(_)) => {
                let outcome = tracker.admit(header);
                if outcome.is_ok() {
                    streams.push(stream);
                }
                outcome
            }
            (Streams::None | Streams::Whole(_) | Streams::Chunks { .. }, _) => {
                return Err(Violation::SecondStream.into());
            }
        };
        match outcome {
            Ok(()) => Ok(self.accepted(key, header.chunk_info.as_ref())),
            Err(error) => {
                let code = error.code();
                self.reject(now, key, Reason { code, message: error.message() });
                Ok(Admission::Stopped(code))
            }
        }
    }

    /// Check that the header and the binding of its scope agree (decision 10); at layer 0 the parent is in the same
    /// scope.
    fn check_parent(&mut self, now: Now, key: EntityKey, header: &EntityHeader) -> Result<()> {
        let Some(scope) = self.inbound.get(&key.scope) else { return Ok(()) };
        if let Some(parent) = scope.parent {
            if header.parent_id != parent.entity {
                return Err(Violation::HeaderParent { parent: header.parent_id, bound: parent.entity }.into());
            }
            if check_open(&header.metadata).is_err() {
                // The scope's name is sealed and cannot be checked; the entity fails later.
                return Ok(());
            }
            let named = header.metadata.get(PARENT_SCOPE).map_or(Some(0), |value| decimal_scope(value));
            return match named {
                Some(named) if named == parent.scope => Ok(()),
                _ => Err(Violation::ParentScope { scope: parent.scope }.into()),
            };
        }
        if header.parent_id == 0 || self.layer() > 0 {
            return Ok(());
        }
        self.check_parent_at_layer_zero(now, key, header)
    }

    fn check_parent_at_layer_zero(&mut self, now: Now, key: EntityKey, header: &EntityHeader) -> Result<()> {
        let dehydrated = self.inbound(key).is_some_and(|entity| entity.dehydrated) || Outside::of(header).dehydrated;
        if dehydrated {
            return Err(Violation::Layer1Parent.into());
        }
        let Some(scope) = self.inbound.get_mut(&key.scope) else { return Ok(()) };
        let place = if is_assignable(header.parent_id) { scope.place(header.parent_id) } else { Place::Ahead };
        match place {
            Place::Ahead => Err(Violation::UnknownParent.into()),
            // The parent has already failed; at layer 0 that is immediate, and its children are still accepted.
            Place::Resolved => Ok(()),
            Place::Open => {
                let parent = scope.entity_key(header.parent_id);
                match scope.get(header.parent_id) {
                    Some(Inbound { dehydrated: true, .. }) => self.track_child(now, parent, key),
                    _ => Err(Violation::WholeParent.into()),
                }
            }
        }
    }

    /// Check that a dehydrated entity's header names its children's scope (decision 9).
    fn check_dehydration(&mut self, now: Now, key: EntityKey, header: &EntityHeader) -> Result<()> {
        let announced = self.inbound(key).is_some_and(|entity| entity.dehydrated);
        let outside = Outside::of(header);
        if !announced && !outside.dehydrated {
            return Ok(());
        }
        let agreement = self.agreed()?;
        let depth = self.inbound.get(&key.scope).and_then(|scope| scope.depth).unwrap_or(0);
        if agreement.layer > 0 && depth >= agreement.max_scope_depth {
            self.counters.exceeded(Limit::Depth, 1);
            return Err(LimitError::HeaderDepth { depth, limit: agreement.max_scope_depth }.into());
        }
        self.mark_dehydrated(now, key);
        let original = header.metadata.get(ORIGINAL_LENGTH).and_then(|value| value.parse::<u64>().ok());
        let max_children = self.max_children(original.unwrap_or(header.payload_length).div_ceil(1 << 20).max(1));
        if let Some(entity) = self.inbound_mut(key) {
            entity.max_children = max_children;
        }
        let policy = self.policy_of_header(header);
        if let Some(entity) = self.inbound_mut(key) {
            entity.policy = policy.as_ref().ok().copied().flatten().map(Box::new);
        }
        if agreement.layer == 0 {
            // Its children's headers may have arrived first.
            self.limit_children(now, key);
            return Ok(());
        }
        match header.child_scope().or_else(|| outside.child_scope.map(Some)) {
            Some(Some(child)) if self.inbound(key).is_some_and(|entity| entity.payload == Payload::Failed) => {
                self.bind_late(now, key, child)
            }
            Some(Some(child)) => {
                self.bind_scope(now, key, child)?;
                match policy {
                    Ok(Some(policy)) => self.gathering.set_policy(key.entry(), policy),
                    Ok(None) => {}
                    Err(error) => {
                        let message = error.message();
                        self.reject(now, key, Reason { code: error.code(), message });
                    }
                }
                Ok(())
            }
            Some(None) => Err(Violation::ChildScopeName.into()),
            None => Err(Violation::NoChildScope.into()),
        }
    }

    /// Handle a stream that the peer has reset: an accepted one (`key`), or a held one. The entity fails (section 5.4).
    pub fn handle_stream_reset(&mut self, now: Now, stream: u64, key: Option<EntityKey>, code: u64) {
        if self.state == State::Closed {
            return;
        }
        let key = key.or_else(|| self.held_key(stream));
        let Some(key) = key else { return };
        let code = Some(ErrorCode::from_code(code))
            .filter(|code| *code != ErrorCode::NoError)
            .unwrap_or(ErrorCode::EntityInvalid);
        self.fail(now, key, Reason { code, message: "its stream was reset by the peer".to_owned() });
    }

    /// Return the open entity of a held stream. A stream that overtook its PENDING is dropped, and the owner's FAILED
    /// resolves the entity.
    fn held_key(&mut self, stream: u64) -> Option<EntityKey> {
        let place = self
            .held
            .by_entity
            .iter()
            .find(|(_, held)| held.iter().any(|(id, _)| *id == stream))
            .map(|(place, _)| *place);
        self.held.early.retain(|(id, _)| *id != stream);
        let (scope_id, entity_id) = place?;
        let scope = self.inbound.get(&scope_id).filter(|scope| scope.place(entity_id) == Place::Open)?;
        Some(scope.entity_key(entity_id))
    }

    /// Handle the end of a chunk's stream after `bytes`. On [`ChunkProgress::Whole`] check the
    /// payload's checksum.
    pub fn chunk_finished(&mut self, now: Now, key: EntityKey, index: u32, bytes: u64) -> ChunkProgress {
        self.note(Some(now), || Input::ChunkFinished { key, index, bytes });
        let Some(entity) = self.inbound_mut(key) else { return ChunkProgress::Dropped };
        let Streams::Chunks { tracker, .. } = &mut entity.streams else { return ChunkProgress::Dropped };
        match tracker.finish_chunk(index, bytes) {
            Ok(()) if tracker.is_complete() => ChunkProgress::Whole,
            Ok(()) => ChunkProgress::Waiting,
            Err(error) => {
                self.reject(now, key, Reason { code: error.code(), message: error.message() });
                ChunkProgress::Dropped
            }
        }
    }
}
