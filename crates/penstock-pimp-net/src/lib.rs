//! PIMP over HTTP: the buffer with its stores, and its writers and readers. The crate
//! `penstock-pimp` decides what is accepted.
//!
//! ```text
//!  Sender ─ POST ─▶ Buffer, Service ─ GET ─▶ Consumer          JobClient: makes, takes over, cancels, deletes jobs
//!                        └─ Store
//! ```

mod client;
mod clock;
mod consumer;
mod error;
mod misuse;
pub mod options;
mod sender;
mod server;
mod shared_consumer;
mod store;
#[cfg(test)]
mod tests;
mod trigger;

pub use client::{ClientOptions, JobClient, PutOutcome, check_url, trigger};
pub use consumer::{Consumer, POLL_LIMIT, Received};
pub use error::{Error, Result};
pub use misuse::{Misuse, UrlFault};
pub use penstock_pimp::{
    Code, Compression, ConsumerConfig, ContentEncoding, Encoding, JobId, Limits, Metadata, SenderConfig, StatusBody,
    Trigger,
};
pub use sender::{Piece, Progress, Sender, SenderState};
pub use server::{Buffer, Service, ServiceConfig};
pub use shared_consumer::SharedConsumer;
pub use store::{Change, DiskStore, MemoryStore, RedisStore, Store, Usage, open_store};
pub use trigger::{PendingReply, TriggerServer};
