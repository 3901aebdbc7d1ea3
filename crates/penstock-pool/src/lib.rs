//! PMAD: blocks in fixed memory (decision 14 of `docs/protocols/quicx.md`).
//!
//! A [`Pool`] is one allocation, zeroed by the system, so its pages are touched one by one as they are first used.
//! Slabs are carved from it on demand, each for blocks of one size class. An empty slab goes to any class that needs
//! one. After [`Pool::new`] a pool takes nothing from the system's allocator.
//!
//! ```text
//! pool   │ slab │ slab │ slab │ ...
//! slab   │ header block │ header block │ ...            all of one class; carved from the front as they are needed
//! header  stamp (8)  length (4)  link (4)               the class while allocated, else the slab's next free block
//! ```
//!
//! A [`Block`] is a handle, not an address: a place and the stamp of an allocation, which is never used twice. So
//! the pool always recognises a block that was already freed, a place inside a block, and the block of another pool,
//! and no code here is unsafe. [`Pool`] belongs to one thread, [`SharedPool`] to several.

#![forbid(unsafe_code)]

mod block;
mod error;
mod pool;
mod shared;
mod size_class;
mod slab;

/// The lock of [`SharedPool`]; its test under loom replaces this module with loom's lock.
mod sync {
    pub(crate) use std::sync::{Mutex, PoisonError};
}

pub use block::Block;
pub use error::{AllocError, BlockError, ConfigError};
pub use pool::{ClassStats, Pool, Stats};
pub use shared::SharedPool;
pub use size_class::{PoolConfig, UNIT};
