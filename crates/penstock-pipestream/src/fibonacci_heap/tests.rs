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

/// More items than the property test has, so that nodes have more children than fit into them.
#[test]
fn in_a_large_heap_degrees_stay_logarithmic_and_the_order_holds() {
    const ITEMS: u32 = 20_000;
    let mut heap = FibonacciHeap::new();
    let mut model: std::collections::BTreeSet<(u32, u32)> = std::collections::BTreeSet::new();
    let mut keys: Vec<_> = (0..ITEMS).map(|item| item.wrapping_mul(2_654_435_761) >> 8).collect();
    let mut handles = Vec::new();
    for (item, key) in (0..).zip(&keys) {
        handles.push(heap.insert(*key, item).expect("room"));
        model.insert((*key, item));
    }
    let (mut most_roots, mut most_blocks, mut pick) = (0, 0, 1_u32);
    while let Some((key, item)) = heap.extract_min() {
        assert_eq!(model.first().map(|(least, _)| *least), Some(key));
        assert!(model.remove(&(key, item)));
        most_roots = most_roots.max(heap.roots.len());
        most_blocks = most_blocks.max(heap.overflow.blocks.len() - heap.overflow.free.len());
        for _ in 0..2 {
            pick = pick.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let at = (pick >> 8) % ITEMS;
            let key = &mut keys[at as usize];
            let lower = *key - *key / 16;
            assert_eq!(heap.decrease_key(handles[at as usize], lower).is_ok(), model.remove(&(*key, at)));
            if heap.key(handles[at as usize]).is_some() {
                model.insert((lower, at));
                *key = lower;
            }
        }
    }
    assert!(model.is_empty() && most_roots <= 24, "{most_roots} roots");
    assert!(most_blocks > 0 && heap.overflow.free.len() == heap.overflow.blocks.len(), "{most_blocks} blocks");
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
