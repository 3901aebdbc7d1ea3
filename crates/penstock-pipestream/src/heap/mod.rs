//! A Fibonacci heap: O(1) insert and decrease-key, O(log n) extract, all amortised (section 9.5 and its reference notes).
//!
//! ```text
//!  roots      by rank   0   1   2   3              loose   [ 7, 4 ]     inserted or cut since the last extract
//!                       │       │
//!                       12      3 ─────┐  ◄─── least
//!                              ╱ ╲     │
//!                             5   8*   each node: its parent, and links to its children
//!                                 │
//!                                 9        * marked: it has lost a child since it became one
//!
//!  nodes      [ key, value, parent, bound, generation, rank, place, mark, 9 links ] ...   an arena; freed ones are used again
//!  blocks     [ 48 links ] ...                                         one for each node with ten children or more
//! ```
//!
//! | operation | amortised | what it does |
//! |---|---|---|
//! | [`insert`](FibonacciHeap::insert) | O(1) | one more loose root |
//! | [`decrease_key`](FibonacciHeap::decrease_key) | O(1) | a child that is less than its parent is cut and becomes a loose root, and so does each marked ancestor up to the first that is not, which is marked |
//! | [`peek_min`](FibonacciHeap::peek_min) | O(1) | |
//! | [`extract_min`](FibonacciHeap::extract_min), [`remove`](FibonacciHeap::remove) | O(log n) | the children and the loose roots are linked with roots of their rank until no two roots have the same |
//!
//! The rank of a node is the number of its children. When the i-th child was linked it had at least rank i - 1, and it
//! has lost at most one child since, so a node of rank r has at least F(r + 2) descendants including itself, and among
//! 2^32 nodes no rank exceeds 45. That bounds the table and the largest block.
//!
//! The cost of a large heap is waiting for memory. A node with small keys is one cache line that includes the links to
//! its children, instead of a list of siblings, each of which would have to be loaded to find the next; a cut moves the
//! last link into the place of the removed child. A child keeps its parent's key from when they were linked: a key that
//! is not below it keeps the order, and the parent need not be read.
//!
//! A [`Handle`] that outlives its item is rejected. Only [`FibonacciHeap::decrease_key`] changes a key in place. Keys
//! and values are `Copy`: a small number and an index into the caller's data. A heap that has held as many items before
//! allocates no memory for nodes.

mod arena;
mod children;
mod roots;
#[cfg(test)]
mod tests;

use std::hint::select_unpredictable;

use self::arena::Arena;
pub use self::arena::Handle;
use self::children::{Blocks, INLINE, NIL};
use self::roots::{Root, Roots};

use crate::error::{Misuse, Result};

/// The heap; see the module's documentation.
#[derive(Debug, Clone)]
pub struct FibonacciHeap<K, V> {
    arena: Arena<K, V>,
    blocks: Blocks,
    roots: Roots<K>,
    /// The root with the least key.
    least: Option<Root<K>>,
    len: usize,
}

impl<K: Ord + Copy, V: Copy> Default for FibonacciHeap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Copy, V: Copy> FibonacciHeap<K, V> {
    /// Make an empty heap.
    pub fn new() -> Self {
        Self::with_capacity(0)
    }

    /// Make an empty heap with room for `capacity` items.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            arena: Arena::with_capacity(capacity),
            blocks: Blocks::new(),
            roots: Roots::with_capacity(capacity),
            least: None,
            len: 0,
        }
    }

    /// Return how many items are in the heap.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Return whether the heap is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Add an item. This fails only if the heap has 2^32 - 1 items.
    pub fn insert(&mut self, key: K, value: V) -> Result<Handle> {
        let handle = self.arena.add(key, value)?;
        self.roots.loose.push(handle.index());
        self.len += 1;
        self.offer(Root { key, node: handle.index() });
        Ok(handle)
    }

    /// Lower an item's key. A stale handle, or a key above the item's current one, is rejected without a change.
    pub fn decrease_key(&mut self, handle: Handle, key: K) -> Result<()> {
        let node = self.arena.find_mut(handle).ok_or(Misuse::StaleHandle)?;
        if key > node.key {
            return Err(Misuse::HigherKey.into());
        }
        node.key = key;
        let (parent, bound, rank) = (node.parent, node.bound, node.rank);
        let root = Root { key, node: handle.index() };
        if parent == NIL {
            self.roots.lower(rank, root);
        } else if key < bound && self.arena.get(parent).is_some_and(|above| key < above.key) {
            self.cut(root.node, parent);
        } else {
            return Ok(());
        }
        self.offer(root);
        Ok(())
    }

    /// Remove and return the item with the least key.
    pub fn extract_min(&mut self) -> Option<(K, V)> {
        self.take_root(self.least?.node)
    }

    /// Remove an item from wherever it is; `None` for a stale handle.
    pub fn remove(&mut self, handle: Handle) -> Option<(K, V)> {
        let parent = self.arena.find(handle)?.parent;
        if parent != NIL {
            self.cut(handle.index(), parent);
        }
        self.take_root(handle.index())
    }

    /// Return the item with the least key.
    pub fn peek_min(&self) -> Option<(K, V)> {
        let Root { key, node } = self.least?;
        Some((key, self.arena.value(node)?))
    }

    /// Return an item's key; `None` for a stale handle.
    pub fn key(&self, handle: Handle) -> Option<K> {
        self.arena.find(handle).map(|node| node.key)
    }

    /// Update the minimum with a new root, or with one whose key was lowered.
    #[inline]
    fn offer(&mut self, root: Root<K>) {
        if self.least.is_none_or(|least| root.key < least.key) {
            self.least = Some(root);
        }
    }

    /// Make a child a root, and with it every marked ancestor up to the first unmarked one, which is marked.
    fn cut(&mut self, mut node: u32, mut parent: u32) {
        while let Some(above) = self.detach(node, parent) {
            match self.arena.get_mut(parent) {
                Some(parent) if above != NIL && !parent.marked => {
                    parent.marked = true;
                    return;
                }
                Some(_) if above != NIL => (node, parent) = (parent, above),
                Some(_) | None => return,
            }
        }
    }

    /// Make a child a loose root; return the parent's own parent.
    fn detach(&mut self, index: u32, parent: u32) -> Option<u32> {
        let node = self.arena.get_mut(index)?;
        node.parent = NIL;
        node.marked = false;
        let place = node.place;
        self.roots.loose.push(index);
        let above = self.arena.get_mut(parent)?;
        let rank = above.rank;
        let moved = above.children.swap_remove(rank, place, &mut self.blocks);
        above.rank = rank.saturating_sub(1);
        let above = above.parent;
        if let Some(moved) = moved.and_then(|moved| self.arena.get_mut(moved)) {
            moved.place = place;
        }
        if above == NIL && self.roots.has(rank, parent) {
            // The table has the parent under a rank that is no longer its own.
            self.roots.take(rank);
            self.roots.loose.push(parent);
        }
        Some(above)
    }

    /// Remove a root, return its item, and consolidate the heap.
    fn take_root(&mut self, index: u32) -> Option<(K, V)> {
        let rank = self.arena.get(index)?.rank;
        if self.roots.has(rank, index) {
            self.roots.take(rank);
        }
        let mut loose = std::mem::take(&mut self.roots.loose);
        for other in loose.drain(..) {
            if other != index {
                let node = self.arena.get(other)?;
                self.settle(Root { key: node.key, node: other }, node.rank);
            }
        }
        self.roots.loose = loose;
        self.settle_children(index, rank);
        self.arena.get(index)?.children.release(rank, &mut self.blocks);
        self.len -= 1;
        self.least = self.roots.least();
        self.arena.release(index)
    }

    /// Make the children of a node roots. Several are read before the first is linked, so that the
    /// reads wait for memory in parallel.
    #[inline]
    fn settle_children(&mut self, index: u32, rank: u8) {
        for at in (0..usize::from(rank)).step_by(INLINE) {
            let Some(node) = self.arena.get(index) else { return };
            let links = node.children.links(rank, &self.blocks).iter().skip(at);
            let mut children: [Option<(Root<K>, u8)>; INLINE] = [None; INLINE];
            for (child, link) in children.iter_mut().zip(links) {
                *child = self.arena.get(*link).map(|node| (Root { key: node.key, node: *link }, node.rank));
            }
            for (child, rank) in children.into_iter().flatten() {
                self.settle(child, rank);
            }
        }
    }

    /// Put a tree into the table: link it with the root of equal rank as long as there is one.
    #[inline]
    fn settle(&mut self, mut winner: Root<K>, mut rank: u8) {
        while let Some(other) = self.roots.take(rank) {
            let is_less = other.key < winner.key;
            let loser = select_unpredictable(is_less, winner.node, other.node);
            winner = other.or(winner, is_less);
            self.link(loser, winner, rank);
            rank += 1;
        }
        if let Some(node) = self.arena.get_mut(winner.node) {
            node.parent = NIL;
            node.marked = false;
        }
        self.roots.put(rank, winner);
    }

    /// Make a root the last child of another one of the same rank.
    #[inline]
    fn link(&mut self, loser: u32, winner: Root<K>, rank: u8) {
        if let Some(above) = self.arena.get_mut(winner.node) {
            above.children.push(rank, loser, &mut self.blocks);
            above.rank = rank + 1;
        }
        if let Some(node) = self.arena.get_mut(loser) {
            node.parent = winner.node;
            node.place = rank;
            node.bound = winner.key;
            node.marked = false;
        }
    }
}
