use crate::sync::{Mutex, PoisonError};
use crate::{AllocError, Block, BlockError, Pool, Stats};

/// A pool of blocks in fixed memory, for several threads: a [`Pool`] behind a lock that is held for one call.
///
/// Put it into an `Arc`. A block that one thread allocated another may read and free; of two threads that free it one is
/// refused.
#[derive(Debug)]
pub struct SharedPool {
    pool: Mutex<Pool>,
}

impl SharedPool {
    /// The pool given, shared from now on.
    pub fn new(pool: Pool) -> Self {
        Self { pool: Mutex::new(pool) }
    }

    /// A block for so many bytes: [`Pool::alloc`].
    pub fn alloc(&self, bytes: usize) -> Result<Block, AllocError> {
        self.with(|pool| pool.alloc(bytes))
    }

    /// A block that holds the bytes given, written before any other thread can see it.
    ///
    /// Fails where they are above the largest class, or nothing is free.
    pub fn store(&self, bytes: &[u8]) -> Result<Block, AllocError> {
        self.with(|pool| {
            let block = pool.alloc(bytes.len())?;
            if let Ok(content) = pool.get_mut(block) {
                content.copy_from_slice(bytes);
            }
            Ok(block)
        })
    }

    /// Frees a block: [`Pool::free`].
    pub fn free(&self, block: Block) -> Result<(), BlockError> {
        self.with(|pool| pool.free(block))
    }

    /// Calls `look` with what a block holds. Other threads wait until it returns; it must not use the pool.
    ///
    /// Fails where the handle is not that of an allocated block.
    pub fn read<T>(&self, block: Block, look: impl FnOnce(&[u8]) -> T) -> Result<T, BlockError> {
        self.with(|pool| pool.get(block).map(look))
    }

    /// Calls `write` with what a block holds, as [`read`](Self::read) does.
    pub fn write<T>(&self, block: Block, write: impl FnOnce(&mut [u8]) -> T) -> Result<T, BlockError> {
        self.with(|pool| pool.get_mut(block).map(write))
    }

    /// What it holds now.
    pub fn stats(&self) -> Stats {
        self.with(|pool| pool.stats())
    }

    fn with<T>(&self, call: impl FnOnce(&mut Pool) -> T) -> T {
        // Only what callers do with a block's bytes can panic, and that leaves the pool as it was.
        call(&mut self.pool.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
