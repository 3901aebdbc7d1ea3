//! Reading a sink: the rows of its closed sessions, from its folder or from the server that keeps it.
//!
//! ```text
//!  Store (a folder) ── plan ──► pieces of a session's list ── select ──► lines and payloads, 4 to 8 MB at a time
//!        │                                                                 ▲
//!     Journal: the order in which sessions were found closed            Service ══ penstock-sink/1 ══ RemoteSink
//! ```
//!
//! Only sessions whose list ends with `{"closed":0}` are read; their lists and payloads never change, so a piece, which
//! is a range of bytes of a list, gives the same rows to whoever reads it, now or after a crash. An entity's second
//! line takes the place of its first one (see the sink): [`examine`] finds such first lines, and pieces pass over them.
//! What commits a transaction or ends it otherwise is no row; its sessions are read all or none ([`transactions`]).
//!
//! Nothing here knows Arrow: a [`Batch`] is lines of the list as they are and the payloads behind one another.

mod batch;
mod client;
mod folder;
mod journal;
mod line;
mod object;
mod plan;
mod service;
mod transactions;
mod wire;

use std::fmt;
use std::ops::Range;
use std::time::SystemTime;

pub use self::batch::{Batch, BatchLimits, read_batch, read_rows};
pub use self::client::RemoteSink;
pub use self::folder::FolderStore;
pub use self::journal::{ClosedSession, Followed, Journal, JournalLog};
pub use self::line::Line;
pub use self::object::ObjectReader;
pub use self::plan::{Piece, Plan, PlanLimits, Refiner, Selection, examine, plan};
pub(crate) use self::service::{ALPN, Service};
pub use self::transactions::{closed_session, closed_sessions};
use crate::Result;

/// The largest content of a row. Spark's binary values end just below 2 GiB.
pub const MAX_CONTENT: u64 = (1 << 31) - (1 << 16);

/// Where a sink's sessions lie. Every call blocks.
pub trait Store: fmt::Debug + Send + Sync {
    /// What may be a session, in no order; most may be known already.
    fn sessions(&self) -> Result<Vec<String>>;

    /// When a session was added last, as exactly as one knows it for sure; `None`: look and see.
    fn changed(&self) -> Result<Option<SystemTime>>;

    /// A session's list; `None` where there is none.
    fn list(&self, session: &str) -> Result<Option<ListState>>;

    /// Makes sure that a session's list, as it is, outlives a power cut.
    fn make_durable(&self, session: &str) -> Result<()>;

    /// Bytes of a session's list, as many as there are up to the end of the range.
    fn read_list(&self, session: &str, range: Range<u64>) -> Result<Vec<u8>>;

    /// Whether a payload is there.
    fn has(&self, file: &str) -> Result<bool>;

    /// Appends parts of payloads, one behind another; an error if any is shorter.
    fn read_payloads(&self, wanted: &[Wanted], into: &mut Vec<u8>) -> Result<()>;

    /// The sessions that a transaction was committed with, by each owner that has committed it.
    fn committed(&self, transaction: &str) -> Result<Vec<Vec<String>>>;

    /// The sessions of a transaction that are prepared and not closed yet.
    fn prepared(&self, transaction: &str) -> Result<Vec<String>>;

    /// Where the order of closed sessions is kept.
    fn journal(&self) -> Result<Box<dyn JournalLog>>;

    /// Removes a session.
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

/// Whether a name may be a session's: no path and no hidden file.
pub(crate) fn is_session(name: &str) -> bool {
    // How often its ID was used before, if it was.
    let (name, uses) = name.rsplit_once('.').unwrap_or((name, "1"));
    let fits = (1..=128).contains(&name.len()) && (1..=10).contains(&uses.len());
    fits && uses.bytes().all(|byte| byte.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

/// The session, scope and entity in the name of a payload, `SESSION/SCOPE/ENTITY`; `None` for any other name, such as
/// one that leads out of the sink.
pub(crate) fn payload_name(file: &str) -> Option<(&str, &str, &str)> {
    let mut parts = file.split('/');
    let (session, scope, entity) = (parts.next()?, parts.next()?, parts.next()?);
    let fits = parts.next().is_none() && is_session(session) && is_id(scope) && is_id(entity);
    fits.then_some((session, scope, entity))
}

/// An ID, how often it was used before, and which attempt at it this is, if not the first.
fn is_id(name: &str) -> bool {
    let digits = |text: &str| (1..=10).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let (name, attempt) = name.split_once('-').unwrap_or((name, "1"));
    digits(attempt)
        && match name.split_once('.') {
            Some((id, uses)) => digits(id) && digits(uses),
            None => digits(name),
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_out_of_the_sink_are_none() {
        assert_eq!(payload_name("ab/0/7"), Some(("ab", "0", "7")));
        assert_eq!(payload_name("ab/2.1/7.13"), Some(("ab", "2.1", "7.13")));
        assert_eq!(payload_name("ab/2/7-2"), Some(("ab", "2", "7-2")));
        let wrong =
            ["", "/", "ab/0", "ab/0/7/8", "../0/7", "ab/../7", "ab/0/..", "ab//7", "/ab/0/7", "ab/0/.tmp-1", "a\0/0/1"];
        for name in wrong {
            assert_eq!(payload_name(name), None, "{name:?}");
        }
        assert!(is_session("00ff") && !is_session("closed.jsonl") && !is_session(".hidden") && !is_session(""));
        assert!(!is_session(&"a".repeat(129)));
        assert!(is_session("00ff.1") && is_session("00ff.12"));
        assert!(!is_session("00ff.") && !is_session(".1") && !is_session("00ff.x") && !is_session("00.1.1"));
    }
}
