//! `pmad pool|shared SIZE SAMPLES`: pairs of alloc and free, timed 1,000 at once; prints JSON.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::hint::black_box;
use std::sync::atomic::{Ordering, compiler_fence};
use std::time::Instant;

use penstock_quicx_net::{Pool, PoolConfig, SharedPool};
use serde_json::json;

const PAIRS: usize = 1_000;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [what, size, samples] = words.as_slice() else { return Err("pmad pool|shared SIZE SAMPLES".into()) };
    let (size, samples) = (size.parse()?, samples.parse()?);
    let mut pool = Pool::new(&PoolConfig::default())?;
    let times = match what.as_str() {
        "pool" => {
            let pool = black_box(&mut pool);
            timed(samples, || {
                let block = pool.alloc(black_box(size)).ok()?;
                // What was written is read again, as behind the barrier of the original's loop.
                compiler_fence(Ordering::SeqCst);
                pool.free(block).ok()
            })
        }
        "shared" => {
            let shared = SharedPool::new(pool);
            let pool = black_box(&shared);
            timed(samples, || {
                let block = pool.alloc(black_box(size)).ok()?;
                compiler_fence(Ordering::SeqCst);
                pool.free(block).ok()
            })
        }
        _ => return Err(format!("no such pool: {what}").into()),
    };
    let mut times = times.ok_or("a block could not be allocated and freed")?;
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times.get(((times.len() - 1) as f64 * part) as usize).copied();
    println!("{}", json!({"p50": at(0.5), "p999": at(0.999)}));
    Ok(())
}

/// Nanoseconds of a pair, for each sample; a tenth of them before do not count.
fn timed(samples: usize, mut pair: impl FnMut() -> Option<()>) -> Option<Vec<f64>> {
    let mut times = Vec::with_capacity(samples);
    for sample in 0..samples + samples / 10 {
        let began = Instant::now();
        for _ in 0..PAIRS {
            pair()?;
        }
        if sample >= samples / 10 {
            times.push(began.elapsed().as_secs_f64() * 1e9 / PAIRS as f64);
        }
    }
    Some(times)
}
