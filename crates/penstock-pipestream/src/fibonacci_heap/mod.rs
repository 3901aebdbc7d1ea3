//! A Fibonacci heap: O(1) insert and decrease-key, O(log n) amortised extract (section 9.5).
//!
//! The nodes lie in one slab and name each other by `u32`; freed ones are used again, so a warm heap allocates
//! nothing. A [`Handle`] carries its node's generation, odd while the node is alive, and one that outlived its node
//! is refused.
//!
//! ```text
//!  roots ──► [4] [1] [9]          a plain list: an insert and a cut append to it, an extract rebuilds it
//!             │   │
//!            [6] [3] [2]          the children lie in an array, where each knows its place, so a cut is O(1)
//!                 │
//!                [5]
//! ```
//!
//! Keys never change in place except by [`FibonacciHeap::decrease_key`]. Keys and values are `Copy`: a small number
//! and an index into whatever the caller holds.

#[cfg(test)]
mod tests;

use crate::error::{Error, ErrorCode, Result};

/// No node.
const NIL: u32 = u32::MAX;
/// A node of degree d has at least phi^d descendants, so 47 degrees are enough for 2^32 nodes.
const DEGREES: usize = 48;
/// Children that lie in the node itself; one node in 2^8 has more of them.
const INLINE: usize = 8;

/// Names an item in the heap for as long as it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    index: u32,
    generation: u32,
}

/// One cache line for small keys and values, its first children included: what an extract costs is memory it has
/// to wait for.
#[derive(Debug, Clone)]
#[repr(align(64))]
struct Node<K, V> {
    key: K,
    value: V,
    /// The parent or, of a free node, the next free one.
    parent: u32,
    generation: u32,
    /// The children up to `degree`, in no order.
    children: [u32; INLINE],
    /// Where the children beyond these are, if there are any.
    overflow: u32,
    /// Where the node is among its parent's children.
    slot: u8,
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
    overflow: Overflow,
    /// Roots by degree, while roots are joined; empty otherwise.
    by_degree: [u32; DEGREES],
    /// A bit for each degree that may have a root there.
    degrees: u64,
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
            overflow: Overflow::default(),
            by_degree: [NIL; DEGREES],
            degrees: 0,
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

    // Links only ever name nodes of the slab; that look-ups return an `Option` is because nothing here may panic, not
    // because a link could be broken.

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
        if let Some(node) = self.nodes.get_mut(index as usize) {
            let (next, generation) = (node.parent, node.generation.wrapping_add(1));
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

    /// Moves a child to the roots and names the parent that it had. The parent's last child takes its place.
    fn detach(&mut self, index: u32) -> Option<u32> {
        let node = self.nodes.get_mut(index as usize)?;
        let (parent, slot) = (std::mem::replace(&mut node.parent, NIL), node.slot);
        node.marked = false;
        self.roots.push(index);
        let node = self.nodes.get_mut(parent as usize)?;
        node.degree -= 1;
        let last = *node.child_mut(node.degree, &mut self.overflow)?;
        *node.child_mut(slot, &mut self.overflow)? = last;
        if usize::from(node.degree) == INLINE {
            self.overflow.release(&mut node.overflow);
        }
        self.nodes.get_mut(last as usize)?.slot = slot;
        Some(parent)
    }

    /// Removes a root: its children become roots, and roots of equal degree are joined until all degrees differ.
    fn take_root(&mut self, index: u32) -> Option<(K, V)> {
        let mut roots = std::mem::take(&mut self.roots);
        let node = self.nodes.get_mut(index as usize)?;
        let item = (node.key, node.value);
        node.generation = node.generation.wrapping_add(1);
        node.parent = std::mem::replace(&mut self.free, index);
        self.len -= 1;

        let degree = usize::from(node.degree);
        roots.extend(node.children.iter().take(degree));
        if degree > INLINE {
            roots.extend(self.overflow.get(node.overflow).iter().take(degree - INLINE));
            self.overflow.release(&mut node.overflow);
        }
        // All children are touched before the first one is looked at, so that the memory comes at once.
        for child in roots.iter().rev().take(degree) {
            if let Some(node) = self.nodes.get_mut(*child as usize) {
                node.parent = NIL;
                node.marked = false;
            }
        }
        for root in roots.drain(..) {
            if root != index {
                self.join(root);
            }
        }
        self.roots = roots;
        self.collect_roots();
        Some(item)
    }

    /// Puts a root among those of distinct degrees; as long as there is one of its own degree, that with the greater
    /// key becomes the last child of the other.
    fn join(&mut self, root: u32) -> Option<()> {
        let node = self.node(root)?;
        let (mut winner, mut key, mut degree) = (root, node.key, node.degree);
        loop {
            let place = self.by_degree.get_mut(usize::from(degree))?;
            let mut loser = std::mem::replace(place, NIL);
            if loser == NIL {
                *place = winner;
                self.degrees |= 1 << degree;
                return Some(());
            }
            let other = self.nodes.get(loser as usize)?.key;
            if other < key {
                std::mem::swap(&mut winner, &mut loser);
                key = other;
            }
            let node = self.nodes.get_mut(loser as usize)?;
            node.parent = winner;
            node.slot = degree;
            let node = self.nodes.get_mut(winner as usize)?;
            if usize::from(degree) == INLINE {
                node.overflow = self.overflow.take();
            }
            *node.child_mut(degree, &mut self.overflow)? = loser;
            degree += 1;
            node.degree = degree;
        }
    }

    /// Empties the table of degrees into the list of roots and finds the least key among them.
    fn collect_roots(&mut self) {
        self.min = NIL;
        let mut degrees = std::mem::take(&mut self.degrees);
        while degrees != 0 {
            let place = self.by_degree.get_mut(degrees.trailing_zeros() as usize);
            degrees &= degrees - 1;
            let root = place.map_or(NIL, |place| std::mem::replace(place, NIL));
            if let Some(key) = self.node(root).map(|node| node.key) {
                self.roots.push(root);
                self.offer_min(root, key);
            }
        }
    }
}

impl<K, V> Node<K, V> {
    fn alone(key: K, value: V, generation: u32) -> Self {
        Self {
            key,
            value,
            parent: NIL,
            generation,
            children: [NIL; INLINE],
            overflow: NIL,
            slot: 0,
            degree: 0,
            marked: false,
        }
    }

    #[inline]
    fn child_mut<'a>(&'a mut self, slot: u8, overflow: &'a mut Overflow) -> Option<&'a mut u32> {
        let slot = usize::from(slot);
        match slot.checked_sub(INLINE) {
            None => self.children.get_mut(slot),
            Some(slot) => overflow.blocks.get_mut(self.overflow as usize)?.get_mut(slot),
        }
    }
}

/// Room for the children of nodes that have many.
#[derive(Debug, Clone, Default)]
struct Overflow {
    blocks: Vec<[u32; DEGREES - INLINE]>,
    free: Vec<u32>,
}

impl Overflow {
    fn get(&self, block: u32) -> &[u32] {
        self.blocks.get(block as usize).map_or(&[], |block| block.as_slice())
    }

    fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.blocks.push([NIL; DEGREES - INLINE]);
            // Fewer than the nodes, which have indices of 32 bits.
            self.blocks.len() as u32 - 1
        })
    }

    fn release(&mut self, block: &mut u32) {
        self.free.push(std::mem::replace(block, NIL));
    }
}
