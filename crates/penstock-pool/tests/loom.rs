//! Tests of `SharedPool` under loom, which tries every order in which threads can take turns. They compile the source a
//! second time, with loom's lock in place of the standard library's.
//!
//! This is a binary of its own because the copy needs `sync` at the root of its crate, and because miri, which runs the
//! other tests, cannot run loom.

#![allow(clippy::panic)]

use loom::sync::Arc;
use loom::thread;
pub(crate) use penstock_pool::{AllocError, Block, BlockError, Pool, PoolConfig, Stats};

mod sync {
    pub(crate) use std::sync::PoisonError;

    pub(crate) use loom::sync::Mutex;
}

#[path = "../src/shared.rs"]
#[allow(unreachable_pub, dead_code)]
mod shared;

use shared::SharedPool;

/// Make a pool of three blocks.
fn pool() -> Arc<SharedPool> {
    let config = PoolConfig { bytes: 3 * 16_400, classes: vec![16_384] };
    let pool = Pool::new(&config);
    Arc::new(SharedPool::new(pool.unwrap_or_else(|error| panic!("{error}"))))
}

#[test]
fn of_two_threads_that_free_a_block_one_is_refused() {
    loom::model(|| {
        let pool = pool();
        let block = pool.store(b"once").unwrap_or_else(|error| panic!("{error}"));
        let other = Arc::clone(&pool);
        let thread = thread::spawn(move || other.free(block));
        let results = [pool.free(block), thread.join().unwrap_or(Ok(()))];
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
        assert!(results.contains(&Err(BlockError::Freed)));
        assert_eq!(pool.stats().bytes_used, 0);
    });
}

#[test]
fn threads_never_get_the_same_block_and_see_what_was_stored() {
    loom::model(|| {
        let pool = pool();
        let work = |pool: Arc<SharedPool>, byte: u8| {
            let block = pool.store(&[byte; 8]).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(pool.read(block, <[u8]>::to_vec), Ok(vec![byte; 8]));
            block
        };
        let other = Arc::clone(&pool);
        let thread = thread::spawn(move || work(other, 1));
        let ours = work(Arc::clone(&pool), 2);
        let theirs = thread.join().unwrap_or(ours);
        assert_ne!(ours.offset(), theirs.offset());
        assert_eq!(pool.stats().bytes_used, 2 * 16_384);
        // One thread frees the block that the other allocated.
        assert_eq!((pool.free(theirs), pool.free(ours)), (Ok(()), Ok(())));
        assert_eq!(pool.stats().bytes_used, 0);
    });
}

#[test]
fn of_two_threads_that_want_the_last_block_one_gets_it() {
    loom::model(|| {
        let pool = pool();
        let held = [pool.alloc(1), pool.alloc(1), pool.alloc(1), pool.alloc(1), pool.alloc(1), pool.alloc(1)];
        let free = held.iter().filter(|block| block.is_ok()).count();
        let last = held.iter().flatten().next().copied().unwrap_or_else(|| panic!("room"));
        assert_eq!(pool.free(last), Ok(()));
        let other = Arc::clone(&pool);
        let thread = thread::spawn(move || other.alloc(1).is_ok());
        let got = u8::from(pool.alloc(1).is_ok()) + u8::from(thread.join().unwrap_or(false));
        assert_eq!((got, free), (1, 3));
    });
}
