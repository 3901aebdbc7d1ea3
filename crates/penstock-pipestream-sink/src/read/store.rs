use std::fmt;
use std::ops::Range;
use std::time::SystemTime;

use crate::Result;

/// The largest content of a row. Spark's binary values end just below 2 GiB.
pub const MAX_CONTENT: u64 = (1 << 31) - (1 << 16);

/// Where a sink's sessions lie. Every call blocks.
pub trait Store: fmt::Debug + Send + Sync {
    /// What may be a session, in no order; most may be known already.
    fn sessions(&self) -> Result<Vec<String>>;

    /// When a session was added last, as exactly as one knows it for sure; `None`: look and see.
    fn changed(&self) -> Result<Option<SystemTime>>;

    /// Return a session's list; `None` where there is none.
    fn list(&self, session: &str) -> Result<Option<ListState>>;

    /// Make sure that a session's list, as it is, outlives a power cut.
    fn make_durable(&self, session: &str) -> Result<()>;

    /// Bytes of a session's list, as many as there are up to the end of the range.
    fn read_list(&self, session: &str, range: Range<u64>) -> Result<Vec<u8>>;

    /// Return whether a payload is there.
    fn has(&self, file: &str) -> Result<bool>;

    /// Append parts of payloads, one behind another; an error if any is shorter.
    fn read_payloads(&self, wanted: &[Wanted], into: &mut Vec<u8>) -> Result<()>;

    /// Return the sessions that a transaction was committed with, by each owner that has committed it.
    fn committed(&self, transaction: &str) -> Result<Vec<Vec<String>>>;

    /// Return the sessions of a transaction that are prepared and not closed yet.
    fn prepared(&self, transaction: &str) -> Result<Vec<String>>;

    /// Return where the order of closed sessions is kept.
    fn journal(&self) -> Result<Box<dyn JournalLog>>;

    /// Remove a session.
    fn remove(&self, session: &str) -> Result<()>;
}

/// A session's list as it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListState {
    /// Its bytes.
    pub length: u64,
    /// When it was written last.
    pub modified: SystemTime,
}

/// A part of a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its name below the sink.
    pub file: String,
    /// Where it starts.
    pub offset: u64,
    /// Its bytes.
    pub length: u64,
}

/// Where a journal's lines are kept.
pub trait JournalLog: fmt::Debug + Send {
    /// What was appended since the last call, whole lines. Others may be held off until [`release`](Self::release).
    fn read_new(&mut self) -> Result<Vec<u8>>;

    /// Append lines, durably. False: somebody else has appended meanwhile, and that must be read first.
    fn append(&mut self, lines: &[u8]) -> Result<bool>;

    /// Lets others in.
    fn release(&mut self);
}
