//! The work that the manifest's heap and its peers do: inserts, decrease-keys and extracts, four decreases for each
//! item, in two orders. The peer's program includes this file, so that there is one workload.
//!
//! All keys are distinct (their low bits are the item's number), so the order of extraction is determined, and all
//! sides must come to the same checksum.

use std::time::Instant;

/// Items have numbers below 2^20.
const ITEM_BITS: u32 = 20;
/// How often a key is lowered for each item.
const DECREASES: usize = 4;

/// A queue of items by key, the least first.
pub(crate) trait Queue {
    fn with_capacity(items: u32) -> Self;
    fn insert(&mut self, item: u32, key: u32);
    /// The item is in the queue, and its key is not below this one.
    fn decrease(&mut self, item: u32, key: u32);
    fn extract(&mut self) -> Option<(u32, u32)>;
}

/// What a run took.
pub(crate) struct Taken {
    pub(crate) seconds: Vec<(&'static str, f64)>,
    pub(crate) checksum: u64,
}

struct Work {
    rng: fastrand::Rng,
    /// Each item's key while it is in the queue.
    keys: Vec<Option<u32>>,
    checksum: u64,
}

impl Work {
    fn new(items: u32) -> Self {
        let mut rng = fastrand::Rng::with_seed(9_5);
        let keys = (0..items).map(|item| Some(rng.u32(..1 << (32 - ITEM_BITS)) << ITEM_BITS | item)).collect();
        Self { rng, keys, checksum: 0 }
    }

    fn insert_all(&self, queue: &mut impl Queue) {
        for (item, key) in (0..).zip(&self.keys) {
            if let Some(key) = key {
                queue.insert(item, *key);
            }
        }
    }

    /// Lowers the key of a random item by up to a quarter, if it is still in the queue.
    fn decrease(&mut self, queue: &mut impl Queue) {
        let item = self.rng.u32(..self.keys.len() as u32);
        let by = self.rng.u32(..1 << 10);
        if let Some(Some(key)) = self.keys.get_mut(item as usize) {
            let high = *key >> ITEM_BITS;
            *key = (high - by % (high / 4 + 1)) << ITEM_BITS | item;
            queue.decrease(item, *key);
        }
    }

    fn extract(&mut self, queue: &mut impl Queue) -> bool {
        let Some((item, key)) = queue.extract() else { return false };
        if let Some(place) = self.keys.get_mut(item as usize) {
            *place = None;
        }
        self.checksum = self.checksum.wrapping_mul(31).wrapping_add(u64::from(key));
        true
    }
}

/// All inserts, then all decreases, then all extracts.
pub(crate) fn phases<Q: Queue>(items: u32) -> Taken {
    let mut work = Work::new(items);
    let started = Instant::now();
    let mut queue = Q::with_capacity(items);
    work.insert_all(&mut queue);
    let inserted = Instant::now();
    for _ in 0..items as usize * DECREASES {
        work.decrease(&mut queue);
    }
    let decreased = Instant::now();
    while work.extract(&mut queue) {}
    let seconds = vec![
        ("insert", (inserted - started).as_secs_f64()),
        ("decrease", (decreased - inserted).as_secs_f64()),
        ("extract", decreased.elapsed().as_secs_f64()),
        ("total", started.elapsed().as_secs_f64()),
    ];
    Taken { seconds, checksum: work.checksum }
}

/// All inserts, then the decreases between the extracts, on trees that extracts have built.
pub(crate) fn interleaved<Q: Queue>(items: u32) -> Taken {
    let mut work = Work::new(items);
    let started = Instant::now();
    let mut queue = Q::with_capacity(items);
    work.insert_all(&mut queue);
    while work.extract(&mut queue) {
        for _ in 0..DECREASES {
            work.decrease(&mut queue);
        }
    }
    Taken { seconds: vec![("total", started.elapsed().as_secs_f64())], checksum: work.checksum }
}
