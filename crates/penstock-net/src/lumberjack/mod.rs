//! Lumberjack: the receiver and the sender, drivers of `penstock-lumberjack`'s two machines.
//!
//! ```text
//!  socket ─ TLS ─ Server ─ events ─► Builder (columns) ─ RecordBatch ─► Destination: the application, or the spool
//!     ▲                                                                      │ safe
//!     └──────────────────────── A ◄── acknowledge, in order ◄────────────────┘
//! ```
//!
//! An event is copied once, from the socket's buffer into a column, and there is nothing made for it alone.

pub mod columns;
mod delivery;
pub mod spool;

pub use self::delivery::{Delivery, Destination, Origin, Safe};
pub use penstock_lumberjack::{Limits, Sequence, Version};
