//! The heap's array: entries by position, eight siblings together.
//!
//! The root alone is at position 0, and the children of position p are the positions 8p + 1 to 8p + 8. They are one
//! group, which begins at a cache line and, with keys of four bytes, is one: a step down waits for memory once.

/// How many children an entry has.
pub(super) const CHILDREN: usize = 8;

/// A key and whose it is. Only in the heap is it sure to be the key that the item has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<K> {
    pub(super) key: K,
    pub(super) item: u32,
}

#[derive(Debug, Clone)]
#[repr(align(64))]
struct Group<K>([Entry<K>; CHILDREN]);

/// The entries; the group at 0 has only the root, in its last place. It does not know how many are in use: who asks
/// for a position beyond gets an entry that was there before.
#[derive(Debug, Clone)]
pub(super) struct Groups<K>(Vec<Group<K>>);

/// The position of an entry's parent; the root is its own.
#[inline]
pub(super) fn parent(position: usize) -> usize {
    position.saturating_sub(1) / CHILDREN
}

impl<K: Ord + Copy> Groups<K> {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity.div_ceil(CHILDREN) + usize::from(capacity > 0)))
    }

    #[inline]
    pub(super) fn get(&self, position: usize) -> Option<Entry<K>> {
        let place = position + CHILDREN - 1;
        self.0.get(place / CHILDREN)?.0.get(place % CHILDREN).copied()
    }

    /// Writes an entry to a position that has one, or to the first one that has none.
    #[inline]
    pub(super) fn set(&mut self, position: usize, entry: Entry<K>) {
        let place = position + CHILDREN - 1;
        match self.0.get_mut(place / CHILDREN) {
            Some(group) => {
                if let Some(old) = group.0.get_mut(place % CHILDREN) {
                    *old = entry;
                }
            }
            None => self.0.push(Group([entry; CHILDREN])),
        }
    }

    /// The least child of a position among the entries before `end`, and where it is.
    #[inline]
    pub(super) fn least_child(&self, position: usize, end: usize) -> Option<(usize, Entry<K>)> {
        let first = position * CHILDREN + 1;
        let siblings = end.checked_sub(first)?;
        let group = &self.0.get(position + 1)?.0;
        let least = if siblings >= CHILDREN { least_of_all(group) } else { least_of(group.get(..siblings)?)? };
        Some((first + least, *group.get(least)?))
    }

    /// The entries from `first` to before `end`, each with its position.
    pub(super) fn between(&self, first: usize, end: usize) -> impl Iterator<Item = (usize, Entry<K>)> + '_ {
        let place = first + CHILDREN - 1;
        let entries = self.0.iter().skip(place / CHILDREN).flat_map(|group| &group.0).skip(place % CHILDREN);
        (first..end).zip(entries.copied())
    }
}

/// Where the least of eight is, in three rounds: comparisons that do not wait for each other, and no branches.
#[inline]
fn least_of_all<K: Ord + Copy>(group: &[Entry<K>; CHILDREN]) -> usize {
    let [a, b, c, d, e, f, g, h] = group;
    let lesser = |a: (K, usize), b: (K, usize)| if b.0 < a.0 { b } else { a };
    let left = lesser(lesser((a.key, 0), (b.key, 1)), lesser((c.key, 2), (d.key, 3)));
    let right = lesser(lesser((e.key, 4), (f.key, 5)), lesser((g.key, 6), (h.key, 7)));
    lesser(left, right).1
}

fn least_of<K: Ord + Copy>(entries: &[Entry<K>]) -> Option<usize> {
    entries.iter().enumerate().min_by_key(|(_, entry)| entry.key).map(|(lane, _)| lane)
}
