//! The heap's roots: at most one of each rank in a table, and the loose roots that were not linked
//! since they became roots.

use std::hint::select_unpredictable;

use super::children::RANKS;

/// A root with a copy of its key, so that consolidation and the search for the least key stay in the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Root<K> {
    pub(super) key: K,
    pub(super) node: u32,
}

impl<K: Copy> Root<K> {
    /// Return this root if `chosen`, otherwise the other, without a branch: no processor can predict which of two keys
    /// is less.
    #[inline]
    pub(super) fn or(self, other: Self, chosen: bool) -> Self {
        Self {
            key: select_unpredictable(chosen, self.key, other.key),
            node: select_unpredictable(chosen, self.node, other.node),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Roots<K> {
    by_rank: [Option<Root<K>>; RANKS],
    /// Which ranks have a root: bit r for rank r.
    ranks: u64,
    /// The other roots, whose keys are only in their nodes.
    pub(super) loose: Vec<u32>,
}

impl<K: Ord + Copy> Roots<K> {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { by_rank: [None; RANKS], ranks: 0, loose: Vec::with_capacity(capacity) }
    }

    /// Take the root of a rank out of the table.
    #[inline]
    pub(super) fn take(&mut self, rank: u8) -> Option<Root<K>> {
        if self.ranks >> rank & 1 == 0 {
            return None;
        }
        self.ranks ^= 1 << rank;
        self.by_rank.get(usize::from(rank)).copied().flatten()
    }

    /// Put a root into the table, which must have no root of that rank.
    #[inline]
    pub(super) fn put(&mut self, rank: u8, root: Root<K>) {
        if let Some(place) = self.by_rank.get_mut(usize::from(rank)) {
            *place = Some(root);
            self.ranks |= 1 << rank;
        }
    }

    /// Return whether the table has this node as the root of a rank; the other roots are loose.
    #[inline]
    pub(super) fn has(&self, rank: u8, node: u32) -> bool {
        self.ranks >> rank & 1 == 1
            && self.by_rank.get(usize::from(rank)).copied().flatten().is_some_and(|root| root.node == node)
    }

    /// Record the lower key of a root.
    #[inline]
    pub(super) fn lower(&mut self, rank: u8, root: Root<K>) {
        if self.has(rank, root.node) {
            self.put(rank, root);
        }
    }

    /// Return the root in the table with the least key.
    #[inline]
    pub(super) fn least(&self) -> Option<Root<K>> {
        let root = |ranks: u64| self.by_rank.get(ranks.trailing_zeros() as usize).copied().flatten();
        let mut least = root(self.ranks)?;
        let mut ranks = self.ranks & (self.ranks - 1);
        while ranks != 0 {
            let other = root(ranks)?;
            least = other.or(least, other.key < least.key);
            ranks &= ranks - 1;
        }
        Some(least)
    }

    #[cfg(test)]
    pub(super) fn table(&self) -> Vec<(u8, Root<K>)> {
        let roots = (0_u8..).zip(&self.by_rank).filter(|(rank, _)| self.ranks >> rank & 1 == 1);
        roots.filter_map(|(rank, root)| Some((rank, (*root)?))).collect()
    }
}
