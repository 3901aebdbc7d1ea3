//! The heap's nodes: an arena with u32 links, a free list and generations.

use super::children::{Children, NIL};
use crate::error::{LimitError, Result};

/// The name of an item, valid while the item is in the heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    index: u32,
    generation: u32,
}

impl Handle {
    pub(super) fn index(self) -> u32 {
        self.index
    }
}

/// An item and its position in the trees. With a key and a value of four bytes each it is one cache line, so that
/// following a link to a node, and to the links of nearly every node, waits for memory only once.
#[derive(Debug, Clone)]
#[repr(align(64))]
pub(super) struct Node<K, V> {
    pub(super) key: K,
    value: V,
    /// The parent; NIL for a root. In a free node, the next free one.
    pub(super) parent: u32,
    /// The parent's key when the node was linked. The parent's key may have become lower, but is never greater. So a
    /// key that is not below this bound keeps the order, and the parent need not be read.
    pub(super) bound: K,
    pub(super) children: Children,
    /// Odd while the node is in use, so a handle never names a free node, not even that of another heap.
    pub(super) generation: u32,
    /// How many children the node has.
    pub(super) rank: u8,
    /// The position of the node among its parent's children.
    pub(super) place: u8,
    /// Whether the node has lost a child since it became a child.
    pub(super) marked: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Arena<K, V> {
    nodes: Vec<Node<K, V>>,
    free: u32,
}

impl<K: Copy, V: Copy> Arena<K, V> {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { nodes: Vec::with_capacity(capacity), free: NIL }
    }

    /// Add a root without children. This fails only if there are 2^32 - 1 nodes.
    #[inline]
    pub(super) fn add(&mut self, key: K, value: V) -> Result<Handle> {
        let new = |generation| Node {
            key,
            value,
            parent: NIL,
            bound: key,
            children: Children::NONE,
            generation,
            rank: 0,
            place: 0,
            marked: false,
        };
        let index = self.free;
        if let Some(node) = self.nodes.get_mut(index as usize) {
            self.free = node.parent;
            *node = new(node.generation.wrapping_add(1));
            return Ok(Handle { index, generation: node.generation });
        }
        let index = u32::try_from(self.nodes.len()).ok().filter(|index| *index != NIL).ok_or(LimitError::Heap)?;
        self.nodes.push(new(1));
        Ok(Handle { index, generation: 1 })
    }

    /// Free a node, which makes its handle stale. A node that has used every generation is not reused: its next handle
    /// would equal its first.
    #[inline]
    pub(super) fn release(&mut self, index: u32) -> Option<(K, V)> {
        let node = self.nodes.get_mut(index as usize)?;
        node.generation = node.generation.wrapping_add(1);
        if node.generation != 0 {
            node.parent = std::mem::replace(&mut self.free, index);
        }
        Some((node.key, node.value))
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&Node<K, V>> {
        self.nodes.get(index as usize)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Node<K, V>> {
        self.nodes.get_mut(index as usize)
    }

    /// Return the node of an item; `None` for a stale handle.
    #[inline]
    pub(super) fn find(&self, handle: Handle) -> Option<&Node<K, V>> {
        self.get(handle.index).filter(|node| node.generation == handle.generation)
    }

    /// Return the node of an item; `None` for a stale handle.
    #[inline]
    pub(super) fn find_mut(&mut self, handle: Handle) -> Option<&mut Node<K, V>> {
        self.get_mut(handle.index).filter(|node| node.generation == handle.generation)
    }

    pub(super) fn value(&self, index: u32) -> Option<V> {
        self.get(index).map(|node| node.value)
    }

    #[cfg(test)]
    pub(super) fn slots(&self) -> usize {
        self.nodes.len()
    }

    #[cfg(test)]
    pub(super) fn first_free(&self) -> u32 {
        self.free
    }
}
