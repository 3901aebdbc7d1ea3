//! Who has which scope ID (decision 6).

use penstock_wire::FastMap;

use super::types::{Role, ScopeKey};

/// How many IDs an end has for its child scopes: 2, 4, ... 65534 or 3, 5, ... 65535.
const CHILD_SCOPES: u32 = 32_767;

/// The scopes that we take: upwards, and again only after wrapping.
#[derive(Debug, Clone)]
pub(super) struct OwnScopes {
    first: u16,
    /// How many were taken or passed over, ever.
    taken: u64,
    uses: FastMap<u16, u32>,
}

impl OwnScopes {
    pub(super) fn new(role: Role) -> Self {
        Self { first: role.root_scope() + 2, taken: 0, uses: FastMap::default() }
    }

    fn candidate(&self) -> u16 {
        self.first + (self.taken % u64::from(CHILD_SCOPES)) as u16 * 2
    }

    /// The next free scope, or `None` while all are in use.
    pub(super) fn take(&mut self, in_use: impl Fn(u16) -> bool) -> Option<ScopeKey> {
        for _ in 0..CHILD_SCOPES {
            let scope = self.candidate();
            if !in_use(scope) {
                self.taken += 1;
                let uses = self.uses.entry(scope).or_insert(0);
                let key = ScopeKey { scope, scope_use: *uses };
                *uses += 1;
                return Some(key);
            }
            self.taken += 1;
        }
        None
    }

    /// Whether the ID was ever taken.
    pub(super) fn was_used(&self, scope: u16) -> bool {
        self.uses.contains_key(&scope)
    }
}

#[derive(Debug, Clone)]
struct Used {
    uses: u32,
    released_at: Option<u64>,
}

/// What we know of the IDs that the peer takes.
#[derive(Debug, Clone, Default)]
pub(super) struct PeerScopes {
    /// How many entities the peer has dehydrated.
    pub(super) dehydrated: u64,
    opened: u64,
    used: FastMap<u16, Used>,
}

impl PeerScopes {
    /// The child scope that a peer which takes its scopes upwards takes next.
    pub(super) fn expected(&self, root: u16) -> u16 {
        root + 2 + (self.dehydrated % u64::from(CHILD_SCOPES)) as u16 * 2
    }

    /// Notes a new use and names it.
    pub(super) fn open(&mut self, scope: u16) -> ScopeKey {
        self.opened += 1;
        let used = self.used.entry(scope).or_insert(Used { uses: 0, released_at: None });
        let key = ScopeKey { scope, scope_use: used.uses };
        used.uses += 1;
        used.released_at = None;
        key
    }

    /// The latest use of an ID.
    pub(super) fn latest(&self, scope: u16) -> ScopeKey {
        let uses = self.used.get(&scope).map_or(0, |used| used.uses);
        ScopeKey { scope, scope_use: uses.saturating_sub(1) }
    }

    pub(super) fn release(&mut self, scope: u16) {
        if let Some(used) = self.used.get_mut(&scope) {
            used.released_at = Some(self.opened);
        }
    }

    /// Whether what names the scope is late: it was released, and the peer cannot have wrapped since. Scopes that
    /// overtake each other, and IDs that the peer skips because they are in use, make the exact moment unknowable;
    /// half of the ID space is far from both a straggler and a wrap.
    pub(super) fn is_released(&self, scope: u16) -> bool {
        self.used
            .get(&scope)
            .and_then(|used| used.released_at)
            .is_some_and(|at| self.opened - at < u64::from(CHILD_SCOPES) / 2)
    }
}

crate::stored::stored!(OwnScopes { first, taken, uses });
crate::stored::stored!(Used { uses, released_at });
crate::stored::stored!(PeerScopes { dehydrated, opened, used });

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
    fn a_released_scope_is_late_until_the_peer_may_have_wrapped() {
        let mut scopes = PeerScopes::default();
        assert_eq!(scopes.open(2), ScopeKey { scope: 2, scope_use: 0 });
        assert!(!scopes.is_released(2));
        scopes.release(2);
        assert!(scopes.is_released(2));
        for step in 0..u64::from(CHILD_SCOPES) / 2 {
            scopes.open(4 + (step as u16 % 1_000) * 2);
        }
        assert!(!scopes.is_released(2));
        assert_eq!(scopes.open(2).scope_use, 1);
    }
}
