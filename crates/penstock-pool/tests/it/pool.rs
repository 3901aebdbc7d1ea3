//! Tests of the pool: rejected handles, statistics, and the reuse of memory.
#![allow(clippy::expect_used, clippy::indexing_slicing)]

use penstock_pool::{AllocError, Block, BlockError, Pool, PoolConfig};
use proptest::prelude::*;

/// A slab of the default classes.
const SLAB: usize = 7 * (4_096 + 16);

fn pool(slabs: usize) -> Pool {
    Pool::new(&PoolConfig::with_bytes(slabs * SLAB)).expect("valid")
}

/// Return the default class for this many bytes.
fn class_of(bytes: usize) -> Option<usize> {
    PoolConfig::default().classes.into_iter().find(|class| *class >= bytes)
}

fn fill(pool: &mut Pool, bytes: usize) -> Vec<Block> {
    std::iter::from_fn(|| pool.alloc(bytes).ok()).collect()
}

#[test]
fn a_pool_without_room_for_a_slab_is_refused_and_names_what_it_needs() {
    let error = Pool::new(&PoolConfig::with_bytes(SLAB - 1)).expect_err("too small");
    assert_eq!(error, penstock_pool::ConfigError::Pool { bytes: SLAB - 1, least: SLAB });
    assert!(Pool::new(&PoolConfig { bytes: 1 << 20, classes: vec![1 << 20] }).is_err());
}

#[test]
fn a_length_above_the_largest_class_is_refused() {
    let mut pool = pool(1);
    assert_eq!(pool.alloc(4_097), Err(AllocError::TooLarge { bytes: 4_097, largest: 4_096 }));
    assert_eq!(pool.alloc(usize::MAX), Err(AllocError::TooLarge { bytes: usize::MAX, largest: 4_096 }));
}

#[test]
fn a_block_is_freed_once() {
    let mut pool = pool(1);
    let block = pool.alloc(100).expect("room");
    assert_eq!(pool.free(block), Ok(()));
    assert_eq!(pool.free(block), Err(BlockError::Freed));
    assert_eq!(pool.get(block), Err(BlockError::Freed));
    assert!(pool.get_mut(block).is_err());
    // The place is used again, and the old handle stays invalid.
    let again = pool.alloc(100).expect("room");
    assert_eq!((again.offset(), pool.free(block)), (block.offset(), Err(BlockError::Freed)));
    assert_eq!((pool.free(again), pool.bytes_used()), (Ok(()), 0));
}

#[test]
fn a_place_inside_of_a_block_is_refused_for_any_content() {
    let mut pool = pool(1);
    let block = pool.alloc(256).expect("room");
    let inside = block.at(block.offset() + 48).expect("a unit");
    assert_eq!(pool.free(inside), Err(BlockError::Interior));
    pool.get_mut(block).expect("allocated").fill(0xFF);
    assert_eq!(pool.free(inside), Err(BlockError::Interior));
    for offset in [block.offset() + 16, SLAB as u64 - 16, SLAB as u64, u64::from(u32::MAX) * 16] {
        assert_eq!(pool.free(block.at(offset).expect("a unit")), Err(BlockError::Interior), "{offset}");
    }
    assert_eq!((pool.bytes_used(), pool.free(block), pool.bytes_used()), (256, Ok(()), 0));
}

#[test]
fn the_block_of_another_pool_is_refused() {
    let (mut ours, mut other) = (pool(1), pool(1));
    let (block, foreign) = (ours.alloc(16).expect("room"), other.alloc(16).expect("room"));
    assert_eq!((ours.free(foreign), ours.get(foreign)), (Err(BlockError::Foreign), Err(BlockError::Foreign)));
    assert_eq!((other.free(block), ours.free(block), other.free(foreign)), (Err(BlockError::Foreign), Ok(()), Ok(())));
}

#[test]
fn a_handle_from_before_its_slab_went_to_another_class_is_refused() {
    let mut pool = pool(1);
    let old = fill(&mut pool, 64);
    old.iter().for_each(|block| assert_eq!(pool.free(*block), Ok(())));
    let new = fill(&mut pool, 1_024);
    assert_eq!(new.len(), SLAB / 1_040);
    for block in old {
        assert_eq!(pool.free(block), Err(BlockError::Freed));
    }
    assert_eq!(pool.bytes_used(), new.len() as u64 * 1_024);
}

#[test]
fn no_class_starves_because_others_had_the_memory_before() {
    let mut pool = pool(3);
    for _ in 0..3 {
        for bytes in [16, 4_096, 48, 1_000, 2_048, 300] {
            let blocks = fill(&mut pool, bytes);
            let class = class_of(bytes).expect("a class");
            assert_eq!(blocks.len(), 3 * (SLAB / (class + 16)), "{bytes}");
            assert_eq!(pool.alloc(bytes), Err(AllocError::Exhausted { class }));
            assert_eq!(pool.bytes_used(), (blocks.len() * class) as u64);
            // This order of freeing leaves holes everywhere for as long as possible.
            let (odd, even): (Vec<_>, Vec<_>) = blocks.into_iter().enumerate().partition(|(place, _)| place % 2 == 1);
            for (_, block) in odd.into_iter().chain(even) {
                assert_eq!(pool.free(block), Ok(()));
            }
            assert_eq!(pool.bytes_used(), 0);
        }
    }
}

#[test]
fn blocks_that_are_freed_in_one_class_make_room_for_another_while_the_pool_is_in_use() {
    let mut pool = pool(2);
    let small = pool.alloc(16).expect("room");
    let large = fill(&mut pool, 4_096);
    assert_eq!(large.len(), 7);
    assert!(pool.alloc(128).is_err());
    large.iter().for_each(|block| assert_eq!(pool.free(*block), Ok(())));
    assert_eq!(fill(&mut pool, 128).len(), SLAB / 144);
    assert_eq!(pool.free(small), Ok(()));
}

#[test]
fn stats_tell_each_class_and_its_slabs() {
    let mut pool = pool(4);
    let blocks: Vec<_> = [1, 16, 17, 4_096].map(|bytes| pool.alloc(bytes).expect("room")).into();
    let stats = pool.stats();
    assert_eq!((stats.bytes_used, stats.bytes_total), (16 + 16 + 32 + 4_096, 4 * SLAB as u64));
    assert_eq!((stats.slabs_total, stats.slabs_free), (4, 1));
    let of = |size| stats.classes.iter().find(|class| class.size == size).map(|class| (class.blocks, class.slabs));
    assert_eq!((of(16), of(32), of(64), of(4_096)), (Some((2, 1)), Some((1, 1)), Some((0, 0)), Some((1, 1))));
    blocks.into_iter().for_each(|block| assert_eq!(pool.free(block), Ok(())));
    assert_eq!(pool.stats().bytes_used, 0);
}

/// Return the resident bytes of the process.
#[cfg(all(target_os = "linux", not(miri)))]
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).map_or(0, |pages| pages * 4_096)
}

#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn pages_are_touched_when_they_are_first_used() {
    let before = resident();
    let mut pool = Pool::new(&PoolConfig::with_bytes(1 << 30)).expect("valid");
    let block = pool.alloc(4_096).expect("room");
    pool.get_mut(block).expect("allocated").fill(1);
    // Far below the pool's size, with room for the memory that other tests of this process allocate meanwhile.
    assert!(resident().saturating_sub(before) < 512 << 20, "a pool of 1 GiB is resident");
}

/// An operation on the pool and on its plain model.
#[derive(Debug, Clone)]
enum Operation {
    Alloc(usize),
    Free(usize),
    FreeAgain(usize),
    FreeInside(usize, u64),
    FreeClass(usize),
}

fn operation() -> impl Strategy<Value = Operation> {
    let length = prop_oneof![4 => 0_usize..64, 2 => 64_usize..1_100, 1 => 4_000_usize..4_100];
    prop_oneof![
        12 => length.clone().prop_map(Operation::Alloc),
        8 => any::<prop::sample::Index>().prop_map(|at| Operation::Free(at.index(1 << 20))),
        2 => any::<prop::sample::Index>().prop_map(|at| Operation::FreeAgain(at.index(1 << 20))),
        2 => (any::<prop::sample::Index>(), 1_u64..40).prop_map(|(at, by)| Operation::FreeInside(at.index(1 << 20), by)),
        1 => length.prop_map(Operation::FreeClass),
    ]
}

/// The pool, with plain lists of the allocated and the freed blocks.
struct Model {
    pool: Pool,
    held: Vec<(Block, Vec<u8>)>,
    freed: Vec<Block>,
    count: u8,
}

impl Model {
    fn step(&mut self, operation: &Operation) {
        match operation {
            Operation::Alloc(bytes) => self.alloc(*bytes),
            Operation::Free(at) if !self.held.is_empty() => {
                let (block, content) = self.held.swap_remove(at % self.held.len());
                self.free(block, &content);
            }
            Operation::FreeAgain(at) if !self.freed.is_empty() => {
                let block = self.freed[at % self.freed.len()];
                assert_eq!(self.pool.free(block), Err(BlockError::Freed));
            }
            Operation::FreeInside(at, by) if !self.held.is_empty() => {
                let (block, _) = self.held[at % self.held.len()];
                let inside = block.at(block.offset() + by * 16).expect("a unit");
                assert!(self.pool.free(inside).is_err(), "{inside:?}");
            }
            Operation::FreeClass(bytes) => {
                let class = class_of(*bytes);
                let (gone, left) = std::mem::take(&mut self.held)
                    .into_iter()
                    .partition(|(_, content)| class_of(content.len()) == class);
                self.held = left;
                let gone: Vec<(Block, Vec<u8>)> = gone;
                gone.iter().for_each(|(block, content)| self.free(*block, content));
            }
            Operation::Free(_) | Operation::FreeAgain(_) | Operation::FreeInside(..) => {}
        }
        self.check();
    }

    fn alloc(&mut self, bytes: usize) {
        match self.pool.alloc(bytes) {
            Ok(block) => {
                self.count = self.count.wrapping_add(1);
                let content = vec![self.count; bytes];
                self.pool.get_mut(block).expect("allocated").copy_from_slice(&content);
                self.held.push((block, content));
            }
            Err(AllocError::TooLarge { bytes, largest }) => assert!(bytes > largest),
            Err(AllocError::Exhausted { .. }) => assert_eq!(self.pool.stats().slabs_free, 0),
        }
    }

    fn free(&mut self, block: Block, content: &[u8]) {
        assert_eq!(self.pool.get(block), Ok(content));
        assert_eq!(self.pool.free(block), Ok(()));
        self.freed.push(block);
    }

    fn check(&self) {
        let sizes = self.held.iter().filter_map(|(_, content)| class_of(content.len()));
        assert_eq!(self.pool.bytes_used(), sizes.map(|size| size as u64).sum::<u64>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 64 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_pool_does_what_a_plain_list_does(operations in prop::collection::vec(operation(), 1..400)) {
        let mut model = Model { pool: pool(4), held: Vec::new(), freed: Vec::new(), count: 0 };
        operations.iter().for_each(|operation| model.step(operation));
        for (block, content) in std::mem::take(&mut model.held) {
            model.free(block, &content);
        }
        prop_assert_eq!(model.pool.bytes_used(), 0);
        // After any operations, one class can allocate all of the memory again.
        prop_assert_eq!(fill(&mut model.pool, 2_048).len(), 4 * (SLAB / 2_064));
    }
}
