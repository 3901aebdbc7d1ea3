//! PIMP: where buffers keep jobs and chunks. What is taken and what is refused is the core's.

mod store;

pub use store::{Change, DiskStore, MemoryStore, Store, Usage};
