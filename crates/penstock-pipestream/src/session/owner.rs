//! The entities that we send: announcing, failing, and what the receiver reports about them.
//!
//! ```text
//!               announce()           STATUS COMPLETE or FAILED of the receiver
//!  (window) ──────────────► open ──────────────────────────────────────────────► resolved
//!                            │ ▲
//!           fail(): our FAILED │ the receiver's echo resolves it (decision 8)
//!
//!  a dehydrated one at layer 1:  open ──end_children()──► ended ──SCOPE_DIGEST, BARRIER S=1──► released ──► resolved
//! ```

use bytes::Bytes;

use super::Session;
use super::input::Input;
use super::outbound::Outbound;
use super::state::State;
use super::types::{EntityKey, Event, Layer2Event, Reason, Ticket};
use crate::entity_id::distance;
use crate::error::{Error, LimitError, Misuse, Result, Violation};
use crate::frame::{ATTEMPT, CHILD_SCOPE, DEHYDRATED, PARENT_SCOPE};
use crate::manifest::{EntryKey, ResolutionState};
use crate::messages::CompletionPolicy;
use crate::policy::Policy;
use crate::scope::{Place, Scope};
use crate::sizes::MAX_LABEL;
use crate::status::Status;
use crate::time::Now;
use crate::{Barrier, EntityHeader, Extension, Frame, ScopeDigest, StatusFrame};

impl Session {
    /// Assign the next ID and queue its PENDING, together with DEHYDRATING (decisions 7 and 9). `None` is
    /// back-pressure: [`Event::Capacity`] reports when to try again.
    ///
    /// A child is in its parent's scope at layer 1, and in the root scope at layer 0.
    ///
    /// # Errors
    ///
    /// On an error nothing was sent. DEPTH_EXCEEDED: the children would be deeper than the
    /// agreement allows. WINDOW_EXCEEDED: the scope has had as many entities as the agreement
    /// allows, or, at layer 0, the parent has more children than the window holds (decision 12).
    /// LAYER_UNSUPPORTED: a dehydrated child at layer 0. Misuse otherwise.
    pub fn announce(&mut self, now: Now, parent: Option<EntityKey>, dehydrate: bool) -> Result<Option<Ticket>> {
        self.announce_labelled(now, parent, dehydrate, None, Bytes::new())
    }

    /// Announce an entity like [`announce`](Self::announce), with a label and a policy. The label,
    /// of at most 1 KiB or empty, is stored with the session, so that the caller finds the entity
    /// after a restart. The policy applies to the children of a dehydrated entity, and is sent in
    /// its header.
    ///
    /// # Errors
    ///
    /// Errors of `announce`; misuse without layer 2, for a longer label, and for a policy of an entity that is not
    /// dehydrated; ENTITY_INVALID for an invalid policy.
    pub fn announce_labelled(
        &mut self,
        now: Now,
        parent: Option<EntityKey>,
        dehydrate: bool,
        policy: Option<&CompletionPolicy>,
        label: Bytes,
    ) -> Result<Option<Ticket>> {
        if label.len() > MAX_LABEL {
            return Err(Misuse::LabelLength { length: label.len() }.into());
        }
        if policy.is_some() || !label.is_empty() {
            self.named()?;
        }
        if policy.is_some() && !dehydrate {
            return Err(Misuse::WholePolicy.into());
        }
        let parsed = match policy {
            Some(policy) => Some((*policy, Policy::of(policy)?)),
            None => None,
        };
        let announced = self.announce_one(now, parent, dehydrate, parsed)?;
        let Some(ticket) = announced else { return Ok(None) };
        self.note(Some(now), || Input::Announce { parent, dehydrate, policy: policy.copied(), label: label.clone() });
        if let Some(entity) = self.outbound_mut(ticket.key).filter(|_| !label.is_empty()) {
            entity.layer2_mut().label = Some(label);
        }
        Ok(Some(ticket))
    }

    fn announce_one(
        &mut self,
        now: Now,
        parent: Option<EntityKey>,
        dehydrate: bool,
        policy: Option<(CompletionPolicy, Policy)>,
    ) -> Result<Option<Ticket>> {
        if self.state != State::Open {
            return Err(Misuse::NotOpen.into());
        }
        let agreement = self.agreed()?;
        let (scope_id, parent_id) = self.place_of_child(parent, dehydrate)?;
        let Some(scope) = self.outbound.get(&scope_id) else {
            return Err(Misuse::ScopeNotOpen { scope: scope_id }.into());
        };
        let depth = scope.depth.unwrap_or(0);
        if scope.ended {
            return Err(Misuse::ScopeEnded { scope: scope_id }.into());
        }
        if dehydrate && agreement.layer > 0 && depth >= agreement.max_scope_depth {
            return Err(LimitError::OwnDepth { depth, limit: agreement.max_scope_depth }.into());
        }
        if scope.announced() >= u64::from(agreement.max_entities_per_scope) {
            return Err(LimitError::OwnScopeEntities { scope: scope_id, announced: scope.announced() }.into());
        }
        if agreement.layer == 0 && parent_id != 0 && distance(parent_id, scope.next_id()) >= agreement.max_window_size {
            let limit = LimitError::OwnChildren { window: agreement.max_window_size };
            return Err(Error::from(limit).at(u32::from(scope_id), parent_id));
        }
        let full = scope.is_full(agreement.max_window_size) || self.open_owned >= self.config.max_open_entities;
        if full || self.is_unacknowledged() {
            return Ok(self.block());
        }
        let child_scope = match dehydrate && agreement.layer > 0 {
            true => match self.own_scopes.take(|scope| self.outbound.contains_key(&scope)) {
                Some(key) => Some(key),
                None => return Ok(self.block()),
            },
            false => None,
        };
        self.commit_announcement(
            now,
            scope_id,
            Outbound { parent_id, child: child_scope, dehydrated: dehydrate, ..Outbound::default() },
            policy,
        )
        .map(Some)
    }

    fn block<T>(&mut self) -> Option<T> {
        self.blocked = true;
        self.counters.blocked += 1;
        None
    }

    /// Return the scope in which a child is announced, and its parent's ID on the wire.
    fn place_of_child(&self, parent: Option<EntityKey>, dehydrate: bool) -> Result<(u16, u32)> {
        let root = self.role.root_scope();
        let Some(key) = parent else { return Ok((root, 0)) };
        let known = self.outbound(key).ok_or(Misuse::ParentNotOpen)?;
        if !known.dehydrated || known.ended {
            return Err(Misuse::WholeParent.into());
        }
        match known.child {
            Some(child) => Ok((child.scope, key.entity)),
            None if dehydrate => Err(LimitError::OneLevel.into()),
            None => Ok((root, key.entity)),
        }
    }

    fn commit_announcement(
        &mut self,
        now: Now,
        scope_id: u16,
        mut entity: Outbound,
        policy: Option<(CompletionPolicy, Policy)>,
    ) -> Result<Ticket> {
        if let Some((message, _)) = policy {
            entity.layer2_mut().policy = Some(message);
        }
        let (child, dehydrated, parent_id) = (entity.child, entity.dehydrated, entity.parent_id);
        let Some(scope) = self.outbound.get_mut(&scope_id) else {
            return Err(Misuse::ScopeNotOpen { scope: scope_id }.into());
        };
        let depth = scope.depth.unwrap_or(0);
        let parent = match scope.parent {
            Some(parent) => Some(parent.entry()),
            None => Some(EntryKey { scope: scope_id, entity: parent_id }).filter(|_| parent_id != 0),
        };
        let next = EntryKey { scope: scope_id, entity: scope.next_id() };
        if dehydrated {
            self.sent.open(now, next)?;
            if let Some((_, policy)) = policy {
                self.sent.set_policy(next, policy);
            }
        }
        let key = scope.announce(entity);
        if let Some(parent) = parent.filter(|parent| self.sent.contains(*parent)) {
            self.sent.add_child(parent, key.entity, None)?;
        }
        self.open_owned += 1;
        self.counters.announced += 1;
        self.send_status(now, key, Status::Pending, depth, None);
        if dehydrated {
            self.send_status(now, key, Status::Dehydrating, depth, None);
        }
        if dehydrated && child.is_none() {
            self.level_zero.own_open += 1;
        }
        if let Some(child) = child {
            let mut scope = Scope::child(child, Some(depth + 1), Some(key));
            scope.policy = policy.map(|(_, policy)| Box::new(policy));
            self.outbound.insert(child.scope, scope);
        }
        Ok(Ticket { key, parent_id, depth, child_scope: child })
    }

    /// Set the fields of a header that the session knows: the IDs, and the metadata of decisions 9 and 10.
    pub fn bind_header(&self, ticket: &Ticket, header: &mut EntityHeader) {
        header.entity_id = ticket.key.entity;
        header.parent_id = ticket.parent_id;
        header.scope_id = u32::from(ticket.key.scope);
        let known = self.outbound(ticket.key);
        if known.is_some_and(|entity| entity.dehydrated) {
            header.metadata.insert(DEHYDRATED.to_owned(), "1".to_owned());
        }
        if let Some(child) = ticket.child_scope {
            header.metadata.insert(CHILD_SCOPE.to_owned(), child.scope.to_string());
        }
        if let Some(policy) = known.and_then(|entity| entity.layer2.as_ref()).and_then(|layer2| layer2.policy) {
            header.completion_policy = Some(policy);
        }
        let scope = self.outbound.get(&ticket.key.scope);
        let retried = scope.and_then(|scope| scope.policy.as_deref()).is_some_and(|policy| policy.retries(0));
        if let Some(entity) = known.filter(|entity| retried && !entity.dehydrated) {
            header.metadata.insert(ATTEMPT.to_owned(), entity.attempt().to_string());
        }
        let parent = scope.and_then(|scope| scope.parent);
        if let Some(parent) = parent.filter(|parent| parent.scope != 0) {
            header.metadata.insert(PARENT_SCOPE.to_owned(), parent.scope.to_string());
        }
    }

    pub(super) fn outbound(&self, key: EntityKey) -> Option<&Outbound> {
        let scope = self.outbound.get(&key.scope).filter(|scope| scope.key() == key.scope_key())?;
        scope.get(key.entity).filter(|_| scope.entity_key(key.entity) == key)
    }

    pub(super) fn outbound_mut(&mut self, key: EntityKey) -> Option<&mut Outbound> {
        let scope = self.outbound.get_mut(&key.scope).filter(|scope| scope.key() == key.scope_key())?;
        if scope.entity_key(key.entity) != key {
            return None;
        }
        scope.get_mut(key.entity)
    }

    /// End a parent's children: BARRIER S=0 for its scope (decision 11), or a CHECKPOINT at layer 0 (decision 12).
    ///
    /// # Errors
    ///
    /// Misuse if the parent was not dehydrated, its children were ended before, or, above layer 0,
    /// it is unknown.
    pub fn end_children(&mut self, now: Now, parent: EntityKey) -> Result<()> {
        self.note(Some(now), || Input::EndChildren { parent });
        let known = self.outbound(parent).filter(|known| known.dehydrated && !known.ended);
        let child = match known {
            Some(known) => known.child,
            // At layer 0 a parent fails without waiting for its children, so there is nothing to end.
            None if self.layer() == 0 && self.outbound(parent).is_none() => return Ok(()),
            None => return Err(Misuse::NoChildren.into()),
        };
        if let Some(known) = self.outbound_mut(parent) {
            known.ended = true;
        }
        if self.sent.contains(parent.entry()) {
            self.sent.seal(parent.entry())?;
        }
        match child {
            Some(child) => self.end_scope(child.scope, parent.entity),
            None => self.end_own_level_zero(),
        }
    }

    /// End the announcements of our root scope by a BARRIER with parent 0, which is allowed but never required
    /// (decision 11); [`Event::Released`] has the digest.
    ///
    /// # Errors
    ///
    /// Misuse if they were ended before, or before the negotiation.
    pub fn end_root(&mut self, now: Now) -> Result<()> {
        self.agreed()?;
        self.note(Some(now), || Input::EndRoot);
        self.end_scope(self.role.root_scope(), 0)
    }

    fn end_scope(&mut self, scope_id: u16, parent_id: u32) -> Result<()> {
        let scope = self.outbound.get_mut(&scope_id).filter(|scope| !scope.ended);
        let Some(scope) = scope else {
            return Err(Misuse::EndedTwice { scope: scope_id }.into());
        };
        scope.ended = true;
        self.send_barrier(Barrier { released: false, barrier_id: scope_id, parent_id });
        Ok(())
    }

    pub(super) fn send_barrier(&mut self, barrier: Barrier) {
        self.events.push_back(Event::Barrier {
            barrier_id: barrier.barrier_id,
            parent_id: barrier.parent_id,
            released: barrier.released,
            by_peer: false,
        });
        self.send_frame(&Frame::Barrier(barrier));
    }

    /// Give up one of our entities that we cannot deliver (decision 8). The receiver's echo resolves it.
    pub(super) fn give_up(&mut self, now: Now, key: EntityKey, reason: Reason) {
        let status = self.give_up_status(key);
        self.give_up_as(now, key, status, reason);
    }

    /// Give up one of our entities; return `false` if it already was, or is not open.
    pub(super) fn give_up_as(&mut self, now: Now, key: EntityKey, status: Status, reason: Reason) -> bool {
        let Some(entity) = self.outbound_mut(key).filter(|entity| !entity.gave_up) else { return false };
        entity.gave_up = true;
        entity.reason = Some(Box::new(reason.clone()));
        self.note_given_up(key, status);
        let depth = self.outbound.get(&key.scope).and_then(|scope| scope.depth).unwrap_or(0);
        self.send_error(key, &reason);
        self.send_status(now, key, status, depth, None);
        true
    }

    /// Handle a STATUS of the receiver about one of our entities.
    pub(super) fn handle_receiver_status(&mut self, now: Now, frame: &StatusFrame) -> Result<()> {
        if matches!(frame.status, Status::Pending | Status::Dehydrating) {
            return Err(Violation::ForeignStatus { status: frame.status, scope: frame.scope_id }.into());
        }
        let Some(scope) = self.outbound.get_mut(&frame.scope_id) else {
            if self.own_scopes.was_used(frame.scope_id) {
                self.counters.late_statuses += 1;
                return Ok(());
            }
            return Err(Violation::UnopenedScope { scope: frame.scope_id }.into());
        };
        let depth = scope.depth.unwrap_or(0);
        if frame.depth != depth {
            return Err(Violation::Depth { depth: frame.depth, expected: depth }.into());
        }
        if let Some(cursor) = frame.cursor.filter(|cursor| !scope.accepts_cursor(*cursor)) {
            return Err(Violation::Cursor { cursor, first: scope.cursor(), next: scope.next_id() }.into());
        }
        let place = scope.place(frame.entity_id);
        if place == Place::Ahead {
            return Err(Violation::NotAnnounced.into());
        }
        let key = scope.entity_key(frame.entity_id);
        self.events.push_back(Event::Status { key, status: frame.status, depth, cursor: frame.cursor, by_peer: true });
        match frame.status {
            Status::Retrying => Err(Violation::ForeignRetrying.into()),
            Status::Yielded | Status::Deferred if place == Place::Resolved => {
                self.counters.late_statuses += 1;
                Ok(())
            }
            status if status.is_terminal() && place == Place::Resolved => {
                self.counters.late_statuses += 1;
                Ok(())
            }
            Status::Failed if self.handle_failed_attempt(key) => Ok(()),
            Status::Complete | Status::Failed | Status::Skipped | Status::Abandoned | Status::Deferred => {
                self.handle_extension(key, frame.extension.as_ref());
                self.resolve_owned(now, key, frame.status)
            }
            Status::Yielded => {
                self.handle_extension(key, frame.extension.as_ref());
                Ok(())
            }
            Status::Processing => {
                self.resume_accepted(key);
                Ok(())
            }
            // PENDING and DEHYDRATING were refused above.
            Status::Unspecified | Status::Pending | Status::Checkpoint | Status::Dehydrating | Status::Rehydrating => {
                Ok(())
            }
        }
    }

    /// Handle the extension of YIELDED and DEFERRED.
    fn handle_extension(&mut self, key: EntityKey, extension: Option<&Extension>) {
        match extension {
            Some(Extension::Yield { reason, token }) => {
                self.keep_token(key, *reason, token);
                self.push_layer2_event(Layer2Event::Yielded { key, reason: *reason, token: token.clone() });
            }
            Some(Extension::Claim { claim_id, expiry_micros }) => {
                self.push_layer2_event(Layer2Event::Deferred {
                    key,
                    claim_id: *claim_id,
                    expiry_micros: *expiry_micros,
                });
            }
            None => {}
        }
    }

    fn resolve_owned(&mut self, now: Now, key: EntityKey, status: Status) -> Result<()> {
        let Some(entity) = self.outbound_mut(key) else { return Ok(()) };
        if status == Status::Complete && entity.child.is_some() {
            // The receiver must not complete a dehydrated entity before its barrier (decision 9), or against its
            // policy, which is STRICT below layer 2 (decision 11).
            match entity.released {
                Some(ResolutionState::Resolved | ResolutionState::Partial) => {}
                Some(ResolutionState::Active | ResolutionState::Failed) => {
                    return Err(Violation::IncompleteChildren.into());
                }
                None => {
                    return Err(Violation::EarlyComplete.into());
                }
            }
        }
        self.stop_resend(key);
        let Some(entity) = self.outbound_mut(key) else { return Ok(()) };
        let unended = entity.dehydrated && entity.child.is_none() && !entity.ended;
        let (parent_id, reason) = (entity.parent_id, entity.reason.take());
        let (failures, attempts) = (entity.failures(), entity.attempts());
        let label = entity.layer2.as_mut().and_then(|layer2| layer2.label.take());
        if let (Some(replayed_outcomes), Some(label)) = (&mut self.replayed_outcomes, label) {
            replayed_outcomes.push((label, key, status));
        }
        let Some(scope) = self.outbound.get_mut(&key.scope) else { return Ok(()) };
        let parent = match scope.parent {
            Some(parent) => Some(parent.entry()),
            None => Some(EntryKey { scope: key.scope, entity: parent_id }).filter(|_| parent_id != 0),
        };
        scope.resolve(key.entity, status);
        if let Some(parent) = parent.filter(|parent| self.sent.contains(*parent)) {
            self.sent.complete_child(now, parent, key.entity, status)?;
        }
        self.sent.remove(key.entry());
        self.open_owned -= 1;
        let reason = reason.filter(|_| status != Status::Complete).map(|reason| *reason);
        self.events.push_back(Event::Resolved { key, parent_id, status, reason, failures, attempts, owned: true });
        self.capacity_came_free();
        if unended {
            // This parent at layer 0 ended before its last child was announced; other parents may
            // wait for its end.
            self.end_own_level_zero()?;
        }
        self.evaluate_checkpoints(now);
        self.advance_close();
        Ok(())
    }

    /// Handle SCOPE_DIGEST for one of our scopes: it must equal our own, otherwise the connection closes (decision 11).
    pub(super) fn handle_receiver_digest(&mut self, received: &ScopeDigest) -> Result<()> {
        let scope_id = received.scope_id;
        let at = |error: Error| error.at(u32::from(scope_id), 0);
        let Some(scope) = self.outbound.get_mut(&scope_id).filter(|_| self.role.owns(scope_id)) else {
            return Err(at(Violation::DigestScope { scope: scope_id }.into()));
        };
        if !scope.ended || scope.open() > 0 {
            return Err(at(Error::from(Violation::EarlyDigest)));
        }
        if scope.digest() != *received {
            return Err(at(Violation::Digest { scope: scope_id }.into()));
        }
        scope.digest_agreed = true;
        Ok(())
    }

    /// Handle BARRIER S=1: the receiver has released one of our scopes.
    pub(super) fn handle_release(&mut self, now: Now, barrier: Barrier) -> Result<()> {
        let scope_id = barrier.barrier_id;
        let at = |error: Error| error.at(u32::from(scope_id), barrier.parent_id);
        let Some(scope) = self.outbound.get_mut(&scope_id) else {
            return Err(at(Violation::ReleasedScope { scope: scope_id }.into()));
        };
        if barrier.parent_id != scope.parent.map_or(0, |parent| parent.entity) {
            return Err(at(Error::from(Violation::ReleasedParent)));
        }
        if !scope.digest_agreed {
            return Err(at(Error::from(Violation::EarlyRelease)));
        }
        scope.digest_agreed = false;
        let (key, parent, depth, digest) = (scope.key(), scope.parent, scope.depth.unwrap_or(0), scope.digest());
        let state = scope.outcome();
        self.events.push_back(Event::Released { scope: key, parent, depth, digest });
        if let Some(parent) = parent {
            self.outbound.remove(&scope_id);
            self.checkpoints.forget(scope_id);
            if let Some(entity) = self.outbound_mut(parent) {
                entity.released = Some(state);
            }
            if self.layer() == 2 {
                self.push_layer2_event(Layer2Event::Outcome { parent, state, owned: true });
            }
            while self.sent.pop_resolved().is_some() {}
            self.capacity_came_free();
        }
        self.evaluate_checkpoints(now);
        self.advance_close();
        Ok(())
    }
}
