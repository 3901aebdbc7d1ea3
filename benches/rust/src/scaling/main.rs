//! `scaling PART [SIZE]`: what the core costs at a size; prints JSON. `benches/suites/scaling.py` runs all parts, and
//! `docs/scaling.md` is made from that.
//!
//! ```text
//! flat N, documents N       a pair of sessions passes N entities
//! fleet SESSIONS EACH       so many pairs at once, in turn, so many entities each
//! open N                    memory of N entities that are announced and not resolved, at each end
//! manifest N CHILDREN       memory and time of N open parents
//! ids N                     N entity IDs assigned and resolved, across the wrap of the ID space
//! hash N                    SHA-256 over N bytes
//! disk N DIR                N files of 1 KiB made durable one by one, and as many in batches
//! ```

#![allow(clippy::print_stdout)]

mod pair;
mod parts;

use std::alloc::System;

use rustix::time::{ClockId, clock_gettime};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// What ends the program.
pub(crate) type Failure = Box<dyn std::error::Error>;

const USAGE: &str = "usage: scaling flat|documents|fleet|open|manifest|ids|hash|disk N [EACH|CHILDREN|DIR]";

/// Bytes on the heap now.
pub(crate) fn heap() -> i64 {
    let stats = ALLOCATOR.stats();
    // Reallocations count what they added, which is negative where they shrank.
    stats.bytes_allocated as i64 - stats.bytes_deallocated as i64
}

/// Seconds of CPU of this thread: other programs on the machine do not count.
pub(crate) fn cpu() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let part = arguments.next().ok_or(USAGE)?;
    let size: u64 = arguments.next().ok_or(USAGE)?.parse()?;
    let more = arguments.next();
    let value = match part.as_str() {
        "flat" => parts::pass(pair::Shape::Flat, size)?,
        "documents" => parts::pass(pair::Shape::Documents { children: 10 }, size)?,
        "fleet" => parts::fleet(size, more.ok_or(USAGE)?.parse()?)?,
        "open" => parts::open(size)?,
        "manifest" => parts::manifest(u32::try_from(size)?, more.ok_or(USAGE)?.parse()?)?,
        "ids" => parts::ids(size)?,
        "hash" => parts::hash(size),
        "disk" => parts::disk(size, &more.ok_or(USAGE)?)?,
        _ => return Err(USAGE.into()),
    };
    println!("{value}");
    Ok(())
}
