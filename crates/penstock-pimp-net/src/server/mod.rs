//! The buffer's HTTP server. The crate `penstock-pimp` decides what is accepted.

mod answer;
mod body;
mod callers;
mod changes;
mod chunk_stream;
mod compression;
mod events;
mod jobs;
mod listen;
mod metrics;
mod page;
mod payload;
mod rates;
mod raw;
mod refused;
mod request;
mod service;
#[cfg(test)]
mod tests;

pub use listen::Buffer;
pub use service::{Service, ServiceConfig};
