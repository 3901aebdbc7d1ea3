//! `claims COUNT`: so many open claim checks in one book: memory, and the time that each operation takes; prints JSON.

#![allow(clippy::print_stdout)]

use std::alloc::System;
use std::hint::black_box;
use std::time::{Duration, Instant};

use fastrand::Rng;
use penstock_pipestream::claims::{ClaimBook, ClaimLimits, ClaimRecord, ClaimTerms};
use penstock_pipestream::{Now, SessionId};
use serde_json::json;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes on the heap now.
fn heap() -> i64 {
    let stats = ALLOCATOR.stats();
    // Reallocations count what they added, which is negative where they shrank.
    stats.bytes_allocated as i64 - stats.bytes_deallocated as i64
}

fn nanos_each(took: Duration, count: usize) -> f64 {
    took.as_secs_f64() * 1e9 / count.max(1) as f64
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count: usize = std::env::args().nth(1).ok_or("usage: claims COUNT")?.parse()?;
    let limits = ClaimLimits { max_claims: count, ..ClaimLimits::default() };
    let now = Now { instant: Instant::now(), unix_micros: 1_700_000_000_000_000 };
    let mut random = Rng::with_seed(1);
    let (ours, other) = (SessionId::new([1; 16]), SessionId::new([2; 16]));
    let mut ids = Vec::with_capacity(count);
    let mut book = ClaimBook::new(limits);
    let (before, mut issuing, mut written) = (heap(), Duration::ZERO, 0);
    while ids.len() < count {
        let entity = u32::try_from(ids.len())?;
        let terms = ClaimTerms { session: ours, scope: 0, entity, life: None, validation: None };
        let began = Instant::now();
        let issued = book.issue(now, &terms, random.u64(..))?;
        issuing += began.elapsed();
        ids.extend(issued.map(|claim| claim.id));
        while let Some(record) = book.poll_record() {
            written += record.encode().len();
        }
    }
    let bytes = heap() - before;

    random.shuffle(&mut ids);
    let began = Instant::now();
    let found = ids.iter().filter(|id| black_box(book.query(now, **id)).found.is_some()).count();
    let querying = began.elapsed();
    let records: Vec<ClaimRecord> = book.snapshot().collect();
    let began = Instant::now();
    let mut again = ClaimBook::new(limits);
    records.into_iter().for_each(|record| again.restore(now, record));
    let restoring = began.elapsed();
    let began = Instant::now();
    for id in &ids {
        black_box(again.redeem(now, *id, ours, other)?);
        while let Some(record) = again.poll_record() {
            black_box(record);
        }
    }
    let redeeming = began.elapsed();
    if found != count || again.len() != count {
        return Err(format!("{found} of {count} were found, {} after a restart", again.len()).into());
    }
    println!(
        "{}",
        json!({
            "bytes_each": bytes as f64 / count as f64,
            "disk_bytes_each": written as f64 / count as f64,
            "issue_ns": nanos_each(issuing, count),
            "query_ns": nanos_each(querying, count),
            "redeem_ns": nanos_each(redeeming, count),
            "restore_seconds": restoring.as_secs_f64(),
        })
    );
    Ok(())
}
