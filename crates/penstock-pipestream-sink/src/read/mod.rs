//! Reading a sink: the rows of its closed sessions, from its folder or from its server.
//!
//! ```text
//!  Store (a folder) ── plan ──► pieces of a session's list ── select ──► lines and payloads, 4 to 8 MB at a time
//!        │                                                                 ▲
//!     Journal: the order in which sessions were found closed            Service ══ penstock-sink/1 ══ RemoteSink
//! ```
//!
//! Only sessions whose list ends with `{"closed":0}` are read; their lists and payloads never
//! change, so a piece, which is a range of bytes of a list, returns the same rows to every reader,
//! now or after a crash. An entity's second line replaces its first one (see the sink): [`examine`]
//! finds such first lines, and pieces skip them. An entity that commits or aborts a transaction is
//! not a row; readers see all sessions of a transaction or none (`transactions.rs`).
//!
//! A [`Batch`] holds unchanged lines of the list and the concatenated payloads, just as a server
//! sends them. A [`SinkReader`] reads a sink from its store or its server, and its [`PieceReader`]
//! turns batches into Arrow rows.

mod batch;
mod client;
mod file_log;
mod folder;
mod journal;
mod lines;
mod object;
mod owner_column;
mod piece_reader;
mod plan;
mod reader;
mod rows;
mod service;
mod session;
mod session_cache;
mod store;
mod tasks;
mod transactions;
mod wire;

pub use self::batch::{Batch, BatchLimits, read_batch, read_rows};
pub use self::client::RemoteSink;
pub use self::folder::FolderStore;
pub use self::journal::{Journal, JournalPage};
pub use self::object::ObjectReader;
pub use self::owner_column::{OwnerColumnBuilder, owner_fields};
pub use self::piece_reader::PieceReader;
pub use self::plan::{Piece, Plan, PlanLimits, Refiner, Selection, examine, plan};
pub use self::reader::SinkReader;
pub use self::rows::row_schema;
pub use self::service::ReadOptions;
pub use self::session::ClosedSession;
pub use self::store::{JournalLog, ListState, MAX_CONTENT, PayloadRange, Store};
pub use self::transactions::{closed_session, closed_sessions};
pub use crate::format::line::Line;
