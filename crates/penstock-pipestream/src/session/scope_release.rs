//! Gathering: the assembly manifest tracks a parent's children until all of them are terminal; then the digest and the
//! barrier are sent, or, at layer 0, the CHECKPOINT proceeds (decisions 10 to 12).

use std::time::Duration;

use super::Session;
use super::binding::Clues;
use super::counters::Limit;
use super::inbound::Payload;
use super::types::{EntityKey, Event, Layer2Event, Reason, ScopeKey};
use crate::error::{Error, ErrorCode, Result, Violation};
use crate::manifest::{EntryKey, Resolution, ResolutionState};
use crate::status::Status;
use crate::time::Now;
use crate::{Barrier, Frame};

impl Session {
    /// Bind a child scope to its parent, once: each parent has one scope, and each scope one parent (decision 10).
    pub(super) fn bind_scope(&mut self, now: Now, parent: EntityKey, scope_id: u16) -> Result<()> {
        let invalid = |violation: Violation| Err(Error::from(violation).at(u32::from(scope_id), parent.entity));
        if scope_id < 2 || self.role.owns(scope_id) {
            return invalid(Violation::ChildScope { scope: scope_id });
        }
        match self.inbound(parent).map(|entity| entity.child) {
            Some(Some(bound)) if bound == scope_id => return Ok(()),
            Some(Some(bound)) => return invalid(Violation::ParentBound { bound, scope: scope_id }),
            Some(None) => {}
            None => return Ok(()),
        }
        if !self.inbound.contains_key(&scope_id) && self.peer_scopes.is_released(scope_id) {
            return invalid(Violation::ScopeReused { scope: scope_id });
        }
        let depth = self.inbound.get(&parent.scope).and_then(|scope| scope.depth).unwrap_or(0) + 1;
        let clues = self.inbound.get(&scope_id).map(Clues::of);
        let Some(scope) = self.scope_or_unbound(scope_id) else { return Ok(()) };
        if let Some(other) = scope.parent {
            return invalid(Violation::ScopeBound { scope: scope_id, entity: other.entity });
        }
        if scope.depth.is_some_and(|claimed| claimed != depth) {
            return Err(Error::from(Violation::ScopeDepth { scope: scope_id, depth }).at(u32::from(scope_id), 0));
        }
        scope.depth = Some(depth);
        scope.parent = Some(parent);
        let policy = self.inbound(parent).and_then(|entity| entity.policy.clone());
        let Some(scope) = self.inbound.get_mut(&scope_id) else { return Ok(()) };
        scope.policy = policy;
        let announced: Vec<EntityKey> = scope.iter_open().map(|(key, _)| key).collect();
        let resolved = scope.announced() - announced.len() as u64;
        if let Some(entity) = self.inbound_mut(parent) {
            entity.child = Some(scope_id);
            entity.children = resolved;
        }
        self.orphans.remove_parent(parent);
        self.unbound.remove_parent(parent.entity, depth - 1);
        if let Some(clues) = clues {
            self.unbound.remove_scope(clues);
        }
        // Another scope that could have had this parent needs a different one.
        self.unbound
            .check(Some(depth), Some(parent.entity))
            .map_err(|error| error.at(u32::from(scope_id), parent.entity))?;
        for child in &announced {
            self.track_child(now, parent, *child)?;
            if self.resilience.last_pending != Some(*child) {
                self.start_timer(now, *child, Duration::ZERO);
            }
        }
        for child in announced {
            self.admit_held(now, child)?;
            // An entity that failed without a header may be assigned its scope now.
            self.orphans.recheck(child.entity);
        }
        self.end_bound_scope(now, scope_id)
    }

    /// Check that a scope can be bound, after a PENDING or a BARRIER has opened it, or a BARRIER has named its parent:
    /// there must be a possible parent that is not bound yet.
    pub(super) fn expect_binding(&mut self, scope_id: u16) -> Result<()> {
        let Some(scope) = self.inbound.get(&scope_id).filter(|scope| !scope.is_bound()) else { return Ok(()) };
        let clues = Clues::of(scope);
        self.unbound.add_scope(clues);
        self.unbound
            .check_scope(clues)
            .map_err(|error| error.at(u32::from(scope_id), scope.awaited_barrier.unwrap_or(0)))
    }

    /// Add a child of a bound parent to the manifest, and count it against amplification (section 10.5, decision 11).
    pub(super) fn track_child(&mut self, now: Now, parent: EntityKey, child: EntityKey) -> Result<()> {
        let Some(entity) = self.inbound_mut(parent) else { return Ok(()) };
        entity.children += 1;
        if self.limit_children(now, parent) {
            // The manifest does not track children beyond the limit; the scope itself counts them.
            return Ok(());
        }
        if self.gathering.contains(parent.entry()) {
            self.gathering.add_child(parent.entry(), child.entity, None)?;
        }
        Ok(())
    }

    /// Fail a parent that has more children than its header allows, and return whether it has.
    pub(super) fn limit_children(&mut self, now: Now, parent: EntityKey) -> bool {
        let Some(entity) =
            self.inbound(parent).filter(|entity| entity.header_seen && entity.children > entity.max_children)
        else {
            return false;
        };
        let first = entity.payload != Payload::Failed;
        let message =
            format!("{} children; for an original of its size {} are allowed", entity.children, entity.max_children);
        self.counters.exceeded(Limit::Children, u64::from(first));
        self.reject(now, parent, Reason { code: ErrorCode::EntityInvalid, message });
        true
    }

    /// Handle the owner's BARRIER S=0 (decision 11).
    pub(super) fn handle_end_of_scope(&mut self, now: Now, barrier: Barrier) -> Result<()> {
        let scope_id = barrier.barrier_id;
        let at = |error: Error| error.at(u32::from(scope_id), barrier.parent_id);
        if self.peer_scopes.is_released(scope_id) && !self.inbound.contains_key(&scope_id) {
            return Err(at(Violation::LateBarrier { scope: scope_id }.into()));
        }
        let before = self.inbound.get(&scope_id).map(Clues::of);
        let Some(scope) = self.scope_or_unbound(scope_id) else { return Ok(()) };
        if scope.is_ended() {
            return Err(at(Violation::SecondBarrier.into()));
        }
        scope.awaited_barrier = Some(barrier.parent_id);
        if scope.is_bound() {
            return self.end_bound_scope(now, scope_id);
        }
        if let Some(before) = before {
            self.unbound.remove_scope(before);
        }
        self.expect_binding(scope_id)?;
        self.orphans.add_scope(barrier.parent_id, scope_id);
        Ok(())
    }

    /// Apply a BARRIER that has arrived, now that its scope is bound.
    fn end_bound_scope(&mut self, now: Now, scope_id: u16) -> Result<()> {
        let Some(scope) = self.inbound.get_mut(&scope_id) else { return Ok(()) };
        let Some(named) = scope.awaited_barrier.take() else { return Ok(()) };
        let parent = scope.parent;
        if named != parent.map_or(0, |parent| parent.entity) {
            let violation = Violation::BarrierParent { entity: named, scope: scope_id };
            return Err(Error::from(violation).at(u32::from(scope_id), named));
        }
        scope.ended = true;
        if let Some(parent) = parent.filter(|parent| self.gathering.contains(parent.entry())) {
            self.gathering.seal(parent.entry())?;
        }
        self.gather(now, scope_id);
        Ok(())
    }

    /// Handle the consequences that a header or a frame has for other entities.
    pub(super) fn follow_up(&mut self, now: Now) -> Result<()> {
        if self.layer() == 0 {
            self.advance_level_zero(now);
        }
        self.adopt_orphaned_scopes(now)
    }

    /// Bind scopes whose parents failed before their headers arrived, by their BARRIERs; their entities fail with the
    /// parent (decision 10). A child that fails this way may itself be a parent without a header, hence the loop.
    fn adopt_orphaned_scopes(&mut self, now: Now) -> Result<()> {
        while let Some(entity_id) = self.orphans.unchecked.pop() {
            while let Some((scope_id, parent)) = self.orphaned_pair(entity_id) {
                self.bind_scope(now, parent, scope_id)?;
                let children: Vec<EntityKey> = self
                    .inbound
                    .get(&scope_id)
                    .map(|scope| scope.iter_open().map(|(key, _)| key).collect())
                    .unwrap_or_default();
                for child in children {
                    let message = "its parent failed before its header came".to_owned();
                    self.reject(now, child, Reason { code: ErrorCode::EntityInvalid, message });
                }
            }
        }
        Ok(())
    }

    /// Bind the scope of a parent that had failed before its header arrived. A BARRIER names its parent by the entity
    /// ID alone, so of two such parents each may have been assigned the other's scope. All of their entities fail in
    /// the same way, and a header that arrives too late to decide is not the peer's fault.
    pub(super) fn bind_late(&mut self, now: Now, parent: EntityKey, scope_id: u16) -> Result<()> {
        let bound = self.inbound(parent).is_none_or(|entity| entity.child.is_some());
        let taken = match self.inbound.get(&scope_id) {
            Some(scope) => scope.is_bound(),
            None => self.peer_scopes.is_released(scope_id),
        };
        if bound || taken { Ok(()) } else { self.bind_scope(now, parent, scope_id) }
    }

    /// Return a scope that waits for a parent of this ID, and the dehydrated entity that failed without a header.
    fn orphaned_pair(&mut self, entity_id: u32) -> Option<(u16, EntityKey)> {
        let parents: Vec<EntityKey> = self
            .orphans
            .parents
            .get(&entity_id)?
            .iter()
            .copied()
            .filter(|key| self.inbound(*key).is_some_and(|entity| entity.child.is_none()))
            .collect();
        let waiting: Vec<u16> = self
            .orphans
            .scopes
            .get(&entity_id)
            .map(|scopes| scopes.iter().copied().filter(|scope| self.waits_for_parent(*scope)).collect())
            .unwrap_or_default();
        let pair = waiting.iter().find_map(|scope_id| Some((*scope_id, self.failed_parent(*scope_id, &parents)?)));
        self.orphans.keep(entity_id, parents, waiting);
        pair
    }

    /// Return the parent that a scope's BARRIER means. The BARRIER names it by the entity ID alone: while one of the
    /// candidates has not failed, its header is still to come and will decide.
    fn failed_parent(&self, scope_id: u16, parents: &[EntityKey]) -> Option<EntityKey> {
        let depth = self.inbound.get(&scope_id)?.depth;
        let may_be_meant = |key: &&EntityKey| {
            let above = self.inbound.get(&key.scope).and_then(|scope| scope.depth);
            above.is_some_and(|above| depth.is_none_or(|depth| above + 1 == depth))
        };
        let failed = |key: &EntityKey| self.inbound(*key).is_some_and(|entity| entity.payload == Payload::Failed);
        let meant: Vec<EntityKey> = parents.iter().filter(may_be_meant).copied().collect();
        if !meant.iter().all(failed) {
            return None;
        }
        // There may be several candidates if an empty scope's depth is unknown: choose the one that expects this scope
        // ID, otherwise the deepest.
        let expected = |key: &&EntityKey| self.inbound(**key).is_some_and(|entity| entity.expected_child == scope_id);
        let depth_of = |key: &&EntityKey| self.inbound.get(&key.scope).and_then(|scope| scope.depth);
        let parent = meant.iter().find(expected).or_else(|| meant.iter().max_by_key(depth_of)).copied()?;
        Some(parent).filter(|key| self.inbound.get(&key.scope).is_some_and(|scope| scope.is_bound()))
    }

    fn waits_for_parent(&self, scope_id: u16) -> bool {
        self.inbound.get(&scope_id).is_some_and(|scope| !scope.is_bound() && scope.awaited_barrier.is_some())
    }

    /// Apply a child's terminal status to its parent.
    pub(super) fn child_resolved(
        &mut self,
        now: Now,
        key: EntityKey,
        parent: Option<EntityKey>,
        parent_id: u32,
        status: Status,
    ) {
        let tracked = match parent {
            Some(parent) => Some(parent.entry()),
            // Above layer 0 the parent of an entity in a root scope only states its origin, and nothing waits for the
            // entity.
            None => {
                Some(EntryKey { scope: key.scope, entity: parent_id }).filter(|_| parent_id != 0 && self.layer() == 0)
            }
        };
        if let Some(tracked) = tracked.filter(|tracked| self.gathering.contains(*tracked)) {
            // Only a child beyond the limit on children is refused, because it was never added to the manifest.
            let _untracked = self.gathering.complete_child(now, tracked, key.entity, status);
            self.close_level_zero(tracked);
        }
        if self.layer() == 0 {
            self.advance_level_zero(now);
        }
        self.gather(now, key.scope);
    }

    /// Release a scope whose announcements have ended and whose entities are all terminal: SCOPE_DIGEST, BARRIER S=1,
    /// and then settle the parent (decision 11).
    pub(super) fn gather(&mut self, now: Now, scope_id: u16) {
        let Some(scope) = self.inbound.get_mut(&scope_id) else { return };
        if !scope.ended || scope.open() > 0 || scope.digest_agreed {
            return;
        }
        // For a root scope, which stays, this records that its BARRIER was answered.
        scope.digest_agreed = true;
        if self.layer() > 0 {
            // The scope itself has the same result, so resolved entries are removed from the manifest, in the heap's
            // order.
            while self.gathering.pop_resolved().is_some() {}
        }
        let Some(scope) = self.inbound.get(&scope_id) else { return };
        let (key, parent, digest, state) = (scope.key(), scope.parent, scope.digest(), scope.outcome());
        self.send_frame(&Frame::ScopeDigest(digest.clone()));
        self.events.push_back(Event::Digest { digest: digest.clone(), by_peer: false });
        self.send_barrier(Barrier {
            released: true,
            barrier_id: scope_id,
            parent_id: parent.map_or(0, |parent| parent.entity),
        });
        if let Some(parent) = parent.filter(|_| self.layer() == 2) {
            self.push_layer2_event(Layer2Event::Outcome { parent, state, owned: false });
        }
        // A root scope's mode does not decide about the session: the caller that waits for its end needs to know
        // whether everything is COMPLETE.
        let complete = parent.is_some() || state == ResolutionState::Resolved;
        let outcome = if complete { state.status() } else { Status::Failed };
        self.announce_gathered(parent, key, Some(digest), outcome);
        if let Some(parent) = parent {
            self.note_children(parent, scope_id);
            self.inbound.remove(&scope_id);
            self.checkpoints.forget(scope_id);
            self.peer_scopes.release(scope_id);
            self.settle_parent(now, parent);
        }
        self.evaluate_checkpoints(now);
    }

    fn announce_gathered(
        &mut self,
        parent: Option<EntityKey>,
        scope: ScopeKey,
        digest: Option<crate::ScopeDigest>,
        outcome: Status,
    ) {
        if let Some(entity) = parent.and_then(|parent| self.inbound_mut(parent)) {
            entity.gathered = Some(outcome);
        }
        self.events.push_back(Event::Gathered { key: parent, scope, digest, outcome });
    }

    /// Settle a level-zero parent whose children are all terminal (decision 12).
    pub(super) fn gather_level_zero(&mut self, now: Now, resolution: &Resolution) {
        let Some(scope) = self.inbound.get(&resolution.key.scope) else { return };
        let key = scope.entity_key(resolution.key.entity);
        self.announce_gathered(Some(key), key.scope_key(), None, resolution.state.status());
        self.settle_parent(now, key);
    }

    /// Expire manifest entries that were open too long (decision "Reference notes": 3600 s): fail
    /// the parent and its open children, and open the entry again to wait for the BARRIER.
    pub(super) fn expire_entries(&mut self, now: Now) {
        for expired in self.gathering.handle_timeout(now) {
            self.counters.exceeded(Limit::ParentTime, 1);
            let Some(scope) = self.inbound.get(&expired.scope) else { continue };
            let key = scope.entity_key(expired.entity);
            let Some(child_scope) = self.inbound(key).map(|entity| entity.child) else { continue };
            let reason = Reason {
                code: ErrorCode::IdleTimeout,
                message: format!(
                    "its manifest entry was open for more than {} s",
                    self.config.manifest.max_age.as_secs()
                ),
            };
            let children: Vec<EntityKey> = child_scope
                .and_then(|scope| self.inbound.get(&scope))
                .map(|scope| scope.iter_open().map(|(key, _)| key).collect())
                .unwrap_or_default();
            self.reject(now, key, reason.clone());
            for child in children {
                self.reject(now, child, reason.clone());
            }
            if self.inbound(key).is_some() {
                // Expiring an entry has just made room, so opening it again stays within the limit.
                let reopened = self.gathering.open(now, expired);
                debug_assert!(reopened.is_ok(), "{reopened:?}");
            }
        }
        // For entities that we sent only our record is removed: the receiver decides about the entity.
        let expired = self.sent.handle_timeout(now).len() as u64;
        self.counters.exceeded(Limit::ParentTime, expired);
    }
}
