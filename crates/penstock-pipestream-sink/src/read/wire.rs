//! `penstock-sink/1`: the requests of a reader to the server of a sink, on the same UDP port as PipeStream.
//!
//! Every request has a separate bidirectional stream. The reader writes one JSON object and ends its side; the server
//! answers with one byte, 0 or 1, and then
//!
//! ```text
//! 1  the reason for the refusal, as text
//! 0  HELLO, SESSIONS, PLAN, CLAIMS: a JSON object
//!    ROWS: 4 bytes, big-endian: the length of a JSON object; that object, {"lines": L, "sizes": [N or null, ...],
//!    "next": OFFSET or null}; L bytes of the list; then the contents, concatenated
//! ```
//!
//! The first request must be HELLO with the read key; the server closes the connection after any
//! other. Each answer has a limited number of sessions, pieces and rows, and the reader continues
//! with further requests. The server keeps no state for a reader between requests.

use penstock_pipestream::{SessionId, Status};
use penstock_pipestream_net::{ClaimCheck, ClaimDetails, ClaimRow};
use serde::{Deserialize, Serialize};

use crate::read::plan::Piece;

/// The protocol's name in the handshake.
pub(super) const ALPN: &[u8] = b"penstock-sink/1";

/// Maximum length of a request in bytes.
pub(super) const MAX_REQUEST: usize = 64 << 10;
/// Maximum length of an answer in bytes, except the answer to ROWS.
pub(super) const MAX_RESPONSE: usize = 16 << 20;
/// Maximum number of sessions, pieces or claim checks in an answer.
pub(super) const MAX_ITEMS: usize = 4_096;
/// Maximum number of rows in an answer.
pub(super) const MAX_ROWS: usize = 65_536;
/// Maximum size in bytes of an answer with more than one row.
pub(super) const MAX_BYTES: u64 = 64 << 20;

/// Number of bytes of claim checks at which an answer is full.
pub(super) const MAX_CLAIMS: usize = 4 << 20;

/// The request succeeded.
pub(super) const DONE: u8 = 0;
/// The request was refused.
pub(super) const REFUSED: u8 = 1;

/// Codes of CONNECTION_CLOSE and RESET_STREAM.
pub(super) const CODE_DONE: u32 = 0;
pub(super) const CODE_BROKEN: u32 = 1;
pub(super) const CODE_KEY: u32 = 2;
pub(super) const CODE_SLOW: u32 = 3;

/// A request of a reader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Request {
    /// Authentication of the reader.
    Hello { key: String },
    /// Closed sessions, from a position of the journal.
    Sessions { after: u64, max: usize },
    /// Claim checks of the server after this one, ordered by expiry and ID.
    Claims { expires: u64, claim: u64, max: usize },
    /// Division of a session, from a position in its list.
    Plan {
        session: String,
        start: u64,
        #[serde(rename = "octets")]
        bytes: u64,
        rows: u64,
        pieces: usize,
    },
    /// Rows of a piece.
    Rows {
        session: String,
        start: u64,
        end: u64,
        #[serde(rename = "octets")]
        bytes: u64,
        rows: usize,
        content: bool,
        max_content: u64,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Welcome {
    pub(super) version: u32,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ClaimsResponse {
    pub(super) claims: Vec<ClaimItem>,
    /// Whether further claim checks follow.
    pub(super) more: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ClaimItem {
    pub(super) claim: u64,
    pub(super) session: Option<String>,
    pub(super) scope: u16,
    pub(super) entity: u32,
    pub(super) expires: u64,
    pub(super) status: u8,
    #[serde(flatten)]
    pub(super) details: ClaimDetails,
}

impl From<ClaimRow> for ClaimItem {
    fn from(ClaimRow { check, details }: ClaimRow) -> Self {
        let session = check.session.map(|session| session.to_string());
        let ClaimCheck { id: claim, scope, entity, expiry_micros: expires, status, .. } = check;
        Self { claim, session, scope, entity, expires, status: status.code(), details }
    }
}

impl TryFrom<ClaimItem> for ClaimRow {
    type Error = penstock_pipestream::Error;

    fn try_from(item: ClaimItem) -> Result<Self, Self::Error> {
        let ClaimItem { claim: id, session, scope, entity, expires: expiry_micros, status, details } = item;
        let session = session.as_deref().map(SessionId::parse).transpose()?;
        let status = Status::try_from(status)?;
        let check = ClaimCheck { id, session, scope, entity, expiry_micros, status, validation: None, file: None };
        Ok(Self { check, details })
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PlanResponse {
    /// The start, end, rows and bytes of each piece.
    pub(super) pieces: Vec<(u64, u64, u64, u64)>,
    pub(super) next: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RowsHead {
    pub(super) lines: u64,
    pub(super) sizes: Vec<Option<u64>>,
    pub(super) next: Option<u64>,
}

impl From<Piece> for (u64, u64, u64, u64) {
    fn from(piece: Piece) -> Self {
        (piece.start, piece.end, piece.rows, piece.bytes)
    }
}

impl From<(u64, u64, u64, u64)> for Piece {
    fn from((start, end, rows, bytes): (u64, u64, u64, u64)) -> Self {
        Self { start, end, rows, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readers and servers of other versions know the field by this name.
    #[test]
    fn the_bytes_of_a_request_are_octets_on_the_wire() {
        let text = r#"{"request":"plan","session":"ab","start":1,"octets":2,"rows":3,"pieces":4}"#;
        let plan = Request::Plan { session: "ab".into(), start: 1, bytes: 2, rows: 3, pieces: 4 };
        assert_eq!(serde_json::from_str::<Request>(text).unwrap(), plan);
        assert_eq!(serde_json::to_string(&plan).unwrap(), text);
    }

    #[test]
    fn requests_are_json_and_take_no_fields_but_theirs() {
        let request = Request::Sessions { after: 3, max: 10 };
        let text = serde_json::to_string(&request).unwrap();
        assert_eq!(text, r#"{"request":"sessions","after":3,"max":10}"#);
        assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), request);
        for wrong in [
            r#"{"request":"sessions","after":3}"#,
            r#"{"request":"sessions","after":-3,"max":10}"#,
            r#"{"request":"sessions","after":3,"max":10,"more":1}"#,
            r#"{"request":"remove","session":"ab"}"#,
            "[]",
            "",
        ] {
            assert!(serde_json::from_str::<Request>(wrong).is_err(), "{wrong}");
        }
    }
}
