//! Transactions of an object sink.
//!
//! ```text
//! PREFIX/.transactions/SHA256(KEY)/SESSION           a session's end: it is prepared, its list still in pieces
//! PREFIX/.transactions/SHA256(KEY)/committed.json    {"transaction": KEY, "sessions": [ID, ...]}: never changed
//! ```
//!
//! A session's marker is put once all pieces of its list are there. The record is put only where there is none, which
//! stores decide among all who try: from then on the transaction is committed. What follows (whole lists, then the
//! markers go) is done again by whoever finds a record beside markers: the next order, or a start.
//!
//! Records go where the transaction cannot be run again ([`origin`]): that of a micro-batch when a later one is
//! committed, that of a job when a start finds it and it is old.

use std::io;
use std::time::SystemTime;

use futures_util::future::try_join_all;
use futures_util::stream::TryStreamExt as _;
use object_store::{Error, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, Result};
use penstock_pipestream::ErrorCode;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::super::super::transport::hex;
use super::super::record;
use super::super::records::Standing;
use super::super::transaction::{Act, FINISHED, GIVEN_UP, KEPT, Order, Origin, Refusal, is_session, origin};
use super::list;
use super::sweep::{age, some};
use crate::storage::{Place, plain};

/// Where all of it lies, below the sink. No session has such a name.
pub(super) const FOLDER: &str = ".transactions";
const RECORD: &str = "committed.json";
/// Micro-batches whose records a commit looks for. Those without rows have none, so that one look may miss some.
const LOOKED_BACK: u64 = 8;
/// Old records that one start reads.
const READ: usize = 16;

/// A commit.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    transaction: String,
    sessions: Vec<String>,
}

/// A session has ended as it should, and all of its list is in the store.
pub(super) async fn prepare(place: &Place, key: &str, session: &str) -> Result<Standing> {
    let folder = folder(key);
    let marker = place.path(&format!("{folder}/{session}"));
    place.store().put(&marker, PutPayload::from(key.as_bytes().to_vec())).await?;
    // Whoever commits looks for markers after the record; so one of the two sees the other.
    if read_record(place, &folder).await?.is_none() {
        return Ok(Standing::Prepared);
    }
    place.store().delete(&marker).await?;
    Ok(Standing::TooLate)
}

/// The sessions that a transaction was committed with; `None` where it has no record.
pub(super) async fn committed(place: &Place, key: &str) -> Result<Option<Vec<String>>> {
    Ok(read_record(place, &folder(key)).await?.map(|record| record.sessions))
}

/// The sessions of a transaction that are prepared and not closed yet.
pub(super) async fn prepared(place: &Place, key: &str) -> Result<Vec<String>> {
    markers(place, &folder(key)).await
}

/// Makes the sessions of a commit readable, all or none, and those of an abort unreadable for ever.
pub(super) async fn carry_out(place: &Place, order: &Order) -> std::result::Result<(), Refusal> {
    let Order { key, act } = order;
    let folder = folder(key);
    let committed = read_record(place, &folder).await.map_err(refusal)?.is_some();
    match act {
        Act::Commit(sessions) if !committed => commit(place, key, &folder, sessions).await?,
        Act::Abort(sessions) if !committed => {
            for session in markers(place, &folder).await.map_err(refusal)? {
                if sessions.as_ref().is_none_or(|named| named.contains(&session)) {
                    close(place, &folder, &session, GIVEN_UP).await.map_err(refusal)?;
                }
            }
            return Ok(());
        }
        Act::Commit(_) | Act::Abort(_) => {}
    }
    settle(place, &folder).await.map_err(refusal)?;
    if let Err(error) = forget_earlier(place, key).await {
        // The commit is done all the same.
        tracing::warn!(error = plain(&error), "records of old micro-batches stay");
    }
    Ok(())
}

/// Removes the records of micro-batches that cannot be run again, now that this one is committed.
async fn forget_earlier(place: &Place, key: &str) -> Result<()> {
    let Origin::MicroBatch { query, number } = origin(key) else { return Ok(()) };
    let Some(last) = number.checked_sub(KEPT) else { return Ok(()) };
    let earlier = last.saturating_sub(LOOKED_BACK - 1)..=last;
    let forgotten =
        earlier.map(|number| async move { forget(place, &folder(&format!("spark/{query}/{number}"))).await });
    try_join_all(forgotten).await.map(drop)
}

/// Removes a record, unless there are sessions that have to be closed first.
async fn forget(place: &Place, folder: &str) -> Result<()> {
    let found: Vec<_> = place.store().list(Some(&place.path(folder))).try_collect().await?;
    match found.as_slice() {
        [record] if record.location.filename() == Some(RECORD) => gone(place.store().delete(&record.location).await),
        _ => Ok(()),
    }
}

async fn commit(place: &Place, key: &str, folder: &str, sessions: &[String]) -> std::result::Result<(), Refusal> {
    let prepared = markers(place, folder).await.map_err(refusal)?;
    if let Some(session) = sessions.iter().find(|session| !prepared.contains(session)) {
        return Err(if list::is_open(place, session).await.map_err(refusal)? {
            Refusal::StillOpen(session.clone())
        } else {
            Refusal::Unknown(session.clone())
        });
    }
    let record = Record { transaction: key.to_owned(), sessions: sessions.to_vec() };
    let octets = serde_json::to_vec(&record).map_err(io::Error::from)?;
    let path = place.path(&format!("{folder}/{RECORD}"));
    let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
    match place.store().put_opts(&path, octets.into(), options).await {
        // Another server was faster: its word counts.
        Ok(_) | Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(()),
        Err(error) => Err(refusal(error)),
    }
}

/// Brings to their ends what servers that crashed had committed, and removes records that nobody needs any more, as far
/// as this start looks.
pub(super) async fn redo(place: &Place, now: SystemTime) -> Result<()> {
    let found = some(place, FOLDER).await?;
    let mut unsettled: Vec<String> = Vec::new();
    let mut old: Vec<String> = Vec::new();
    for object in &found {
        let mut names = object.location.as_ref().rsplit('/');
        let (Some(name), Some(folder)) = (names.next(), names.next()) else { continue };
        // What is committed and settled has no marker.
        if is_session(name) && unsettled.last().is_none_or(|last| last != folder) {
            unsettled.push(folder.to_owned());
        } else if name == RECORD && age(object, now) >= FINISHED {
            old.push(folder.to_owned());
        }
    }
    for folder in unsettled {
        settle(place, &format!("{FOLDER}/{folder}")).await?;
    }
    fastrand::shuffle(&mut old);
    for folder in old.iter().take(READ).map(|folder| format!("{FOLDER}/{folder}")) {
        let record = read_record(place, &folder).await?;
        if record.is_some_and(|record| matches!(origin(&record.transaction), Origin::Job)) {
            forget(place, &folder).await?;
        }
    }
    Ok(())
}

/// Whole lists for the sessions of a transaction that is committed.
async fn settle(place: &Place, folder: &str) -> Result<()> {
    let Some(record) = read_record(place, folder).await? else { return Ok(()) };
    for session in markers(place, folder).await? {
        let code = if record.sessions.contains(&session) { ErrorCode::NoError } else { GIVEN_UP };
        close(place, folder, &session, code).await?;
    }
    Ok(())
}

/// The list of a prepared session; then its marker goes.
async fn close(place: &Place, folder: &str, session: &str, code: ErrorCode) -> Result<()> {
    list::close_left(place, session, record::closed(code)).await?;
    gone(place.store().delete(&place.path(&format!("{folder}/{session}"))).await)
}

/// Whatever another server has removed meanwhile is gone as well.
fn gone(removed: Result<()>) -> Result<()> {
    match removed {
        Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

fn folder(key: &str) -> String {
    format!("{FOLDER}/{}", hex(&Sha256::digest(key.as_bytes())))
}

async fn read_record(place: &Place, folder: &str) -> Result<Option<Record>> {
    let path = place.path(&format!("{folder}/{RECORD}"));
    let octets = match place.store().get(&path).await {
        Ok(found) => found.bytes().await?,
        Err(Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let broken = |error| Error::Generic { store: "sink", source: Box::new(error) };
    serde_json::from_slice(&octets).map(Some).map_err(broken)
}

/// The sessions that are prepared.
async fn markers(place: &Place, folder: &str) -> Result<Vec<String>> {
    let found: Vec<_> = place.store().list(Some(&place.path(folder))).try_collect().await?;
    let names = found.iter().filter_map(|object| object.location.filename()).filter(|name| is_session(name));
    Ok(names.map(str::to_owned).collect())
}

fn refusal(error: Error) -> Refusal {
    Refusal::Storage(io::Error::other(plain(&error)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;

    const QUERY: &str = "01234567-89ab-cdef-0123-456789abcdef";
    const SESSION: &str = "11111111111111111111111111111111";

    async fn commit_all(place: &Place, keys: &[String]) {
        for key in keys {
            let order = Order { key: key.clone(), act: Act::Commit(Vec::new()) };
            carry_out(place, &order).await.unwrap();
        }
    }

    /// Which of these transactions have a record.
    async fn kept<'a>(place: &Place, keys: &'a [String]) -> Vec<&'a str> {
        let mut kept = Vec::new();
        for key in keys {
            if committed(place, key).await.unwrap().is_some() {
                kept.push(key.as_str());
            }
        }
        kept
    }

    #[test]
    fn records_of_micro_batches_that_cannot_run_again_go_with_later_commits() {
        let place = Place::of(Arc::new(InMemory::new()), "sink");
        let batch = |number: u64| format!("spark/{QUERY}/{number}");
        let keys = [batch(3), batch(4), batch(5), batch(6), "spark/daily/3".into(), "job".into()];
        crate::runtime::block_on(async {
            commit_all(&place, &keys).await;
            // A session that is to be closed first: its server was killed.
            let marker = place.path(&format!("{}/{SESSION}", folder(&batch(4))));
            place.store().put(&marker, PutPayload::default()).await.unwrap();
            commit_all(&place, &[batch(105)]).await;
            assert_eq!(kept(&place, &keys).await, [batch(4).as_str(), &batch(6), "spark/daily/3", "job"]);
        })
        .unwrap();
    }

    #[test]
    fn records_of_jobs_that_cannot_run_again_go_when_they_are_old_and_no_others() {
        let place = Place::of(Arc::new(InMemory::new()), "sink");
        let keys = [format!("spark/{}", "ab".repeat(16)), format!("spark/{QUERY}/0"), "spark/nightly".into()];
        crate::runtime::block_on(async {
            commit_all(&place, &keys).await;
            // Each start looks from anywhere on; so many of them see everything.
            for (later, left) in [(FINISHED / 2, 3), (FINISHED * 2, 2)] {
                for _ in 0..100 {
                    redo(&place, SystemTime::now() + later).await.unwrap();
                }
                assert_eq!(kept(&place, &keys).await, keys[3 - left..]);
            }
        })
        .unwrap();
    }
}
