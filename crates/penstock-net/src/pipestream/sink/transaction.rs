//! What entities say of the transaction that their session belongs to.
//!
//! ```text
//!  entities with metadata penstock.transaction = KEY ──► the session is Prepared at its end, not closed: nobody reads it
//!  an entity of type COMMIT, same metadata           ──► the sessions that it lists are closed with 0, all or none
//!  an entity of type ABORT                           ──► they are closed with [`GIVEN_UP`]
//! ```
//!
//! Nothing here is stored: how a key's record is made durable is a matter of the sink's kind.

use std::sync::Arc;
use std::time::Duration;

use penstock_pipestream::{EntityHeader, EntityKey, ErrorCode, Reason};
use serde::{Deserialize, Serialize};

/// The metadata that names the transaction.
pub(crate) const KEY: &str = "penstock.transaction";
const COMMIT: &str = "application/vnd.penstock.commit+json";
const ABORT: &str = "application/vnd.penstock.abort+json";

/// Micro-batches whose records are kept for each query: as many as Spark's checkpoints have.
pub(super) const KEPT: u64 = 100;
/// A job whose commit is so long ago says it no more, and none of its tasks still runs.
pub(super) const FINISHED: Duration = Duration::from_secs(7 * 24 * 3_600);

/// The longest name of a transaction.
const MAX_KEY: usize = 256;
/// The longest order: half a million sessions.
pub(super) const MAX_ORDER: u64 = 16 << 20;

/// An order names a session whose end has not come yet: say it again. One of the codes for private use.
const STILL_OPEN: ErrorCode = ErrorCode::Other(0x40);
/// What a session is closed with that will never be read: its transaction was given up, or committed without it.
pub(super) const GIVEN_UP: ErrorCode = ErrorCode::Other(0x41);

/// What a client wants to become of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) key: String,
    pub(super) act: Act,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Act {
    /// These sessions are to be read.
    Commit(Vec<String>),
    /// Nobody is to read these, or any that are prepared.
    Abort(Option<Vec<String>>),
}

/// What the payload of an order is, and what a sink keeps of a commit.
#[derive(Debug, Serialize, Deserialize)]
struct Sessions {
    #[serde(default)]
    sessions: Option<Vec<String>>,
}

/// Whether an entity is an order, and no data.
pub(super) fn is_order(header: &EntityHeader) -> bool {
    matches!(header.content_type.as_str(), COMMIT | ABORT)
}

impl Order {
    /// Reads an order. Names of sessions become names of folders, so they are looked at closely.
    pub(super) fn parse(header: &EntityHeader, payload: &[u8]) -> Result<Self, Reason> {
        let Some(key) = header.metadata.get(KEY).cloned() else {
            return Err(invalid(format!("an order has the metadata {KEY}")));
        };
        check_key(&key).map_err(invalid)?;
        let Sessions { sessions } = serde_json::from_slice(payload)
            .map_err(|error| invalid(format!("an order is {{\"sessions\": [ID, ...]}}: {error}")))?;
        if let Some(wrong) = sessions.iter().flatten().find(|session| !is_session(session)) {
            return Err(invalid(format!("{wrong:?} is no session")));
        }
        let act = match (header.content_type.as_str(), sessions) {
            (COMMIT, Some(sessions)) => Act::Commit(sessions),
            (ABORT, sessions) => Act::Abort(sessions),
            (_, _) => return Err(invalid("a commit lists its sessions".to_owned())),
        };
        Ok(Self { key, act })
    }
}

/// A session has 32 hex digits.
pub(super) fn is_session(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|octet| octet.is_ascii_digit() || (b'a'..=b'f').contains(&octet))
}

/// Who may commit a transaction, by the names that Spark's writers give.
///
/// A record keeps a transaction that is run again from being committed twice, so it may go only where that cannot
/// happen. Micro-batches have numbers, Spark runs one only when all before it are done, and can be set back by no more
/// than the [`KEPT`] that its checkpoint has. A job that was given no name has one that nobody can have again: it needs
/// its record as long as its driver and its tasks run. Whether a transaction that somebody has named will be run again
/// nobody knows but its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin<'a> {
    /// A query's, and no other.
    MicroBatch { query: &'a str, number: u64 },
    /// One job's, and no other.
    Job,
    /// Anybody's.
    Named,
}

/// What a transaction's name tells.
pub(super) fn origin(transaction: &str) -> Origin<'_> {
    let Some(rest) = transaction.strip_prefix("spark/") else { return Origin::Named };
    // Without hyphens: no query's ID looks like that.
    if is_session(rest) {
        return Origin::Job;
    }
    let Some((query, number)) = rest.split_once('/') else { return Origin::Named };
    // A query's ID is a UUID; what users name their batch jobs does not look like that.
    let is_uuid = query.len() == 36 && query.bytes().all(|octet| octet.is_ascii_hexdigit() || octet == b'-');
    match number.parse() {
        Ok(number) if is_uuid => Origin::MicroBatch { query, number },
        Ok(_) | Err(_) => Origin::Named,
    }
}

/// Which transaction a session belongs to: its first entity says so, and the others do not say otherwise.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) enum Membership {
    #[default]
    Unknown,
    None,
    Of(Arc<str>),
}

impl Membership {
    /// Takes an entity in, or says why it cannot be one of this session's.
    pub(super) fn admit(&mut self, key: EntityKey, header: &EntityHeader) -> Result<(), Reason> {
        if is_order(header) {
            return Ok(());
        }
        let named = header.metadata.get(KEY).map(String::as_str);
        match (&*self, named) {
            (Self::Unknown, None) => *self = Self::None,
            (Self::Unknown, Some(named)) => {
                check_key(named).map_err(invalid)?;
                *self = Self::Of(named.into());
            }
            (Self::None, None) => {}
            (Self::Of(own), Some(named)) if **own == *named => {}
            // What lies below a root goes with it.
            (Self::Of(_), None) if key.scope > 1 => {}
            (Self::Of(_), None) => return Err(invalid(format!("the session's entities have the metadata {KEY}"))),
            (Self::None | Self::Of(_), Some(named)) => {
                return Err(invalid(format!("the session's earlier entities are not of the transaction {named:?}")));
            }
        }
        Ok(())
    }
}

/// What becomes of a session's list at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    /// The list lacks a line, or the session has not ended: no last line.
    Incomplete,
    /// The list has its last line.
    Listed,
    /// The last line, with this code.
    Closed(ErrorCode),
    /// No last line before the transaction is committed.
    Prepared(Arc<str>),
}

/// Why an order was not carried out.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It names a session that is none of the transaction's.
    Unknown(String),
    /// It names one whose end has not come.
    StillOpen(String),
    /// The disk, or the store.
    Storage(std::io::Error),
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        Self::Storage(error)
    }
}

impl Refusal {
    /// What the client is told.
    pub(super) fn reason(&self, key: &str) -> Reason {
        match self {
            Self::Unknown(session) => {
                invalid(format!("the session {session} is not prepared in the transaction {key:?} of this sink"))
            }
            Self::StillOpen(session) => {
                let message = format!("the session {session} has not ended yet");
                Reason { code: STILL_OPEN, message }
            }
            Self::Storage(error) => {
                let message = format!("the sink cannot keep the transaction: {error}");
                Reason { code: ErrorCode::InternalError, message }
            }
        }
    }
}

fn check_key(key: &str) -> Result<(), String> {
    if (1..=MAX_KEY).contains(&key.len()) { Ok(()) } else { Err(format!("{KEY} has 1 to {MAX_KEY} octets")) }
}

fn invalid(message: String) -> Reason {
    Reason { code: ErrorCode::EntityInvalid, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: &str = "0123456789abcdef0123456789abcdef";

    fn header(content_type: &str, key: Option<&str>) -> EntityHeader {
        let metadata = key.map(|key| (KEY.to_owned(), key.to_owned())).into_iter().collect();
        EntityHeader { content_type: content_type.to_owned(), metadata, ..Default::default() }
    }

    fn entity(scope: u16) -> EntityKey {
        EntityKey { scope, scope_use: 0, entity: 1, entity_use: 0 }
    }

    #[test]
    fn an_order_names_a_transaction_and_sessions() {
        let list = format!("{{\"sessions\":[\"{SESSION}\"]}}");
        let order = Order::parse(&header(COMMIT, Some("k")), list.as_bytes()).unwrap();
        assert_eq!(order, Order { key: "k".into(), act: Act::Commit(vec![SESSION.into()]) });
        let order = Order::parse(&header(ABORT, Some("k")), b"{}").unwrap();
        assert_eq!(order.act, Act::Abort(None));
    }

    #[test]
    fn what_is_no_order_is_refused() {
        let long = "k".repeat(257);
        let bad: [(Option<&str>, &str); 7] = [
            (None, "{\"sessions\":[]}"),
            (Some(""), "{\"sessions\":[]}"),
            (Some(&long), "{\"sessions\":[]}"),
            (Some("k"), "{}"),
            (Some("k"), "sessions"),
            (Some("k"), "{\"sessions\":[\"../../etc\"]}"),
            (Some("k"), "{\"sessions\":[\"0123456789ABCDEF0123456789ABCDEF\"]}"),
        ];
        for (key, payload) in bad {
            let refused = Order::parse(&header(COMMIT, key), payload.as_bytes()).unwrap_err();
            assert_eq!(refused.code, ErrorCode::EntityInvalid, "{payload}");
        }
    }

    #[test]
    fn names_tell_whose_a_transaction_is() {
        let query = "01234567-89ab-cdef-0123-456789abcdef";
        assert_eq!(origin(&format!("spark/{query}/17")), Origin::MicroBatch { query, number: 17 });
        assert_eq!(origin(&format!("spark/{SESSION}")), Origin::Job);
        let named = ["", "job", "spark/", "spark/daily", "spark/daily/17", SESSION];
        let longer = [format!("spark/{query}"), format!("spark/{query}/x"), format!("spark/{SESSION}/1")];
        for name in named.into_iter().chain(longer.iter().map(String::as_str)) {
            assert_eq!(origin(name), Origin::Named, "{name}");
        }
    }

    #[test]
    fn a_session_has_one_transaction_or_none() {
        let (data, other, plain) = (header("a/b", Some("k")), header("a/b", Some("l")), header("a/b", None));
        let mut of = Membership::default();
        assert!(of.admit(entity(0), &header(COMMIT, Some("x"))).is_ok());
        assert_eq!(of, Membership::Unknown);
        assert!(of.admit(entity(0), &data).is_ok() && of.admit(entity(0), &data).is_ok());
        assert!(of.admit(entity(2), &plain).is_ok());
        assert!(of.admit(entity(0), &plain).is_err() && of.admit(entity(2), &other).is_err());
        assert_eq!(of, Membership::Of("k".into()));
        let mut none = Membership::default();
        assert!(none.admit(entity(0), &plain).is_ok() && none.admit(entity(0), &data).is_err());
    }
}
