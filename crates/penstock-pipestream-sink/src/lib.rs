//! Sinks of PipeStream: they store the entities that a server receives, and their readers return
//! them. They depend only on the driver's ports ([`penstock_pipestream_net::port`]); `settings.rs`
//! builds a server from the parts.
//!
//! ```text
//!  driver ── EntitySink ──► folder/, objects/     entries.rs: entities that are not committed yet; transactions/: all or nothing
//!         ── ClaimChecks ─► claims/               claim checks of deferred entities, next to the sessions
//!         ── PortService ─► read/                 rows of closed sessions, from the store or over the server's port
//!                           format/               names of files, and the lines of a list
//! ```

mod claims;
mod counters;
mod entries;
mod error;
mod folder;
mod format;
mod objects;
mod place;
pub mod read;
mod references;
mod settings;
mod transactions;

pub use self::claims::{Claims, read_claims, read_claims_in};
pub use self::error::{Error, Misuse, Result};
pub use self::folder::FolderSink;
pub use self::objects::ObjectSink;
pub use self::place::SinkPlace;
pub use self::settings::{ReferenceSettings, ServerSettings};
