//! An indexed heap of eight children a node, whose new items wait until they matter: O(1) insert, O(log n) amortised extract.
//! It was penstock's before the Fibonacci heap, and it is a peer because it shows what another structure makes of the same
//! work.
//!
//! ```text
//!  entries   [ root | 8 children | 8 of child 1 | 8 of child 2 | ... | new | new | new ]
//!            └─────────────── a heap, eight children each ──────────┘ └── waiting ────┘
//!                ▲                                                            ▲
//!             the least of the heap                              the least of those that wait
//!
//!  items     [ key, position, generation ] ...       by handle; freed ones are used again
//! ```
//!
//! The entries of the heap have copies of their items' keys; those that wait get theirs when they join it, so that
//! lowering the key of one takes a single cache line.
//!
//! | operation | cost |
//! |---|---|
//! | `insert` | O(1) |
//! | `decrease_key` | O(1) of an item that waits, else O(log n): upwards, one comparison a level |
//! | `extract_min` | O(log n) amortised |
//!
//! An insert appends its entry to those that wait. When the least of these is taken and k are waiting, either they are
//! few, at most the square of the number of levels, and are searched for the next one; or all of them join the heap:
//! their ancestors, each once and the last first, sink to where they belong. That is Floyd's construction of a heap,
//! confined to what is new, and costs O(k + log^2 n), which is O(k), for they are not few; the inserts pay for it. The
//! search is one comparison for each of the few. With at most 11 levels (2^32 items) that is no more than half as much
//! again as sinking from the root, which is eight comparisons a level.
//!
//! A handle that outlived its item is refused. Keys never change in place except by `decrease_key`.
//! Keys and values are `Copy`: a small number and an index into whatever the caller holds. A heap that has had as many
//! items before allocates nothing.

mod groups;
mod items;

use self::groups::{CHILDREN, Entry, Groups, parent};
pub(crate) use self::items::Handle;
use self::items::Items;

/// The heap; see the module's documentation.
#[derive(Debug, Clone)]
pub(crate) struct IndexedHeap<K, V> {
    items: Items<K, V>,
    entries: Groups<K>,
    len: usize,
    /// How many of the entries are a heap; those from there on wait.
    ordered: usize,
    /// The least of those that wait, if any do.
    least_waiting: usize,
}

impl<K: Ord + Copy, V: Copy> IndexedHeap<K, V> {
    /// An empty heap with room for that many items.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self {
            items: Items::with_capacity(capacity),
            entries: Groups::with_capacity(capacity),
            len: 0,
            ordered: 0,
            least_waiting: 0,
        }
    }

    /// Adds an item; `None` where 2^32 - 1 items are in the heap already.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<Handle> {
        let position = self.len;
        let handle = self.items.add(key, value, position)?;
        self.entries.set(position, Entry { key, item: handle.index() });
        self.len += 1;
        self.offer(position, key);
        Some(handle)
    }

    /// Lowers an item's key. `None` for a stale handle and a key above the item's own; nothing changes then.
    pub(crate) fn decrease_key(&mut self, handle: Handle, key: K) -> Option<()> {
        let (position, entry) = self.items.find(handle).filter(|(_, entry)| key <= entry.key)?;
        self.items.lower(entry.item, key);
        if position < self.ordered {
            self.rise(position, Entry { key, ..entry });
        } else {
            self.offer(position, key);
        }
        Some(())
    }

    /// Takes the item with the least key.
    pub(crate) fn extract_min(&mut self) -> Option<(K, V)> {
        let (position, entry) = self.least()?;
        self.take(position, entry)
    }

    // Positions are always those of entries; that look-ups return an `Option` is because nothing here may panic, not
    // because one could be wrong.

    fn least(&self) -> Option<(usize, Entry<K>)> {
        let ordered = if self.ordered > 0 { self.entries.get(0) } else { None };
        let waiting = if self.ordered < self.len { self.waiting(self.least_waiting) } else { None };
        match (ordered, waiting) {
            (Some(ordered), Some(waiting)) if waiting.key < ordered.key => Some((self.least_waiting, waiting)),
            (Some(ordered), _) => Some((0, ordered)),
            (None, waiting) => Some((self.least_waiting, waiting?)),
        }
    }

    /// An entry that waits, with the key that its item has by now.
    #[inline]
    fn waiting(&self, position: usize) -> Option<Entry<K>> {
        let Entry { item, .. } = self.entries.get(position)?;
        Some(Entry { key: self.items.key(item)?, item })
    }

    /// A new or lowered key among those that wait.
    #[inline]
    fn offer(&mut self, position: usize, key: K) {
        let alone = self.len - self.ordered == 1;
        if alone || self.waiting(self.least_waiting).is_some_and(|least| key < least.key) {
            self.least_waiting = position;
        }
    }

    fn take(&mut self, mut position: usize, entry: Entry<K>) -> Option<(K, V)> {
        if position >= self.ordered && position == self.least_waiting && self.many_wait() {
            self.join();
            position = self.items.position(entry.item)?;
        }
        let value = self.items.release(entry.item)?;
        self.len -= 1;
        if position < self.ordered {
            self.take_ordered(position, entry.key)?;
        } else {
            self.take_waiting(position)?;
        }
        Some((entry.key, value))
    }

    /// The heap's last entry goes where one was taken, and the last of those that wait goes where that was.
    fn take_ordered(&mut self, position: usize, key: K) -> Option<()> {
        self.ordered -= 1;
        let last = self.entries.get(self.ordered)?;
        if self.ordered < self.len {
            self.put(self.ordered, self.entries.get(self.len)?);
            if self.least_waiting == self.len {
                self.least_waiting = self.ordered;
            }
        }
        if position < self.ordered {
            if last.key < key {
                self.rise(position, last);
            } else {
                self.sink(position, last);
            }
        }
        Some(())
    }

    /// The last entry goes where one was taken.
    fn take_waiting(&mut self, position: usize) -> Option<()> {
        if position < self.len {
            self.put(position, self.entries.get(self.len)?);
        }
        if self.least_waiting == position {
            let waiting = self.entries.between(self.ordered, self.len);
            let keys = waiting.filter_map(|(position, entry)| Some((self.items.key(entry.item)?, position)));
            self.least_waiting = keys.min().map_or(self.len, |(_, position)| position);
        } else if self.least_waiting == self.len {
            self.least_waiting = position;
        }
        Some(())
    }

    /// Whether those that wait are too many to be searched.
    fn many_wait(&self) -> bool {
        let levels = 1 + self.len.checked_ilog(CHILDREN).unwrap_or(0) as usize;
        self.len - self.ordered > levels * levels
    }

    /// Makes those that wait part of the heap, with the keys that they have by now.
    fn join(&mut self) {
        let mut first = parent(self.ordered.max(1));
        let mut last = parent(self.len.saturating_sub(1));
        for position in self.ordered..self.len {
            if let Some(entry) = self.waiting(position) {
                self.entries.set(position, entry);
            }
        }
        self.ordered = self.len;
        loop {
            for position in (first..=last).rev() {
                if let Some(entry) = self.entries.get(position) {
                    self.sink(position, entry);
                }
            }
            if first == 0 {
                return;
            }
            // Those among their parents that have not been there yet.
            last = parent(last).min(first - 1);
            first = parent(first);
        }
    }

    /// Puts an entry at a position or, as long as there is a greater one above, in that one's place.
    #[inline]
    fn rise(&mut self, mut position: usize, entry: Entry<K>) {
        while position > 0
            && let Some(above) = self.entries.get(parent(position))
            && entry.key < above.key
        {
            self.put(position, above);
            position = parent(position);
        }
        self.put(position, entry);
    }

    /// Puts an entry at a position or, as long as there is a lesser one below, in the least one's place.
    #[inline]
    fn sink(&mut self, mut position: usize, entry: Entry<K>) {
        while let Some((child, least)) = self.entries.least_child(position, self.ordered)
            && least.key < entry.key
        {
            self.put(position, least);
            position = child;
        }
        self.put(position, entry);
    }

    #[inline]
    fn put(&mut self, position: usize, entry: Entry<K>) {
        self.entries.set(position, entry);
        self.items.moved(entry.item, position);
    }
}
