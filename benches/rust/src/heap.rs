//! `heap ORDER ITEMS`: the manifest's heap on the workload of `heap_workload.rs`; prints JSON.

#![allow(clippy::print_stdout)]

mod heap_workload;

use penstock_pipestream::heap::{FibonacciHeap, Handle};
use serde_json::json;

use crate::heap_workload::Queue;

/// As the manifest has it: the caller keeps the handles.
struct Ours {
    heap: FibonacciHeap<u32, u32>,
    handles: Vec<Handle>,
}

impl Queue for Ours {
    fn with_capacity(items: u32) -> Self {
        let items = items as usize;
        Self { heap: FibonacciHeap::with_capacity(items), handles: Vec::with_capacity(items) }
    }

    fn insert(&mut self, item: u32, key: u32) {
        self.handles.extend(self.heap.insert(key, item));
    }

    fn decrease(&mut self, item: u32, key: u32) {
        if let Some(handle) = self.handles.get(item as usize) {
            // A refusal would show in the checksum.
            self.heap.decrease_key(*handle, key).ok();
        }
    }

    fn extract(&mut self) -> Option<(u32, u32)> {
        self.heap.extract_min().map(|(key, item)| (item, key))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let order = arguments.next().ok_or("usage: heap phases|interleaved ITEMS")?;
    let items = arguments.next().ok_or("usage: heap phases|interleaved ITEMS")?.parse()?;
    let taken = match order.as_str() {
        "phases" => heap_workload::phases::<Ours>(items),
        "interleaved" => heap_workload::interleaved::<Ours>(items),
        other => return Err(format!("no such order: {other}").into()),
    };
    let seconds: serde_json::Map<_, _> = taken.seconds.iter().map(|(name, s)| ((*name).into(), json!(s))).collect();
    println!("{}", json!({"seconds": seconds, "checksum": taken.checksum}));
    Ok(())
}
