use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

#[test]
fn the_least_key_comes_first() {
    let mut heap = IndexedHeap::new();
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
    let mut heap = IndexedHeap::new();
    let handles: Vec<_> = (0..20_u32).map(|key| heap.insert(key + 10, key).expect("room")).collect();
    heap.decrease_key(handles[19], 9).expect("one that waits");
    assert_eq!(heap.extract_min(), Some((9, 19)));
    assert_eq!((heap.extract_min(), heap.ordered), (Some((10, 0)), 18));
    heap.decrease_key(handles[15], 3).expect("one in order");
    assert_eq!(heap.peek_min(), Some((3, 15)));
    assert!(heap.decrease_key(handles[15], 4).is_err());
    assert_eq!(heap.key(handles[15]), Some(3));
    heap.decrease_key(handles[15], 3).expect("equal is allowed");
}

#[test]
fn a_stale_handle_is_refused_even_when_its_item_is_used_again() {
    let mut heap = IndexedHeap::new();
    let old = heap.insert(1, 'a').expect("room");
    assert_eq!(heap.extract_min(), Some((1, 'a')));
    assert!(heap.key(old).is_none() && heap.remove(old).is_none() && heap.decrease_key(old, 0).is_err());
    let new = heap.insert(2, 'b').expect("room");
    assert_eq!((new.index(), heap.items.slots()), (old.index(), 1));
    assert!(heap.key(old).is_none() && heap.remove(old).is_none() && heap.decrease_key(old, 0).is_err());
    assert_eq!(heap.remove(new), Some((2, 'b')));
}

#[test]
fn a_heap_that_was_as_full_before_takes_no_more_room() {
    let mut heap = IndexedHeap::new();
    let room = |heap: &IndexedHeap<u32, u32>| (heap.items.slots(), heap.entries.slots());
    for key in 0..1000 {
        heap.insert(key * 7 % 1000, key).expect("room");
    }
    let full = room(&heap);
    for round in 0..10 {
        for _ in 0..round * 100 {
            heap.extract_min().expect("an item");
        }
        for key in 0..round * 100 {
            heap.insert(key, key).expect("room");
        }
    }
    assert_eq!((heap.len(), room(&heap)), (1000, full));
}

/// The operations on the heap and on a sorted map that says what must come of them.
#[derive(Default)]
struct Both {
    heap: IndexedHeap<u32, u32>,
    /// By key and item.
    model: BTreeSet<(u32, u32)>,
    /// Every item there ever was, with its handle and, while it is there, its key.
    items: BTreeMap<u32, (Handle, Option<u32>)>,
}

impl Both {
    fn insert(&mut self, key: u32) {
        let item = self.items.len() as u32;
        let handle = self.heap.insert(key, item).expect("room");
        self.model.insert((key, item));
        self.items.insert(item, (handle, Some(key)));
    }

    fn decrease(&mut self, item: u32, by: u32) {
        let (handle, key) = self.items.get_mut(&item).expect("an item");
        let lower = key.unwrap_or(0).saturating_sub(by);
        assert_eq!(self.heap.decrease_key(*handle, lower).is_ok(), key.is_some());
        if let Some(key) = key {
            assert!(self.model.remove(&(*key, item)) && self.model.insert((lower, item)));
            *key = lower;
        }
    }

    fn extract(&mut self) {
        let taken = self.heap.extract_min();
        assert_eq!(taken.map(|(key, _)| key), self.model.first().map(|(key, _)| *key));
        if let Some(taken) = taken {
            assert!(self.model.remove(&taken));
            self.items.get_mut(&taken.1).expect("an item").1 = None;
        }
    }

    fn remove(&mut self, item: u32) {
        let (handle, key) = self.items.get_mut(&item).expect("an item");
        let key = key.take();
        assert_eq!(self.heap.remove(*handle), key.map(|key| (key, item)));
        assert_eq!(key.is_some_and(|key| self.model.remove(&(key, item))), key.is_some());
    }

    fn check(&self) {
        assert_eq!(self.heap.len(), self.model.len());
        assert_eq!(self.heap.peek_min().map(|(key, _)| key), self.model.first().map(|(key, _)| *key));
    }

    /// What the heap says of each item, and that its entries are in order.
    fn check_all(&self) {
        self.check();
        for (handle, key) in self.items.values() {
            assert_eq!(self.heap.key(*handle), *key);
        }
        for position in 1..self.heap.ordered {
            let entry = |position| self.heap.entries.get(position).expect("an entry");
            assert!(entry(parent(position)).key <= entry(position).key);
            assert_eq!(self.heap.items.key(entry(position).item), Some(entry(position).key));
        }
    }
}

/// More items than the property test has.
#[test]
fn in_a_large_heap_the_order_holds() {
    let mut both = Both::default();
    let mut random = 1_u32;
    let mut pick = |below: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 8) % below
    };
    for _ in 0..20_000 {
        both.insert(pick(1 << 20));
    }
    for round in 0..20_000 {
        both.extract();
        for _ in 0..2 {
            let items = both.items.len() as u32;
            both.decrease(pick(items), pick(1 << 16));
        }
        // From none to more than may wait.
        if round % 500 == 0 {
            (0..pick(200)).for_each(|_| both.insert(pick(1 << 20)));
        }
        both.check();
    }
    both.check_all();
    while !both.model.is_empty() {
        both.extract();
    }
    both.check_all();
}

thread_local! {
    static COMPARISONS: Cell<usize> = const { Cell::new(0) };
}

/// A key that counts how often it is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Counted(u32);

impl Ord for Counted {
    fn cmp(&self, other: &Self) -> Ordering {
        COMPARISONS.set(COMPARISONS.get() + 1);
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for Counted {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn comparisons_of(work: impl FnOnce()) -> usize {
    let before = COMPARISONS.get();
    work();
    COMPARISONS.get() - before
}

/// A heap of 8^levels items, all in order, whose keys are above a million.
fn ordered_heap(levels: u32) -> IndexedHeap<Counted, u32> {
    let mut heap = IndexedHeap::new();
    for item in 0..=8_u32.pow(levels) {
        heap.insert(Counted(1_000_000 + item.wrapping_mul(2_654_435_761) % 1_000_000), item).expect("room");
    }
    heap.extract_min();
    assert_eq!(heap.ordered, heap.len());
    heap
}

#[test]
fn an_insert_is_one_comparison_and_the_heap_is_built_in_linear_time() {
    let mut heap = IndexedHeap::new();
    let inserts = comparisons_of(|| {
        for item in (0..100_000).rev() {
            heap.insert(Counted(item), item).expect("room");
        }
    });
    assert!(inserts <= 100_000, "{inserts}");
    let first = comparisons_of(|| assert_eq!(heap.extract_min().map(|(_, item)| item), Some(0)));
    assert!(first <= 3 * 100_000, "{first}");
    let second = comparisons_of(|| assert_eq!(heap.extract_min().map(|(_, item)| item), Some(1)));
    assert!(second <= 8 * 6 + 1, "{second}");
}

/// The worst there is: each new key is below all others, so an insert that rose at once would reach the root, which is a
/// comparison a level. When many come between two extracts it is at most four, in a heap of any size.
#[test]
fn however_many_inserts_lie_between_extracts_they_cost_a_constant_each() {
    for levels in 2..=5 {
        let mut heap = ordered_heap(levels);
        let mut key = 1_000_000;
        for inserts in [1, 2, 3, 5, 8, 13, 21, 34, 55, 100, 300, 1000] {
            const ROUNDS: usize = 20;
            let all = comparisons_of(|| {
                for _ in 0..ROUNDS {
                    for _ in 0..inserts {
                        key -= 1;
                        heap.insert(Counted(key), key).expect("room");
                    }
                    assert_eq!(heap.extract_min().map(|(_, item)| item), Some(key));
                }
            });
            let each = if inserts < 100 { 8 } else { 4 };
            let allowed = ROUNDS * (inserts * each + 8 * (levels as usize + 1));
            assert!(all <= allowed, "{inserts} inserts at 8^{levels}: {all} comparisons, {allowed} allowed");
        }
    }
}

#[derive(Debug, Clone)]
enum Operation {
    Insert(Vec<u16>),
    Decrease(u32, u16),
    Extract,
    Remove(u32),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => prop::collection::vec(any::<u16>(), 1..3).prop_map(Operation::Insert),
        1 => prop::collection::vec(any::<u16>(), 0..40).prop_map(Operation::Insert),
        8 => (any::<u32>(), any::<u16>()).prop_map(|(pick, by)| Operation::Decrease(pick, by)),
        6 => Just(Operation::Extract),
        3 => any::<u32>().prop_map(Operation::Remove),
    ]
}

proptest! {
    #[test]
    fn a_heap_does_what_a_sorted_map_does(operations in prop::collection::vec(operation(), 0..300)) {
        let mut both = Both::default();
        for operation in operations {
            let items = both.items.len() as u32;
            match operation {
                Operation::Insert(keys) => keys.into_iter().for_each(|key| both.insert(u32::from(key))),
                Operation::Decrease(pick, by) if items > 0 => both.decrease(pick % items, u32::from(by)),
                Operation::Extract => both.extract(),
                Operation::Remove(pick) if items > 0 => both.remove(pick % items),
                Operation::Decrease(..) | Operation::Remove(_) => {}
            }
            both.check();
        }
        both.check_all();
    }
}
