//! Gathering: a parent's children are followed by the assembly manifest until all of them are terminal; then the
//! digest and the barrier go out, or, at layer 0, the CHECKPOINT moves on (decisions 10 to 12).

use std::collections::HashMap;

use super::Session;
use super::owner::entry;
use super::receiver::Payload;
use super::types::{EntityKey, Event, Reason, ScopeKey};
use crate::error::{Error, ErrorCode, Result};
use crate::manifest::{EntryKey, Resolution, ResolutionState};
use crate::status::Status;
use crate::time::Now;
use crate::{Barrier, Frame};

/// Scopes whose BARRIER came and parents that failed, both before the header that would have bound them, by the
/// parent's ID.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    scopes: HashMap<u32, Vec<u16>>,
    parents: HashMap<u32, Vec<EntityKey>>,
    /// The IDs that may make a pair now.
    fresh: Vec<u32>,
}

impl Orphans {
    fn add_scope(&mut self, parent_id: u32, scope_id: u16) {
        self.scopes.entry(parent_id).or_default().push(scope_id);
        self.fresh.push(parent_id);
    }

    pub(super) fn add_parent(&mut self, key: EntityKey) {
        self.parents.entry(key.entity).or_default().push(key);
        self.fresh.push(key.entity);
    }

    /// Forgets what a header has bound meanwhile.
    fn keep(&mut self, entity_id: u32, parents: Vec<EntityKey>, scopes: Vec<u16>) {
        match parents.is_empty() {
            true => drop(self.parents.remove(&entity_id)),
            false => drop(self.parents.insert(entity_id, parents)),
        }
        match scopes.is_empty() {
            true => drop(self.scopes.remove(&entity_id)),
            false => drop(self.scopes.insert(entity_id, scopes)),
        }
    }
}

impl Session {
    /// Binds a child scope to its parent, once: one scope for each parent, one parent for each scope (decision 10).
    pub(super) fn bind_scope(&mut self, now: Now, parent: EntityKey, scope_id: u16) -> Result<()> {
        let invalid = |message: String| {
            Err(Error::violation(ErrorCode::ScopeInvalid, message).at(u32::from(scope_id), parent.entity))
        };
        if scope_id < 2 || self.role.owns(scope_id) {
            return invalid(format!("scope {scope_id} cannot be a child scope of the peer's"));
        }
        match self.inbound(parent).map(|entity| entity.child) {
            Some(Some(bound)) if bound == scope_id => return Ok(()),
            Some(Some(bound)) => return invalid(format!("the parent is bound to scope {bound}, not to {scope_id}")),
            Some(None) => {}
            None => return Ok(()),
        }
        if !self.inbound.contains_key(&scope_id) && self.peer_scopes.is_released(scope_id) {
            return invalid(format!("scope {scope_id} was released and is used again before the IDs have wrapped"));
        }
        let depth = self.inbound.get(&parent.scope).and_then(|scope| scope.depth).unwrap_or(0) + 1;
        let Some(scope) = self.scope_or_unbound(scope_id) else { return Ok(()) };
        if let Some(other) = scope.parent {
            return invalid(format!("scope {scope_id} is bound to entity {} already", other.entity));
        }
        if scope.depth.is_some_and(|claimed| claimed != depth) {
            let message = format!("STATUS frames put scope {scope_id} at another depth than {depth}");
            return Err(Error::violation(ErrorCode::EntityInvalid, message).at(u32::from(scope_id), 0));
        }
        scope.depth = Some(depth);
        scope.parent = Some(parent);
        let announced: Vec<EntityKey> = scope.iter_open().map(|(key, _)| key).collect();
        let resolved = scope.announced() - announced.len() as u64;
        if let Some(entity) = self.inbound_mut(parent) {
            entity.child = Some(scope_id);
            entity.children = resolved;
        }
        for child in &announced {
            self.track_child(now, parent, *child)?;
        }
        for child in announced {
            self.admit_held(now, child)?;
        }
        self.end_bound_scope(now, scope_id)
    }

    /// A child of a bound parent: into the manifest, and counted against amplification (section 10.5, decision 11).
    pub(super) fn track_child(&mut self, now: Now, parent: EntityKey, child: EntityKey) -> Result<()> {
        let Some(entity) = self.inbound_mut(parent) else { return Ok(()) };
        entity.children += 1;
        if entity.children > entity.max_children {
            let (children, limit) = (entity.children, entity.max_children);
            if entity.payload != Payload::Failed {
                let message = format!("{children} children; for an original of its size {limit} are allowed");
                self.reject(now, parent, Reason { code: ErrorCode::EntityInvalid, message });
            }
            // The manifest stays as small as the limit; the scope itself counts the rest.
            return Ok(());
        }
        if self.gathering.contains(entry(parent)) {
            self.gathering.add_child(entry(parent), child.entity, None)?;
        }
        Ok(())
    }

    /// BARRIER S=0 of the owner (decision 11).
    pub(super) fn handle_end_of_scope(&mut self, now: Now, barrier: Barrier) -> Result<()> {
        let scope_id = barrier.barrier_id;
        let at = |error: Error| error.at(u32::from(scope_id), barrier.parent_id);
        if self.peer_scopes.is_released(scope_id) && !self.inbound.contains_key(&scope_id) {
            return Err(at(Error::violation(
                ErrorCode::ScopeInvalid,
                format!("BARRIER for scope {scope_id}, which was released"),
            )));
        }
        let Some(scope) = self.scope_or_unbound(scope_id) else { return Ok(()) };
        if scope.ended || scope.awaited_barrier.is_some() {
            return Err(at(Error::violation(ErrorCode::EntityInvalid, "a second BARRIER for a scope")));
        }
        scope.awaited_barrier = Some(barrier.parent_id);
        if scope_id < 2 || scope.parent.is_some() {
            return self.end_bound_scope(now, scope_id);
        }
        self.orphans.add_scope(barrier.parent_id, scope_id);
        self.adopt_orphaned_scopes(now)
    }

    /// Applies a BARRIER that has come, now that its scope is bound.
    fn end_bound_scope(&mut self, now: Now, scope_id: u16) -> Result<()> {
        let Some(scope) = self.inbound.get_mut(&scope_id) else { return Ok(()) };
        let Some(named) = scope.awaited_barrier.take() else { return Ok(()) };
        let parent = scope.parent;
        if named != parent.map_or(0, |parent| parent.entity) {
            let message = format!("BARRIER names entity {named} as the parent of scope {scope_id}");
            return Err(Error::violation(ErrorCode::ScopeInvalid, message).at(u32::from(scope_id), named));
        }
        scope.ended = true;
        if let Some(parent) = parent.filter(|parent| self.gathering.contains(entry(*parent))) {
            self.gathering.seal(entry(parent))?;
        }
        self.gather(now, scope_id);
        Ok(())
    }

    /// A scope whose parent failed before its header came is bound by its BARRIER, and its entities fail with the
    /// parent (decision 10). A child that fails so may itself be a parent without a header, hence the loop.
    pub(super) fn adopt_orphaned_scopes(&mut self, now: Now) -> Result<()> {
        while let Some(entity_id) = self.orphans.fresh.pop() {
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

    /// A scope that waits for this parent, and the dehydrated entity of that ID that failed without a header, one
    /// level above the scope.
    fn orphaned_pair(&mut self, entity_id: u32) -> Option<(u16, EntityKey)> {
        let parents = self.orphans.parents.get(&entity_id)?;
        let headless: Vec<EntityKey> = parents
            .iter()
            .copied()
            .filter(|key| self.inbound(*key).is_some_and(|entity| !entity.header_seen && entity.child.is_none()))
            .collect();
        let waiting: Vec<u16> = self
            .orphans
            .scopes
            .get(&entity_id)
            .map(|scopes| scopes.iter().copied().filter(|scope| self.waits_for_parent(*scope)).collect())
            .unwrap_or_default();
        let pair = waiting.iter().find_map(|scope_id| {
            let depth = self.inbound.get(scope_id)?.depth;
            let fits = |key: &&EntityKey| {
                let above = self.inbound.get(&key.scope).filter(|scope| scope.is_bound()).and_then(|scope| scope.depth);
                above.is_some_and(|above| depth.is_none_or(|depth| above + 1 == depth))
            };
            headless.iter().find(fits).map(|key| (*scope_id, *key))
        });
        self.orphans.keep(entity_id, headless, waiting);
        pair
    }

    fn waits_for_parent(&self, scope_id: u16) -> bool {
        self.inbound.get(&scope_id).is_some_and(|scope| !scope.is_bound() && scope.awaited_barrier.is_some())
    }

    /// What a child's terminal status means for its parent.
    pub(super) fn child_resolved(
        &mut self,
        now: Now,
        key: EntityKey,
        parent: Option<EntityKey>,
        parent_id: u32,
        status: Status,
    ) {
        let tracked = match parent {
            Some(parent) => Some(entry(parent)),
            // Above layer 0 a parent in a root scope says where an entity came from, and nothing waits for it.
            None => {
                Some(EntryKey { scope: key.scope, entity: parent_id }).filter(|_| parent_id != 0 && self.layer() == 0)
            }
        };
        if let Some(tracked) = tracked.filter(|tracked| self.gathering.contains(*tracked)) {
            // Refused is only a child beyond the limit on children, which the manifest was never told of.
            let _untracked = self.gathering.complete_child(now, tracked, key.entity, status);
        }
        if self.layer() == 0 {
            self.advance_level_zero(now);
        }
        self.gather(now, key.scope);
    }

    /// Releases a scope whose announcements have ended and whose entities are all terminal: SCOPE_DIGEST, BARRIER
    /// S=1, and then it is the parent's turn (decision 11).
    pub(super) fn gather(&mut self, now: Now, scope_id: u16) {
        let Some(scope) = self.inbound.get_mut(&scope_id) else { return };
        if !scope.ended || scope.open() > 0 || scope.digest_agreed {
            return;
        }
        // For a root scope, which stays, this says that its BARRIER has been answered.
        scope.digest_agreed = true;
        if self.layer() > 0 {
            // The scope has said the same: what is resolved leaves the manifest, in the heap's order.
            while self.gathering.pop_resolved().is_some() {}
        }
        let Some(scope) = self.inbound.get(&scope_id) else { return };
        let (key, parent, digest, outcome) = (scope.key(), scope.parent, scope.digest(), scope.strict_outcome());
        self.send_frame(&Frame::ScopeDigest(digest.clone()));
        self.events.push_back(Event::Digest { digest: digest.clone(), by_peer: false });
        self.send_barrier(Barrier {
            released: true,
            barrier_id: scope_id,
            parent_id: parent.map_or(0, |parent| parent.entity),
        });
        self.announce_gathered(parent, key, Some(digest), outcome);
        if let Some(parent) = parent {
            self.inbound.remove(&scope_id);
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

    /// A level-zero parent whose children are all terminal (decision 12).
    pub(super) fn gather_level_zero(&mut self, now: Now, resolution: &Resolution) {
        let Some(scope) = self.inbound.get(&resolution.key.scope) else { return };
        let key = scope.entity_key(resolution.key.entity);
        let outcome = match resolution.state {
            ResolutionState::Resolved => Status::Complete,
            ResolutionState::Active | ResolutionState::Partial | ResolutionState::Failed => Status::Failed,
        };
        self.announce_gathered(Some(key), key.scope_key(), None, outcome);
        self.settle_parent(now, key);
    }

    /// Entries of the manifest that were open for too long (decision "Reference notes": 3600 s): what has not come of
    /// the parent and its children fails, and the entry starts anew to wait for the BARRIER.
    pub(super) fn expire_entries(&mut self, now: Now) {
        for expired in self.gathering.handle_timeout(now) {
            self.counters.expired_entries += 1;
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
                // A limit that has just been freed by one entry has room for it again.
                let reopened = self.gathering.open(now, expired);
                debug_assert!(reopened.is_ok(), "{reopened:?}");
            }
        }
        // Of what we sent only our record goes: the receiver decides what becomes of the entity.
        self.counters.expired_entries += self.sent.handle_timeout(now).len() as u64;
    }
}
