//! Quicx, a task queue in fixed memory, without IO: so far its frames and its journal.
//!
//! - [`Decoder`] finds [`Frame`]s in octets as they come, and says what to refuse and how; [`Frame::encode`] writes them.
//! - [`Journal`] says what is to be written to which segment, and when a record counts; [`Recovery`] finds out which tasks
//!   segments hold, wherever the last write was cut.
//!
//! ```text
//! frame   version 0x01 (1)  opcode (1)  length (4)  payload (length)
//! ```
//!
//! All integers are big-endian. The decisions cited are those of `docs/protocols/quicx.md`.

mod decoder;
mod error;
mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod journal;

pub use decoder::{Accepts, Decoded, Decoder, LARGEST, REASON, Refusal};
pub use error::{Error, Result};
pub use frame::{
    DeadTask, DeadTasks, ErrorCode, Failed, Failure, Frame, HEADER, Opcode, Prefetch, StatsResponse, Submit, Task,
    TaskId, Types, VERSION,
};
pub use journal::{Journal, Lsn, Record, Records, Recovered, Recovery, Write};
pub use penstock_wire::ErrorKind;
