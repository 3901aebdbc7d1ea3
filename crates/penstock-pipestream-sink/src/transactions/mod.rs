//! Transactions: the sessions that a client commits or aborts together.
//!
//! ```text
//!  entities with metadata penstock.transaction = KEY ──► the session is prepared at its end, not closed or read
//!  an entity of type COMMIT, same metadata           ──► all sessions that it lists are closed with 0, or none
//!  an entity of type ABORT, same metadata            ──► they are closed with [`GIVEN_UP`]
//! ```
//!
//! An order is carried out only if it comes from the [`Owner`] of the sessions.
//!
//! This module stores nothing: each kind of sink makes a transaction's record durable in its own
//! way.

pub(crate) mod owner;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use penstock_pipestream::{EntityHeader, EntityKey, ErrorCode, Reason};
use serde::{Deserialize, Serialize};

use crate::format::names::{id_of, is_session_id};
use crate::format::{ABORT, COMMIT, TRANSACTION as KEY};
use crate::transactions::owner::{Owner, owner_hash, token_hash};

/// Number of micro-batches whose records are kept for each query: as many as Spark's checkpoints
/// hold.
pub(crate) const KEPT_BATCHES: u64 = 100;
/// Age of a job's commit from which on the commit is not repeated, and none of the job's tasks
/// still runs.
pub(crate) const JOB_RETENTION: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Maximum number of bytes of a transaction's name.
const MAX_KEY: usize = 256;
/// Maximum number of bytes of an order: enough for almost half a million sessions.
pub(crate) const MAX_ORDER: u64 = 16 << 20;

/// Code for an order that names a session that has not ended yet: the client has to repeat the
/// order. For private use.
const STILL_OPEN: ErrorCode = ErrorCode::Other(0x40);
/// Code that closes a session that will never be read: its transaction was given up, or committed
/// without it.
pub(crate) const GIVEN_UP: ErrorCode = ErrorCode::Other(0x41);

/// Code for a commit that names other sessions than those with which the transaction was committed.
/// For private use.
const COMMITTED: ErrorCode = ErrorCode::Other(0x43);
/// Code for an order that names no session, or whose sender is not the owner. For private use.
const REFUSED: ErrorCode = ErrorCode::Other(0x44);

/// The name of a transaction, and its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Transaction {
    pub(crate) key: Arc<str>,
    pub(crate) owner: Owner,
}

/// A client's order for a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TransactionCommand {
    pub(crate) of: Transaction,
    pub(crate) act: TransactionAction,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TransactionAction {
    /// Make these sessions readable; if `exclusive`, only if no other owner has committed a
    /// transaction of this name.
    Commit { sessions: Vec<String>, exclusive: bool },
    /// Make sure that these sessions are never read; `None`: all that are prepared.
    Abort(Option<Vec<String>>),
}

/// The payload of an order.
#[derive(Debug, Deserialize)]
struct Payload {
    #[serde(default)]
    sessions: Option<Vec<String>>,
    #[serde(default)]
    exclusive: bool,
}

/// The record of a commit in a sink.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) transaction: String,
    /// The names of the sessions' folders.
    pub(crate) sessions: Vec<String>,
    /// The kind of the owner; `None` if a server without owners has written the record.
    #[serde(default)]
    owner: Option<String>,
}

impl Record {
    pub(crate) fn new(of: &Transaction, sessions: Vec<String>) -> Self {
        Self { transaction: of.key.to_string(), sessions, owner: Some(of.owner.kind().to_owned()) }
    }

    /// Return whether a server that knew no owners has written the record.
    pub(crate) fn has_no_owner(&self) -> bool {
        self.owner.is_none()
    }

    /// Return whether a commit of these sessions repeats the recorded one.
    pub(crate) fn is_of(&self, sessions: &[String]) -> bool {
        let ids = |names: &[String]| names.iter().map(|name| id_of(name).to_owned()).collect::<BTreeSet<String>>();
        ids(&self.sessions) == ids(sessions)
    }
}

/// Return whether an entity is an order rather than data.
pub(crate) fn is_order(header: &EntityHeader) -> bool {
    matches!(header.content_type.as_str(), COMMIT | ABORT)
}

impl TransactionCommand {
    /// Parse an order from a client with this certificate. Session names become folder names, so
    /// they are validated strictly.
    pub(crate) fn parse(header: &EntityHeader, payload: &[u8], certificate: Option<[u8; 32]>) -> Result<Self, Reason> {
        let Some(key) = header.metadata.get(KEY) else {
            return Err(invalid(format!("an order has the metadata {KEY}")));
        };
        check_key(key).map_err(invalid)?;
        let Payload { sessions, exclusive } = serde_json::from_slice(payload)
            .map_err(|error| invalid(format!("an order is {{\"sessions\": [ID, ...]}}: {error}")))?;
        if let Some(wrong) = sessions.iter().flatten().find(|session| !is_session_id(session)) {
            return Err(invalid(format!("{wrong:?} is no session")));
        }
        let act = match (header.content_type.as_str(), sessions) {
            (COMMIT, Some(sessions)) => TransactionAction::Commit { sessions, exclusive },
            (ABORT, sessions) => TransactionAction::Abort(sessions),
            (_, _) => return Err(invalid("a commit lists its sessions".to_owned())),
        };
        let owner = Owner::of(token_hash(header)?, certificate);
        Ok(Self { of: Transaction { key: key.as_str().into(), owner }, act })
    }

    /// Return the sessions that the order names.
    pub(crate) fn sessions(&self) -> Option<&[String]> {
        match &self.act {
            TransactionAction::Commit { sessions, .. } => Some(sessions),
            TransactionAction::Abort(sessions) => sessions.as_deref(),
        }
    }

    /// Refuse an order that names too little, regardless of which sessions are prepared.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        match (&self.act, &self.of.owner) {
            (TransactionAction::Commit { sessions, .. }, _) if sessions.is_empty() => {
                Err(Refusal::Refused("a commit names the sessions that are to be read".to_owned()))
            }
            (TransactionAction::Abort(None), Owner::Anyone) => Err(Refusal::Refused(
                "an abort names its sessions, unless it identifies their owner by a token or a certificate".to_owned(),
            )),
            (TransactionAction::Commit { .. } | TransactionAction::Abort(_), _) => Ok(()),
        }
    }
}

/// The folders of prepared sessions by session ID, because an order may name half a million
/// sessions.
pub(crate) struct Prepared<'a>(HashMap<&'a str, Vec<&'a String>>);

impl<'a> Prepared<'a> {
    pub(crate) fn new(folders: &'a [String]) -> Self {
        let mut by_id: HashMap<&str, Vec<&String>> = HashMap::new();
        for folder in folders {
            by_id.entry(id_of(folder)).or_default().push(folder);
        }
        Self(by_id)
    }

    /// Return the folders of a session, or `None` if it is not prepared.
    pub(crate) fn folders(&self, session: &str) -> Option<impl Iterator<Item = String>> {
        self.0.get(session).map(|folders| folders.iter().map(|folder| (*folder).clone()))
    }
}

/// Return the prepared folders of the sessions that a commit names, or the first session that has
/// none.
pub(crate) fn resolve(sessions: &[String], prepared: &[String]) -> Result<Vec<String>, String> {
    let prepared = Prepared::new(prepared);
    let mut folders = Vec::with_capacity(sessions.len());
    for session in sessions {
        folders.extend(prepared.folders(session).ok_or_else(|| session.clone())?);
    }
    folders.sort_unstable();
    folders.dedup();
    Ok(folders)
}

/// The writer that a transaction belongs to, derived from the names that Spark's writers use.
///
/// A record prevents a second commit of a transaction that is run again, so it may be removed only
/// if that cannot happen. Micro-batches have numbers: Spark runs one only after all before it are
/// done, and can be set back by at most the [`KEPT_BATCHES`] that its checkpoint holds. A job
/// without a chosen name has a unique name: its record is needed only while its driver and its
/// tasks run. Whether a transaction with a chosen name will be run again, only its owner knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin<'a> {
    /// A micro-batch of one query.
    MicroBatch { query: &'a str, number: u64 },
    /// A single job with a unique name.
    Job,
    /// A user-chosen name.
    Named,
}

/// Return the origin of a transaction, from its name.
pub(crate) fn origin(transaction: &str) -> Origin<'_> {
    let Some(rest) = transaction.strip_prefix("spark/") else { return Origin::Named };
    // This ID has no hyphens, unlike a query's.
    if is_session_id(rest) {
        return Origin::Job;
    }
    let Some((query, number)) = rest.split_once('/') else { return Origin::Named };
    // A query's ID is a UUID; users do not name batch jobs like that.
    let is_uuid = query.len() == 36 && query.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    match number.parse() {
        Ok(number) if is_uuid => Origin::MicroBatch { query, number },
        Ok(_) | Err(_) => Origin::Named,
    }
}

/// The transaction that a session belongs to: its first entity names it, and later entities must
/// not contradict it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) enum Membership {
    #[default]
    Unknown,
    None,
    /// `owner` is the hash of the owner's token, once an entity has named it.
    Of {
        key: Arc<str>,
        owner: Option<[u8; 32]>,
    },
}

impl Membership {
    /// Admit an entity, or return why it does not fit this session.
    pub(crate) fn admit(&mut self, key: EntityKey, header: &EntityHeader) -> Result<(), Reason> {
        if is_order(header) {
            return Ok(());
        }
        let of = header.metadata.get(KEY).map(String::as_str);
        match (&*self, of) {
            (Self::Unknown, None) => *self = Self::None,
            (Self::Unknown, Some(of)) => {
                check_key(of).map_err(invalid)?;
                *self = Self::Of { key: of.into(), owner: owner_hash(header)? };
            }
            (Self::None, None) => {}
            (Self::Of { key: own, owner }, Some(of)) if **own == *of => match (*owner, owner_hash(header)?) {
                (_, None) => {}
                // Only the first entities need to name the owner.
                (None, owner @ Some(_)) => *self = Self::Of { key: Arc::clone(own), owner },
                (Some(one), Some(other)) if one == other => {}
                (Some(_), Some(_)) => {
                    return Err(invalid("the session's earlier entities name another owner".to_owned()));
                }
            },
            // Descendants of a root belong to the root's transaction.
            (Self::Of { .. }, None) if key.scope > 1 => {}
            (Self::Of { .. }, None) => return Err(invalid(format!("the session's entities have the metadata {KEY}"))),
            (Self::None | Self::Of { .. }, Some(of)) => {
                return Err(invalid(format!("the session's earlier entities are not of the transaction {of:?}")));
            }
        }
        Ok(())
    }

    /// Return the session's transaction, for a client with this certificate.
    pub(crate) fn transaction(&self, certificate: Option<[u8; 32]>) -> Option<Transaction> {
        match self {
            Self::Unknown | Self::None => None,
            Self::Of { key, owner } => {
                Some(Transaction { key: Arc::clone(key), owner: Owner::of(*owner, certificate) })
            }
        }
    }
}

/// How a session's list has to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListEnd {
    /// No last line: the list lacks a line, or the session has not ended.
    Incomplete,
    /// The list already has its last line.
    Listed,
    /// A last line with this code.
    Closed(ErrorCode),
    /// No last line until the transaction is committed.
    Prepared(Transaction),
}

/// The result of preparing a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PrepareOutcome {
    /// The session is prepared, and waits for the commit.
    Prepared,
    /// The transaction was committed without this session.
    TooLate,
}

/// Why an order was not carried out.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The order names a session that does not belong to the transaction.
    Unknown(String),
    /// The order names a session that has not ended.
    StillOpen(String),
    /// The transaction was committed with other sessions.
    Committed,
    /// One of the sessions was given up while the transaction was being committed, so none of them
    /// is read.
    GivenUp,
    /// The order names no session, or its sender is not the owner; with the reason.
    Refused(String),
    /// The disk or the store failed.
    Storage(std::io::Error),
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        Self::Storage(error)
    }
}

impl Refusal {
    /// Return the reason that is sent to the client.
    pub(crate) fn reason(&self, key: &str) -> Reason {
        match self {
            Self::Unknown(session) => {
                invalid(format!("the session {session} is not prepared in the transaction {key:?} of this sink"))
            }
            Self::StillOpen(session) => {
                let message = format!("the session {session} has not ended yet");
                Reason { code: STILL_OPEN, message }
            }
            Self::Committed => {
                let message = format!(
                    "the transaction {key:?} was committed before, with other sessions: those that are named now will \
                     never be read"
                );
                Reason { code: COMMITTED, message }
            }
            Self::GivenUp => {
                let message = format!(
                    "a session of the transaction {key:?} was given up while it was being committed: none of its sessions \
                     will ever be read"
                );
                Reason { code: COMMITTED, message }
            }
            Self::Refused(why) => {
                let message = format!("the transaction {key:?} is not changed: {why}");
                Reason { code: REFUSED, message }
            }
            Self::Storage(error) => {
                let message = format!("the sink cannot keep the transaction: {error}");
                Reason { code: ErrorCode::InternalError, message }
            }
        }
    }
}

/// Return the refusal of a first commit because of another owner's record.
pub(crate) fn committed_by_another(record: &Record) -> Refusal {
    Refusal::Refused(if record.has_no_owner() {
        "it was committed before this sink recorded owners, so it is unknown whether it contains these rows; an \
         operator may remove its record"
            .to_owned()
    } else {
        "another owner has committed it, and the commit wants to be the only one of this name".to_owned()
    })
}

/// Return the refusal of an order about another owner's session.
pub(crate) fn prepared_by_another(session: &str) -> Refusal {
    Refusal::Refused(format!("the session {session} was prepared by another owner"))
}

fn check_key(key: &str) -> Result<(), String> {
    if (1..=MAX_KEY).contains(&key.len()) { Ok(()) } else { Err(format!("{KEY} has 1 to {MAX_KEY} bytes")) }
}

fn invalid(message: String) -> Reason {
    Reason { code: ErrorCode::EntityInvalid, message }
}

#[cfg(test)]
mod tests {
    use penstock_pipestream_net::port::PROOF;

    use super::*;
    use crate::format::OWNER;
    use crate::format::names::is_session_folder;

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
        let of = |owner| Transaction { key: "k".into(), owner };
        let order = TransactionCommand::parse(&header(COMMIT, Some("k")), list.as_bytes(), None).unwrap();
        let act = TransactionAction::Commit { sessions: vec![SESSION.into()], exclusive: false };
        assert_eq!(order, TransactionCommand { of: of(Owner::Anyone), act });
        let order = TransactionCommand::parse(&header(ABORT, Some("k")), b"{}", Some([1; 32])).unwrap();
        assert_eq!(
            order,
            TransactionCommand { of: of(Owner::Certificate([1; 32])), act: TransactionAction::Abort(None) }
        );
        let mut shown = header(COMMIT, Some("k"));
        shown.metadata.insert(PROOF.to_owned(), "02".repeat(32));
        let order = TransactionCommand::parse(&shown, b"{\"sessions\":[],\"exclusive\":true}", Some([1; 32])).unwrap();
        assert_eq!(order.of.owner, Owner::Token([2; 32]), "a token goes before a certificate");
        assert_eq!(order.act, TransactionAction::Commit { sessions: Vec::new(), exclusive: true });
    }

    #[test]
    fn an_order_that_names_nothing_is_refused_whatever_there_is() {
        let commit = |owner| TransactionCommand {
            of: Transaction { key: "k".into(), owner },
            act: TransactionAction::Commit { sessions: Vec::new(), exclusive: false },
        };
        let abort = |owner| TransactionCommand {
            of: Transaction { key: "k".into(), owner },
            act: TransactionAction::Abort(None),
        };
        for (order, fine) in [
            (commit(Owner::Anyone), false),
            (commit(Owner::Token([1; 32])), false),
            (abort(Owner::Anyone), false),
            (abort(Owner::Token([1; 32])), true),
            (abort(Owner::Certificate([1; 32])), true),
        ] {
            let code = order.check().err().map(|refusal| refusal.reason("k").code);
            assert_eq!(code, (!fine).then_some(REFUSED), "{order:?}");
        }
    }

    #[test]
    fn a_session_whose_id_was_used_before_is_found_by_its_id() {
        let prepared: Vec<String> = [format!("{SESSION}.1"), "11111111111111111111111111111111".to_owned()].into();
        assert_eq!(resolve(&[SESSION.to_owned()], &prepared), Ok(vec![format!("{SESSION}.1")]));
        assert_eq!(resolve(&["2".repeat(32)], &prepared), Err("2".repeat(32)));
        assert!(is_session_folder(SESSION) && is_session_folder(&format!("{SESSION}.12")));
        for name in ["", "committed.json", &format!("{SESSION}."), &format!("{SESSION}.x"), &SESSION.repeat(2)] {
            assert!(!is_session_folder(name), "{name}");
        }
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
            let refused = TransactionCommand::parse(&header(COMMIT, key), payload.as_bytes(), None).unwrap_err();
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
        assert_eq!(of, Membership::Of { key: "k".into(), owner: None });
        let owned = |digit: &str| {
            let mut owned = data.clone();
            owned.metadata.insert(OWNER.to_owned(), digit.repeat(64));
            owned
        };
        assert!(of.admit(entity(0), &owned("1")).is_ok() && of.admit(entity(0), &data).is_ok());
        assert!(of.admit(entity(0), &owned("2")).is_err() && of.admit(entity(0), &owned("x")).is_err());
        assert_eq!(of.transaction(None).map(|of| of.owner), Some(Owner::Token([0x11; 32])));
        let mut none = Membership::default();
        assert!(none.admit(entity(0), &plain).is_ok() && none.admit(entity(0), &data).is_err());
    }
}
