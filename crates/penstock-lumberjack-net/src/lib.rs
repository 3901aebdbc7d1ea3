//! Lumberjack: the receiver and the sender, which drive the two state machines of
//! `penstock-lumberjack`.
//!
//! ```text
//!  socket ─ TLS ─ Server ─ events ─► Builder (columns) ─ RecordBatch ─► Destination: the application, or a spool
//!     ▲                                                                      │ safe
//!     └──────────────────────── A ◄── acknowledge, in order ◄────────────────┘
//! ```
//!
//! An event is copied once, from the socket's buffer into a column, without its own allocation.

mod channel;
pub mod columns;
mod delivery;
mod error;
mod misuse;
mod receiver;
mod sender;

pub use self::channel::{Batch, Batches, Channel, Discard, channel};
pub use self::delivery::{ConnectionEnd, Delivery, Destination, Origin, Safe};
pub use self::misuse::Misuse;
pub use self::receiver::{Receiver, ReceiverCounters, ReceiverOptions};
pub use self::sender::{Chunk, Hosts, Line, Sender, SenderOptions};
pub use error::{Error, Result};
pub use penstock_lumberjack::{ClientConfig, Limits, Sequence, ServerConfig, Version};
