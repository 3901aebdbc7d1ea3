use crate::sync::{Mutex, PoisonError};
use crate::{AllocError, Block, BlockError, Pool, Stats};

/// A pool of blocks in fixed memory, for several threads: a [`Pool`] behind a lock that is held for one call.
///
/// Put it into an `Arc`. One thread may read and free a block that another allocated. Of two threads that free the same
/// block, the pool rejects one.
#[derive(Debug)]
pub struct SharedPool {
    pool: Mutex<Pool>,
}

impl SharedPool {
    /// Make a shared pool.
    pub fn new(pool: Pool) -> Self {
        Self { pool: Mutex::new(pool) }
    }

    /// Allocate a block for this many bytes: [`Pool::alloc`].
    pub fn alloc(&self, bytes: usize) -> Result<Block, AllocError> {
        self.with(|pool| pool.alloc(bytes))
    }

    /// Allocate a block with these bytes, written before any other thread can see it.
    ///
    /// Fails where `bytes` is longer than the largest class, or no block is free.
    pub fn store(&self, bytes: &[u8]) -> Result<Block, AllocError> {
        self.with(|pool| {
            let block = pool.alloc(bytes.len())?;
            if let Ok(content) = pool.get_mut(block) {
                content.copy_from_slice(bytes);
            }
            Ok(block)
        })
    }

    /// Free a block: [`Pool::free`].
    pub fn free(&self, block: Block) -> Result<(), BlockError> {
        self.with(|pool| pool.free(block))
    }

    /// Call `look` with a block's content. Other threads wait until it returns; it must not use the pool.
    ///
    /// Fails where the handle is not that of an allocated block.
    pub fn read<T>(&self, block: Block, look: impl FnOnce(&[u8]) -> T) -> Result<T, BlockError> {
        self.with(|pool| pool.get(block).map(look))
    }

    /// Call `write` with a block's content, as [`read`](Self::read) does.
    pub fn write<T>(&self, block: Block, write: impl FnOnce(&mut [u8]) -> T) -> Result<T, BlockError> {
        self.with(|pool| pool.get_mut(block).map(write))
    }

    /// Return the pool's state now.
    pub fn stats(&self) -> Stats {
        self.with(|pool| pool.stats())
    }

    fn with<T>(&self, call: impl FnOnce(&mut Pool) -> T) -> T {
        // Only the callers' closures on a block's bytes can panic, and a panic there leaves the pool consistent.
        call(&mut self.pool.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
