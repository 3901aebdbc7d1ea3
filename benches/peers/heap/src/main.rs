//! `heap ORDER ITEMS [QUEUE]`: the crate priority-queue on the workload of `benches/rust/src/heap_workload.rs`, with its
//! own hasher (`std`) or a fast one (`foldhash`), or the indexed heap of this folder (`indexed`); prints JSON.

mod indexed;

#[path = "../../../rust/src/heap_workload.rs"]
mod heap_workload;

use std::cmp::Reverse;
use std::hash::{BuildHasher, RandomState};

use foldhash::fast::FixedState;
use priority_queue::PriorityQueue;
use serde_json::json;

use crate::heap_workload::{Queue, Taken};
use crate::indexed::{Handle, IndexedHeap};

struct Peer<S>(PriorityQueue<u32, Reverse<u32>, S>);

impl<S: BuildHasher + Default> Queue for Peer<S> {
    fn with_capacity(items: u32) -> Self {
        Self(PriorityQueue::with_capacity_and_default_hasher(items as usize))
    }

    fn insert(&mut self, item: u32, key: u32) {
        self.0.push(item, Reverse(key));
    }

    fn decrease(&mut self, item: u32, key: u32) {
        self.0.change_priority(&item, Reverse(key));
    }

    fn extract(&mut self) -> Option<(u32, u32)> {
        self.0.pop().map(|(item, Reverse(key))| (item, key))
    }
}

/// The caller keeps the handles, as the manifest does.
struct Indexed {
    heap: IndexedHeap<u32, u32>,
    handles: Vec<Handle>,
}

impl Queue for Indexed {
    fn with_capacity(items: u32) -> Self {
        let items = items as usize;
        Self { heap: IndexedHeap::with_capacity(items), handles: Vec::with_capacity(items) }
    }

    fn insert(&mut self, item: u32, key: u32) {
        self.handles.extend(self.heap.insert(key, item));
    }

    fn decrease(&mut self, item: u32, key: u32) {
        // A refusal would show in the checksum.
        self.handles.get(item as usize).and_then(|handle| self.heap.decrease_key(*handle, key));
    }

    fn extract(&mut self) -> Option<(u32, u32)> {
        self.heap.extract_min().map(|(key, item)| (item, key))
    }
}

fn run<Q: Queue>(order: &str, items: u32) -> Option<Taken> {
    match order {
        "phases" => Some(heap_workload::phases::<Q>(items)),
        "interleaved" => Some(heap_workload::interleaved::<Q>(items)),
        _ => None,
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let usage = "usage: heap phases|interleaved ITEMS [std|foldhash|indexed]";
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [order, items, queue @ ..] = arguments.as_slice() else { return Err(usage.into()) };
    let taken = match queue {
        [] => run::<Peer<RandomState>>(order, items.parse()?),
        [name] if name == "std" => run::<Peer<RandomState>>(order, items.parse()?),
        [name] if name == "foldhash" => run::<Peer<FixedState>>(order, items.parse()?),
        [name] if name == "indexed" => run::<Indexed>(order, items.parse()?),
        _ => None,
    };
    let taken = taken.ok_or(usage)?;
    let seconds: serde_json::Map<_, _> = taken.seconds.iter().map(|(name, s)| ((*name).into(), json!(s))).collect();
    println!("{}", json!({"seconds": seconds, "checksum": taken.checksum}));
    Ok(())
}
