//! The items by their handles: a slab with generations.

use super::groups::Entry;

/// No item.
const NIL: u32 = u32::MAX;

/// Names an item in the heap for as long as it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Handle {
    index: u32,
    generation: u32,
}

#[derive(Debug, Clone)]
struct Item<K> {
    key: K,
    /// Where the item's entry is or, of a free item, the next free one.
    position: u32,
    /// Odd while the item is in the heap, so a handle never names a free one, not even one of another heap.
    generation: u32,
}

/// What the heap knows of its items. A key lies beside the position, so lowering that of an item which waits takes no
/// other memory. Only an extract looks at values; they lie apart, so that what every step writes is small.
#[derive(Debug, Clone)]
pub(super) struct Items<K, V> {
    items: Vec<Item<K>>,
    values: Vec<V>,
    free: u32,
}

impl<K: Copy, V: Copy> Items<K, V> {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { items: Vec::with_capacity(capacity), values: Vec::with_capacity(capacity), free: NIL }
    }

    /// A new item at that position; refused only where there are 2^32 - 1.
    pub(super) fn add(&mut self, key: K, value: V, position: usize) -> Option<Handle> {
        // There are never more positions than items.
        let position = position as u32;
        let index = self.free;
        if let (Some(item), Some(place)) = (self.items.get_mut(index as usize), self.values.get_mut(index as usize)) {
            self.free = item.position;
            *item = Item { key, position, generation: item.generation.wrapping_add(1) };
            *place = value;
            return Some(Handle { index, generation: item.generation });
        }
        let index = u32::try_from(self.items.len()).ok().filter(|index| *index != NIL)?;
        self.items.push(Item { key, position, generation: 1 });
        self.values.push(value);
        Some(Handle { index, generation: 1 })
    }

    /// Where the item's entry is, and the entry with the item's key; `None` for a stale handle.
    #[inline]
    pub(super) fn find(&self, handle: Handle) -> Option<(usize, Entry<K>)> {
        let item = self.items.get(handle.index as usize).filter(|item| item.generation == handle.generation)?;
        Some((item.position as usize, Entry { key: item.key, item: handle.index }))
    }

    pub(super) fn position(&self, index: u32) -> Option<usize> {
        self.items.get(index as usize).map(|item| item.position as usize)
    }

    #[inline]
    pub(super) fn key(&self, index: u32) -> Option<K> {
        self.items.get(index as usize).map(|item| item.key)
    }

    #[inline]
    pub(super) fn lower(&mut self, index: u32, key: K) {
        if let Some(item) = self.items.get_mut(index as usize) {
            item.key = key;
        }
    }

    pub(super) fn value(&self, index: u32) -> Option<V> {
        self.values.get(index as usize).copied()
    }

    #[inline]
    pub(super) fn moved(&mut self, index: u32, position: usize) {
        if let Some(item) = self.items.get_mut(index as usize) {
            item.position = position as u32;
        }
    }

    /// Frees an item, whose handle is stale from now on.
    pub(super) fn release(&mut self, index: u32) -> Option<V> {
        let item = self.items.get_mut(index as usize)?;
        item.generation = item.generation.wrapping_add(1);
        item.position = std::mem::replace(&mut self.free, index);
        self.value(index)
    }
}

impl Handle {
    pub(super) fn index(self) -> u32 {
        self.index
    }
}
