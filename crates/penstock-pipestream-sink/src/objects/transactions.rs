//! Transactions of an object sink.
//!
//! ```text
//! PREFIX/.transactions/SHA256(KEY)/OWNER/SESSION           the marker of a prepared session, whose list is in pieces
//! PREFIX/.transactions/SHA256(KEY)/OWNER/decision-N.json   {"given_up": [ID, ...]}, or the commit, the last one:
//!                                                          {"transaction": KEY, "sessions": [ID, ...], "owner": KIND}
//! ```
//!
//! Objects of transactions without an owner are in `SHA256(KEY)` itself (`owner.rs`). Earlier
//! versions put their commit as `committed.json`.
//!
//! A session's marker is put once all pieces of its list are stored. Commits and aborts are
//! decisions, which all servers make in one order: a server puts its decision under the next number
//! only if that number is free. If several servers try, the store accepts one; the others read the
//! decision that was put and decide again. So a commit never includes a session that an earlier
//! abort has given up, and no session is given up after a commit. Each server that finds decisions
//! next to markers, at the next order or at its start, completes the work: it puts the whole lists,
//! then removes the markers.
//!
//! Decisions are removed once the transaction cannot be run again ([`origin`]): those of a
//! micro-batch when a later one is committed, those of a job when a start finds that they are old.
//! Old aborts without a commit are removed as well.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::io;
use std::time::SystemTime;

use futures_util::future::try_join_all;
use futures_util::stream::TryStreamExt as _;
use object_store::path::Path;
use object_store::{Error, ObjectMeta, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, Result};
use penstock_io::hex;
use penstock_io::storage::{ObjectPrefix, plain};
use penstock_pipestream::ErrorCode;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::format::names::is_session_folder;
use crate::format::{RECORD, TRANSACTIONS, encode};
use crate::objects::list;
use crate::objects::listing::{age, sample};
use crate::transactions::{
    GIVEN_UP, JOB_RETENTION, KEPT_BATCHES, Origin, PrepareOutcome, Prepared, Record, Refusal, Transaction,
    TransactionAction, TransactionCommand, committed_by_another, origin, prepared_by_another, resolve,
};

/// Number of earlier micro-batches whose records a commit looks for. Micro-batches without rows are
/// never committed, so one commit alone may miss some records.
const EARLIER_BATCHES: u64 = 8;
/// Maximum number of transactions with old decisions that one start reads.
const MAX_OLD_TRANSACTIONS: usize = 16;

/// A decision about the sessions of a transaction.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Decision {
    Committed(Record),
    GivenUp { given_up: Vec<String> },
}

/// All decisions about a transaction so far.
#[derive(Debug, Default)]
struct Decisions {
    record: Option<Record>,
    given_up: HashSet<String>,
    /// The number of the next decision.
    next: u64,
}

impl Decisions {
    async fn read(place: &ObjectPrefix, own: &Path) -> Result<Self> {
        Self::read_listed(place, own, &TransactionObjects::below(place, own).await?).await
    }

    /// Read the decisions that are in a transaction's own folder.
    async fn read_listed(place: &ObjectPrefix, own: &Path, found: &TransactionObjects) -> Result<Self> {
        let mut decisions = Self::default();
        for path in found.decisions().filter(|path| is_in(own, path)) {
            decisions.next = decisions.next.max(path.filename().and_then(number_of).map_or(0, |number| number + 1));
            match read(place, path).await? {
                Some(Decision::Committed(record)) => decisions.record = Some(record),
                Some(Decision::GivenUp { given_up }) => decisions.given_up.extend(given_up),
                // Another server has removed this old decision.
                None => {}
            }
        }
        Ok(decisions)
    }

    /// Return a function from a prepared session to the code with which it must be closed; `None`
    /// if the session is still undecided.
    fn codes(&self) -> impl Fn(&str) -> Option<ErrorCode> {
        let record = self.record.as_ref();
        let committed: Option<HashSet<&str>> =
            record.map(|record| record.sessions.iter().map(String::as_str).collect());
        move |session| match &committed {
            Some(committed) if committed.contains(session) => Some(ErrorCode::NoError),
            Some(_) => Some(GIVEN_UP),
            None => self.given_up.contains(session).then_some(GIVEN_UP),
        }
    }

    /// Put the next decision; return false if another server put one first.
    async fn decide(
        &self,
        place: &ObjectPrefix,
        own: &Path,
        decision: &Decision,
    ) -> std::result::Result<bool, Refusal> {
        let bytes = serde_json::to_vec(decision).map_err(io::Error::from)?;
        let path = own.clone().join(format!("decision-{:06}.json", self.next));
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match place.store().put_opts(&path, bytes.into(), options).await {
            Ok(_) => Ok(true),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(false),
            Err(error) => Err(refusal(error)),
        }
    }
}

/// Return the number in the name of a decision.
fn number_of(name: &str) -> Option<u64> {
    name.strip_prefix("decision-")?.strip_suffix(".json")?.parse().ok()
}

/// Prepare a session that has ended properly and whose list is entirely in the store.
pub(super) async fn prepare(place: &ObjectPrefix, of: &Transaction, session: &str) -> Result<PrepareOutcome> {
    let own = place.path(&folder(of));
    let marker = own.clone().join(session);
    place.store().put(&marker, PutPayload::from(of.key.as_bytes().to_vec())).await?;
    // A commit looks for markers after it has put its decision, so either it sees the marker, or
    // this sees the commit.
    if Decisions::read(place, &own).await?.record.is_none() {
        return Ok(PrepareOutcome::Prepared);
    }
    place.store().delete(&marker).await?;
    Ok(PrepareOutcome::TooLate)
}

/// Return the sessions of a committed transaction: one list for each owner that has committed it.
pub(super) async fn committed(place: &ObjectPrefix, key: &str) -> Result<Vec<Vec<String>>> {
    let found = TransactionObjects::list(place, key).await?;
    let read = found.decisions().map(|path| read(place, path));
    let commits = try_join_all(read).await?.into_iter().filter_map(|decision| match decision? {
        Decision::Committed(record) => Some(record.sessions),
        Decision::GivenUp { .. } => None,
    });
    Ok(commits.collect())
}

/// Return the sessions of a transaction that are prepared and not closed yet, of all owners.
pub(super) async fn prepared(place: &ObjectPrefix, key: &str) -> Result<Vec<String>> {
    Ok(TransactionObjects::list(place, key).await?.sessions(|_| true))
}

/// Make the sessions of a commit readable, all or none, or those of an abort unreadable forever.
pub(super) async fn carry_out(place: &ObjectPrefix, order: &TransactionCommand) -> std::result::Result<(), Refusal> {
    order.check()?;
    let TransactionCommand { of, act } = order;
    let own = place.path(&folder(of));
    // Each failed round means that another server put a decision; the loop ends, because a commit
    // is the last decision.
    while !try_decide(place, of, &own, act).await? {}
    settle(place, &own).await.map_err(refusal)?;
    if let TransactionAction::Commit { .. } = act
        && let Err(error) = forget_earlier(place, of).await
    {
        // The commit has succeeded all the same.
        tracing::warn!(error = plain(&error), "cannot remove records of old micro-batches: retried later");
    }
    Ok(())
}

/// Put the decision that an order requests, unless it was put before. Return false if another
/// server put a decision first.
async fn try_decide(
    place: &ObjectPrefix,
    of: &Transaction,
    own: &Path,
    act: &TransactionAction,
) -> std::result::Result<bool, Refusal> {
    let found = TransactionObjects::list(place, &of.key).await.map_err(refusal)?;
    let decisions = Decisions::read_listed(place, own, &found).await.map_err(refusal)?;
    let decision = match (act, &decisions.record) {
        (TransactionAction::Commit { sessions, .. }, Some(record)) if !record.is_of(sessions) => {
            return Err(Refusal::Committed);
        }
        (TransactionAction::Commit { .. } | TransactionAction::Abort(_), Some(_)) => return Ok(true),
        (TransactionAction::Commit { sessions, exclusive }, None) => {
            let sessions = sessions_to_commit(place, &found, own, sessions, *exclusive).await?;
            if sessions.iter().any(|session| decisions.given_up.contains(session)) {
                return Err(Refusal::GivenUp);
            }
            Decision::Committed(Record::new(of, sessions))
        }
        (TransactionAction::Abort(sessions), None) => {
            let mut given_up = sessions_to_give_up(&found, own, sessions.as_deref())?;
            given_up.retain(|session| !decisions.given_up.contains(session));
            if given_up.is_empty() {
                return Ok(true);
            }
            Decision::GivenUp { given_up }
        }
    };
    decisions.decide(place, own, &decision).await
}

/// Remove the records of micro-batches that cannot be run again once this one is committed.
async fn forget_earlier(place: &ObjectPrefix, of: &Transaction) -> Result<()> {
    let Origin::MicroBatch { query, number } = origin(&of.key) else { return Ok(()) };
    let Some(last) = number.checked_sub(KEPT_BATCHES) else { return Ok(()) };
    let earlier = last.saturating_sub(EARLIER_BATCHES - 1)..=last;
    let forgotten = earlier.map(|number| async move {
        let earlier = Transaction { key: format!("spark/{query}/{number}").into(), owner: of.owner };
        forget(place, &place.path(&folder(&earlier))).await
    });
    try_join_all(forgotten).await.map(drop)
}

/// Remove the decisions of a transaction, unless some of its sessions have to be closed first.
async fn forget(place: &ObjectPrefix, own: &Path) -> Result<()> {
    let found = TransactionObjects::below(place, own).await?;
    if !found.sessions(|path| is_in(own, path)).is_empty() {
        return Ok(());
    }
    // Remove them in their order, so that the commit stays as long as any other decision.
    for path in found.decisions().filter(|path| is_in(own, path)) {
        ignore_missing(place.store().delete(path).await)?;
    }
    Ok(())
}

/// All objects of the transactions of one name, of all owners.
struct TransactionObjects(Vec<ObjectMeta>);

impl TransactionObjects {
    async fn list(place: &ObjectPrefix, key: &str) -> Result<Self> {
        Self::below(place, &place.path(&name_folder(key))).await
    }

    async fn below(place: &ObjectPrefix, folder: &Path) -> Result<Self> {
        let mut found: Vec<_> = place.store().list(Some(folder)).try_collect().await?;
        found.sort_unstable_by(|one: &ObjectMeta, other| one.location.cmp(&other.location));
        Ok(Self(found))
    }

    fn decisions(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|object| &object.location).filter(|path| path.filename().is_some_and(is_decision))
    }

    /// Return the folders of the sessions whose markers `wanted` selects.
    fn sessions(&self, wanted: impl Fn(&Path) -> bool) -> Vec<String> {
        let markers = self.0.iter().map(|object| &object.location).filter(|path| wanted(path));
        let names = markers.filter_map(Path::filename).filter(|name| is_session_folder(name));
        names.map(str::to_owned).collect()
    }
}

/// Return the folders of the sessions that a commit names, or the reason for refusing the commit.
async fn sessions_to_commit(
    place: &ObjectPrefix,
    found: &TransactionObjects,
    own: &Path,
    sessions: &[String],
    exclusive: bool,
) -> std::result::Result<Vec<String>, Refusal> {
    for path in found.decisions().filter(|path| !is_in(own, path)) {
        if let Some(Decision::Committed(record)) = read(place, path).await.map_err(refusal)?
            && (exclusive || record.has_no_owner())
        {
            return Err(committed_by_another(&record));
        }
    }
    match resolve(sessions, &found.sessions(|path| is_in(own, path))) {
        Ok(prepared) => Ok(prepared),
        Err(missing) => Err(why_missing(place, found, own, missing).await),
    }
}

/// Return why a commit cannot include a session.
async fn why_missing(place: &ObjectPrefix, found: &TransactionObjects, own: &Path, missing: String) -> Refusal {
    if resolve(std::slice::from_ref(&missing), &found.sessions(|path| !is_in(own, path))).is_ok() {
        return prepared_by_another(&missing);
    }
    match list::any_is_open(place, &missing).await {
        Ok(true) => Refusal::StillOpen(missing),
        Ok(false) => Refusal::Unknown(missing),
        Err(error) => refusal(error),
    }
}

/// Return the folders of the prepared sessions that an abort names, or of all prepared sessions of
/// the owner.
fn sessions_to_give_up(
    found: &TransactionObjects,
    own: &Path,
    sessions: Option<&[String]>,
) -> std::result::Result<Vec<String>, Refusal> {
    let prepared = found.sessions(|path| is_in(own, path));
    let Some(sessions) = sessions else { return Ok(prepared) };
    let others = found.sessions(|path| !is_in(own, path));
    let (prepared, others) = (Prepared::new(&prepared), Prepared::new(&others));
    let mut named = Vec::new();
    for session in sessions {
        match prepared.folders(session) {
            Some(folders) => named.extend(folders),
            None if others.folders(session).is_some() => return Err(prepared_by_another(session)),
            // A session that has not ended is not prepared, and ends by itself.
            None => {}
        }
    }
    Ok(named)
}

/// Carry out the decisions of servers that crashed, and remove decisions that are no longer needed,
/// as far as one listing shows them.
pub(super) async fn redo(place: &ObjectPrefix, now: SystemTime) -> Result<()> {
    let found = sample(place, TRANSACTIONS).await?;
    let mut unsettled: Vec<Path> = Vec::new();
    let mut old: Vec<Path> = Vec::new();
    for object in &found {
        let (Some(name), Some(own)) = (object.location.filename(), parent(&object.location)) else { continue };
        // A transaction whose decision was carried out has no marker.
        if is_session_folder(name) && !unsettled.contains(&own) {
            unsettled.push(own);
        } else if is_decision(name) && age(object, now) >= JOB_RETENTION && !old.contains(&own) {
            old.push(own);
        }
    }
    for own in unsettled {
        settle(place, &own).await?;
    }
    fastrand::shuffle(&mut old);
    for own in old.into_iter().take(MAX_OLD_TRANSACTIONS) {
        let record = Decisions::read(place, &own).await?.record;
        if record.is_none_or(|record| matches!(origin(&record.transaction), Origin::Job)) {
            forget(place, &own).await?;
        }
    }
    Ok(())
}

/// Close the prepared sessions about which there is a decision.
async fn settle(place: &ObjectPrefix, own: &Path) -> Result<()> {
    // One listing shows markers and decisions: a session that is prepared after it will find the
    // commit by itself.
    let found = TransactionObjects::below(place, own).await?;
    let decisions = Decisions::read_listed(place, own, &found).await?;
    let code = decisions.codes();
    for session in found.sessions(|path| is_in(own, path)) {
        if let Some(code) = code(&session) {
            close(place, own, &session, code).await?;
        }
    }
    Ok(())
}

/// Write the whole list of a prepared session, then remove its marker.
async fn close(place: &ObjectPrefix, own: &Path, session: &str, code: ErrorCode) -> Result<()> {
    list::close_abandoned(place, session, encode::closed(code)).await?;
    ignore_missing(place.store().delete(&own.clone().join(session)).await)
}

/// Ignore the error of an object that another server has already removed.
fn ignore_missing(removed: Result<()>) -> Result<()> {
    match removed {
        Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

fn name_folder(key: &str) -> String {
    format!("{TRANSACTIONS}/{}", hex::encode(Sha256::digest(key.as_bytes())))
}

fn folder(of: &Transaction) -> String {
    let folder = name_folder(&of.key);
    match of.owner.folder() {
        Some(owner) => format!("{folder}/{owner}"),
        None => folder,
    }
}

/// Return whether an object is directly in a folder, not in a subfolder.
fn is_in(folder: &Path, object: &Path) -> bool {
    object.prefix_match(folder).is_some_and(|parts| parts.count() == 1)
}

/// Return the folder that an object is in.
fn parent(object: &Path) -> Option<Path> {
    let parts: Vec<_> = object.parts().collect();
    let (_, folders) = parts.split_last()?;
    Some(folders.iter().cloned().collect())
}

fn is_decision(name: &str) -> bool {
    name == RECORD || number_of(name).is_some()
}

async fn read(place: &ObjectPrefix, path: &Path) -> Result<Option<Decision>> {
    let bytes = match place.store().get(path).await {
        Ok(found) => found.bytes().await?,
        Err(Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let broken = |error| Error::Generic { store: "sink", source: Box::new(error) };
    serde_json::from_slice(&bytes).map(Some).map_err(broken)
}

fn refusal(error: Error) -> Refusal {
    Refusal::Storage(io::Error::other(plain(&error)))
}
