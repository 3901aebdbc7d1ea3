use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// A session that is closed with 0, as a line of the journal records it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedSession {
    /// The session's ID, which is also its folder's name.
    #[serde(rename = "session")]
    pub id: String,
    /// The number of its rows.
    pub rows: u64,
    /// The total size of their contents in bytes.
    #[serde(rename = "octets")]
    pub bytes: u64,
    /// The offsets of lines that later lines have replaced, in ascending order; nearly always
    /// empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub superseded: Vec<u64>,
}

/// A closed session whose list was examined.
#[derive(Debug, Clone)]
pub(super) struct ListedSession {
    pub(super) session: ClosedSession,
    /// The time of the last write to its list.
    pub(super) modified: SystemTime,
    /// The transaction that its rows name.
    pub(super) transaction: Option<String>,
}
