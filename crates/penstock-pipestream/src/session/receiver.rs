//! The entities that we receive: announcements, the owner's failures, and the terminal status that we send.
//!
//! ```text
//!  plain:       announced ──header──► receiving ──complete()──► COMPLETE
//!                   │                     └─fail(), reset──► FAILED
//!                   └─owner's FAILED──► FAILED
//!
//!  dehydrated:  payload ──complete() or failure──► decided ─┐
//!               children ──all terminal, BARRIER──► gathered ┴─► COMPLETE only if both went well, else FAILED
//! ```
//!
//! At layer 0 a CHECKPOINT replaces the BARRIER, and a failed payload does not wait (decisions 12 and 14).

use super::Session;
use super::counters::Limit;
use super::inbound::{Inbound, Payload, Streams};
use super::input::Input;
use super::state::State;
use super::types::{EntityKey, Event, Reason};
use crate::entity_id::distance;
use crate::error::{ErrorCode, LimitError, Result, Violation};
use crate::scope::{Place, Scope};
use crate::status::Status;
use crate::time::Now;
use crate::{Extension, StatusFrame};

impl Session {
    pub(super) fn inbound(&self, key: EntityKey) -> Option<&Inbound> {
        let scope = self.inbound.get(&key.scope).filter(|scope| scope.key() == key.scope_key())?;
        scope.get(key.entity).filter(|_| scope.entity_key(key.entity) == key)
    }

    pub(super) fn inbound_mut(&mut self, key: EntityKey) -> Option<&mut Inbound> {
        let scope = self.inbound.get_mut(&key.scope).filter(|scope| scope.key() == key.scope_key())?;
        if scope.entity_key(key.entity) != key {
            return None;
        }
        scope.get_mut(key.entity)
    }

    /// Handle a STATUS of the owner about an entity in one of its scopes.
    pub(super) fn handle_owner_status(&mut self, now: Now, frame: &StatusFrame) -> Result<()> {
        let opens = !self.inbound.contains_key(&frame.scope_id);
        if opens {
            let (pending, scopes) = (frame.status == Status::Pending, &self.peer_scopes);
            if pending && scopes.is_released(frame.scope_id) {
                return Err(Violation::LateChild.into());
            }
            if !pending && scopes.was_released(frame.scope_id) {
                self.counters.late_statuses += 1;
                return Ok(());
            }
            if !pending {
                return Err(Violation::UnknownScope { scope: frame.scope_id }.into());
            }
            self.open_unbound(frame.scope_id);
        }
        let place = self.check_owner_status(frame)?;
        if opens {
            self.expect_binding(frame.scope_id)?;
        }
        match frame.status {
            Status::Pending => self.handle_pending(now, frame, place),
            Status::Dehydrating => self.handle_dehydrating(now, frame, place),
            Status::Failed | Status::Skipped | Status::Abandoned => self.handle_owner_gave_up(now, frame, place),
            Status::Retrying => self.handle_retrying(now, frame, place),
            Status::Complete => Err(Violation::OwnComplete.into()),
            Status::Unspecified | Status::Processing | Status::Rehydrating | Status::Checkpoint => {
                self.log_status(frame);
                Ok(())
            }
            Status::Yielded | Status::Deferred => Err(Violation::OwnStatus { status: frame.status }.into()),
        }
    }

    /// Check the rules for every STATUS of an owner: it states its scope's depth, a cursor that
    /// could be ours, if any, and an announced entity (except for PENDING).
    fn check_owner_status(&mut self, frame: &StatusFrame) -> Result<Place> {
        let Some(scope) = self.inbound.get_mut(&frame.scope_id) else {
            return Err(Violation::UnknownScope { scope: frame.scope_id }.into());
        };
        // The first STATUS of a scope that is not bound yet claims its depth, which the binding checks (decision 10).
        let depth = *scope.depth.get_or_insert(frame.depth);
        if depth != frame.depth {
            return Err(Violation::Depth { depth: frame.depth, expected: depth }.into());
        }
        if let Some(cursor) = frame.cursor.filter(|cursor| !scope.accepts_cursor(*cursor)) {
            return Err(Violation::Cursor { cursor, first: scope.cursor(), next: scope.next_id() }.into());
        }
        let place = scope.place(frame.entity_id);
        if place == Place::Ahead && frame.status != Status::Pending {
            return Err(Violation::NotAnnounced.into());
        }
        Ok(place)
    }

    fn open_unbound(&mut self, scope_id: u16) {
        let key = self.peer_scopes.open(scope_id);
        self.inbound.insert(scope_id, Scope::child(key, None, None));
    }

    /// Return the scope; open it without a parent if no frame has named it yet.
    pub(super) fn scope_or_unbound(&mut self, scope_id: u16) -> Option<&mut Scope<Inbound>> {
        if !self.inbound.contains_key(&scope_id) {
            self.open_unbound(scope_id);
        }
        self.inbound.get_mut(&scope_id)
    }

    pub(super) fn log_status(&mut self, frame: &StatusFrame) {
        if let Some(scope) = self.inbound.get(&frame.scope_id) {
            let key = scope.entity_key(frame.entity_id);
            let (status, depth, cursor) = (frame.status, frame.depth, frame.cursor);
            self.events.push_back(Event::Status { key, status, depth, cursor, by_peer: true });
        }
    }

    /// Handle PENDING (decisions 6 and 14): it must have the next ID, inside the window, within the limits.
    fn handle_pending(&mut self, now: Now, frame: &StatusFrame, place: Place) -> Result<()> {
        let agreement = self.agreed()?;
        let Some(scope) = self.inbound.get_mut(&frame.scope_id) else { return Ok(()) };
        if place != Place::Ahead {
            return Err(Violation::AnnouncedTwice.into());
        }
        if scope.is_ended() {
            return Err(Violation::LateChild.into());
        }
        if distance(scope.cursor(), frame.entity_id) >= agreement.max_window_size {
            self.counters.exceeded(Limit::Window, 1);
            let (window, cursor) = (agreement.max_window_size, scope.cursor());
            return Err(LimitError::Window { window, cursor }.into());
        }
        if frame.entity_id != scope.next_id() {
            return Err(Violation::NextEntity { next: scope.next_id() }.into());
        }
        if scope.announced() >= u64::from(agreement.max_entities_per_scope) {
            self.counters.exceeded(Limit::ScopeEntities, 1);
            return Err(LimitError::ScopeEntities { limit: agreement.max_entities_per_scope }.into());
        }
        if self.open_received >= self.config.max_open_entities {
            self.counters.exceeded(Limit::OpenEntities, 1);
            return Err(LimitError::OpenEntities { limit: self.config.max_open_entities }.into());
        }
        let key = scope.announce(Inbound::default());
        self.open_received += 1;
        self.counters.received += 1;
        self.log_status(frame);
        if let Some(parent) = self.inbound.get(&key.scope).and_then(|scope| scope.parent) {
            self.track_child(now, parent, key)?;
        }
        self.resilience.last_pending = Some(key);
        self.admit_held(now, key)
    }

    /// Handle DEHYDRATING (decisions 9 and 10).
    fn handle_dehydrating(&mut self, now: Now, frame: &StatusFrame, place: Place) -> Result<()> {
        let agreement = self.agreed()?;
        if agreement.layer > 0 && frame.depth >= agreement.max_scope_depth {
            self.counters.exceeded(Limit::Depth, 1);
            return Err(LimitError::Depth { depth: frame.depth, limit: agreement.max_scope_depth }.into());
        }
        self.log_status(frame);
        if place == Place::Resolved {
            self.counters.late_statuses += 1;
            return Ok(());
        }
        let Some(scope) = self.inbound.get(&frame.scope_id) else { return Ok(()) };
        let key = scope.entity_key(frame.entity_id);
        if let Some(entity) = self.inbound_mut(key)
            && entity.header_seen
            && !entity.dehydrated
        {
            return Err(Violation::LateDehydrating.into());
        }
        self.mark_dehydrated(now, key);
        Ok(())
    }

    /// Record that an entity has children, which the manifest tracks from here on.
    pub(super) fn mark_dehydrated(&mut self, now: Now, key: EntityKey) {
        let max_children = self.max_children(1);
        let at_layer_zero = self.layer() == 0;
        let expected_child = self.peer_scopes.expected(1 - self.role.root_scope());
        let Some(entity) = self.inbound_mut(key).filter(|entity| !entity.dehydrated) else { return };
        entity.dehydrated = true;
        entity.max_children = max_children;
        entity.expected_child = expected_child;
        if at_layer_zero {
            self.level_zero.parents.push_back(key);
        } else {
            self.peer_scopes.dehydrate();
            self.orphans.add_parent(key);
            let depth = self.inbound.get(&key.scope).and_then(|scope| scope.depth).unwrap_or(0);
            self.unbound.add_parent(key.entity, depth);
        }
        if let Err(error) = self.gathering.open(now, key.entry()) {
            if error.code() == ErrorCode::WindowExceeded {
                self.counters.exceeded(Limit::OpenParents, 1);
            }
            self.reject(now, key, Reason { code: error.code(), message: error.message() });
        }
    }

    /// Return how many children a parent may have for an original of this many MiB, rounded up
    /// (decision 11).
    pub(super) fn max_children(&self, mib: u64) -> u64 {
        self.config.children_per_mib.saturating_mul(mib).min(self.config.max_children)
    }

    /// Handle the status of an entity that its owner cannot deliver, and echo it (decision 8).
    fn handle_owner_gave_up(&mut self, now: Now, frame: &StatusFrame, place: Place) -> Result<()> {
        self.log_status(frame);
        if place == Place::Resolved {
            self.counters.late_statuses += 1;
            return Ok(());
        }
        let Some(scope) = self.inbound.get(&frame.scope_id) else { return Ok(()) };
        let key = scope.entity_key(frame.entity_id);
        let Some(entity) = self.inbound.get(&frame.scope_id).and_then(|scope| scope.get(frame.entity_id)) else {
            return Ok(());
        };
        let waits = entity.dehydrated && self.layer() > 0;
        if entity.payload == Payload::Failed && waits {
            return Ok(());
        }
        let reason = entity.reason.as_deref().cloned().unwrap_or_else(|| Reason {
            code: ErrorCode::InternalError,
            message: "its owner could not deliver it".to_owned(),
        });
        if waits {
            // Decision 14: the failure is reported immediately, but the STATUS waits for the barrier.
            if let Some(entity) = self.inbound_mut(key).filter(|_| frame.status.is_layer2()) {
                entity.layer2_mut().owner_status = Some(frame.status);
            }
            self.reject(now, key, reason);
        } else {
            self.drop_streams(key, ErrorCode::NoError);
            self.resolve_received(now, key, frame.status, Some(reason));
        }
        Ok(())
    }

    /// Record that the payload was verified and stored. For a dehydrated entity the STATUS waits until its children are
    /// gathered. Nothing happens if the entity is already resolved.
    pub fn complete(&mut self, now: Now, key: EntityKey) {
        self.note(Some(now), || Input::Complete { key });
        let Some(entity) = self.inbound_mut(key) else { return };
        if matches!(entity.payload, Payload::Failed | Payload::SetAside) {
            return;
        }
        entity.payload = Payload::Delivered;
        entity.void_token();
        if entity.dehydrated {
            self.settle_parent(now, key);
        } else {
            self.resolve_received(now, key, Status::Complete, None);
        }
    }

    /// Fail an entity. A received one is rejected with an 0xC0 ERROR and STATUS FAILED, and its streams are stopped;
    /// one of ours is given up. Nothing happens if the entity is already resolved.
    pub fn fail(&mut self, now: Now, key: EntityKey, reason: Reason) {
        if self.state == State::Closed {
            return;
        }
        self.note(Some(now), || Input::Fail { key, reason: reason.clone() });
        if self.role.owns(key.scope) {
            self.give_up(now, key, reason);
        } else if self.inbound(key).is_some_and(|entity| entity.payload != Payload::SetAside) {
            if self.layer() > 0 && self.held.is_dehydrated(key.scope, key.entity) {
                // Its stream was reset before its DEHYDRATING arrived, and its children's scope still needs a parent.
                self.mark_dehydrated(now, key);
            }
            self.reject(now, key, reason);
        }
    }

    /// Reject an entity (decision 14): STOP_SENDING, an 0xC0 ERROR, and STATUS FAILED or what its
    /// policy says; above layer 0 a dehydrated entity's STATUS waits.
    pub(super) fn reject(&mut self, now: Now, key: EntityKey, reason: Reason) {
        let waits = self.layer() > 0;
        if self.inbound(key).is_none_or(|entity| entity.payload == Payload::Failed)
            || self.await_retry(now, key, &reason)
        {
            return;
        }
        let Some(entity) = self.inbound_mut(key) else { return };
        entity.payload = Payload::Failed;
        entity.void_token();
        let waits = waits && entity.dehydrated;
        entity.reason = Some(Box::new(reason.clone()));
        self.drop_streams(key, reason.code);
        self.send_error(key, &reason);
        if waits {
            self.orphans.recheck(key.entity);
            self.settle_parent(now, key);
        } else {
            self.end_failed(now, key, Some(reason));
        }
    }

    /// Stop the streams of an entity's payload.
    pub(super) fn drop_streams(&mut self, key: EntityKey, code: ErrorCode) {
        let Some(entity) = self.inbound_mut(key) else { return };
        let streams = match std::mem::take(&mut entity.streams) {
            Streams::None => Vec::new(),
            Streams::Former => {
                // The peer still sends the streams once more.
                entity.streams = Streams::Former;
                Vec::new()
            }
            Streams::Whole(stream) => vec![stream],
            Streams::Chunks { streams, .. } => streams,
        };
        for stream in streams {
            self.stop_stream(stream, code);
        }
        // A dehydrated entity's held header must still bind its children's scope.
        if !self.inbound(key).is_some_and(|entity| entity.dehydrated && entity.child.is_none()) {
            self.stop_held(key, code);
        }
    }

    /// Send the terminal STATUS of a dehydrated entity, once its payload is decided and its children are gathered.
    pub(super) fn settle_parent(&mut self, now: Now, key: EntityKey) {
        let Some(entity) = self.inbound_mut(key) else { return };
        let Some(outcome) = entity.gathered else { return };
        match entity.payload {
            Payload::Delivered if outcome == Status::Complete => {
                self.resolve_received(now, key, Status::Complete, None)
            }
            Payload::Delivered => {
                let reason = Reason { code: ErrorCode::NoError, message: "not every child is COMPLETE".to_owned() };
                self.end_failed(now, key, Some(reason));
            }
            Payload::Failed => {
                let reason = entity.reason.take().map(|reason| *reason);
                self.end_failed(now, key, reason);
            }
            Payload::Awaited | Payload::Receiving | Payload::SetAside => {}
        }
    }

    /// Set a received entity's terminal status and send it to the owner, with the cursor if that moved (decision 8).
    pub(super) fn resolve_received(&mut self, now: Now, key: EntityKey, status: Status, reason: Option<Reason>) {
        self.resolve_with(now, key, status, reason, None);
    }

    pub(super) fn resolve_with(
        &mut self,
        now: Now,
        key: EntityKey,
        status: Status,
        reason: Option<Reason>,
        extension: Option<Extension>,
    ) {
        self.stop_timer(key);
        let Some(entity) = self.inbound(key) else { return };
        let (parent_id, failures) = (entity.parent_id, entity.failures());
        let Some(scope) = self.inbound.get_mut(&key.scope) else { return };
        let (depth, parent) = (scope.depth.unwrap_or(0), scope.parent);
        let Some(moved) = scope.resolve(key.entity, status) else { return };
        let cursor = moved.then(|| scope.cursor());
        self.open_received -= 1;
        match status {
            Status::Complete => self.counters.completed += 1,
            Status::Deferred => self.counters.deferred += 1,
            Status::Skipped => self.counters.skipped += 1,
            Status::Failed
            | Status::Abandoned
            | Status::Unspecified
            | Status::Pending
            | Status::Processing
            | Status::Checkpoint
            | Status::Dehydrating
            | Status::Rehydrating
            | Status::Yielded
            | Status::Retrying => self.counters.failed += 1,
        }
        self.gathering.remove(key.entry());
        self.send_status_with(now, key, status, depth, cursor, extension);
        let parent_id = parent.map_or(parent_id, |parent| parent.entity);
        let attempts = failures.saturating_add(1);
        self.events.push_back(Event::Resolved { key, parent_id, status, reason, failures, attempts, owned: false });
        self.child_resolved(now, key, parent, parent_id, status);
        self.evaluate_checkpoints(now);
        self.advance_close();
    }
}
