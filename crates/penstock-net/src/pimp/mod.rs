//! PIMP: where buffers keep jobs and chunks. What is taken and what is refused is the core's.

mod server;
mod store;

pub use server::{Buffer, Service, ServiceConfig};
pub use store::{Change, DiskStore, MemoryStore, Store, Usage};
