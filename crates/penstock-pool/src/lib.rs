//! PMAD: blocks in fixed memory (decision 14 of `docs/protocols/quicx.md`).
//!
//! A [`Pool`] is one allocation, zeroed by the system and so touched page by page when it is first used. Slabs are carved
//! from it on demand, each for blocks of one size class; a slab that is empty goes to whatever class needs one. Nothing
//! else is ever taken from the system's allocator after [`Pool::new`].
//!
//! ```text
//! pool   │ slab │ slab │ slab │ ...
//! slab   │ header block │ header block │ ...            all of one class; carved from the front as they are needed
//! header  stamp (8)  length (4)  link (4)               the class while it is allocated, else the slab's next free block
//! ```
//!
//! A [`Block`] is a handle, not an address: its place and the stamp of its allocation, which is never given twice. So a
//! block that was freed already, a place inside of a block, and the block of another pool are told apart with certainty,
//! and no code here is unsafe. [`Pool`] belongs to one thread, [`SharedPool`] to several.

#![forbid(unsafe_code)]

mod block;
mod error;
mod pool;
mod shared;
mod size_class;
mod slab;

/// What [`SharedPool`] is locked with; its test under loom puts loom's in this place.
mod sync {
    pub(crate) use std::sync::{Mutex, PoisonError};
}

pub use block::Block;
pub use error::{AllocError, BlockError, ConfigError};
pub use pool::{ClassStats, Pool, Stats};
pub use shared::SharedPool;
pub use size_class::{PoolConfig, UNIT};
