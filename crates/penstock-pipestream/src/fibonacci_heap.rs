//! A Fibonacci heap: O(1) insert and decrease-key, O(log n) amortised extract (section 9.5).
//!
//! The nodes lie in one slab and name each other by `u32`; freed ones are used again, so a warm heap allocates
//! nothing. A [`Handle`] carries its node's generation, odd while the node is alive, and one that outlived its node
//! is refused.
//!
//! ```text
//!  roots ──► [4] [1] [9]          a plain list: an insert and a cut append to it, an extract rebuilds it
//!             │   │
//!            [6] [3]──[2]         siblings are linked both ways, so that a cut is O(1)
//!                 │
//!                [5]
//! ```
//!
//! Keys never change in place except by [`FibonacciHeap::decrease_key`]. Keys and values are `Copy`: a small number
//! and an index into whatever the caller holds.

use crate::error::{Error, ErrorCode, Result};

/// No node.
const NIL: u32 = u32::MAX;
/// A node of degree d has at least phi^d descendants, so 47 degrees are enough for 2^32 nodes.
const DEGREES: usize = 48;

/// Names an item in the heap for as long as it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    index: u32,
    generation: u32,
}

#[derive(Debug, Clone)]
struct Node<K, V> {
    key: K,
    value: V,
    parent: u32,
    child: u32,
    previous: u32,
    /// The next sibling or, of a free node, the next free one.
    next: u32,
    generation: u32,
    degree: u8,
    /// Whether it lost a child since it became one itself.
    marked: bool,
}

/// The heap; see the module's documentation.
#[derive(Debug, Clone)]
pub struct FibonacciHeap<K, V> {
    nodes: Vec<Node<K, V>>,
    free: u32,
    roots: Vec<u32>,
    min: u32,
    len: usize,
    /// Roots by degree, while roots are joined; empty otherwise.
    by_degree: [u32; DEGREES],
}

impl<K: Ord + Copy, V: Copy> Default for FibonacciHeap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Copy, V: Copy> FibonacciHeap<K, V> {
    /// An empty heap.
    pub fn new() -> Self {
        Self::with_capacity(0)
    }

    /// An empty heap with room for that many items.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            nodes: Vec::with_capacity(capacity),
            free: NIL,
            roots: Vec::with_capacity(capacity),
            min: NIL,
            len: 0,
            by_degree: [NIL; DEGREES],
        }
    }

    /// How many items are in the heap.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an item; refused only where 2^32 - 1 items are in the heap already.
    pub fn insert(&mut self, key: K, value: V) -> Result<Handle> {
        let handle = self.take_node(key, value)?;
        self.roots.push(handle.index);
        self.len += 1;
        self.offer_min(handle.index, key);
        Ok(handle)
    }

    /// Lowers an item's key. A stale handle and a key above the item's own are refused, and nothing changes.
    pub fn decrease_key(&mut self, handle: Handle, key: K) -> Result<()> {
        let node = self.alive_mut(handle).ok_or_else(|| Error::misuse("the heap's handle is stale"))?;
        if key > node.key {
            return Err(Error::misuse("a key in the heap can only be lowered"));
        }
        node.key = key;
        let parent = node.parent;
        if self.node(parent).is_some_and(|parent| key < parent.key) {
            self.cut(handle.index);
        }
        self.offer_min(handle.index, key);
        Ok(())
    }

    /// Takes the item with the least key.
    pub fn extract_min(&mut self) -> Option<(K, V)> {
        self.take_root(self.min)
    }

    /// Takes an item from wherever it is; `None` for a stale handle.
    pub fn remove(&mut self, handle: Handle) -> Option<(K, V)> {
        if self.alive(handle)?.parent != NIL {
            self.cut(handle.index);
        }
        self.take_root(handle.index)
    }

    /// The item with the least key.
    pub fn peek_min(&self) -> Option<(K, V)> {
        self.node(self.min).map(|node| (node.key, node.value))
    }

    /// An item's key; `None` for a stale handle.
    pub fn key(&self, handle: Handle) -> Option<K> {
        self.alive(handle).map(|node| node.key)
    }

    // Links only ever name nodes of the slab; that every look-up returns an `Option` is because nothing here may
    // panic, not because a link could be broken.

    #[inline]
    fn node(&self, index: u32) -> Option<&Node<K, V>> {
        self.nodes.get(index as usize)
    }

    #[inline]
    fn node_mut(&mut self, index: u32) -> Option<&mut Node<K, V>> {
        self.nodes.get_mut(index as usize)
    }

    // A handle's generation is odd and a free node's is even, so a handle never names a free node, not even one of
    // another heap.

    fn alive(&self, handle: Handle) -> Option<&Node<K, V>> {
        self.node(handle.index).filter(|node| node.generation == handle.generation)
    }

    fn alive_mut(&mut self, handle: Handle) -> Option<&mut Node<K, V>> {
        self.node_mut(handle.index).filter(|node| node.generation == handle.generation)
    }

    fn take_node(&mut self, key: K, value: V) -> Result<Handle> {
        let index = self.free;
        if let Some(node) = self.node_mut(index) {
            let (next, generation) = (node.next, node.generation.wrapping_add(1));
            *node = Node::alone(key, value, generation);
            self.free = next;
            return Ok(Handle { index, generation });
        }
        let index = u32::try_from(self.nodes.len()).ok().filter(|index| *index != NIL).ok_or_else(|| {
            Error::limit(ErrorCode::WindowExceeded, "the heap holds 4294967295 items and takes no more")
        })?;
        self.nodes.push(Node::alone(key, value, 1));
        Ok(Handle { index, generation: 1 })
    }

    #[inline]
    fn offer_min(&mut self, index: u32, key: K) {
        if self.node(self.min).is_none_or(|least| key < least.key) {
            self.min = index;
        }
    }

    /// Makes a child a root, and its parent too if that lost a child before, and so on upwards.
    fn cut(&mut self, mut index: u32) {
        while let Some(parent) = self.detach(index) {
            match self.node_mut(parent) {
                Some(node) if node.parent == NIL => return,
                Some(node) if !node.marked => {
                    node.marked = true;
                    return;
                }
                _ => index = parent,
            }
        }
    }

    /// Moves a child to the roots and names the parent that it had.
    fn detach(&mut self, index: u32) -> Option<u32> {
        let node = self.node_mut(index)?;
        let (parent, previous, next) = (node.parent, node.previous, node.next);
        node.parent = NIL;
        node.marked = false;
        if let Some(next) = self.node_mut(next) {
            next.previous = previous;
        }
        if let Some(previous) = self.node_mut(previous) {
            previous.next = next;
        }
        self.roots.push(index);
        let node = self.node_mut(parent)?;
        node.degree -= 1;
        if previous == NIL {
            node.child = next;
        }
        Some(parent)
    }

    /// Removes a root: its children become roots, and roots of equal degree are joined until all degrees differ.
    fn take_root(&mut self, index: u32) -> Option<(K, V)> {
        let free = self.free;
        let node = self.node_mut(index)?;
        let item = (node.key, node.value);
        let mut child = node.child;
        node.generation = node.generation.wrapping_add(1);
        node.next = free;
        self.free = index;
        self.len -= 1;

        let mut roots = std::mem::take(&mut self.roots);
        for root in roots.drain(..) {
            if root != index {
                self.join(root);
            }
        }
        while let Some(node) = self.node_mut(child) {
            let next = node.next;
            node.parent = NIL;
            node.marked = false;
            self.join(child);
            child = next;
        }
        self.roots = roots;
        self.collect_roots();
        Some(item)
    }

    /// Puts a root among those of distinct degrees, joining it with one of its own degree as often as there is one.
    fn join(&mut self, mut root: u32) {
        while let Some(degree) = self.node(root).map(|node| node.degree) {
            let Some(place) = self.by_degree.get_mut(usize::from(degree)) else { return };
            let other = std::mem::replace(place, NIL);
            if other == NIL {
                *place = root;
                return;
            }
            root = self.link(root, other).unwrap_or(root);
        }
    }

    /// Makes the root with the greater key the first child of the other one, and names that.
    fn link(&mut self, one: u32, other: u32) -> Option<u32> {
        let (winner, loser) = if self.node(other)?.key < self.node(one)?.key { (other, one) } else { (one, other) };
        let node = self.node_mut(winner)?;
        let first = std::mem::replace(&mut node.child, loser);
        node.degree += 1;
        if let Some(first) = self.node_mut(first) {
            first.previous = loser;
        }
        let node = self.node_mut(loser)?;
        node.parent = winner;
        node.previous = NIL;
        node.next = first;
        Some(winner)
    }

    /// Empties the table of degrees into the list of roots and finds the least key among them.
    fn collect_roots(&mut self) {
        self.min = NIL;
        for degree in 0..DEGREES {
            let root = self.by_degree.get_mut(degree).map_or(NIL, |place| std::mem::replace(place, NIL));
            if let Some(key) = self.node(root).map(|node| node.key) {
                self.roots.push(root);
                self.offer_min(root, key);
            }
        }
    }
}

impl<K, V> Node<K, V> {
    fn alone(key: K, value: V, generation: u32) -> Self {
        Self { key, value, parent: NIL, child: NIL, previous: NIL, next: NIL, generation, degree: 0, marked: false }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_least_key_comes_first() {
        let mut heap = FibonacciHeap::new();
        for key in [5, 1, 4, 1, 3] {
            heap.insert(key, key * 10).expect("room");
        }
        assert_eq!((heap.peek_min(), heap.len()), (Some((1, 10)), 5));
        let keys: Vec<_> = std::iter::from_fn(|| heap.extract_min()).map(|(key, _)| key).collect();
        assert_eq!(keys, [1, 1, 3, 4, 5]);
        assert!(heap.is_empty() && heap.peek_min().is_none() && heap.extract_min().is_none());
    }

    #[test]
    fn a_key_is_lowered_and_never_raised() {
        let mut heap = FibonacciHeap::new();
        let handles: Vec<_> = (0..20_u32).map(|key| heap.insert(key + 10, key).expect("room")).collect();
        assert_eq!(heap.extract_min(), Some((10, 0)));
        heap.decrease_key(handles[15], 3).expect("lower");
        assert_eq!(heap.peek_min(), Some((3, 15)));
        assert!(heap.decrease_key(handles[15], 4).is_err());
        assert_eq!(heap.key(handles[15]), Some(3));
        heap.decrease_key(handles[15], 3).expect("equal is allowed");
    }

    #[test]
    fn a_stale_handle_is_refused_even_when_its_node_is_used_again() {
        let mut heap = FibonacciHeap::new();
        let old = heap.insert(1, 'a').expect("room");
        assert_eq!(heap.extract_min(), Some((1, 'a')));
        assert!(heap.key(old).is_none() && heap.remove(old).is_none() && heap.decrease_key(old, 0).is_err());
        let new = heap.insert(2, 'b').expect("room");
        assert_eq!((new.index, heap.nodes.len()), (old.index, 1));
        assert!(heap.key(old).is_none() && heap.remove(old).is_none() && heap.decrease_key(old, 0).is_err());
        assert_eq!(heap.remove(new), Some((2, 'b')));
    }

    #[test]
    fn degrees_stay_logarithmic() {
        let mut heap = FibonacciHeap::new();
        let handles: Vec<_> = (0..10_000_u32).map(|key| heap.insert(key + 20_000, key).expect("room")).collect();
        heap.extract_min();
        for (key, handle) in handles.iter().enumerate().skip(1).step_by(3) {
            heap.decrease_key(*handle, u32::try_from(key).expect("small")).expect("lower");
        }
        heap.extract_min();
        let roots = heap.roots.len();
        assert!(roots <= 20, "{roots} roots");
    }

    #[derive(Debug, Clone)]
    enum Operation {
        Insert(u16),
        Decrease(usize, u16),
        Extract,
        Remove(usize),
    }

    fn operation() -> impl Strategy<Value = Operation> {
        prop_oneof![
            4 => any::<u16>().prop_map(Operation::Insert),
            4 => (any::<usize>(), any::<u16>()).prop_map(|(pick, by)| Operation::Decrease(pick, by)),
            2 => Just(Operation::Extract),
            1 => any::<usize>().prop_map(Operation::Remove),
        ]
    }

    proptest! {
        #[test]
        fn a_heap_does_what_a_sorted_list_does(operations in prop::collection::vec(operation(), 0..400)) {
            let mut heap = FibonacciHeap::new();
            // Every item ever inserted: its handle and, while it is there, its key. The value is the position.
            let mut model: Vec<(Handle, Option<u16>)> = Vec::new();
            for operation in operations {
                match operation {
                    Operation::Insert(key) => {
                        let handle = heap.insert(key, model.len()).expect("room");
                        model.push((handle, Some(key)));
                    }
                    Operation::Decrease(pick, by) if !model.is_empty() => {
                        let pick = pick % model.len();
                        let (handle, key) = &mut model[pick];
                        let lower = key.map_or(0, |key| key.saturating_sub(by));
                        prop_assert_eq!(heap.decrease_key(*handle, lower).is_ok(), key.is_some());
                        *key = key.map(|_| lower);
                    }
                    Operation::Extract => {
                        let least = model.iter().filter_map(|(_, key)| *key).min();
                        let taken = heap.extract_min();
                        prop_assert_eq!(taken.map(|(key, _)| key), least);
                        if let Some((key, value)) = taken {
                            prop_assert_eq!(model[value].1.take(), Some(key));
                        }
                    }
                    Operation::Remove(pick) if !model.is_empty() => {
                        let pick = pick % model.len();
                        let (handle, key) = &mut model[pick];
                        prop_assert_eq!(heap.remove(*handle), key.take().map(|key| (key, pick)));
                    }
                    Operation::Decrease(..) | Operation::Remove(_) => {}
                }
                prop_assert_eq!(heap.len(), model.iter().filter(|(_, key)| key.is_some()).count());
                prop_assert_eq!(heap.peek_min().map(|(key, _)| key), model.iter().filter_map(|(_, key)| *key).min());
            }
            for (handle, key) in &model {
                prop_assert_eq!(heap.key(*handle), *key);
            }
        }
    }
}
