use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// A session that is closed with 0: a line of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedSession {
    /// Its ID, and its folder's name.
    #[serde(rename = "session")]
    pub id: String,
    /// Its rows.
    pub rows: u64,
    /// The bytes of their contents.
    #[serde(rename = "octets")]
    pub bytes: u64,
    /// Start of lines that later lines have replaced, in ascending order; nearly always none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub superseded: Vec<u64>,
}

/// A closed session that was looked through.
#[derive(Debug, Clone)]
pub(super) struct ListedSession {
    pub(super) session: ClosedSession,
    /// When its list was written last.
    pub(super) modified: SystemTime,
    /// The transaction that its rows name.
    pub(super) transaction: Option<String>,
}
