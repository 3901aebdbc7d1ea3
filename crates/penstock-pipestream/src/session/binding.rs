//! The check that the peer's scopes can still be bound (decisions 10 and 14).
//!
//! The owner announces a parent, with DEHYDRATING, before anything of its children's scope, and stream 0 keeps that
//! order. So each scope that a PENDING or a BARRIER has opened has its parent among the open entities that are
//! DEHYDRATING and not bound, and no two scopes share one. If there are fewer such parents than scopes, no later header
//! can correct that: the connection closes immediately.
//!
//! A scope may have any of those parents, until a BARRIER names the parent's ID; its depth, if a PENDING has stated it,
//! is one more than its parent's. So four pairs of counts are compared, each in constant time: all, those of one ID,
//! those of one depth, and those of both. A depth without a possible parent is ENTITY_INVALID; any other shortage is
//! SCOPE_INVALID.
//!
//! The counts suffice while scopes are known either by their depth alone, or by the parent's ID alone. If there are
//! both kinds, they compete for parents, and a set of depths together with some IDs may need more parents than there
//! are at one of the depths or with one of the IDs (Hall's theorem). For a set of depths, an ID adds to the shortage
//! the number of its scopes in excess of its parents at the other depths; the sum over all IDs is kept for each of the
//! sets.

use penstock_wire::FastMap;

use super::inbound::Inbound;
use crate::error::{Result, Violation};
use crate::scope::Scope;

/// The number of depths that STATUS frames can name.
const DEPTHS: usize = 8;
/// The number of sets of depths, each of which is a bit mask.
const SETS: usize = 1 << DEPTHS;

/// Parents that can bind, and scopes that must be bound.
#[derive(Debug, Clone, Copy, Default)]
struct Balance {
    parents: u32,
    scopes: u32,
}

impl Balance {
    const fn is_short(self) -> bool {
        self.scopes > self.parents
    }

    fn lacks(self) -> i64 {
        i64::from(self.scopes) - i64::from(self.parents)
    }
}

/// The parents and scopes with one entity ID, which for scopes comes from the BARRIER.
#[derive(Debug, Clone, Default)]
struct OfId {
    all: Balance,
    by_depth: [Balance; DEPTHS],
}

impl OfId {
    /// Return, for each set of depths, how many more parents the scopes of this ID alone need than it has at the other
    /// depths. `None`: there are no such scopes.
    fn lacks(&self) -> Option<[i64; SETS]> {
        let placed: u32 = self.by_depth.iter().map(|balance| balance.scopes).sum();
        if self.all.scopes <= placed {
            return None;
        }
        let taken = sums(self.by_depth.map(|balance| -balance.lacks()));
        Some(taken.map(|taken| (taken + self.all.lacks()).max(0)))
    }
}

/// Return, for each set of depths, the sum of the values of its depths.
fn sums(values: [i64; DEPTHS]) -> [i64; SETS] {
    let mut sums = [0; SETS];
    for (depth, value) in values.into_iter().enumerate() {
        let (without, with) = sums.split_at_mut(1 << depth);
        for (with, without) in with.iter_mut().zip(without) {
            *with = *without + value;
        }
    }
    sums
}

/// Counts of everything that is not bound. Depths are those of the children's scopes.
#[derive(Debug, Clone, Default)]
pub(super) struct Unbound {
    all: Balance,
    by_id: FastMap<u32, OfId>,
    by_depth: [Balance; DEPTHS],
    /// For each set of depths, the sum of [`OfId::lacks`] over all IDs. Empty until it is needed.
    lacking: Vec<i64>,
}

/// Known properties of a scope without a parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clues {
    /// The depth in its STATUS frames.
    depth: Option<u8>,
    /// The parent's ID, by its BARRIER.
    parent_id: Option<u32>,
}

impl Clues {
    pub(super) fn of<E>(scope: &Scope<E>) -> Self {
        Self { depth: scope.depth, parent_id: scope.awaited_barrier }
    }
}

/// Whether to increment or decrement a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    More,
    Fewer,
}

impl Change {
    const fn apply(self, count: &mut u32) {
        *count = match self {
            Self::More => count.saturating_add(1),
            Self::Fewer => count.saturating_sub(1),
        };
    }
}

impl Unbound {
    /// Count the scopes of a restored session.
    pub(super) fn count<'a>(scopes: impl IntoIterator<Item = &'a Scope<Inbound>>) -> Self {
        let mut unbound = Self::default();
        for scope in scopes {
            if !scope.is_bound() {
                unbound.add_scope(Clues::of(scope));
            }
            let Some(depth) = scope.depth else { continue };
            for (key, entity) in scope.iter_open() {
                if entity.dehydrated && entity.child.is_none() {
                    unbound.add_parent(key.entity, depth);
                }
            }
        }
        unbound
    }

    /// Add an entity of a scope at this depth that has children in a scope that is not known yet.
    pub(super) fn add_parent(&mut self, entity_id: u32, depth: u8) {
        self.change(Change::More, Some(depth.saturating_add(1)), Some(entity_id), |balance| &mut balance.parents);
    }

    pub(super) fn remove_parent(&mut self, entity_id: u32, depth: u8) {
        self.change(Change::Fewer, Some(depth.saturating_add(1)), Some(entity_id), |balance| &mut balance.parents);
    }

    pub(super) fn add_scope(&mut self, Clues { depth, parent_id }: Clues) {
        self.change(Change::More, depth, parent_id, |balance| &mut balance.scopes);
    }

    pub(super) fn remove_scope(&mut self, Clues { depth, parent_id }: Clues) {
        self.change(Change::Fewer, depth, parent_id, |balance| &mut balance.scopes);
    }

    fn change(&mut self, change: Change, depth: Option<u8>, id: Option<u32>, count: impl Fn(&mut Balance) -> &mut u32) {
        let at = depth.map(usize::from);
        change.apply(count(&mut self.all));
        if let Some(balance) = at.and_then(|at| self.by_depth.get_mut(at)) {
            change.apply(count(balance));
        }
        let Some(id) = id else { return };
        let of_id = self.by_id.entry(id).or_default();
        let before = of_id.lacks();
        change.apply(count(&mut of_id.all));
        if let Some(balance) = at.and_then(|at| of_id.by_depth.get_mut(at)) {
            change.apply(count(balance));
        }
        let after = of_id.lacks();
        if of_id.all.parents == 0 && of_id.all.scopes == 0 {
            self.by_id.remove(&id);
        }
        if before.is_none() && after.is_none() {
            return;
        }
        self.lacking.resize(SETS, 0);
        let (before, after) = (before.unwrap_or([0; SETS]), after.unwrap_or([0; SETS]));
        for (sum, (before, after)) in self.lacking.iter_mut().zip(before.into_iter().zip(after)) {
            *sum += after - before;
        }
    }

    /// Return whether scopes known by their depths and scopes known by their parents' IDs together need more parents
    /// than there are.
    fn is_short_together(&self) -> bool {
        if self.lacking.iter().all(|lacking| *lacking == 0) {
            return false;
        }
        let by_depth = sums(self.by_depth.map(Balance::lacks));
        by_depth.iter().zip(&self.lacking).any(|(by_depth, by_id)| by_depth + by_id > 0)
    }

    /// Check that every unbound scope can still be bound, after a scope of this depth and parent ID
    /// was added or changed, or a parent of this ID was bound to a scope of this depth.
    pub(super) fn check(&self, depth: Option<u8>, id: Option<u32>) -> Result<()> {
        let of_id = id.and_then(|id| self.by_id.get(&id));
        if self.all.is_short() || of_id.is_some_and(|of_id| of_id.all.is_short()) {
            return Err(Violation::NoParent { id }.into());
        }
        let at = depth.map(usize::from);
        let is_short =
            |balances: &[Balance; DEPTHS]| at.and_then(|at| balances.get(at)).is_some_and(|balance| balance.is_short());
        if is_short(&self.by_depth) || of_id.is_some_and(|of_id| is_short(&of_id.by_depth)) {
            return Err(Violation::ParentDepth.into());
        }
        if self.is_short_together() {
            return Err(Violation::NoParents.into());
        }
        Ok(())
    }

    /// Check like [`check`](Self::check), after a change of a scope.
    pub(super) fn check_scope(&self, Clues { depth, parent_id }: Clues) -> Result<()> {
        self.check(depth, parent_id)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::ErrorCode;

    fn clues(depth: impl Into<Option<u8>>, parent_id: impl Into<Option<u32>>) -> Clues {
        Clues { depth: depth.into(), parent_id: parent_id.into() }
    }

    fn code(outcome: Result<()>) -> Option<ErrorCode> {
        outcome.err().map(|error| error.code())
    }

    #[test]
    fn a_scope_has_a_parent_of_its_own() {
        let mut unbound = Unbound::default();
        unbound.add_scope(clues(1, None));
        assert_eq!(code(unbound.check_scope(clues(1, None))), Some(ErrorCode::ScopeInvalid));
        unbound.add_parent(1, 0);
        assert_eq!(code(unbound.check_scope(clues(1, None))), None);
        unbound.add_scope(clues(1, None));
        assert_eq!(code(unbound.check_scope(clues(1, None))), Some(ErrorCode::ScopeInvalid), "two for one");
        unbound.add_parent(2, 0);
        assert_eq!(code(unbound.check_scope(clues(1, None))), None);
    }

    #[test]
    fn a_barrier_names_one_that_is_there() {
        let mut unbound = Unbound::default();
        unbound.add_parent(1, 0);
        unbound.add_parent(2, 0);
        for (id, expected) in [(1, None), (3, Some(ErrorCode::ScopeInvalid))] {
            unbound.add_scope(clues(None, id));
            assert_eq!(code(unbound.check_scope(clues(None, id))), expected, "{id}");
            unbound.remove_scope(clues(None, id));
        }
        unbound.add_scope(clues(1, 1));
        unbound.add_scope(clues(None, 1));
        assert_eq!(code(unbound.check_scope(clues(None, 1))), Some(ErrorCode::ScopeInvalid), "named twice");
    }

    #[test]
    fn a_depth_without_a_parent_is_the_depths_fault() {
        let mut unbound = Unbound::default();
        unbound.add_parent(1, 0);
        unbound.add_parent(1, 1);
        for (depth, expected) in [(0, Some(ErrorCode::EntityInvalid)), (1, None), (3, Some(ErrorCode::EntityInvalid))] {
            unbound.add_scope(clues(depth, None));
            assert_eq!(code(unbound.check_scope(clues(depth, None))), expected, "{depth}");
            unbound.remove_scope(clues(depth, None));
        }
        unbound.add_parent(2, 0);
        unbound.add_scope(clues(1, 1));
        unbound.add_scope(clues(1, 1));
        assert_eq!(code(unbound.check_scope(clues(1, 1))), Some(ErrorCode::EntityInvalid), "one of ID 1 is deeper");
    }

    #[test]
    fn scopes_of_a_depth_and_scopes_of_an_id_do_not_share_a_parent() {
        let mut unbound = Unbound::default();
        unbound.add_parent(1, 0);
        unbound.add_parent(2, 1);
        unbound.add_scope(clues(1, None));
        assert_eq!(code(unbound.check_scope(clues(1, None))), None);
        unbound.add_scope(clues(None, 1));
        assert_eq!(code(unbound.check_scope(clues(None, 1))), Some(ErrorCode::ScopeInvalid));
        unbound.add_parent(1, 1);
        assert_eq!(code(unbound.check_scope(clues(None, 1))), None, "another one of the ID");
        // A header binds the parent to a scope that no frame has named.
        unbound.remove_parent(1, 1);
        assert_eq!(code(unbound.check(Some(2), Some(1))), Some(ErrorCode::ScopeInvalid));
    }

    #[test]
    fn nothing_is_kept_of_what_is_bound() {
        let mut unbound = Unbound::default();
        unbound.add_parent(7, 2);
        unbound.add_scope(clues(3, 7));
        unbound.remove_scope(clues(3, 7));
        unbound.remove_parent(7, 2);
        assert!(unbound.lacking.iter().all(|lacking| *lacking == 0));
        assert!(unbound.by_id.is_empty() && unbound.all.parents == 0 && unbound.all.scopes == 0);
    }

    /// Return whether each scope can have a separate parent, by trying all assignments.
    fn fits(scopes: &[Clues], parents: &[(u32, u8)]) -> bool {
        let Some((scope, rest)) = scopes.split_first() else { return true };
        (0..parents.len()).any(|at| {
            let (id, depth) = parents[at];
            let may = scope.parent_id.is_none_or(|named| named == id) && scope.depth.is_none_or(|of| of == depth + 1);
            let left: Vec<_> = parents[..at].iter().chain(&parents[at + 1..]).copied().collect();
            may && fits(rest, &left)
        })
    }

    fn any_clues() -> impl Strategy<Value = Clues> {
        let named = (proptest::option::of(0..4_u8), 1..4_u32).prop_map(|(depth, id)| clues(depth, id));
        prop_oneof![(0..4_u8).prop_map(|depth| clues(depth, None)), named]
    }

    proptest! {
        /// Scopes that can be bound are never refused; those that no header can correct always are.
        #[test]
        fn what_can_be_bound_is_let_in_and_what_cannot_is_not(
            parents in proptest::collection::vec((1..4_u32, 0..3_u8), 0..6),
            scopes in proptest::collection::vec(any_clues(), 0..5),
            bound in 0..3_usize,
        ) {
            let mut unbound = Unbound::default();
            parents.iter().for_each(|(id, depth)| unbound.add_parent(*id, *depth));
            let mut outcome = Ok(());
            for scope in &scopes {
                unbound.add_scope(*scope);
                outcome = outcome.and(unbound.check_scope(*scope));
            }
            // Headers bind some parents to scopes that no frame has named yet.
            let bound = bound.min(parents.len());
            let left = &parents[bound..];
            for (id, depth) in &parents[..bound] {
                unbound.remove_parent(*id, *depth);
                outcome = outcome.and(unbound.check(Some(depth + 1), Some(*id)));
            }
            let code = outcome.err().map(|error| error.code());
            if fits(&scopes, left) {
                prop_assert_eq!(code, None);
            } else {
                prop_assert!(code.is_some());
            }
        }
    }
}
