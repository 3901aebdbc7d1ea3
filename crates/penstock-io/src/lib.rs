//! The code that the drivers share: the runtime, TLS, listeners with their limits, HTTP, metrics
//! and object stores. This crate depends on no protocol.
//!
//! All asynchronous work runs on one background thread of the process, which starts at the first
//! use ([`runtime`]). Callers without a runtime, mainly Python, wait with [`runtime::wait`].

pub mod address;
pub mod admission;
pub mod duration;
mod error;
pub mod http;
pub mod listener;
pub mod memory;
pub mod metrics;
mod misuse;
mod read_key;
pub mod records;
pub mod runtime;
pub mod storage;
pub mod sync;
pub mod tls;
pub mod unix;

pub use address::Addresses;
pub use admission::{ConnectionLimits, IDLE_TIMEOUT};
pub use error::{Busy, DriverError, Error, Problem, Result};
pub use misuse::Misuse;
pub use penstock_wire::hex;
pub use read_key::{MIN_KEY, ReadKey};
