//! Quicx, a task queue in fixed memory, without IO.
//!
//! - [`Decoder`] finds [`Frame`]s in received bytes, and the error to answer a bad one with;
//!   [`Frame::encode`] writes them.
//! - [`Journal`] decides what to write, when a record counts, and which segments of its log to
//!   remove; [`Recovery`] finds the tasks that a log holds.
//! - [`Queue`] is the daemon's state machine, [`Client`] that of producers and monitors, and
//!   [`Worker`] that of workers.
//!
//! ```text
//! frame   version 0x01 (1)  opcode (1)  length (4)  payload (length)
//! ```
//!
//! All integers are big-endian. The decisions cited are those of `docs/protocols/quicx.md`.

mod answer;
mod client;
mod decoder;
mod error;
mod frame;
mod journal;
mod limits;
mod pulse;
mod queue;
mod worker;

pub use answer::{Answer, DeadEntry, Refused};
pub use client::{Batch, Client, ClientEvent, Ticket};
pub use decoder::{Accepts, Decoded, Decoder};
pub use error::{Error, Limit, Malformed, Misuse, Result, Violation};
pub use frame::{
    DeadTask, DeadTasks, ErrorCode, Failed, Failure, Frame, HEADER, Opcode, Prefetch, StatsResponse, Submit,
    SubmitOnce, Task, TaskId, Types, VERSION,
};
pub use journal::{Group, Journal, Label, Lsn, Record, RecoveredState, RecoveredTask, Recovery, Write};
pub use limits::{LARGEST, REASON};
pub use penstock_pool::{AllocError, Block, BlockError, ClassStats, ConfigError, Pool, PoolConfig, SharedPool, Stats};
pub use penstock_wire::ErrorKind;
pub use queue::{ConnectionId, Counters, Event, Policy, Queue, QueueConfig};
pub use worker::{Worker, WorkerEvent};
