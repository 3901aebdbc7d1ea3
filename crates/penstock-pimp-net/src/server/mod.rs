//! The buffer's HTTP: requests in, answers out. What is taken and what is refused is the core's.

mod answer;
mod body;
mod changes;
mod events;
mod listen;
mod metrics;
mod packing;
mod page;
mod payload;
mod pieces;
mod rates;
mod raw;
mod service;
#[cfg(test)]
mod tests;

pub use listen::Buffer;
pub use service::{Service, ServiceConfig};
