use std::fmt;
use std::ops::Range;
use std::time::SystemTime;

use crate::format::names::is_session;
use crate::{Misuse, Result};

/// The largest content of a row in bytes. Spark limits binary values to just below 2 GiB.
pub const MAX_CONTENT: u64 = (1 << 31) - (1 << 16);

/// Refuse a name that no session's folder or prefix can have.
pub(super) fn check_session(session: &str) -> Result<()> {
    if is_session(session) { Ok(()) } else { Err(Misuse::SessionName { session: session.to_owned() }.into()) }
}

/// Storage of a sink's sessions. Every call blocks.
pub trait Store: fmt::Debug + Send + Sync {
    /// Return the names of all possible sessions, in no particular order.
    fn sessions(&self) -> Result<Vec<String>>;

    /// Return the time at which the set of sessions last changed; `None` if it is uncertain, so
    /// that the caller must list the sessions.
    fn changed(&self) -> Result<Option<SystemTime>>;

    /// Return the state of a session's list; `None` if the list does not exist.
    fn list(&self, session: &str) -> Result<Option<ListState>>;

    /// Make a session's current list durable.
    fn make_durable(&self, session: &str) -> Result<()>;

    /// Return the bytes in a range of a session's list; fewer if the list ends before the range.
    fn read_list(&self, session: &str, range: Range<u64>) -> Result<Vec<u8>>;

    /// Return whether a payload exists.
    fn has(&self, file: &str) -> Result<bool>;

    /// Append parts of payloads to `into`, concatenated; return an error if a payload is too short.
    fn read_payloads(&self, wanted: &[PayloadRange], into: &mut Vec<u8>) -> Result<()>;

    /// Return the sessions of a committed transaction: one list for each owner that has committed
    /// it.
    fn committed(&self, transaction: &str) -> Result<Vec<Vec<String>>>;

    /// Return the sessions of a transaction that are prepared and not closed yet.
    fn prepared(&self, transaction: &str) -> Result<Vec<String>>;

    /// Return the storage of the journal.
    fn journal(&self) -> Result<Box<dyn JournalLog>>;

    /// Remove a session.
    fn remove(&self, session: &str) -> Result<()>;
}

/// Length and last change of a session's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListState {
    /// Its length in bytes.
    pub length: u64,
    /// The time of the last write to it.
    pub modified: SystemTime,
}

/// A part of a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayloadRange {
    /// The payload's name, relative to the sink.
    pub file: String,
    /// Where the part starts.
    pub offset: u64,
    /// The part's length in bytes.
    pub length: u64,
}

/// Storage of a journal's lines.
pub trait JournalLog: fmt::Debug + Send {
    /// Return the complete lines that were appended since the last call. Other processes may be
    /// blocked until [`release`](Self::release).
    fn read_new(&mut self) -> Result<Vec<u8>>;

    /// Append lines durably. Return false if another process has appended lines since the last
    /// [`read_new`], which the caller must read first.
    ///
    /// [`read_new`]: Self::read_new
    fn append(&mut self, lines: &[u8]) -> Result<bool>;

    /// Let other processes continue.
    fn release(&mut self);
}
