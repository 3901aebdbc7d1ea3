use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

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
    heap.decrease_key(handles[19], 9).expect("a root");
    assert_eq!(heap.extract_min(), Some((9, 19)));
    assert_eq!(heap.extract_min(), Some((10, 0)));
    let child = handles.iter().find(|handle| heap.arena.find(**handle).is_some_and(|node| node.parent != NIL));
    let child = *child.expect("the extract has linked");
    let value = heap.arena.value(child.index()).expect("an item");
    heap.decrease_key(child, 3).expect("a child");
    check(&heap);
    assert_eq!(heap.peek_min(), Some((3, value)));
    assert!(heap.decrease_key(child, 4).is_err());
    assert_eq!(heap.key(child), Some(3));
    heap.decrease_key(child, 3).expect("equal is allowed");
}

#[test]
fn a_stale_handle_is_refused_even_when_its_item_is_used_again() {
    let mut heap = FibonacciHeap::new();
    let old = heap.insert(1, 'a').expect("room");
    assert_eq!(heap.extract_min(), Some((1, 'a')));
    assert!(heap.key(old).is_none() && heap.remove(old).is_none() && heap.decrease_key(old, 0).is_err());
    let new = heap.insert(2, 'b').expect("room");
    assert_eq!((new.index(), heap.arena.slots()), (old.index(), 1));
    assert!(heap.key(old).is_none() && heap.remove(old).is_none() && heap.decrease_key(old, 0).is_err());
    assert_eq!(heap.remove(new), Some((2, 'b')));
}

#[test]
fn a_node_whose_generations_are_used_up_is_not_used_again() {
    let mut heap = FibonacciHeap::new();
    let first = heap.insert(1, 'a').expect("room");
    heap.arena.get_mut(first.index()).expect("a node").generation = u32::MAX;
    assert_eq!(heap.extract_min(), Some((1, 'a')));
    let second = heap.insert(2, 'b').expect("room");
    assert_ne!(second.index(), first.index());
    assert!(heap.key(first).is_none() && heap.decrease_key(first, 0).is_err());
    assert_eq!(heap.extract_min(), Some((2, 'b')));
}

/// Nodes of rank above 9 have their links in blocks, and only a heap of more than 2^9 items has such ranks.
#[test]
fn a_root_of_eighteen_children_loses_them_one_by_one() {
    const ITEMS: u32 = 1 << 18;
    let mut heap = FibonacciHeap::new();
    let handles: Vec<_> = (0..=ITEMS).map(|item| heap.insert(item + 100, item).expect("room")).collect();
    assert_eq!(heap.extract_min(), Some((100, 0)));
    let root = heap.least.expect("a root").node;
    for lost in 0..18_u8 {
        let node = heap.arena.get(root).expect("a node");
        assert_eq!((node.rank, node.parent), (18 - lost, NIL));
        let rank = node.rank;
        // From the front, the middle and the end in turn.
        let place = [0, rank / 2, rank - 1][usize::from(lost % 3)];
        let child = node.children.links(rank, &heap.blocks)[usize::from(place)];
        heap.decrease_key(handles[child as usize], u32::from(90 - lost)).expect("a child");
        if lost < 4 {
            check(&heap);
        }
    }
    check(&heap);
    let keys: Vec<_> = std::iter::from_fn(|| heap.extract_min()).map(|(key, _)| key).collect();
    assert_eq!(keys.len(), ITEMS as usize);
    assert!(keys.is_sorted() && keys[..18].iter().copied().eq(73..=90));
    check(&heap);
}

#[test]
fn a_heap_that_was_as_full_before_takes_no_more_room() {
    let mut heap = FibonacciHeap::new();
    let room = |heap: &FibonacciHeap<u32, u32>| heap.arena.slots();
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

/// The heap and a sorted map as its model, for the same operations.
#[derive(Default)]
struct Both {
    heap: FibonacciHeap<u32, u32>,
    /// The items in the heap, as pairs of key and item.
    model: BTreeSet<(u32, u32)>,
    /// Every item ever added, with its handle and, while it is in the heap, its key.
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

    /// Check each item, and that the trees are valid.
    fn check_all(&self) {
        self.check();
        for (handle, key) in self.items.values() {
            assert_eq!(self.heap.key(*handle), *key);
        }
        check(&self.heap);
    }
}

/// Check the rules of the structure for every node.
fn check<K: Ord + Copy + std::fmt::Debug, V: Copy>(heap: &FibonacciHeap<K, V>) {
    let (mut seen, mut blocks) = (vec![false; heap.arena.slots()], Vec::new());
    let table = heap.roots.table();
    for (rank, root) in &table {
        let node = heap.arena.get(root.node).expect("a node");
        assert_eq!((node.rank, node.key), (*rank, root.key), "a root stands under its own rank, with its own key");
    }
    let roots: Vec<u32> = table.iter().map(|(_, root)| root.node).chain(heap.roots.loose.iter().copied()).collect();
    let mut nodes = 0;
    for root in &roots {
        let node = heap.arena.get(*root).expect("a node");
        assert_eq!(node.parent, NIL, "a root has no parent");
        assert!(!node.marked, "no root is marked");
        nodes += tree(heap, *root, &mut seen, &mut blocks);
    }
    assert_eq!(nodes, heap.len(), "every item is in one tree");
    let least = roots.iter().filter_map(|root| heap.arena.get(*root)).map(|node| node.key).min();
    assert_eq!(heap.least.map(|root| root.key), least);
    if let Some(least) = heap.least {
        assert!(roots.contains(&least.node) && heap.arena.get(least.node).is_some_and(|node| node.key == least.key));
    }
    let mut free = heap.arena.first_free();
    while free != NIL {
        assert!(!std::mem::replace(&mut seen[free as usize], true), "a free node is in the list once, and in no tree");
        let node = heap.arena.get(free).expect("a node");
        assert_eq!(node.generation % 2, 0, "a free node has an even generation");
        free = node.parent;
    }
    assert!(seen.iter().all(|seen| *seen), "every node is in use or free");
    heap.blocks.check(blocks);
}

/// Return how many nodes a tree has.
fn tree<K: Ord + Copy + std::fmt::Debug, V: Copy>(
    heap: &FibonacciHeap<K, V>,
    index: u32,
    seen: &mut [bool],
    blocks: &mut Vec<u32>,
) -> usize {
    assert!(!std::mem::replace(&mut seen[index as usize], true), "a node is in one place");
    let node = heap.arena.get(index).expect("a node");
    assert_eq!(node.generation % 2, 1, "a node in use has an odd generation");
    let rank = node.rank;
    let links = node.children.links(rank, &heap.blocks);
    assert_eq!(links.len(), usize::from(rank), "the rank is the number of children");
    blocks.extend(node.children.block(rank));
    let mut size = 1;
    for (place, link) in links.iter().enumerate() {
        let child = heap.arena.get(*link).expect("a node");
        assert_eq!((child.parent, usize::from(child.place)), (index, place), "links go both ways");
        assert!(node.key <= child.key, "no child is less than its parent");
        assert!(node.key <= child.bound, "a bound is never below the parent's key");
        size += tree(heap, *link, seen, blocks);
    }
    assert!(size >= fibonacci(rank + 2), "rank {rank} with {size} nodes");
    size
}

fn fibonacci(n: u8) -> usize {
    (0..n).fold((0, 1), |(a, b), _| (b, a + b)).0
}

#[test]
fn a_node_that_loses_a_second_child_is_cut_too() {
    let mut heap = FibonacciHeap::new();
    let handles: Vec<_> = (0..17_u32).map(|key| heap.insert(key * 10, key).expect("room")).collect();
    assert_eq!(heap.extract_min(), Some((0, 0)));
    // The sixteen remaining items are one tree; below its root there is a child with at least two children.
    let rank_of = |heap: &FibonacciHeap<u32, u32>, handle: Handle| heap.arena.find(handle).map(|node| node.rank);
    let parent_of = |heap: &FibonacciHeap<u32, u32>, handle: Handle| heap.arena.find(handle).map(|node| node.parent);
    let parent = handles.iter().copied().find(|handle| {
        rank_of(&heap, *handle).is_some_and(|rank| rank >= 2) && parent_of(&heap, *handle).is_some_and(|it| it != NIL)
    });
    let parent = parent.expect("a child with children");
    let children: Vec<Handle> =
        handles.iter().copied().filter(|handle| parent_of(&heap, *handle) == Some(parent.index())).collect();
    heap.decrease_key(children[0], 2).expect("a child");
    check(&heap);
    assert!(heap.arena.find(parent).is_some_and(|node| node.marked && node.parent != NIL), "one is allowed");
    heap.decrease_key(children[1], 1).expect("a child");
    check(&heap);
    assert!(heap.arena.find(parent).is_some_and(|node| !node.marked && node.parent == NIL), "two are not");
    assert_eq!(
        (heap.extract_min(), heap.extract_min()),
        (Some((1, value(&children, 1))), Some((2, value(&children, 0))))
    );
}

/// Return the value of one of the items above: its index in the order of insertion.
fn value(handles: &[Handle], at: usize) -> u32 {
    handles[at].index()
}

/// The same model as in the property test, with more items.
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
        // A burst of insertions, from none to many loose roots.
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

#[test]
fn an_insert_and_a_decrease_are_a_few_comparisons_and_an_extract_is_logarithmic() {
    let mut heap = FibonacciHeap::new();
    let mut handles = Vec::new();
    let inserts = comparisons_of(|| {
        for item in 0..100_000_u32 {
            handles.push(
                heap.insert(Counted(1_000_000 + item.wrapping_mul(2_654_435_761) % 1_000_000), item).expect("room"),
            );
        }
    });
    assert!(inserts <= 100_000, "{inserts}");
    let first = comparisons_of(|| assert!(heap.extract_min().is_some()));
    assert!(first <= 100_000 + 100, "{first}: one comparison a link, and one for each root that is left");
    let extracts = comparisons_of(|| {
        for _ in 0..1_000 {
            heap.extract_min().expect("an item");
        }
    });
    assert!(extracts <= 1_000 * 3 * 17, "{extracts}");
    let mut lower = 1_000_000;
    let decreases = comparisons_of(|| {
        for handle in &handles {
            lower -= 1;
            // The handles of extracted items are rejected.
            let _ = heap.decrease_key(*handle, Counted(lower));
        }
    });
    assert!(decreases <= 100_000 * 4, "{decreases}: with itself, with the bound, with the parent, with the least");
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
        2 => prop::collection::vec(any::<u16>(), 0..40).prop_map(Operation::Insert),
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
                Operation::Insert(keys) => keys.into_iter().for_each(|key| {
                    both.insert(u32::from(key));
                    both.check_all();
                }),
                Operation::Decrease(pick, by) if items > 0 => both.decrease(pick % items, u32::from(by)),
                Operation::Extract => both.extract(),
                Operation::Remove(pick) if items > 0 => both.remove(pick % items),
                Operation::Decrease(..) | Operation::Remove(_) => {}
            }
            both.check_all();
        }
    }
}
