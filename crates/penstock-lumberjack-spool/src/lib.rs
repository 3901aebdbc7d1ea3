//! The spool: events that a receiver has acknowledged, kept durably until all readers have read them.
//!
//! ```text
//!  receiver ── take ──► writer (one thread): record ─► append, fdatasync ─► safe     a group of batches at a time
//!                                               │
//!                    a folder of segments ◄─────┘          or a prefix in an object store
//!                        │
//!  Store ── plan ──► Pieces ── read ──► RecordBatches       Service ══ HTTPS, a key ══ RemoteStore
//! ```
//!
//! A segment is a file of records (see [`format`]), and a record is a batch in the raw layout.
//! Segments are numbered from 1, and rows from 0 in each segment. A [`Position`] names the next
//! row, and the rows between two positions never change. A segment is removed when every named
//! reader has committed a position after it; without readers no segment is removed.

mod claim;
mod copies;
mod dedup;
mod earlier;
mod folder;
mod format;
mod index;
mod names;
mod objects;
mod options;
mod reading;
mod recovery;
mod remote;
mod requests;
mod scan;
mod service;
mod shared;
mod spool;
mod store;
mod target;
mod writer;

pub use self::folder::FolderStore;
pub use self::objects::ObjectStore;
pub use self::options::{Ack, Keep, SpoolOptions};
pub use self::reading::{Plan, PlanLimits, Reader, RowRange, plan};
pub use self::remote::RemoteStore;
pub use self::service::Service;
pub use self::shared::SpoolCounters;
pub use self::spool::Spool;
pub use self::store::{Missing, Position, Store, Unreadable};
pub use penstock_lumberjack_net::{Error, Misuse, Result};
