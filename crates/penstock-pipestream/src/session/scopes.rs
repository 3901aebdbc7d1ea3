//! The use of scope IDs (decision 6).
//!
//! The IDs of an end form a ring of [`CHILD_SCOPES`], which the sender uses in ascending order, round after round. It
//! may skip some, fewer than half of the ring in one step, so that the order of two IDs can be determined, as section
//! 9.3 does for entities. An ID may be used again when the sender has come round to it and its last use was released.
//!
//! ```text
//!  ID         2   4  ...  65534   2   4  ...  65534   2
//!  position   0   1  ...  32766   32767  ...  65533   65534 ...
//! ```

use penstock_wire::FastMap;
use serde::{Deserialize, Serialize};

use super::types::{Role, ScopeKey};

/// The number of IDs that an end has for its child scopes: 2, 4, ... 65534 or 3, 5, ... 65535.
const CHILD_SCOPES: u32 = 32_767;
const ROUND: u64 = CHILD_SCOPES as u64;
/// A sender skips fewer IDs than this in one step.
const HALF: u64 = ROUND / 2;

/// Our child scopes. Their IDs are used in ascending order, and again only after wrapping.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct OwnScopes {
    first: u16,
    /// The next position.
    next_position: u64,
    #[serde(serialize_with = "crate::stored::in_order")]
    uses: FastMap<u16, u32>,
}

impl OwnScopes {
    pub(super) fn new(role: Role) -> Self {
        Self { first: role.root_scope() + 2, next_position: 0, uses: FastMap::default() }
    }

    /// Return the next free scope, or `None` until one of the next IDs is free.
    pub(super) fn take(&mut self, in_use: impl Fn(u16) -> bool) -> Option<ScopeKey> {
        let (position, scope) = (self.next_position..self.next_position + HALF)
            .map(|position| (position, self.first + (position % ROUND) as u16 * 2))
            .find(|(_, scope)| !in_use(*scope))?;
        self.next_position = position + 1;
        let uses = self.uses.entry(scope).or_insert(0);
        let key = ScopeKey { scope, scope_use: *uses };
        *uses += 1;
        Some(key)
    }

    /// Return whether the ID was ever used.
    pub(super) fn was_used(&self, scope: u16) -> bool {
        self.uses.contains_key(&scope)
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Used {
    uses: u32,
    /// The ID's last position that the sender had passed at the release; `None` while the ID is in
    /// use.
    released_at: Option<u64>,
}

/// The peer's scope IDs, as far as they are known.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct PeerScopes {
    /// The number of entities that the peer has dehydrated.
    pub(super) dehydrated: u64,
    /// The peer has used at least the position before this one. Headers name scopes in any order;
    /// the peer uses scopes in the order of its DEHYDRATING frames.
    reached: u64,
    #[serde(serialize_with = "crate::stored::in_order")]
    used: FastMap<u16, Used>,
}

/// Return the place of an ID in the ring.
fn place(scope: u16) -> u64 {
    u64::from((scope / 2).saturating_sub(1)) % ROUND
}

/// Return the first position of an ID that is not before `from`.
fn position_from(scope: u16, from: u64) -> u64 {
    from + (place(scope) + ROUND - from % ROUND) % ROUND
}

impl PeerScopes {
    /// Return the next child scope of a peer that uses its scopes in ascending order without gaps.
    pub(super) fn expected(&self, root: u16) -> u16 {
        root + 2 + (self.dehydrated % ROUND) as u16 * 2
    }

    /// Record that the peer has dehydrated another entity, and so has used another scope.
    pub(super) fn dehydrate(&mut self) {
        self.dehydrated += 1;
        self.reached += 1;
    }

    /// Record a new use of an ID and return its key.
    pub(super) fn open(&mut self, scope: u16) -> ScopeKey {
        let used = self.used.entry(scope).or_insert(Used { uses: 0, released_at: None });
        let position = match used.released_at.take() {
            // The ID is used one round later, or several rounds if the peer skipped it.
            Some(before) => position_from(scope, (before + 1).max(self.reached.saturating_sub(ROUND))),
            None => position_from(scope, self.reached.saturating_sub(HALF)),
        };
        let key = ScopeKey { scope, scope_use: used.uses };
        used.uses += 1;
        self.reached = self.reached.max(position + 1);
        key
    }

    /// Return the latest use of an ID.
    pub(super) fn latest(&self, scope: u16) -> ScopeKey {
        let uses = self.used.get(&scope).map_or(0, |used| used.uses);
        ScopeKey { scope, scope_use: uses.saturating_sub(1) }
    }

    pub(super) fn release(&mut self, scope: u16) {
        let Some(used) = self.used.get_mut(&scope) else { return };
        // The peer uses the ID again only after it has received the release, at a position that it
        // has not passed yet.
        used.released_at = Some(position_from(scope, self.reached.saturating_sub(ROUND)));
    }

    /// Return whether the ID was ever used and is released.
    pub(super) fn was_released(&self, scope: u16) -> bool {
        self.used.get(&scope).is_some_and(|used| used.released_at.is_some())
    }

    /// Return whether a reference to the scope is late: the scope was released, and the peer cannot have come round to
    /// it since.
    pub(super) fn is_released(&self, scope: u16) -> bool {
        let released = self.used.get(&scope).and_then(|used| used.released_at);
        released.is_some_and(|at| at + ROUND >= self.reached + HALF)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_scopes_go_upwards_and_come_again_only_after_wrapping() {
        let mut scopes = OwnScopes::new(Role::Client);
        let mut seen = Vec::new();
        for _ in 0..CHILD_SCOPES {
            seen.push(scopes.take(|_| false).expect("free").scope);
        }
        assert_eq!((seen.first(), seen.last()), (Some(&2), Some(&65_534)));
        assert!(seen.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(scopes.take(|scope| scope == 2), Some(ScopeKey { scope: 4, scope_use: 1 }));
        assert_eq!(scopes.take(|_| true), None);
        assert!(OwnScopes::new(Role::Server).take(|_| false).is_some_and(|key| key.scope == 3));
    }

    #[test]
    fn our_scopes_pass_over_fewer_than_half_of_the_ids() {
        let mut scopes = OwnScopes::new(Role::Client);
        let half = HALF as u16 * 2;
        assert_eq!(scopes.take(|scope| scope < half).map(|key| key.scope), Some(half));
        assert_eq!(scopes.take(|scope| scope < half + half + 2), None);
        assert_eq!(scopes.take(|_| false).map(|key| key.scope), Some(half + 2), "nothing was passed over in vain");
    }

    /// Use a scope and release it again; return whether it was free.
    fn pass(scopes: &mut PeerScopes, scope: u16) -> bool {
        scopes.dehydrate();
        let free = !scopes.is_released(scope);
        if free {
            scopes.open(scope);
            scopes.release(scope);
        }
        free
    }

    #[test]
    fn a_released_scope_is_late_until_the_peer_has_come_round() {
        let mut scopes = PeerScopes::default();
        for scope in (2..=65_534).step_by(2) {
            assert!(pass(&mut scopes, scope), "{scope}");
            assert!(scopes.is_released(scope) && scopes.was_released(scope), "{scope}");
        }
        assert!(!scopes.clone().is_released(2), "the next one");
        assert!(pass(&mut scopes, 2) && !pass(&mut scopes, 2));
        assert_eq!(scopes.latest(2).scope_use, 1);
    }

    #[test]
    fn ids_behind_the_wrapping_point_are_free_whatever_was_passed_over() {
        let mut scopes = PeerScopes::default();
        for round in 0..3 {
            for scope in [65_534, 2, 20_000, 40_000, 60_000, 65_532] {
                assert!(pass(&mut scopes, scope), "{scope} in round {round}");
            }
        }
        // Near the beginning every step counts as ascending.
        let mut scopes = PeerScopes::default();
        assert!([2, 65_534, 2].into_iter().all(|scope| pass(&mut scopes, scope)));
        let mut scopes = PeerScopes::default();
        assert!([3, 65_535, 3].into_iter().all(|scope| pass(&mut scopes, scope)));
    }

    #[test]
    fn a_step_back_is_no_round() {
        for before in [&[2][..], &[2, 4], &[2, 4, 6, 8], &[2, 16_384, 32_766]] {
            let mut scopes = PeerScopes::default();
            assert!(before.iter().all(|scope| pass(&mut scopes, *scope)));
            assert!(before.iter().all(|scope| !pass(&mut scopes, *scope)), "{before:?}");
        }
    }

    #[test]
    fn scopes_that_overtake_each_other_keep_their_round() {
        let mut scopes = PeerScopes::default();
        for _ in 0..16_000 {
            scopes.dehydrate();
        }
        // Headers in reverse order, for everything that the peer has dehydrated.
        let all = (2..=32_000).rev().step_by(2);
        for scope in all.clone() {
            scopes.open(scope);
        }
        all.clone().for_each(|scope| scopes.release(scope));
        assert_eq!(scopes.reached, 16_000);
        assert!(all.clone().all(|scope| scopes.is_released(scope)));
        for _ in 0..ROUND {
            scopes.dehydrate();
        }
        assert!(all.clone().all(|scope| !scopes.is_released(scope)));
        for scope in all {
            scopes.open(scope);
        }
        assert_eq!(scopes.reached, 16_000 + ROUND);
    }
}
