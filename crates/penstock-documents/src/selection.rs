use std::ops::RangeInclusive;

/// A selection of the children of one container: see [`Dehydrator::with_selection`](crate::Dehydrator::with_selection).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// The depth of the container; the document itself is at 0.
    pub depth: usize,
    /// The selected children, counted from 1; in ascending order, without overlaps.
    pub places: Vec<RangeInclusive<u64>>,
}

impl Selection {
    /// Return the first selected place at or after `place`.
    pub(crate) fn next_from(&self, place: u64) -> Option<u64> {
        let after = self.places.partition_point(|range| *range.end() < place);
        self.places.get(after).map(|range| place.max(*range.start()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_wanted_place_is_found_in_and_between_ranges() {
        let selection = Selection { depth: 0, places: vec![2..=3, 7..=7] };
        let found: Vec<_> = (1..=8).map(|place| selection.next_from(place)).collect();
        let expected = [Some(2), Some(2), Some(3), Some(7), Some(7), Some(7), Some(7), None];
        assert_eq!(found, expected);
    }
}
