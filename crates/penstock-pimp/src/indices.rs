use serde::{Deserialize, Serialize};

/// A set of indices as ascending ranges that do not touch. While chunks arrive in order there is one range.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Indices(Vec<(u32, u32)>);

impl Indices {
    /// Make an empty set.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Return the position of the first range that ends at `index` or later.
    fn place(&self, index: u32) -> usize {
        self.0.partition_point(|(_, last)| *last < index)
    }

    /// Return whether the set contains an index.
    pub fn contains(&self, index: u32) -> bool {
        self.0.get(self.place(index)).is_some_and(|(first, _)| *first <= index)
    }

    /// Add an index; return `false` if it was present.
    pub fn insert(&mut self, index: u32) -> bool {
        let place = self.place(index);
        let behind = self.0.get(place).copied();
        if behind.is_some_and(|(first, _)| first <= index) {
            return false;
        }
        let before = place.checked_sub(1).and_then(|before| self.0.get(before)).copied();
        let joins_before = before.is_some_and(|(_, last)| last.checked_add(1) == Some(index));
        let joins_behind = behind.is_some_and(|(first, _)| index.checked_add(1) == Some(first));
        match (before, behind) {
            (Some((first, _)), Some((_, last))) if joins_before && joins_behind => {
                self.0.remove(place);
                self.replace(place - 1, (first, last));
            }
            (Some((first, _)), _) if joins_before => self.replace(place - 1, (first, index)),
            (_, Some((_, last))) if joins_behind => self.replace(place, (index, last)),
            (_, _) => self.0.insert(place, (index, index)),
        }
        true
    }

    fn replace(&mut self, place: usize, range: (u32, u32)) {
        if let Some(at) = self.0.get_mut(place) {
            *at = range;
        }
    }

    /// Return how many indices there are.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// Return the highest index.
    pub fn highest(&self) -> Option<u32> {
        self.0.last().map(|(_, last)| *last)
    }

    /// Return the first index from `from` on that is missing.
    pub fn first_missing(&self, from: u32) -> u32 {
        match self.0.get(self.place(from)) {
            Some((first, last)) if *first <= from => last.saturating_add(1),
            Some(_) | None => from,
        }
    }

    /// Return the indices from `from` on, ascending.
    pub fn iter_from(&self, from: u32) -> impl Iterator<Item = u32> {
        let ranges = self.0.get(self.place(from)..).unwrap_or_default();
        ranges.iter().flat_map(move |(first, last)| (*first).max(from)..=*last)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn indices_are_a_set_in_ranges_that_do_not_touch(inserted in prop::collection::vec(0_u32..40, 0..60)) {
            let (mut indices, mut set) = (Indices::new(), BTreeSet::new());
            for index in inserted {
                prop_assert_eq!(indices.insert(index), set.insert(index));
                prop_assert!(indices.0.windows(2).all(|two| two[0].1 + 1 < two[1].0), "{:?}", indices);
            }
            prop_assert_eq!(indices.count() as usize, set.len());
            prop_assert_eq!(indices.highest(), set.last().copied());
            for from in 0..42 {
                prop_assert_eq!(indices.contains(from), set.contains(&from));
                prop_assert_eq!(indices.iter_from(from).collect::<Vec<_>>(), set.range(from..).copied().collect::<Vec<_>>());
                prop_assert_eq!(Some(indices.first_missing(from)), (from..100).find(|index| !set.contains(index)));
            }
        }
    }
}
