//! Lumberjack: the receiver and the sender, drivers of `penstock-lumberjack`'s two machines.
//!
//! ```text
//!  socket ─ TLS ─ Server ─ events ─► Builder (columns) ─ RecordBatch ─► Destination: the application, or a spool
//!     ▲                                                                      │ safe
//!     └──────────────────────── A ◄── acknowledge, in order ◄────────────────┘
//! ```
//!
//! An event is copied once, from the socket's buffer into a column, without an allocation of its own.

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
