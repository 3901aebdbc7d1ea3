use std::fmt;
use std::ops::Range;
use std::time::SystemTime;

use crate::format::names::is_session;
use crate::{Misuse, Result};

/// The largest content of a row. Spark's binary values end just below 2 GiB.
pub const MAX_CONTENT: u64 = (1 << 31) - (1 << 16);

/// Refuse the name of a session that no folder or prefix of a session could have.
pub(super) fn check_session(session: &str) -> Result<()> {
    if is_session(session) { Ok(()) } else { Err(Misuse::SessionName { session: session.to_owned() }.into()) }
}

/// Storage of a sink's sessions. Every call blocks.
pub trait Store: fmt::Debug + Send + Sync {
    /// Return the names that may be sessions, in no order; most may be known already.
    fn sessions(&self) -> Result<Vec<String>>;

    /// Return when a session was added last, as exactly as that is certain; `None`: list the sessions to find out.
    fn changed(&self) -> Result<Option<SystemTime>>;

    /// Return a session's list; `None` where there is none.
    fn list(&self, session: &str) -> Result<Option<ListState>>;

    /// Make a session's current list durable.
    fn make_durable(&self, session: &str) -> Result<()>;

    /// Return bytes of a session's list, as many as there are up to the end of the range.
    fn read_list(&self, session: &str, range: Range<u64>) -> Result<Vec<u8>>;

    /// Return whether a payload exists.
    fn has(&self, file: &str) -> Result<bool>;

    /// Append parts of payloads, concatenated; an error if any is shorter.
    fn read_payloads(&self, wanted: &[PayloadRange], into: &mut Vec<u8>) -> Result<()>;

    /// Return the sessions that a transaction was committed with, by each owner that has committed it.
    fn committed(&self, transaction: &str) -> Result<Vec<Vec<String>>>;

    /// Return the sessions of a transaction that are prepared and not closed yet.
    fn prepared(&self, transaction: &str) -> Result<Vec<String>>;

    /// Return the storage of the order of closed sessions.
    fn journal(&self) -> Result<Box<dyn JournalLog>>;

    /// Remove a session.
    fn remove(&self, session: &str) -> Result<()>;
}

/// Length and time of a session's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListState {
    /// Its bytes.
    pub length: u64,
    /// When it was written last.
    pub modified: SystemTime,
}

/// A part of a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayloadRange {
    /// Its name below the sink.
    pub file: String,
    /// Where it starts.
    pub offset: u64,
    /// Its bytes.
    pub length: u64,
}

/// Storage of a journal's lines.
pub trait JournalLog: fmt::Debug + Send {
    /// Return the whole lines that were appended since the last call. Others may be blocked until
    /// [`release`](Self::release).
    fn read_new(&mut self) -> Result<Vec<u8>>;

    /// Append lines, durably. Return false if another process has appended in the meantime, which must be read first.
    fn append(&mut self, lines: &[u8]) -> Result<bool>;

    /// Let other processes continue.
    fn release(&mut self);
}
