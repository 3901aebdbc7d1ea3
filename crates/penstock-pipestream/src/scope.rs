//! A scope: the entities of one ID space, from the cursor to the last announced one, and a summary of those before the
//! cursor for the digest (sections 9.1 and 9.4).
//!
//! Both ends keep the same structure; each stores its own data about an entity in it. Entities
//! before the cursor are removed: their statuses are folded into the Merkle tree and four counters,
//! so that memory is bounded by the window, however many entities pass.
//!
//! ```text
//!   position  0 ............ base ................. announced
//!             └── in the tree ──┘└── slots (window) ──┘
//!                              cursor              next
//! ```

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::ScopeDigest;
use crate::entity_id::{MODULUS, distance, is_assignable, is_before, is_cursor, ordinal_distance};
use crate::manifest::ResolutionState;
use crate::merkle::MerkleTree;
use crate::policy::Policy;
use crate::session::{EntityKey, ScopeKey};
use crate::status::Status;

/// The number of IDs: 1 to MODULUS - 1.
const IDS: u64 = MODULUS as u64 - 1;

/// An upper bound on the positions of a scope, which no scope can reach.
const MAX_POSITION: u64 = 1 << 62;

/// The state of an ID in a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Announced, without a terminal status.
    Open,
    /// Has a terminal status, or is before the cursor.
    Resolved,
    /// Not announced yet.
    Ahead,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Slot<E> {
    status: Option<Status>,
    entity: E,
}

/// One use of a scope ID.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Scope<E> {
    key: ScopeKey,
    /// The scope's depth; `None` until the first STATUS states it or the scope is bound to its
    /// parent (decision 10).
    pub(crate) depth: Option<u8>,
    /// The entity that was taken apart into this scope; `None` for a root scope, and until it is bound.
    pub(crate) parent: Option<EntityKey>,
    /// Whether the owner has ended the announcements (BARRIER S=0).
    pub(crate) ended: bool,
    /// Whether the receiver has sent a digest that equals ours.
    pub(crate) digest_agreed: bool,
    /// The parent that a BARRIER S=0 has named before the scope was bound.
    pub(crate) awaited_barrier: Option<u32>,
    /// The policy for its entities; `None` means STRICT, without retries and timeouts (layer 2).
    pub(crate) policy: Option<Box<Policy>>,
    first: u64,
    base: u64,
    slots: VecDeque<Slot<E>>,
    open: u64,
    tree: MerkleTree,
    succeeded: u64,
    failed: u64,
    deferred: u64,
}

impl<E> Scope<E> {
    pub(crate) fn root(scope: u16) -> Self {
        Self::starting_at(ScopeKey { scope, scope_use: 0 }, Some(0), None, 0)
    }

    pub(crate) fn child(key: ScopeKey, depth: Option<u8>, parent: Option<EntityKey>) -> Self {
        Self::starting_at(key, depth, parent, 0)
    }

    /// Make a scope whose first ID is that of position `first`, as after a long life, for the tests of wrap-around.
    pub(crate) fn starting_at(key: ScopeKey, depth: Option<u8>, parent: Option<EntityKey>, first: u64) -> Self {
        Self {
            key,
            depth,
            parent,
            ended: false,
            digest_agreed: false,
            awaited_barrier: None,
            policy: None,
            first,
            base: first,
            slots: VecDeque::new(),
            open: 0,
            tree: MerkleTree::new(),
            succeeded: 0,
            failed: 0,
            deferred: 0,
        }
    }

    pub(crate) fn key(&self) -> ScopeKey {
        self.key
    }

    /// Return whether restored state is consistent.
    pub(crate) fn is_sound(&self) -> bool {
        let open = self.slots.iter().filter(|slot| slot.status.is_none()).count() as u64;
        self.first <= self.base && self.base < MAX_POSITION && self.open == open && self.tree.len() <= self.base
    }

    /// Return whether the scope's position in the tree is known: a root scope's is known from the
    /// start.
    pub(crate) fn is_bound(&self) -> bool {
        self.key.scope < 2 || self.parent.is_some()
    }

    /// Return whether the owner's BARRIER has arrived, even if that was before the scope was bound.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended || self.awaited_barrier.is_some()
    }

    /// Return how many entities were announced so far, which is also the position of the next one.
    pub(crate) fn announced(&self) -> u64 {
        self.next_position() - self.first
    }

    /// Return how many entities before the cursor are COMPLETE, and how many were announced so far.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.succeeded, self.announced())
    }

    fn next_position(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    /// Return the lowest unresolved ID, or the next unassigned one (decision 8).
    pub(crate) fn cursor(&self) -> u32 {
        id_at(self.base)
    }

    pub(crate) fn next_id(&self) -> u32 {
        id_at(self.next_position())
    }

    /// Return the number of entities without a terminal status.
    pub(crate) fn open(&self) -> u64 {
        self.open
    }

    /// Return whether the next entity would be outside the window (section 9.1, rule 3).
    pub(crate) fn is_full(&self, max_window: u32) -> bool {
        distance(self.cursor(), self.next_id()) >= max_window
    }

    /// Return the position of an ID, if it can be determined: circular order applies only below half of the ID space.
    fn position(&self, id: u32) -> Option<u64> {
        let cursor = self.cursor();
        if id == cursor || is_before(cursor, id) {
            return Some(self.base + u64::from(ordinal_distance(cursor, id)));
        }
        self.base.checked_sub(u64::from(ordinal_distance(id, cursor)))
    }

    pub(crate) fn place(&self, id: u32) -> Place {
        match self.position(id) {
            // An ID numerically before the first one of a young scope is far ahead.
            None => Place::Ahead,
            Some(position) if position < self.base => {
                if position < self.first {
                    Place::Ahead
                } else {
                    Place::Resolved
                }
            }
            Some(position) => match self.slots.get((position - self.base) as usize) {
                None => Place::Ahead,
                Some(Slot { status: Some(_), .. }) => Place::Resolved,
                Some(Slot { status: None, .. }) => Place::Open,
            },
        }
    }

    /// Return the name of an entity that is open, or resolved but still in the window.
    pub(crate) fn entity_key(&self, id: u32) -> EntityKey {
        let position = self.position(id).unwrap_or(self.base);
        EntityKey {
            scope: self.key.scope,
            scope_use: self.key.scope_use,
            entity: id,
            entity_use: (position / IDS) as u32,
        }
    }

    /// Return the data of an open entity.
    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut E> {
        let index = self.position(id)?.checked_sub(self.base)? as usize;
        self.slots.get_mut(index).filter(|slot| slot.status.is_none()).map(|slot| &mut slot.entity)
    }

    pub(crate) fn get(&self, id: u32) -> Option<&E> {
        let index = self.position(id)?.checked_sub(self.base)? as usize;
        self.slots.get(index).filter(|slot| slot.status.is_none()).map(|slot| &slot.entity)
    }

    /// Add the next entity and return its name.
    pub(crate) fn announce(&mut self, entity: E) -> EntityKey {
        let id = self.next_id();
        self.slots.push_back(Slot { status: None, entity });
        self.open += 1;
        self.entity_key(id)
    }

    /// Set the terminal status of an open entity. Return `Some(true)` if that moved the cursor,
    /// `None` if the entity is not open (decision 8: the first terminal status is kept).
    pub(crate) fn resolve(&mut self, id: u32, status: Status) -> Option<bool> {
        let index = self.position(id)?.checked_sub(self.base)? as usize;
        let slot = self.slots.get_mut(index).filter(|slot| slot.status.is_none())?;
        slot.status = Some(status);
        self.open -= 1;
        let mut moved = false;
        while let Some(Slot { status: Some(status), .. }) = self.slots.front() {
            let status = *status;
            self.tree.push(id_at(self.base), status);
            self.count(status);
            self.slots.pop_front();
            self.base += 1;
            moved = true;
        }
        Some(moved)
    }

    fn count(&mut self, status: Status) {
        match status {
            Status::Complete => self.succeeded += 1,
            Status::Failed | Status::Abandoned => self.failed += 1,
            Status::Deferred => self.deferred += 1,
            Status::Skipped
            | Status::Unspecified
            | Status::Pending
            | Status::Processing
            | Status::Checkpoint
            | Status::Dehydrating
            | Status::Rehydrating
            | Status::Yielded
            | Status::Retrying => {}
        }
    }

    /// Return whether a cursor from the receiver is valid (decision 8).
    pub(crate) fn accepts_cursor(&self, value: u32) -> bool {
        is_cursor(value, self.cursor(), self.next_id())
    }

    /// Return the position after the last entity that `id` covers, in the circular order of section
    /// 9.3; 0 and IDs after the next one cover all entities announced so far (decision 13).
    pub(crate) fn covered_by(&self, id: u32) -> u64 {
        match Some(id).filter(|id| is_assignable(*id)).and_then(|id| self.position(id)) {
            Some(position) if position < self.next_position() => position + 1,
            _ => self.next_position(),
        }
    }

    /// Return whether every entity before a position is terminal.
    pub(crate) fn resolved_up_to(&self, position: u64) -> bool {
        // The cursor passes resolved entities immediately, so everything before it is resolved.
        self.base >= position
    }

    pub(crate) fn position_of(&self, key: EntityKey) -> u64 {
        u64::from(key.entity_use) * IDS + u64::from(key.entity) - 1
    }

    /// Return the first position from `from` up to `to` whose entity is open and does not satisfy `known`; otherwise
    /// `to`.
    pub(crate) fn first_without(&self, from: u64, to: u64, known: impl Fn(&E) -> bool) -> u64 {
        let from = from.max(self.base);
        let skip = (from - self.base) as usize;
        let take = to.saturating_sub(from) as usize;
        let unknown =
            self.slots.iter().skip(skip).take(take).position(|slot| slot.status.is_none() && !known(&slot.entity));
        unknown.map_or(from.max(to), |index| from + index as u64)
    }

    /// Return the open entities in the order of their IDs.
    pub(crate) fn iter_open(&self) -> impl Iterator<Item = (EntityKey, &E)> {
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.status.is_none())
            .map(|(index, slot)| (key_at(self.key, self.base + index as u64), &slot.entity))
    }

    /// Return the open entities in the order of their IDs, for changes.
    pub(crate) fn iter_open_mut(&mut self) -> impl Iterator<Item = (EntityKey, &mut E)> {
        let (base, key) = (self.base, self.key);
        self.slots
            .iter_mut()
            .enumerate()
            .filter(|(_, slot)| slot.status.is_none())
            .map(move |(index, slot)| (key_at(key, base + index as u64), &mut slot.entity))
    }

    /// Return the digest over all entities before the cursor; meaningful once no entity is open
    /// (section 9.4).
    pub(crate) fn digest(&self) -> ScopeDigest {
        ScopeDigest {
            scope_id: self.key.scope,
            processed: self.tree.len(),
            succeeded: self.succeeded,
            failed: self.failed,
            deferred: self.deferred,
            merkle_root: self.tree.root(),
        }
    }

    /// Return the state of the parent under the policy; below layer 2 it is STRICT: FAILED if an entity is not COMPLETE
    /// (decision 11).
    pub(crate) fn outcome(&self) -> ResolutionState {
        self.policy.as_deref().unwrap_or(&Policy::STRICT).outcome(self.tree.len(), self.succeeded)
    }
}

/// Return the name of the entity at a position.
fn key_at(scope: ScopeKey, position: u64) -> EntityKey {
    EntityKey {
        scope: scope.scope,
        scope_use: scope.scope_use,
        entity: id_at(position),
        entity_use: (position / IDS) as u32,
    }
}

/// Return the ID at a position: IDs go from 1 to MODULUS - 1 and then from 1 again.
fn id_at(position: u64) -> u32 {
    (position % IDS) as u32 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope_at(first: u64) -> Scope<()> {
        Scope::starting_at(ScopeKey { scope: 0, scope_use: 0 }, Some(0), None, first)
    }

    #[test]
    fn ids_start_at_one_and_the_cursor_follows_the_lowest_open_one() {
        let mut scope = Scope::<()>::root(0);
        assert_eq!((scope.cursor(), scope.next_id()), (1, 1));
        for id in 1..=3 {
            assert_eq!(scope.announce(()).entity, id);
        }
        assert_eq!(scope.resolve(2, Status::Complete), Some(false));
        assert_eq!(scope.cursor(), 1);
        assert_eq!(scope.resolve(1, Status::Failed), Some(true));
        assert_eq!(scope.cursor(), 3);
        assert_eq!(scope.resolve(1, Status::Complete), None, "the first terminal status stands");
        assert_eq!(scope.resolve(3, Status::Complete), Some(true));
        assert_eq!(scope.cursor(), 4);
        let digest = scope.digest();
        assert_eq!((digest.processed, digest.succeeded, digest.failed), (3, 2, 1));
        assert_eq!(scope.outcome(), ResolutionState::Failed);
    }

    #[test]
    fn the_window_is_the_distance_from_the_cursor() {
        let mut scope = Scope::<()>::root(0);
        for _ in 0..4 {
            assert!(!scope.is_full(4));
            scope.announce(());
        }
        assert!(scope.is_full(4));
        scope.resolve(1, Status::Complete);
        assert!(!scope.is_full(4));
    }

    #[test]
    fn ids_wrap_past_the_reserved_ones_and_get_a_new_use() {
        let mut scope = scope_at(IDS - 2);
        let keys: Vec<_> = (0..4).map(|_| scope.announce(())).collect();
        let ids: Vec<_> = keys.iter().map(|key| (key.entity, key.entity_use)).collect();
        assert_eq!(ids, [(0xFFFF_FFFB, 0), (0xFFFF_FFFC, 0), (1, 1), (2, 1)]);
        assert_eq!(scope.place(1), Place::Open);
        assert_eq!(scope.place(3), Place::Ahead);
        assert_eq!(scope.resolve(1, Status::Complete), Some(false));
        assert_eq!(scope.resolve(0xFFFF_FFFB, Status::Complete), Some(true));
        assert_eq!(scope.resolve(0xFFFF_FFFC, Status::Complete), Some(true));
        assert_eq!(scope.cursor(), 2);
        assert_eq!(scope.place(0xFFFF_FFFC), Place::Resolved);
        assert!(scope.accepts_cursor(2) && scope.accepts_cursor(3) && !scope.accepts_cursor(1));
        for key in keys {
            assert_eq!(scope.entity_key(key.entity), key);
        }
    }

    #[test]
    fn a_reserved_id_is_no_cursor() {
        // In a young scope, and in one whose IDs wrap, where 0 lies between the cursor and the next ID.
        for first in [0, IDS - 1] {
            let mut scope = scope_at(first);
            scope.announce(());
            scope.announce(());
            assert!(scope.accepts_cursor(scope.cursor()) && scope.accepts_cursor(scope.next_id()));
            for reserved in [0, MODULUS, 0xFFFF_FFFE, 0xFFFF_FFFF] {
                assert!(!scope.accepts_cursor(reserved), "{reserved} after {first}");
            }
        }
    }

    #[test]
    fn a_young_scope_takes_large_ids_for_unannounced() {
        let mut scope = Scope::<()>::root(0);
        scope.announce(());
        assert_eq!(scope.place(0xFFFF_FFFC), Place::Ahead);
        assert_eq!(scope.place(1), Place::Open);
        assert_eq!(scope.place(2), Place::Ahead);
        assert_eq!(scope.place(0x8000_0000), Place::Ahead);
    }

    #[test]
    fn a_checkpoint_covers_its_own_id_and_zero_covers_all() {
        let mut scope = Scope::<()>::root(0);
        for _ in 0..5 {
            scope.announce(());
        }
        assert_eq!(scope.covered_by(3), 3);
        assert_eq!(scope.covered_by(0), 5);
        assert_eq!(scope.covered_by(77), 5);
        assert_eq!(scope.covered_by(u32::MAX), 5);
        scope.resolve(1, Status::Complete);
        scope.resolve(3, Status::Complete);
        assert!(!scope.resolved_up_to(3));
        scope.resolve(2, Status::Complete);
        assert!(scope.resolved_up_to(3) && !scope.resolved_up_to(4));
    }
}
