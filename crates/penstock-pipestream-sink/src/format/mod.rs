//! The format of a sink, in one place: the names of its files, folders and media types, and the lines of its lists.
//!
//! ```text
//! SESSION/SCOPE/ENTITY       a payload; `ID.USES` if an ID was used before, `ENTITY-ATTEMPT` for a retry in a store
//! SESSION/entities.jsonl     a line for each entity ([`encode`], [`line`]), then {"closed": CODE}
//! .transactions/...          records of transactions
//! .claims/...                claim checks
//! ```

pub(crate) mod encode;
pub(crate) mod line;
pub(crate) mod line_file;
pub(crate) mod names;

/// The file of a session's list.
pub(crate) const LOG: &str = "entities.jsonl";
/// Folder of claim checks, next to the sessions.
pub(crate) const CLAIMS: &str = ".claims";
/// Folder of transactions, next to the sessions. No session has such a name.
pub(crate) const TRANSACTIONS: &str = ".transactions";
/// The record of a committed transaction.
pub(crate) const RECORD: &str = "committed.json";

/// The metadata key that names the transaction of an entity's session.
pub(crate) const TRANSACTION: &str = "penstock.transaction";
/// Metadata key by which the entities of a transaction's sessions identify their owner.
pub(crate) const OWNER: &str = "penstock.transaction-owner";
/// The content types of entities that end a transaction.
pub(crate) const COMMIT: &str = "application/vnd.penstock.commit+json";
pub(crate) const ABORT: &str = "application/vnd.penstock.abort+json";
