//! Drivers for the protocol cores: sockets, TLS, files, threads and the clock. The cores decide, this crate moves
//! octets.
//!
//! Everything asynchronous runs on one background thread of the process, which starts at the first use
//! ([`runtime`]). Callers without a runtime of their own, Python above all, wait by [`runtime::wait`].

mod admission;
mod error;
mod folder_lock;
mod http;
pub mod lumberjack;
pub mod metrics;
pub mod pimp;
pub mod pipestream;
pub mod quicx;
mod records;
pub mod runtime;
pub mod storage;
mod tcp;
pub mod tls;
mod unix;
pub mod vgi;

pub use admission::{ConnectionLimits, Descriptors, IDLE_TIMEOUT, provide_descriptors};
pub use error::{Error, Result};
