//! Tests of `SharedPool` with real threads.
#![allow(clippy::expect_used)]

use std::sync::{Arc, mpsc};
use std::thread;

use penstock_pool::{BlockError, Pool, PoolConfig, SharedPool};

#[test]
fn what_one_thread_stores_another_reads_and_frees() {
    let pool = Arc::new(SharedPool::new(Pool::new(&PoolConfig::with_bytes(1 << 20)).expect("valid")));
    let rounds = if cfg!(miri) { 20 } else { 2_000_u32 };
    let (to, from) = mpsc::sync_channel(16);
    let writer = thread::spawn({
        let pool = Arc::clone(&pool);
        move || {
            for round in 0..rounds {
                let block = pool.store(&round.to_le_bytes()).expect("room");
                to.send((round, block)).expect("the reader is there");
            }
        }
    });
    let mut random = fastrand::Rng::with_seed(7);
    for (round, block) in from {
        assert_eq!(pool.read(block, <[u8]>::to_vec).as_deref(), Ok(round.to_le_bytes().as_slice()));
        assert_eq!(pool.write(block, |bytes| bytes.fill(random.u8(..))), Ok(()));
        assert_eq!((pool.free(block), pool.free(block)), (Ok(()), Err(BlockError::Freed)));
    }
    writer.join().expect("no panic");
    assert_eq!(pool.stats().bytes_used, 0);
}
