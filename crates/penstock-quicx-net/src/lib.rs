//! Quicx: the daemon and its clients, the drivers of `penstock-quicx`'s state machines.
//!
//! ```text
//!  TCP, TLS, Unix ─ bytes ─▶ Queue ─▶ bytes for the connections
//!                               │ ▲
//!                       records ▼ │ durable
//!                             journal: a folder of segments, fdatasync
//! ```
//!
//! A queue belongs to one daemon. Its connections and its clock run on the IO thread, and hold its
//! lock briefly, never across a wait. The journal's thread takes the lock too, and so do threads
//! that read the counters.

mod client;
mod daemon;
mod error;
mod misuse;

pub use self::client::{
    ConnectOptions, Outcome, Producer, ProducerOptions, Submitted, Target, Task, Watch, Watched, Worker, WorkerOptions,
};
pub use self::daemon::{Daemon, DaemonOptions};
pub use self::misuse::Misuse;
pub use error::{Error, Result};
pub use penstock_quicx::{
    AllocError, Answer, Batch, Block, BlockError, Counters, DeadEntry, ErrorCode, Policy, Pool, PoolConfig,
    QueueConfig, Refused, SharedPool, StatsResponse, TaskId,
};
