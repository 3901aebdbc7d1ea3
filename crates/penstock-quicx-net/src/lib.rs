//! Quicx: the daemon, and the clients of it, drivers of `penstock-quicx`'s machines.
//!
//! ```text
//!  TCP, TLS, Unix ─ bytes ─▶ Queue ─▶ bytes to whoever they are for
//!                               │ ▲
//!                       records ▼ │ durable
//!                             journal: a folder of segments, fdatasync
//! ```
//!
//! A queue belongs to one daemon. All that touch it run on the IO thread, for a moment each and never across a wait, so the
//! lock around it is only there for those who ask from other threads what it has counted.

mod client;
mod daemon;
mod error;

pub use self::client::{
    ConnectOptions, Outcome, Producer, ProducerOptions, Submitted, Target, Task, Worker, WorkerOptions,
};
pub use self::daemon::{Daemon, DaemonOptions};
pub use error::{Error, Result};
pub use penstock_quicx::{
    AllocError, Answer, Batch, Block, BlockError, Buried, Counters, ErrorCode, Policy, Pool, PoolConfig, QueueConfig,
    Refused, SharedPool, StatsResponse, TaskId,
};
